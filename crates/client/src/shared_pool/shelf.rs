//! The places of a shared pool's lanes: whose each is, whether it is under way, and its row that was not received.

use std::ops::ControlFlow;
use std::sync::Arc;

use rollhouse_core::{AutoresetMode, ColumnData, ColumnRef, ColumnSpec, Outcome};
use rollhouse_engine::{Received, StepError as Rules};
use rollhouse_wire::FrameLayout;
use tokio::sync::Notify;

use super::SharedError;
use crate::error::StepError;
use crate::pool::{AsyncPool, LaneKind};

/// The places of all lanes, with at most one row each.
#[derive(Debug)]
pub(super) struct Shelf {
    places: Vec<Place>,
    layout: FrameLayout,
    /// The rows by lane, of those that are ready.
    rows: Received,
    /// Why the owner is no more.
    pub(super) ended: Option<SharedError>,
}

#[derive(Debug)]
struct Place {
    state: LaneState,
    /// Wakes its caller, if it has one.
    caller: Option<Arc<Notify>>,
    loss: Option<Outcome>,
}

/// The state of a lane for its caller.
#[derive(Debug)]
enum LaneState {
    /// It can be sent.
    Idle,
    /// A request to send it waits for the owner.
    Asked,
    UnderWay,
    /// Its row was not received.
    Ready,
    /// It did not move, which was reported to nobody.
    Refused(SharedError),
}

impl Shelf {
    /// Makes the places of so many lanes, which have no rows.
    pub(super) fn new(kind: &LaneKind, lanes: usize) -> Self {
        let zeros = |specs: &[ColumnSpec]| {
            specs.iter().map(|spec| ColumnData::zeros(spec.dtype, lanes * spec.elements())).collect()
        };
        let same_step = kind.autoreset == AutoresetMode::SameStep;
        let rows = Received {
            lanes: Vec::new(),
            obs: zeros(&kind.layout.obs),
            infos: zeros(&kind.layout.infos),
            final_obs: if same_step { zeros(&kind.layout.obs) } else { Vec::new() },
            rewards: vec![0.0; lanes],
            terminated: vec![0; lanes],
            truncated: vec![0; lanes],
            reset: vec![0; lanes],
        };
        let place = || Place { state: LaneState::Idle, caller: None, loss: None };
        let places = std::iter::repeat_with(place).take(lanes).collect();
        Self { places, layout: kind.layout.clone(), rows, ended: None }
    }

    // For callers.

    /// Gives lanes that are nobody's to a caller, all or none.
    pub(super) fn lend(&mut self, lanes: &[u32], caller: &Arc<Notify>) -> Result<(), SharedError> {
        for (row, &lane) in lanes.iter().enumerate() {
            let Some(place) = self.places.get(lane as usize) else {
                return Err(Rules::NoSuchLane { lane: lane as usize, lanes: self.places.len() }.into());
            };
            if place.caller.is_some() {
                return Err(SharedError::InUse { lane });
            }
            if lanes[..row].contains(&lane) {
                return Err(Rules::LaneOutstanding { lane: lane as usize }.into());
            }
        }
        lanes.iter().for_each(|&lane| self.places[lane as usize].caller = Some(Arc::clone(caller)));
        Ok(())
    }

    /// Takes lanes back as they are.
    pub(super) fn give_back(&mut self, lanes: &[u32]) {
        lanes.iter().for_each(|&lane| self.places[lane as usize].caller = None);
    }

    pub(super) fn loss(&self, lane: u32) -> Option<Outcome> {
        self.places.get(lane as usize)?.loss
    }

    /// Refuses to send lanes of a caller that are named twice, or whose rows were not received.
    pub(super) fn refuse_send(&mut self, lanes: &[u32]) -> Result<(), SharedError> {
        if let Some(error) = self.take_refusal(lanes) {
            return Err(error);
        }
        let is_free = |lane: u32| matches!(self.places[lane as usize].state, LaneState::Idle);
        let twice = |(row, lane): (usize, &u32)| !is_free(*lane) || lanes[..row].contains(lane);
        match lanes.iter().enumerate().find(|&pair| twice(pair)) {
            Some((_, &lane)) => Err(Rules::LaneOutstanding { lane: lane as usize }.into()),
            None => Ok(()),
        }
    }

