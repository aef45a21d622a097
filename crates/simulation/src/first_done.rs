//! How a trainer sends the lanes of a session some at a time, and takes them as they are done. The client library's own
//! [`SessionQueue`] decides which lanes a request names, and when it is hastened.

use std::time::Duration;

use rollhouse_client::{SendRequest, SessionQueue};
use rollhouse_core::ColumnRef;
use rollhouse_wire::{BatchPlaces, ColumnBuffer, FrameLayout, Incarnation};

use crate::context::Context;
use crate::late::is_slow;
use crate::network::IDLE;

/// Lanes of a session, some of which are under way.
#[derive(Debug)]
pub(crate) struct FirstDone {
    pub(crate) queue: SessionQueue,
    /// Whether a lane was sent and not taken.
    sent: Vec<bool>,
    /// Number of lanes for which the caller still waits.
    wanted: usize,
    /// Number of lanes for which it waited last, or the time before.
    usual: usize,
    /// Whether all lanes were reset, so that some can be sent.
    pub(crate) has_begun: bool,
    hastened: Option<Hastened>,
}

/// A request for whose answer lanes wait that can be done at once.
#[derive(Debug, Clone, Copy)]
struct Hastened {
    stream: u64,
    since: Duration,
    /// How often the node was heard of by then.
    heard: u64,
}

impl FirstDone {
    pub(crate) fn new(lanes: u32, layout: &FrameLayout) -> Self {
        Self {
            queue: SessionQueue::new(lanes as usize, layout),
            sent: vec![false; lanes as usize],
            wanted: 0,
            usual: 1,
            has_begun: false,
            hastened: None,
        }
    }

    /// Sends some of the lanes that are not under way, each with its action, and draws for how many is waited.
    pub(crate) fn send(&mut self, action: impl Fn(u32) -> i64, ctx: &mut Context<'_>) {
        let lanes = self.sent.len() as u32;
        for lane in 0..lanes {
            if !self.sent[lane as usize] && ctx.random.chance(SENT_PER_MILLE) {
                self.queue.push(lane, ColumnRef::I64(&[action(lane)]));
                self.sent[lane as usize] = true;
            }
        }
        // The slow one may take until others are sent again.
        let sure = (0..lanes).filter(|&lane| self.sent[lane as usize] && !is_slow(lane, lanes)).count();
        self.wanted = ctx.random.within(0, sure as u64) as usize;
        self.usual = if self.wanted > 0 { self.wanted } else { self.usual };
    }

    /// Returns whether nothing is to be waited for, and nothing to be asked.
    pub(crate) fn is_done(&self) -> bool {
        self.wanted == 0 && !self.queue.has_fresh()
    }

    /// Returns whether as many lanes have come as were waited for.
    pub(crate) const fn is_content(&self) -> bool {
        self.wanted == 0
    }

    /// Returns the number of lanes for which a request is to wait.
    pub(crate) const fn min(&self) -> usize {
        if self.wanted == 0 { self.usual } else { self.wanted }
    }

    /// Returns whether the request under way is to be hastened now.
    pub(crate) fn is_to_hasten(&mut self) -> bool {
        let least = (self.wanted > 0).then_some(self.wanted);
        self.queue.is_to_hasten(least)
    }

    /// Makes the next request.
    pub(crate) fn ask(&mut self, layout: &FrameLayout, placed: Incarnation) -> bool {
        let min = self.min();
        self.queue.ask(layout, min, placed).is_some()
    }

    /// Takes the rows of an answer.
    pub(crate) fn take(&mut self, asked: &SendRequest, rows: &SomeRows) {
        for &lane in &rows.lanes {
            let sent = std::mem::take(&mut self.sent[lane as usize]);
            assert!(sent, "lane {lane} is answered and was not sent, or is answered twice");
        }
        self.queue.answered(asked, rows.lanes.iter().copied());
        self.wanted = self.wanted.saturating_sub(rows.lanes.len());
        self.hastened = None;
    }

    /// Notes that the node has answered otherwise than with rows.
    pub(crate) const fn heard(&mut self) {
        self.hastened = None;
    }

