//! The rules that hold for a link of either kind.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rollhouse_env::Registry;
use rollhouse_env::testing::{Timing, late};
use rollhouse_wire::{ColumnBuffer, RefusalCode, SendLanes, control};
use tokio::time::Instant;

use super::*;
use crate::cluster::AsyncCluster;
use crate::pool::{AsyncPool, PoolRequest};
use crate::test_nodes::Nodes;

const LANES: u32 = 3;

/// A pool of one session that is attached by that, and the cluster it is in.
struct Attached {
    pool: AsyncPool,
    cluster: AsyncCluster,
}

impl Attached {
    async fn open(nodes: &Nodes, transport: Transport) -> Self {
        let cluster = AsyncCluster::connect(&nodes.address(), nodes.options()).await.unwrap();
        let mut request =
            PoolRequest { transport: Some(transport), ..PoolRequest::new("CartPole-v1", LANES) };
        request.settings.seeds = rollhouse_core::SeedSchedule::PerEpisode { run_seed: 7 };
        let pool = cluster.open_pool(request).await.unwrap();
        assert_eq!(pool.sessions[0].link.transport(), Some(transport));
        Self { pool, cluster }
    }

    fn link(&mut self) -> &mut Link {
        &mut self.pool.sessions[0].link
    }

    /// Attaches again.
    async fn attach(&mut self) -> SessionEvent {
        let id = self.pool.id();
        let site = &mut self.pool.sessions[0];
        site.link.attach(&mut site.terms, &self.pool.carrier, id, site.session.grant()).await
    }

    async fn ask(&mut self, number: u32, body: &RequestBody) -> LinkAnswer {
        if self.is_free(number).await.unwrap() {
            self.link().post(number, body);
        }
        let AsyncPool { sessions, carrier, .. } = &mut self.pool;
        sessions[0].link.answer(number, body.kind, carrier).await.unwrap()
    }

    async fn is_free(&mut self, number: u32) -> Result<bool, LinkLost> {
        let AsyncPool { sessions, carrier, .. } = &mut self.pool;
        sessions[0].link.is_free(number, carrier).await
    }

    /// Asks as [`Attached::ask`] for a step of all lanes. Returns flags, rewards and the number of notes beside them.
    async fn batch(&mut self, number: u32, body: &RequestBody) -> (Vec<u8>, Vec<f64>, usize) {
        let LinkAnswer::Done(header) = self.ask(number, body).await else { panic!("{number} is refused") };
        let site = &mut self.pool.sessions[0];
        let batch = site.link.batch(header, &site.places).unwrap();
        let flags = batch.flags();
        let flags = [flags.terminated, flags.truncated, flags.reset].concat();
        let (notes, lost) = site.link.notes(LANES as usize).unwrap();
        assert_eq!(lost, []);
        let began = notes.began().unwrap().count();
        let target = self.pool.batch.next_frame();
        batch.land(&target, &(0..LANES as usize));
        drop(target);
        (flags, self.pool.batch.frame().rewards().to_vec(), began)
    }

    async fn end(self) {
        let Self { pool, cluster } = self;
        pool.close().await.unwrap();
        cluster.close().await;
    }
}

fn reset() -> RequestBody {
    RequestBody { kind: FrameKind::Reset, columns: Bytes::new(), sidecar: Bytes::new() }
}

/// All lanes take that action.
fn step(action: i64) -> RequestBody {
    let mut columns = action.to_le_bytes().repeat(LANES as usize);
    columns.resize(columns.len().next_multiple_of(8), 0);
    RequestBody { kind: FrameKind::Step, columns: Bytes::from(columns), sidecar: Bytes::new() }
}

