//! Sessions that are watched while they are played, by processes of their own.

use std::fs;
use std::time::Duration;

use rollhouse_client::{
    Address, Cluster as Connected, ConnectOptions, PoolRequest, RequestError, Transport, WatchError,
};
use rollhouse_engine::Reset;
use rollhouse_tests::{Cluster, Service, json_lines, run, succeed, workspace};
use rollhouse_wire::{RefusalCode, SessionId};
use serde_json::Value;

type Services = [Service; 2];

/// A cluster with a rollout that goes on by itself, and the connections of a viewer and an admin.
fn playing() -> (Cluster, Services, String, String) {
    let cluster = Cluster::new(&["one"]);
    let (coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let node = cluster.node("one", &address);
    let (viewer, admin) = (cluster.connection("viewer", &address), cluster.connection("admin", &address));
    let rollout = "rollout --env CartPole-v1 --lanes 8 --steps 100000000000 --record none --seed 3 --detach";
    succeed(workspace(), &format!("{rollout} --connect {admin}"));
    (cluster, [coordinator, node], viewer, admin)
}

#[test]
fn a_viewer_sees_lanes_move_by_session_pool_and_node_and_may_not_step() {
    let (_cluster, _services, viewer, admin) = playing();
    let sessions = json_lines(workspace(), &format!("sessions --json --connect {viewer}"));
    let pool = sessions[0]["run"].as_str().expect("it has a pool").to_owned();
    for what in [&format!("{pool}/0"), &pool, "one"] {
        let frames =
            json_lines(workspace(), &format!("watch {what} --lane 5 --json --frames 5 --connect {viewer}"));
        assert_eq!(frames.len(), 5, "{what}");
        let numbers: Vec<u64> = frames.iter().filter_map(|frame| frame["episode"].as_u64()).collect();
        assert!(numbers.is_sorted() && numbers[0] < numbers[4], "{numbers:?}");
        assert!(frames.iter().all(|frame| frame["lane"] == 5));
        assert!(frames.iter().all(|frame| frame["state"].as_array().is_some_and(|state| state.len() >= 4)));
    }
    let refused = run(workspace(), &format!("close {pool} --connect {viewer}"));
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    succeed(workspace(), &format!("close {pool} --connect {admin}"));
}

#[test]
fn what_cannot_be_watched_is_said_with_its_reason() {
    let (_cluster, _services, viewer, _admin) = playing();
    let cases = [
        (format!("watch one --connect {viewer}"), 2, "stdout is not one"),
        (format!("watch nobody --json --connect {viewer}"), 2, "is called `nobody`"),
        (format!("watch one --lane 8 --json --connect {viewer}"), 2, "there are 8 lanes"),
        ("watch one --json --frames 1 --connect rollhouse://127.0.0.1:1?ca=x".to_owned(), 2, "ca"),
    ];
    for (line, code, word) in cases {
        let done = run(workspace(), &line);
        assert_eq!(done.code, Some(code), "{line}: {}", done.stderr);
        assert!(done.stderr.contains(word), "{line}: {}", done.stderr);
    }
}

/// The same rollout, watched and not: every episode it plays is the same to the bit.
#[test]
fn a_rollout_that_is_watched_plays_the_same_episodes() {
    let cluster = Cluster::new(&["one"]);
    let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let _node = cluster.node("one", &address);
    let admin = cluster.connection("admin", &address);
    let line = "rollout --env Acrobot-v1 --lanes 64 --episodes 4000 --record none --seed 9 --json";
    let line = format!("{line} --connect {admin}");
    let alone: Value = serde_json::from_str(&succeed(workspace(), &line)).unwrap();
    let watched = std::thread::scope(|scope| {
        let played = scope.spawn(|| succeed(workspace(), &line));
        // As often as there is something to watch: how much is seen of it is the machine's affair.
        while !played.is_finished() {
            run(workspace(), &format!("watch one --lane 3 --json --frames 20 --connect {admin}"));
        }
        played.join().expect("it does not panic")
    });
    let watched: Value = serde_json::from_str(&watched).unwrap();
    for figure in ["episodes", "steps", "return"] {
        assert_eq!(alone[figure], watched[figure], "{figure}: {alone} {watched}");
    }
}

fn connected(cluster: &Cluster, role: &str, address: &str) -> Connected {
    let text = fs::read_to_string(cluster.connection(role, address)).expect("it was written");
    let address: Address = text.trim().parse().expect("it is a connection string");
    Connected::connect(&address, ConnectOptions::default(), None).expect("a coordinator is there")
}

/// A trainer's own session, by either transport: a viewer sees the very observations that the trainer sees, and the
/// episode so far has as many steps.
#[test]
fn a_viewer_sees_what_the_trainer_sees_by_either_transport() {
    let cluster = Cluster::new(&["one"]);
    let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let setting = format!("attach.path={}", cluster.path("attach.sock").display());
    let _node = cluster.node_with("one", &address, &[&setting], &[]);
    let (trainer, viewer) =
        (connected(&cluster, "trainer", &address), connected(&cluster, "viewer", &address));
    for transport in [Transport::Quic, Transport::Shm] {
        let request = PoolRequest { transport: Some(transport), ..PoolRequest::new("CartPole-v1", 4) };
        let mut pool = trainer.open_pool(request).expect("there is room");
        let mut watch = viewer.watch(SessionId { pool: pool.id(), index: 0 }).expect("a viewer may watch");
        pool.reset(&Reset::seeded(7, 4)).expect("it can be reset");
        let (mut seen, mut steps) = (0, 0);
        for step in 0..40i64 {
            if step > 0 {
                pool.actions().as_i64_mut().expect("CartPole is discrete").fill(step % 2);
                pool.step().expect("it can be stepped");
                steps += 1;
            }
            let frame = watch.look(2, seen, Duration::from_secs(10)).expect("it is watched");
            let frame = frame.expect("it has moved");
            assert!(frame.serial > seen);
            seen = frame.serial;
            let shown = pool.frame().expect("it was reset").obs(0).as_f32().expect("CartPole's are singles");
            let shown: Vec<u8> = shown[8..12].iter().flat_map(|value| value.to_le_bytes()).collect();
            assert_eq!(frame.obs, shown, "{transport:?}, step {step}");
            assert_eq!(frame.step, steps, "{transport:?}: {frame:?}");
        }
        let so_far = watch.so_far(2).expect("an episode is under way");
        let first = so_far.from.as_ref().map_or(0, |from| from.step);
        assert_eq!(first + so_far.info.length, steps);
        assert!(so_far.end_hash.is_some());
        pool.close().expect("it can be closed");
        assert!(matches!(
            watch.look(2, seen, Duration::from_secs(10)),
            Err(WatchError::Over(_) | WatchError::Refused(_))
        ));
    }
}

#[test]
fn requests_to_watch_what_there_is_not_are_refused_with_their_reason() {
    let cluster = Cluster::new(&["one"]);
    let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let _node = cluster.node("one", &address);
    let (trainer, viewer) =
        (connected(&cluster, "trainer", &address), connected(&cluster, "viewer", &address));
    let pool = trainer.open_pool(PoolRequest::new("CartPole-v1", 4)).expect("there is room");
    let nowhere = viewer.watch(SessionId { pool: pool.id(), index: 9 });
    let Err(WatchError::Request(RequestError::Call { error, .. })) = nowhere else { panic!("{nowhere:?}") };
    assert_eq!(error.refusal(), Some(RefusalCode::NotFound));
    let mut watch = viewer.watch(SessionId { pool: pool.id(), index: 0 }).expect("a viewer may watch");
    let beyond = watch.look(4, 0, Duration::ZERO);
    assert!(
        matches!(&beyond, Err(WatchError::Refused(r)) if r.code == RefusalCode::BadRequest),
        "{beyond:?}"
    );
    let long = watch.look(0, 0, Duration::from_secs(3600));
    assert!(matches!(&long, Err(WatchError::Refused(r)) if r.code == RefusalCode::BadRequest), "{long:?}");
    // Nothing has been reset: there is nothing to see, and it is asked on all the same.
    assert!(watch.look(0, 0, Duration::ZERO).expect("it is watched").is_none());
}