    /// Gives up lanes that do not move.
    pub(crate) fn give_up(&mut self, lanes: &[u32]) {
        lanes.iter().for_each(|&lane| self.sent[lane as usize] = false);
        (self.wanted, self.hastened) = (0, None);
    }

    /// Gives up all lanes.
    pub(crate) fn lose_all(&mut self, layout: &FrameLayout, placed: Incarnation) {
        let asked = self.queue.asked.take();
        if let Some(asked) = asked {
            self.queue.answered(&asked, asked.lanes.iter().copied());
        }
        self.queue.ask(layout, 1, placed);
        if let Some(asked) = self.queue.asked.take() {
            self.queue.answered(&asked, asked.lanes.iter().copied());
        }
        self.sent.fill(false);
        (self.wanted, self.hastened) = (0, None);
    }

    /// Checks that a request for whose answer lanes wait is answered by a node that is there: no pause of it is as
    /// long, and a connection of which nothing comes through is not kept for as long.
    pub(crate) fn check_hastened(&mut self, stream: Option<(u64, u64)>, ctx: &Context<'_>) {
        let (Some((stream, conn)), true) = (stream, self.wanted > 0) else {
            self.hastened = None;
            return;
        };
        let Some(heard) = ctx.heard(conn) else { return };
        let fresh = Hastened { stream, since: ctx.world_now, heard };
        let begun = *self.hastened.get_or_insert(fresh);
        if begun.stream != stream {
            self.hastened = Some(fresh);
            return;
        }
        let waits = ctx.world_now.saturating_sub(begun.since);
        assert!(
            waits < IDLE * 3 || heard < begun.heard + HEARD,
            "a node that is there does not answer for {waits:?} though lanes are done"
        );
    }
}

/// Rows of some lanes, as an answer has them.
#[derive(Debug)]
pub(crate) struct SomeRows {
    pub(crate) lanes: Vec<u32>,
    pub(crate) terminated: Vec<u8>,
    pub(crate) truncated: Vec<u8>,
    pub(crate) reset: Vec<u8>,
}

impl SomeRows {
    /// Reads the columns of an answer.
    pub(crate) fn read(layout: &FrameLayout, columns: &[u8]) -> Self {
        let mut buffer = ColumnBuffer::default();
        buffer.resize(columns.len());
        buffer.bytes_mut().copy_from_slice(columns);
        let count = buffer.count().expect("rows have a count") as usize;
        let places: BatchPlaces = layout.rows(count, false).expect("few rows");
        assert_eq!(places.bytes, columns.len(), "rows of {count} lanes");
        let flags = |place: &std::ops::Range<usize>| columns[place.clone()].to_vec();
        Self {
            lanes: buffer.lanes(&places.lanes).to_vec(),
            terminated: flags(&places.terminated),
            truncated: flags(&places.truncated),
            reset: flags(&places.reset),
        }
    }

    /// Returns whether an episode ended in that row.
    pub(crate) fn has_ended(&self, row: usize) -> bool {
        self.terminated[row] | self.truncated[row] != 0
    }
}

/// Returns the lanes that a request names.
pub(crate) fn named<'a>(layout: &FrameLayout, columns: &'a ColumnBuffer) -> &'a [u32] {
    let count = columns.count().expect("lanes are counted") as usize;
    columns.lanes(&layout.actions(count, true).expect("few lanes").lanes)
}

/// Returns the columns of a request that names lanes, with their actions as bytes.
pub(crate) fn columns_of(layout: &FrameLayout, lanes: &[u32], actions: &[u8]) -> ColumnBuffer {
    let places = layout.actions(lanes.len(), true).expect("few lanes");
    let mut columns = ColumnBuffer::default();
    columns.resize(places.bytes);
    columns.bytes_mut().fill(0);
    columns.set_count(&places.count, lanes.len() as u32);
    columns.lanes_mut(&places.lanes).copy_from_slice(lanes);
    columns.bytes_mut()[places.actions].copy_from_slice(actions);
    columns
}

/// Lanes that are sent of a thousand that can be.
const SENT_PER_MILLE: u64 = 600;
/// Number of times that a node is heard of at least in that time, if it is there.
const HEARD: u64 = 5;
