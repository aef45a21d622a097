//! Plug-ins in worker processes: the same numbers as in this process, and faults that cost their own lanes.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and says what it skips")]

use crate::stage;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{
    AutoresetMode, ColumnMut, ColumnRef, Distribution, GameResult, LaneDeadlines, LaneSet, LaneState,
    OptionValue, Options, Plugin, Start, Verdict, random_bits,
};
use rollhouse_engine::{Engine, EngineConfig, Reset, Stats};
use rollhouse_env::{BlockEnv, EnvEntry, ImageSize, InstructionSet, MakeError, Registry};
use rollhouse_host::PluginHost;
use stage::{Folder, entry, host};

/// Three blocks, of which each worker has one.
const LANES: usize = 150;

/// Returns why an isolated plug-in is not loaded.
fn refusal(path: &Path, launch_deadline: Duration) -> String {
    let plugin = Plugin { path: path.to_owned(), trusted: false };
    host(launch_deadline).register(&Registry::empty(), &[plugin]).unwrap_err().to_string()
}

fn options(entry: &EnvEntry, fault: i64, at: i64) -> Options {
    let given = [("fault".to_owned(), OptionValue::Int(fault)), ("at".to_owned(), OptionValue::Int(at))];
    Options::check(&entry.spec().options, &given).unwrap()
}

fn engine(entry: &Arc<EnvEntry>, config: EngineConfig) -> Engine {
    let mut engine = Engine::new(entry, config, None).unwrap();
    engine.keep_log().unwrap();
    engine.reset(&Reset::seeded(3, LANES)).unwrap();
    engine
}

fn step(engine: &mut Engine, number: u64) {
    let ColumnMut::F32(actions) = engine.actions().unwrap() else { panic!("actions are singles") };
    for (lane, action) in actions.iter_mut().enumerate() {
        *action = (random_bits(3, lane as u32, number) % 100) as f32 / 200.0;
    }
    engine.step().unwrap();
}

/// Row of a lane: flag, x, info, reward, terminated, truncated.
type Row = (u8, u64, i64, u64, u8, u8);

fn rows(engine: &mut Engine, lanes: std::ops::Range<usize>) -> Vec<Row> {
    let frame = engine.frame().unwrap();
    let (ColumnRef::U8(flags), ColumnRef::F64(xs)) = (frame.obs(0), frame.obs(1)) else {
        panic!("two columns")
    };
    let ColumnRef::I64(steps) = frame.info(0) else { panic!("a column of infos") };
    let row = |lane: usize| {
        let (x, reward) = (xs[lane].to_bits(), frame.rewards()[lane].to_bits());
        (flags[lane], x, steps[lane], reward, frame.terminated()[lane], frame.truncated()[lane])
    };
    lanes.map(row).collect()
}

#[test]
fn an_isolated_plugin_gives_the_bits_of_a_trusted_one_in_every_mode() {
    let folder = Folder::new();
    let Some(path) = folder.breaking() else { return };
    let (trusted, isolated) = (entry(&path, true), entry(&path, false));
    assert_eq!(trusted.spec(), isolated.spec());
    assert!(trusted.spec().dynamics_hash != 0 && isolated.is_late());
    assert_eq!(
        (trusted.render_size(), trusted.render_fps()),
        (isolated.render_size(), isolated.render_fps())
    );
    for autoreset in [AutoresetMode::NextStep, AutoresetMode::SameStep] {
        let config = EngineConfig { autoreset, ..EngineConfig::new(LANES) };
        let mut engines = [&trusted, &isolated].map(|entry| engine(entry, config.clone()));
        let mut events = 0;
        for number in 0..200 {
            // Beginnings of episodes and state hashes are those of the trusted one, too.
            let [a, b] = engines.each_mut().map(|engine| {
                step(engine, number);
                let mut log = Vec::new();
                engine.take_log(&mut log);
                (rows(engine, 0..LANES), log.iter().map(|event| format!("{event:?}")).collect::<Vec<_>>())
            });
            assert_eq!(a, b, "step {number}");
            events += a.1.len();
        }
        assert!(events > LANES, "{events} events");
        let looked = engines.each_mut().map(|engine| {
            let states = engine.states(60..70).unwrap();
            engine.set_states(5..6, vec![vec![2.5, 3.0]]).unwrap();
            let line = engine.text(149, 10).unwrap();
            let picture = engine.render(149, Some(ImageSize::new(3, 2).unwrap())).unwrap();
            (states, engine.positions(0..LANES).unwrap(), engine.states(0..LANES).unwrap(), line, picture)
        });
        assert_eq!(looked[0], looked[1]);
    }
}

