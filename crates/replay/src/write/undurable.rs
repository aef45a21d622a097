//! What is written and not durable yet.

/// A number of chunks, and of the episodes that end in them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) chunks: u64,
    pub(crate) episodes: u64,
}

/// The chunks that are written and not durable yet.
#[derive(Debug, Default)]
pub(crate) struct Undurable {
    all: Amount,
    /// Those of them that the operating system does not have yet.
    unflushed: Amount,
    /// Those of them that the syncer is making durable.
    asked: Amount,
}

impl Amount {
    const fn less(self, other: Self) -> Self {
        Self { chunks: self.chunks - other.chunks, episodes: self.episodes - other.episodes }
    }
}

impl Undurable {
    pub(crate) const fn episodes(&self) -> u64 {
        self.all.episodes
    }

    /// Adds a chunk that was written.
    pub(crate) const fn add(&mut self, episodes: u64) {
        self.all.chunks += 1;
        self.all.episodes += episodes;
        self.unflushed.chunks += 1;
        self.unflushed.episodes += episodes;
    }

    /// Notes that the operating system has everything.
    pub(crate) fn flushed(&mut self) {
        self.unflushed = Amount::default();
    }

    /// Notes that all that the operating system has is durable.
    pub(crate) const fn flushed_is_durable(&mut self) {
        self.all = self.unflushed;
    }

    /// Notes that the syncer makes durable what the operating system has.
    pub(crate) const fn ask(&mut self) {
        self.asked = self.all.less(self.unflushed);
    }

    /// Returns what the syncer was making durable, which it is no longer.
    pub(crate) fn take_asked(&mut self) -> Amount {
        std::mem::take(&mut self.asked)
    }

    /// Notes that a segment is closed, in which all of it lies; returns how much that is.
    pub(crate) fn close(&mut self) -> Amount {
        (self.unflushed, self.asked) = (Amount::default(), Amount::default());
        self.all
    }

    /// Notes that a part of it is durable.
    pub(crate) const fn made_durable(&mut self, part: Amount) {
        self.all = self.all.less(part);
    }

    /// Notes that all of it is durable.
    pub(crate) fn all_durable(&mut self) {
        (self.all, self.unflushed) = (Amount::default(), Amount::default());
    }

    /// Takes all of it as lost; returns how much that is.
    pub(crate) fn lose(&mut self) -> Amount {
        std::mem::take(self).all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_after_the_syncer_was_asked_stays_until_it_is_durable_itself() {
        let mut undurable = Undurable::default();
        undurable.add(2);
        undurable.flushed();
        undurable.ask();
        undurable.add(3);
        let asked = undurable.take_asked();
        assert_eq!(asked, Amount { chunks: 1, episodes: 2 });
        undurable.made_durable(asked);
        assert_eq!(undurable.episodes(), 3);
        undurable.flushed_is_durable();
        assert_eq!(undurable.lose(), Amount { chunks: 1, episodes: 3 });
        assert_eq!(undurable.lose(), Amount::default());
    }
}
