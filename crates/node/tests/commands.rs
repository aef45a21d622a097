//! The command stream of a session: between two steps, in order, by its owner alone.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests outside of test functions")]

use crate::cluster;

use cluster::{Authority, Cluster, Owner, attach_of, session};
use rollhouse_core::{RecordRule, SeedSchedule};
use rollhouse_engine::{
    AttributeValue, CommandLanes, Engine, EngineConfig, GetAttributes, GetParams, LaneRange, Method, Nothing,
    Render, RenderAnswer, RenderParams, Reset, Schema, SchemaAnswer, SetAttributes, SetParams,
};
use rollhouse_env::Registry;
use rollhouse_wire::{
    ByteSender, CallError, CloseCode, ConnectionLost, Envelope, EnvelopeReader, EnvelopeWriter, OpenCommands,
    OpenSession, Refusal, RefusalCode, Secret,
};

fn commands_of(open: &OpenSession) -> OpenCommands {
    let attach = attach_of(open);
    OpenCommands {
        pool: attach.pool,
        index: attach.index,
        incarnation: attach.incarnation,
        secret: attach.secret,
    }
}

/// An owner's command stream.
pub(crate) struct Commands<'a> {
    owner: &'a Owner,
    reader: EnvelopeReader,
    writer: EnvelopeWriter,
}

impl<'a> Commands<'a> {
    pub(crate) fn open(owner: &'a Owner, open: &OpenSession) -> Self {
        let (opened, reader, writer) =
            owner.block_on(owner.connection.commands(commands_of(open), None)).unwrap();
        assert_eq!(opened.lanes, open.lanes);
        Self { owner, reader, writer }
    }

    fn put(&mut self, command: &Envelope) {
        self.owner.block_on(self.writer.write(command)).unwrap();
    }

    fn hear(&mut self) -> Envelope {
        self.owner.block_on(self.reader.read()).unwrap().unwrap()
    }

    pub(crate) fn call<M: Method>(&mut self, params: &M::Params) -> Result<M::Answer, Refusal> {
        self.put(&Envelope::command(1, M::NAME, params).unwrap());
        let answer = self.hear();
        assert_eq!((answer.id, answer.method.as_str()), (1, M::NAME));
        match &answer.error {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(answer.payload().unwrap()),
        }
    }
}

fn engine(lanes: usize) -> Engine {
    let schedule = SeedSchedule::PerEpisode { run_seed: 11 };
    let config = EngineConfig { schedule, ..EngineConfig::new(lanes) };
    Engine::new(&Registry::builtin().get("CartPole-v1").unwrap(), config, None).unwrap()
}

fn states(lanes: u32) -> GetParams {
    GetParams { name: "state".into(), lanes: LaneRange { first: 0, count: lanes } }
}

#[test]
fn commands_are_done_between_steps_in_their_order() {
    // More lanes than are commanded on the data thread, and fewer.
    for lanes in [4u32, 1_100] {
        let cluster = Cluster::start(|_| ());
        let open = session(1, "CartPole-v1", lanes);
        cluster.coordinator.open(&open).unwrap();
        let owner = cluster.owner();
        let mut stepper = owner.attach(&open);
        let mut commands = Commands::open(&owner, &open);
        let mut engine = engine(lanes as usize);
        engine.reset(&Reset::all()).unwrap();
        stepper.reset(1);
        for number in 2..20 {
            let actions: Vec<i64> =
                (0..i64::from(lanes)).map(|lane| (lane + i64::from(number)) % 2).collect();
            engine.actions().unwrap().as_i64_mut().unwrap().copy_from_slice(&actions);
            engine.step().unwrap();
            stepper.step(number, &actions);
            let part = lanes.min(300);
            let here = GetAttributes::run(&mut CommandLanes::of(&mut engine), states(part)).unwrap();
            assert_eq!(commands.call::<GetAttributes>(&states(part)).unwrap(), here);
        }
        // Several at once are answered in their order, a change before what is asked after it.
        let lanes = LaneRange { first: 1, count: 1 };
        let state = vec![AttributeValue::Vector(vec![0.25; 4])];
        let set = SetParams { name: "state".into(), lanes, values: state.clone() };
        commands.put(&Envelope::command(7, "set_attr", &set).unwrap());
        commands.put(&Envelope::command(9, "get_attr", &GetParams { name: "state".into(), lanes }).unwrap());
        let (first, second) = (commands.hear(), commands.hear());
        assert_eq!((first.id, first.error), (7, None));
        assert_eq!(second.id, 9);
        let answer: rollhouse_engine::Attributes = second.payload().unwrap();
        assert_eq!(answer.values, state);
    }
}

