//! The faults: they are drawn, made to happen, and counted, and so is how long the trainer took to recover.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rollhouse_cli::failure::{Failure, Status};
use rollhouse_metrics::ProcessSample;
use serde::Serialize;

use super::audit::Held;
use super::killed_trainers::Trainers;
use super::links::Links;
use super::plan::{Cut, Fault, Harm, Link, Plan, ProcessFault, Target};
use super::processes::Processes;
use super::tenants::{TenantFigures, Tenants};
use super::trainer::{Fill, Progress};
use super::{LANES, LOOK_AGAIN, NODES, PATIENCE, TRAINERS};
use crate::args::ChaosArgs;
use crate::failed::failed;

/// The faults, and how the trainer copes with them.
pub(super) struct Storm<'a> {
    args: &'a ChaosArgs,
    progress: &'a Progress,
    plan: Plan,
    /// Whether tenants flood now.
    with_tenants: bool,
    pub(super) began: Instant,
    pub(super) faults: Faults,
    /// Faults that hit lanes, until the trainer has recovered from them.
    open: Vec<Open>,
    pub(super) recoveries: Vec<Recovery>,
    /// All faults that happened, in their order.
    pub(super) happened: Vec<Happened>,
    /// Samples of the trainer's process, once a second.
    pub(super) samples: Vec<Sample>,
    /// Resources that coordinator and nodes held before the first fault.
    pub(super) held: Vec<Held>,
    pub(super) undisturbed: f64,
    pub(super) disturbed: f64,
    /// What tenants did, if there were any.
    pub(super) tenants: Vec<TenantFigures>,
}

/// A fault that hit lanes, and from which the trainer has not recovered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    kind: Kind,
    since: Instant,
    lasts: Duration,
    /// The batch after which the trainer has recovered. `None` while that is not known.
    batch: Option<u64>,
    /// Whether something was silent during it: a process was paused, or a link cut.
    amid_silence: bool,
    /// Whether the coordinator was away during it: without the coordinator no lane gets another place.
    uncoordinated: bool,
}

/// A fault that happened, whether it hit lanes or not.
#[derive(Debug, Clone)]
pub(super) struct Happened {
    pub(super) fault: Fault,
    pub(super) at: Instant,
}

/// Time for which a fault that hit lanes delayed the trainer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recovery {
    pub(super) kind: Kind,
    pub(super) since: Instant,
    /// Time from its beginning to the end of the first batch that was begun after it.
    pub(super) took: Duration,
    /// The part of it for which the fault itself lasted.
    pub(super) lasted: Duration,
    /// Whether something was silent during it.
    pub(super) amid_silence: bool,
    /// Whether the coordinator was away during it.
    pub(super) uncoordinated: bool,
}

/// The kind of fault that delayed lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Kill,
    Pause,
    Fill,
    Cut,
}

/// A sample of the trainer's process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// Seconds since the first fault.
    pub(super) seconds: f64,
    pub(super) resident: u64,
    pub(super) descriptors: u64,
}

/// Number of faults of each kind.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Faults {
    pub(super) node_killed: u64,
    pub(super) node_paused: u64,
    pub(super) node_disk_full: u64,
    pub(super) coordinator_killed: u64,
    pub(super) coordinator_paused: u64,
    pub(super) coordinator_disk_full: u64,
    pub(super) link_cut: u64,
    pub(super) link_cut_one_way: u64,
    pub(super) trainer_killed: u64,
    /// Number of times that a backup took the place of the coordinator's folder.
    pub(super) coordinator_restored: u64,
}

/// The processes and links to which faults happen.
pub(super) struct FaultTargets<'a> {
    pub(super) processes: &'a mut Processes,
    pub(super) links: &'a mut Links,
    pub(super) trainers: &'a mut Trainers,
    /// Those who flood in the end, if any do.
    pub(super) tenants: Option<Tenants>,
}

impl<'a> Storm<'a> {
    pub(super) fn new(args: &'a ChaosArgs, progress: &'a Progress) -> Self {
        Self {
            args,
            progress,
            plan: Plan::new(args.seed, NODES, TRAINERS),
            with_tenants: false,
            began: Instant::now(),
            faults: Faults::default(),
            open: Vec::new(),
            recoveries: Vec::new(),
            happened: Vec::new(),
            samples: Vec::new(),
            held: Vec::new(),
            undisturbed: 0.0,
            disturbed: 0.0,
            tenants: Vec::new(),
        }
    }

