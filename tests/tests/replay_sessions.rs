//! Recorded episodes that are opened as sessions: watched, sought and ended, by processes of their own.

use std::fs;
use std::time::Duration;

use rollhouse_client::{
    Address, Cluster as Connected, ConnectOptions, Replay, RequestError, Watch, WatchError,
};
use rollhouse_core::{EpisodeName, LaneState};
use rollhouse_tests::{Cluster, Service, json_lines, run, succeed, workspace};
use rollhouse_wire::{EndCause, RefusalCode};
use serde_json::Value;

/// A cluster of two nodes in whose store some episodes of an env are, and their names, the longest first.
struct Stage {
    cluster: Cluster,
    address: String,
    _coordinator: Service,
    nodes: Vec<Service>,
    names: Vec<EpisodeName>,
}

impl Stage {
    fn new(env: &str) -> Self {
        let cluster = Cluster::new(&["one", "two"]);
        let (coordinator, address) = cluster.coordinator("127.0.0.1:0");
        let nodes = ["one", "two"].map(|name| cluster.node(name, &address)).into();
        let mut stage = Self { cluster, address, _coordinator: coordinator, nodes, names: Vec::new() };
        let admin = stage.connection("admin");
        let rollout = format!("rollout --env {env} --lanes 4 --episodes 8 --seed 5 --connect {admin}");
        succeed(workspace(), &rollout);
        let listed = json_lines(workspace(), &format!("replay ls --json --sort -length --connect {admin}"));
        let names = listed.iter().map(|line| line["id"].as_str().expect("it has a name"));
        stage.names = names.map(|name| name.parse().expect("it is a name")).collect();
        assert_eq!(stage.names.len(), 8);
        stage
    }

    fn connection(&self, role: &str) -> String {
        let made = self.cluster.path(&format!("connection-{role}"));
        if made.exists() { made.display().to_string() } else { self.cluster.connection(role, &self.address) }
    }

    fn connected(&self, role: &str) -> Connected {
        let text = fs::read_to_string(self.connection(role)).expect("it was written");
        let address: Address = text.trim().parse().expect("it is a connection string");
        let options = ConnectOptions { timeout: Duration::from_secs(20), ..ConnectOptions::default() };
        Connected::connect(&address, options, None).expect("a coordinator is there")
    }

    fn open(&self, by: &Connected, name: EpisodeName) -> (Replay, Watch) {
        let replay = by.open_replay(name).expect("it is in the store");
        let watch = by.watch(replay.session()).expect("it is open");
        (replay, watch)
    }

    /// Observations of each step, the reset first, and rewards, as they are exported.
    fn exported(&self, name: EpisodeName) -> Vec<(Vec<f64>, f64)> {
        let file = self.cluster.path(&format!("{name}.jsonl"));
        let admin = self.connection("admin");
        let line =
            format!("replay export {name} --format jsonl --output {} --connect {admin}", file.display());
        succeed(workspace(), &line);
        let text = fs::read_to_string(file).expect("it was written");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
        let steps = lines.filter(|line| line["t"].is_u64());
        let row = |line: Value| {
            let obs = line["obs"].as_array().expect("they are numbers").iter().filter_map(Value::as_f64);
            (obs.collect(), line["reward"].as_f64().unwrap_or(0.0))
        };
        steps.map(row).collect()
    }
}

