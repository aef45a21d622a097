//! Keeps of a session's answers what its lanes need to go on elsewhere.

use std::time::Duration;

use rollhouse_core::{Call, Interruption, Outcome, StepColumns};
use rollhouse_policy::LaneStates;
use rollhouse_wire::{FrameKind, LostLane, Notes};

use super::{Attachment, Followed, RequestBody, Session, Stage};
use crate::log::{GivenLane, LaneFlags, SessionLog};

/// The parts of an answer that the log is kept from.
#[derive(Debug)]
pub struct Answered<'a> {
    /// The time at which it came.
    pub now: Duration,
    /// The flags of its lanes.
    pub flags: LaneFlags<'a>,
    /// The actions that its lanes took, as bytes of a column, where rows report them: they may be others than were asked
    /// for.
    pub taken: Option<&'a [u8]>,
    /// Its notes beside its columns.
    pub notes: &'a Notes,
}

impl Session {
    /// Notes that a step was posted in the memory of its node, and keeps its actions: `copy` puts them into a column.
    /// Returns its number. Of the two events of a step in memory it is the first; the second is the
    /// [answer](Session::note_batch), or that it is [awaited](Session::awaited) as a request.
    #[inline]
    pub fn posted(&mut self, copy: impl FnOnce(&mut [u8])) -> u32 {
        (self.request, self.state) = (None, Stage::Posted);
        if let Some(log) = &mut self.log {
            log.post(copy);
        }
        self.numbering.post()
    }

    /// Keeps an answer to a request of all lanes, or to a step that was [posted](Session::posted) and is answered by
    /// this. Lanes whose past was lost are lost in it.
    pub fn note_batch(&mut self, answered: &Answered<'_>, losses: &mut Vec<LostLane>) {
        if matches!(self.state, Stage::Posted) {
            self.numbering.answered();
            self.state = Stage::Resting;
        }
        let Self { log, request, cut, .. } = self;
        let kind = request.as_ref().map_or(FrameKind::Step, |request| request.kind.of_frames());
        if !cut.is_empty() {
            let mut cut = std::mem::take(cut);
            if kind == FrameKind::Reset {
                // What was reset has begun anew.
                cut.retain(|&lane| answered.flags.reset.get(lane as usize) == Some(&0));
            }
            let outcome = Outcome::Interrupted(Interruption::NodeLost).code();
            losses.extend(cut.into_iter().map(|lane| LostLane { lane, outcome }));
        }
        if let (Some(log), FrameKind::Step) = (log, kind) {
            let lost: Vec<u32> = losses.iter().map(|loss| loss.lane).collect();
            let sent = request.as_ref().map(|request| &request.columns[..]);
            match answered.taken.or(sent) {
                Some(actions) => log.stepped(answered.now, actions, answered.flags, &lost),
                None => log.stepped_as_posted(answered.now, answered.flags, &lost),
            }
        }
        if kind == FrameKind::Reset {
            self.note_given(answered);
            let begun = answered.flags.reset.iter().enumerate().filter(|(_, reset)| **reset != 0);
            if let Some(Followed { memory: Some(memory), .. }) = &mut self.followed {
                begun.for_each(|(lane, _)| memory.begin(lane));
            }
        }
        self.note_log(answered);
    }

    /// Notes that the node follows a policy that has these states of a lane. It goes on with what the one before remembered, if that had
    /// the same.
    pub(crate) fn follows(&mut self, policy: RequestBody, states: Option<&StepColumns>) {
        let before = self.followed.take().and_then(|before| before.memory);
        let memory = before.zip(states).and_then(|(memory, states)| {
            let lengths = states.specs().iter().map(|spec| spec.elements() * memory.began.len());
            lengths.eq(memory.rows.iter().map(Vec::len)).then_some(memory)
        });
        self.followed = Some(Followed { policy, memory });
    }

    /// Notes what the policy remembers of the lanes.
    pub(crate) fn remembers(&mut self, lanes: LaneStates) {
        if let Some(followed) = &mut self.followed {
            followed.memory = Some(lanes);
        }
    }

    /// Returns what the policy remembers of the lanes; `None` if that is nothing.
    pub(crate) fn memory(&self) -> Option<&LaneStates> {
        self.followed.as_ref()?.memory.as_ref()
    }

    /// Says which options the reset gives to lanes that is asked for next.
    pub(crate) fn give(&mut self, given: Vec<GivenLane>) {
        if let Some(log) = &mut self.log {
            log.give(given);
        }
    }

    /// Returns whether a reset with options was not answered, and forgets these options.
    pub(crate) fn take_unanswered(&mut self) -> bool {
        self.log.as_mut().is_some_and(|log| !log.take_given().is_empty())
    }

    /// Keeps the options that lanes were given by the reset that was answered. An earlier node, which has ended its log with
    /// them, shows it by not saying which episodes began.
    fn note_given(&mut self, answered: &Answered<'_>) {
        let given = self.log.as_mut().map(SessionLog::take_given).unwrap_or_default();
        let Some(log) = self.log.as_mut().filter(|_| !given.is_empty()) else { return };
        let has_begun = answered.flags.reset.contains(&1);
        let says = answered.notes.began().is_some_and(|mut began| began.next().is_some());
        if has_begun && !says || !given.iter().all(|(lane, options)| log.given(*lane, options)) {
            self.log = None;
        }
    }

    /// Keeps an answer about some lanes, which were asked for a step with one of `actions` each.
    pub fn note_rows(&mut self, answered: &Answered<'_>, lanes: &[u32], actions: &[u8]) {
        let mut lost: Vec<u32> = answered.notes.lost.iter().map(|loss| loss.lane).collect();
        lost.extend(&self.cut);
        if let Some(log) = &mut self.log {
            let actions = answered.taken.unwrap_or(actions);
            log.stepped_some(answered.now, lanes, actions, answered.flags, &lost);
        }
        self.note_log(answered);
    }

    /// Keeps which episodes began, and how states hash.
    fn note_log(&mut self, answered: &Answered<'_>) {
        let Answered { now, notes, .. } = *answered;
        self.leaving |= notes.leaving;
        if self.attachment == (Attachment::Attached { logs: false }) {
            self.log = None;
        }
        let Some(log) = &mut self.log else { return };
        if let (Some(began), Some(hashes)) = (notes.began(), notes.hashes()) {
            began.for_each(|began| log.began(now, &began));
            hashes.for_each(|(lane, hash)| log.stood(lane, hash));
        }
    }

    /// Forgets the log: the lanes' doings no longer follow from their starts and actions, so if they are lost they stay
    /// so.
    pub(crate) fn forget(&mut self) {
        self.log = None;
    }

    /// Takes the log out while a call of an env's method is under way: if nobody says how it ended, nobody knows what
    /// the lanes have done.
    pub(crate) const fn doubt(&mut self) -> Option<SessionLog> {
        self.log.take()
    }

    /// Puts the log back, with the call on a lane of the session if it was done.
    pub(crate) fn settle_call(&mut self, log: Option<SessionLog>, done: Option<(u32, Call)>) {
        self.log = log;
        if let (Some(log), Some((lane, call))) = (&mut self.log, done) {
            log.called(lane, call);
        }
    }

    /// Takes those of the lanes that have lost their past and were not shown as lost yet.
    pub fn take_cut(&mut self, lanes: &[u32]) -> Vec<u32> {
        let (shown, left) = self.cut.drain(..).partition(|lane| lanes.contains(lane));
        self.cut = left;
        shown
    }
}
