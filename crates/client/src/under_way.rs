//! The owner's account of lanes that were sent some at a time and not received yet.

use bytes::Bytes;
use parking_lot::Mutex;
use rollhouse_core::{ColumnData, ColumnRef};
use rollhouse_engine::Received;
use rollhouse_wire::{ColumnBuffer, FrameKind, FrameLayout, Incarnation, LostLane, SendLanes, control};

use crate::error::StepError;
use crate::session::RequestBody;

/// The owner's account of the lanes under way.
pub(crate) struct FirstDone {
    /// One flag per lane: whether it was sent and not received.
    pub(crate) outstanding: Vec<bool>,
    pub(crate) outstanding_lanes: usize,
    /// Number of lanes for which the caller last waited, who mostly waits for as many again.
    pub(crate) wanted: usize,
    pub(crate) queues: Vec<SessionQueue>,
    pub(crate) ready: Mutex<Ready>,
}

/// The lanes that one session has to step, and the request that names them. Pure: who uses it makes the requests.
#[derive(Debug)]
pub struct SessionQueue {
    /// What each lane of the session waits for.
    lanes: Vec<LaneWaits>,
    /// Their actions, in a column of all lanes of the session.
    actions: ColumnData,
    /// The request that was made and not answered.
    pub(crate) asked: Option<SendRequest>,
}

/// What a lane waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaneWaits {
    /// It is not under way.
    Nothing,
    /// It waits for the first request that names it.
    Request,
    /// It waits for the answer to the first request that names it.
    Answer,
    /// The node has it, and has given no row of it. Requests name it until it has.
    Row,
}

/// A request to send lanes.
#[derive(Debug)]
pub(crate) struct SendRequest {
    /// Numbers of the lanes in the session, ascending: all that are under way.
    pub(crate) lanes: Vec<u32>,
    /// Their columns.
    columns: Bytes,
    /// Number of lanes for which its answer waits.
    min: usize,
    /// Whether it is made, and to be answered at once.
    hastened: bool,
    /// The place of the session for which it was made.
    placed: Incarnation,
}

/// The rows that have come and were not received.
#[derive(Default)]
pub struct Ready {
    /// Their rows.
    pub rows: Received,
    /// The lanes that were lost in the last answer of each session, by the session's number.
    pub losses: Vec<(usize, Vec<LostLane>)>,
    /// The first refusal, and the lanes that did not move.
    pub refused: Option<(StepError, Vec<u32>)>,
}

impl FirstDone {
    /// Makes the account of sessions with that many lanes each.
    pub(crate) fn new(sessions: impl Iterator<Item = usize>, layout: &FrameLayout) -> Self {
        let queues: Vec<SessionQueue> = sessions.map(|lanes| SessionQueue::new(lanes, layout)).collect();
        let lanes = queues.iter().map(|queue| queue.lanes.len()).sum();
        Self {
            outstanding: vec![false; lanes],
            outstanding_lanes: 0,
            wanted: 1,
            queues,
            ready: Mutex::default(),
        }
    }

    /// Returns the first lane that was sent and not received.
    pub(crate) fn first_outstanding(&self) -> Option<usize> {
        if self.outstanding_lanes == 0 { None } else { self.outstanding.iter().position(|&sent| sent) }
    }

    pub(crate) fn forget(&mut self, lanes: &[u32]) {
        for &lane in lanes {
            self.outstanding[lane as usize] = false;
        }
        self.outstanding_lanes -= lanes.len();
    }
}

impl SessionQueue {
    /// Makes the queue of a session of that many lanes, none of which is under way.
    pub fn new(lanes: usize, layout: &FrameLayout) -> Self {
        let actions = ColumnData::zeros(layout.action.dtype, lanes * layout.action.elements());
        Self { lanes: vec![LaneWaits::Nothing; lanes], actions, asked: None }
    }

    /// Takes a lane with its action.
    pub fn push(&mut self, lane: u32, action: ColumnRef<'_>) {
        self.lanes[lane as usize] = LaneWaits::Request;
        let set = self.actions.set_row(lane as usize, action.len(), action);
        debug_assert!(set, "actions have the column's type, which was checked");
    }

    /// Returns whether a lane has come that no request has named.
    pub(crate) fn has_fresh(&self) -> bool {
        self.lanes.contains(&LaneWaits::Request)
    }

    /// Returns whether the request under way is to be answered with what is done, which is asked for once: it has not named
    /// all lanes that were sent, or waits for more lanes than are `wanted`, if any are.
    pub(crate) fn is_to_hasten(&mut self, wanted: Option<usize>) -> bool {
        let fresh = self.has_fresh();
        let Some(asked) = &mut self.asked else { return false };
        let late = wanted.is_some_and(|wanted| asked.min > wanted);
        let due = (fresh || late) && !asked.hastened;
        asked.hastened |= due;
        due
    }

