//! A tenant that is a process of its own, and floods the cluster in one way until it is killed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rollhouse_cli::failure::{Failure, Status};
use rollhouse_cli::output::say;
use rollhouse_client::{Address, Cluster, ConnectOptions, Pool, PoolRequest, Transport};
use rollhouse_core::{AutoresetMode, ColumnMut, EpisodeName, Goal, RecordRule, RunId, SeedSchedule};
use rollhouse_engine::Reset;
use rollhouse_wire::{
    Asks, Collect, Connection, Dialer, EnvPlace, Expected, Identity, ListAfter, OpenPool, Request, SessionId,
    Settings, StatusRequest, StoreEpisodes, StoreList, StoreQuery, StoreStatsRequest,
};
use rustix::process::nice;

use super::sleepers::{sleeping_constructor, sleeping_step};
use crate::args::{ChaosTenantArgs, TenantKind};
use crate::failed::failed;

/// Floods until it is killed.
pub(crate) fn flood(args: &ChaosTenantArgs) -> Result<Status, Failure> {
    // Tenants have machines of their own: this one gives them what others leave.
    nice(LEAST_URGENT).map_err(failed)?;
    let connection = std::fs::read_to_string(&args.connect).map_err(failed)?;
    let address: Address = connection.trim().parse().map_err(failed)?;
    let tenant = &Tenant { address, had: AtomicU64::new(0), refused: AtomicU64::new(0) };
    let work: fn(&Tenant, usize) -> Result<(), Failure> = match args.kind {
        TenantKind::Connections => connections,
        TenantKind::Questions => questions,
        TenantKind::Unread => unread,
        TenantKind::Replays => replays,
        TenantKind::Pools => pools,
        TenantKind::Steps => steps,
        TenantKind::Rollouts => rollouts,
        TenantKind::Learning => learning,
        TenantKind::Sleepers => sleepers,
    };
    thread::scope(|scope| {
        for number in 0..THREADS {
            scope.spawn(move || go_on(tenant, number, work));
        }
        loop {
            thread::sleep(Duration::from_secs(1));
            let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
            let line = format!("had {}, refused {}\n", read(&tenant.had), read(&tenant.refused));
            // A line as a whole: the process is killed at any time.
            std::io::Write::write_all(&mut std::io::stdout().lock(), line.as_bytes()).map_err(failed)?;
        }
    })
}

/// Works until it is killed: what could not go on starts again.
fn go_on(tenant: &Tenant, number: usize, work: fn(&Tenant, usize) -> Result<(), Failure>) {
    loop {
        if let Err(failure) = work(tenant, number) {
            say(failure.message());
            tenant.refused.fetch_add(1, Ordering::Relaxed);
            thread::sleep(BEGIN_AGAIN);
        }
    }
}

/// Whom all threads of the process work for, and what came of it.
struct Tenant {
    address: Address,
    had: AtomicU64,
    refused: AtomicU64,
}

impl Tenant {
    fn connect(&self) -> Result<Cluster, Failure> {
        let options = ConnectOptions {
            timeout: PATIENCE,
            connect_timeout: PATIENCE,
            transport: Some(Transport::Quic),
            ..ConnectOptions::default()
        };
        Cluster::connect(&self.address, options, None).map_err(failed)
    }

    /// Counts what became of a request.
    fn count<T, E>(&self, done: Result<T, E>) -> Option<T> {
        let counter = if done.is_ok() { &self.had } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
        done.ok()
    }

    fn dialer(&self) -> Result<Dialer, Failure> {
        let trust = self.address.ca.clone().ok_or_else(|| Failure::new(Status::Usage, "no authority"))?;
        Ok(Dialer::new(Identity::load(trust, None).map_err(failed)?, Settings::default(), "tenant"))
    }

    async fn dial(&self, dialer: &Dialer) -> Result<Connection, rollhouse_wire::DialError> {
        let place = format!("{}:{}", self.address.host, self.address.port);
        dialer.dial(&place, &Expected::COORDINATOR, self.address.token.as_deref()).await
    }

