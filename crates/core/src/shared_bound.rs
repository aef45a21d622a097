//! The bounds that several owners share, in one table.

use std::fmt;
use std::time::Duration;

/// A bound that several owners share: what it limits, and what each of them may have of it.
///
/// One owner may have half of what others leave, and at most [`SharedBound::most`], so that a newcomer finds room until
/// many have taken some. Nodes and admins, the operators, have a reserve that owners never take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedBound {
    /// The things that are counted and whose they are, as in `connections of a coordinator`.
    pub what: &'static str,
    /// Most of them in all.
    pub limit: u64,
    /// The part that is kept for nodes and admins.
    pub reserve: u64,
    /// Most that one owner may have, whatever others leave. At the limit it bounds nothing.
    pub most: u64,
    /// What becomes of one that is over its share.
    pub beyond: Beyond,
}

/// What becomes of an owner that is over its share of a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beyond {
    /// It is refused as `busy`.
    Refused,
    /// It is refused as `quota`: nothing of it goes by itself.
    Quota,
    /// It waits for its turn.
    Waits,
    /// It has what others leave until they want it: then its oldest is dropped first.
    Dropped,
    /// It has what others leave until there is no more: then its heaviest session ends.
    Ended,
}

impl SharedBound {
    /// Connections of peers that are known: to a coordinator by who they are, to a node by the sessions that they step
    /// or watch. Nodes and their admins fit in the reserve.
    pub const CONNECTIONS: Self =
        Self::of("connections of a coordinator, and of a node", 7_168).reserving(2_304);
    /// Requests that a coordinator has not answered, those of nodes apart. They leave room in its mailbox for the
    /// heartbeats of all nodes.
    pub const REQUESTS: Self = Self::of("requests under way at a coordinator", 4_096).reserving(2_048);
    /// Bytes of long requests that a coordinator has not answered; those of nodes are counted by their connections alone.
    pub const REQUEST_BYTES: Self =
        Self::of("bytes of long requests under way at a coordinator", 256 << 20).reserving(64 << 20);
    /// Pools that have not ended. It takes eight hostile owners to keep everybody else out, and pools of one session of
    /// one owner fill half of a node's sessions at most.
    pub const POOLS: Self = Self::of("pools of a cluster", 16_384).reserving(1_024).at_most(2_048);
    /// Questions about the store's episodes that are answered at a time; each has a part of a segment in memory.
    pub const QUESTIONS: Self = Self::of("questions to the store", 3).reserving(1).waiting();
    /// Reads of the store's disk at a time.
    pub const READS: Self = Self::of("reads of the store's disk", 8).reserving(2).at_most(2).waiting();
    /// Parts of the store that are on their way to readers; each has a piece in memory.
    pub const ANSWERS: Self =
        Self::of("parts of the store under way to readers", 256).reserving(64).waiting();
    /// Requests that wait for the archive at a time, each on a thread for blocking work.
    pub const FETCHES: Self = Self::of("fetches from the archive", 16).reserving(4).waiting();
    /// Episodes that are sent to nodes at a time; each is in memory as a whole.
    pub const EPISODES: Self = Self::of("episodes under way to nodes", 2).waiting();
    /// Policies that are received or sent at a time; each is in memory as a whole.
    pub const POLICY_TRANSFERS: Self =
        Self::of("policies under way to and from a coordinator", 4).reserving(1).waiting();
    /// Bytes of policies, of the operator's budget.
    pub const POLICIES: Self = Self::of("bytes of policies", 4_000_000_000).reserving(250_000_000).for_good();
    /// Steps and commands of sessions that wait for a thread of a node. The threads take them by turns of owners.
    pub const STEPS: Self = Self::of("steps that wait for a thread of a node", 1_024).reserving(64);
    /// Microseconds of each [`SharedBound::SHORT_STEPS_PERIOD`] that a node's data thread steps short batches by itself.
    /// Beyond its share an owner's are stepped by the threads for long ones, as long as other owners have some.
    pub const SHORT_STEPS: Self =
        Self::of("microseconds of 10 ms in which a node's data thread steps", 10_000).waiting();
    /// Period of which owners share the data thread's time.
    pub const SHORT_STEPS_PERIOD: Duration = Duration::from_millis(10);
    /// Threads of a node for steps, resets, commands and ends that may wait. Such a session mostly waits for processes of
    /// its own, which cost a node far more than a thread.
    pub const WAITING: Self = Self::of("threads of a node for what may wait", 1_024).reserving(64).waiting();
    /// Threads of a node that wait for processes of Python envs.
    pub const LEARNING: Self = Self::of("Python envs that a node starts", 16).reserving(2);
    /// Sessions of a node that play by themselves, as many as it has sessions at all.
    pub const ROLLOUTS: Self = Self::of("sessions of a node that play by themselves", 4_096).reserving(256);
    /// Sessions of a node that show recorded episodes, each of which is in memory as a whole.
    pub const REPLAYS: Self = Self::of("replays of a node", 16).reserving(2);
    /// Sessions of a node, as many as it can record at a time.
    pub const SESSIONS: Self = Self::of("sessions of a node", 4_096).reserving(256);
    /// Streams on which sessions of a node are watched.
    pub const WATCHERS: Self = Self::of("watchers of a node", 1_024).reserving(128);
    /// Sessions of a node that are stepped in shared memory, each of which takes a thread: [`SharedBound::with_limit`]
    /// of what the operator allows.
    pub const ATTACHED: Self = Self::of("sessions attached to a node's memory", 64).reserving(4);
    /// Bytes of a node's spool that the store does not have yet, of the operator's limit.
    pub const SPOOL: Self = Self::of("bytes of a node's spool", 10_000_000_000).reserving(625_000_000);
    /// Bytes of the store's disk, of the operator's budget.
    pub const STORE: Self =
        Self::of("bytes of the store", 100_000_000_000).reserving(6_250_000_000).dropping();
    /// Segments on the store's disk, each of which takes memory.
    pub const STORE_SEGMENTS: Self = Self::of("segments of the store", 1 << 20).reserving(1 << 16).dropping();
    /// Bytes of memory that worker processes of Python envs have to themselves on a node, of its budget. They are measured, not
    /// taken: so it binds when owners have all but the reserve.
    pub const WORKER_MEMORY: Self =
        Self::of("bytes of memory of a node's worker processes", 16 << 30).reserving(1 << 30).ending();
    /// Bytes of answers to the watchers of a node that come in pieces, and are not taken yet.
    pub const WATCH_BYTES: Self =
        Self::of("bytes of long answers to a node's watchers", 1 << 30).reserving(128 << 20);
    /// Lanes of one session that are watched: each costs every step a few nanoseconds.
    pub const WATCHED_LANES: Self = Self::of("watched lanes of a session", 16).reserving(2);

