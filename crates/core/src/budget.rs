//! What lanes weigh, what a node has for them, and whether more of them fit.
//!
//! A node goes by it when it lets a session in, the coordinator when it lays lanes over nodes: one rule for both. Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{EnvId, EnvKind};

/// CPU and memory: of one lane, of all lanes of a node, or all that a node has for lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Weight {
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Bytes.
    pub memory: u64,
}

impl Weight {
    /// Returns whether it is neither CPU nor memory.
    pub const fn is_nothing(&self) -> bool {
        self.cpu_milli == 0 && self.memory == 0
    }

    /// Returns the weight of so many. Saturates: a peer may say any numbers.
    #[must_use]
    pub const fn times(self, count: u64) -> Self {
        Self { cpu_milli: self.cpu_milli.saturating_mul(count), memory: self.memory.saturating_mul(count) }
    }

    /// Returns the greater of each part.
    #[must_use]
    pub fn greater(self, other: Self) -> Self {
        Self { cpu_milli: self.cpu_milli.max(other.cpu_milli), memory: self.memory.max(other.memory) }
    }

    /// Returns the weight of both together. Saturates.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory: self.memory.saturating_add(other.memory),
        }
    }
}

/// The operator's terms for an env, or for all envs of a kind that have none of their own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EnvTerms {
    /// Thousandths of a core that a lane takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_milli: Option<u64>,
    /// Bytes of memory that a lane takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Most lanes that the node takes at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_lanes: Option<u32>,
    /// Most worker processes that step such lanes at a time, those of all sessions together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_processes: Option<u32>,
    /// The worker processes of a session; `None` if the node steps such lanes itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<Workers>,
}

/// The number of worker processes that a session has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workers {
    /// Most processes of one session.
    pub most: u32,
    /// Lanes that are not divided among processes: 1, or those of a block.
    pub lanes: u32,
}

impl Workers {
    /// Returns the number of processes of a session of so many lanes.
    pub fn of(self, lanes: u32) -> u32 {
        lanes.div_ceil(self.lanes.max(1)).clamp(1, self.most.max(1))
    }

    /// Returns the number of lanes, in sessions of at most `session` each, that so many processes certainly suffice for.
    fn lanes_of(self, processes: u32, session: u32) -> u32 {
        match processes / self.most.max(1) {
            0 => processes.saturating_mul(self.lanes),
            sessions => sessions.saturating_mul(session),
        }
    }
}

/// A node's budget: what it has for lanes, and the terms of envs there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Budget {
    /// All that lanes together are meant to take. A part that is 0 is not told, and nothing goes by it.
    pub total: Weight,
    /// Whether the operator has stated the memory. Only then a lane that was not weighed by him can be too heavy: an
    /// estimate against an estimate refuses nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stated: bool,
    /// Terms by the id of an env or by a kind of envs, as `gymnasium:*`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub envs: BTreeMap<String, EnvTerms>,
}

/// A node's budget with what was measured of envs there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scales {
    budget: Budget,
    /// Measured weight of a lane, by the id of its env.
    measured: BTreeMap<String, Weight>,
}

/// The lanes that a node holds, and the worker processes that step them, by env.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holdings {
    lanes: u64,
    envs: BTreeMap<EnvId, Held>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Held {
    lanes: u64,
    processes: u64,
}

/// The limit of a node that lanes do not fit within.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its fields are")]
pub enum OverBudget {
    /// The operator lets in fewer lanes of the env, or of its kind.
    #[error("max_lanes of `{env}` is {most}: {taken} in use, {asked} more asked for")]
    Lanes { env: String, most: u32, taken: u64, asked: u32 },
    /// The operator lets in fewer worker processes of the env, or of its kind.
    #[error("max_processes of `{env}` is {most}: {taken} in use, {asked} more asked for")]
    Processes { env: String, most: u32, taken: u64, asked: u32 },
    /// The lanes weigh more than is left of the node's memory.
    #[error(
        "memory is {} for all lanes: {} in use, {lanes} lanes of `{env}` take {} more",
        MiB(*.most), MiB(*.taken), MiB(*.asked)
    )]
    Memory { env: String, lanes: u32, most: u64, taken: u64, asked: u64 },
}

impl Scales {
    /// Makes the scales of a node of which nothing was measured yet.
    pub const fn new(budget: Budget) -> Self {
        Self { budget, measured: BTreeMap::new() }
    }

    /// Returns the budget.
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Takes in what lanes were measured to weigh, by the ids of their envs.
    pub fn measure(&mut self, measured: &BTreeMap<String, Weight>) {
        if self.measured != *measured {
            self.measured.clone_from(measured);
        }
    }

