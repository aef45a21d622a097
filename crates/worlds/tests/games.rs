//! Lanes play Skirmish through the bridge of crate gate: the engine is ours, and the way to it is that to any other.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rollhouse_core::{GameResult, Interruption, OptionValue, Outcome};
use rollhouse_engine::{Engine, EngineConfig, Reset};
use rollhouse_env::Registry;
use rollhouse_gate::openra::BridgeSettings;
use rollhouse_gate::{EmbeddedLanes, Gate};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{EpisodeInfo, Recorder, RecorderConfig, Replays};
use serde_json::json;

use crate::stage::{act, header, step_until, why_lost, world};

/// Starts an engine whose games are a draw after 100 ticks.
fn gate(address: &str) -> Gate {
    let entry = Registry::builtin().get("Skirmish-v0").unwrap();
    let options = vec![("time_limit".to_owned(), OptionValue::Int(100))];
    let lanes = EmbeddedLanes::new(entry, options, None).unwrap();
    let settings = BridgeSettings { sessions: 64, ticks_per_second: 25.0, any_map: false, seed: None };
    Gate::openra(address.parse::<SocketAddr>().unwrap(), None, Arc::new(lanes), settings).unwrap()
}

const ENDED: Outcome = Outcome::Finished { terminated: true, truncated: false };

#[test]
fn eight_lanes_play_two_episodes_each_and_are_recorded_in_full() {
    const LANES: usize = 8;
    let gate = gate("127.0.0.1:0");
    let entry = world(&gate.address().to_string(), json!({"weights": {"lose": -5, "explored": 1}}));
    let disk = Arc::new(FaultyDisk::new());
    let recorder = Recorder::open(disk.clone(), Path::new("data"), RecorderConfig::default()).unwrap();
    let config = EngineConfig::new(LANES);
    let run = recorder.begin_run(header(&entry, &config)).unwrap();
    let mut engine = Engine::new(&entry, config, Some(&run)).unwrap();
    engine.reset(&Reset::seeded(7, LANES)).unwrap();
    assert_eq!(engine.lost(), 0, "{:?}", why_lost(&mut engine, 0));
    let mut ends = [0; LANES];
    while ends.iter().any(|ends| *ends < 2) {
        act(&mut engine, 30, &[3]);
        let frame = engine.step().unwrap();
        for (lane, ends) in ends.iter_mut().enumerate() {
            *ends += u32::from(frame.terminated()[lane]);
            assert_eq!(frame.truncated()[lane], 0);
        }
    }
    assert_eq!(engine.lost(), 0);
    engine.close().unwrap();
    drop(run);
    recorder.finish().unwrap();
    let replays = Replays::open(disk, Path::new("data")).unwrap();
    assert_eq!(replays.damage().count(), 0);
    let mut listed: Vec<EpisodeInfo> = Vec::new();
    replays.for_each(|info| listed.push(info)).unwrap();
    listed.retain(|info| info.outcome == ENDED);
    for lane in 0..LANES as u32 {
        let mut of_lane: Vec<_> = listed.iter().filter(|info| info.name.lane == lane).collect();
        of_lane.sort_by_key(|info| info.name.number);
        assert!(of_lane.len() >= 2, "lane {lane}");
        for info in of_lane.into_iter().take(2) {
            let wanted = if lane == 3 { (GameResult::Lose, 1) } else { (GameResult::Draw, 4) };
            assert_eq!((info.result, info.length), wanted, "{info:?}");
            let episode = replays.load(info).unwrap();
            let columns = entry.spec().obs_columns();
            assert_eq!(episode.steps.unwrap().obs.len(), columns.len());
        }
    }
}

#[test]
fn lanes_whose_engine_dies_are_lost_and_come_back_with_it() {
    let first = gate("127.0.0.1:0");
    let address = first.address().to_string();
    let entry = world(&address, json!({}));
    let mut engine = Engine::new(&entry, EngineConfig::new(2), None).unwrap();
    engine.reset(&Reset::all()).unwrap();
    act(&mut engine, 20, &[]);
    engine.step().unwrap();
    assert_eq!(engine.lost(), 0);
    first.stop();
    step_until(&mut engine, |engine| engine.lost() == 2);
    assert_eq!(engine.loss(1), Some(Interruption::Crashed));
    let why = why_lost(&mut engine, 0);
    assert!(why.contains("engine"), "{why}");
    let _second = gate(&address);
    step_until(&mut engine, |engine| engine.lost() == 0);
    let mut ended = [0, 0];
    step_until(&mut engine, |engine| {
        ended.iter_mut().zip(engine.frame().unwrap().terminated()).for_each(|(ended, now)| *ended |= now);
        ended == [1, 1]
    });
}

#[test]
fn a_reset_waits_for_an_engine_that_comes_later() {
    let reserved = gate("127.0.0.1:0");
    let address = reserved.address().to_string();
    reserved.stop();
    let entry = world(&address, json!({}));
    let mut engine = Engine::new(&entry, EngineConfig::new(1), None).unwrap();
    std::thread::scope(|threads| {
        let resets = threads.spawn(|| engine.reset(&Reset::all()).map(|_| ()));
        let _gate = gate(&address);
        resets.join().unwrap().unwrap();
    });
    assert_eq!(engine.lost(), 0);
}
