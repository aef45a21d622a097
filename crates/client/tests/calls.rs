//! Methods of an env are called on lanes of a pool as on an engine's, and lanes that go on elsewhere have been called too.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test file uses its own part")]
use crate::nodes;

use nodes::Nodes;
use rollhouse_client::{MethodError, OnLoss, Pool, PoolRequest, Transport};
use rollhouse_core::{ColumnData, ColumnMut, random_bits};
use rollhouse_engine::{Engine, EngineConfig, Frame, Reset, StepError};
use rollhouse_env::Registry;
use rollhouse_wire::{RefusalCode, Spread};

const ENV: &str = "test/Called-v0";
const LANES: usize = 70;

fn request(transport: Transport) -> PoolRequest {
    let mut request = PoolRequest::new(ENV, LANES as u32);
    request.transport = Some(transport);
    request
}

fn engine() -> Engine {
    Engine::new(&Registry::builtin().get(ENV).unwrap(), EngineConfig::new(LANES), None).unwrap()
}

fn fill(actions: ColumnMut<'_>, step: u64) {
    let ColumnMut::I64(actions) = actions else { panic!("it is discrete") };
    actions
        .iter_mut()
        .enumerate()
        .for_each(|(lane, to)| *to = (random_bits(3, lane as u32, step) & 1) as i64);
}

fn shown(frame: Frame<'_>) -> (ColumnData, Vec<f64>, Vec<u8>) {
    (ColumnData::from(frame.obs(0)), frame.rewards().to_vec(), frame.reset().to_vec())
}

/// Calls a few lanes of both, and steps both.
fn play(pool: &mut Pool, engine: &mut Engine, steps: std::ops::Range<u64>) {
    for step in steps {
        for part in 0..3 {
            let bits = random_bits(8, part, step);
            let lane = (bits >> 8) as usize % LANES;
            let method = ["push", "shake", "where"][bits as usize % 3];
            let payload = format!("{}", (bits >> 32 & 7) as i64 - 3);
            let here = engine.call(lane, method, &payload);
            let there = pool.call_method(lane, method, &payload);
            match (&here, &there) {
                (Ok(here), Ok(there)) => assert_eq!(there, here),
                (Err(here), Err(MethodError::Refused { refusal, .. })) => {
                    assert_eq!(refusal.code, RefusalCode::BadRequest, "{here} {refusal}");
                }
                other => panic!("step {step}, lane {lane}, `{method}`: {other:?}"),
            }
        }
        fill(pool.actions(), step);
        fill(engine.actions().unwrap(), step);
        let here = shown(engine.step().unwrap());
        assert_eq!(shown(pool.step().unwrap()), here, "step {step}");
    }
}

#[test]
fn what_is_not_listed_or_comes_too_often_is_refused_and_changes_nothing() {
    let nodes = Nodes::start(1);
    let mut pool = nodes.connect().open_pool(request(Transport::Quic)).unwrap();
    pool.reset(&Reset::seeded(1, LANES)).unwrap();
    let refused = |pool: &mut Pool, method: &str| match pool.call_method(3, method, "1") {
        Err(MethodError::Refused { refusal, .. }) => refusal,
        other => panic!("`{method}`: {other:?}"),
    };
    let unknown = refused(&mut pool, "fly");
    assert_eq!(unknown.code, RefusalCode::BadRequest);
    assert!(unknown.message.contains("no method `fly`; it has where, push"), "{unknown}");
    pool.call_method(3, "seldom", "").unwrap();
    pool.call_method(3, "seldom", "").unwrap();
    let often = refused(&mut pool, "seldom");
    assert!(often.message.contains("2 times a second") && often.retry_after_ms.is_some(), "{often}");
    let beyond = pool.call_method(LANES, "where", "").unwrap_err();
    assert!(beyond.to_string().contains(&StepError::NoSuchLane { lane: LANES, lanes: LANES }.to_string()));
    pool.send(&[5], ColumnData::I64(vec![1]).as_ref()).unwrap();
    assert!(matches!(pool.call_method(5, "where", ""), Err(MethodError::Lanes(_))));
}

#[test]
fn lanes_whose_node_ends_go_on_elsewhere_as_if_they_had_been_called_there() {
    for transport in [Transport::Quic, Transport::Shm] {
        let mut nodes = Nodes::start(2);
        let mut asked = request(transport);
        (asked.on_loss, asked.spread) = (Some(OnLoss::Resume), Spread::Pack);
        let mut pool = nodes.connect().open_pool(asked).unwrap();
        let mut engine = engine();
        let reset = Reset::seeded(42, LANES);
        assert_eq!(shown(pool.reset(&reset).unwrap()), shown(engine.reset(&reset).unwrap()));
        play(&mut pool, &mut engine, 0..90);
        let node: usize = pool.sessions().next().unwrap().0.strip_prefix("node-").unwrap().parse().unwrap();
        nodes.stop(node);
        // The first request finds that the node is gone: a step, for only those move a session.
        fill(pool.actions(), 90);
        fill(engine.actions().unwrap(), 90);
        let here = shown(engine.step().unwrap());
        assert_eq!(shown(pool.step().unwrap()), here);
        assert!(pool.sessions().all(|(name, _)| name != format!("node-{node}")));
        play(&mut pool, &mut engine, 91..150);
        pool.close().unwrap();
    }
}
