//! A plain model of what is recorded, and a driver that feeds the same to it and to a recorder.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rollhouse_core::{
    BoxSpace, ColumnData, ColumnRef, ColumnSpec, CompositeSpace, DType, Determinism, EnvSource, EnvSpec,
    GameResult, Interruption, LaneSet, Options, Outcome, RecordRule, Role, RunId, SeedSchedule, Space, Start,
    StepColumn, StepColumns, split_mix64,
};
use rollhouse_replay::{
    Beside, BlockRecorder, Disk, End, Episode, PolicyInfo, Query, Recorder, RecorderConfig, Replays, Row,
    RunHeader,
};

pub const DIR: &str = "/data";

/// A source of reproducible choices.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        split_mix64(self.0)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.word() % n
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// How a run looks.
#[derive(Debug, Clone)]
pub struct Shape {
    pub lanes: usize,
    pub actions: Space,
    pub autoreset: &'static str,
    pub per_episode: bool,
    pub record: RecordRule,
    pub deterministic: bool,
    pub rows: usize,
    /// One lane in this many ends in each row.
    pub end_one_in: u64,
    /// Lanes step irregularly, as in first-done stepping.
    pub ragged: bool,
    /// Something is noted of each step.
    pub noted: bool,
    /// There are a stack of frames beside the other observation, and a map beside the tags: packed columns.
    pub images: bool,
    pub seed: u64,
}

/// Extent of a stack of frames, and bytes of a map.
const STACK: [usize; 3] = [4, 5, 6];
const MAP: usize = 80;

/// The frame of a lane's step: most of it never changes, and some steps have another scene.
fn frame(lane: usize, number: u64, step: u64) -> Vec<u8> {
    let scene = if split_mix64(step ^ number << 20).is_multiple_of(7) { step } else { lane as u64 };
    let pixels = (0..30).map(|at| if at == step % 30 { 200 } else { (scene + at / 6) as u8 });
    pixels.collect()
}

/// The last four frames. In odd lanes they stand in another order at each step.
pub fn stack(lane: usize, number: u64, step: u64) -> Vec<u8> {
    let order = |at: u64| if lane.is_multiple_of(2) { at } else { (at + step) % 4 };
    (0..4).flat_map(|at| frame(lane, number, (step + order(at)).saturating_sub(3))).collect()
}

fn map(lane: usize, step: u64) -> Vec<u8> {
    (0..MAP as u64).map(|at| if at < step % 9 { 3 } else { lane as u8 }).collect()
}

impl Shape {
    pub fn plain(rows: usize) -> Self {
        Self {
            lanes: 64,
            actions: Space::discrete(2),
            autoreset: "NextStep",
            per_episode: true,
            record: RecordRule::All,
            deterministic: true,
            rows,
            end_one_in: 22,
            ragged: false,
            noted: false,
            images: false,
            seed: 1,
        }
    }

    pub fn spec(&self) -> EnvSpec {
        let floats = Space::f32_box(&[-1.0; 3], &[1.0; 3]);
        let pixels = BoxSpace {
            low: vec![0.0; 120].into(),
            high: vec![255.0; 120].into(),
            shape: STACK.to_vec(),
            dtype: DType::U8,
            choices: false,
            parts: None,
            own: None,
        };
        let both =
            vec![("pixels".into(), Space::Box(pixels).into()), ("vector".into(), floats.clone().into())];
        let channel = |path: &str, dtype, shape| ColumnSpec {
            path: path.into(),
            dtype,
            shape,
            names: vec![],
            role: Role::Info,
        };
        let mut info_channels = vec![channel("tag", DType::I32, vec![])];
        if self.images {
            info_channels.insert(0, channel("map", DType::U8, vec![MAP]));
        }
        EnvSpec {
            id: "test/Model-v0".into(),
            source: EnvSource::BuiltIn,
            summary: "a model".into(),
            observation_space: if self.images {
                CompositeSpace::Dict { spaces: both }.into()
            } else {
                floats.into()
            },
            action_space: self.actions.clone(),
            observation_names: ["x", "y", "z"].map(String::from).to_vec(),
            action_names: vec![],
            max_episode_steps: None,
            determinism: if self.deterministic {
                Determinism::Deterministic
            } else {
                Determinism::NonDeterministic
            },
            methods: vec![],
            options: vec![],
            info_channels,
            dynamics_hash: 99,
        }
    }

