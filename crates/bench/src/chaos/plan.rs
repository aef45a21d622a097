//! The plan of faults: which happen, when, and for how long, drawn from a seed alone.

use std::fmt;
use std::time::Duration;

use rollhouse_core::random_bits;

/// A process that faults happen to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Coordinator,
    /// A node, by its index among the nodes.
    Node(usize),
}

/// A fault of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessFault {
    /// The process gets SIGKILL; it is started again afterwards.
    Kill,
    /// The process gets SIGSTOP, and SIGCONT afterwards.
    Pause,
    /// The disk of the process is full: no file of it can grow.
    Fill,
}

/// The path of datagrams between two processes. The first one dials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Link {
    TrainerCoordinator,
    TrainerNode(usize),
    NodeCoordinator(usize),
}

/// The direction in which nothing arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    Both,
    /// The datagrams that the dialling side sends.
    There,
    /// The datagrams that are sent to the dialling side.
    Back,
}

/// The harm that a fault does, and its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Harm {
    Process(Target, ProcessFault),
    /// A trainer's process is killed, by its index among them; another one follows it afterwards.
    Trainer(usize),
    Link(Link, Cut),
}

/// A fault of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) harm: Harm,
    /// Time for which it lasts.
    pub(super) lasts: Duration,
    /// Time until the next fault.
    pub(super) rest: Duration,
    /// Whether the next fault waits until this one is over completely.
    pub(super) alone: bool,
}

/// Draws faults; the same seed gives the same ones.
#[derive(Debug)]
pub(super) struct Plan {
    seed: u64,
    nodes: u64,
    trainers: u64,
    drawn: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.harm {
            Harm::Process(target, blow) => {
                let blow = match blow {
                    ProcessFault::Kill => "killed",
                    ProcessFault::Pause => "paused",
                    ProcessFault::Fill => "without disk",
                };
                match target {
                    Target::Coordinator => write!(f, "coordinator {blow}")?,
                    Target::Node(node) => write!(f, "node-{node} {blow}")?,
                }
            }
            Harm::Trainer(trainer) => write!(f, "trainer-{trainer} killed")?,
            Harm::Link(link, cut) => {
                let (from, to) = match link {
                    Link::TrainerCoordinator => ("trainer".to_owned(), "coordinator".to_owned()),
                    Link::TrainerNode(node) => ("trainer".to_owned(), format!("node-{node}")),
                    Link::NodeCoordinator(node) => (format!("node-{node}"), "coordinator".to_owned()),
                };
                let arrow = match cut {
                    Cut::Both => "<->",
                    Cut::There => "->",
                    Cut::Back => "<-",
                };
                write!(f, "{from} {arrow} {to} cut")?;
            }
        }
        write!(f, " for {:.1} s", self.lasts.as_secs_f64())
    }
}

impl Plan {
    pub(super) const fn new(seed: u64, nodes: usize, trainers: usize) -> Self {
        Self { seed, nodes: nodes as u64, trainers: trainers as u64, drawn: 0 }
    }

    pub(super) fn next(&mut self) -> Fault {
        let on_coordinator = self.below(100) < COORDINATOR_PERCENT;
        let node = self.below(self.nodes) as usize;
        let target = if on_coordinator { Target::Coordinator } else { Target::Node(node) };
        let kind = self.below(100);
        let harm = if kind < PAUSE_PERCENT {
            Harm::Process(target, ProcessFault::Pause)
        } else if kind < PAUSE_PERCENT + FILL_PERCENT {
            Harm::Process(target, ProcessFault::Fill)
        } else if kind < PAUSE_PERCENT + FILL_PERCENT + CUT_PERCENT {
            Harm::Link(self.link(node), self.cut())
        } else if kind < PAUSE_PERCENT + FILL_PERCENT + CUT_PERCENT + TRAINER_PERCENT {
            Harm::Trainer(self.below(self.trainers) as usize)
        } else {
            Harm::Process(target, ProcessFault::Kill)
        };
        let long = self.below(100) < LONG_PERCENT;
        let lasts = if long { LEAST_LONG + self.below(SPREAD_LONG) } else { self.below(MOST_SHORT) };
        // A disk that is full for a moment is not noticed: it is synced once a second.
        let least = if matches!(harm, Harm::Process(_, ProcessFault::Fill)) { LEAST_FILL } else { 0 };
        let lasts = Duration::from_millis(least + lasts);
        let alone = self.below(100) >= TOGETHER_PERCENT;
        let rest = Duration::from_millis(LEAST_REST + self.below(SPREAD_REST));
        Fault { harm, lasts, rest, alone }
    }

