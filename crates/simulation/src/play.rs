//! The calls of a trainer's pool, as its library makes them: settle, ask, and take what comes.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rollhouse_client::{
    Batch, Carrier, PoolSession, Ready, Receiving, RequestBody, SessionQueue, StepError, Transport, Trouble,
    Way,
};
use rollhouse_core::ColumnRef;
use rollhouse_engine::Received;
use rollhouse_wire::{FrameKind, Grant, LostLane};

use crate::carrier::{VirtualCarrier, Within};
use crate::first_done::Drawn;
use crate::reference::MadeOf;

/// The driver of a session, with what a pool keeps of its lanes.
pub(crate) struct Kept {
    pub(crate) session: PoolSession<VirtualCarrier>,
    pub(crate) batch: Batch,
    made_of: Arc<MadeOf>,
    queue: SessionQueue,
    ready: Mutex<Ready>,
    /// The last action of each lane that was sent.
    pub(crate) actions: Vec<i64>,
}

/// A request.
pub(crate) enum LaneRequest {
    Reset,
    Step(Bytes, Vec<i64>),
    Some(Drawn),
}

/// A request that is over, and the last episode of each lane before it.
pub(crate) struct Play {
    pub(crate) played: Played,
    pub(crate) before: Vec<Option<u64>>,
}

pub(crate) enum Played {
    /// Nothing was asked: its lanes are lost.
    Out,
    /// The deadline came first.
    Late,
    /// It has another place, and does not know what its lanes did.
    Replaced(Grant),
    Answered(Result<(RequestBody, Vec<LostLane>), Trouble>),
    /// Lanes were sent, and are ready or under way.
    Sent,
}

impl LaneRequest {
    pub(crate) const fn kind(&self) -> FrameKind {
        match self {
            Self::Reset => FrameKind::Reset,
            Self::Step(..) => FrameKind::Step,
            Self::Some(_) => FrameKind::Send,
        }
    }
}

impl Kept {
    pub(crate) fn new(made_of: &Arc<MadeOf>, grant: Grant) -> Self {
        let (lanes, all) = (grant.lanes as usize, (grant.first_lane + grant.lanes) as usize);
        let session = PoolSession::open(&made_of.recipe, &made_of.spec, grant, Transport::Auto);
        Self {
            session: session.expect("a small batch"),
            batch: Batch::new(&made_of.spec, all, false).expect("a small batch"),
            made_of: Arc::clone(made_of),
            queue: SessionQueue::new(lanes, &made_of.layout),
            ready: Mutex::default(),
            actions: vec![0; lanes],
        }
    }

    /// Takes a lane to be sent, with its action.
    pub(crate) fn push(&mut self, lane: u32, action: i64) {
        self.queue.push(lane, ColumnRef::I64(&[action]));
        self.actions[lane as usize] = action;
    }

    /// Prepares until the first of these times, makes the request, and waits for its answer until the second.
    pub(crate) async fn play(
        mut self: Box<Self>,
        asked: LaneRequest,
        carrier: VirtualCarrier,
        (settles_until, deadline): (Duration, Duration),
    ) -> (Box<Self>, Play) {
        let reset = matches!(asked, LaneRequest::Reset);
        let way = Way { carrier: &carrier, deadline: settles_until };
        let settled = carrier.within(settles_until, self.session.settle(&way, reset)).await;
        let lanes = self.actions.len() as u32;
        let before = (0..lanes).map(|lane| self.session.session().last_episode(lane)).collect();
        let played = match settled {
            Within::Replaced(grant) => Played::Replaced(grant),
            _ if self.session.session().is_out() => Played::Out,
            _ => self.make(asked, &carrier, deadline).await,
        };
        (self, Play { played, before })
    }

