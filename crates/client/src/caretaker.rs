//! Decides when a runtime that is driven by its callers has to be driven although nobody calls.

use std::time::Duration;

/// Decides when the caretaker looks after a runtime.
///
/// Connections live only while a thread drives the runtime, which sends keep-alives and acknowledges packets. A caller
/// inside a call does that. Pure: `now` is any clock that only goes forward.
///
/// ```text
/// longest silence = IDLE + DRIVE < keep-alive 5 s < idle timeout 15 s < lease 30 s
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Caretaker {
    looked_after: Duration,
}

/// The caretaker's next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Care {
    /// Drive the runtime for [`DRIVE`].
    Drive,
    /// Look again after this time.
    Sleep(Duration),
}

/// The state of the runtime that the caretaker sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sight {
    /// Calls that are inside the runtime now.
    pub(crate) inside: usize,
    /// The time at which the last call left the runtime.
    pub(crate) left: Duration,
}

/// Time for which the caretaker drives: enough to read what has come and to write what is due.
pub(crate) const DRIVE: Duration = Duration::from_millis(1);

/// Pause before the first look. After a call the peer still waits for acknowledgements, for at most 25 ms in QUIC's
/// default; then it would send again. The first look comes about then.
const SOON: Duration = Duration::from_millis(20);

/// Pause between looks without calls: only keep-alives are due then.
const IDLE: Duration = Duration::from_millis(1000);

/// Time after a call in which another call is likely: the caretaker looks every [`SOON`] meanwhile, so that it is there
/// when a call has ended. A first call after a longer silence is noticed up to [`IDLE`] later.
const RECENT: Duration = Duration::from_millis(2000);

impl Caretaker {
    /// Returns the action to take at `now`.
    pub(crate) fn next(&mut self, now: Duration, sight: Sight) -> Care {
        if sight.inside > 0 {
            self.looked_after = now;
            return Care::Sleep(SOON);
        }
        let since_left = now.saturating_sub(sight.left);
        // Nobody has looked after the runtime since the caller left it.
        let due = if sight.left >= self.looked_after { SOON } else { IDLE };
        let since = now.saturating_sub(sight.left.max(self.looked_after));
        if since >= due {
            self.looked_after = now;
            return Care::Drive;
        }
        let longest = if since_left < RECENT { SOON } else { IDLE };
        Care::Sleep((due - since).min(longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rollhouse_wire::Settings;

    /// Plays calls of (pause before, length) in milliseconds, then 40 s of silence; returns the times at which
    /// the runtime was driven by the caretaker, and the longest time in which nobody drove it.
    fn play(calls: &[(u64, u64)]) -> (Vec<Duration>, Duration) {
        let ms = Duration::from_millis;
        let mut spans = Vec::new();
        let mut at = Duration::ZERO;
        for &(pause, length) in calls {
            let start = at + ms(pause);
            at = start + ms(length);
            spans.push((start, at));
        }
        let end = at + Duration::from_secs(40);
        let (mut caretaker, mut now) = (Caretaker::default(), Duration::ZERO);
        let mut driven = Vec::new();
        while now < end {
            let inside = spans.iter().filter(|(start, end)| *start <= now && now < *end).count();
            let left = spans.iter().filter(|(_, end)| *end <= now).map(|(_, end)| *end).max();
            let sight = Sight { inside, left: left.unwrap_or_default() };
            match caretaker.next(now, sight) {
                Care::Drive => {
                    driven.push(now);
                    now += DRIVE;
                }
                Care::Sleep(time) => {
                    assert!(time > Duration::ZERO && time <= IDLE);
                    now += time;
                }
            }
        }
        let mut cared: Vec<_> = driven.iter().map(|&at| (at, at + DRIVE)).chain(spans).collect();
        cared.sort();
        let mut silence = Duration::ZERO;
        let mut until = Duration::ZERO;
        for (start, stop) in cared {
            silence = silence.max(start.saturating_sub(until));
            until = until.max(stop);
        }
        (driven, silence.max(end.saturating_sub(until)))
    }

    #[test]
    fn forty_silent_seconds_see_a_keep_alive_in_time() {
        let (driven, silence) = play(&[]);
        // What is due is sent that much later; the peer believes in us for longer.
        let Settings { keep_alive, idle, .. } = Settings::default();
        assert!(keep_alive + silence < idle / 2, "{silence:?}");
        // And cost next to nothing.
        assert!(driven.len() < 60, "{}", driven.len());
    }

    #[test]
    fn a_busy_caller_that_leaves_is_followed_within_two_looks() {
        let calls: Vec<_> = (0..400).map(|_| (5, 3)).collect();
        let left = Duration::from_millis(400 * 8);
        let (driven, _) = play(&calls);
        let first_after = driven.iter().find(|&&at| at >= left).unwrap();
        assert!(*first_after <= left + 2 * SOON, "{first_after:?}");
    }

    #[test]
    fn a_runtime_that_is_driven_by_calls_is_left_alone() {
        let (driven, _) = play(&[(0, 60_000)]);
        assert!(driven.iter().all(|&at| at >= Duration::from_secs(60)));
    }

    proptest! {
        #[test]
        fn nobody_is_silent_for_as_long_as_a_keep_alive_takes(
            calls in proptest::collection::vec((0u64..3_000, 0u64..3_000), 0..20)
        ) {
            let (_, silence) = play(&calls);
            prop_assert!(silence < Settings::default().keep_alive / 2, "{:?}", silence);
        }
    }
}