    pub fn step_columns(&self) -> StepColumns {
        let column = |name: &str, dtype, shape| StepColumn { name: name.into(), dtype, shape };
        let columns = vec![column("value", DType::F32, vec![]), column("pair", DType::I32, vec![2])];
        if self.noted { StepColumns::new(columns).unwrap() } else { StepColumns::default() }
    }

    pub fn header(&self) -> RunHeader {
        RunHeader {
            run: RunId::from_u128(
                u128::from(split_mix64(self.seed)) << 64 | u128::from(split_mix64(self.seed ^ 77)),
            ),
            spec: self.spec(),
            options: vec![Options::default()],
            lanes: self.lanes as u32,
            schedule: if self.per_episode {
                SeedSchedule::PerEpisode { run_seed: self.seed }
            } else {
                SeedSchedule::Continue
            },
            autoreset: self.autoreset.into(),
            max_episode_steps: None,
            policy: PolicyInfo { name: "dice".into(), version: 3 },
            record: self.record,
            program: "model".into(),
            started_ms: 5,
            parent: None,
            arguments: String::new(),
        }
    }
}

/// One episode of the model.
#[derive(Debug, Clone, Default)]
pub struct Lived {
    pub start: Start,
    pub discrete: Vec<i64>,
    pub floats: Vec<f32>,
    pub windows: Vec<(u64, u32)>,
    pub first_obs: Vec<f32>,
    pub obs: Vec<f32>,
    pub rewards: Vec<f64>,
    pub tags: Vec<i32>,
    /// Bits of the step columns.
    pub noted: (Vec<u32>, Vec<i32>),
    pub length: u64,
    pub end: Option<End>,
}

/// (lane, number) to episode.
pub type Model = BTreeMap<(u32, u64), Lived>;

/// Steps one block against recorder and model.
pub struct Driver {
    pub shape: Shape,
    pub recorder: BlockRecorder,
    pub model: Model,
    dice: Dice,
    /// What is noted, and the dice that change it.
    noted: (Vec<f32>, Vec<i32>),
    noting: Dice,
    /// The last actions of a Box.
    floats: Vec<f32>,
    number: Vec<u64>,
    open: LaneSet,
    resetting: LaneSet,
    pub now_ms: u64,
}

impl Driver {
    pub fn new(shape: &Shape, recorder: BlockRecorder) -> Self {
        let mut driver = Self {
            shape: shape.clone(),
            recorder,
            model: Model::new(),
            dice: Dice::new(shape.seed ^ 0xABCD),
            noted: (vec![f32::NAN; shape.lanes], vec![0; 2 * shape.lanes]),
            noting: Dice::new(shape.seed ^ 0x1234),
            floats: vec![],
            number: vec![0; shape.lanes],
            open: LaneSet::NONE,
            resetting: LaneSet::NONE,
            now_ms: 1000,
        };
        for lane in 0..shape.lanes {
            driver.begin(lane);
        }
        driver
    }

