//! A session attached by memory: requests are posted in it, answers read from it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use rollhouse_arena::{Answer, AttachedArena, Frame, LaneNote, ReadyLanes, TrainerError};
use rollhouse_core::ColumnMut;
use rollhouse_wire::{
    ColumnBuffer, FrameHeader, FrameKind, FrameLayout, LostLane, Notes, Refusal, RefusalCode, ResetLanes,
    SendLanes, began_of, control, failpoint,
};

use crate::batch::filled;
use crate::carrier::{Carrier, LinkAnswer, LinkLost};
use crate::check::check_notes;
use crate::session::{RequestBody, Session};

/// A session's memory, and the socket that tells whether its node is there.
pub(crate) struct MemoryLink {
    pub(super) arena: AttachedArena,
    /// Whether the node serves this attachment; `None` once it is gone or serves another owner. Frames can be read still.
    pub(super) is_open: Option<IsOpen>,
    pub(super) layout: FrameLayout,
    /// The kind of the requests that are posted and not answered.
    pub(super) under_way: Option<Posted>,
    /// Lanes whose rows have come and were not taken.
    pub(super) ready: Vec<u32>,
    /// Lanes that were refused last.
    pub(super) refused: Vec<u32>,
    /// The answer to the last request, which may be of an earlier attachment.
    pub(super) last: MemoryAnswer,
    /// Number of the last request that the session had answered when it was attached, until another is posted.
    pub(super) answered_before: Option<u32>,
    /// Number of the last request that was posted with a number.
    pub(super) number: Option<u32>,
    /// The notes beside the newest frame; they are only about lanes that there are.
    pub(super) notes: Notes,
}

/// Returns whether the node serves an attachment still.
type IsOpen = Box<dyn Fn() -> bool + Send + Sync>;

/// The kind of request that was posted.
pub(super) enum Posted {
    /// A step or a reset.
    Batch,
    /// A step of some lanes, which is answered once so many that were sent are done.
    Lanes(usize),
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub(crate) enum MemoryAnswer {
    /// The newest frame.
    Batch,
    /// Rows of lanes that were sent.
    Rows,
    /// Nothing has moved.
    Refused(Refusal),
}

/// Why waiting ended without an answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The attachment is over: the node is gone, serves another owner, or breaks the layout's rules.
    Lost,
    /// The caller wanted to stop waiting; the request is still under way.
    Stopped,
}

impl MemoryLink {
    /// Returns whether requests can be posted.
    pub(crate) const fn is_attached(&self) -> bool {
        self.is_open.is_some()
    }

    /// Returns whether a request is posted and not answered: frames and actions are the node's then.
    pub(crate) const fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Returns the answer to the last request, of an earlier attachment if nothing was posted in this one. `kind` is
    /// the request's kind.
    pub(crate) fn last(&self, kind: FrameKind) -> MemoryAnswer {
        match self.last.clone() {
            MemoryAnswer::Batch if kind == FrameKind::Send => MemoryAnswer::Rows,
            answer => answer,
        }
    }

    /// Returns the action column as it is now, as the columns of a request.
    pub(crate) fn columns(&self) -> Bytes {
        let mut actions = vec![0; self.arena.action_bytes()];
        self.arena.copy_actions(&mut actions);
        filled(&actions)
    }

    /// Copies the action column as it is now.
    #[inline]
    pub(crate) fn copy_actions(&self, actions: &mut [u8]) {
        self.arena.copy_actions(actions);
    }

    /// Returns the notes beside the newest frame, without those of lost lanes.
    #[inline]
    pub(crate) const fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Returns the notes beside the rows of those lanes, as of the last answer to them.
    ///
    /// # Errors
    /// If they are about other lanes.
    pub(crate) fn notes_of(&self, lanes: &[u32]) -> Result<Notes, String> {
        let mut notes = Notes { lost: self.lost(), leaving: self.arena.is_leaving(), ..Notes::default() };
        for &lane in lanes {
            let LaneNote { began, hash } = self.arena.lane_note(lane);
            if let Some(record) = began {
                let began = began_of(&record);
                if began.lane != lane {
                    return Err(format!("a note of lane {} beside lane {lane}", began.lane));
                }
                notes.put_began(&began);
            }
            if let Some(hash) = hash {
                notes.put_hash(lane, hash);
            }
        }
        Ok(notes)
    }

