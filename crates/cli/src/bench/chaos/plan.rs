//! Which faults happen, when, and for how long: drawn from a seed alone.

use std::time::Duration;

use rollhouse_core::random_bits;

/// A process that faults happen to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Coordinator,
    /// By its place among the nodes.
    Node(usize),
}

/// What happens to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blow {
    /// SIGKILL; it is started again afterwards.
    Kill,
    /// SIGSTOP; SIGCONT afterwards.
    Pause,
}

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) target: Target,
    pub(super) blow: Blow,
    /// How long the process is away.
    pub(super) lasts: Duration,
    /// How long until the next fault.
    pub(super) rest: Duration,
    /// Whether the next one waits until all of this one is over.
    pub(super) alone: bool,
}

/// Draws faults; the same ones from the same seed.
#[derive(Debug)]
pub(super) struct Plan {
    seed: u64,
    nodes: u64,
    drawn: u64,
}

impl Plan {
    pub(super) const fn new(seed: u64, nodes: usize) -> Self {
        Self { seed, nodes: nodes as u64, drawn: 0 }
    }

    pub(super) fn next(&mut self) -> Fault {
        let on_coordinator = self.below(100) < COORDINATOR_PERCENT;
        let target =
            if on_coordinator { Target::Coordinator } else { Target::Node(self.below(self.nodes) as usize) };
        let blow = if self.below(100) < PAUSE_PERCENT { Blow::Pause } else { Blow::Kill };
        let long = self.below(100) < LONG_PERCENT;
        let lasts = if long { LEAST_LONG + self.below(SPREAD_LONG) } else { self.below(MOST_SHORT) };
        let lasts = Duration::from_millis(lasts);
        let alone = self.below(100) >= TOGETHER_PERCENT;
        let rest = Duration::from_millis(LEAST_REST + self.below(SPREAD_REST));
        Fault { target, blow, lasts, rest, alone }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.drawn += 1;
        random_bits(self.seed, 0, self.drawn) % bound
    }
}

/// The coordinator is one process of four.
const COORDINATOR_PERCENT: u64 = 25;
const PAUSE_PERCENT: u64 = 20;
/// Faults after which the next one does not wait.
const TOGETHER_PERCENT: u64 = 25;
/// Faults in which the process is away for so long that a node is taken for lost, which it is after 5 s.
const LONG_PERCENT: u64 = 10;
/// Milliseconds.
const LEAST_LONG: u64 = 6_000;
const SPREAD_LONG: u64 = 2_000;
const MOST_SHORT: u64 = 1_000;
/// Milliseconds between faults.
const LEAST_REST: u64 = 100;
const SPREAD_REST: u64 = 900;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_faults_again_and_every_process_gets_every_kind() {
        let draw = |seed| {
            let mut plan = Plan::new(seed, 3);
            (0..400).map(|_| plan.next()).collect::<Vec<_>>()
        };
        let faults = draw(7);
        assert_eq!(faults, draw(7));
        assert_ne!(faults, draw(8));
        for target in [Target::Coordinator, Target::Node(0), Target::Node(1), Target::Node(2)] {
            for blow in [Blow::Kill, Blow::Pause] {
                assert!(faults.iter().any(|fault| (fault.target, fault.blow) == (target, blow)));
            }
        }
        assert!(faults.iter().any(|fault| fault.lasts > Duration::from_secs(5)));
        assert!(faults.iter().any(|fault| fault.alone) && faults.iter().any(|fault| !fault.alone));
    }
}