    fn ask<R: Asks>(&self, cluster: &Cluster, request: R) -> Option<R::Answer> {
        self.count(cluster.request(request))
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)
}

/// Connects as itself to the coordinator, and as nobody to the nodes; the oldest connections make room for new ones.
fn connections(tenant: &Tenant, number: usize) -> Result<(), Failure> {
    let nodes = tenant.connect()?.nodes().map_err(failed)?.nodes;
    let dialer = tenant.dialer()?;
    runtime()?.block_on(async {
        let mut open = std::collections::VecDeque::new();
        for turn in number.. {
            let dialled = match nodes.get(turn % (nodes.len() + 1)) {
                Some(node) => dialer.dial(&node.address, &Expected::node(&node.node), None).await,
                None => tenant.dial(&dialer).await,
            };
            open.extend(tenant.count(dialled));
            if open.len() > MOST_CONNECTIONS {
                open.pop_front();
            }
        }
        Ok(())
    })
}

fn long_page() -> StoreQuery {
    StoreQuery { sort: "-return".to_owned(), limit: 1000, ..StoreQuery::default() }
}

fn questions(tenant: &Tenant, _: usize) -> Result<(), Failure> {
    let cluster = tenant.connect()?;
    let list = StoreList { path: String::new(), after: String::new() };
    loop {
        let _page = tenant.ask(&cluster, long_page());
        let _stats = tenant.ask(&cluster, StoreStatsRequest {});
        let _status = tenant.ask(&cluster, StatusRequest {});
        let _nodes = tenant.ask(&cluster, ListAfter::<String>::default());
        let _sessions = tenant.ask(&cluster, ListAfter::<SessionId>::default());
        let _envs = tenant.ask(&cluster, ListAfter::<EnvPlace>::default());
        let _list = tenant.ask(&cluster, list.clone());
    }
}

fn unread(tenant: &Tenant, _: usize) -> Result<(), Failure> {
    let dialer = tenant.dialer()?;
    runtime()?.block_on(async {
        let connection = tenant.dial(&dialer).await.map_err(failed)?;
        let mut asked = Vec::new();
        loop {
            for request in [
                Request::StoreQuery(long_page()),
                Request::Sessions(ListAfter::default()),
                Request::Nodes(ListAfter::default()),
            ] {
                let open = tokio::time::timeout(STREAM_WITHIN, connection.open(&request)).await;
                let call = match open {
                    Ok(opened) => opened.map_err(failed)?,
                    Err(_) => {
                        // No further stream is allowed: the oldest answers are given up unread.
                        tenant.refused.fetch_add(1, Ordering::Relaxed);
                        asked.clear();
                        continue;
                    }
                };
                tenant.had.fetch_add(1, Ordering::Relaxed);
                asked.push(call);
            }
        }
    })
}

/// A pool of lanes whose episodes are short, stepped for so long that some are recorded.
fn played(cluster: &Cluster) -> Result<RunId, Failure> {
    let mut pool = cluster.open_pool(PoolRequest::new("CartPole-v1", 8)).map_err(failed)?;
    pool.reset(&Reset::all()).map_err(failed)?;
    for _ in 0..200 {
        step(&mut pool)?;
    }
    let run = pool.id();
    pool.close().map_err(failed)?;
    Ok(run)
}

fn step(pool: &mut Pool) -> Result<(), Failure> {
    if let ColumnMut::I64(actions) = pool.actions() {
        actions.fill(1);
    }
    pool.step().map(drop).map_err(failed)
}

