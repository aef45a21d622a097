//! The loads on the cluster: sessions that are played, a large pool that is opened, and sessions at rest.

use std::time::{Duration, Instant};

use rollhouse_cli::failure::{Failure, Status};
use rollhouse_client::{AsyncCluster, AsyncPool, PoolRequest};
use rollhouse_core::AutoresetMode;
use rollhouse_engine::Reset;
use rollhouse_metrics::ProcessSample;
use rollhouse_policy::{Act, Builtin};
use tokio::task::JoinSet;

use super::ENV;
use super::footprint::Footprint;
use crate::failed::failed;
use crate::seed::SEED;

/// The result of sessions that were played side by side.
pub(super) struct Played {
    /// Number of sessions that played all their episodes.
    pub(super) passed: u32,
    /// The reason why the first of the others did not.
    pub(super) failure: Option<Failure>,
    /// Time of each reset, sorted.
    pub(super) resets: Vec<Duration>,
    pub(super) steps: u64,
    /// Time from the first reset of all to the last step of all.
    pub(super) took: Duration,
    /// The footprint while all sessions were still open.
    pub(super) footprint: Footprint,
}

/// Opens `sessions` sessions, then plays `episodes` episodes in each, in all of them at a time.
pub(super) async fn play(cluster: &AsyncCluster, sessions: u32, episodes: u32) -> Result<Played, Failure> {
    let (mut pools, mut failure) = (Vec::new(), None);
    for opened in open(cluster, sessions).await? {
        match opened {
            Ok(pool) => pools.push(pool),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    let players = pools.into_iter().zip(SEED..).map(|(pool, seed)| Player::new(pool, seed).play(episodes));
    let began = Instant::now();
    let players = side_by_side(players, sessions as usize).await?;
    let took = began.elapsed();
    let footprint = Footprint::now().map_err(failed)?;

    let mut played = Played { passed: 0, failure, resets: Vec::new(), steps: 0, took, footprint };
    let mut pools = Vec::new();
    for player in players {
        played.resets.extend(player.resets);
        played.steps += player.steps;
        match player.ended {
            Ok(()) => played.passed += 1,
            Err(error) => played.failure = played.failure.or(Some(error)),
        }
        pools.push(player.pool);
    }
    played.resets.sort();
    close(pools).await?;
    Ok(played)
}

/// A session and the state of its play.
struct Player {
    pool: AsyncPool,
    seed: u64,
    resets: Vec<Duration>,
    steps: u64,
    ended: Result<(), Failure>,
}

impl Player {
    fn new(pool: AsyncPool, seed: u64) -> Self {
        Self { pool, seed, resets: Vec::new(), steps: 0, ended: Ok(()) }
    }

    async fn play(mut self, episodes: u32) -> Self {
        self.ended = self.play_all(episodes).await;
        self
    }

    async fn play_all(&mut self, episodes: u32) -> Result<(), Failure> {
        let mut policy = Builtin::Random.make(&self.pool.spec().action_space, self.seed).map_err(failed)?;
        let mut reset = Reset::seeded(self.seed, 1);
        for _ in 0..episodes {
            let began = Instant::now();
            self.pool.reset(&reset).await.map_err(failed)?;
            self.resets.push(began.elapsed());
            reset = Reset::all();
            let mut over = false;
            while !over {
                let act = Act {
                    first_lane: 0,
                    step: self.steps,
                    obs: &[],
                    mask: None,
                    actions: self.pool.actions(),
                };
                policy.act(act).map_err(failed)?;
                let frame = self.pool.step().await.map_err(failed)?;
                over = frame.terminated()[0] | frame.truncated()[0] != 0;
                self.steps += 1;
                if let Some(outcome) = self.pool.loss(0) {
                    return Err(Failure::new(Status::Failed, format_args!("a lane was lost: {outcome}")));
                }
            }
        }
        Ok(())
    }
}

/// Measures `times` times how long it takes to open a pool of `lanes` lanes, with the answer of the node to its
/// attachment. One more opening before that warms up.
pub(super) async fn time_opening(
    cluster: &AsyncCluster,
    lanes: u32,
    times: usize,
) -> Result<Vec<Duration>, Failure> {
    let mut took = Vec::with_capacity(times);
    for time in 0..=times {
        let began = Instant::now();
        let pool = cluster.open_pool(PoolRequest::new(ENV, lanes)).await.map_err(failed)?;
        if time > 0 {
            took.push(began.elapsed());
        }
        pool.close().await.map_err(failed)?;
    }
    Ok(took)
}

/// The cost of sessions that nobody steps.
pub(super) struct Rested {
    pub(super) took: Duration,
    pub(super) processor_time: Duration,
    /// The footprints before they were opened, and with them.
    pub(super) footprints: [Footprint; 2],
}

/// Opens sessions, begins an episode in each, as a busy trainer has it, and leaves them alone.
pub(super) async fn rest(cluster: &AsyncCluster, sessions: u32, time: Duration) -> Result<Rested, Failure> {
    let before = Footprint::now().map_err(failed)?;
    let mut pools = open(cluster, sessions).await?.into_iter().collect::<Result<Vec<_>, _>>()?;
    for pool in &mut pools {
        pool.reset(&Reset::all()).await.map_err(failed)?;
    }
    // What was recorded before goes to the store.
    tokio::time::sleep(SETTLE).await;
    let (began, used) = (Instant::now(), processor_time()?);
    tokio::time::sleep(time).await;
    let processor_time = processor_time()?.saturating_sub(used);
    let took = began.elapsed();
    let with = Footprint::now().map_err(failed)?;
    close(pools).await?;
    Ok(Rested { took, processor_time, footprints: [before, with] })
}

fn processor_time() -> Result<Duration, Failure> {
    ProcessSample::now().map(|sample| sample.processor_time).map_err(failed)
}

/// Opens pools of one lane, which the caller resets.
async fn open(cluster: &AsyncCluster, count: u32) -> Result<Vec<Result<AsyncPool, Failure>>, Failure> {
    let opening = (0..count).map(|_| {
        let cluster = cluster.clone();
        let mut request = PoolRequest::new(ENV, 1);
        request.settings.autoreset = AutoresetMode::Disabled;
        async move { cluster.open_pool(request).await.map_err(failed) }
    });
    side_by_side(opening, OPENED_AT_A_TIME).await
}

async fn close(pools: Vec<AsyncPool>) -> Result<(), Failure> {
    let closing = pools.into_iter().map(|pool| async move { pool.close().await.map(drop).map_err(failed) });
    side_by_side(closing, OPENED_AT_A_TIME).await?.into_iter().collect()
}

/// Returns the outputs of all futures in the order in which they were done; at most `limit` run at a time.
async fn side_by_side<F>(futures: impl Iterator<Item = F>, limit: usize) -> Result<Vec<F::Output>, Failure>
where
    F: Future<Output: Send> + Send + 'static,
{
    let (mut running, mut given) = (JoinSet::new(), Vec::new());
    for future in futures {
        if running.len() >= limit
            && let Some(done) = running.join_next().await
        {
            given.push(done.map_err(failed)?);
        }
        running.spawn(future);
    }
    while let Some(done) = running.join_next().await {
        given.push(done.map_err(failed)?);
    }
    Ok(given)
}

/// Number of pools that are opened at a time: well below the requests that a connection may have unanswered.
const OPENED_AT_A_TIME: usize = 32;

/// Time to settle: longer than it takes until recordings are sealed and shipped.
const SETTLE: Duration = Duration::from_secs(10);
