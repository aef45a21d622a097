//! Sessions that wait for steps of other processes, and all others, over real connections.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::cluster;
use crate::commands::Commands;
use crate::replays::Viewer;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::{Answered, Cluster, Heard, Owner, Stepper, session};
use rollhouse_engine::{GetAttributes, GetParams, LaneRange, SetOptions, SetOptionsParams};
use rollhouse_env::testing::{Gate, Timing, late};
use rollhouse_env::{EnvEntry, Registry};
use rollhouse_wire::limits::MAX_LOOK_MS;
use rollhouse_wire::{ColumnBuffer, FrameHeader, FrameKind, OpenSession, RefusalCode, SendLanes, control};

/// Number of sessions that wait, more than threads that step kernels.
const HELD: u128 = 9;

/// A node with one thread for kernels and two for what may wait, and the envs `held/CartPole-v1`, whose steps wait for the
/// gate, `hung/CartPole-v1`, whose second lane never finishes a step, and `late/CartPole-v1`.
fn gated(gate: &'static Gate) -> Cluster {
    let registry = Registry::builtin();
    let late_of = |id: &str, timing: Timing| {
        let inner = registry.get("CartPole-v1").unwrap();
        let mut spec = inner.spec().clone();
        spec.id = id.to_owned();
        let named = EnvEntry::new(spec, move |_, options| inner.make_block(options));
        registry.register(Arc::into_inner(late(&Arc::new(named), timing)).unwrap()).unwrap();
    };
    late_of("held/CartPole-v1", Timing { gate: Some(gate), ..Timing::default() });
    late_of("hung/CartPole-v1", Timing { hangs: Some((1, 0)), ..Timing::default() });
    late_of("late/CartPole-v1", Timing { seed: 3, ..Timing::default() });
    Cluster::start(|config| {
        config.stepping.threads = NonZeroUsize::MIN;
        config.stepping.waiting_threads = 2;
        config.registry = Arc::new(registry);
    })
}

fn opened(cluster: &Cluster, pool: u128, env: &str) -> OpenSession {
    let open = session(pool, env, 2);
    cluster.coordinator.open(&open).unwrap();
    open
}

/// Opens sessions of the held env and asks each for something that waits for the gate, until all are under way.
fn hold<'a>(cluster: &Cluster, owner: &'a Owner, gate: &Gate) -> (Vec<OpenSession>, Vec<Stepper<'a>>) {
    let opens: Vec<_> = (10..10 + HELD).map(|pool| opened(cluster, pool, "held/CartPole-v1")).collect();
    let mut held: Vec<_> = opens.iter().map(|open| owner.attach(open)).collect();
    for stepper in &mut held {
        stepper.reset(1);
    }
    let taken = || cluster.node.figures().threads.queue_wait.counts().iter().sum::<u64>();
    let before = taken();
    gate.close(true);
    for (index, stepper) in held.iter_mut().enumerate() {
        match index % 3 {
            0 => stepper.ask(FrameKind::Step, 2, &[0; 16]),
            1 => stepper.ask(FrameKind::Reset, 2, &[]),
            _ => stepper.ask_to_send(2, &[0, 1], &[0, 0]),
        }
    }
    while taken() < before + HELD as u64 {
        owner.block_on(tokio::task::yield_now());
    }
    (opens, held)
}