    fn begin(&mut self, lane: usize) {
        let number = self.number[lane];
        let start = if self.shape.per_episode {
            Start::seeded(rollhouse_core::per_episode_seed(self.shape.seed, lane as u32, number))
        } else {
            let wide = self.dice.one_in(20);
            Start {
                seed: if self.dice.one_in(5) { self.dice.word() } else { 1000 + lane as u64 },
                words: if wide { self.dice.word() } else { number * 4 },
                half: self.dice.one_in(4).then(|| self.dice.word() as u32),
            }
        };
        let first: Vec<f32> = (0..3 * self.shape.lanes).map(|i| i as f32 + number as f32 * 0.5).collect();
        let pixels: Vec<u8> = (0..self.shape.lanes).flat_map(|lane| stack(lane, number, 0)).collect();
        let columns = [ColumnRef::U8(&pixels), ColumnRef::F32(&first)];
        self.recorder.begin(lane, start, if self.shape.images { &columns } else { &columns[1..] });
        let first_obs = first[lane * 3..lane * 3 + 3].to_vec();
        self.model.insert((lane as u32, number), Lived { start, first_obs, ..Lived::default() });
        self.open.insert(lane);
    }

    pub fn end(&mut self, lane: usize, outcome: Outcome) {
        if !self.open.has(lane) {
            return;
        }
        self.open.remove(lane);
        let number = self.number[lane];
        self.number[lane] += 1;
        let episode = self.model.get_mut(&(lane as u32, number)).unwrap();
        let length = episode.length as f64;
        let total_reward = match self.dice.below(5) {
            0 => length,
            1 => -length,
            2 => self.dice.below(1000) as f64 - 500.0,
            3 => f64::from_bits(self.dice.word()),
            _ => length + 0.25,
        };
        let result = [GameResult::None, GameResult::Win, GameResult::Lose, GameResult::Draw]
            [if self.dice.one_in(6) { self.dice.below(4) as usize } else { 0 }];
        let score = self.dice.one_in(7).then(|| self.dice.word() as f64);
        let end = End { outcome, total_reward, hash: self.dice.word() as u32, result, score };
        self.recorder.end(lane, end);
        episode.end = Some(end);
    }

    /// Draws other actions: of every third run all new ones, of others an element of some lanes, or next to nothing.
    fn move_floats(&mut self, elements: usize) {
        let count = self.shape.lanes * elements;
        let kind = self.shape.seed % 3;
        if self.floats.len() != count || kind == 0 {
            self.floats = (0..count).map(|_| self.dice.below(1000) as f32 / 7.0).collect();
        } else if kind == 1 || self.dice.one_in(30) {
            for lane in 0..self.shape.lanes {
                let element = self.dice.below(2 * elements as u64) as usize;
                if element < elements {
                    self.floats[lane * elements + element] += 1.0;
                }
            }
        }
    }

    /// Notes something else of all lanes, of some or of none.
    fn note(&mut self) {
        let dice = &mut self.noting;
        let changes = [dice.one_in(2), dice.one_in(40)];
        if !self.shape.noted || changes == [false; 2] {
            return;
        }
        let many = dice.one_in(3);
        for lane in 0..self.shape.lanes {
            if changes[0] && (many || dice.one_in(9)) {
                self.noted.0[lane] = dice.below(3) as f32 / 3.0;
            }
            if changes[1] {
                self.noted.1[2 * lane] = dice.below(2) as i32;
            }
        }
        self.recorder.note(&[ColumnRef::F32(&self.noted.0), ColumnRef::I32(&self.noted.1)]);
    }