    /// Steps undisturbed for a while, then makes faults happen until there were enough for long enough, and waits until
    /// everything that they hit runs again.
    pub(super) fn rage(mut self, hit: &mut FaultTargets<'_>) -> Result<Self, Failure> {
        let quarter = Duration::from_secs(15 * u64::from(self.args.minutes));
        let calm = quarter.clamp(LEAST_CALM, MOST_CALM);
        self.began = Instant::now();
        let steps = self.batches();
        while self.began.elapsed() < calm && !self.trainer_has_failed() {
            thread::sleep(LOOK_AGAIN);
        }
        self.undisturbed = self.rate(steps);
        self.held = hit.processes.held()?;

        let steps = self.batches();
        self.began = Instant::now();
        let time = Duration::from_secs(60 * u64::from(self.args.minutes));
        if hit.tenants.is_some() {
            hit.processes.backups.back_up();
            self.progress.waits.begin();
            self.blow(hit, time / ALONE_PART, 0)?;
            self.progress.waits.tenants_come();
        }
        self.with_tenants = hit.tenants.is_some();
        self.blow(hit, time, self.args.kills)?;
        let until = Instant::now() + PATIENCE;
        while !self.turn(hit)?.1 || !self.open.is_empty() || !hit.processes.backups.is_settled() {
            if Instant::now() >= until {
                return Err(Failure::new(Status::Failed, "the trainer did not go on after the last fault"));
            }
        }
        self.disturbed = self.rate(steps);
        if let Some(tenants) = hit.tenants.take() {
            self.tenants = tenants.end()?;
        }
        Ok(self)
    }

    /// Makes faults happen for that time, and until so many processes were killed.
    fn blow(&mut self, hit: &mut FaultTargets<'_>, time: Duration, kills: u64) -> Result<(), Failure> {
        let began = Instant::now();
        let kills = self.kills() + kills;
        let pace = if hit.tenants.is_some() { PACE_BESIDE_TENANTS } else { 1 };
        let (mut next, mut restore) = (began, began + RESTORE_EVERY);
        let mut fault = self.plan.next();
        let mut alone = false;
        while began.elapsed() < time || self.kills() < kills {
            let (now, well) = self.turn(hit)?;
            let quiet = !alone || well && self.open.is_empty();
            if !quiet {
                next = now + fault.rest * pace;
            } else if now >= next {
                if self.strike(hit, fault, now)? {
                    self.happened.push(Happened { fault, at: now });
                    (next, alone) = (now + fault.rest * pace, fault.alone);
                }
                fault = self.plan.next();
            }
            if hit.tenants.is_some() && now >= restore && hit.processes.restore().map_err(failed)? {
                self.faults.coordinator_restored += 1;
                restore = now + RESTORE_EVERY;
            }
        }
        Ok(())
    }

    /// Does what is due at this moment. Returns whether nothing is wrong except what the trainer has yet to recover
    /// from.
    fn turn(&mut self, hit: &mut FaultTargets<'_>) -> Result<(Instant, bool), Failure> {
        thread::sleep(TURN);
        let now = Instant::now();
        let FaultTargets { processes, links, trainers, tenants } = hit;
        trainers.turn(now)?;
        if let Some(tenants) = tenants.as_mut().filter(|_| self.with_tenants) {
            tenants.turn()?;
        }
        let whole = links.turn(now);
        let well = processes.turn(now)? && whole;
        for fill in self.progress.fills().iter_mut().rev().take_while(|fill| fill.until.is_none()) {
            let has_room = processes.node(&fill.node).is_none_or(|node| processes.has_room(node));
            fill.until = has_room.then_some(now);
        }
        let batches = self.batches();
        let silence = !whole || processes.is_one_paused();
        let away = !processes.is_up(Target::Coordinator);
        self.open.retain_mut(|open| {
            open.amid_silence |= silence;
            open.uncoordinated |= away;
            // A full disk is noticed later than it is full: what counts is the first batch after it.
            let known = open.batch.is_some() || now >= open.since + open.lasts;
            let over = known && batches >= *open.batch.get_or_insert(batches + 2);
            if over {
                let took = now - open.since;
                let Open { kind, since, lasts, amid_silence, uncoordinated, .. } = *open;
                let lasted = lasts.min(took);
                self.recoveries.push(Recovery { kind, since, took, lasted, amid_silence, uncoordinated });
            }
            !over
        });
        let seconds = self.began.elapsed().as_secs_f64();
        if self.samples.last().is_none_or(|last| seconds - last.seconds >= SAMPLE_EVERY) {
            let ProcessSample { resident_bytes: resident, .. } = ProcessSample::now().map_err(failed)?;
            let Held { sockets, descriptors, .. } = Held::now()?;
            self.samples.push(Sample { seconds, resident, descriptors: sockets + descriptors });
        }
        if self.trainer_has_failed() {
            self.open.clear();
            return Err(Failure::new(Status::Failed, "a step of the trainer failed"));
        }
        Ok((now, well))
    }

