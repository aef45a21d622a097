//! Somebody honest who asks and opens pools at a steady pace, and notes how long that takes.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rollhouse_cli::failure::Failure;
use rollhouse_client::{Cluster, PoolRequest};
use rollhouse_engine::Reset;
use rollhouse_wire::{ClusterStatus, StoreEpisodes, StoreQuery};
use serde::Serialize;

use super::trainer::Progress;
use super::waits::Call;
use super::{ENV, connect};
use crate::failed::failed;

/// Number of lanes of each pool that it opens, which is also all that its token may have.
pub(super) const ASKER_LANES: u32 = 8;

/// What became of the requests; the field names are part of the interface.
#[derive(Debug, Default, Serialize)]
pub(super) struct AskerFigures {
    pub(super) questions: u64,
    pub(super) openings: u64,
    /// Number of requests that were refused or not answered.
    pub(super) failed: u64,
    /// The first of the failures.
    pub(super) first: Vec<String>,
}

/// Asks until the trainer is to end.
pub(super) fn ask(connection: &str, progress: &Progress) -> Result<AskerFigures, Failure> {
    let cluster = connect(connection)?;
    let mut asked = AskerFigures::default();
    while !progress.end.load(Ordering::Relaxed) {
        let began = Instant::now();
        asked.questions += 1;
        asked.note(question(&cluster));
        progress.waits.add(Call::Question, began.elapsed());
        let began = Instant::now();
        asked.openings += 1;
        asked.note(opening(&cluster, || progress.waits.add(Call::Opening, began.elapsed())));
        thread::sleep(PAUSE);
    }
    Ok(asked)
}

impl AskerFigures {
    fn note(&mut self, done: Result<(), Failure>) {
        if let Err(failure) = done {
            self.failed += 1;
            if self.first.len() < MOST_NAMED {
                self.first.push(failure.message().to_owned());
            }
        }
    }
}

fn question(cluster: &Cluster) -> Result<(), Failure> {
    let page = StoreQuery { sort: "-return".to_owned(), limit: PAGE, ..StoreQuery::default() };
    let _page: StoreEpisodes = cluster.request(page).map_err(failed)?;
    let _status: ClusterStatus = cluster.status().map_err(failed)?;
    Ok(())
}

/// Opens a pool, resets its lanes, says so and closes it.
fn opening(cluster: &Cluster, is_open: impl FnOnce()) -> Result<(), Failure> {
    let mut pool = cluster.open_pool(PoolRequest::new(ENV, ASKER_LANES)).map_err(failed)?;
    let reset = pool.reset(&Reset::all()).map(drop).map_err(failed);
    is_open();
    pool.close().map_err(failed)?;
    reset
}

/// Episodes of a page, as many as a terminal shows.
const PAGE: u32 = 50;
const PAUSE: Duration = Duration::from_millis(250);
/// Number of failures that are named.
const MOST_NAMED: usize = 10;