    /// One row, with what the autoreset mode does about ends.
    pub fn row(&mut self) {
        let lanes = self.shape.lanes;
        if self.dice.one_in(50) {
            self.now_ms += 60;
        }
        let mut stepped = self.open & LaneSet::first(lanes);
        if self.shape.autoreset == "NextStep" {
            stepped &= !self.resetting;
        }
        if self.shape.ragged {
            stepped &= LaneSet::of_bits(self.dice.word() | self.dice.word());
        }
        let elements = self.shape.actions.elements();
        let discrete: Vec<i64> = match &self.shape.actions {
            Space::Discrete(space) => {
                (0..lanes).map(|_| space.start + self.dice.below(space.n) as i64).collect()
            }
            Space::Box(_) => vec![],
        };
        if matches!(self.shape.actions, Space::Box(_)) {
            self.move_floats(elements);
        }
        let floats = self.floats.clone();
        let actions = match &self.shape.actions {
            Space::Discrete(_) => ColumnRef::I64(&discrete),
            Space::Box(_) => ColumnRef::F32(&floats),
        };
        let obs: Vec<f32> = (0..lanes * 3).map(|_| self.dice.below(999) as f32).collect();
        let rewards: Vec<f64> = (0..lanes).map(|_| self.dice.below(9) as f64).collect();
        // Those that repeat are coded as runs.
        let most = if self.shape.ragged { u64::MAX } else { 2 };
        let tags: Vec<i32> = (0..lanes).map(|_| (self.dice.word() % most) as i32).collect();
        self.note();
        let age = |lane: usize| {
            let number = self.number[lane];
            (number, self.model.get(&(lane as u32, number)).map_or(0, |lived| lived.length + 1))
        };
        let (mut pixels, mut maps) = (Vec::new(), Vec::new());
        for (lane, (number, age)) in (0..lanes).map(|lane| (lane, age(lane))) {
            pixels.extend(stack(lane, number, age));
            maps.extend(map(lane, age));
        }
        let first = usize::from(!self.shape.images);
        self.recorder.row(Row {
            stepped: stepped | !LaneSet::first(lanes),
            begun: LaneSet::NONE,
            actions,
            obs: &[ColumnRef::U8(&pixels), ColumnRef::F32(&obs)][first..],
            rewards: &rewards,
            infos: &[ColumnRef::U8(&maps), ColumnRef::I32(&tags)][first..],
            now_ms: self.now_ms,
        });
        for lane in stepped {
            let episode = self.model.get_mut(&(lane as u32, self.number[lane])).unwrap();
            episode.length += 1;
            match &self.shape.actions {
                Space::Discrete(_) => episode.discrete.push(discrete[lane]),
                Space::Box(_) => episode.floats.extend(&floats[lane * elements..(lane + 1) * elements]),
            }
            episode.obs.extend(&obs[lane * 3..lane * 3 + 3]);
            episode.rewards.push(rewards[lane]);
            episode.tags.push(tags[lane]);
            episode.noted.0.push(self.noted.0[lane].to_bits());
            episode.noted.1.extend(&self.noted.1[2 * lane..2 * lane + 2]);
            if episode.length.is_multiple_of(64) {
                let hash = self.dice.word() as u32;
                episode.windows.push((episode.length, hash));
                self.recorder.window(lane, hash);
            }
        }
        let begun_now = if self.shape.autoreset == "NextStep" { self.resetting } else { LaneSet::NONE };
        for lane in begun_now {
            self.begin(lane);
        }
        self.resetting &= !begun_now;
        let mut ended = LaneSet::NONE;
        for lane in stepped {
            if self.dice.one_in(self.shape.end_one_in) {
                let outcome = match self.dice.below(8) {
                    0 => Outcome::TRUNCATED,
                    1 => Outcome::Interrupted(Interruption::Crashed),
                    2 => Outcome::Finished { terminated: true, truncated: true },
                    _ => Outcome::TERMINATED,
                };
                self.end(lane, outcome);
                ended.insert(lane);
            }
        }
        match self.shape.autoreset {
            "NextStep" => self.resetting |= ended,
            // Disabled: the caller resets when it likes.
            "Disabled" => {
                self.resetting |= ended;
                if self.dice.one_in(3) {
                    for lane in std::mem::take(&mut self.resetting) {
                        self.begin(lane);
                    }
                }
            }
            _ => {
                for lane in ended {
                    self.begin(lane);
                }
            }
        }
        if self.dice.one_in(200) {
            self.recorder.flush();
        }
        if self.dice.one_in(150) {
            let lane = self.dice.below(lanes as u64) as usize;
            if self.open.has(lane) {
                self.end(lane, Outcome::Interrupted(Interruption::Evicted));
                self.begin(lane);
            }
        }
    }