    /// Every bound that is shared, in the order of the table in docs/faults.md.
    pub const ALL: [Self; 26] = [
        Self::CONNECTIONS,
        Self::REQUESTS,
        Self::REQUEST_BYTES,
        Self::POOLS,
        Self::QUESTIONS,
        Self::READS,
        Self::ANSWERS,
        Self::FETCHES,
        Self::EPISODES,
        Self::POLICY_TRANSFERS,
        Self::POLICIES,
        Self::STEPS,
        Self::SHORT_STEPS,
        Self::WAITING,
        Self::LEARNING,
        Self::ROLLOUTS,
        Self::REPLAYS,
        Self::SESSIONS,
        Self::WATCHERS,
        Self::WATCH_BYTES,
        Self::WATCHED_LANES,
        Self::ATTACHED,
        Self::WORKER_MEMORY,
        Self::SPOOL,
        Self::STORE,
        Self::STORE_SEGMENTS,
    ];

    /// Returns the part that an owner, or one that operates, may have while other owners and other operators have theirs.
    #[must_use]
    pub const fn share(self, operates: bool, other_owners: u64, other_operators: u64) -> u64 {
        let Self { limit, reserve, most, .. } = self;
        let kept = if operates || other_operators > reserve { other_operators } else { reserve };
        let half = limit.saturating_sub(kept).saturating_sub(other_owners).div_ceil(2);
        if half < most { half } else { most }
    }