    /// Reads the notes beside the newest frame.
    #[inline]
    pub(super) fn read_notes(&mut self) -> Result<(), String> {
        let Notes { began, hashes, leaving, .. } = &mut self.notes;
        self.arena.frame_notes(began, hashes).map_err(|error| error.to_string())?;
        *leaving = self.arena.is_leaving();
        if began.is_empty() && hashes.is_empty() {
            return Ok(());
        }
        check_notes(&self.notes, &[], self.arena.lanes())
    }

    /// Gives up the request under way, which will not be answered any more: the newest frame and the actions can be
    /// read.
    pub(crate) fn forget_request(&mut self) {
        self.arena.forget_request();
        self.under_way = None;
    }

    /// Lets the node go; frames can be read still.
    pub(crate) fn detach(&mut self) {
        self.is_open = None;
    }

    /// Returns the memory.
    #[inline]
    pub(crate) const fn arena(&self) -> &AttachedArena {
        &self.arena
    }

    /// Returns the newest frame, unless a request is under way.
    #[inline]
    pub(crate) fn frame(&self) -> Option<Frame<'_>> {
        match self.under_way {
            Some(Posted::Batch) => None,
            Some(Posted::Lanes(_)) | None => Some(self.arena.frame()),
        }
    }

    /// Returns the column of actions, unless a request or a lane is under way.
    #[inline]
    pub(crate) fn actions_mut(&mut self) -> Option<ColumnMut<'_>> {
        let free = self.under_way.is_none() && self.arena.outstanding() == 0;
        free.then(|| self.arena.actions_mut())
    }

    /// Returns whether a lane is lost.
    #[inline]
    pub(crate) fn has_lost(&self) -> bool {
        self.arena.has_lost()
    }

    /// Returns the lanes that are lost.
    pub(crate) fn lost(&self) -> Vec<LostLane> {
        self.arena.lost().into_iter().map(|(lane, outcome)| LostLane { lane, outcome }).collect()
    }

    /// Puts a command into the ring of commands. Returns false if there is no room now.
    pub(crate) fn try_command(&mut self, command: &[u8]) -> Result<bool, NoAnswer> {
        let Some(open) = &self.is_open else { return Err(NoAnswer::Lost) };
        let sent = self.arena.send_command(command, Some(Instant::now()), open);
        match sent {
            Ok(()) => Ok(true),
            Err(TrainerError::TimedOut) if open() => Ok(false),
            Err(_) => Err(self.lose()),
        }
    }

    /// Copies the next answer to a command over `answer`. Returns false if none is there now.
    pub(crate) fn try_command_answer(&mut self, answer: &mut Vec<u8>) -> Result<bool, NoAnswer> {
        let Some(open) = &self.is_open else { return Err(NoAnswer::Lost) };
        match self.arena.next_answer(answer, Some(Instant::now() + COMMAND_PATIENCE), open) {
            Ok(()) => Ok(true),
            Err(TrainerError::TimedOut) if open() => Ok(false),
            Err(_) => Err(self.lose()),
        }
    }

    fn lose(&mut self) -> NoAnswer {
        self.is_open = None;
        NoAnswer::Lost
    }

    /// Posts a step of that session with the actions that stand in the column. It has its number only from now on.
    #[inline]
    pub(crate) fn step(&mut self, session: &mut Session) {
        self.post_step();
        // While the node steps.
        self.number = Some(session.posted(|actions| self.arena.copy_actions(actions)));
    }

    #[inline]
    fn post_step(&mut self) {
        self.arena.post_step();
        self.under_way = Some(Posted::Batch);
        failpoint("client.attach.posted");
    }

    /// Posts any request.
    ///
    /// # Panics
    /// If a request is under way.
    pub(crate) fn post(&mut self, body: &RequestBody) {
        match body.kind {
            FrameKind::Step => {
                self.put_actions(&body.columns);
                self.post_step();
            }
            FrameKind::Send => self.post_lanes(body),
            FrameKind::Latest => self.post_latest(body),
            // Nothing else is asked for.
            _ => {
                let lanes: ResetLanes = control::decode(&body.sidecar).unwrap_or_default();
                let mask: Vec<bool> = lanes.mask.iter().map(|&flag| flag == 1).collect();
                self.ready.clear();
                self.arena.post_reset(&lanes.seeds, &mask);
                self.under_way = Some(Posted::Batch);
            }
        }
    }

    fn put_actions(&mut self, columns: &[u8]) {
        let mut buffer = ColumnBuffer::default();
        buffer.resize(columns.len());
        buffer.bytes_mut().copy_from_slice(columns);
        let lanes = self.arena.lanes();
        let Some(places) = self.layout.actions(lanes, false) else { return };
        let actions = buffer.column(&places.actions, self.layout.action.dtype);
        let copied = self.arena.actions_mut().copy_from(actions);
        debug_assert!(copied, "actions have the column's type, which was checked");
    }

    /// Sends those of the lanes that the node does not have. It is told also if there is none, and counts requests by it.
    fn post_lanes(&mut self, body: &RequestBody) {
        let ready = std::mem::take(&mut self.ready);
        let put = self.put_actions_of(&body.columns, |lane| !ready.contains(&lane));
        self.ready = ready;
        let Some((fresh, named)) = put else { return };
        self.arena.send(&fresh);
        self.under_way = Some(Posted::Lanes(min_of(body, named)));
    }

    /// Asks for the newest rows of live lanes, and gives an action to those that are named.
    fn post_latest(&mut self, body: &RequestBody) {
        let acting = if body.columns.is_empty() {
            Vec::new()
        } else {
            let Some((acting, _)) = self.put_actions_of(&body.columns, |_| true) else { return };
            acting
        };
        self.arena.post_latest(&acting);
        self.under_way = Some(Posted::Batch);
    }

    /// Writes the actions of those of the named lanes that are `wanted` and that the node does not have. Returns these lanes,
    /// and the number of lanes that are named; `None` if the columns are none.
    fn put_actions_of(&mut self, columns: &[u8], wanted: impl Fn(u32) -> bool) -> Option<(Vec<u32>, usize)> {
        let mut buffer = ColumnBuffer::default();
        buffer.resize(columns.len());
        buffer.bytes_mut().copy_from_slice(columns);
        let count = buffer.count().unwrap_or(0) as usize;
        let places = self.layout.actions(count, true)?;
        let lanes = buffer.lanes(&places.lanes);
        let actions = buffer.column(&places.actions, self.layout.action.dtype);
        let elements = self.layout.action.elements();
        let mut put = Vec::with_capacity(lanes.len());
        for (row, &lane) in lanes.iter().enumerate() {
            if self.arena.is_outstanding(lane) || !wanted(lane) {
                continue;
            }
            let action = actions.slice(row * elements, (row + 1) * elements);
            let copied = self.arena.action_row_mut(lane).copy_from(action);
            debug_assert!(copied, "actions have the column's type, which was checked");
            put.push(lane);
        }
        Some((put, lanes.len()))
    }

    /// Has the request to send lanes that is under way wait for that many. Returns false if none is.
    pub(crate) const fn want(&mut self, lanes: usize) -> bool {
        match &mut self.under_way {
            Some(Posted::Lanes(min)) => *min = lanes,
            Some(Posted::Batch) | None => return false,
        }
        true
    }

    /// Hastens as [`Link::hasten`](super::Link::hasten) does.
    pub(super) const fn hasten(&mut self) {
        self.want(0);
    }

    /// Takes the lanes out whose rows have come, those of `asked`, in ascending order.
    pub(super) fn take_ready(&mut self, asked: &[u32]) -> Vec<u32> {
        let (mut taken, left): (Vec<u32>, Vec<u32>) =
            self.ready.drain(..).partition(|lane| asked.binary_search(lane).is_ok());
        self.ready = left;
        taken.sort_unstable();
        taken
    }

    /// Waits until a request can be posted, as [`Link::is_free`] does.
    pub(super) async fn is_free(&mut self, number: u32, carrier: &impl Carrier) -> Result<bool, LinkLost> {
        if !self.is_attached() {
            return Err(LinkLost::Ended);
        }
        if self.number == Some(number) {
            return Ok(false);
        }
        while self.is_under_way() {
            // Nobody waits for the answer any more.
            if let Err(NoAnswer::Lost) = self.answer(carrier).await {
                return Err(LinkLost::Ended);
            }
        }
        Ok(true)
    }

    /// Posts as [`Link::post`] does: a request that an earlier attachment has answered is not done again.
    pub(super) fn post_numbered(&mut self, number: u32, body: &RequestBody) {
        self.number = Some(number);
        if self.answered_before.take() != Some(number) {
            self.post(body);
        }
    }

    /// Waits for an answer, as [`Link::answer`] does.
    pub(super) async fn answer_numbered(
        &mut self,
        number: u32,
        kind: FrameKind,
        carrier: &impl Carrier,
    ) -> Result<LinkAnswer, LinkLost> {
        let answer = if self.is_under_way() {
            self.answer(carrier).await.map_err(|_| LinkLost::Ended)?
        } else {
            // Answered before it was posted here, or taken on another way.
            self.last(kind)
        };
        let header = |kind| FrameHeader { kind, flags: 0, number, columns: 0, sidecar: 0 };
        Ok(match answer {
            MemoryAnswer::Batch => LinkAnswer::Done(header(FrameKind::Batch)),
            MemoryAnswer::Rows => LinkAnswer::Done(header(FrameKind::Rows)),
            MemoryAnswer::Refused(refusal) => LinkAnswer::Refused(refusal),
        })
    }

    /// Waits on this thread for the request under way: spins, gives way, and then sleeps. `stop` is asked before every
    /// slice of sleep, of at most 250 ms.
    #[inline]
    pub(crate) fn wait(
        &mut self,
        deadline: Option<Instant>,
        mut stop: impl FnMut() -> bool,
    ) -> Result<MemoryAnswer, NoAnswer> {
        let Self { arena, is_open, under_way, ready, refused, last, .. } = self;
        let Some(open) = is_open else { return Err(NoAnswer::Lost) };
        let mut stopped = false;
        let alive = || {
            stopped = stop();
            !stopped && open()
        };
        let waited = match under_way {
            Some(Posted::Lanes(min)) => {
                let missing = min.saturating_sub(ready.len()).min(arena.outstanding());
                arena.wait_lanes(missing, ready, deadline, alive).map(|told| match told {
                    ReadyLanes::Ready(_) => MemoryAnswer::Rows,
                    ReadyLanes::Refused { lanes, note } => {
                        *refused = lanes;
                        MemoryAnswer::Refused(refusal_of(&note))
                    }
                })
            }
            Some(Posted::Batch) | None => arena.wait(deadline, alive).and_then(|answer| {
                if arena.outstanding() > 0 {
                    // What was under way was done before, and nobody wants its rows any more.
                    arena.wait_lanes(arena.outstanding(), ready, Some(Instant::now()), || true)?;
                    ready.clear();
                }
                Ok(match answer {
                    Answer::Frame => MemoryAnswer::Batch,
                    Answer::Refused(note) => MemoryAnswer::Refused(refusal_of(&note)),
                })
            }),
        };
        match waited {
            Ok(answer) => {
                (*under_way, *last) = (None, answer.clone());
                match answer {
                    MemoryAnswer::Batch if self.read_notes().is_err() => Err(self.lose()),
                    answer => Ok(answer),
                }
            }
            Err(TrainerError::TimedOut) => Err(NoAnswer::Stopped),
            Err(TrainerError::Gone) if stopped => Err(NoAnswer::Stopped),
            Err(_) => {
                *is_open = None;
                Err(NoAnswer::Lost)
            }
        }
    }

    /// Waits as [`MemoryLink::wait`] does, without ever sleeping on this thread for long. Cancellation-safe: the
    /// request stays under way.
    pub(crate) async fn answer(&mut self, carrier: &impl Carrier) -> Result<MemoryAnswer, NoAnswer> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.wait(None, || true) {
                Err(NoAnswer::Stopped) => {}
                done => return done,
            }
            // The node takes long: this thread has others to serve.
            loop {
                carrier.sleep_until(carrier.now() + pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                let stays = self.is_open.as_ref().is_some_and(|open| open());
                // What was answered before the socket ended counts.
                if self.has_news() {
                    break;
                }
                if !stays {
                    return Err(self.lose());
                }
            }
        }
    }

    pub(crate) fn has_news(&self) -> bool {
        match self.under_way {
            Some(Posted::Lanes(_)) => self.arena.has_ready_lanes(),
            Some(Posted::Batch) | None => self.arena.is_answered(),
        }
    }
}

/// Returns the number of lanes for which a request to send lanes waits: all that it names, if it does not say.
fn min_of(body: &RequestBody, all: usize) -> usize {
    match control::decode::<SendLanes>(&body.sidecar) {
        Ok(SendLanes { min }) if !body.sidecar.is_empty() => min as usize,
        _ => all,
    }
}

/// Decodes a refusal that a node noted.
fn refusal_of(note: &[u8]) -> Refusal {
    control::decode(note)
        .unwrap_or_else(|_| Refusal::new(RefusalCode::Unknown, "the node's reason cannot be read"))
}

/// Time to wait for the answer to a command without letting other tasks of the thread have their turn.
const COMMAND_PATIENCE: Duration = Duration::from_micros(200);

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(8);