fn replays(tenant: &Tenant, _: usize) -> Result<(), Failure> {
    let cluster = tenant.connect()?;
    let run = played(&cluster)?;
    let query = StoreQuery { run: Some(run.short()), ..long_page() };
    let episodes = loop {
        let page: StoreEpisodes = cluster.request(query.clone()).map_err(failed)?;
        if !page.episodes.is_empty() {
            break page.episodes;
        }
        thread::sleep(BEGIN_AGAIN);
    };
    let mut open = Vec::new();
    for episode in episodes.iter().cycle() {
        let name = EpisodeName { run: run.short(), lane: episode.lane, number: episode.number };
        if let Some(replay) = tenant.count(cluster.open_replay(name)) {
            let watch = tenant.count(cluster.watch(replay.session()));
            open.push((replay, watch));
        }
        if open.len() > MOST_OPEN {
            open.clear();
        }
    }
    Ok(())
}

fn pools(tenant: &Tenant, _: usize) -> Result<(), Failure> {
    let cluster = tenant.connect()?;
    let mut open = Vec::new();
    loop {
        open.extend(tenant.count(cluster.open_pool(PoolRequest::new("CartPole-v1", 1))));
        if open.len() > MOST_OPEN {
            open.clear();
        }
    }
}

fn steps(tenant: &Tenant, _: usize) -> Result<(), Failure> {
    let cluster = tenant.connect()?;
    let mut request = PoolRequest::new("Acrobot-v1", 128);
    request.settings.record = RecordRule::None;
    let mut pool = cluster.open_pool(request).map_err(failed)?;
    pool.reset(&Reset::all()).map_err(failed)?;
    loop {
        tenant.count(step(&mut pool)).ok_or_else(|| Failure::new(Status::Failed, "a step failed"))?;
    }
}

fn rollouts(tenant: &Tenant, _: usize) -> Result<(), Failure> {
    let cluster = tenant.connect()?;
    let PoolRequest { mut settings, labels, spread, .. } = PoolRequest::new("Acrobot-v1", 64);
    let goal = Goal::Batches(u64::from(u32::MAX));
    settings.collect = Some(Collect { leased: true, ..Collect::new("random", 1, goal) });
    settings.record = RecordRule::None;
    (settings.autoreset, settings.seeds) =
        (AutoresetMode::SameStep, SeedSchedule::PerEpisode { run_seed: 1 });
    let mut open = Vec::new();
    loop {
        let pool = cluster.new_pool_id().map_err(failed)?;
        let ask = OpenPool { pool, lanes: 64, settings: settings.clone(), labels: labels.clone(), spread };
        if tenant.count(cluster.open_collecting(ask)).is_some() {
            open.push(pool);
        } else {
            // Full: the oldest makes room, and those that are left are kept.
            if !open.is_empty() {
                let _closed = tenant.count(cluster.close_pool(open.remove(0)));
            }
            open.retain(|&pool| tenant.count(cluster.keep_pool(pool)).is_some());
        }
    }
}

fn learning(tenant: &Tenant, number: usize) -> Result<(), Failure> {
    let cluster = tenant.connect()?;
    for turn in 0.. {
        // Each is another env, which no node knows.
        let request = sleeping_constructor(turn * THREADS + number);
        let _pool = tenant.count(cluster.open_pool(request));
    }
    Ok(())
}

fn sleepers(tenant: &Tenant, _: usize) -> Result<(), Failure> {
    let cluster = tenant.connect()?;
    let mut pool = cluster.open_pool(sleeping_step()).map_err(failed)?;
    pool.reset(&Reset::all()).map_err(failed)?;
    loop {
        tenant.count(step(&mut pool)).ok_or_else(|| Failure::new(Status::Failed, "a step failed"))?;
    }
}

/// The priority of those that are to wait for everybody else.
const LEAST_URGENT: i32 = 19;
/// Number of clients of each tenant, which work side by side.
const THREADS: usize = 3;
/// Number of connections that each of them keeps.
const MOST_CONNECTIONS: usize = 512;
/// Number of pools, or replays, that each of them keeps.
const MOST_OPEN: usize = 128;
/// Time that a tenant waits for a request: it has more to ask.
const PATIENCE: Duration = Duration::from_secs(30);
const BEGIN_AGAIN: Duration = Duration::from_millis(500);
const STREAM_WITHIN: Duration = Duration::from_millis(200);
