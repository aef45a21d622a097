//! Which lanes of a session a trainer sends at a time, and what it takes of them. The client library's own
//! [`SessionQueue`](rollhouse_client::SessionQueue) decides which lanes a request names, and when it is hastened.

use std::time::Duration;

use rollhouse_wire::{BatchPlaces, ColumnBuffer, FrameLayout};

use crate::context::Context;
use crate::late::is_slow;
use crate::network::IDLE;

/// Lanes of a session, some of which are under way.
#[derive(Debug)]
pub(crate) struct FirstDone {
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

/// Lanes that are sent, and for how many is waited.
pub(crate) struct Drawn {
    pub(crate) lanes: Vec<u32>,
    pub(crate) wanted: usize,
    pub(crate) usual: usize,
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
    pub(crate) fn new(lanes: u32) -> Self {
        Self { sent: vec![false; lanes as usize], wanted: 0, usual: 1, has_begun: false, hastened: None }
    }

    /// Draws lanes to send of those that are not under way, and for how many is waited.
    pub(crate) fn draw(&mut self, ctx: &mut Context<'_>) -> Drawn {
        let lanes = self.sent.len() as u32;
        let mut drawn = Vec::new();
        for lane in 0..lanes {
            if !self.sent[lane as usize] && ctx.random.chance(SENT_PER_MILLE) {
                drawn.push(lane);
                self.sent[lane as usize] = true;
            }
        }
        // The slow one may take until others are sent again.
        let sure = (0..lanes).filter(|&lane| self.sent[lane as usize] && !is_slow(lane, lanes)).count();
        self.wanted = ctx.random.within(0, sure as u64) as usize;
        self.usual = if self.wanted > 0 { self.wanted } else { self.usual };
        Drawn { lanes: drawn, wanted: self.wanted, usual: self.usual }
    }

    /// Takes lanes that were answered.
    pub(crate) fn take(&mut self, lanes: &[u32]) {
        for &lane in lanes {
            let sent = std::mem::take(&mut self.sent[lane as usize]);
            assert!(sent, "lane {lane} is answered and was not sent, or is answered twice");
        }
        (self.wanted, self.hastened) = (0, None);
    }

    /// Notes that the node has answered.
    pub(crate) const fn heard(&mut self) {
        self.hastened = None;
    }

    /// Gives up lanes that do not move.
    pub(crate) fn give_up(&mut self, lanes: &[u32]) {
        lanes.iter().for_each(|&lane| self.sent[lane as usize] = false);
    }

    /// Gives up all lanes. Returns whether any was under way.
    pub(crate) fn lose_all(&mut self) -> bool {
        (self.wanted, self.hastened) = (0, None);
        let any = self.sent.contains(&true);
        self.sent.fill(false);
        any
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
