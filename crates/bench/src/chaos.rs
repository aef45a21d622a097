//! `rollhouse-bench chaos`: a trainer steps lanes of a cluster whose processes are killed and paused, whose disks are
//! full and whose links are cut.
//!
//! Coordinator and nodes are processes of this program, the trainer is this one, two more are processes of their own
//! that are killed as well. All datagrams between them go through relays in this process, which can be made deaf; a
//! full disk is a limit of file sizes. The trainer compares every frame with that of an engine of its own, and
//! afterwards every episode of the store with those it saw.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rollhouse_cli::certs::write_private;
use rollhouse_cli::failure::{Failure, Status};
use rollhouse_cli::output::{Output, say};
use rollhouse_client::{Address, Cluster, ConnectOptions, OnLoss, Pool, PoolRequest, Transport};
use rollhouse_core::RunId;
use rollhouse_wire::Spread;

use self::asker::{ASKER_LANES, AskerFigures, ask};
use self::audit::{Audit, Held};
use self::killed_trainers::{Lives, Trainers, TrainersAudit};
use self::links::Links;
use self::plan::Link;
use self::processes::Processes;
use self::report::{ChaosResult, Compared, Leaked};
use self::storm::{FaultTargets, Storm};
use self::tenants::{BesideTenants, Tenants};
use self::trainer::{Ended, Fill, Progress, Seen, Trainer};
use self::trainer_process::TRAINER_LANES;
use crate::args::ChaosArgs;
use crate::failed::failed;
use crate::scratch::Scratch;

mod addresses;
mod asker;
mod audit;
mod backups;
mod killed_trainers;
mod links;
mod logged;
mod plan;
mod processes;
mod report;
mod sleepers;
mod storm;
mod tenant_process;
mod tenants;
mod trainer;
mod trainer_process;
mod waits;

pub(super) use self::tenant_process::flood;
pub(super) use self::trainer_process::train;

/// Runs the bench and prints its figures. It fails, after the figures, if an episode is lost, doubled, invented or
/// changed, if a frame differs, or if anything leaks.
pub(super) fn run(args: &ChaosArgs, out: &mut Output) -> Result<Status, Failure> {
    let folder = Scratch::new()?;
    let result = measure(args, &folder.0)?;
    if args.json {
        out.json(&result)?
    } else {
        result.print(out)?
    }
    if cfg!(debug_assertions) {
        say("note: a development build, with checks that a release build leaves out");
    }
    if result.is_clean() {
        return Ok(Status::Done);
    }
    say(&format!("what the cluster's processes wrote is kept in {}", folder.keep().display()));
    Ok(Status::Found)
}

fn measure(args: &ChaosArgs, folder: &Path) -> Result<ChaosResult, Failure> {
    let before = Held::now()?;
    let each = (0..NODES).flat_map(|node| [Link::TrainerNode(node), Link::NodeCoordinator(node)]);
    // What tenants send would pass the relays, too, and everybody would wait for their one thread.
    let all: Vec<Link> = each.chain([Link::TrainerCoordinator]).filter(|_| !args.tenants).collect();
    let mut links = Links::open(&all).map_err(failed)?;
    let quotas = [TRAINER_LANES, TRAINER_LANES, ASKER_LANES];
    let mut processes = Processes::start(folder, NODES, &quotas, &links, args.python.as_deref())?;
    let connection = folder.join("connection");
    write_private(&connection, &format!("{}\n", processes.connection(None)))?;
    let cluster = connect(&processes.connection(links.address(Link::TrainerCoordinator)))?;
    let pool = cluster.open_pool(request()).map_err(failed)?;
    let run = pool.id();
    let trainer = Trainer::begin(pool, if args.tenants { THINKS } else { Duration::ZERO })?;
    let mut others = processes.trainers(links.address(Link::TrainerCoordinator));
    let asker = others.pop().filter(|_| args.tenants);
    let mut trainers = Trainers::start(folder, &others)?;
    let tenants = || Tenants::prepare(folder, &processes, args.python.is_some());
    let tenants = args.tenants.then(tenants).transpose()?;
    let progress = Progress::default();
    let hit = FaultTargets { processes: &mut processes, links: &mut links, trainers: &mut trainers, tenants };
    let (storm, (pool, seen), asked) = play(args, trainer, asker.as_deref(), hit, &progress)?;
    // Those that are left are killed when nothing else happens: there is no excuse for what becomes of their lanes.
    thread::sleep(killed_trainers::SETTLED);
    trainers.turn(Instant::now())?;
    let lives = trainers.end().map_err(failed)?;
    close(&cluster, pool, run)?;
    let sessions = sessions_left(&cluster, &lives)?;
    let (audit, of_trainers) = settled_audit(&seen, &progress.fills(), run, &lives, &connection)?;
    let of_trainers = TrainersAudit { sessions, ..of_trainers };
    let of_services = released(&storm.held, || processes.held())?;
    let resident = processes.resident().map_err(failed)?;
    drop(cluster);
    processes.end()?;
    let datagrams_lost = links.lost();
    drop(links);
    let leaked = Leaked {
        held: released(&[before], || Ok(vec![Held::now()?]))?,
        of_services,
        processes: audit::processes_in(folder)?,
        socket_files: socket_files(folder)?,
    };
    let compared = Compared { audit, trainers: of_trainers, leaked, datagrams_lost };
    let waits = progress.waits.figures();
    let beside = asked.map(|asked| BesideTenants { tenants: storm.tenants.clone(), waits, asked });
    Ok(ChaosResult::of(args, &storm, compared, &seen, (&progress.fills()[..], &resident[..]), beside))
}

/// What a storm has left: itself, what the trainer has seen, and what the asker has.
type Played<'a> = (Storm<'a>, (Pool, Seen), Option<AskerFigures>);

