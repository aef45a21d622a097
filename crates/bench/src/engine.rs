//! `rollhouse-bench engine`: measures steps per second through the engine, without and with recording.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_cli::failure::{Failure, Status};
use rollhouse_cli::human::Bytes;
use rollhouse_cli::output::Output;
use rollhouse_cli::table::{Align, Table};
use rollhouse_core::{ColumnData, Goal, RecordRule, RunId, split_mix64};
use rollhouse_engine::{Engine, EngineConfig, Reset};
use rollhouse_env::{EnvEntry, InstructionSet, Registry};
use rollhouse_node::Rollout;
use rollhouse_policy::{Act, Builtin};
use rollhouse_replay::{RealDisk, Recorded, Recorder, RecorderConfig};
use serde::Serialize;

use crate::args::EngineArgs;
use crate::failed::failed;
use crate::scratch::Scratch;
use crate::seed::SEED;
use crate::spread::Spread;

/// Steps two engines in turn, one of which is recorded.
pub(crate) fn run(args: &EngineArgs, out: &mut Output) -> Result<Status, Failure> {
    let entry = Registry::builtin().get(&args.env).map_err(|error| Failure::of(Status::Usage, &error))?;
    let set = args.isa.unwrap_or_else(InstructionSet::best);
    let config = EngineConfig {
        threads: args.threads,
        autoreset: args.autoreset,
        instruction_set: set,
        ..EngineConfig::new(args.lanes)
    };
    let folder = Scratch::new()?;
    let recorder = Recorder::open(Arc::new(RealDisk), &folder.0, RecorderConfig::default())
        .map_err(|error| Failure::of(Status::Failed, &error))?;
    let mut plain = Lanes::new(&entry, &config, None)?;
    let mut recorded = Lanes::new(&entry, &config, Some(&recorder))?;
    let batches = plain.calibrate()?;
    let (mut without, mut with) = (Samples::default(), Samples::default());
    for _ in 0..args.repetitions {
        plain.repeat(batches, &mut without)?;
        recorded.repeat(batches, &mut with)?;
    }
    let threads = plain.engine.threads();
    drop((plain, recorded));
    let written = recorder.finish().map_err(|error| Failure::of(Status::Failed, &error))?;
    let result = EngineResult {
        env: &entry.spec().id,
        lanes: args.lanes,
        threads,
        isa: set.to_string(),
        autoreset: args.autoreset.name(),
        repetitions: args.repetitions,
        reset_share: 1.0 - without.steps as f64 / without.rows as f64,
        without_recording: without.figures(),
        with_recording: with.figures(),
        recording: Recording::of(&without, &with, &written),
    };
    if args.json {
        out.json(&result)?
    } else {
        result.print(out)?
    }
    Ok(Status::Done)
}

/// The output of `--json`; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct EngineResult<'a> {
    env: &'a str,
    lanes: usize,
    threads: usize,
    isa: String,
    autoreset: &'static str,
    repetitions: u32,
    reset_share: f64,
    without_recording: Figures,
    with_recording: Figures,
    recording: Recording,
}

#[derive(Debug, Serialize)]
struct Figures {
    steps_per_second: Spread,
    ns_per_step: Spread,
}

#[derive(Debug, Serialize)]
struct Recording {
    /// Time that recording adds to each repetition, compared with the unrecorded one just before it.
    adds_ns_per_step: Spread,
    writer_cores_per_100m_steps_per_second: f64,
    bytes_per_step: f64,
    bytes_per_episode: Option<f64>,
    bytes: u64,
    stalled_seconds: f64,
}

impl Recording {
    fn of(without: &Samples, with: &Samples, written: &Recorded) -> Self {
        let pairs = with.ns_per_step.iter().zip(&without.ns_per_step);
        // Batches before the first repetition were recorded too.
        let steps = with.all_steps as f64;
        Self {
            adds_ns_per_step: Spread::of(pairs.map(|(with, without)| with - without).collect()),
            writer_cores_per_100m_steps_per_second: written.busy.as_secs_f64() / steps * 100e6,
            bytes_per_step: written.bytes as f64 / steps,
            bytes_per_episode: (written.episodes > 0).then(|| written.bytes as f64 / written.episodes as f64),
            bytes: written.bytes,
            stalled_seconds: written.stalled.as_secs_f64(),
        }
    }
}

impl EngineResult<'_> {
    fn print(&self, out: &mut Output) -> io::Result<()> {
        let Self { env, lanes, threads, isa, autoreset, repetitions, .. } = self;
        writeln!(
            out,
            "{env}, {lanes} lanes, {threads} thread(s), {isa}, autoreset {autoreset}, random actions, \
             {repetitions} repetitions\n"
        )?;
        let mut table = Table::new(&[
            ("", Align::Left),
            ("MIN", Align::Right),
            ("MEDIAN", Align::Right),
            ("MAX", Align::Right),
            ("", Align::Left),
        ]);
        for (what, figures) in [("not recorded", &self.without_recording), ("recorded", &self.with_recording)]
        {
            table.row(figures.steps_per_second.row(what, 1e-6, 1, "million steps per second"));
            table.row(figures.ns_per_step.row("", 1.0, 3, "ns a step"));
        }
        let recording = &self.recording;
        table.row(recording.adds_ns_per_step.row("recording adds", 1.0, 3, "ns a step"));
        table.write(out)?;
        let share = recording.writer_cores_per_100m_steps_per_second * 100.0;
        writeln!(out, "\nThe writer thread uses {share:.1} % of a core per 100 million steps a second.")?;
        if recording.stalled_seconds > 0.0 {
            writeln!(out, "Stepping waited {:.3} s for the writer.", recording.stalled_seconds)?;
        }
        write!(out, "Written: {}, {:.3} bytes a step", Bytes(recording.bytes), recording.bytes_per_step)?;
        if let Some(bytes) = recording.bytes_per_episode {
            write!(out, ", {bytes:.1} bytes an episode")?;
        }
        writeln!(out, ".")?;
        writeln!(
            out,
            "A step is one lane taking one action; the {:.1} % of rows that begin an episode are not counted.",
            self.reset_share * 100.0
        )
    }
}

