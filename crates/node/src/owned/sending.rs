//! Requests that wait for lanes: for some, which are answered as they are done, or for all, which are one frame.
//!
//! ```text
//! none --send---------> lanes under way, the request waits for `min` of them --done, hastened--> answered with those done
//!                  the others stay under way between requests; a later one names them again, and is answered with them
//! none --step, reset--> all lanes under way, the request waits for each --done--> answered with the frame
//! ```
//!
//! A step or a reset of all lanes ends what was sent before; its rows are dropped then.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rollhouse_core::{ColumnData, ColumnRef};
use rollhouse_engine::{Received, StepError};
use rollhouse_wire::{ColumnBuffer, Refusal, SendLanes, control};

use super::pacing::Pacing;
use super::playing::Play;
use super::{FrameRequest, OwnedSession, RequestFault, refusal_of};

/// Lanes that are sent and have not been answered.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// The request that waits for lanes; `None` if none does.
    gathering: Option<Gathering>,
    /// Actions of the lanes under way, in a column of all lanes; `None` if none ever was between two requests.
    actions: Option<ColumnData>,
    /// The lanes' clocks, if they are live.
    pub(super) pacing: Option<Box<Pacing>>,
}

impl Sent {
    pub(super) fn of(pacing: Option<Box<Pacing>>) -> Self {
        Self { pacing, ..Self::default() }
    }
}

/// A request that waits for lanes.
#[derive(Debug, Clone, Copy)]
struct Gathering {
    number: u32,
    wanted: Wanted,
}

/// The lanes for which a request waits.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    /// At least so many of those that were sent.
    Some(usize),
    /// All, which step.
    Step,
    /// All of which episodes begin; `unkept` if the owner does not add their options to its log.
    Reset { unkept: bool },
    /// All, which play by the session's policy.
    Play(Play),
    /// Ticks of live lanes: of at least so many of those that the request names, of all if it names none.
    Ticks {
        /// Number of lanes.
        min: Option<usize>,
    },
}

/// Lanes that a request names, and their actions.
pub(super) struct Named<'a> {
    pub(super) lanes: &'a [u32],
    pub(super) actions: ColumnRef<'a>,
}

impl OwnedSession {
    /// Carries out a request to send lanes. `None` if its answer waits for lanes.
    pub(super) fn send(
        &mut self,
        number: u32,
        request: &FrameRequest,
    ) -> Result<Result<Option<Bytes>, Refusal>, RequestFault> {
        let Named { lanes, actions } = self.named(&request.columns)?;
        let all = request.sidecar.is_empty();
        let min = if all { Ok(SendLanes { min: u32::MAX }) } else { control::decode(&request.sidecar) };
        let SendLanes { min } = min.map_err(|_| RequestFault::Send)?;
        if self.is_paced() {
            return Ok(self.act(number, (lanes, actions), Some(min as usize)));
        }
        if let Err(refusal) = self.post(lanes, actions) {
            return Ok(Err(refusal));
        }
        let min = (min as usize).min(self.engine.outstanding());
        Ok(self.wait_for(number, Wanted::Some(min)))
    }

    /// Answers a request whose lanes were posted; `None` if its answer waits for some.
    #[inline]
    pub(super) fn wait_for(&mut self, number: u32, wanted: Wanted) -> Result<Option<Bytes>, Refusal> {
        self.sent.gathering = Some(Gathering { number, wanted });
        self.take_done(Duration::ZERO)
    }

