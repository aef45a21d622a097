//! The weight of lanes in worker processes, as it is measured on this node. Pure but for [`Census::look`], which reads.
//!
//! Memory is what the processes of an env have to themselves now, by lane. CPU is what they took while they were stepped:
//! looks at which they hardly took any say nothing. Both are estimates. A process is shared by its lanes, so that a lane of
//! a small session weighs more than the next one will.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::limits::MAX_WEIGHED_ENVS;
use rollhouse_core::{Budget, Weight};
use rollhouse_host::{Census, Counted};

use crate::worker_memory::MemoryWatch;

/// What a node has for lanes, and where the worker processes that step some of them are counted.
#[derive(Debug, Clone, Default)]
pub struct NodeBudget {
    /// What it has for lanes, and the terms of envs there. By default nothing is told, and nothing goes by it.
    pub budget: Budget,
    /// The census of its worker processes, which are looked at once in a while to weigh lanes.
    pub census: Census,
}

/// The weights that were measured so far.
#[derive(Debug, Default)]
pub(crate) struct Weighing {
    /// Time of the last look.
    looked: Option<Duration>,
    weights: BTreeMap<String, Weight>,
    /// The watch over the memory of worker processes, which owners share.
    pub(crate) memory: MemoryWatch,
}

impl Weighing {
    /// Looks at the worker processes if that is due. Returns the weights if they may be others than before. Reads two
    /// small files of each process.
    pub(crate) fn look(&mut self, now: Duration, census: &Census) -> Option<&BTreeMap<String, Weight>> {
        let since = self.looked.map(|at| now.saturating_sub(at));
        if since.is_some_and(|since| since < LOOK_EVERY) {
            return None;
        }
        self.looked = Some(now);
        self.take(since.unwrap_or_default(), &census.look());
        Some(&self.weights)
    }

    /// Takes in what the processes have and took in that time. An env that was weighed before is remembered while there is
    /// room.
    fn take(&mut self, since: Duration, seen: &BTreeMap<Arc<str>, Counted>) {
        for (env, counted) in seen.iter().filter(|(_, counted)| counted.lanes > 0) {
            let known = self.weights.get(&**env).copied();
            if known.is_none() && self.weights.len() >= MAX_WEIGHED_ENVS {
                let gone = self.weights.keys().find(|known| !seen.contains_key(known.as_str())).cloned();
                let Some(gone) = gone else { continue };
                self.weights.remove(&gone);
            }
            let milli = counted.cpu.as_millis() * 1000 / since.as_millis().max(1);
            let cpu = u64::try_from(milli).unwrap_or(u64::MAX);
            let stepped = !since.is_zero() && cpu >= STEPPED_MILLI;
            let now = cpu.div_ceil(counted.lanes);
            let before = known.map_or(0, |known| known.cpu_milli);
            let cpu_milli = match (stepped, before) {
                (false, before) => before,
                (true, 0) => now,
                (true, before) => before.midpoint(now),
            };
            let memory = counted.memory.div_ceil(counted.lanes);
            self.weights.insert(env.to_string(), Weight { cpu_milli, memory });
        }
    }
}

/// Interval of looks: weights change slowly.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Thousandths of a core that the processes of an env take together if they are stepped at all.
const STEPPED_MILLI: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_secs(5);

    fn seen(env: &str, lanes: u64, memory: u64, cpu_ms: u64) -> BTreeMap<Arc<str>, Counted> {
        let cpu = Duration::from_millis(cpu_ms);
        BTreeMap::from([(env.into(), Counted { lanes, memory, cpu })])
    }

    #[test]
    fn a_lane_weighs_its_part_of_the_processes_and_what_they_took_while_they_were_stepped() {
        let mut weighing = Weighing::default();
        let weight = |weighing: &Weighing| weighing.weights.get("a:B").copied().unwrap();
        weighing.take(Duration::ZERO, &seen("a:B", 4, 1000, 9_000));
        assert_eq!(weight(&weighing), Weight { cpu_milli: 0, memory: 250 }, "nobody knows since when");
        weighing.take(LOOK, &seen("a:B", 4, 1001, 10_000));
        assert_eq!(weight(&weighing), Weight { cpu_milli: 500, memory: 251 });
        weighing.take(LOOK, &seen("a:B", 4, 1001, 50));
        assert_eq!(weight(&weighing).cpu_milli, 500, "they were not stepped");
        weighing.take(LOOK, &seen("a:B", 4, 1001, 2_000));
        assert_eq!(weight(&weighing).cpu_milli, 300);
    }

    #[test]
    fn a_bounded_number_of_envs_is_remembered_and_those_that_are_gone_make_room() {
        let mut weighing = Weighing::default();
        for number in 0..MAX_WEIGHED_ENVS + 5 {
            weighing.take(LOOK, &seen(&format!("a:{number}"), 1, 10, 0));
        }
        assert_eq!(weighing.weights.len(), MAX_WEIGHED_ENVS);
        assert!(weighing.weights.contains_key(&format!("a:{}", MAX_WEIGHED_ENVS + 4)));
    }

    #[test]
    fn processes_are_looked_at_once_in_a_while() {
        let (mut weighing, census) = (Weighing::default(), Census::default());
        assert!(weighing.look(Duration::ZERO, &census).is_some());
        assert!(weighing.look(LOOK / 2, &census).is_none());
        assert!(weighing.look(LOOK, &census).is_some());
    }
}
