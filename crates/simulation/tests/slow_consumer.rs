//! A store that takes a tenth of what a node records, for five minutes of virtual time.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::{
    AutoresetMode, ColumnRef, Interruption, RecordRule, RunId, SeedSchedule, StepColumns, WhenFull,
    random_bits,
};
use rollhouse_env::Registry;
use rollhouse_node::{
    FrameRequest, OwnedSession, SessionPlan, ShipAction, ShipEvent, Shipper, ShipperConfig,
};
use rollhouse_replay::testing::{DrivenRecorder, FaultyDisk};
use rollhouse_replay::{RecorderConfig, SealedSegment, Spool, limits};
use rollhouse_wire::{
    ColumnBuffer, FrameHeader, FrameKind, FrameLayout, Incarnation, LaneSettings, OpenSession, Secret,
    SessionId, Shipped,
};

const LANES: usize = 64;
const STEP: Duration = Duration::from_millis(2);
const TIME: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(200);
const SPOOL_BYTES: u64 = 400_000;
/// No segment is larger: five seconds of recording.
const SEGMENT_BYTES: u64 = 200_000;

/// A node that records, and a store that takes `per_second` bytes.
struct Stage {
    now: Duration,
    disk: FaultyDisk,
    driven: DrivenRecorder,
    spool: Spool,
    session: OwnedSession,
    layout: FrameLayout,
    shipper: Shipper,
    per_second: u64,
    /// What the store is taking, and when it has it.
    taking: BTreeMap<Duration, SealedSegment>,
    free_at: Duration,
    /// Segments that are about to be removed.
    removals: Vec<u64>,
    delivered_episodes: u64,
    /// Steps that were not made because the recorder took nothing.
    waited: u64,
    most_on_disk: u64,
    most_unwritten: u64,
}

impl Stage {
    fn new(when_full: WhenFull, per_second: u64) -> Self {
        let disk = FaultyDisk::new();
        let dir = Path::new("/spool");
        let config = RecorderConfig {
            budget_bytes: u64::MAX,
            seal_after: Some(Duration::from_secs(5)),
            ..RecorderConfig::default()
        };
        let mut driven =
            DrivenRecorder::open(Arc::new(disk.clone()), dir, config, 1, Duration::ZERO).unwrap();
        let registry = Registry::builtin();
        let open = open();
        let layout = FrameLayout::of(registry.get(&open.settings.env).unwrap().spec());
        let plan = Arc::new(SessionPlan::of(&open, &registry, "simulated").unwrap());
        let mut session = OwnedSession::make(plan, Some(Arc::clone(driven.recorder()))).unwrap();
        let header = FrameHeader { kind: FrameKind::Reset, flags: 0, number: 1, columns: 0, sidecar: 0 };
        session.handle(header, &FrameRequest::default()).unwrap();
        driven.turn(Duration::ZERO);
        let mut shipper = Shipper::new(ShipperConfig { spool_bytes: SPOOL_BYTES, when_full, seed: 1 });
        shipper.handle(Duration::ZERO, ShipEvent::Connected, &mut Vec::new());
        let spool = driven.recorder().spool();
        Self {
            now: Duration::ZERO,
            disk,
            driven,
            spool,
            session,
            layout,
            shipper,
            per_second,
            taking: BTreeMap::new(),
            free_at: Duration::ZERO,
            removals: Vec::new(),
            delivered_episodes: 0,
            waited: 0,
            most_on_disk: 0,
            most_unwritten: 0,
        }
    }

    fn live(&mut self) {
        let mut look_at = Duration::ZERO;
        while self.now < TIME {
            self.now += STEP;
            self.step();
            if self.now >= look_at {
                look_at = self.now + LOOK;
                self.driven.turn(self.now);
                self.ship();
            }
        }
    }

    fn step(&mut self) {
        if self.session.recording().unwrap().is_behind() {
            self.waited += 1;
            return;
        }
        let number = FrameHeader::next_number(self.session.last());
        let places = self.layout.actions(LANES, false).unwrap();
        let actions: Vec<i64> =
            (0..LANES as u32).map(|lane| (random_bits(1, lane, u64::from(number)) & 1) as i64).collect();
        let mut columns = ColumnBuffer::default();
        columns.resize(places.bytes);
        columns.bytes_mut()[places.actions].copy_from_slice(ColumnRef::I64(&actions).bytes());
        let columns_len = columns.bytes().len() as u32;
        let header =
            FrameHeader { kind: FrameKind::Step, flags: 0, number, columns: columns_len, sidecar: 0 };
        let answer = self.session.handle(header, &FrameRequest { columns, sidecar: Vec::new() }).unwrap();
        let header = FrameHeader::decode(*answer.first_chunk().unwrap()).unwrap();
        // While the spool is full, its owner is refused and asks again.
        self.waited += u64::from(header.kind == FrameKind::Refused);
    }

    /// One look of the shipping task, and what the store has taken since.
    fn ship(&mut self) {
        let later = self.taking.split_off(&(self.now + Duration::from_nanos(1)));
        for (_, segment) in std::mem::replace(&mut self.taking, later) {
            self.delivered_episodes += segment.episodes.unwrap();
            self.tell(ShipEvent::Answered { number: segment.number, answer: Shipped::Durable });
        }
        self.remove();
        for segment in self.spool.sealed() {
            self.tell(ShipEvent::Spooled(segment));
        }
        self.tell(ShipEvent::Open { bytes: self.driven.recorder().status().open_bytes });
        self.tell(ShipEvent::Tick);
        self.most_on_disk = self.most_on_disk.max(self.disk.used());
        let counts = self.shipper.counts();
        let sum = |of: fn(&rollhouse_node::Amount) -> u64| {
            of(&counts.shipped) + of(&counts.dropped) + of(&counts.waiting)
        };
        assert_eq!(counts.offered.segments, sum(|amount| amount.segments));
        assert_eq!(counts.offered.bytes, sum(|amount| amount.bytes));
    }