/// Steps an env whose lanes say which actions they take, with random ones among these, and returns all that is shown.
fn walk(entry: &Arc<EnvEntry>, autoreset: AutoresetMode, far: OptionValue) -> Vec<Vec<i64>> {
    let options = Options::check(&entry.spec().options, &[("far".to_owned(), far)]).unwrap();
    entry.check_drawn(&options).unwrap();
    let config = EngineConfig { autoreset, options: vec![options], ..EngineConfig::new(LANES) };
    let mut engine = engine(entry, config);
    let mut shown = Vec::new();
    for number in 0..60 {
        let frame = engine.frame().unwrap();
        let (ColumnRef::I64(cells), ColumnRef::U8(masks)) = (frame.obs(0), frame.info(1)) else { panic!() };
        let mut actions = Vec::new();
        for (lane, (cell, mask)) in cells.iter().zip(masks.chunks(4)).enumerate() {
            // A mask is that of the cell which is shown: every second action, whatever the lane has done before.
            assert_eq!(mask[usize::from(cell % 2 == 1)..], [1, 0, 1, 0][..4 - usize::from(cell % 2 == 1)]);
            actions.push(cell % 2 + 2 * (random_bits(3, lane as u32, number) % 2) as i64);
        }
        shown.push(cells.iter().copied().chain(masks.iter().map(|&byte| byte.into())).collect());
        assert!(frame.rewards().iter().all(|&reward| reward >= 0.0), "what a mask allows is taken");
        let ColumnMut::I64(to) = engine.actions().unwrap() else { panic!("actions are integers") };
        to.copy_from_slice(&actions);
        engine.step().unwrap();
    }
    shown
}

#[test]
fn masks_are_there_in_the_rows_of_steps_and_of_beginnings_wherever_the_plugin_is() {
    let folder = Folder::new();
    let Some(path) = folder.compiled("host/tests/stage/masked.c", "-DMASKED") else { return };
    let (trusted, isolated) = (entry(&path, true), entry(&path, false));
    assert_eq!(trusted.spec(), isolated.spec());
    for autoreset in [AutoresetMode::NextStep, AutoresetMode::SameStep] {
        let walks = [&trusted, &isolated].map(|entry| walk(entry, autoreset, OptionValue::Int(4)));
        assert_eq!(walks[0], walks[1]);
    }
}

#[test]
fn options_are_drawn_for_each_episode_alike_wherever_the_plugin_is() {
    let folder = Folder::new();
    let Some(path) = folder.compiled("host/tests/stage/masked.c", "-DDRAWN") else { return };
    let (trusted, isolated) = (entry(&path, true), entry(&path, false));
    let drawn = |range| OptionValue::Drawn(Distribution::Integers(range));
    for autoreset in [AutoresetMode::NextStep, AutoresetMode::SameStep] {
        let walks = [&trusted, &isolated].map(|entry| walk(entry, autoreset, drawn([1, 19])));
        assert_eq!(walks[0], walks[1]);
        assert_ne!(walks[0], walk(&trusted, autoreset, OptionValue::Int(4)));
    }
    let beyond = Options::check(&isolated.spec().options, &[("far".to_owned(), drawn([1, 20]))]).unwrap();
    let why = |entry: &Arc<EnvEntry>| entry.check_drawn(&beyond).unwrap_err().to_string();
    assert_eq!(why(&trusted), why(&isolated), "what does not work with an end of it is refused alike");
}

/// Lanes wherever they are.
fn any_block(entry: &EnvEntry, options: &[Options]) -> Result<BlockEnv, MakeError> {
    entry.make_any_block(InstructionSet::best(), options)
}

#[test]
fn lanes_of_a_plugin_without_verdicts_are_asked_for_none_wherever_they_are() {
    let folder = Folder::new();
    let Some(breaking) = folder.breaking() else { return };
    let Some(silent) = folder.compiled("plugin/examples/cartpole.c", "-DSILENT") else { return };
    for trusted in [true, false] {
        let says = |path: &Path| {
            let entry = entry(path, trusted);
            let options = Options::check(&entry.spec().options, &[]).unwrap();
            any_block(&entry, &[options]).unwrap().has_verdicts()
        };
        assert_eq!((says(&breaking), says(&silent)), (true, false), "trusted: {trusted}");
    }
}