    /// Returns what lanes were measured to weigh, by the ids of their envs.
    pub const fn measured(&self) -> &BTreeMap<String, Weight> {
        &self.measured
    }

    /// Returns the weight of a lane: as stated, else as measured, else a small one, which is nothing for lanes that the
    /// node steps itself.
    pub fn lane(&self, env: &EnvId) -> Weight {
        self.lane_beside(env, None)
    }

    /// Returns the weight of a lane where another node has measured it as well: of what was measured, the greater counts,
    /// so that nodes that differ only in what they have measured so far are filled alike.
    pub fn lane_beside(&self, env: &EnvId, elsewhere: Option<Weight>) -> Weight {
        let unweighed = || if env.source().is_learned() { LEARNED } else { Weight::default() };
        let measured = self.measured.get(&**env).copied().into_iter().chain(elsewhere);
        let guess = measured.reduce(Weight::greater).unwrap_or_else(unweighed);
        let Some((_, terms)) = self.terms(env) else { return guess };
        Weight {
            cpu_milli: terms.cpu_milli.unwrap_or(guess.cpu_milli),
            memory: terms.memory.unwrap_or(guess.memory),
        }
    }

    /// Returns the number of worker processes that a session has, as far as the env's terms tell.
    pub fn processes(&self, env: &EnvId, lanes: u32) -> u32 {
        let workers = self.terms(env).and_then(|(_, terms)| terms.workers);
        workers.map_or(0, |workers| workers.of(lanes))
    }

    /// Returns the weight of all that is held.
    pub fn taken(&self, held: &Holdings) -> Weight {
        let weights = held.envs.iter().map(|(env, held)| self.lane(env).times(held.lanes));
        weights.fold(Weight::default(), Weight::plus)
    }

    /// Checks whether a session of so many lanes fits beside what is held.
    ///
    /// # Errors
    /// The first limit that it does not fit within.
    pub fn fits(&self, env: &EnvId, lanes: u32, held: &Holdings) -> Result<(), OverBudget> {
        if let Some((key, terms)) = self.terms(env) {
            let taken = self.held_under(key, held);
            if let Some(most) = terms.max_lanes.filter(|&most| taken.lanes + u64::from(lanes) > most.into()) {
                let env = key.to_owned();
                return Err(OverBudget::Lanes { env, most, taken: taken.lanes, asked: lanes });
            }
            let asked = self.processes(env, lanes);
            let over = |most: &u32| taken.processes + u64::from(asked) > u64::from(*most);
            if let Some(most) = terms.max_processes.filter(over) {
                let env = key.to_owned();
                return Err(OverBudget::Processes { env, most, taken: taken.processes, asked });
            }
        }
        let (most, lane) = (self.budget.total.memory, self.lane(env).memory);
        let (taken, asked) = (self.taken(held).memory, lane.saturating_mul(lanes.into()));
        if self.binds(env) && asked > 0 && taken.saturating_add(asked) > most {
            return Err(OverBudget::Memory { env: env.to_string(), lanes, most, taken, asked });
        }
        Ok(())
    }

    /// Returns a number of lanes that fit beside what is held, in sessions of at most `session` lanes each. Where
    /// processes are limited there may be sessions of more lanes that fit too.
    pub fn room(&self, env: &EnvId, session: u32, held: &Holdings) -> u32 {
        let mut room = u32::MAX;
        if let Some((key, terms)) = self.terms(env) {
            let taken = self.held_under(key, held);
            let left = |most: u32, taken: u64| most.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX));
            if let Some(most) = terms.max_lanes {
                room = room.min(left(most, taken.lanes));
            }
            if let (Some(most), Some(workers)) = (terms.max_processes, terms.workers) {
                room = room.min(workers.lanes_of(left(most, taken.processes), session));
            }
        }
        let lane = self.lane(env).memory;
        if self.binds(env) && lane > 0 {
            let left = self.budget.total.memory.saturating_sub(self.taken(held).memory);
            room = room.min(u32::try_from(left / lane).unwrap_or(u32::MAX));
        }
        room
    }

    /// Returns whether lanes of the env may be refused for want of memory.
    fn binds(&self, env: &EnvId) -> bool {
        let stated = || self.terms(env).is_some_and(|(_, terms)| terms.memory.is_some());
        self.budget.total.memory > 0 && (self.budget.stated || stated())
    }

    /// Returns the terms that an env goes by, and what they were given for: the env, else the kind of its package, that of
    /// the package that registers it before that of the registry.
    fn terms(&self, env: &EnvId) -> Option<(&str, &EnvTerms)> {
        let envs = &self.budget.envs;
        if envs.is_empty() {
            return None;
        }
        let of_kind = |kind: &EnvKind| envs.get_key_value(&kind.to_string());
        let found =
            envs.get_key_value(&**env).or_else(|| env.source().kinds().iter().rev().find_map(of_kind));
        found.map(|(key, terms)| (key.as_str(), terms))
    }

    /// Returns what is held of all envs that go by those terms.
    fn held_under(&self, key: &str, held: &Holdings) -> Held {
        let under = held.envs.iter().filter(|(env, _)| self.terms(env).is_some_and(|(of, _)| of == key));
        under.fold(Held::default(), |sum, (_, held)| Held {
            lanes: sum.lanes + held.lanes,
            processes: sum.processes + held.processes,
        })
    }
}

