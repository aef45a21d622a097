//! The lanes that a trainer has sent.

/// The lanes of a batch, as a trainer sends and receives them.
#[derive(Debug)]
pub(crate) struct SentLanes {
    /// Newest number under which each lane was sent.
    numbers: Vec<u64>,
    /// True for each lane that was sent and neither received nor refused.
    outstanding: Vec<bool>,
    /// True for each lane whose row the node may be writing: the outstanding ones, and those that were outstanding when
    /// a request was forgotten.
    written: Vec<bool>,
    /// Number of outstanding lanes.
    count: usize,
}

impl SentLanes {
    pub(crate) fn new(lanes: usize) -> Self {
        Self {
            numbers: vec![0; lanes],
            outstanding: vec![false; lanes],
            written: vec![false; lanes],
            count: 0,
        }
    }

    /// Begins an attachment, in which no lane was sent yet; `number` returns the newest number of a lane.
    pub(crate) fn begin(&mut self, number: impl Fn(usize) -> u64) {
        self.numbers.iter_mut().enumerate().for_each(|(lane, sent)| *sent = number(lane));
        self.forget();
        // What was sent in an earlier attachment is done: a node serves one at a time.
        self.written.fill(false);
    }

    /// Forgets which lanes are outstanding. Their rows may still be written.
    pub(crate) fn forget(&mut self) {
        self.outstanding.fill(false);
        self.count = 0;
    }

    /// Returns whether a lane is outstanding; false if there is no such lane.
    pub(crate) fn is_outstanding(&self, lane: usize) -> bool {
        self.outstanding.get(lane).copied().unwrap_or(false)
    }

    /// Returns the number of outstanding lanes.
    pub(crate) const fn outstanding(&self) -> usize {
        self.count
    }

    /// Returns whether the node may be writing the lane's row.
    pub(crate) fn is_written(&self, lane: usize) -> bool {
        self.written[lane]
    }

    /// Returns the newest number under which a lane was sent.
    pub(crate) fn number(&self, lane: usize) -> u64 {
        self.numbers[lane]
    }

    /// Notes that a lane is sent, and returns its number.
    ///
    /// # Panics
    /// If there is no such lane, or it is outstanding.
    pub(crate) fn send(&mut self, lane: usize) -> u64 {
        assert!(!self.outstanding[lane], "lane {lane} is outstanding");
        (self.outstanding[lane], self.written[lane]) = (true, true);
        self.count += 1;
        self.numbers[lane] = self.numbers[lane].wrapping_add(1);
        self.numbers[lane]
    }

    /// Notes that an outstanding lane was received or refused.
    pub(crate) fn receive(&mut self, lane: usize) {
        (self.outstanding[lane], self.written[lane]) = (false, false);
        self.count -= 1;
    }
}