/// An engine and the random actions it is stepped with.
struct Lanes {
    engine: Engine,
    /// Random actions, for more lanes than there are.
    actions: ColumnData,
    /// Number of elements of one lane's action.
    width: usize,
    /// Number of batches stepped.
    stepped: u64,
}

impl Lanes {
    fn new(
        entry: &Arc<EnvEntry>,
        config: &EngineConfig,
        recorder: Option<&Recorder>,
    ) -> Result<Self, Failure> {
        let rollout = Rollout::new(
            Arc::clone(entry),
            config.clone(),
            SEED,
            Arc::new(Builtin::Random),
            Goal::Batches(0),
        );
        let run = match recorder {
            Some(recorder) => {
                // Stepped with Gymnasium's schedule, as a trainer's lanes are.
                let schedule = config.schedule;
                let header =
                    rollout.header(RunId::generate(), RecordRule::All, "rollhouse-bench".to_owned(), 0);
                let run = recorder.begin_run(rollhouse_replay::RunHeader { schedule, ..header });
                Some(run.map_err(|error| Failure::of(Status::Failed, &error))?)
            }
            None => None,
        };
        let mut engine = Engine::new(entry, config.clone(), run.as_ref())
            .map_err(|error| Failure::of(Status::Failed, &error))?;
        let mut policy = Builtin::Random
            .make(&entry.spec().action_space, SEED)
            .map_err(|error| Failure::of(Status::Usage, &error))?;
        engine.reset(&Reset::seeded(SEED, config.lanes)).map_err(failed)?;
        let column = engine.actions().map_err(failed)?;
        let column = column.as_ref();
        let width = column.len() / config.lanes;
        let mut actions = ColumnData::zeros(column.dtype(), (config.lanes + SPARE_LANES) * width);
        let request = Act { first_lane: 0, step: 0, obs: &[], mask: None, actions: actions.as_mut() };
        policy.act(request).map_err(|error| Failure::of(Status::Failed, &error))?;
        Ok(Self { engine, actions, width, stepped: 0 })
    }

    /// Steps `batches` batches and returns how long they took.
    fn step(&mut self, batches: u64) -> Result<Duration, Failure> {
        let began = Instant::now();
        for _ in 0..batches {
            self.act()?;
            black_box(self.engine.step().map_err(failed)?.rewards());
        }
        Ok(began.elapsed())
    }

    /// Gives the lanes as many of the actions, from another one on in each batch: actions that repeat every few batches
    /// make episodes of CartPole a fifth shorter than random ones do.
    fn act(&mut self) -> Result<(), Failure> {
        let first = (split_mix64(self.stepped) % SPARE_LANES as u64) as usize * self.width;
        self.stepped += 1;
        let mut to = self.engine.actions().map_err(failed)?;
        let copied = to.copy_from(self.actions.as_ref().slice(first, first + to.as_ref().len()));
        debug_assert!(copied, "they were made for this column");
        Ok(())
    }

    /// Returns how many batches make a repetition. Also warms up.
    fn calibrate(&mut self) -> Result<u64, Failure> {
        let mut batches = 16;
        loop {
            let took = self.step(batches)?;
            if took >= REPETITION / 4 {
                let wanted = batches as f64 * REPETITION.as_secs_f64() / took.as_secs_f64();
                return Ok((wanted as u64).max(1));
            }
            batches *= 2;
        }
    }

    fn repeat(&mut self, batches: u64, samples: &mut Samples) -> Result<(), Failure> {
        let before = self.engine.stats().map_err(failed)?.steps;
        let took = self.step(batches)?;
        samples.all_steps = self.engine.stats().map_err(failed)?.steps;
        let steps = samples.all_steps - before;
        samples.steps += steps;
        samples.rows += batches * self.engine.lanes() as u64;
        samples.ns_per_step.push(took.as_nanos() as f64 / steps as f64);
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Samples {
    ns_per_step: Vec<f64>,
    /// Number of steps of the repetitions.
    steps: u64,
    rows: u64,
    /// Number of steps since the engine was made.
    all_steps: u64,
}

impl Samples {
    fn figures(&self) -> Figures {
        let ns = Spread::of(self.ns_per_step.clone());
        let steps_per_second = Spread { min: 1e9 / ns.max, median: 1e9 / ns.median, max: 1e9 / ns.min };
        Figures { steps_per_second, ns_per_step: ns }
    }
}

/// Number of lanes for which random actions are drawn beside those that are stepped.
const SPARE_LANES: usize = 1024;

/// Rough length of a repetition.
const REPETITION: Duration = Duration::from_millis(200);