    /// Returns the bound with another limit. The reserve keeps its part of it.
    #[must_use]
    pub const fn with_limit(self, limit: u64) -> Self {
        let reserve = (self.reserve as u128 * limit as u128 / self.limit as u128) as u64;
        let most = if self.most == self.limit { limit } else { self.most };
        Self { limit, reserve, most, ..self }
    }

    const fn of(what: &'static str, limit: u64) -> Self {
        Self { what, limit, reserve: 0, most: limit, beyond: Beyond::Refused }
    }

    const fn reserving(self, reserve: u64) -> Self {
        Self { reserve, ..self }
    }

    const fn at_most(self, most: u64) -> Self {
        Self { most, ..self }
    }

    const fn for_good(self) -> Self {
        Self { beyond: Beyond::Quota, ..self }
    }

    const fn waiting(self) -> Self {
        Self { beyond: Beyond::Waits, ..self }
    }

    const fn ending(self) -> Self {
        Self { beyond: Beyond::Ended, ..self }
    }

    const fn dropping(self) -> Self {
        Self { beyond: Beyond::Dropped, ..self }
    }
}

/// Prints the bound's row of the table in docs/faults.md, up to its tests.
impl fmt::Display for SharedBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, limit, reserve, most, beyond } = self;
        let cap = if most < limit { format!(", at most {most}") } else { String::new() };
        let beyond = match beyond {
            Beyond::Refused => "`busy`",
            Beyond::Quota => "`quota`",
            Beyond::Waits => "waits for its turn",
            Beyond::Dropped => "its oldest go first",
            Beyond::Ended => "its heaviest session ends when there is no more",
        };
        write!(f, "| {what} | {limit} | half of what others leave{cap} | {reserve} | {beyond} |")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Claimant, Shares};

    /// Takes as much as there is, until it is refused. Returns the amount that was taken.
    fn take_all(shares: &mut Shares, claimant: &Claimant) -> u64 {
        let before = shares.taken(claimant);
        let mut amount = shares.bound().limit;
        while amount > 0 {
            if shares.take(claimant, amount).is_err() {
                amount /= 2;
            }
        }
        shares.taken(claimant) - before
    }

    /// Symptom: one owner had all of a bound that several share, and nobody else had a place, nodes and admins
    /// included. Cause: bounds were counted without regard to who takes. Fix: every shared bound is one of this table,
    /// and one rule says what an owner may have of it.
    #[test]
    fn whatever_one_owner_takes_of_any_bound_a_second_owner_and_an_operator_find_their_part() {
        for bound in SharedBound::ALL {
            let mut shares = Shares::new(bound);
            let greedy = Claimant::owner("greedy");
            let taken = take_all(&mut shares, &greedy);
            assert!(taken >= 1, "{}: one owner alone has a place", bound.what);
            assert!(taken <= (bound.limit - bound.reserve).div_ceil(2).min(bound.most), "{}", bound.what);
            let second = take_all(&mut shares, &Claimant::owner("second"));
            assert!(second >= 1, "{}: a second owner has a place", bound.what);
            let admin = take_all(&mut shares, &Claimant::operator("admin"));
            assert!(admin >= bound.reserve.div_ceil(2), "{}: {admin} for an admin", bound.what);
            shares.give_back(&greedy, taken);
            assert!(take_all(&mut shares, &Claimant::owner("third")) >= 1, "{}", bound.what);
        }
    }

    #[test]
    fn a_bound_of_another_limit_keeps_the_part_that_is_reserved() {
        let steps = SharedBound::STEPS.with_limit(512);
        assert_eq!((steps.limit, steps.reserve, steps.most), (512, 32, 512));
        let one = SharedBound::STEPS.with_limit(1);
        assert_eq!((one.reserve, Shares::new(one).share(&Claimant::owner("ada"))), (0, 1));
    }

    #[test]
    fn the_table_of_shared_bounds_in_the_docs_is_this_one() {
        let page = include_str!("../../../docs/faults.md");
        let rows: Vec<&str> =
            page.lines().filter(|line| line.contains("half of what others leave")).collect();
        for bound in SharedBound::ALL {
            let row = bound.to_string();
            assert!(rows.iter().any(|line| line.starts_with(&row)), "docs/faults.md has no row `{row}`");
        }
    }
}