    fn link(&mut self, node: usize) -> Link {
        match self.below(7) {
            0 => Link::TrainerCoordinator,
            1..=3 => Link::TrainerNode(node),
            _ => Link::NodeCoordinator(node),
        }
    }

    fn cut(&mut self) -> Cut {
        [Cut::Both, Cut::There, Cut::Back][self.below(3) as usize]
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.drawn += 1;
        random_bits(self.seed, 0, self.drawn) % bound
    }
}

/// Percentage of process faults that hit the coordinator, which is one process of four.
const COORDINATOR_PERCENT: u64 = 25;
const PAUSE_PERCENT: u64 = 12;
const FILL_PERCENT: u64 = 8;
const CUT_PERCENT: u64 = 10;
const TRAINER_PERCENT: u64 = 10;
/// Percentage of faults for which the next one does not wait.
const TOGETHER_PERCENT: u64 = 45;
/// Percentage of faults that last so long that a node is taken for lost, which happens after 5 s.
const LONG_PERCENT: u64 = 10;
/// Shortest time of such a fault, in milliseconds.
const LEAST_LONG: u64 = 6_000;
const SPREAD_LONG: u64 = 2_000;
const MOST_SHORT: u64 = 1_000;
const LEAST_FILL: u64 = 1_200;
/// Shortest time between faults, in milliseconds.
const LEAST_REST: u64 = 50;
const SPREAD_REST: u64 = 650;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_faults_again_and_every_process_and_link_gets_every_kind() {
        let draw = |seed| {
            let mut plan = Plan::new(seed, 3, 2);
            (0..1000).map(|_| plan.next()).collect::<Vec<_>>()
        };
        let faults = draw(7);
        assert_eq!(faults, draw(7));
        assert_ne!(faults, draw(8));
        let drawn = |harm| faults.iter().any(|fault| fault.harm == harm);
        for target in [Target::Coordinator, Target::Node(0), Target::Node(1), Target::Node(2)] {
            for blow in [ProcessFault::Kill, ProcessFault::Pause, ProcessFault::Fill] {
                assert!(drawn(Harm::Process(target, blow)), "{target:?} {blow:?}");
            }
        }
        assert!(drawn(Harm::Trainer(0)) && drawn(Harm::Trainer(1)));
        for cut in [Cut::Both, Cut::There, Cut::Back] {
            let cuts = |link: fn(&Link) -> bool| {
                let cut_links = faults.iter().filter_map(|fault| match fault.harm {
                    Harm::Link(link, drawn) if drawn == cut => Some(link),
                    _ => None,
                });
                cut_links.into_iter().any(|cut_link| link(&cut_link))
            };
            assert!(cuts(|link| matches!(link, Link::TrainerCoordinator)), "{cut:?}");
            assert!(cuts(|link| matches!(link, Link::TrainerNode(_))), "{cut:?}");
            assert!(cuts(|link| matches!(link, Link::NodeCoordinator(_))), "{cut:?}");
        }
        let kills = faults
            .iter()
            .filter(|fault| matches!(fault.harm, Harm::Process(_, ProcessFault::Kill) | Harm::Trainer(_)))
            .count();
        assert!(kills * 2 > faults.len(), "most of them are kills: {kills}");
        assert!(faults.iter().any(|fault| fault.lasts > Duration::from_secs(5)));
        assert!(faults.iter().any(|fault| fault.alone) && faults.iter().any(|fault| !fault.alone));
    }
}