fn singles(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[test]
fn a_replay_shows_each_step_to_the_bit_wherever_it_is_sought_and_whoever_watches() {
    let stage = Stage::new("CartPole-v1");
    let name = stage.names[0];
    let recorded = stage.exported(name);
    let length = recorded.len() as u64 - 1;
    let (viewer, admin) = (stage.connected("viewer"), stage.connected("admin"));
    let (replay, mut watch) = stage.open(&viewer, name);
    let mut other = admin.watch(replay.session()).expect("an admin may watch it too");
    assert_eq!(watch.inner().replay().map(|of| of.episode.clone()), Some(name.to_string()));
    let mut serial = 0;
    // There and back, so that it goes on, goes back, and comes to where it stands.
    let steps = (0..=length).step_by(7).chain((0..=length).rev().step_by(5)).chain([0, length, length, 0]);
    for step in steps {
        let frame = watch.seek(step).expect("it has that step");
        let (obs, reward) = &recorded[step as usize];
        let wanted: Vec<u32> = obs.iter().map(|&value| (value as f32).to_bits()).collect();
        assert_eq!((singles(&frame.obs), frame.step, frame.reward), (wanted, step, *reward));
        let seen = other.look(0, serial, Duration::from_secs(10)).expect("it is watched").expect("it moved");
        assert_eq!(seen, frame, "both see the same");
        serial = seen.serial;
        let state = if step == length { LaneState::Over } else { LaneState::Paused };
        assert_eq!(
            other.inner().standing().map(|standing| (standing.state, standing.step)),
            Some((state, step))
        );
    }
    let so_far = watch.seek(length).and_then(|_| watch.so_far(0)).expect("it is known");
    assert_eq!((so_far.info.name, so_far.info.length), (name, length));
    replay.close().expect("its owner may close it");
    let over = watch.look(0, 0, Duration::from_secs(10));
    assert!(matches!(over, Err(WatchError::Over(_))), "{over:?}");
}

#[test]
fn a_replay_goes_on_by_itself_holds_still_when_paused_and_is_listed_with_its_state() {
    let stage = Stage::new("CartPole-v1");
    let viewer = stage.connected("viewer");
    let (replay, mut watch) = stage.open(&viewer, stage.names[0]);
    let connection = stage.connection("viewer");
    let state_of = || {
        let sessions = json_lines(workspace(), &format!("sessions --json --connect {connection}"));
        sessions[0]["replay"]["state"].as_str().map(str::to_owned)
    };
    assert!(["loading", "paused"].contains(&state_of().expect("it is a replay").as_str()));
    let begun = watch.play(64.0).expect("it can be played");
    assert_eq!(begun.step, 0);
    let (mut serial, mut step) = (begun.serial, begun.step);
    let length = watch.inner().standing().expect("it is a replay").length;
    while step < length {
        let frame =
            watch.look(0, serial, Duration::from_secs(10)).expect("it is watched").expect("it goes on");
        assert!(frame.step > step && frame.serial > serial, "{frame:?}");
        (serial, step) = (frame.serial, frame.step);
    }
    assert_eq!(watch.inner().standing().map(|standing| standing.state), Some(LaneState::Over));
    while state_of().as_deref() != Some("over") {}
    watch.seek(3).expect("it has that step");
    watch.play(0.0625).expect("it can be played");
    let paused = watch.pause().expect("it can be paused");
    assert!(paused.step < length);
    assert!(watch.look(0, paused.serial, Duration::ZERO).expect("it is watched").is_none(), "it holds still");
    while state_of().as_deref() != Some("paused") {}
    for (refused, word) in [
        (watch.seek(length + 1), "the episode has"),
        (watch.play(0.0), "speed = 0"),
        (watch.play(f64::NAN), "speed = NaN"),
    ] {
        let Err(WatchError::Refused(refusal)) = refused else { panic!("{refused:?}") };
        assert_eq!(refusal.code, RefusalCode::BadRequest);
        assert!(refusal.message.contains(word), "{refusal}");
    }
    let same = watch.look(0, 0, Duration::ZERO).expect("it is watched").expect("it stands there");
    assert_eq!((same.step, same.serial), (paused.step, paused.serial), "what is refused moves nothing");
    replay.close().expect("its owner may close it");
}

#[test]
fn the_command_opens_an_episode_where_it_is_told_to_and_ends_it_when_it_has_been_watched() {
    let stage = Stage::new("Pendulum-v1");
    let (viewer, name) = (stage.connection("viewer"), stage.names[0]);
    let line = format!("watch --replay {name} --at 37 --json --frames 1 --connect {viewer}");
    let frames = json_lines(workspace(), &line);
    assert_eq!(
        (frames[0]["step"].as_u64(), &frames[0]["replay"]["state"]),
        (Some(37), &Value::from("paused"))
    );
    let line = format!("watch --replay {name} --at 100 --speed 64 --json --frames 4 --connect {viewer}");
    let steps: Vec<u64> =
        json_lines(workspace(), &line).iter().filter_map(|frame| frame["step"].as_u64()).collect();
    assert!(steps.len() == 4 && steps.is_sorted() && steps[0] >= 100, "{steps:?}");
    assert_eq!(json_lines(workspace(), &format!("sessions --json --connect {viewer}")).len(), 0);
    let missing = EpisodeName { number: 1_000, ..name };
    for (line, code, word) in [
        (format!("watch --replay {name} --at 9999 --json --connect {viewer}"), 4, "the episode has 200"),
        (format!("watch --replay {missing} --json --connect {viewer}"), 2, "nearest are"),
        (format!("watch --replay aaaaaaaa-0-0 --json --connect {viewer}"), 2, "aaaaaaaa-0-0"),
        (format!("watch --replay nothing --json --connect {viewer}"), 2, "nothing"),
        (format!("watch --json --connect {viewer}"), 2, "SESSION"),
    ] {
        let done = run(workspace(), &line);
        assert_eq!(done.code, Some(code), "{line}: {}", done.stderr);
        assert!(done.stderr.contains(word), "{line}: {}", done.stderr);
    }
}

#[test]
fn a_replay_ends_with_its_node_with_the_cause_and_is_opened_again_on_another() {
    let mut stage = Stage::new("CartPole-v1");
    let (viewer, name) = (stage.connected("viewer"), stage.names[0]);
    let (replay, mut watch) = stage.open(&viewer, name);
    let node = watch.inner().node().to_owned();
    let at = usize::from(node == "two");
    stage.nodes.remove(at).kill();
    let mut serial = 0;
    let ended = loop {
        match watch.look(0, serial, Duration::from_secs(10)) {
            Ok(frame) => serial = frame.map_or(serial, |frame| frame.serial),
            Err(error) => break error,
        }
    };
    assert!(matches!(ended, WatchError::Over(_)), "{ended:?}");
    while viewer.cause_of_end(replay.session()).expect("it is remembered") != Some(EndCause::NodeLost) {}
    let (again, mut watch) = stage.open(&viewer, name);
    assert_ne!(watch.inner().node(), node);
    assert_eq!(watch.seek(5).expect("it has that step").step, 5);
    let admin = stage.connection("admin");
    succeed(workspace(), &format!("drain {} --connect {admin}", watch.inner().node()));
    while watch.look(0, u64::MAX, Duration::from_secs(10)).is_ok() {}
    while viewer.cause_of_end(again.session()).expect("it is remembered") != Some(EndCause::Drained) {}
}

#[test]
fn what_cannot_be_opened_is_refused_with_its_reason() {
    let stage = Stage::new("CartPole-v1");
    let refusal = |opened: Result<Replay, WatchError>| match opened {
        Err(WatchError::Request(RequestError::Call { error, .. })) => (error.refusal(), error.to_string()),
        other => panic!("{other:?}"),
    };
    let viewer = stage.connected("viewer");
    let name = stage.names[0];
    let unknown = refusal(viewer.open_replay(EpisodeName { number: 1_000_000, ..name }));
    assert_eq!(unknown.0, Some(RefusalCode::NotFound), "{}", unknown.1);
    // A trainer opens what is its own, and an admin played this. Nobody but its owner and admins closes a replay.
    let admin = stage.connected("admin");
    let of_another = refusal(stage.connected("trainer").open_replay(name));
    assert_eq!(of_another.0, Some(RefusalCode::NotFound), "{}", of_another.1);
    let replay = viewer.open_replay(name).expect("a viewer may");
    let trainer = stage.connection("trainer");
    let pool = replay.session().pool;
    let refused = run(workspace(), &format!("close {pool} --connect {trainer}"));
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    admin.close_pool(pool).expect("an admin may close what others opened");
    admin.open_replay(name).expect("an admin may").close().expect("it is its own");
    // One byte of the only copy is another one.
    let store = stage.cluster.path("coordinator").join("store");
    let folders = fs::read_dir(store).expect("it has a store").filter_map(|entry| Some(entry.ok()?.path()));
    let segments = folders.filter_map(|folder| fs::read_dir(folder.join("segments")).ok()).flatten();
    for segment in segments.filter_map(|entry| Some(entry.ok()?.path())) {
        let mut bytes = fs::read(&segment).expect("it can be read");
        let length = bytes.len();
        bytes[length / 3..length / 2].iter_mut().for_each(|byte| *byte ^= 0x40);
        fs::write(&segment, bytes).expect("it can be written");
    }
    let codes = stage.names.iter().map(|&name| viewer.open_replay(name)).filter_map(Result::err);
    let damaged: Vec<_> = codes.map(|error| refusal(Err(error))).collect();
    assert!(!damaged.is_empty(), "some of them are damaged");
    for (code, message) in damaged {
        assert_eq!(code, Some(RefusalCode::BadRequest), "{message}");
    }
}
