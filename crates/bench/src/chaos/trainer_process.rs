//! A trainer that is a process of its own: it steps a pool and prints which episodes it saw end, until it is killed.
//!
//! ```text
//! pool 01979c3e-... 1763841000000                         its pool, and when it got it
//! begun 3 17      lane, and number of an episode of which the first step was answered
//! episode 3 17 241 c06e200000000000 1763841002331 1763841002345 node-1
//!                 lane, number, length, bits of the return, when its last step was asked for and answered, where
//! ```

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rollhouse_cli::failure::{Failure, Status};
use rollhouse_client::{Cluster, OnLoss, OpenError, Pool, PoolRequest};
use rollhouse_core::{ColumnMut, RunId, random_bits};
use rollhouse_engine::Reset;
use rollhouse_wire::{RefusalCode, Spread};

use super::{ENV, PATIENCE, connect};
use crate::args::ChaosTrainerArgs;
use crate::failed::failed;
use crate::seed::SEED;

/// Number of lanes of each trainer, which is also all that its token may have.
pub(super) const TRAINER_LANES: u32 = 16;

/// A line that such a process prints.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TrainerLine {
    Pool { id: RunId, at_ms: u64 },
    Begun { lane: usize, number: u64 },
    Episode(SeenEpisode),
}

/// An episode that it saw end.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SeenEpisode {
    pub(super) lane: usize,
    pub(super) number: u64,
    pub(super) length: u64,
    pub(super) total_reward: f64,
    /// The time at which its last step was requested. Its node may have done the step, and died, long before all nodes
    /// had answered.
    pub(super) asked_ms: u64,
    /// The time at which the step was answered.
    pub(super) at_ms: u64,
    pub(super) node: String,
}

impl TrainerLine {
    /// Reads a whole line; `None` if it is another line of the process.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        match words.next()? {
            "pool" => {
                let id = u128::from_str_radix(words.next()?, 16).ok().map(RunId::from_u128)?;
                Some(Self::Pool { id, at_ms: words.next()?.parse().ok()? })
            }
            "begun" => {
                Some(Self::Begun { lane: words.next()?.parse().ok()?, number: words.next()?.parse().ok()? })
            }
            "episode" => Some(Self::Episode(SeenEpisode {
                lane: words.next()?.parse().ok()?,
                number: words.next()?.parse().ok()?,
                length: words.next()?.parse().ok()?,
                total_reward: u64::from_str_radix(words.next()?, 16).ok().map(f64::from_bits)?,
                asked_ms: words.next()?.parse().ok()?,
                at_ms: words.next()?.parse().ok()?,
                node: words.next()?.to_owned(),
            })),
            _ => None,
        }
    }

    fn put(&self, line: &mut String) {
        // A string takes all.
        let _put = match self {
            Self::Pool { id, at_ms } => writeln!(line, "pool {:x} {at_ms}", id.as_u128()),
            Self::Begun { lane, number } => writeln!(line, "begun {lane} {number}"),
            Self::Episode(SeenEpisode { lane, number, length, total_reward, asked_ms, at_ms, node }) => {
                let bits = total_reward.to_bits();
                writeln!(line, "episode {lane} {number} {length} {bits:x} {asked_ms} {at_ms} {node}")
            }
        };
    }
}

/// Steps until it is killed, or something fails.
pub(crate) fn train(args: &ChaosTrainerArgs) -> Result<Status, Failure> {
    let connection = std::fs::read_to_string(&args.connect).map_err(failed)?;
    let cluster = connect(connection.trim())?;
    let mut pool = open(&cluster)?;
    let mut said = String::new();
    TrainerLine::Pool { id: pool.id(), at_ms: now_ms() }.put(&mut said);
    say(&mut said)?;
    pool.reset(&Reset::seeded(SEED, pool.lanes())).map_err(failed)?;
    let mut open = vec![(0, 0, 0.0); pool.lanes()];
    for turn in 0.. {
        step(&mut pool, turn, &mut open, &mut said)?;
        say(&mut said)?;
        thread::sleep(THINKS);
    }
    Ok(Status::Done)
}