/// Symptom: six sessions of an env with steps of 20 s kept everybody else on their node waiting for 57 s, and later 64 of them
/// on two threads each other for 160 ms a round. Cause: they held the threads that step kernels while other processes computed,
/// later threads of their own by turns. Fix: what waits for lanes holds none. Here two are all that there are for nine.
#[test]
fn sessions_whose_lanes_never_finish_keep_no_other_session_waiting_whatever_it_asks() {
    static GATE: Gate = Gate::new();
    let cluster = gated(&GATE);
    let owner = cluster.owner();
    let (_opens, mut held) = hold(&cluster, &owner, &GATE);
    let late_open = opened(&cluster, 1, "late/CartPole-v1");
    let kernel_open = opened(&cluster, 2, "CartPole-v1");
    let (late, kernel) = (owner.attach(&late_open), owner.attach(&kernel_open));
    for mut stepper in [late, kernel] {
        stepper.reset(1);
        for number in 2..20 {
            assert_eq!(stepper.step(number, &[1; 2]).header.kind, FrameKind::Batch);
        }
        assert_eq!(stepper.send(20, &[1], &[0]).header.kind, FrameKind::Rows);
    }
    cluster.coordinator.close(&late_open).unwrap();
    assert_eq!((cluster.node.load().queued, cluster.node.longest_queue_wait()), (0, Duration::ZERO));
    GATE.close(false);
    for stepper in &mut held {
        assert_eq!(stepper.hear().unwrap().header.number, 2);
    }
}

/// The same of what is asked beside steps: commands of sessions of both kinds, one that changes the lanes among them, a
/// session that ends in the middle of its step, and draining, of which every other session learns with its next step.
#[test]
fn commands_ends_and_draining_go_on_beside_sessions_whose_lanes_never_finish() {
    static GATE: Gate = Gate::new();
    let cluster = gated(&GATE);
    let owner = cluster.owner();
    let (opens, mut held) = hold(&cluster, &owner, &GATE);
    let others = [opened(&cluster, 1, "late/CartPole-v1"), opened(&cluster, 2, "CartPole-v1")];
    for open in &others {
        let mut stepper = owner.attach(open);
        stepper.reset(1);
        let mut commands = Commands::open(&owner, open);
        let lanes = LaneRange { first: 0, count: 2 };
        let states = GetParams { name: "state".into(), lanes };
        for number in 2..10 {
            assert_eq!(commands.call::<GetAttributes>(&states).unwrap().values.len(), 2);
            assert_eq!(stepper.step(number, &[1; 2]).header.kind, FrameKind::Batch);
        }
        let none = SetOptionsParams::default();
        commands.call::<SetOptions>(&none).unwrap();
    }
    let beats = || cluster.coordinator.hear(|heard| matches!(heard, Heard::Beat(_)).then_some(()));
    (0..3).for_each(|_| beats());
    cluster.node.drain();
    let refused = cluster.coordinator.open(&session(3, "CartPole-v1", 2)).unwrap_err();
    assert_eq!(refused.code, RefusalCode::Draining);
    for open in &others {
        let mut stepper = owner.attach(open);
        let answer = stepper.step(stepper.attached.last + 1, &[1; 2]);
        assert!(leaving(&answer), "it learns that its node goes away");
    }
    assert_eq!((cluster.node.load().queued, cluster.node.longest_queue_wait()), (0, Duration::ZERO));
    GATE.close(false);
    for stepper in &mut held {
        assert_eq!(stepper.hear().unwrap().header.number, 2);
    }
    for open in opens.iter().chain(&others) {
        cluster.coordinator.close(open).unwrap();
    }
}

/// Whether an answer says that its node goes away.
fn leaving(answer: &Answered) -> bool {
    rollhouse_wire::control::decode::<rollhouse_wire::Notes>(&answer.sidecar).is_ok_and(|notes| notes.leaving)
}

