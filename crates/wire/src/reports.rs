//! Reports of changes, by which a node keeps its coordinator's picture of its sessions true.
//!
//! Every change of a session gets the node's next version number. A heartbeat carries what changed after the version
//! that the coordinator is known to have, up to another one; the answer says which version the coordinator has then.
//! Whatever is lost, repeated or overtaken, the next heartbeat starts from what the coordinator really has, and one
//! that has nothing (another node's boot, a new coordinator) is told everything. Sessions that are over are not told
//! here: their ends are, until they are acknowledged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Incarnation, SessionId, SessionReport};

/// The changes among a node's sessions between two versions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Changes {
    /// The version from which they start: a reader that has this version, or a later one, misses nothing.
    pub since: u64,
    /// The version that a reader has after taking them in.
    pub through: u64,
    /// Sessions that changed or are new, in their current form.
    pub sessions: Vec<SessionReport>,
    /// Whether more sessions have changed than fit: the next message follows at once.
    #[serde(default)]
    pub more: bool,
}

/// The node's side: the version at which each session changed last, and the version that the coordinator has.
#[derive(Debug, Default)]
pub struct ReportLog {
    version: u64,
    acknowledged: u64,
    sessions: BTreeMap<SessionId, (u64, SessionReport)>,
    /// The session that got each version last.
    order: BTreeMap<u64, SessionId>,
}

/// The coordinator's side: the sessions of one boot of a node.
#[derive(Debug, Default)]
pub struct ReportView {
    version: u64,
    /// Number of lanes of each session.
    sessions: BTreeMap<(SessionId, Incarnation), u32>,
}

/// The reason why changes were not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotTaken {
    /// The changes are known already.
    Known,
    /// Earlier changes are missing: the node has to start from the version that is known.
    Gap,
}

impl ReportLog {
    /// Sets the sessions that are open now.
    pub fn update(&mut self, open: Vec<SessionReport>) {
        let mut before = std::mem::take(&mut self.sessions);
        for report in open {
            let id = report.session;
            let kept = match before.remove(&id) {
                Some((version, known)) if known == report => (version, known),
                known => {
                    if let Some((version, _)) = known {
                        self.order.remove(&version);
                    }
                    self.version += 1;
                    self.order.insert(self.version, id);
                    (self.version, report)
                }
            };
            self.sessions.insert(id, kept);
        }
        for (version, _) in before.values() {
            self.order.remove(version);
        }
    }

    /// Returns the changes for the coordinator, of at most `most` sessions, the longest changed first.
    pub fn changes(&self, most: usize) -> Changes {
        let mut due = self.order.range(self.acknowledged + 1..);
        let mut through = self.acknowledged;
        let mut sessions = Vec::new();
        for (&version, id) in due.by_ref().take(most) {
            through = version;
            sessions.extend(self.sessions.get(id).map(|(_, report)| report.clone()));
        }
        let more = due.next().is_some();
        if !more {
            // Versions beyond the last belong to changes that were overtaken and to sessions that are over.
            through = self.version;
        }
        Changes { since: self.acknowledged, through, sessions, more }
    }

    /// Begins to tell a coordinator, which has the version `known` of this boot, or 0 if it has nothing.
    pub const fn begin(&mut self, known: u64) {
        self.acknowledged = if known <= self.version { known } else { 0 };
    }

    /// Notes that the coordinator, which was told of changes from `since` on, has version `known` now.
    pub fn acknowledge(&mut self, since: u64, known: u64) {
        if known < since {
            self.begin(known);
        } else if known <= self.version {
            self.acknowledged = self.acknowledged.max(known);
        }
    }
}

impl ReportView {
    /// Returns whether the node has that placement.
    pub fn has(&self, session: SessionId, incarnation: Incarnation) -> bool {
        self.sessions.contains_key(&(session, incarnation))
    }

    /// Takes changes in.
    ///
    /// # Errors
    /// If the changes do not follow the known version; nothing has changed then.
    pub fn take(&mut self, changes: &Changes) -> Result<(), NotTaken> {
        if changes.since > self.version {
            return Err(NotTaken::Gap);
        }
        if changes.through <= self.version {
            return Err(NotTaken::Known);
        }
        self.version = changes.through;
        let told = changes.sessions.iter();
        self.sessions.extend(told.map(|report| ((report.session, report.incarnation), report.lanes)));
        Ok(())
    }

