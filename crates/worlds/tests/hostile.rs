//! Engines that answer garbage, too much, never, or of another map: each costs its lanes, with a reason, and nothing else.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rollhouse_core::{Interruption, LaneDeadlines};
use rollhouse_engine::{Engine, EngineConfig, Reset};
use serde_json::json;
use tonic::Status;

use crate::stage::{act, step_until, why_lost, world};
use crate::stand::{Reply, Stand, right, shown};

/// Resets a lane on an engine, and returns why it is lost.
fn why(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> String {
    let stand = Stand::start(answer);
    let mut engine = Engine::new(&world(&stand.address, json!({})), EngineConfig::new(1), None).unwrap();
    engine.reset(&Reset::all()).unwrap();
    assert_eq!(engine.loss(0), Some(Interruption::Crashed));
    why_lost(&mut engine, 0)
}

fn of_call(
    wanted: &'static str,
    reply: impl Fn() -> Reply + Send + Sync,
) -> impl Fn(&str) -> Reply + Send + Sync {
    move |call| if call == wanted { reply() } else { right(call) }
}

#[test]
fn an_engine_that_answers_garbage_or_too_much_loses_the_lane_with_a_reason() {
    let garbage = why(of_call("FastAdvance", || Reply::Bytes(vec![0xff; 99])));
    assert!(garbage.contains("no answer"), "{garbage}");
    let too_much = why(of_call("FastAdvance", || Reply::Bytes(vec![0; 5 << 20])));
    assert!(too_much.contains("too large") || too_much.contains("too long"), "{too_much}");
    let named = why(of_call("CreateSession", || Reply::Bytes(vec![0; 65 << 10])));
    assert!(named.contains("too large") || named.contains("too long"), "{named}");
    let refused = why(of_call("FastAdvance", || Reply::Refuse(Status::aborted("it is done"))));
    assert!(refused.contains("it is done"), "{refused}");
}

#[test]
fn a_map_of_another_size_is_refused_by_name() {
    let other = why(of_call("FastAdvance", || {
        Reply::Bytes(rollhouse_codec::openra::Message::encode_to_vec(&shown([40, 24])))
    }));
    assert!(other.contains("40 x 24") && other.contains("`map_size`"), "{other}");
}

#[test]
fn a_lane_whose_engine_never_answers_is_given_up_alone_and_its_neighbour_goes_on() {
    let advances = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&advances);
    // The two lanes begin, both take a step, and then one of them is never answered.
    let stand = Stand::start(move |call| match call {
        "FastAdvance" if counted.fetch_add(1, Ordering::SeqCst) == 4 => Reply::Never,
        call => right(call),
    });
    let step = Duration::from_secs(3);
    let lane_deadlines = LaneDeadlines { step, ..LaneDeadlines::default() };
    let config = EngineConfig { lane_deadlines, ..EngineConfig::new(2) };
    let mut engine = Engine::new(&world(&stand.address, json!({})), config, None).unwrap();
    engine.reset(&Reset::all()).unwrap();
    for _ in 0..2 {
        act(&mut engine, 1, &[]);
        engine.step().unwrap();
    }
    assert_eq!(engine.lost(), 1);
    let lost = usize::from(engine.is_lost(1));
    assert_eq!(engine.loss(lost), Some(Interruption::Hung));
    step_until(&mut engine, |engine| engine.lost() == 0);
}

#[test]
fn who_speaks_no_http_is_dialled_again_until_an_engine_is_there() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut engine =
        Engine::new(&world(&address.to_string(), json!({})), EngineConfig::new(1), None).unwrap();
    std::thread::scope(|threads| {
        let resets = threads.spawn(|| engine.reset(&Reset::all()).map(|_| ()));
        for _ in 0..3 {
            let (mut stranger, _) = listener.accept().unwrap();
            stranger.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").unwrap();
        }
        drop(listener);
        let _stand = Stand::on(address, right);
        resets.join().unwrap().unwrap();
    });
    assert_eq!(engine.lost(), 0);
}