    async fn make(&mut self, asked: LaneRequest, carrier: &VirtualCarrier, deadline: Duration) -> Played {
        let kind = asked.kind();
        let (columns, actions) = match asked {
            LaneRequest::Reset => (Bytes::new(), Vec::new()),
            LaneRequest::Step(columns, actions) => (columns, actions),
            LaneRequest::Some(drawn) => return self.send(drawn, carrier, deadline).await,
        };
        let body = RequestBody { kind, columns, sidecar: Bytes::new() };
        let way = Way { carrier, deadline };
        let Self { session, batch, .. } = self;
        let target = batch.next_frame();
        if kind == FrameKind::Step && session.post_in_memory(Some(ColumnRef::I64(&actions))) {
            // What is not answered soon is a request from then on.
            let answered = poll_fn(|_| match session.answered_in_memory(carrier.now(), &target) {
                Some(losses) => Poll::Ready(losses),
                None => Poll::Pending,
            });
            if let Within::Done(losses) = carrier.within(deadline.min(carrier.now() + SOON), answered).await {
                return Played::Answered(Ok((body, losses)));
            }
        } else {
            session.ask(body.clone(), &way);
        }
        match carrier.within(deadline, session.take_batch(&way, &target, &[])).await {
            Within::Done(taken) => Played::Answered(taken.map(|losses| (body, losses))),
            Within::Late => Played::Late,
            Within::Replaced(grant) => Played::Replaced(grant),
        }
    }

    async fn send(&mut self, drawn: Drawn, carrier: &VirtualCarrier, deadline: Duration) -> Played {
        let Self { session, batch, made_of, queue, ready, .. } = self;
        let receiving = Receiving {
            way: Way { carrier, deadline: carrier.now() + AS_LONG_AS_IT_TAKES },
            frame: batch.frame(),
            layout: &made_of.layout,
            bools: &[],
            same_step: false,
            ready,
            wanted: drawn.wanted,
            usual: drawn.usual,
            alone: true,
        };
        let mut serving = pin!(receiving.serve(0, session, queue));
        // Lanes that nobody waits for are on their way once this was polled.
        let enough = || {
            let ready = ready.lock();
            ready.rows.lanes.len() >= drawn.wanted || ready.refused.is_some()
        };
        let served = poll_fn(|context| match serving.as_mut().poll(context) {
            Poll::Pending if !enough() => Poll::Pending,
            _ => Poll::Ready(()),
        });
        match carrier.within(deadline, served).await {
            Within::Done(()) => Played::Sent,
            Within::Late => Played::Late,
            Within::Replaced(grant) => Played::Replaced(grant),
        }
    }

    /// Returns whether its lanes are lost, and nobody was told.
    pub(crate) fn is_newly_lost(&self) -> bool {
        let session = self.session.session();
        session.is_lost() && session.gone().is_some_and(|gone| !gone.reported)
    }

    /// Takes the rows that are ready, and the lanes of the session that were refused.
    pub(crate) fn take_rows(&mut self) -> (Received, Vec<u32>) {
        let first = self.session.session().grant().first_lane;
        let ready = self.ready.get_mut();
        ready.losses.clear();
        let refused =
            ready.refused.as_ref().map(|(_, lanes)| lanes.iter().map(|lane| lane - first).collect());
        (std::mem::take(&mut ready.rows), refused.unwrap_or_default())
    }

    /// Checks that these rows, which the driver has made, have the observations of the last whole batch.
    pub(crate) fn check_made(&mut self, rows: &Received, made: &[usize]) {
        let frame = self.batch.frame();
        for (column, (shown, spec)) in rows.obs.iter().zip(&self.made_of.layout.obs).enumerate() {
            let elements = spec.elements();
            for &row in made {
                let lane = rows.lanes[row] as usize;
                let last = frame.obs(column).slice(lane * elements, (lane + 1) * elements);
                let is_last = shown.row(row, elements).is_some_and(|row| row.bytes() == last.bytes());
                assert!(is_last, "lane {lane} is shown as lost with another observation than its last");
            }
        }
        let quiet = made.iter().all(|&row| rows.terminated[row] | rows.reset[row] == 0);
        assert!(quiet, "lanes are shown as lost and ended, or begun");
    }

    /// Takes why lanes were refused.
    pub(crate) fn take_refused(&mut self) -> Option<Trouble> {
        let (error, _) = self.ready.get_mut().refused.take()?;
        Some(match error {
            StepError::Refused { refusal, .. } => Trouble::Refused(refusal),
            _ => Trouble::TimedOut,
        })
    }

    /// Forgets all lanes that are under way.
    pub(crate) fn forget_lanes(&mut self) {
        self.queue = SessionQueue::new(self.actions.len(), &self.made_of.layout);
        *self.ready.get_mut() = Ready::default();
    }
}

/// Time for which a step in memory is waited for without a request.
const SOON: Duration = Duration::from_millis(20);
/// Time for which lanes that were sent are worth a request: whoever receives them decides for how long that is.
const AS_LONG_AS_IT_TAKES: Duration = Duration::from_secs(24 * 3600);