    /// Removes a session that is over. Apply the changes of a message before the ends in it.
    pub fn ended(&mut self, session: SessionId, incarnation: Incarnation) {
        self.sessions.remove(&(session, incarnation));
    }

    /// Returns the version that is known, for the node.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Returns the sessions and their lanes, by name.
    pub fn sessions(&self) -> impl Iterator<Item = (&(SessionId, Incarnation), u32)> {
        self.sessions.iter().map(|(key, &lanes)| (key, lanes))
    }

    /// Returns the number of sessions.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns whether there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionCounts;
    use proptest::prelude::*;
    use rollhouse_core::RunId;

    fn id(index: u32) -> SessionId {
        SessionId { pool: RunId::from_u128(9), index }
    }

    fn report(index: u32, counter: u64, steps: u64) -> SessionReport {
        SessionReport {
            session: id(index),
            incarnation: Incarnation { term: 1, counter },
            owner: "ada".to_owned(),
            env: "CartPole-v1".into(),
            first_lane: 0,
            lanes: 1,
            pool_lanes: 1,
            replaces: false,
            launching: false,
            attached: Some(true),
            transport: None,
            done: SessionCounts { steps, ..SessionCounts::default() },
            replay: None,
            plays: None,
        }
    }

    #[test]
    fn sessions_at_rest_are_told_once() {
        let mut log = ReportLog::default();
        log.update((0..3).map(|index| report(index, 1, 0)).collect());
        let changes = log.changes(10);
        assert_eq!((changes.since, changes.through, changes.sessions.len(), changes.more), (0, 3, 3, false));
        log.acknowledge(0, 3);
        log.update((0..3).map(|index| report(index, 1, u64::from(index == 1))).collect());
        let wanted = Changes { since: 3, through: 4, sessions: vec![report(1, 1, 1)], more: false };
        assert_eq!(log.changes(10), wanted);
        log.acknowledge(3, 4);
        assert_eq!(log.changes(10).sessions, []);
    }

    #[test]
    fn what_does_not_fit_is_told_next_and_nothing_is_skipped_by_what_changes_meanwhile() {
        let mut log = ReportLog::default();
        log.update((0..5).map(|index| report(index, 1, 0)).collect());
        let first = log.changes(2);
        assert_eq!((first.through, first.more), (2, true));
        log.acknowledge(0, 2);
        // Session 2 changes before it was told, session 3 ends.
        log.update([0, 1, 2, 4].map(|index| report(index, 1, u64::from(index == 2))).to_vec());
        let rest = log.changes(2);
        assert_eq!((rest.since, rest.through, rest.more), (2, 6, false));
        assert_eq!(rest.sessions, [report(4, 1, 0), report(2, 1, 1)]);
    }

    #[test]
    fn changes_after_a_gap_are_not_taken_and_the_node_starts_from_what_is_known() {
        let mut log = ReportLog::default();
        log.update(vec![report(0, 1, 0)]);
        log.acknowledge(0, 1);
        log.update(vec![report(0, 1, 0), report(1, 1, 0)]);
        let mut forgetful = ReportView::default();
        let changes = log.changes(10);
        assert_eq!(forgetful.take(&changes), Err(NotTaken::Gap));
        log.acknowledge(changes.since, forgetful.version());
        forgetful.take(&log.changes(10)).unwrap();
        assert_eq!(forgetful.len(), 2);
    }

    /// A node and its coordinator, and what is on the way between them.
    #[derive(Default)]
    struct Pair {
        open: BTreeMap<SessionId, SessionReport>,
        ended: Vec<(SessionId, Incarnation)>,
        log: ReportLog,
        number: u64,
        sent: Vec<Beat>,
        answers: Vec<Answer>,
        counter: u64,
        /// Raised by each restart and each new connection: what is on the way then never arrives.
        view: ReportView,
        last: u64,
        /// What the coordinator last heard of each session.
        heard: BTreeMap<(SessionId, Incarnation), SessionReport>,
    }

    #[derive(Clone)]
    struct Beat {
        number: u64,
        changes: Changes,
        ended: Vec<(SessionId, Incarnation)>,
    }

