//! Measures lanes that crash among others that do not.

use std::panic;
use std::time::{Duration, Instant};

use rollhouse_cli::failure::{Failure, Status};
use rollhouse_client::{AsyncCluster, AsyncPool, PoolRequest};
use rollhouse_core::OptionValue;
use rollhouse_engine::Reset;
use rollhouse_policy::{Act, Builtin};

use crate::failed::failed;
use crate::seed::SEED;

/// The results for lanes that crash, as their trainer sees them.
pub(super) struct Crashed {
    /// Time for which each lane that crashed was away for the first time, sorted.
    pub(super) away: Vec<Duration>,
    /// Number of steps of lanes that were there.
    pub(super) steps: u64,
    /// Number of those that the node did not make.
    pub(super) steps_missing: u64,
}

/// Steps a pool whose lanes crash now and then, each at another time, until most have been away and are back.
pub(super) async fn crash(cluster: &AsyncCluster, lanes: u32) -> Result<Crashed, Failure> {
    keep_quiet();
    let mut request = PoolRequest::new(CRASHING, lanes);
    request.settings.options.insert("panic_at".to_owned(), OptionValue::Int(CRASH_AT));
    let mut pool = cluster.open_pool(request).await.map_err(failed)?;
    let mut watched = Watched { lost_at: vec![None; lanes as usize], away: vec![None; lanes as usize] };
    let steps = step(&mut pool, &mut watched).await?;
    let status = pool.close().await.map_err(failed)?;
    let mut away: Vec<Duration> = watched.away.into_iter().flatten().collect();
    away.sort();
    Ok(Crashed { away, steps, steps_missing: steps.abs_diff(status.done.steps) })
}

/// Keeps this process from printing the panics that are wanted here.
fn keep_quiet() {
    let others = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !info.payload_as_str().is_some_and(|message| message.starts_with(WANTED)) {
            others(info);
        }
    }));
}

/// The time at which each lane was first lost, and for how long.
struct Watched {
    lost_at: Vec<Option<Instant>>,
    away: Vec<Option<Duration>>,
}

impl Watched {
    fn back(&self) -> usize {
        self.away.iter().flatten().count()
    }

    fn look(&mut self, lane: usize, lost: bool, now: Instant) {
        match (self.lost_at[lane], self.away[lane]) {
            (None, _) if lost => self.lost_at[lane] = Some(now),
            (Some(at), None) if !lost => self.away[lane] = Some(now - at),
            _ => {}
        }
    }
}

/// Counts the steps of all lanes that were there.
async fn step(pool: &mut AsyncPool, watched: &mut Watched) -> Result<u64, Failure> {
    let lanes = pool.lanes();
    let mut policy = Builtin::Random.make(&pool.spec().action_space, SEED).map_err(failed)?;
    pool.reset(&Reset::all()).await.map_err(failed)?;
    let (began, mut steps, mut batch) = (Instant::now(), 0, 0);
    while watched.back() < lanes * 3 / 4 {
        if began.elapsed() > LIMIT {
            let what = format_args!("only {} of {lanes} lanes have crashed and are back", watched.back());
            return Err(Failure::new(Status::Failed, what));
        }
        let act = Act { first_lane: 0, step: batch, obs: &[], mask: None, actions: pool.actions() };
        policy.act(act).map_err(failed)?;
        let begins = pool.step().await.map_err(failed)?.reset().to_vec();
        let now = Instant::now();
        for (lane, begins) in begins.into_iter().enumerate() {
            let lost = pool.loss(lane).is_some();
            steps += u64::from(!lost && begins == 0);
            watched.look(lane, lost, now);
        }
        batch += 1;
    }
    Ok(steps)
}

const CRASHING: &str = "test/Faulty-v0";
/// The step at which lanes crash: some episodes last so long and others do not, so that lanes crash at different times.
const CRASH_AT: i64 = 90;
/// The message of the env's panic that the option asks for.
const WANTED: &str = "panic asked for by option";
/// Longest time for all of it: far longer than it takes.
const LIMIT: Duration = Duration::from_secs(30);