    /// Notes that the owner is asked to send lanes of a caller.
    pub(super) fn asked(&mut self, lanes: &[u32]) {
        lanes.iter().for_each(|&lane| self.places[lane as usize].state = LaneState::Asked);
    }

    /// Returns whether the owner has sent these lanes, or why not.
    pub(super) fn is_sent(&mut self, lanes: &[u32]) -> ControlFlow<Result<(), SharedError>> {
        if let Some(error) = self.take_refusal(lanes) {
            return ControlFlow::Break(Err(error));
        }
        if lanes.iter().all(|&lane| !matches!(self.places[lane as usize].state, LaneState::Asked)) {
            return ControlFlow::Break(Ok(()));
        }
        self.unless_ended()
    }

    /// Takes the rows of a caller's lanes that are ready, if they are as many as are wanted.
    pub(super) fn receive(
        &mut self,
        lanes: &[u32],
        wanted: usize,
    ) -> ControlFlow<Result<Received, SharedError>> {
        if let Some(error) = self.take_refusal(lanes) {
            return ControlFlow::Break(Err(error));
        }
        let is_ready = |lane: &u32| matches!(self.places[*lane as usize].state, LaneState::Ready);
        let ready: Vec<u32> = lanes.iter().copied().filter(is_ready).collect();
        if ready.len() >= wanted {
            return ControlFlow::Break(self.take(&ready));
        }
        self.unless_ended()?;
        let is_idle = |lane: &&u32| matches!(self.places[**lane as usize].state, LaneState::Idle);
        let outstanding = lanes.len() - lanes.iter().filter(is_idle).count();
        if outstanding < wanted {
            return ControlFlow::Break(Err(Rules::NothingOutstanding { wanted, outstanding }.into()));
        }
        ControlFlow::Continue(())
    }

    /// Takes the rows of these lanes.
    ///
    /// # Errors
    /// If one has none, because it was sent or received meanwhile.
    pub(super) fn take(&mut self, lanes: &[u32]) -> Result<Received, SharedError> {
        let is_ready = |lane: &&u32| matches!(self.places[**lane as usize].state, LaneState::Ready);
        let outstanding = lanes.iter().filter(is_ready).count();
        if outstanding < lanes.len() {
            return Err(Rules::NothingOutstanding { wanted: lanes.len(), outstanding }.into());
        }
        lanes.iter().for_each(|&lane| self.places[lane as usize].state = LaneState::Idle);
        let Self { rows, layout, .. } = self;
        let pick = |columns: &[ColumnData], specs: &[ColumnSpec]| {
            let columns = columns.iter().zip(specs);
            let rows = columns.map(|(from, spec)| {
                let mut to = ColumnData::zeros(spec.dtype, 0);
                for row in lanes.iter().filter_map(|&lane| from.row(lane as usize, spec.elements())) {
                    let appended = to.extend(row);
                    debug_assert!(appended, "the shelf has the layout's types");
                }
                to
            });
            rows.collect::<Vec<_>>()
        };
        let flags = |flags: &[u8]| lanes.iter().map(|&lane| flags[lane as usize]).collect();
        Ok(Received {
            obs: pick(&rows.obs, &layout.obs),
            infos: pick(&rows.infos, &layout.infos),
            final_obs: pick(&rows.final_obs, &layout.obs),
            rewards: lanes.iter().map(|&lane| rows.rewards[lane as usize]).collect(),
            terminated: flags(&rows.terminated),
            truncated: flags(&rows.truncated),
            reset: flags(&rows.reset),
            lanes: lanes.to_vec(),
        })
    }

    /// Returns why some of these lanes did not move, and forgets it.
    fn take_refusal(&mut self, lanes: &[u32]) -> Option<SharedError> {
        let mut first = None;
        for &lane in lanes {
            let state = &mut self.places[lane as usize].state;
            if matches!(state, LaneState::Refused(_))
                && let LaneState::Refused(error) = std::mem::replace(state, LaneState::Idle)
            {
                first.get_or_insert(error);
            }
        }
        first
    }

    fn unless_ended<T>(&self) -> ControlFlow<Result<T, SharedError>> {
        match &self.ended {
            Some(why) => ControlFlow::Break(Err(why.clone())),
            None => ControlFlow::Continue(()),
        }
    }

    // For the owner.