    /// Does harm to a process, and tells the trainers that lanes of theirs may be lost by it.
    fn hurt(
        &self,
        hit: &mut FaultTargets<'_>,
        (target, blow): (Target, ProcessFault),
        lasts: Duration,
        now: Instant,
    ) -> Result<(), Failure> {
        let FaultTargets { processes, trainers, .. } = hit;
        let until = now + lasts;
        if let (Some(node), ProcessFault::Kill | ProcessFault::Fill) = (processes.name(target), blow) {
            trainers.harmed(node, if blow == ProcessFault::Fill { lasts } else { Duration::ZERO });
        }
        match blow {
            ProcessFault::Kill => processes.kill(target, until),
            ProcessFault::Pause => processes.pause(target, until),
            ProcessFault::Fill => {
                if let Some(node) = processes.name(target) {
                    let fill = Fill { node: node.to_owned(), from: now, until: None };
                    self.progress.fills().push(fill);
                }
                processes.fill(target, until)
            }
        }
        .map_err(failed)
    }

    /// Makes a fault happen, if its target is well. Returns whether it happened.
    fn strike(&mut self, hit: &mut FaultTargets<'_>, fault: Fault, now: Instant) -> Result<bool, Failure> {
        let until = now + fault.lasts;
        let (counter, kind, node) = match fault.harm {
            Harm::Trainer(index) => {
                let playing = hit.trainers.is_playing(index)?;
                if playing {
                    hit.trainers.kill(index, until).map_err(failed)?;
                    self.faults.trainer_killed += 1;
                }
                return Ok(playing);
            }
            Harm::Link(link, _) if hit.links.address(link).is_none() => return Ok(false),
            Harm::Link(link, _) if !hit.links.is_whole(link) => return Ok(false),
            Harm::Process(target, _) if !hit.processes.is_up(target) => return Ok(false),
            Harm::Process(target, ProcessFault::Fill) if !hit.processes.has_room(target) => return Ok(false),
            Harm::Link(link, cut) => {
                hit.links.cut(link, cut, until);
                let counter = match cut {
                    Cut::Both => &mut self.faults.link_cut,
                    Cut::There | Cut::Back => &mut self.faults.link_cut_one_way,
                };
                let node = if let Link::TrainerNode(node) = link { Some(Target::Node(node)) } else { None };
                (counter, Kind::Cut, node)
            }
            Harm::Process(target, blow) => {
                self.hurt(hit, (target, blow), fault.lasts, now)?;
                let is_node = matches!(target, Target::Node(_));
                let faults = &mut self.faults;
                let (counter, kind) = match (is_node, blow) {
                    (true, ProcessFault::Kill) => (&mut faults.node_killed, Kind::Kill),
                    (true, ProcessFault::Pause) => (&mut faults.node_paused, Kind::Pause),
                    (true, ProcessFault::Fill) => (&mut faults.node_disk_full, Kind::Fill),
                    (false, ProcessFault::Kill) => (&mut faults.coordinator_killed, Kind::Kill),
                    (false, ProcessFault::Pause) => (&mut faults.coordinator_paused, Kind::Pause),
                    (false, ProcessFault::Fill) => (&mut faults.coordinator_disk_full, Kind::Fill),
                };
                (counter, kind, is_node.then_some(target))
            }
        };
        *counter += 1;
        let name = node.and_then(|node| hit.processes.name(node));
        if name.is_some_and(|name| self.progress.nodes().iter().any(|node| node == name)) {
            // The batch after the one that is under way was begun later than this.
            let batch = (kind != Kind::Fill).then(|| self.batches() + 2);
            self.open.push(Open {
                kind,
                since: now,
                lasts: fault.lasts,
                batch,
                amid_silence: false,
                uncoordinated: false,
            });
        }
        Ok(true)
    }

    fn kills(&self) -> u64 {
        self.faults.node_killed + self.faults.coordinator_killed + self.faults.trainer_killed
    }

    pub(super) fn batches(&self) -> u64 {
        self.progress.batches.load(Ordering::Acquire)
    }

    /// Returns the steps a second since there were `steps` batches.
    fn rate(&self, steps: u64) -> f64 {
        (self.batches() - steps) as f64 * LANES as f64 / self.began.elapsed().as_secs_f64()
    }

    fn trainer_has_failed(&self) -> bool {
        self.progress.failed.load(Ordering::Relaxed)
    }
}

/// Shortest time for which the trainer steps before the first fault: a quarter of the whole time, within these two.
const LEAST_CALM: Duration = Duration::from_secs(5);
const MOST_CALM: Duration = Duration::from_secs(60);
const TURN: Duration = Duration::from_millis(2);
/// Seconds between samples of memory.
const SAMPLE_EVERY: f64 = 1.0;
/// Part of the time with tenants for which the same kinds of faults happen without them before.
const ALONE_PART: u32 = 4;
/// How many times longer the rests between faults are in a run with tenants, so that waits for others are not lost among
/// those for what has failed.
const PACE_BESIDE_TENANTS: u32 = 8;
/// Time between two restores of the coordinator's folder.
const RESTORE_EVERY: Duration = Duration::from_secs(90);