#[test]
fn a_block_that_is_called_directly_does_what_a_trusted_one_does() {
    let folder = Folder::new();
    let Some(path) = folder.breaking() else { return };
    let seen = [true, false].map(|trusted| {
        let entry = entry(&path, trusted);
        let mut block = any_block(&entry, &vec![options(&entry, 0, 0); 3]).unwrap();
        block.restore(0, Start { seed: 9, words: 5, half: Some(7) });
        (1..3).for_each(|lane| block.seed(lane, lane as u64));
        let (mut flags, mut xs, mut infos, mut rewards) = ([0; 3], [0.0; 3], [0; 3], [0.0; 3]);
        let obs = &mut [ColumnMut::U8(&mut flags), ColumnMut::F64(&mut xs)];
        let lost = block.reset_at_once(LaneSet::first(3), obs, Instant::now);
        assert!(lost.is_empty());
        let mut seen = Vec::new();
        for number in 0..10 {
            let step = rollhouse_env::BlockStep {
                skip: LaneSet::one(number % 3),
                reset: if number == 7 { LaneSet::one(2) } else { LaneSet::NONE },
                actions: ColumnRef::F32(&[0.25, 0.5, 0.75]),
                obs: &mut [ColumnMut::U8(&mut flags), ColumnMut::F64(&mut xs)],
                infos: &mut [ColumnMut::I64(&mut infos)],
                rewards: &mut rewards,
            };
            let ended = block.step_at_once(step, Instant::now);
            let fact = |lane| (block.state_hash(lane), block.position(lane), block.verdict(lane));
            let facts: Vec<_> = (0..3).map(fact).collect();
            let won = if xs[0] > 0.0 { GameResult::Win } else { GameResult::Lose };
            assert_eq!(block.verdict(0), Verdict::new(won, Some(xs[0])));
            assert!(block.verdict(2).is_none(), "nonsense is nothing");
            seen.push((flags, xs.map(f64::to_bits), infos, rewards.map(f64::to_bits), ended, facts));
        }
        seen
    });
    assert_eq!(seen[0], seen[1]);
}

/// Breaks a lane of the second block and looks at the lanes of the others. Returns the statistics, and the states after it.
fn broken(folder: &Folder, path: &Path, fault: i64, deadline: Duration) -> (Stats, Vec<LaneState>) {
    let _gone = std::fs::remove_file(folder.mark());
    let (trusted, isolated) = (entry(path, true), entry(path, false));
    let mut whole = engine(&trusted, EngineConfig::new(LANES));
    let mut given = vec![options(&isolated, 0, 0); LANES];
    given[BLOCK_LANES + 6] = options(&isolated, fault, 4);
    let config = EngineConfig {
        options: given,
        lane_deadlines: LaneDeadlines::both(deadline),
        ..EngineConfig::new(LANES)
    };
    let mut engine = engine(&isolated, config);
    let mut states = Vec::new();
    for number in 0..60 {
        step(&mut whole, number);
        step(&mut engine, number);
        for others in [0..BLOCK_LANES, 2 * BLOCK_LANES..LANES] {
            assert_eq!(
                rows(&mut engine, others.clone()),
                rows(&mut whole, others),
                "fault {fault}, {number}"
            );
        }
        if number == 3 {
            states = engine.lane_states().unwrap();
        }
    }
    // Those that were lost come back, and play on.
    let until = Instant::now() + Duration::from_secs(60);
    let mut number = 60;
    while engine.lost() > 0 {
        assert!(Instant::now() < until, "{} lanes are lost", engine.lost());
        step(&mut engine, number);
        number += 1;
    }
    for number in number..number + 50 {
        step(&mut engine, number);
        assert_eq!(engine.lost(), 0);
    }
    (engine.stats().unwrap(), states)
}

fn count(stats: &Stats, interruption: rollhouse_core::Interruption) -> u64 {
    let outcome = rollhouse_core::Outcome::Interrupted(interruption);
    let at = rollhouse_core::Outcome::ALL.iter().position(|&other| other == outcome).unwrap();
    stats.outcomes[at]
}

#[test]
fn a_crash_or_an_exit_costs_the_lanes_of_its_worker_and_nothing_else() {
    let folder = Folder::new();
    let Some(path) = folder.breaking() else { return };
    // It aborts, writes where it must not, exits with 0, fails as rollhouse.h says, and aborts after it has written over all
    // memory that it shares.
    for fault in [1, 2, 4, 5, 8] {
        let (stats, states) = broken(&folder, &path, fault, Duration::from_secs(60));
        let lost = states.iter().filter(|&&state| state == LaneState::BackOff).count();
        assert_eq!(lost, BLOCK_LANES, "fault {fault}");
        assert_eq!(count(&stats, rollhouse_core::Interruption::Crashed), BLOCK_LANES as u64, "fault {fault}");
        assert_eq!(stats.restarts, BLOCK_LANES as u64, "fault {fault}");
    }
}

#[test]
fn an_endless_loop_costs_the_lanes_of_its_worker_as_hung() {
    let folder = Folder::new();
    let Some(path) = folder.breaking() else { return };
    let (stats, states) = broken(&folder, &path, 3, Duration::from_millis(400));
    let lost = states.iter().filter(|&&state| state == LaneState::BackOff).count();
    assert_eq!(lost, BLOCK_LANES);
    assert_eq!(count(&stats, rollhouse_core::Interruption::Hung), BLOCK_LANES as u64);
}

