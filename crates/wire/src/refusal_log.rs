//! Rate limits for log lines about failures that strangers can cause at will.

use std::collections::BTreeMap;
use std::time::Duration;

/// Lets the first failure of a kind be logged, then at most one per interval, and counts all. Kinds are words of enums,
/// so that there are few. Time is given by the caller, counted from any fixed start.
#[derive(Debug)]
pub struct RefusalLog {
    every: Duration,
    kinds: BTreeMap<&'static str, Kind>,
}

#[derive(Debug, Default)]
struct Kind {
    count: u64,
    suppressed: u64,
    shown: Option<Duration>,
}

/// The permission to log a line, with the counts that it may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLine {
    /// Number of failures of this kind since the last line, without this one.
    pub suppressed: u64,
    /// Number of failures of this kind ever, including this one.
    pub count: u64,
}

impl RefusalLog {
    /// Makes a log that allows at most one line per kind in that time.
    pub fn new(every: Duration) -> Self {
        Self { every, kinds: BTreeMap::new() }
    }

    /// Counts a failure and returns whether it gets a line.
    pub fn note(&mut self, now: Duration, kind: &'static str) -> Option<LogLine> {
        let entry = self.kinds.entry(kind).or_default();
        entry.count += 1;
        if entry.shown.is_some_and(|shown| now.saturating_sub(shown) < self.every) {
            entry.suppressed += 1;
            return None;
        }
        entry.shown = Some(now);
        Some(LogLine { suppressed: std::mem::take(&mut entry.suppressed), count: entry.count })
    }

    /// Returns the number of failures so far, by kind.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.kinds.iter().map(|(kind, entry)| (*kind, entry.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_of_each_kind_is_shown() {
        let mut log = RefusalLog::new(Duration::from_secs(10));
        let second = Duration::from_secs(1);
        assert_eq!(log.note(second, "expired"), Some(LogLine { suppressed: 0, count: 1 }));
        assert_eq!(log.note(second * 2, "expired"), None);
        assert_eq!(log.note(second * 2, "foreign"), Some(LogLine { suppressed: 0, count: 1 }));
        assert_eq!(log.note(second * 11, "expired"), Some(LogLine { suppressed: 1, count: 3 }));
    }

    proptest! {
        /// Shown and suppressed together are all, and lines are never closer than the interval.
        #[test]
        fn nothing_is_lost_and_lines_keep_their_distance(gaps in proptest::collection::vec(0u64..4000, 1..200)) {
            let every = Duration::from_secs(5);
            let mut log = RefusalLog::new(every);
            let (mut now, mut last, mut told) = (Duration::ZERO, None, 0);
            for (index, gap) in gaps.iter().enumerate() {
                now += Duration::from_millis(*gap);
                if let Some(line) = log.note(now, "refused") {
                    prop_assert!(last.is_none_or(|last| now - last >= every));
                    last = Some(now);
                    told += line.suppressed + 1;
                    prop_assert_eq!(told, index as u64 + 1);
                    prop_assert_eq!(line.count, told);
                }
            }
        }
    }
}
