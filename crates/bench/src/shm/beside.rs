//! Measures trainers that come through memory and trainers that come over QUIC, side by side on one node.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rollhouse_cli::failure::{Failure, Status};
use rollhouse_client::{Pool, Transport};
use serde::Serialize;

use super::{ENV, SMALL_LANES, Steps, node::Node};

use crate::failed::failed;

/// Steps of lanes a second. A node that shares its cores fairly leaves each kind about half of what it makes alone.
#[derive(Debug, Serialize)]
pub(super) struct Beside {
    /// Number of trainers of each kind.
    pub(super) trainers: usize,
    pub(super) shm: Rates,
    pub(super) quic: Rates,
}

/// The rates of one kind, all trainers together.
#[derive(Debug, Serialize)]
pub(super) struct Rates {
    pub(super) alone: f64,
    pub(super) beside: f64,
}

impl Rates {
    pub(super) fn share(&self) -> f64 {
        self.beside / self.alone
    }
}

pub(super) fn measure(node: &Node, time: Duration) -> Result<Beside, Failure> {
    let [shm_alone, _] = play(node, time, [TRAINERS, 0])?;
    let [_, quic_alone] = play(node, time, [0, TRAINERS])?;
    let [shm, quic] = play(node, time, [TRAINERS, TRAINERS])?;
    Ok(Beside {
        trainers: TRAINERS,
        shm: Rates { alone: shm_alone, beside: shm },
        quic: Rates { alone: quic_alone, beside: quic },
    })
}

/// Steps that many trainers of each kind for that long.
fn play(node: &Node, time: Duration, trainers: [usize; 2]) -> Result<[f64; 2], Failure> {
    let batches = [const { AtomicU64::new(0) }; 2];
    let end = AtomicBool::new(false);
    let kinds = [Transport::Shm, Transport::Quic];
    let pool = |transport| node.pool(ENV, SMALL_LANES, transport, None);
    let pools: Vec<(usize, Pool)> = (0..2)
        .flat_map(|kind| (0..trainers[kind]).map(move |_| kind))
        .map(|kind| Ok((kind, pool(kinds[kind])?)))
        .collect::<Result<_, Failure>>()?;
    thread::scope(|scope| {
        let step = |(kind, mut pool): (usize, Pool)| {
            let (batches, end) = (&batches[kind], &end);
            scope.spawn(move || -> Result<(), Failure> {
                let actions = Steps::reset(&mut pool)?;
                while !end.load(Ordering::Relaxed) {
                    Steps::step(&mut pool, &actions)?;
                    batches.fetch_add(1, Ordering::Relaxed);
                }
                pool.close().map(drop).map_err(failed)
            })
        };
        let playing: Vec<_> = pools.into_iter().map(step).collect();
        // All have begun by then, and caches are warm.
        thread::sleep(time / 5);
        let before = [0, 1].map(|kind: usize| batches[kind].load(Ordering::Relaxed));
        let began = Instant::now();
        thread::sleep(time);
        let seconds = began.elapsed().as_secs_f64();
        let after = [0, 1].map(|kind: usize| batches[kind].load(Ordering::Relaxed));
        end.store(true, Ordering::Relaxed);
        for trainer in playing {
            trainer.join().map_err(|_| Failure::new(Status::Failed, "a trainer panicked"))??;
        }
        Ok([0, 1].map(|kind: usize| (after[kind] - before[kind]) as f64 * SMALL_LANES as f64 / seconds))
    })
}

/// Number of trainers of each kind.
const TRAINERS: usize = 5;