    pub fn end_all(&mut self) {
        for lane in self.open {
            self.end(lane, Outcome::Interrupted(Interruption::Cancelled));
        }
    }
}

/// Records a whole run and gives what was lived.
pub fn record(disk: Arc<dyn Disk>, shape: &Shape, config: RecorderConfig) -> Model {
    let recorder = Recorder::open(disk, Path::new(DIR), config).unwrap();
    let beside = Beside { step_columns: shape.step_columns(), ..Beside::default() };
    let run = recorder.begin_run_with(shape.header(), beside).unwrap();
    let mut driver = Driver::new(shape, run.block(0, shape.lanes));
    for _ in 0..shape.rows {
        driver.row();
    }
    driver.end_all();
    let Driver { recorder: block, model, .. } = driver;
    drop(block);
    drop(run);
    recorder.finish().unwrap();
    model
}

pub fn all(replays: &Replays) -> Vec<rollhouse_replay::EpisodeInfo> {
    replays.list(&Query::default()).unwrap()
}

/// Asserts that a loaded episode is the lived one.
pub fn assert_same(shape: &Shape, lived: &Lived, episode: &Episode) {
    let name = episode.info.name;
    assert_eq!(episode.info.length, lived.length, "{name}");
    assert_eq!(episode.info.start, lived.start, "{name}");
    match &episode.actions {
        ColumnData::I64(actions) => assert_eq!(actions, &lived.discrete, "{name}"),
        ColumnData::F32(actions) => assert_eq!(actions, &lived.floats, "{name}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(episode.windows, lived.windows, "{name}");
    match lived.end {
        Some(end) => {
            assert_eq!(episode.info.outcome, end.outcome, "{name}");
            let total = episode.info.total_reward.unwrap();
            assert_eq!(total.to_bits(), end.total_reward.to_bits(), "{name}");
            assert_eq!((episode.info.result, episode.info.score), (end.result, end.score), "{name}");
            let failed = end.outcome == Outcome::Interrupted(Interruption::Crashed);
            assert_eq!(episode.end_hash, (!failed).then_some(end.hash), "{name}");
        }
        None => {
            assert_eq!(episode.info.outcome, Outcome::Interrupted(Interruption::Crashed), "{name}");
            assert_eq!(episode.info.total_reward, None, "{name}");
        }
    }
    match &episode.step_columns[..] {
        [ColumnData::F32(values), ColumnData::I32(pairs)] if shape.noted => {
            let bits: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
            assert_eq!((&bits, pairs), (&lived.noted.0, &lived.noted.1), "{name}");
        }
        columns => assert!(columns.is_empty() && !shape.noted, "{name}: {columns:?}"),
    }
    let full = shape.record == RecordRule::Trace || !shape.deterministic;
    assert_eq!(episode.steps.is_some(), full, "{name}");
    if let Some(steps) = &episode.steps {
        let (lane, number) = (name.lane as usize, name.number);
        let pixels = |steps: std::ops::RangeInclusive<u64>| {
            ColumnData::U8(steps.flat_map(|step| stack(lane, number, step)).collect())
        };
        let maps = ColumnData::U8((1..=lived.length).flat_map(|step| map(lane, step)).collect());
        let first = usize::from(!shape.images);
        assert_eq!(
            steps.first_obs,
            [pixels(0..=0), ColumnData::F32(lived.first_obs.clone())][first..],
            "{name}"
        );
        assert_eq!(
            steps.obs,
            [pixels(1..=lived.length), ColumnData::F32(lived.obs.clone())][first..],
            "{name}"
        );
        assert_eq!(steps.rewards, lived.rewards, "{name}");
        assert_eq!(steps.infos, [maps, ColumnData::I32(lived.tags.clone())][first..], "{name}");
    }
}