    /// Waits for the lanes for which the last request waits, at most that long. Returns its answer once enough are done,
    /// or, if it is `hastened`, with those that were sent and are done by now; `None` while it waits.
    pub fn gather(&mut self, patience: Duration, hastened: bool) -> Option<Bytes> {
        let Gathering { number, wanted } = self.sent.gathering.as_mut()?;
        match wanted {
            Wanted::Some(min) | Wanted::Ticks { min: Some(min) } if hastened => *min = 0,
            _ => {}
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

    /// Returns whether the last request waits for all lanes.
    pub(super) const fn awaits_frame(&self) -> bool {
        matches!(
            self.sent.gathering,
            Some(Gathering { wanted: Wanted::Step | Wanted::Reset { .. } | Wanted::Play(_), .. })
        )
    }

    /// Forgets the request that waits for lanes, whose owner asks for something else now.
    pub(super) const fn forget_gathering(&mut self) {
        self.sent.gathering = None;
    }

    /// Returns the descriptor that is readable once lanes may be done, if the lanes have one.
    pub(crate) fn descriptor(&mut self) -> Option<BorrowedFd<'_>> {
        self.engine.descriptor()
    }

    /// Prepares to sleep on the descriptor. Nothing else may be asked of the session before the sleep. Returns the time at
    /// which the lanes are looked at all the same; `None` if they are looked at once more now.
    pub(crate) fn arm(&mut self) -> Option<Instant> {
        if self.engine.lost() > 0 && !self.awaits_frame() {
            // As the next step would: nobody else does while the request waits.
            self.engine.restart_lost().ok()?;
        }
        let now = Instant::now();
        let tick = self.tick_at().unwrap_or(now + LONGEST_SLEEP);
        let at = self.engine.arm(now).ok()?.unwrap_or(now + LONGEST_SLEEP).min(tick);
        Some(at).filter(|&at| at > now)
    }

    /// Returns the answer if enough lanes are done within that time.
    fn take_done(&mut self, patience: Duration) -> Result<Option<Bytes>, Refusal> {
        let Some(Gathering { number, wanted }) = self.sent.gathering else { return Ok(None) };
        let done = match wanted {
            Wanted::Some(min) => self.rows_done(number, min, patience),
            Wanted::Step | Wanted::Reset { .. } => self.frame_done(number, wanted, patience),
            Wanted::Play(play) => self.play_on(number, play, patience),
            Wanted::Ticks { min } => self.ticks_done(number, min),
        };
        if !matches!(done, Ok(None)) {
            self.sent.gathering = None;
        }
        done
    }

    fn rows_done(&mut self, number: u32, min: usize, patience: Duration) -> Result<Option<Bytes>, Refusal> {
        let mut received = match self.engine.recv(min, patience) {
            Err(StepError::TimedOut) if min > 0 => return Ok(None),
            // Nothing is done by now.
            Err(StepError::TimedOut | StepError::NothingOutstanding { .. }) => Received::default(),
            done => done.map_err(|error| refusal_of(&error))?,
        };
        self.show_received(&mut received);
        Ok(Some(self.rows_answer(number, &received)))
    }

    #[inline]
    fn frame_done(
        &mut self,
        number: u32,
        wanted: Wanted,
        patience: Duration,
    ) -> Result<Option<Bytes>, Refusal> {
        if !self.engine.finish(patience).map_err(|error| refusal_of(&error))? {
            return Ok(None);
        }
        if let Wanted::Reset { unkept } = wanted {
            if unkept {
                self.engine.spoil_log().map_err(|error| refusal_of(&error))?;
            }
            self.show_change();
        } else {
            self.show_step();
        }
        if self.is_paced() {
            return self.paced_reset(number).map(Some);
        }
        self.frame_answer(number).map(Some)
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

    /// Shows watchers the rows, and marks those of lanes that were lost as truncated.
    pub(super) fn show_received(&mut self, received: &mut Received) {
        let elements = self.layout.action.elements();
        if self.live.is_watched() && !received.lanes.is_empty() {
            let Self { engine, live, camera, sent, .. } = self;
            let kept = sent.actions.as_ref().map(ColumnData::as_ref);
            let action =
                |lane: u32| Some(kept?.slice(lane as usize * elements, (lane as usize + 1) * elements));
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
    pub(super) fn named<'a>(&self, columns: &'a ColumnBuffer) -> Result<Named<'a>, RequestFault> {
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

/// Longest sleep on a descriptor: a hang of what makes it readable costs no more than this.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Pause after which a caller who found lanes under way may try again.
pub(super) const UNDER_WAY_RETRY_MS: u64 = 50;
