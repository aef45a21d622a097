//! What becomes of lanes that were sent when their session is lost, over a carrier that reaches nobody.

use std::collections::BTreeMap;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_client::{
    Batch, Carrier, Line, LinkAnswer, LinkLost, NoMemory, NoPlace, OfferedMemory, OnLoss, PoolSession, Ready,
    Receiving, Recipe, RequestBody, SessionEvent, SessionQueue, SessionStream, Transport, Way,
};
use rollhouse_core::{AutoresetMode, ColumnRef, RecordRule, RunId, SeedSchedule, StepColumns};
use rollhouse_env::Registry;
use rollhouse_wire::{
    Attached, ColumnBuffer, FrameLayout, Grant, Incarnation, LaneSettings, OpenPool, PoolStatus,
    PoolStatusRequest, ReplaceSession, Secret, SessionReplaced, Spread,
};

/// Nobody listens at any node's port. There is no other place, as the coordinator says when it is asked for the second
/// time.
#[derive(Default)]
struct Nowhere {
    asked: AtomicUsize,
}

#[derive(Default)]
struct NoStream;

struct NoLine;

impl Carrier for Nowhere {
    type Stream = NoStream;
    type Alarm = ();

    fn now(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn sleep_until(&self, _: Duration) {
        pending().await
    }

    async fn alarm(&self, (): &mut (), _: Duration) {
        pending().await
    }

    async fn attach_stream(
        &self,
        _: RunId,
        _: &Grant,
        _: usize,
    ) -> Result<(NoStream, Attached), SessionEvent> {
        Err(SessionEvent::PortClosed(None))
    }

    async fn attach_memory(&self, _: RunId, _: &Grant) -> Result<OfferedMemory, NoMemory> {
        Err(NoMemory::NoSocket)
    }

    async fn replace(&self, _: ReplaceSession) -> Result<SessionReplaced, NoPlace> {
        match self.asked.fetch_add(1, Ordering::Relaxed) {
            1 => Err(NoPlace::Never("the token was revoked".to_owned())),
            _ => pending().await,
        }
    }

    async fn pool_status(&self, _: PoolStatusRequest) -> Option<PoolStatus> {
        None
    }
}

impl SessionStream for NoStream {
    type Line = NoLine;

    fn is_attached(&self) -> bool {
        false
    }

    fn line(&self) -> Option<NoLine> {
        None
    }

    fn is_free(&self, _: u32) -> Result<bool, LinkLost> {
        Err(LinkLost::Ended)
    }

    fn post(&mut self, _: u32, _: &RequestBody) {}

    fn hasten(&mut self) {}

    async fn answer(&mut self, _: u32) -> Result<LinkAnswer, LinkLost> {
        Err(LinkLost::Ended)
    }

    fn columns(&self) -> Option<&ColumnBuffer> {
        None
    }

    fn sidecar(&self) -> &[u8] {
        &[]
    }

    fn detach(&mut self) {}

    fn distrust(&mut self, _: &str) {}
}

impl Line for NoLine {
    fn received(&self) -> Option<u64> {
        None
    }

    fn doubt(&self) {}
}

fn session() -> PoolSession<Nowhere> {
    let settings = LaneSettings {
        env: "CartPole-v1".into(),
        env_kwargs: String::new(),
        deterministic: None,
        infos: Default::default(),
        pace: None,
        options: BTreeMap::new(),
        autoreset: AutoresetMode::NextStep,
        max_episode_steps: None,
        seeds: SeedSchedule::PerEpisode { run_seed: 1 },
        record: RecordRule::All,
        collect: None,
        replay: None,
        step_columns: StepColumns::default(),
    };
    let (labels, spread) = (BTreeMap::new(), Spread::default());
    let open = OpenPool { pool: RunId::from_u128(7), lanes: 2, settings, labels, spread };
    let entry = Registry::builtin().get("CartPole-v1").unwrap();
    let lease = Duration::from_secs(30);
    let recipe = Recipe { open, dynamics: entry.spec().dynamics_hash, on_loss: OnLoss::Resume, lease };
    let grant = Grant {
        index: 0,
        incarnation: Incarnation { term: 1, counter: 1 },
        secret: Secret::from_bytes([0; 16]),
        node: "n1".to_owned(),
        address: "127.0.0.1:1".to_owned(),
        attach: None,
        first_lane: 0,
        lanes: 2,
    };
    PoolSession::open(&Arc::new(recipe), entry.spec(), grant, Transport::Quic).unwrap()
}

/// Symptom: lanes were shown as lost, and their episodes went on on another node. Cause: a lane that had been sent behind
/// their request asked for another place once more. Fix: it is shown as lost with them.
#[test]
fn a_lane_that_is_sent_behind_the_request_with_which_its_session_is_lost_is_lost_with_the_others() {
    let spec = Registry::builtin().get("CartPole-v1").unwrap().spec().clone();
    let (carrier, layout) = (Nowhere::default(), FrameLayout::of(&spec));
    let (mut session, mut batch) = (session(), Batch::new(&spec, 2, false).unwrap());
    let (mut queue, ready) = (SessionQueue::new(2, &layout), Mutex::<Ready>::default());
    let mut is_served = |lane| {
        queue.push(lane, ColumnRef::I64(&[1]));
        let receiving = Receiving {
            way: Way { carrier: &carrier, deadline: Duration::from_secs(1000) },
            frame: batch.frame(),
            layout: &layout,
            bools: &[],
            same_step: false,
            ready: &ready,
            wanted: 1,
            usual: 1,
            alone: true,
        };
        let serving = pin!(receiving.serve(0, &mut session, &mut queue));
        serving.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    };
    assert!(!is_served(0), "another place is waited for");
    assert!(is_served(1), "there is none");
    assert_eq!(carrier.asked.into_inner(), 2, "no other place is asked for");
    assert!(session.session().is_lost());
    let rows = ready.into_inner().rows;
    assert_eq!((rows.lanes, rows.truncated, rows.rewards), (vec![0, 1], vec![1, 1], vec![0.0, 0.0]));
}
