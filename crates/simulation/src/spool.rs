//! A node's spool: the real recorder and shipper.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::{Claimant, WhenFull};
use rollhouse_node::{ShipAction, ShipEvent, Shipper, ShipperConfig, owner_parts};
use rollhouse_replay::testing::{DrivenRecorder, FaultyDisk};
use rollhouse_replay::{OnOutage, Recorder, RecorderConfig};
use rollhouse_wire::{NodeLoad, Ship};

use crate::cast::{name, spool_dir};
use crate::context::Context;
use crate::ledger::SegmentId;
use crate::message::{Message, Question, Response};

#[derive(Debug)]
pub(crate) struct Spool {
    node: usize,
    disk: FaultyDisk,
    driven: DrivenRecorder,
    spool: rollhouse_replay::Spool,
    name: String,
    shipper: Shipper,
    conn: Option<u64>,
    attempts: BTreeMap<u64, Attempt>,
    /// Segments that are about to be removed, and whether they are dropped.
    removals: Vec<(u64, bool)>,
    /// Segments that are about to be moved to the place of what the store has set aside.
    asides: Vec<u64>,
    turn_at: Duration,
    found_bytes: u64,
    /// The owners of whom the recorder takes nothing.
    held_owners: BTreeSet<Claimant>,
}

#[derive(Debug)]
struct Attempt {
    number: u64,
    deadline: Duration,
}

impl Spool {
    /// Returns the node's disk.
    pub(crate) const fn disk(&self) -> &FaultyDisk {
        &self.disk
    }

    pub(crate) fn open(
        node: usize,
        disk: &FaultyDisk,
        on_outage: OnOutage,
        ctx: &mut Context<'_>,
    ) -> Option<Self> {
        let config = RecorderConfig {
            budget_bytes: u64::MAX,
            seal_after: Some(Duration::from_secs(5)),
            on_outage,
            ..RecorderConfig::default()
        };
        let session = ctx.number() as u32;
        let driven =
            DrivenRecorder::open(Arc::new(disk.clone()), &spool_dir(), config, session, ctx.now).ok()?;
        let spool = driven.recorder().spool();
        let name_of_it = spool.name().ok()?;
        ctx.ledger.folder(node, &format!("{}-{name_of_it}", name(node)));
        let when_full = match on_outage {
            OnOutage::Wait => WhenFull::BackPressure,
            OnOutage::Lose => WhenFull::Drop,
        };
        let shipper = Shipper::new(ShipperConfig { spool_bytes: SPOOL_BYTES, when_full, seed: node as u64 });
        let found_bytes = spool.sealed().iter().map(|segment| segment.bytes).sum();
        let mut opened = Self {
            node,
            disk: disk.clone(),
            driven,
            spool,
            name: name_of_it,
            shipper,
            conn: None,
            attempts: BTreeMap::new(),
            removals: Vec::new(),
            asides: Vec::new(),
            turn_at: ctx.now,
            found_bytes,
            held_owners: BTreeSet::new(),
        };
        // What the crash left unsealed is sealed now.
        opened.note_sealed(ctx);
        Some(opened)
    }

    pub(crate) fn set_wall(&mut self, ahead_ms: i64) {
        self.driven.set_wall(ahead_ms);
    }

    pub(crate) fn recorder(&self) -> &Arc<Recorder> {
        self.driven.recorder()
    }

    pub(crate) fn wake_at(&self) -> Duration {
        let wakes = self.shipper.wake_at().into_iter().chain(self.attempts.values().map(|a| a.deadline));
        wakes.fold(self.turn_at, Duration::min)
    }

    pub(crate) fn load(&self, load: &mut NodeLoad) {
        let counts = self.shipper.counts();
        load.spool_left = counts.left_bytes;
        let written = self.driven.recorder().status().recorded;
        let recorded = self.found_bytes + written.bytes - written.torn_bytes + counts.offered_again;
        load.spool_bytes = recorded.saturating_sub(load.spool_left);
        load.spool_dropped = counts.dropped_episodes;
    }

    /// Lets the writer do its work.
    pub(crate) fn write(&mut self, ctx: &mut Context<'_>) {
        self.driven.turn(ctx.now);
        self.note_sealed(ctx);
    }

    pub(crate) fn write_out(&mut self, ctx: &mut Context<'_>) {
        self.driven.write_out(ctx.now);
        self.note_sealed(ctx);
    }

    pub(crate) fn seal(&mut self, ctx: &mut Context<'_>) {
        self.driven.seal(ctx.now);
        self.note_sealed(ctx);
    }

