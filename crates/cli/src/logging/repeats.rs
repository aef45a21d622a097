//! The limit on repeated log lines.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tracing::callsite::Identifier;

/// Lets [`MOST_LINES`] lines of a kind through in each [`WINDOW`] and counts the rest. Kinds are places in the program,
/// so that there are few. Time is given by the caller, counted from any fixed start.
#[derive(Debug)]
pub(super) struct Repeats<K = Identifier> {
    kinds: HashMap<K, Kind>,
}

#[derive(Debug)]
struct Kind {
    /// The beginning of its window.
    began: Duration,
    /// Number of lines that were let through in the window.
    said: u32,
    /// Number of lines that were withheld in the window.
    withheld: u64,
    /// The first of the withheld lines.
    like: String,
}

impl<K: Eq + Hash> Repeats<K> {
    /// Counts a line and returns whether it is let through; `like` returns its text.
    pub(super) fn note(&mut self, now: Duration, kind: K, like: impl FnOnce() -> String) -> bool {
        let fresh = Kind { began: now, said: 0, withheld: 0, like: String::new() };
        let kind = self.kinds.entry(kind).or_insert(fresh);
        if now.saturating_sub(kind.began) >= WINDOW {
            (kind.began, kind.said) = (now, 0);
        }
        if kind.said < MOST_LINES {
            kind.said += 1;
            return true;
        }
        if kind.withheld == 0 {
            kind.like = like();
            kind.like.truncate(kind.like.floor_char_boundary(MOST_LIKE_BYTES));
        }
        kind.withheld += 1;
        false
    }

    /// Returns what was withheld in windows that are over: the first line of each and the number of lines.
    pub(super) fn over(&mut self, now: Duration) -> Vec<(String, u64)> {
        let mut over = Vec::new();
        for kind in self.kinds.values_mut() {
            // In a window that is still full, more may follow.
            let full = kind.said >= MOST_LINES && now.saturating_sub(kind.began) < WINDOW;
            if kind.withheld > 0 && !full {
                over.push((std::mem::take(&mut kind.like), std::mem::take(&mut kind.withheld)));
            }
        }
        over
    }
}

impl<K> Default for Repeats<K> {
    fn default() -> Self {
        Self { kinds: HashMap::new() }
    }
}

/// Number of lines of a kind that a window lets through.
const MOST_LINES: u32 = 100;
/// Length of a window.
const WINDOW: Duration = Duration::from_secs(10);
/// Bytes of a withheld line that are shown.
const MOST_LIKE_BYTES: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn lines_beyond_the_bound_are_counted_and_told_when_their_window_is_over() {
        let mut repeats = Repeats::default();
        let note = |repeats: &mut Repeats<u8>, now, kind| repeats.note(now, kind, || "no room".to_owned());
        for _ in 0..MOST_LINES {
            assert!(note(&mut repeats, SECOND, 1));
        }
        assert!(!note(&mut repeats, SECOND * 2, 1) && !note(&mut repeats, SECOND * 3, 1));
        assert!(note(&mut repeats, SECOND * 3, 2), "another kind");
        assert_eq!(repeats.over(SECOND * 10), []);
        assert_eq!(repeats.over(SECOND * 11), [("no room".to_owned(), 2)]);
        assert!(note(&mut repeats, SECOND * 11, 1));
        assert_eq!(repeats.over(SECOND * 30), []);
    }

    proptest! {
        /// Shown and told together are all, and no window has more lines than the bound.
        #[test]
        fn nothing_is_withheld_untold(gaps in proptest::collection::vec(0u64..400, 1..600)) {
            let mut repeats = Repeats::default();
            let (mut now, mut shown, mut told) = (Duration::ZERO, Vec::new(), 0);
            for gap in &gaps {
                now += Duration::from_millis(*gap);
                if repeats.note(now, 1, String::new) {
                    shown.push(now);
                }
                told += repeats.over(now).into_iter().map(|(_, count)| count).sum::<u64>();
            }
            told += repeats.over(now + WINDOW).into_iter().map(|(_, count)| count).sum::<u64>();
            prop_assert_eq!(shown.len() as u64 + told, gaps.len() as u64);
            let most = MOST_LINES as usize;
            for (first, last) in shown.iter().zip(shown.iter().skip(2 * most)) {
                prop_assert!(*last - *first >= WINDOW, "at most two bounds in any window's length");
            }
        }
    }
}
