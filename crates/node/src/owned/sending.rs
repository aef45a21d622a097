//! Lanes that are sent some at a time, and answered together or as they are done.
//!
//! ```text
//! none --send--> lanes under way, the request waits for `min` of them --done, hastened--> answered with those that are done
//!                  the others stay under way between requests; a later one names them again, and is answered with them
//! ```
//!
//! A step or a reset of all lanes ends what is under way; its rows are dropped then.

use std::time::Duration;

use bytes::Bytes;
use rollhouse_core::{ColumnData, ColumnRef};
use rollhouse_engine::{Received, StepError};
use rollhouse_wire::{ColumnBuffer, Refusal, SendLanes, control};

use super::{FrameRequest, OwnedSession, RequestFault, refusal_of};

/// Lanes that are sent and have not been answered.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// The request that waits for lanes; `None` if none does.
    gathering: Option<Gathering>,
    /// Actions of the lanes under way, in a column of all lanes; `None` if none ever was between two requests.
    actions: Option<ColumnData>,
}

/// A request that waits for lanes.
#[derive(Debug, Clone, Copy)]
struct Gathering {
    number: u32,
    min: usize,
}

/// Lanes that a request names, and their actions.
pub(super) struct Named<'a> {
    lanes: &'a [u32],
    actions: ColumnRef<'a>,
}

impl OwnedSession {
    /// Carries out a request to send lanes. `None` if its answer waits for lanes.
    pub(super) fn send(
        &mut self,
        number: u32,
        request: &FrameRequest,
    ) -> Result<Result<Option<Bytes>, Refusal>, RequestFault> {
        let named = self.named(&request.columns)?;
        if request.sidecar.is_empty() {
            let received = self.send_and_receive(named.lanes, named.actions);
            return Ok(received.map(|received| Some(self.rows_answer(number, &received))));
        }
        let SendLanes { min } = control::decode(&request.sidecar).map_err(|_| RequestFault::Send)?;
        if let Err(refusal) = self.post(named.lanes, named.actions) {
            return Ok(Err(refusal));
        }
        let min = (min as usize).min(self.engine.outstanding());
        self.sent.gathering = Some(Gathering { number, min });
        Ok(self.take_done(Duration::ZERO))
    }

    /// Waits for the lanes for which the last request waits, at most that long. Returns its answer once enough are done,
    /// or, if it is `hastened`, with those that are done by now; `None` while it waits.
    pub fn gather(&mut self, patience: Duration, hastened: bool) -> Option<Bytes> {
        let Gathering { number, min } = self.sent.gathering.as_mut()?;
        if hastened {
            *min = 0;
        }
        let number = *number;
        match self.take_done(patience) {
            Ok(answer) => answer.map(|answer| self.answered(number, answer)),
            Err(refusal) => Some(self.refuse_and_tell(number, &refusal)),
        }
    }

    /// Returns whether the last request waits for lanes.
    pub const fn is_gathering(&self) -> bool {
        self.sent.gathering.is_some()
    }

    /// Returns the answer if enough lanes are done within that time.
    fn take_done(&mut self, patience: Duration) -> Result<Option<Bytes>, Refusal> {
        let Some(Gathering { number, min }) = self.sent.gathering else { return Ok(None) };
        let received = match self.engine.recv(min, patience) {
            Err(StepError::TimedOut) if min > 0 => return Ok(None),
            // Nothing is done by now.
            Err(StepError::TimedOut | StepError::NothingOutstanding { .. }) => Ok(Received::default()),
            done => done.map_err(|error| refusal_of(&error)),
        };
        self.sent.gathering = None;
        let mut received = received?;
        self.show_received(None, &mut received);
        Ok(Some(self.rows_answer(number, &received)))
    }

