//! What sessions cost that nobody steps. Alone in its process, whose threads and descriptors it counts.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::cluster;

use std::fs;

use cluster::{Authority, Coordinator, Heard, Owner, session};
use rollhouse_core::RecordRule;
use rollhouse_node::ClusterNode;
use rollhouse_wire::FrameKind;

const SESSIONS: u128 = 1_000;
/// Threads or descriptors that are few beside that.
const FEW: usize = 10;

/// Threads, descriptors, resident bytes.
fn costs() -> (usize, usize, u64) {
    let entries = |folder: &str| fs::read_dir(folder).unwrap().count();
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let resident: u64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
    (entries("/proc/self/task"), entries("/proc/self/fd"), resident * 4096)
}

/// Ticks of 10 ms that this process has used.
fn ticks() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn a_thousand_attached_sessions_cost_no_thread_and_no_descriptor_and_little_memory() {
    let _alone = cluster::THOUSAND.lock();
    let authority = Authority::new();
    let coordinator = Coordinator::start(&authority);
    let mut config = authority.node("n1", &coordinator);
    config.recording.spool = Some(authority.path().join("spool"));
    let node = ClusterNode::start(config).unwrap();
    coordinator.registered();
    let opens: Vec<_> = (1..=SESSIONS)
        .map(|pool| {
            let mut open = session(pool, "CartPole-v1", 1);
            open.settings.record = RecordRule::All;
            open
        })
        .collect();
    let owner = Owner::dial(&authority, &node);
    coordinator.open(&opens[0]).unwrap();
    let _first = owner.attach(&opens[0]);
    let before = costs();
    opens[1..].iter().for_each(|open| drop(coordinator.open(open).unwrap()));
    let opened = costs();
    let mut steppers: Vec<_> = opens[1..].iter().map(|open| owner.attach(open)).collect();
    let attached = costs();
    // What the process itself opens meanwhile, as for a segment, is no matter of how many sessions there are.
    assert!(attached.0 < before.0 + FEW, "threads: {before:?} {attached:?}");
    assert!(attached.1 < before.1 + FEW, "descriptors: {before:?} {attached:?}");
    let each =
        |now: (usize, usize, u64), then: (usize, usize, u64)| now.2.saturating_sub(then.2) / SESSIONS as u64;
    assert!(each(opened, before) < 64 << 10, "bytes: {before:?} {opened:?}");
    let used = ticks();
    let beats = |beat: Heard| matches!(beat, Heard::Beat(_)).then_some(());
    (0..100).for_each(|_| coordinator.hear(beats));
    eprintln!(
        "bytes of an open session: {}, with its stream at both ends: {}; ms of cpu for 100 heartbeats, those of the \
         coordinator and the owner included: {}",
        each(opened, before),
        each(attached, before),
        (ticks() - used) * 10
    );
    let recorded = costs();
    for stepper in &mut steppers {
        assert_eq!(stepper.reset(1).header.kind, FrameKind::Batch);
    }
    eprintln!("bytes more once it is recorded: {}", each(costs(), recorded));
}