    /// Does one look of the shipping task and one of the writer, and everything that is due.
    pub(crate) fn turn(&mut self, conn: Option<u64>, ctx: &mut Context<'_>) {
        self.conn = conn;
        self.turn_at = ctx.now + LOOK_EVERY;
        self.write(ctx);
        for (number, dropped) in std::mem::take(&mut self.removals) {
            self.take_away(number, dropped, ctx);
        }
        for number in std::mem::take(&mut self.asides) {
            let event = match self.spool.set_aside(number) {
                Ok(()) => ShipEvent::TakenAway { number, episodes: None },
                Err(_) => ShipEvent::Stuck { number },
            };
            self.tell(event, ctx);
        }
        for segment in self.spool.sealed() {
            self.shipper.segment_is_of(segment.number, || self.spool.owned(segment.number));
            self.tell(ShipEvent::Spooled(segment), ctx);
        }
        let status = self.driven.recorder().status();
        self.shipper.open_is_of(&status.open_owned);
        self.tell(ShipEvent::Open { bytes: status.open_bytes }, ctx);
        let held = self.shipper.held_owners().clone();
        self.held_owners.difference(&held).for_each(|owner| self.recorder().hold_owner(owner, false));
        held.difference(&self.held_owners).for_each(|owner| self.recorder().hold_owner(owner, true));
        self.held_owners = held;
        let late: Vec<u64> =
            self.attempts.iter().filter(|(_, a)| a.deadline <= ctx.now).map(|(&ask, _)| ask).collect();
        for ask in late {
            let number = self.attempts.remove(&ask).expect("it was just listed").number;
            self.tell(ShipEvent::Failed { number, retry_after: None }, ctx);
        }
        self.tell(ShipEvent::Tick, ctx);
    }

    pub(crate) fn connected(&mut self, conn: u64, ctx: &mut Context<'_>) {
        self.conn = Some(conn);
        self.tell(ShipEvent::Connected, ctx);
    }

    pub(crate) fn disconnected(&mut self, ctx: &mut Context<'_>) {
        self.conn = None;
        self.attempts.clear();
        self.tell(ShipEvent::Disconnected, ctx);
    }

    /// Takes in an answer. Returns whether it was one to a segment that was shipped.
    pub(crate) fn answered(&mut self, ask: u64, response: &Response, ctx: &mut Context<'_>) -> bool {
        match response {
            Response::Shipped(answer) => {
                if let Some(Attempt { number, .. }) = self.attempts.remove(&ask) {
                    self.tell(ShipEvent::Answered { number, answer: *answer }, ctx);
                }
                true
            }
            Response::Refused(refusal) => {
                let Some(Attempt { number, .. }) = self.attempts.remove(&ask) else { return false };
                ctx.count("shipping refused");
                let retry_after = refusal.retry_after_ms.map(Duration::from_millis);
                self.tell(ShipEvent::Failed { number, retry_after }, ctx);
                true
            }
            _ => false,
        }
    }

    fn tell(&mut self, event: ShipEvent, ctx: &mut Context<'_>) {
        let mut actions = Vec::new();
        self.shipper.handle(ctx.now, event, &mut actions);
        for action in actions {
            match action {
                ShipAction::Ship(segment) => self.ship(segment.number, ctx),
                ShipAction::TakeAway { number, dropped } => self.removals.push((number, dropped)),
                ShipAction::SetAside { number } => self.asides.push(number),
                ShipAction::Hold(held) => {
                    ctx.count("recorder held or let go");
                    self.driven.recorder().hold(held);
                }
            }
        }
    }

    fn ship(&mut self, number: u64, ctx: &mut Context<'_>) {
        let Some(conn) = self.conn else {
            return self.tell(ShipEvent::Failed { number, retry_after: None }, ctx);
        };
        let path = rollhouse_replay::segment_path(&spool_dir(), number);
        let bytes = self.disk.read(&path).expect("what is sealed is there");
        let crc = crc32c::crc32c(&bytes);
        let owned = owner_parts(&self.spool.owned(number));
        ctx.ledger.shipped_as(SegmentId { node: self.node, number }, &owned);
        let ship = Ship { spool: self.name.clone(), segment: number, bytes: bytes.len() as u64, crc, owned };
        let ask = ctx.number();
        self.attempts.insert(ask, Attempt { number, deadline: ctx.now + STALL });
        ctx.send(conn, Message::Ask(ask, Question::Ship(ship, Arc::new(bytes))));
    }

    fn take_away(&mut self, number: u64, dropped: bool, ctx: &mut Context<'_>) {
        let id = SegmentId { node: self.node, number };
        if dropped {
            ctx.count("segment dropped");
            ctx.ledger.dropped(id);
        } else {
            ctx.ledger.removed(id);
        }
        let episodes = self.spool.episodes(number).ok();
        let event = match self.spool.take_away(number) {
            Ok(()) => ShipEvent::TakenAway { number, episodes },
            Err(_) => {
                ctx.count("segment could not be removed");
                ShipEvent::Stuck { number }
            }
        };
        self.tell(event, ctx);
    }

    fn note_sealed(&mut self, ctx: &mut Context<'_>) {
        for segment in self.spool.sealed() {
            let id = SegmentId { node: self.node, number: segment.number };
            if ctx.ledger.sealed(id, &self.disk, &spool_dir()) {
                ctx.count("segment sealed");
            }
        }
    }

    pub(crate) fn check(&self) {
        let counts = self.shipper.counts();
        let parts = [counts.shipped, counts.aside, counts.dropped, counts.waiting];
        assert_eq!(counts.offered.segments, parts.iter().map(|part| part.segments).sum::<u64>());
        assert_eq!(counts.offered.bytes, parts.iter().map(|part| part.bytes).sum::<u64>());
    }

    pub(crate) fn check_idle(&self) {
        assert!(self.shipper.is_empty(), "segments were never shipped");
        assert_eq!(self.driven.recorder().status().open_bytes, 0, "a segment was never sealed");
    }
}

/// Size of the spool: so small that a coordinator that is away for a minute fills it.
const SPOOL_BYTES: u64 = 60_000;
/// Interval at which the spool is looked at, as by the shipping task.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const STALL: Duration = Duration::from_secs(60);