#[test]
fn a_lane_is_drawn_and_a_schema_told_over_the_stream() {
    let cluster = Cluster::start(|_| ());
    let open = session(1, "GridBreakout-v0", 3);
    cluster.coordinator.open(&open).unwrap();
    let owner = cluster.owner();
    let mut commands = Commands::open(&owner, &open);
    let params = RenderParams { lane: 1, packed: true, ..RenderParams::default() };
    let packed = commands.call::<Render>(&params).unwrap();
    let image = packed.image().unwrap();
    assert_eq!((image.height(), image.width()), (400, 400));
    // Who reads no packed pixels gets what fits as it is, and is told what does not.
    let small = RenderParams { size: Some((64, 48)), packed: false, ..params };
    let RenderAnswer { height, width, pixels, packed } = commands.call::<Render>(&small).unwrap();
    assert_eq!((height, width, pixels.len(), packed), (48, 64, 48 * 64 * 3, false));
    let error = commands.call::<Render>(&RenderParams { packed: false, ..params }).unwrap_err();
    assert_eq!(error.code, RefusalCode::Unsupported);
    assert!(error.message.contains("an answer of 480032 bytes, at most 130816 are taken"), "{error}");
    let schema: SchemaAnswer = commands.call::<Schema>(&Nothing {}).unwrap();
    assert!(schema.renders && !schema.recorded);
    assert_eq!(schema.columns[1].shape, [10, 10, 4]);
}

#[test]
fn what_cannot_be_done_is_refused_by_name_and_the_stream_goes_on() {
    let cluster = Cluster::start(|_| ());
    let open = session(1, "test/Faulty-v0", 2);
    cluster.coordinator.open(&open).unwrap();
    let owner = cluster.owner();
    let mut commands = Commands::open(&owner, &open);
    commands.put(&Envelope::command(3, "fly", &Nothing {}).unwrap());
    let error = commands.hear().error.unwrap();
    assert_eq!(error.code, RefusalCode::Unsupported);
    assert!(
        error.message.starts_with("no method `fly`; there are words, call, get_attr, note, pace, render"),
        "{error}"
    );
    commands.put(&Envelope::command(4, "render", &Nothing {}).unwrap());
    let error = commands.hear().error.unwrap();
    assert_eq!(error.code, RefusalCode::BadRequest);
    assert!(error.message.starts_with("params of `render`"), "{error}");
    let error = commands.call::<Render>(&RenderParams::default()).unwrap_err();
    assert_eq!(error.code, RefusalCode::Unsupported);
    let error = commands.call::<GetAttributes>(&states(3)).unwrap_err();
    assert_eq!(error.code, RefusalCode::BadRequest);
    assert_eq!(commands.call::<GetAttributes>(&states(2)).unwrap().values.len(), 2);
}

#[test]
fn an_answer_longer_than_an_envelope_is_refused_with_the_limit() {
    let cluster = Cluster::start(|_| ());
    let open = session(1, "CartPole-v1", 8_000);
    cluster.coordinator.open(&open).unwrap();
    let owner = cluster.owner();
    let mut commands = Commands::open(&owner, &open);
    let error = commands.call::<GetAttributes>(&states(8_000)).unwrap_err();
    assert_eq!(error.code, RefusalCode::Unsupported);
    assert!(error.message.contains("at most 130816 are taken"), "{error}");
}