    /// Returns whether nothing is under way, and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.lanes.iter().all(|&waits| waits == LaneWaits::Nothing)
    }

    /// Makes the next request, which names all lanes that are under way. `None` if none is, or if its frame would be too
    /// large, which it never is.
    pub(crate) fn ask(
        &mut self,
        layout: &FrameLayout,
        min: usize,
        placed: Incarnation,
    ) -> Option<&SendRequest> {
        let lanes = self.under_way();
        if lanes.is_empty() {
            return None;
        }
        let elements = layout.action.elements();
        let columns = columns_of(layout, &lanes, |row| {
            let lane = lanes[row] as usize;
            self.actions.as_ref().slice(lane * elements, (lane + 1) * elements)
        })?;
        for waits in self.lanes.iter_mut().filter(|waits| **waits == LaneWaits::Request) {
            *waits = LaneWaits::Answer;
        }
        let min = min.min(lanes.len());
        self.asked = Some(SendRequest { lanes, columns, min, hastened: false, placed });
        self.asked.as_ref()
    }

    /// Forgets all lanes that are under way, and returns them, ascending.
    pub(crate) fn take_all(&mut self) -> Vec<u32> {
        let lanes = self.under_way();
        self.lanes.fill(LaneWaits::Nothing);
        self.asked = None;
        lanes
    }

    fn under_way(&self) -> Vec<u32> {
        let waits = |lane: &u32| self.lanes[*lane as usize] != LaneWaits::Nothing;
        (0..self.lanes.len() as u32).filter(waits).collect()
    }

    /// Notes that the request was answered with the rows of `done`, lanes of the session: the node has the others.
    pub(crate) fn answered(&mut self, asked: &SendRequest, done: impl Iterator<Item = u32>) {
        asked.lanes.iter().for_each(|&lane| self.lanes[lane as usize] = LaneWaits::Row);
        done.for_each(|lane| self.lanes[lane as usize] = LaneWaits::Nothing);
    }

    /// Returns the lanes that do not move when the request is refused, by the node at that place, and forgets them. Those
    /// that the node has had before are still under way there. `known` are the lanes that were refused, if the link says.
    pub(crate) fn refused(
        &mut self,
        asked: &SendRequest,
        placed: Incarnation,
        known: Option<&[u32]>,
    ) -> Vec<u32> {
        let first = |lane: &u32| match known {
            Some(refused) => refused.contains(lane),
            None => self.lanes[*lane as usize] == LaneWaits::Answer,
        };
        let mut lanes: Vec<u32> = asked.lanes.iter().copied().filter(first).collect();
        if lanes.is_empty() || placed != asked.placed {
            lanes.clone_from(&asked.lanes);
        }
        lanes.iter().for_each(|&lane| self.lanes[lane as usize] = LaneWaits::Nothing);
        lanes
    }
}

impl SendRequest {
    /// Returns the request without its number.
    pub(crate) fn body(&self) -> RequestBody {
        let sidecar = sidecar_of(SendLanes { min: self.min as u32 });
        RequestBody { kind: FrameKind::Send, columns: self.columns.clone(), sidecar }
    }

    /// Returns the sidecar of a request that is hastened, should it be written once more.
    pub(crate) fn hastened_sidecar() -> Bytes {
        sidecar_of(SendLanes { min: 0 })
    }

    /// Returns the actions of some of its lanes, as bytes of a column.
    pub(crate) fn actions_of(&self, lanes: &[u32], layout: &FrameLayout) -> Vec<u8> {
        let (places, size) = (layout.actions(self.lanes.len(), true), layout.action.row_bytes());
        let actions = places.and_then(|places| self.columns.get(places.actions)).unwrap_or_default();
        let rows = lanes.iter().filter_map(|lane| self.lanes.binary_search(lane).ok());
        let rows = rows.filter_map(|row| actions.get(row * size..(row + 1) * size));
        rows.flatten().copied().collect()
    }
}

/// Returns the columns of a request that names lanes of a session, with an action for each; `None` if they would be larger
/// than a frame's.
pub(crate) fn columns_of<'a>(
    layout: &FrameLayout,
    lanes: &[u32],
    action: impl Fn(usize) -> ColumnRef<'a>,
) -> Option<Bytes> {
    let places = layout.actions(lanes.len(), true)?;
    let mut buffer = ColumnBuffer::default();
    buffer.resize(places.bytes);
    buffer.bytes_mut().fill(0);
    buffer.set_count(&places.count, lanes.len() as u32);
    buffer.lanes_mut(&places.lanes).copy_from_slice(lanes);
    let elements = layout.action.elements();
    let mut column = buffer.column_mut(&places.actions, layout.action.dtype);
    for row in 0..lanes.len() {
        let copied = column.slice(row * elements, (row + 1) * elements).copy_from(action(row));
        debug_assert!(copied, "both are columns of the session's actions");
    }
    Some(Bytes::copy_from_slice(buffer.bytes()))
}

/// Encodes how lanes are to be answered, as a sidecar.
fn sidecar_of(how: SendLanes) -> Bytes {
    let mut bytes = Vec::new();
    // Without its length word. A number always fits.
    match control::encode(&how, &mut bytes) {
        Ok(()) => Bytes::from(bytes).slice(size_of::<u32>()..),
        Err(_) => Bytes::new(),
    }
}