/// Those lanes take that action. The answer waits for `min` of them, or for all.
fn send(pool: &AsyncPool, lanes: &[u32], action: i64, min: Option<u32>) -> RequestBody {
    let places = pool.kind.layout.actions(lanes.len(), true).unwrap();
    let mut buffer = ColumnBuffer::default();
    buffer.resize(places.bytes);
    buffer.bytes_mut().fill(0);
    buffer.set_count(&places.count, lanes.len() as u32);
    buffer.lanes_mut(&places.lanes).copy_from_slice(lanes);
    buffer.bytes_mut()[places.actions].copy_from_slice(&action.to_le_bytes().repeat(lanes.len()));
    let columns = Bytes::copy_from_slice(buffer.bytes());
    let mut sidecar = Vec::new();
    if let Some(min) = min {
        control::encode(&SendLanes { min }, &mut sidecar).unwrap();
        sidecar.drain(..4);
    }
    RequestBody { kind: FrameKind::Send, columns, sidecar: Bytes::from(sidecar) }
}

async fn requests_are_answered_in_order(link: &mut Attached) {
    let all = LANES as usize;
    let (flags, _, began) = link.batch(1, &reset()).await;
    assert_eq!((&flags[2 * all..], began), (&[1; LANES as usize][..], all), "all have begun");
    let (flags, rewards, began) = link.batch(2, &step(1)).await;
    assert_eq!((flags, rewards, began), (vec![0; 3 * all], vec![1.0; all], 0));
}

async fn a_request_is_carried_out_once_on_however_many_attachments(link: &mut Attached) {
    let first = link.batch(3, &step(0)).await;
    link.link().detach();
    assert!(!link.link().is_attached());
    assert_eq!(link.is_free(4).await, Err(LinkLost::Ended));
    let again = link.attach().await;
    assert!(matches!(again, SessionEvent::Attached { last: 3, logs: true }), "{again:?}");
    // The answer may have been lost.
    assert_eq!(link.batch(3, &step(0)).await, first);
    let steps = link.pool.statistics().await.unwrap()[0].steps;
    assert_eq!(steps, u64::from(2 * LANES), "two steps of each lane");
}

async fn an_answer_that_nobody_waits_for_is_skipped(link: &mut Attached) {
    assert_eq!(link.is_free(4).await, Ok(true));
    link.link().post(4, &step(1));
    assert_eq!(link.is_free(4).await, Ok(false), "posted once");
    {
        let AsyncPool { sessions, carrier, .. } = &mut link.pool;
        let mut answer = std::pin::pin!(sessions[0].link.answer(4, FrameKind::Step, carrier));
        let once = tokio::time::timeout_at(Instant::now(), answer.as_mut()).await;
        drop(once);
    }
    let (flags, rewards, _) = link.batch(5, &step(0)).await;
    assert_eq!((flags, rewards), (vec![0; 3 * LANES as usize], vec![1.0; LANES as usize]));
}

async fn what_is_refused_has_not_moved_anything(link: &mut Attached) {
    let LinkAnswer::Refused(refusal) = link.ask(6, &step(9)).await else { panic!("9 is no action") };
    assert_eq!(refusal.code, RefusalCode::BadRequest);
    let (_, rewards, _) = link.batch(7, &step(1)).await;
    assert_eq!(rewards, vec![1.0; LANES as usize]);
}

async fn lanes_that_are_sent_are_answered_by_their_rows(link: &mut Attached) {
    let body = send(&link.pool, &[0, 2], 0, None);
    let LinkAnswer::Done(header) = link.ask(8, &body).await else { panic!("it is refused") };
    let (kind, session) = (&link.pool.kind, 0..LANES as usize);
    let of = RowsOf {
        layout: &kind.layout,
        bools: &kind.bools,
        same_step: false,
        lanes: &[0, 2],
        session: &session,
    };
    let (rows, notes) = link.pool.sessions[0].link.rows(header, &of).unwrap();
    assert_eq!((rows.lanes, rows.rewards), (vec![0, 2], vec![1.0; 2]));
    assert!(notes.lost.is_empty() && !notes.leaving);
    let others = RowsOf { lanes: &[0, 1], ..of };
    let given = link.pool.sessions[0].link.rows(header, &others);
    assert!(
        given.is_err() || link.pool.sessions[0].link.in_place().is_some(),
        "rows of others than were sent"
    );
}