    #[derive(Clone)]
    struct Answer {
        since: u64,
        known: u64,
        ended: Vec<(SessionId, Incarnation)>,
    }

    impl Pair {
        fn connect(&mut self) {
            self.sent.clear();
            self.answers.clear();
            (self.number, self.last) = (0, 0);
            self.log.begin(self.view.version());
        }

        fn restart_coordinator(&mut self) {
            self.view = ReportView::default();
            self.heard.clear();
            self.connect();
        }

        fn restart_node(&mut self) {
            // Another boot: the coordinator knows by its number that nothing of the last one is left.
            self.open.clear();
            self.ended.clear();
            self.log = ReportLog::default();
            self.restart_coordinator();
        }

        /// Opens a session, or steps it, or ends it.
        fn touch(&mut self, index: u32, end: bool) {
            let id = id(index);
            if end {
                self.ended.extend(self.open.remove(&id).map(|report| (id, report.incarnation)));
            } else if let Some(report) = self.open.get_mut(&id) {
                report.done.steps += 1;
            } else {
                self.counter += 1;
                self.open.insert(id, report(index, self.counter, 0));
            }
        }

        fn beat(&mut self, most: usize) -> bool {
            self.log.update(self.open.values().cloned().collect());
            self.number += 1;
            let changes = self.log.changes(most);
            let all = !changes.more;
            self.sent.push(Beat { number: self.number, changes, ended: self.ended.clone() });
            all
        }

        fn hear(&mut self, beat: Beat) {
            if beat.number > self.last {
                self.last = beat.number;
                if self.view.take(&beat.changes).is_ok() {
                    for report in beat.changes.sessions {
                        self.heard.insert((report.session, report.incarnation), report);
                    }
                }
                for &(session, incarnation) in &beat.ended {
                    self.view.ended(session, incarnation);
                    self.heard.remove(&(session, incarnation));
                }
            }
            let Beat { changes: Changes { since, .. }, ended, .. } = beat;
            self.answers.push(Answer { since, known: self.view.version(), ended });
        }

        fn answered(&mut self, answer: &Answer) {
            self.log.acknowledge(answer.since, answer.known);
            self.ended.retain(|end| !answer.ended.contains(end));
        }
    }

    proptest! {
        #[test]
        fn whatever_is_lost_repeated_or_overtaken_the_coordinator_ends_up_with_what_the_node_has(
            events in prop::collection::vec((0u8..12, 0usize..64, 1usize..5), 1..400)
        ) {
            let mut pair = Pair::default();
            for (event, which, most) in events {
                let any = |len: usize| which % len.max(1);
                match event {
                    0..=2 => pair.touch(which as u32 % 12, false),
                    3 => pair.touch(which as u32 % 12, true),
                    4 | 5 => drop(pair.beat(most)),
                    // Arrives, in any order, and may arrive again.
                    6 | 7 if !pair.sent.is_empty() => {
                        let beat = pair.sent[any(pair.sent.len())].clone();
                        pair.hear(beat);
                    }
                    8 if !pair.answers.is_empty() => {
                        let answer = pair.answers[any(pair.answers.len())].clone();
                        pair.answered(&answer);
                    }
                    9 => pair.connect(),
                    10 if which < 8 => pair.restart_coordinator(),
                    11 if which < 8 => pair.restart_node(),
                    _ => {}
                }
            }
            // From now on everything arrives.
            pair.connect();
            for _ in 0..=pair.open.len() + 1 {
                let all = pair.beat(1);
                let beat = pair.sent.pop().expect("it was just sent");
                pair.hear(beat);
                let answer = pair.answers.pop().expect("it was just given");
                pair.answered(&answer);
                if all && pair.ended.is_empty() {
                    break;
                }
            }
            let heard: Vec<_> = pair.heard.values().cloned().collect();
            let open: Vec<_> = pair.open.values().cloned().collect();
            prop_assert_eq!(heard, open);
            let viewed: Vec<_> = pair.view.sessions().map(|((id, _), _)| *id).collect();
            let here: Vec<_> = pair.open.keys().copied().collect();
            prop_assert_eq!(viewed, here);
            prop_assert_eq!(pair.log.changes(1).sessions, []);
        }
    }
}
