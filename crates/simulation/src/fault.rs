//! The faults of a world and their times: drawn once from the seed.

use std::time::Duration;

use rollhouse_replay::testing::Faults as DiskFaults;

use crate::network::{Cut, IDLE, Site};
use crate::random::Random;

/// The kinds of faults that a world has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultKinds {
    /// Messages come twice; partitions, one-way and full.
    pub network: bool,
    /// Processes are killed, lose their power, stop for a while, and have clocks that jump.
    pub processes: bool,
    /// Disks are full, read-only, and fail to sync.
    pub disks: bool,
    /// A tenant asks the coordinator for what it may not have, for what is not its own, and for what it never takes.
    pub tenants: bool,
    /// One node's machine loses its power, once, and stays away.
    pub node_lost: bool,
    /// One node's process is killed, once, and stays away; its machine lives.
    pub node_killed: bool,
    /// Trainers finish episodes twice, on two nodes and with different contents.
    pub contradictions: bool,
    /// Wall clocks are wrong by years, and go back; the store has little room, so that it matters.
    pub clocks: bool,
    /// Tokens of owners are revoked; their holders get others.
    pub tokens: bool,
    /// The coordinator's folder is restored from an earlier copy, with all that was stored since; its operator does what
    /// its status says.
    pub restores: bool,
}

impl FaultKinds {
    /// A world without faults, apart from those of the links.
    pub const NONE: Self = Self {
        network: false,
        processes: false,
        disks: false,
        tenants: false,
        node_lost: false,
        node_killed: false,
        contradictions: false,
        clocks: false,
        tokens: false,
        restores: false,
    };
    /// A world in which everything goes wrong, again and again.
    pub const ALL: Self = Self {
        network: true,
        processes: true,
        disks: true,
        tenants: true,
        contradictions: true,
        clocks: true,
        tokens: true,
        ..Self::NONE
    };
}

/// A fault.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// The process ends at once. Its machine goes on, and the process is started again after `away`.
    Kill { site: Site, away: Duration },
    /// The machine loses its power and all that the disk does not have, and comes back after `away`.
    PowerCut { site: Site, away: Duration },
    /// An operator drains the node: its sessions move, and it ends some time later.
    Drain { node: usize },
    /// The token of that trainer's owner is revoked: what was opened with it ends, and later pools are opened with
    /// another.
    Revoke { trainer: usize },
    /// The coordinator ends and is started again in a folder whose term is older by `back`.
    Restore { back: u64, away: Duration },
    /// The process does nothing for `time`.
    Pause { site: Site, time: Duration },
    /// The process loses its connections, at its own end only; what is under way on them is late by `late`. A trainer
    /// loses them when it has just written a request.
    Unplug { site: Site, late: Duration },
    /// The process's clock goes forward by `by`.
    Jump { site: Site, by: Duration },
    /// The wall clock of a node shows another time from now on: ahead by `ahead_ms`, or behind if that is negative.
    Wall { node: usize, ahead_ms: i64 },
    /// A trainer has its lanes go on elsewhere without saying what they did, and plays their episodes once more.
    Forge { trainer: usize },
    /// The disk has these faults until it works again.
    Disk { site: Site, faults: DiskFaults, full: bool },
    /// The disk works again.
    DiskWorks { site: Site },
    /// Connections that cross the cut do not survive it. The cut itself is the network's.
    CutBegins { index: usize },
}