/// Lane 2 finishes once no other is under way. However often the owner attaches, each lane is stepped once and told once.
async fn lanes_under_way_are_told_once_on_however_many_attachments(link: &mut Attached) {
    link.batch(1, &reset()).await;
    let (mut told, mut number) = (Vec::new(), 2);
    while told.len() < LANES as usize {
        let left: Vec<u32> = (0..LANES).filter(|lane| !told.contains(lane)).collect();
        // The first names lanes 0 and 2 only.
        let named: Vec<u32> = left.iter().copied().filter(|lane| number > 2 || *lane != 1).collect();
        let body = send(&link.pool, &named, 1, Some(1));
        if number == 3 {
            // It is posted, and its answer may be lost or not.
            assert_eq!(link.is_free(number).await, Ok(true));
            link.link().post(number, &body);
            link.link().hasten();
        }
        if number <= 3 {
            link.link().detach();
            let again = link.attach().await;
            assert!(matches!(again, SessionEvent::Attached { .. }), "{again:?}");
        }
        let LinkAnswer::Done(header) = link.ask(number, &body).await else { panic!("{number} is refused") };
        let (kind, session) = (&link.pool.kind, 0..LANES as usize);
        let (layout, bools) = (&kind.layout, &kind.bools[..]);
        let of = RowsOf { layout, bools, same_step: false, lanes: &named, session: &session };
        let (rows, _) = link.pool.sessions[0].link.rows(header, &of).unwrap();
        for (lane, reward) in rows.lanes.iter().zip(&rows.rewards) {
            assert_eq!(*reward, 1.0);
            told.push(*lane);
        }
        number += 1;
    }
    told.sort_unstable();
    assert_eq!(told, [0, 1, 2]);
    let steps = link.pool.statistics().await.unwrap()[0].steps;
    assert_eq!(steps, u64::from(LANES));
}

async fn conforms(nodes: &Nodes, transport: Transport) {
    let mut link = Attached::open(nodes, transport).await;
    let within = tokio::time::timeout(PATIENCE, async {
        requests_are_answered_in_order(&mut link).await;
        a_request_is_carried_out_once_on_however_many_attachments(&mut link).await;
        an_answer_that_nobody_waits_for_is_skipped(&mut link).await;
        what_is_refused_has_not_moved_anything(&mut link).await;
        lanes_that_are_sent_are_answered_by_their_rows(&mut link).await;
    });
    within.await.unwrap();
    link.end().await;
}

fn conforms_by(transport: Transport) {
    let nodes = Nodes::start(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(conforms(&nodes, transport));
}

#[test]
fn a_stream_is_a_link() {
    conforms_by(Transport::Quic);
}

#[test]
fn memory_is_a_link() {
    conforms_by(Transport::Shm);
}

fn late_lanes_conform_by(transport: Transport) {
    let timing = Timing { last: Some(2), ..Timing::default() };
    let nodes = Nodes::of(1, Duration::from_secs(60), || {
        let registry = Registry::empty();
        let kernel = Registry::builtin().get("CartPole-v1").unwrap();
        registry.register(Arc::into_inner(late(&kernel, timing)).unwrap()).unwrap();
        registry
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut link = Attached::open(&nodes, transport).await;
        let told = lanes_under_way_are_told_once_on_however_many_attachments(&mut link);
        tokio::time::timeout(PATIENCE, told).await.unwrap();
        link.end().await;
    });
}

#[test]
fn late_lanes_go_on_when_a_stream_is_attached_again() {
    late_lanes_conform_by(Transport::Quic);
}

#[test]
fn late_lanes_go_on_when_memory_is_attached_again() {
    late_lanes_conform_by(Transport::Shm);
}

const PATIENCE: Duration = Duration::from_secs(60);