/// Opens its pool, once the lanes of the pool before it are given back.
fn open(cluster: &Cluster) -> Result<Pool, Failure> {
    let mut request = PoolRequest::new(ENV, TRAINER_LANES);
    (request.spread, request.on_loss) = (Spread::Even, Some(OnLoss::Resume));
    let until = Instant::now() + PATIENCE;
    loop {
        match cluster.open_pool(request.clone()) {
            Ok(pool) => return Ok(pool),
            Err(error) if may_come(&error) && Instant::now() < until => thread::sleep(ASK_AGAIN),
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Returns whether a pool may be granted later.
fn may_come(error: &OpenError) -> bool {
    let OpenError::Request(error) = error else { return false };
    error.refusal().is_none_or(|code| code == RefusalCode::Quota || code.is_transient())
}

/// Steps one batch; `open` has number, length and return of each lane's episode.
fn step(pool: &mut Pool, turn: u64, open: &mut [(u64, u64, f64)], said: &mut String) -> Result<(), Failure> {
    if let ColumnMut::I64(actions) = pool.actions() {
        for (lane, action) in (0..).zip(actions) {
            *action = (random_bits(SEED, lane, turn) % ACTIONS) as i64;
        }
    }
    let asked_ms = now_ms();
    let frame = pool.step().map_err(failed)?;
    let mut ended = Vec::new();
    for (lane, (number, length, total_reward)) in open.iter_mut().enumerate() {
        if frame.reset()[lane] == 0 {
            (*length, *total_reward) = (*length + 1, *total_reward + frame.rewards()[lane]);
            if *length == 1 {
                TrainerLine::Begun { lane, number: *number }.put(said);
            }
        }
        if frame.terminated()[lane] | frame.truncated()[lane] != 0 {
            ended.push((lane, *number, *length, *total_reward));
            (*number, *length, *total_reward) = (*number + 1, 0, 0.0);
        }
    }
    let at_ms = now_ms();
    for (lane, number, length, total_reward) in ended {
        let node = pool.sessions().find(|(_, lanes)| lanes.contains(&lane));
        let node = node.map_or("-", |(node, _)| node).to_owned();
        let seen = SeenEpisode { lane, number, length, total_reward, asked_ms, at_ms, node };
        TrainerLine::Episode(seen).put(said);
    }
    Ok(())
}

/// Writes the lines as a whole: a killed process has printed a batch completely or not at all.
fn say(said: &mut String) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(said.as_bytes()).and_then(|()| out.flush()).map_err(failed)?;
    said.clear();
    Ok(())
}

/// Returns the wall-clock time, which all processes of the bench share.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Number of actions of the env.
const ACTIONS: u64 = 3;
/// Pause between steps: most of the machine is left to the trainer that is compared.
const THINKS: Duration = Duration::from_millis(5);
const ASK_AGAIN: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_trainer_says_is_understood_and_half_a_line_or_another_is_not() {
        let pool = TrainerLine::Pool { id: RunId::generate(), at_ms: 1_763_841_000_000 };
        let episode = SeenEpisode {
            lane: 3,
            number: 17,
            length: 241,
            total_reward: -240.5,
            asked_ms: 1_763_841_002_331,
            at_ms: 1_763_841_002_345,
            node: "node-1".to_owned(),
        };
        for said in [pool, TrainerLine::Begun { lane: 3, number: 17 }, TrainerLine::Episode(episode)] {
            let mut line = String::new();
            said.put(&mut line);
            let line = line.trim_end();
            assert_eq!(TrainerLine::parse(line), Some(said));
            let (half, _) = line.rsplit_once(' ').unwrap();
            assert_eq!(TrainerLine::parse(half), None);
        }
        assert_eq!(TrainerLine::parse("error: 127.0.0.1:1 did not answer"), None);
    }
}