impl Holdings {
    /// Adds a session's lanes and processes.
    pub fn add(&mut self, env: &EnvId, lanes: u32, processes: u32) {
        self.lanes += u64::from(lanes);
        let held = self.envs.entry(env.clone()).or_default();
        held.lanes += u64::from(lanes);
        held.processes += u64::from(processes);
    }

    /// Takes away a session's lanes and processes, which were added before.
    pub fn remove(&mut self, env: &EnvId, lanes: u32, processes: u32) {
        self.lanes -= u64::from(lanes);
        let Some(held) = self.envs.get_mut(env) else { return };
        held.lanes -= u64::from(lanes);
        held.processes -= u64::from(processes);
        if held.lanes == 0 {
            self.envs.remove(env);
        }
    }

    /// Returns the number of lanes of all envs.
    pub const fn lanes(&self) -> u64 {
        self.lanes
    }

    /// Returns the number of lanes of an env.
    pub fn lanes_of(&self, env: &EnvId) -> u64 {
        self.envs.get(env).map_or(0, |held| held.lanes)
    }
}

/// Prints bytes in MiB, rounded up.
struct MiB(u64);

impl fmt::Display for MiB {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB", self.0.div_ceil(1 << 20))
    }
}

/// Weight of a lane in a worker process that was neither stated nor measured: a hundred to a core, and a small part of
/// an interpreter.
const LEARNED: Weight = Weight { cpu_milli: 10, memory: 4 << 20 };

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PONG: &str = "gymnasium:ale_py:ALE/Pong-v5";

    fn terms() -> EnvTerms {
        EnvTerms { workers: Some(Workers { most: 4, lanes: 1 }), ..EnvTerms::default() }
    }

    fn scales(memory: u64, stated: bool, envs: &[(&str, EnvTerms)]) -> Scales {
        let total = Weight { cpu_milli: 8_000, memory };
        let envs = envs.iter().map(|(env, terms)| ((*env).to_owned(), terms.clone())).collect();
        Scales::new(Budget { total, stated, envs })
    }

    fn holding(held: &[(&str, u32, u32)]) -> Holdings {
        let mut holdings = Holdings::default();
        held.iter().for_each(|&(env, lanes, processes)| holdings.add(&env.into(), lanes, processes));
        holdings
    }

    #[test]
    fn a_lane_weighs_what_is_stated_of_its_env_or_kind_else_what_was_measured_else_little() {
        let kind = EnvTerms { cpu_milli: Some(500), ..terms() };
        let of = EnvTerms { memory: Some(7), ..terms() };
        let mut scales = scales(0, false, &[("gymnasium:*", kind), (PONG, of)]);
        assert_eq!(scales.lane(&"CartPole-v1".into()), Weight::default());
        assert_eq!(scales.lane(&"my_envs:Maze".into()), LEARNED);
        assert_eq!(scales.lane(&"gymnasium:X-v0".into()), Weight { cpu_milli: 500, ..LEARNED });
        let weight = Weight { cpu_milli: 30, memory: 40 };
        scales.measure(&["gymnasium:X-v0", PONG].map(|env| (env.to_owned(), weight)).into());
        assert_eq!(scales.lane(&"gymnasium:X-v0".into()), Weight { cpu_milli: 500, memory: 40 });
        assert_eq!(
            scales.lane(&PONG.into()),
            Weight { cpu_milli: 30, memory: 7 },
            "its own terms, not its kind's"
        );
    }

    #[test]
    fn a_limit_of_a_kind_is_for_all_of_its_envs_that_have_none_of_their_own() {
        let limits = |lanes| EnvTerms { max_lanes: Some(lanes), ..terms() };
        let scales = scales(0, false, &[("gymnasium:*", limits(8)), ("gymnasium:Y-v0", limits(2))]);
        let held = holding(&[("gymnasium:X-v0", 5, 4), ("gymnasium:Y-v0", 2, 2), ("CartPole-v1", 900, 0)]);
        assert_eq!(scales.fits(&"gymnasium:Z-v0".into(), 3, &held), Ok(()));
        let over = scales.fits(&"gymnasium:Z-v0".into(), 4, &held).unwrap_err();
        let message = "max_lanes of `gymnasium:*` is 8: 5 in use, 4 more asked for";
        assert_eq!(over.to_string(), message);
        let over = scales.fits(&"gymnasium:Y-v0".into(), 1, &held).unwrap_err();
        assert_eq!(over.to_string(), "max_lanes of `gymnasium:Y-v0` is 2: 2 in use, 1 more asked for");
        assert_eq!(scales.fits(&"CartPole-v1".into(), 60_000, &held), Ok(()));
    }

    #[test]
    fn processes_are_counted_over_all_sessions_of_an_env() {
        let limits = EnvTerms { max_processes: Some(6), ..terms() };
        let scales = scales(0, false, &[("gymnasium:*", limits)]);
        let held = holding(&[("gymnasium:X-v0", 64, 4)]);
        assert_eq!(scales.fits(&"gymnasium:X-v0".into(), 2, &held), Ok(()));
        let over = scales.fits(&"gymnasium:X-v0".into(), 3, &held).unwrap_err();
        let message = "max_processes of `gymnasium:*` is 6: 4 in use, 3 more asked for";
        assert_eq!(over.to_string(), message);
        assert_eq!(scales.room(&"gymnasium:X-v0".into(), 1024, &held), 2);
        assert_eq!(
            scales.room(&"gymnasium:X-v0".into(), 1024, &Holdings::default()),
            1024,
            "one session of 4"
        );
    }

    #[test]
    fn memory_refuses_what_was_stated_and_an_estimate_only_where_the_budget_was_stated() {
        let heavy = EnvTerms { memory: Some(300 << 20), ..EnvTerms::default() };
        let (env, held) = ("Heavy-v0", holding(&[("Heavy-v0", 2, 0)]));
        let guessed = scales(1000 << 20, false, &[(env, heavy.clone())]);
        assert_eq!(guessed.fits(&env.into(), 1, &held), Ok(()));
        let message =
            "memory is 1000 MiB for all lanes: 600 MiB in use, 2 lanes of `Heavy-v0` take 600 MiB more";
        assert_eq!(guessed.fits(&env.into(), 2, &held).unwrap_err().to_string(), message);
        assert_eq!(guessed.fits(&"a:B".into(), 60_000, &held), Ok(()), "nobody knows what it weighs");
        let stated = scales(1000 << 20, true, &[(env, heavy)]);
        assert!(stated.fits(&"a:B".into(), 60_000, &held).is_err());
        assert_eq!(stated.fits(&"CartPole-v1".into(), 60_000, &held), Ok(()));
    }

    proptest! {
        #[test]
        fn a_session_fits_if_there_is_room_for_it_and_what_was_taken_away_leaves_nothing(
            most in (0u32..200, 0u32..40, 0u64..64),
            of in (1u32..9, 1u32..3),
            taken in 0u32..100,
            asked in 1u32..300,
            stated: bool,
        ) {
            let workers = Some(Workers { most: of.0, lanes: of.1 });
            let terms = EnvTerms {
                memory: Some(1), max_lanes: Some(most.0), max_processes: Some(most.1), workers, cpu_milli: None,
            };
            let scales = scales(most.2, stated, &[("E", terms)]);
            let (env, processes): (EnvId, u32) = ("E".into(), scales.processes(&"E".into(), taken));
            let mut held = Holdings::default();
            held.add(&env, taken, processes);
            let room = scales.room(&"E".into(), 64, &held);
            if asked <= room.min(64) {
                prop_assert_eq!(scales.fits(&"E".into(), asked, &held), Ok(()));
            }
            // As one session, or as one of 64 lanes after the other.
            let mut left = room;
            let mut all = held.clone();
            while left > 0 && left < u32::MAX {
                let lanes = left.min(64);
                prop_assert_eq!(scales.fits(&"E".into(), lanes, &all), Ok(()));
                all.add(&env, lanes, scales.processes(&"E".into(), lanes));
                left -= lanes;
            }
            held.remove(&env, taken, processes);
            prop_assert_eq!(held, Holdings::default());
        }
    }
}