    /// Sends those of the lanes that are not under way.
    pub(super) fn post(&mut self, lanes: &[u32], actions: ColumnRef<'_>) -> Result<(), Refusal> {
        let elements = self.layout.action.elements();
        let Self { engine, sent, plan, .. } = self;
        let fresh = |row: &usize| !engine.is_outstanding(lanes[*row] as usize);
        let rows: Vec<usize> = (0..lanes.len()).filter(fresh).collect();
        let of = |row: usize| actions.slice(row * elements, (row + 1) * elements);
        let posted = if rows.len() == lanes.len() {
            engine.send(lanes, actions)
        } else if rows.is_empty() {
            Ok(())
        } else {
            let picked: Vec<u32> = rows.iter().map(|&row| lanes[row]).collect();
            let mut column = ColumnData::zeros(actions.dtype(), 0);
            for &row in &rows {
                let appended = column.extend(of(row));
                debug_assert!(appended, "rows of one column have one type");
            }
            engine.send(&picked, column.as_ref())
        };
        posted.map_err(|error| refusal_of(&error))?;
        let zeros = || ColumnData::zeros(actions.dtype(), plan.engine.lanes * elements);
        let kept = sent.actions.get_or_insert_with(zeros);
        for row in rows {
            let set = kept.set_row(lanes[row] as usize, elements, of(row));
            debug_assert!(set, "the engine has taken the lane");
        }
        Ok(())
    }

    /// Sends the lanes' actions and receives them. The engine has one thread: the steps are done when `send` returns,
    /// except those of lanes that finish when they finish, which are waited for until each is there or lost. Rows of lanes
    /// that were lost by it are marked as truncated.
    pub(super) fn send_and_receive(
        &mut self,
        lanes: &[u32],
        actions: ColumnRef<'_>,
    ) -> Result<Received, Refusal> {
        let sent = self.engine.send(lanes, actions);
        let all = sent.and_then(|()| {
            // None of them takes longer than its own deadline.
            self.engine.recv(self.engine.outstanding(), self.plan.engine.step_deadline)
        });
        let mut received = all.map_err(|error| refusal_of(&error))?;
        self.show_received(Some(Named { lanes, actions }), &mut received);
        Ok(received)
    }

    /// Shows watchers the rows, and marks those of lanes that were lost as truncated. `named` has their actions, if they
    /// were not under way before.
    pub(super) fn show_received(&mut self, named: Option<Named<'_>>, received: &mut Received) {
        let elements = self.layout.action.elements();
        if self.live.is_watched() && !received.lanes.is_empty() {
            let Self { engine, live, camera, sent, .. } = self;
            let kept = sent.actions.as_ref().map(ColumnData::as_ref);
            let action = |lane: u32| {
                let (row, column) = match &named {
                    Some(named) => (named.lanes.iter().position(|&named| named == lane)?, named.actions),
                    None => (lane as usize, kept?),
                };
                Some(column.slice(row * elements, (row + 1) * elements))
            };
            camera.after_send(engine, live, action, received);
        }
        *received = std::mem::take(received).ascending();
        for lane in self.look_for_losses() {
            if let Some(row) = received.lanes.iter().position(|&received| received == lane) {
                received.truncated[row] = 1;
            }
        }
    }

    /// Returns the refusal of what can only be done while no lane is under way, if one is.
    pub(super) fn refuse_under_way(&self) -> Option<Refusal> {
        let lanes = self.engine.outstanding();
        let message = || format!("{lanes} lanes of the session are under way");
        (lanes > 0).then(|| Refusal::busy(message(), UNDER_WAY_RETRY_MS))
    }

    /// Reads the lanes that a request names.
    fn named<'a>(&self, columns: &'a ColumnBuffer) -> Result<Named<'a>, RequestFault> {
        let lanes = self.lanes();
        let given = columns.count().unwrap_or(0);
        let fault = RequestFault::Lanes { given, lanes };
        let rows = usize::try_from(given).ok().filter(|rows| (1..=lanes).contains(rows)).ok_or(fault)?;
        let places = self.layout.actions(rows, true).ok_or(fault)?;
        if columns.bytes().len() != places.bytes {
            return Err(fault);
        }
        let actions = columns.column(&places.actions, self.layout.action.dtype);
        Ok(Named { lanes: columns.lanes(&places.lanes), actions })
    }
}

/// Pause after which a caller who found lanes under way may try again.
const UNDER_WAY_RETRY_MS: u64 = 50;