    /// Returns one of these lanes that was to be sent and was reset meanwhile.
    pub(super) fn overtaken(&self, lanes: &[u32]) -> Option<usize> {
        let is_asked = |lane: usize| matches!(self.places[lane].state, LaneState::Asked);
        lanes.iter().map(|&lane| lane as usize).find(|&lane| !is_asked(lane))
    }

    /// Notes what became of a request to send lanes.
    pub(super) fn sent(&mut self, lanes: &[u32], sent: Result<(), StepError>) {
        let refusal = sent.err().map(SharedError::from);
        let asked = |lane: &&u32| matches!(self.places[**lane as usize].state, LaneState::Asked);
        for lane in lanes.iter().filter(asked).copied().collect::<Vec<_>>() {
            let refused = refusal.clone().map(LaneState::Refused);
            self.change(lane, refused.unwrap_or(LaneState::UnderWay));
        }
    }

    /// Puts rows in their places, or notes which lanes did not move.
    pub(super) fn land(&mut self, pool: &AsyncPool, received: Result<Received, StepError>) {
        match received {
            Ok(received) => self.put_all(&received),
            Err(error) => {
                let error = SharedError::from(error);
                for lane in 0..self.places.len() as u32 {
                    let under_way = matches!(self.places[lane as usize].state, LaneState::UnderWay);
                    if under_way && !pool.is_outstanding(lane as usize) {
                        self.change(lane, LaneState::Refused(error.clone()));
                    }
                }
            }
        }
        self.note_losses(pool);
    }

    /// Puts the first rows of lanes in their places, as the pool's newest frame has them.
    pub(super) fn begin(
        &mut self,
        pool: &mut AsyncPool,
        begun: impl Fn(usize) -> bool,
    ) -> Result<(), StepError> {
        let frame = pool.frame()?;
        for lane in (0..self.places.len()).filter(|&lane| begun(lane)) {
            let Self { rows, layout, .. } = self;
            put(&mut rows.obs, &layout.obs, lane, (lane, &|column| frame.obs(column)));
            put(&mut rows.infos, &layout.infos, lane, (lane, &|column| frame.info(column)));
            let flags = [frame.terminated()[lane], frame.truncated()[lane], frame.reset()[lane]];
            [rows.terminated[lane], rows.truncated[lane], rows.reset[lane]] = flags;
            rows.rewards[lane] = frame.rewards()[lane];
            self.change(lane as u32, LaneState::Ready);
        }
        self.note_losses(pool);
        Ok(())
    }

    fn put_all(&mut self, from: &Received) {
        for (row, &lane) in from.lanes.iter().enumerate() {
            let (Self { rows, layout, .. }, lane) = (&mut *self, lane as usize);
            put(&mut rows.obs, &layout.obs, lane, (row, &|column| from.obs[column].as_ref()));
            put(&mut rows.infos, &layout.infos, lane, (row, &|column| from.infos[column].as_ref()));
            put(&mut rows.final_obs, &layout.obs, lane, (row, &|column| from.final_obs[column].as_ref()));
            let flags = [from.terminated[row], from.truncated[row], from.reset[row]];
            [rows.terminated[lane], rows.truncated[lane], rows.reset[lane]] = flags;
            rows.rewards[lane] = from.rewards[row];
            self.change(lane as u32, LaneState::Ready);
        }
    }

    fn note_losses(&mut self, pool: &AsyncPool) {
        self.places.iter_mut().enumerate().for_each(|(lane, place)| place.loss = pool.loss(lane));
    }

    /// Ends the pool, for this reason if there is none yet.
    pub(super) fn end(&mut self, why: SharedError) {
        self.ended.get_or_insert(why);
        self.places.iter().filter_map(|place| place.caller.as_ref()).for_each(|caller| caller.notify_one());
    }

    fn change(&mut self, lane: u32, state: LaneState) {
        let place = &mut self.places[lane as usize];
        place.state = state;
        if let Some(caller) = &place.caller {
            caller.notify_one();
        }
    }
}

/// Sets the row of a lane in each of the columns.
fn put<'a>(
    to: &mut [ColumnData],
    specs: &[ColumnSpec],
    lane: usize,
    (row, from): (usize, &dyn Fn(usize) -> ColumnRef<'a>),
) {
    for (column, (to, spec)) in to.iter_mut().zip(specs).enumerate() {
        let elements = spec.elements();
        let set = to.set_row(lane, elements, from(column).slice(row * elements, (row + 1) * elements));
        debug_assert!(set, "the shelf has the layout's types");
    }
}
