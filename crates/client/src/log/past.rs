//! Tells a log to another node.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use rollhouse_core::limits::{MAX_CALL_BYTES, MAX_GIVEN_OPTIONS_BYTES, MAX_METHOD_NAME_BYTES};
use rollhouse_core::{Call, ColumnData, OptionValue, PastEvent, Start};
use rollhouse_wire::limits::MAX_PAST_BYTES;
use rollhouse_wire::{options_bytes, put_past, put_played};

use super::SessionLog;

/// Gives a past in parts that fit a frame, the lanes side by side. The log that it comes from must not change
/// meanwhile.
#[derive(Debug, Default)]
pub(crate) struct PastReader {
    lanes: Vec<VecDeque<Event>>,
    /// The lane whose turn it is.
    at: usize,
    /// Most bytes of a record without its actions.
    record: usize,
}

/// An event in a lane; its rows are numbers of the log's rows.
#[derive(Debug, Clone)]
pub(super) enum Event {
    Began { number: u64, start: Start },
    Played { from: u64, to: u64 },
    Called(Call),
    Given(Arc<BTreeMap<String, OptionValue>>),
    Stood(u32),
    Lost { next: u64, start: Start, held: bool },
}

impl PastReader {
    /// Makes the reader of those events of each lane.
    pub(super) fn new(lanes: Vec<VecDeque<Event>>) -> Self {
        let record = lanes.iter().flatten().map(Event::record_bytes).max().unwrap_or(RECORD_BYTES);
        Self { lanes, at: 0, record }
    }

    /// Returns the columns of the next resume frame; `None` when all is told.
    pub(crate) fn next(&mut self, log: &SessionLog) -> Option<Bytes> {
        let left = self.lanes.iter().filter(|events| !events.is_empty()).count();
        if left == 0 {
            return None;
        }
        let least = self.record + log.action.row_bytes().next_multiple_of(8);
        let share = (MAX_PAST_BYTES / left).max(least);
        let mut out = Vec::with_capacity(MAX_PAST_BYTES);
        for _ in 0..self.lanes.len() {
            if out.len() + share > MAX_PAST_BYTES {
                break;
            }
            let until = out.len() + share;
            self.put(log, self.at, until, &mut out);
            self.at = (self.at + 1) % self.lanes.len();
        }
        Some(Bytes::from(out))
    }

    /// Appends the next events of a lane, while they end before `until`.
    fn put(&mut self, log: &SessionLog, lane: usize, until: usize, out: &mut Vec<u8>) {
        while let Some(event) = self.lanes[lane].pop_front() {
            if out.len() + event.record_bytes() > until {
                self.lanes[lane].push_front(event);
                return;
            }
            let number = lane as u32;
            match event {
                Event::Began { number: of, start } => {
                    put_past(out, number, &PastEvent::Began { number: of, start });
                }
                Event::Called(call) => put_past(out, number, &PastEvent::Called(call)),
                Event::Given(options) => put_past(out, number, &PastEvent::Given((*options).clone())),
                Event::Stood(hash) => put_past(out, number, &PastEvent::Stood(hash)),
                Event::Lost { next, start, held } => {
                    put_past(out, number, &PastEvent::Lost { next, start, held });
                }
                Event::Played { from, to } => {
                    let room = until - out.len() - HEAD_BYTES;
                    let from = log.put_actions(lane, from..to, room, out);
                    if from < to {
                        self.lanes[lane].push_front(Event::Played { from, to });
                        return;
                    }
                }
            }
        }
    }
}

impl Event {
    /// Returns the most bytes that its record takes without actions.
    fn record_bytes(&self) -> usize {
        match self {
            Self::Given(options) => RECORD_BYTES + options_bytes(options).len(),
            Self::Called(call) => RECORD_BYTES + call.method.len() + call.payload.len(),
            _ => RECORD_BYTES,
        }
    }
}

impl SessionLog {
    /// Appends the lane's actions of those rows as far as they take no more than `room` bytes. Returns the row at which
    /// they end.
    fn put_actions(&self, lane: usize, rows: std::ops::Range<u64>, room: usize, out: &mut Vec<u8>) -> u64 {
        let most = room / self.action.row_bytes().max(1);
        let mut raw = Vec::new();
        let (mut count, mut at) = (0, rows.start);
        for row in self.rows.range(rows) {
            if count == most {
                break;
            }
            if let Some(action) = self.action(lane, row) {
                raw.extend_from_slice(action);
                count += 1;
            }
            at += 1;
        }
        if count > 0 {
            let column = self.column(&raw);
            put_played(out, lane as u32, column.as_ref(), count);
        }
        at
    }

    /// Returns kept actions as a column.
    fn column(&self, raw: &[u8]) -> ColumnData {
        match self.narrow {
            Some(start) => ColumnData::I64(raw.iter().map(|&byte| start + i64::from(byte)).collect()),
            None => {
                let mut column = ColumnData::zeros(self.action.dtype, 0);
                let whole = column.extend_le(raw);
                debug_assert!(whole, "whole actions are kept");
                debug_assert_eq!(column.as_ref().bytes().len(), raw.len());
                column
            }
        }
    }
}

/// Most bytes of a record without its actions.
const RECORD_BYTES: usize = 40;
/// Bytes of a record of actions without these.
const HEAD_BYTES: usize = 16;
const _: () = assert!(RECORD_BYTES + HEAD_BYTES < MAX_PAST_BYTES / 64);
const _: () = assert!(2 * (RECORD_BYTES + MAX_METHOD_NAME_BYTES + MAX_CALL_BYTES) < MAX_PAST_BYTES);
const _: () = assert!(2 * (RECORD_BYTES + MAX_GIVEN_OPTIONS_BYTES) < MAX_PAST_BYTES);
