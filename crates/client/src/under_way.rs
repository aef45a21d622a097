//! The owner's account of lanes that were sent in parts and not received yet.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use rollhouse_engine::Received;
use rollhouse_wire::LostLane;

use crate::error::StepError;

/// The owner's account of the lanes under way.
pub(crate) struct FirstDone {
    /// One flag per lane: whether it was sent and not received.
    pub(crate) outstanding: Vec<bool>,
    pub(crate) outstanding_lanes: usize,
    pub(crate) queues: Vec<SessionQueue>,
    pub(crate) ready: Mutex<Ready>,
}

/// The parts that one session has to step.
#[derive(Default)]
pub(crate) struct SessionQueue {
    pub(crate) under_way: Option<SentLanes>,
    pub(crate) waiting: VecDeque<SentLanes>,
}

/// Lanes of one session that were sent together.
pub(crate) struct SentLanes {
    /// Numbers of the lanes in the session, ascending.
    pub(crate) lanes: Vec<u32>,
    /// Their actions; taken when the request is made.
    pub(crate) columns: Option<Bytes>,
}

/// The rows that have come and were not received.
#[derive(Default)]
pub(crate) struct Ready {
    pub(crate) rows: Received,
    /// The lanes that were lost in the last answer of each session, by the session's number.
    pub(crate) losses: Vec<(usize, Vec<LostLane>)>,
    /// The first refusal, and the lanes that did not move.
    pub(crate) refused: Option<(StepError, Vec<u32>)>,
}

impl FirstDone {
    pub(crate) fn new(lanes: usize, sessions: usize) -> Self {
        Self {
            outstanding: vec![false; lanes],
            outstanding_lanes: 0,
            queues: (0..sessions).map(|_| SessionQueue::default()).collect(),
            ready: Mutex::default(),
        }
    }

    /// Returns the first lane that was sent and not received.
    pub(crate) fn first_outstanding(&self) -> Option<usize> {
        if self.outstanding_lanes == 0 { None } else { self.outstanding.iter().position(|&sent| sent) }
    }

    pub(crate) fn forget(&mut self, lanes: &[u32]) {
        for &lane in lanes {
            self.outstanding[lane as usize] = false;
        }
        self.outstanding_lanes -= lanes.len();
    }
}
