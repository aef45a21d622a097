//! What goes wrong, and when: drawn once from the seed.

use std::time::Duration;

use rollhouse_replay::testing::Faults as DiskFaults;

use crate::network::{Cut, IDLE, Site};
use crate::random::Random;

/// Which kinds of faults a world has.
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
    /// Clocks on the wall are wrong by years, and go back; the store has little room, so that it matters.
    pub clocks: bool,
    /// Tokens of owners are revoked; their holders get others.
    pub tokens: bool,
}

impl FaultKinds {
    /// Nothing goes wrong but what the links do.
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
    };
    /// Everything goes wrong, again and again.
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

/// One thing that goes wrong.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// The process ends at once, its machine goes on, and it is started again after so long.
    Kill { site: Site, away: Duration },
    /// The machine loses its power, with it whatever the disk does not have, and comes back after so long.
    PowerCut { site: Site, away: Duration },
    /// An operator wants the node to end in order: its sessions move. It ends some time later.
    Drain { node: usize },
    /// The token of that trainer's owner is revoked: what was opened with it ends, and what is opened later is opened with
    /// another.
    Revoke { trainer: usize },
    /// The process does nothing for so long.
    Pause { site: Site, time: Duration },
    /// The process loses its connections, at its own end only; what is under way on them is later by so much. A trainer
    /// does when it has just written a request.
    Unplug { site: Site, late: Duration },
    /// The process's clock goes forward by so much.
    Jump { site: Site, by: Duration },
    /// The clock on the wall of a node shows another time from now on: ahead by so many milliseconds, or behind.
    Wall { node: usize, ahead_ms: i64 },
    /// A trainer has its lanes go on elsewhere without saying what they did, and plays their episodes once more.
    Forge { trainer: usize },
    /// The disk behaves so until the fault is over.
    Disk { site: Site, faults: DiskFaults, full: bool },
    /// The disk works again.
    DiskWorks { site: Site },
    /// Connections that cross the cut do not live through it. The cut itself is the network's.
    CutBegins { index: usize },
}

/// Everything that goes wrong in `time`, in order; and the cuts.
pub(crate) fn plan(
    random: &mut Random,
    kinds: FaultKinds,
    nodes: usize,
    trainers: usize,
    time: Duration,
) -> (Vec<(Duration, Fault)>, Vec<Cut>) {
    let (mut faults, mut cuts) = (Vec::new(), Vec::new());
    if kinds.node_lost || kinds.node_killed {
        let at = random.millis(5_000, 20_000).min(time);
        let (site, away) = (Site::Node(random.index(nodes)), time - at);
        let fault = if kinds.node_lost { Fault::PowerCut { site, away } } else { Fault::Kill { site, away } };
        faults.push((at, fault));
    }
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
    if kinds.tokens {
        for _ in 0..random.within(0, 2) {
            let at = random.millis(2_000, 40_000).min(time);
            faults.push((at, Fault::Revoke { trainer: random.index(trainers) }));
        }
    }
    faults.sort_by_key(|(at, _)| *at);
    (faults, cuts)
}

const YEAR_MS: i64 = 365 * 86_400_000;

/// What a disk does; whether it is full, as which its capacity depends on what is on it then.
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