/// Plays until the storm is over: the trainer and, if there is one, the asker beside it. Tenants have ended then.
fn play<'a>(
    args: &'a ChaosArgs,
    trainer: Trainer,
    asker: Option<&str>,
    mut hit: FaultTargets<'_>,
    progress: &'a Progress,
) -> Result<Played<'a>, Failure> {
    let (storm, played, asked) = thread::scope(|scope| {
        let playing = scope.spawn(|| trainer.play(progress));
        let asking = asker.map(|asker| scope.spawn(move || ask(asker, progress)));
        let storm = Storm::new(args, progress).rage(&mut hit);
        progress.end.store(true, Ordering::Relaxed);
        (storm, playing.join(), asking.map(|asking| asking.join()))
    });
    let panicked = |_| Failure::new(Status::Failed, "a client panicked");
    let (pool, mut seen) = played.map_err(panicked)?;
    match seen.failure.take() {
        Some(failure) => Err(failure),
        None => Ok((storm?, (pool, seen), asked.transpose().map_err(panicked)?.transpose()?)),
    }
}

/// Connects, also while the coordinator is away for as long as a backup of it takes to be restored on a busy machine.
fn connect(connection: &str) -> Result<Cluster, Failure> {
    let address: Address = connection.parse().map_err(failed)?;
    let options =
        ConnectOptions { timeout: PATIENCE, transport: Some(Transport::Quic), ..ConnectOptions::default() };
    let until = Instant::now() + PATIENCE;
    loop {
        match Cluster::connect(&address, options.clone(), None) {
            Err(_) if Instant::now() < until => thread::sleep(LOOK_AGAIN),
            connected => return connected.map_err(failed),
        }
    }
}

fn request() -> PoolRequest {
    let mut request = PoolRequest::new(ENV, LANES as u32);
    (request.spread, request.on_loss) = (Spread::Even, Some(OnLoss::Resume));
    request
}

/// Closes the pool, and waits until the store has everything that nodes recorded of it, as far as the coordinator
/// knows: a restarted coordinator may never know that of sessions that had gone elsewhere before. The audit shows it
/// then.
fn close(cluster: &Cluster, pool: Pool, run: RunId) -> Result<(), Failure> {
    pool.close().map_err(failed)?;
    let until = Instant::now() + KNOWN_WITHIN;
    while Instant::now() < until && !cluster.pool_status(run).map_err(failed)?.shipped {
        thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// Returns the sessions of killed trainers after their leases are over: none, if all is well.
fn sessions_left(cluster: &Cluster, lives: &Lives) -> Result<u64, Failure> {
    let pools = lives.pools()?;
    let until = Instant::now() + GIVEN_BACK_WITHIN;
    loop {
        let sessions = cluster.sessions().map_err(failed)?.sessions;
        let left = sessions.iter().filter(|session| pools.contains(&session.report.session.pool)).count();
        if left == 0 || Instant::now() >= until {
            return Ok(left as u64);
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// Repeats the audit until nothing is missing any more, or for as long as shipping may take.
fn settled_audit(
    seen: &Seen,
    fills: &[Fill],
    run: RunId,
    lives: &Lives,
    connection: &Path,
) -> Result<(Audit, TrainersAudit), Failure> {
    let until = Instant::now() + SHIPPED_WITHIN;
    loop {
        let entries = audit::list(connection)?;
        let is_at_risk = |ended: &Ended| ended.is_at_risk(&seen.nodes[ended.node], fills);
        let audit = Audit::of(&seen.lanes, is_at_risk, &audit::finished_of(&entries, run));
        let of_trainers = lives.audit(&entries, TRAINER_LANES as usize)?;
        // A coordinator that was killed has forgotten what nodes still have of the runs.
        let complete = audit.lost.len() as u64 + of_trainers.lost + of_trainers.otherwise == 0;
        if complete || Instant::now() >= until {
            return Ok((audit, of_trainers));
        }
        thread::sleep(Duration::from_secs(1));
    }
}

/// Returns what processes hold beyond what they held before; they are given a while to release it.
fn released(before: &[Held], now: impl Fn() -> Result<Vec<Held>, Failure>) -> Result<Held, Failure> {
    let until = Instant::now() + RELEASED_WITHIN;
    loop {
        let beyond = now()?.into_iter().zip(before).map(|(held, before)| held.beyond(*before));
        let beyond = beyond.fold(Held::default(), Held::plus);
        if beyond == Held::default() || Instant::now() >= until {
            return Ok(beyond);
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// Counts the sockets that processes left in the folder.
fn socket_files(folder: &Path) -> Result<u64, Failure> {
    use std::os::unix::fs::FileTypeExt;
    let mut found = 0;
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            let inside = fs::read_dir(path).map_err(failed)?.flatten();
            found += inside.filter(|e| e.file_type().is_ok_and(|kind| kind.is_socket())).count() as u64;
        }
    }
    Ok(found)
}

/// The env. Its episodes last some hundreds of steps, so that a long run has not too many of them.
const ENV: &str = "Acrobot-v1";
const LANES: usize = 64;
const NODES: usize = 3;
/// Number of trainers that are processes of their own.
const TRAINERS: usize = 2;
/// Longest wait for a step or anything else: several faults in turn take less.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time within which recordings must be known: nodes that could not ship try again within 30 s.
const KNOWN_WITHIN: Duration = Duration::from_secs(35);
const SHIPPED_WITHIN: Duration = Duration::from_secs(60);
/// Time within which sessions must end: connections are given up after 15 s, and a lease is 30 s.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(60);
const RELEASED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Pause between steps beside tenants: a learner learns meanwhile.
const THINKS: Duration = Duration::from_millis(5);