/// Prints how long an honest session's steps take alone and beside sessions that wait. What holds is that none of its
/// steps waits for a thread: that no time is a condition here.
#[test]
fn an_honest_sessions_steps_wait_for_no_thread_beside_sessions_whose_lanes_never_finish() {
    static GATE: Gate = Gate::new();
    const STEPS: u32 = 500;
    let cluster = gated(&GATE);
    let owner = cluster.owner();
    let open = opened(&cluster, 1, "late/CartPole-v1");
    let mut stepper = owner.attach(&open);
    stepper.reset(1);
    let mut number = 1;
    let mut steps = || {
        let began = Instant::now();
        for _ in 0..STEPS {
            number += 1;
            assert_eq!(stepper.step(number, &[1; 2]).header.kind, FrameKind::Batch);
        }
        began.elapsed()
    };
    let alone = steps();
    // Over the same connection, which lives on while it is driven.
    let (_opens, mut held) = hold(&cluster, &owner, &GATE);
    let beside = steps();
    assert_eq!((cluster.node.load().queued, cluster.node.longest_queue_wait()), (0, Duration::ZERO));
    let ratio = beside.as_secs_f64() / alone.as_secs_f64();
    println!("{STEPS} steps: alone {alone:?}, beside {HELD} sessions that wait {beside:?}, {ratio:.2} times");
    GATE.close(false);
    for stepper in &mut held {
        assert_eq!(stepper.hear().unwrap().header.number, 2);
    }
}

/// Sends lanes, and is answered once one of them is done.
fn send_for_one(stepper: &mut Stepper<'_>, number: u32, lanes: &[u32]) {
    let (places, mut columns) = (stepper.layout.actions(lanes.len(), true).unwrap(), ColumnBuffer::default());
    columns.resize(places.bytes);
    columns.bytes_mut().fill(0);
    columns.set_count(&places.count, lanes.len() as u32);
    columns.lanes_mut(&places.lanes).copy_from_slice(lanes);
    let mut sidecar = Vec::new();
    control::encode(&SendLanes { min: 1 }, &mut sidecar).unwrap();
    // Without its length word.
    let sidecar = sidecar.split_off(4);
    let (bytes, sidecar_bytes) = (places.bytes as u32, sidecar.len() as u32);
    let header =
        FrameHeader { kind: FrameKind::Send, flags: 0, number, columns: bytes, sidecar: sidecar_bytes };
    stepper.put_with(header, columns.bytes(), &sidecar);
}

/// Symptom: who came to watch a late session that nobody stepped just then saw nothing, and after a reset neither. Cause: only
/// sessions whose steps are bounded were shown between two requests, on the thread that carries those. Fix: a worker shows
/// others.
#[test]
fn a_watcher_of_a_late_session_sees_the_newest_row_while_nothing_is_stepped() {
    static GATE: Gate = Gate::new();
    let cluster = gated(&GATE);
    let owner = cluster.owner();
    let open = opened(&cluster, 1, "late/CartPole-v1");
    let mut stepper = owner.attach(&open);
    stepper.reset(1);
    (2..5).for_each(|number| drop(stepper.step(number, &[1; 2])));
    let mut viewer = Viewer::open(&owner, &open);
    let seen = viewer.look_for(0, MAX_LOOK_MS).frame.unwrap();
    assert_eq!((seen.episode, seen.step), (0, 3));
    stepper.reset(5);
    let seen = viewer.look_for(seen.serial, MAX_LOOK_MS).frame.unwrap();
    assert_eq!((seen.episode, seen.step), (1, 0));
    assert_eq!(Viewer::open(&owner, &open).look_for(0, MAX_LOOK_MS).frame.unwrap().serial, seen.serial);
}

/// The same of a lane whose row is there, while another of its session never finishes: between two requests, and beside one
/// that waits for the other.
#[test]
fn a_watcher_sees_the_row_of_a_lane_beside_one_that_is_under_way() {
    static GATE: Gate = Gate::new();
    let cluster = gated(&GATE);
    let owner = cluster.owner();
    for waits in [false, true] {
        let open = opened(&cluster, 1 + u128::from(waits), "hung/CartPole-v1");
        let mut stepper = owner.attach(&open);
        stepper.reset(1);
        send_for_one(&mut stepper, 2, &[0, 1]);
        assert_eq!(stepper.hear().unwrap().header.kind, FrameKind::Rows);
        if waits {
            send_for_one(&mut stepper, 3, &[1]);
        }
        let seen = Viewer::open(&owner, &open).look_for(0, MAX_LOOK_MS).frame.unwrap();
        assert_eq!((seen.episode, seen.step), (0, 1), "{waits}");
    }
}