/// Returns everything that goes wrong in `time`, in order; and the cuts.
pub(crate) fn plan(
    random: &mut Random,
    kinds: FaultKinds,
    nodes: usize,
    trainers: usize,
    time: Duration,
) -> (Vec<(Duration, Fault)>, Vec<Cut>) {
    let (mut faults, mut cuts) = (Vec::new(), Vec::new());
    faults.extend(plan_loss(random, kinds, nodes, time));
    let mut at = random.millis(2_000, 6_000);
    while at < time {
        let site = match random.within(0, 9) {
            0 | 1 => Site::Coordinator,
            2..=7 => Site::Node(random.index(nodes)),
            _ => Site::Trainer(random.index(trainers)),
        };
        let until = |random: &mut Random, most: u64| (at + random.millis(200, most)).min(time);
        match random.within(0, 11) {
            9 | 10 if kinds.network => {
                let late = if random.chance(500) { random.millis(0, 4_000) } else { Duration::ZERO };
                faults.push((at, Fault::Unplug { site, late: late.min(time - at) }));
            }
            0..=2 if kinds.network => {
                let until = until(random, IDLE.as_millis() as u64 * 2);
                faults.push((at, Fault::CutBegins { index: cuts.len() }));
                cuts.push(Cut { from: at, until, one: vec![site], one_way: random.chance(400) });
            }
            3 if kinds.processes => {
                faults.push((at, Fault::Kill { site, away: random.millis(50, 9_000).min(time - at) }));
            }
            4 if kinds.processes => {
                faults.push((at, Fault::PowerCut { site, away: random.millis(500, 9_000).min(time - at) }));
            }
            5 if kinds.processes => {
                faults.push((at, Fault::Pause { site, time: random.millis(100, 20_000).min(time - at) }));
            }
            6 if kinds.processes => {
                faults.push((at, Fault::Jump { site, by: random.millis(100, 40_000) }));
            }
            11 if kinds.processes => {
                let node = random.index(nodes);
                let ends = (at + random.millis(3_000, 12_000)).min(time);
                let away = random.millis(50, 3_000).min(time - ends);
                faults.push((at, Fault::Drain { node }));
                faults.push((ends, Fault::Kill { site: Site::Node(node), away }));
            }
            7 | 8 if kinds.disks && !matches!(site, Site::Trainer(_)) => {
                let (disk, full) = disk_faults(random);
                faults.push((at, Fault::Disk { site, faults: disk, full }));
                faults.push((until(random, 20_000), Fault::DiskWorks { site }));
            }
            _ => {}
        }
        at += random.millis(500, 9_000);
    }
    plan_rare(random, kinds, (nodes, trainers), time, &mut faults);
    faults.sort_by_key(|(at, _)| *at);
    (faults, cuts)
}

/// Returns the loss of a node, if one is to be lost.
fn plan_loss(
    random: &mut Random,
    kinds: FaultKinds,
    nodes: usize,
    time: Duration,
) -> Option<(Duration, Fault)> {
    if !kinds.node_lost && !kinds.node_killed {
        return None;
    }
    let at = random.millis(5_000, 20_000).min(time);
    let (site, away) = (Site::Node(random.index(nodes)), time - at);
    Some((at, if kinds.node_lost { Fault::PowerCut { site, away } } else { Fault::Kill { site, away } }))
}

/// Adds what goes wrong seldom: contradictions, clocks on the wall, tokens.
fn plan_rare(
    random: &mut Random,
    kinds: FaultKinds,
    (nodes, trainers): (usize, usize),
    time: Duration,
    faults: &mut Vec<(Duration, Fault)>,
) {
    if kinds.contradictions && random.chance(500) {
        for _ in 0..3 {
            let at = random.millis(8_000, 40_000).min(time);
            faults.push((at, Fault::Forge { trainer: random.index(trainers) }));
        }
    }
    if kinds.clocks {
        let years = |random: &mut Random| (random.within(0, 40) as i64 - 20) * YEAR_MS;
        for node in 0..nodes {
            faults.push((Duration::ZERO, Fault::Wall { node, ahead_ms: years(random) }));
            let at = random.millis(1_000, 40_000).min(time);
            faults.push((at, Fault::Wall { node, ahead_ms: years(random) }));
        }
    }
    if kinds.restores {
        for at in [random.millis(10_000, 16_000), random.millis(24_000, 34_000)] {
            let away = random.millis(100, 3_000);
            faults.push((at.min(time), Fault::Restore { back: random.within(1, 3), away }));
        }
    }
    if kinds.tokens {
        for _ in 0..random.within(0, 2) {
            let at = random.millis(2_000, 40_000).min(time);
            faults.push((at, Fault::Revoke { trainer: random.index(trainers) }));
        }
    }
}

const YEAR_MS: i64 = 365 * 86_400_000;

/// Draws the faults of a disk, and whether it is full: its capacity then depends on what is on it.
fn disk_faults(random: &mut Random) -> (DiskFaults, bool) {
    let none = DiskFaults::default();
    match random.within(0, 4) {
        0 => (none, true),
        1 => (DiskFaults { short_writes: Some(random.within(1, 999) as usize), ..none }, random.chance(500)),
        2 => (DiskFaults { fail_syncs: true, ..none }, false),
        3 => (DiskFaults { read_only: true, ..none }, false),
        _ => (DiskFaults { fail_at: Some(0), fail_on: true, ..none }, false),
    }
}

/// Time between two looks of the operator at the coordinator's status.
pub(crate) const OPERATOR_LOOKS_EVERY: Duration = Duration::from_secs(1);