    fn remove(&mut self) {
        for number in std::mem::take(&mut self.removals) {
            let episodes = self.spool.episodes(number).ok();
            self.spool.take_away(number).unwrap();
            self.tell(ShipEvent::TakenAway { number, episodes });
        }
    }

    fn tell(&mut self, event: ShipEvent) {
        let mut actions = Vec::new();
        self.shipper.handle(self.now, event, &mut actions);
        for action in actions {
            match action {
                ShipAction::Ship(segment) => {
                    let takes = Duration::from_nanos(segment.bytes * 1_000_000_000 / self.per_second);
                    self.free_at = self.free_at.max(self.now) + takes;
                    self.taking.insert(self.free_at, segment);
                }
                ShipAction::TakeAway { number, .. } => self.removals.push(number),
                ShipAction::SetAside { number } => panic!("segment {number} is set aside"),
                ShipAction::Hold(held) => self.hold(held),
            }
        }
    }

    fn hold(&mut self, held: bool) {
        let before = self.driven.recorder().status().recorded.bytes;
        self.driven.recorder().hold(held);
        if !held {
            self.driven.turn(self.now);
            let written = self.driven.recorder().status().recorded.bytes - before;
            self.most_unwritten = self.most_unwritten.max(written);
        }
    }

    /// Ends the session; episodes that ended, and those in the spool.
    fn end(mut self) -> (u64, u64, Self) {
        self.remove();
        self.driven.recorder().hold(false);
        self.driven.turn(self.now);
        let stats = self.session.stats().unwrap();
        let open = LANES as u64;
        let ended: u64 = stats.outcomes.iter().sum();
        let plan = Arc::new(SessionPlan::of(&open_again(), &Registry::builtin(), "simulated").unwrap());
        let other = OwnedSession::make(plan, None).unwrap();
        let session = std::mem::replace(&mut self.session, other);
        let ended_now: u64 = session.finish(Interruption::Cancelled).unwrap().outcomes.iter().sum();
        assert!(ended_now >= ended && ended_now <= ended + open);
        self.driven.seal(self.now);
        let waiting =
            self.spool.sealed().iter().map(|segment| self.spool.episodes(segment.number).unwrap()).sum();
        (ended_now, waiting, self)
    }
}

fn open() -> OpenSession {
    OpenSession {
        session: SessionId { pool: RunId::from_u128(7), index: 0 },
        incarnation: Incarnation { term: 1, counter: 1 },
        secret: Secret::from_bytes([1; 16]),
        owner: "trainer".to_owned(),
        operates: false,
        first_lane: 0,
        lanes: LANES as u32,
        pool_lanes: LANES as u32,
        replaces: false,
        resume: None,
        settings: LaneSettings {
            env: "CartPole-v1".into(),
            env_kwargs: String::new(),
            deterministic: None,
            infos: Default::default(),
            pace: None,
            options: BTreeMap::new(),
            autoreset: AutoresetMode::NextStep,
            max_episode_steps: None,
            seeds: SeedSchedule::PerEpisode { run_seed: 3 },
            record: RecordRule::All,
            collect: None,
            replay: None,
            step_columns: StepColumns::default(),
        },
    }
}

fn open_again() -> OpenSession {
    OpenSession { settings: LaneSettings { record: RecordRule::None, ..open().settings }, ..open() }
}

/// Bytes a second that are recorded when nothing holds them up.
fn unhindered() -> u64 {
    let mut stage = Stage::new(WhenFull::Drop, u64::MAX);
    stage.live();
    assert_eq!((stage.waited, stage.shipper.counts().dropped.segments), (0, 0));
    stage.driven.recorder().status().recorded.bytes / TIME.as_secs()
}

#[test]
fn a_store_ten_times_too_slow_for_five_minutes_costs_bounded_space_and_every_episode_is_accounted_for() {
    let per_second = unhindered() / 10;
    for when_full in [WhenFull::BackPressure, WhenFull::Drop] {
        let mut stage = Stage::new(when_full, per_second);
        stage.live();
        let (ended, waiting, stage) = stage.end();
        let counts = stage.shipper.counts();
        let recorded = stage.driven.recorder().status().recorded;
        eprintln!("{when_full:?}: {counts:?} {recorded:?} {} steps waited", stage.waited);
        // Every episode that ended is recorded, and each of those delivered, dropped or waiting.
        assert_eq!((recorded.episodes, recorded.lost_episodes), (ended, 0), "{when_full:?}");
        let accounted = stage.delivered_episodes + counts.dropped_episodes + waiting;
        assert_eq!(accounted, ended, "{when_full:?}");
        // The disk: the limit, the segment being written, those in flight, and the newest that stays.
        assert!(stage.most_on_disk <= SPOOL_BYTES + 4 * SEGMENT_BYTES, "{} bytes", stage.most_on_disk);
        // Memory: what stepping ran ahead of the writer while it took nothing.
        assert!(stage.most_unwritten <= limits::SPARE_BYTES as u64, "{} bytes", stage.most_unwritten);
        match when_full {
            WhenFull::BackPressure => {
                assert_eq!(counts.dropped.segments, 0);
                assert!(stage.waited > 0, "stepping waits");
                assert_eq!(stage.most_unwritten, 0, "nothing is stepped that has to wait for the writer");
            }
            WhenFull::Drop => {
                assert!(counts.dropped.segments > 0 && counts.dropped_episodes > 0);
                assert_eq!(stage.waited, 0, "stepping goes on");
            }
        }
    }
}