#[test]
fn lanes_that_are_to_be_recorded_keep_their_options() {
    let data = Authority::new();
    let cluster = Cluster::start(|config| config.recording.spool = Some(data.path().join("spool")));
    let mut open = session(1, "CartPole-v1", 2);
    open.settings.record = RecordRule::All;
    cluster.coordinator.open(&open).unwrap();
    let owner = cluster.owner();
    let mut commands = Commands::open(&owner, &open);
    assert!(commands.call::<Schema>(&Nothing {}).unwrap().recorded);
    let params = SetParams {
        name: "low".into(),
        lanes: LaneRange { first: 0, count: 2 },
        values: vec![AttributeValue::Scalar(rollhouse_core::OptionValue::Float(0.0))],
    };
    let error = commands.call::<SetAttributes>(&params).unwrap_err();
    assert_eq!(
        error,
        Refusal::new(
            RefusalCode::Unsupported,
            "recorded lanes keep the options and states they have: give options to a reset"
        )
    );
}

#[test]
fn nobody_else_may_command_a_session() {
    let cluster = Cluster::start(|_| ());
    let open = session(1, "CartPole-v1", 2);
    cluster.coordinator.open(&open).unwrap();
    let owner = cluster.owner();
    let refused = |asked: OpenCommands| match owner.block_on(owner.connection.commands(asked, None)) {
        Err(CallError::Refused(refusal)) => refusal.code,
        other => panic!("{other:?}"),
    };
    let right = commands_of(&open);
    assert_eq!(
        refused(OpenCommands { secret: Secret::from_bytes([9; 16]), ..right }),
        RefusalCode::Unauthenticated
    );
    assert_eq!(refused(OpenCommands { index: 4, ..right }), RefusalCode::NotFound);
    let mut older = right;
    older.incarnation.counter = 0;
    assert_eq!(refused(older), RefusalCode::Stale);
}

#[test]
fn a_session_that_ends_ends_its_command_stream() {
    let cluster = Cluster::start(|_| ());
    let open = session(1, "CartPole-v1", 2);
    cluster.coordinator.open(&open).unwrap();
    let owner = cluster.owner();
    let mut commands = Commands::open(&owner, &open);
    commands.call::<Schema>(&Nothing {}).unwrap();
    cluster.coordinator.close(&open).unwrap();
    let lost = owner.block_on(commands.reader.read()).unwrap_err();
    assert!(lost.to_string().contains("session_ended"), "{lost}");
}

#[test]
fn what_is_no_envelope_ends_the_connection_and_another_owner_goes_on() {
    let cluster = Cluster::start(|_| ());
    let (open, calm_open) = (session(1, "CartPole-v1", 2), session(2, "CartPole-v1", 2));
    cluster.coordinator.open(&open).unwrap();
    cluster.coordinator.open(&calm_open).unwrap();
    let calm_owner = cluster.owner();
    let mut calm = Commands::open(&calm_owner, &calm_open);
    let bad: [(&[u8], CloseCode); 3] = [
        (&[1, 0, 0, 0, 0xc1], CloseCode::Malformed),
        (&[1, 0, 2, 0], CloseCode::TooLong),
        (&[0xff; 4], CloseCode::TooLong),
    ];
    for (bytes, code) in bad {
        let owner = cluster.owner();
        let mut commands = Commands::open(&owner, &open);
        let stream: &mut ByteSender = commands.writer.stream();
        owner.block_on(stream.write_all(bytes)).unwrap();
        let lost = owner.block_on(owner.connection.closed());
        assert!(matches!(&lost, ConnectionLost::ByPeer { code: given, .. } if *given == code), "{lost:?}");
        assert_eq!(calm.call::<GetAttributes>(&states(2)).unwrap().values.len(), 2);
    }
    assert_eq!(cluster.node.figures().malformed.get(), 3);
}