#[test]
fn a_lane_that_the_plugin_loses_or_shows_nonsense_of_is_lost_alone() {
    let folder = Folder::new();
    let Some(path) = folder.breaking() else { return };
    for fault in [6, 7] {
        let (stats, states) = broken(&folder, &path, fault, Duration::from_secs(60));
        let lost = states.iter().filter(|&&state| state == LaneState::BackOff).count();
        assert_eq!((lost, stats.restarts), (1, 1), "fault {fault}");
        assert_eq!(count(&stats, rollhouse_core::Interruption::Crashed), 1, "fault {fault}");
    }
}

#[test]
fn a_plugin_that_breaks_while_it_is_loaded_is_refused() {
    let folder = Folder::new();
    let minute = Duration::from_secs(60);
    for (flag, patience, wanted) in [
        ("-DLOAD_ABORTS", minute, "signal: 6"),
        ("-DLOAD_EXITS", minute, "exit status: 0"),
        ("-DLOAD_LOOPS", Duration::from_secs(1), "killed at its deadline"),
    ] {
        let Some(path) = folder.compiled("host/tests/stage/breaking.c", flag) else { return };
        let refused = refusal(&path, patience);
        let lost = format!("plug-in {}: its worker process was lost before it was ready: ", path.display());
        assert!(refused.starts_with(&lost) && refused.contains(wanted), "{flag}: {refused}");
    }
}

#[test]
fn what_is_wrong_with_an_isolated_plugin_is_told_as_of_a_trusted_one() {
    let folder = Folder::new();
    for fault in
        ["NO_SYMBOL", "VERSION", "NO_STEP", "OBSERVATION_COUNT", "BOUNDS", "MAKE_FAILS", "NOT_DETERMINISTIC"]
    {
        let flag = format!("-DFAULT_{fault}");
        let Some(path) = folder.compiled("plugin/tests/stage/faulty.c", &flag) else { return };
        let trusted = rollhouse_plugin::load(&path).map(drop).unwrap_err().to_string();
        assert_eq!(refusal(&path, Duration::from_secs(60)), trusted, "{fault}");
    }
    let text = folder.0.path().join("text.so");
    std::fs::write(&text, "no shared object").unwrap();
    for (path, wanted) in [
        (&text, "it cannot be loaded"),
        (&folder.0.path().join("nothing.so"), "No such file"),
        (&folder.0.path().to_owned(), "it is not a file"),
    ] {
        let refused = refusal(path, Duration::from_secs(60));
        assert!(refused.contains(wanted), "{refused}");
    }
}

#[test]
fn a_plugin_that_was_changed_since_it_was_loaded_makes_no_lanes() {
    let folder = Folder::new();
    let Some(path) = folder.breaking() else { return };
    let entry = entry(&path, false);
    let Some(other) = folder.compiled("host/tests/stage/breaking.c", "-DLOAD_NOTHING=1") else { return };
    let mut bytes = std::fs::read(other).unwrap();
    bytes.push(0);
    std::fs::write(&path, bytes).unwrap();
    let error = any_block(&entry, &[options(&entry, 0, 0)]).map(drop).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "the plug-in is another than when it was loaded");
}

#[test]
fn a_program_that_is_none_of_ours_is_told() {
    let folder = Folder::new();
    let Some(path) = folder.breaking() else { return };
    for (program, wanted) in [("/nothing/there", "it could not be started"), ("/bin/false", "exit status: 1")]
    {
        let host = PluginHost { command: vec![program.into()], ..host(Duration::from_secs(60)) };
        let plugin = Plugin { path: path.clone(), trusted: false };
        let refused = host.register(&Registry::empty(), &[plugin]).unwrap_err().to_string();
        assert!(refused.contains(wanted), "{refused}");
    }
}

#[test]
fn sessions_of_a_plugin_leave_no_process_behind() {
    let folder = Folder::new();
    let Some(path) = folder.breaking() else { return };
    let entry = entry(&path, false);
    let make = || {
        let mut engine = engine(&entry, EngineConfig::new(LANES));
        step(&mut engine, 0);
        engine.close().unwrap();
    };
    make();
    // Other tests of this process have workers of their own, so only those of this plug-in's file are counted.
    let mapped = || {
        let maps = std::fs::read_dir("/proc").unwrap().flatten();
        let maps = maps.filter_map(|process| std::fs::read_to_string(process.path().join("maps")).ok());
        maps.filter(|maps| maps.contains(path.to_str().unwrap())).count()
    };
    for _ in 0..20 {
        make();
    }
    assert_eq!(mapped(), 0);
    let block = any_block(&entry, &[options(&entry, 0, 0)]).unwrap();
    assert_eq!(mapped(), 1);
    drop(block);
    assert_eq!(mapped(), 0);
}
