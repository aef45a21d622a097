//! All crews of an engine, as its owner holds them, and their threads.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::Mutex;
use rollhouse_arena::Patience;

use crate::block::Turn;
use crate::config::MAX_SUB_BATCHES;
use crate::crew::{Crew, Order, Orders, work};
use crate::error::{ConfigError, StepError};
use crate::first_done::{Received, TaskChannels, ToCrew};
use crate::timings::Timings;

/// The crews of an engine: the first is stepped by the caller's thread, each other one by a thread of its own.
pub(crate) struct Crews {
    pub(crate) own: Crew,
    pub(crate) others: Vec<Worker>,
    /// Sub-batches that other crews have stepped, each with the index of its crew.
    pub(crate) results: Receiver<(usize, Received)>,
    pub(crate) patience: Patience,
    pub(crate) orders: Arc<Orders>,
}

/// Thread of a crew, as the owner holds it.
pub(crate) struct Worker {
    pub(crate) range: Range<usize>,
    /// The crew, which its thread steps, or the owner where the thread comes late.
    pub(crate) crew: Arc<Mutex<Crew>>,
    pub(crate) tasks: SyncSender<ToCrew>,
    pub(crate) thread: Option<JoinHandle<()>>,
}

impl Crews {
    /// Starts a thread for every crew but the first, which is the caller's.
    pub(crate) fn start(crews: Vec<Crew>, patience: Patience, started: Instant) -> Result<Self, ConfigError> {
        let orders = Arc::new(Orders::default());
        let mut crews = crews.into_iter();
        let Some(own) = crews.next() else { return Err(ConfigError::Threads(0)) };
        // The caller's own crew leaves its results with the owner.
        let (send_results, results) = sync_channel(MAX_SUB_BATCHES * crews.len());
        let mut others = Vec::new();
        for (index, crew) in crews.enumerate() {
            // One place more than the owner uses, for the message that ends them.
            let (tasks, take_tasks) = sync_channel(MAX_SUB_BATCHES + 1);
            let channels = TaskChannels {
                tasks: Mutex::new(take_tasks),
                results: send_results.clone(),
                crew: index + 1,
            };
            let (range, turns, orders) = (crew.range(), crew.share.turns(), Arc::clone(&orders));
            let crew = Arc::new(Mutex::new(crew));
            let its_crew = Arc::clone(&crew);
            // Task: crew.
            let thread = std::thread::Builder::new()
                .name(format!("rollhouse-step-{}", index + 1))
                .spawn(move || work(&its_crew, turns, &orders, &channels, patience, started))
                .map_err(ConfigError::Thread)?;
            others.push(Worker { range, crew, tasks, thread: Some(thread) });
        }
        Ok(Self { own, others, results, patience, orders })
    }

    /// Steps the crews whose threads have not begun to: where something else has their core, they may not for
    /// milliseconds.
    #[inline]
    pub(crate) fn step_late(&self, turn: Turn, sampled: bool) {
        for worker in &self.others {
            if let Some(mut crew) = worker.crew.try_lock() {
                crew.step(turn, sampled);
            }
        }
    }

    /// Returns the times that the crews measured, as of their last [`Order::Report`].
    pub(crate) fn timings(&self) -> Timings {
        let mut timings = self.own.timings;
        timings.merge(&self.orders.take_report());
        timings
    }

    /// Waits for the threads, which have been told to stop, and returns the times that all crews measured.
    pub(crate) fn join(&mut self) -> Result<Timings, StepError> {
        let mut timings = self.own.timings;
        for worker in &mut self.others {
            worker.thread.take().and_then(|thread| thread.join().ok()).ok_or(StepError::Hung)?;
            timings.merge(&worker.crew.lock().timings);
        }
        Ok(timings)
    }

    /// Gives an order in which the caller's own crew has nothing to do.
    pub(crate) fn give(&self, order: Order, turn: Turn) {
        self.orders.give(order, turn, false);
    }

    /// Takes the own crew's part of a turn in which it has nothing to do, or nothing more.
    pub(crate) fn pass(&mut self, turn: Turn) {
        if self.own.late { self.own.end_posting(turn) } else { drop(self.own.share.begin()) }
    }
}
