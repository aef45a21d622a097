//! Telling a session that hangs from one that works.

use std::time::Duration;

/// Decides whether something still makes progress. Pure: `now` is any clock that only goes forward.
///
/// Alive means *made progress*: the count moved since the last look.
#[derive(Debug, Clone)]
pub struct HangWatch {
    deadline: Duration,
    last: Option<Seen>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    beats: u64,
    at: Duration,
}

/// What a look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It makes progress, or has not been still for long enough.
    Alive,
    /// It has made no progress for this long, which is at least the deadline.
    Hung(Duration),
}

impl HangWatch {
    /// A watch that calls what stands still for `deadline` hung.
    pub const fn new(deadline: Duration) -> Self {
        Self { deadline, last: None }
    }

    /// Looks at the count of signs of life at `now`.
    pub fn look(&mut self, now: Duration, beats: u64) -> Verdict {
        match self.last {
            Some(seen) if seen.beats == beats => {
                let still = now.saturating_sub(seen.at);
                if still >= self.deadline { Verdict::Hung(still) } else { Verdict::Alive }
            }
            _ => {
                self.last = Some(Seen { beats, at: now });
                Verdict::Alive
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DEADLINE: Duration = Duration::from_secs(60);

    #[test]
    fn a_count_that_moves_is_alive_however_slowly() {
        let mut watch = HangWatch::new(DEADLINE);
        for beat in 0..100 {
            assert_eq!(watch.look(Duration::from_secs(59) * beat, u64::from(beat)), Verdict::Alive);
        }
    }

    #[test]
    fn a_count_that_stands_still_is_hung_at_the_deadline_and_not_before() {
        let mut watch = HangWatch::new(DEADLINE);
        assert_eq!(watch.look(Duration::from_secs(10), 7), Verdict::Alive);
        assert_eq!(watch.look(Duration::from_secs(69), 7), Verdict::Alive);
        assert_eq!(watch.look(Duration::from_secs(70), 7), Verdict::Hung(DEADLINE));
    }

    proptest! {
        #[test]
        fn hung_is_said_exactly_when_the_last_change_is_a_deadline_ago(
            looks in prop::collection::vec((0u64..40, any::<bool>()), 1..60)
        ) {
            let mut watch = HangWatch::new(DEADLINE);
            let (mut now, mut beats, mut changed) = (0, 0, None);
            for (wait, moves) in looks {
                now += wait;
                beats += u64::from(moves);
                if moves || changed.is_none() {
                    changed = Some(now);
                }
                let still = Duration::from_secs(now - changed.unwrap());
                let wanted = if still >= DEADLINE { Verdict::Hung(still) } else { Verdict::Alive };
                prop_assert_eq!(watch.look(Duration::from_secs(now), beats), wanted);
            }
        }
    }
}
