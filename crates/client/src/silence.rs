//! Decides when the coordinator is asked about a session whose node does not answer.

use std::time::Duration;

/// Counts how long a node has been silent, from one look to the next.
///
/// ```text
/// connected:      look every second; heard of since the last look ──▶ silent for nothing
///                                    silent for 6 s ──▶ ask, at every look
/// not connected:  look after 200 ms, then every second ──▶ ask, at every look
/// ```
///
/// A coordinator takes a silent node for lost after 5 s. A node that is heard of here is believed in whatever the
/// coordinator says: it may be cut off from the coordinator alone, or be inside a long step. So a lost node holds up
/// its owner for about 7 s, and not until the connection is given up (15 s) and a lease has passed (30 s).
///
/// Pure: `now` is any clock that only goes forward. Silence is counted by looks, so that a trainer that was stopped for
/// a while does not take that for its node's silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Silence {
    heard: Option<u64>,
    silent: Duration,
    pause: Duration,
    look_at: Duration,
}

impl Silence {
    /// Begins at `now`. `heard` is any number that grows with what is received of the node; `None` if there is no
    /// connection to it.
    pub(crate) fn new(now: Duration, heard: Option<u64>) -> Self {
        let pause = if heard.is_some() { LOOK_EVERY } else { FIRST_LOOK };
        Self { heard, silent: Duration::ZERO, pause, look_at: now + pause }
    }

    /// Returns when to call [`Silence::look`].
    pub(crate) const fn look_at(&self) -> Duration {
        self.look_at
    }

    /// Looks whether the node was heard of since the last look. Returns true if the coordinator is to be asked. The
    /// time that asking takes is no silence: report with [`Silence::asked`] when it is over.
    pub(crate) fn look(&mut self, now: Duration, heard: Option<u64>) -> bool {
        self.silent += self.pause;
        self.pause = LOOK_EVERY;
        self.look_at = now + self.pause;
        if heard.is_some() && heard != self.heard {
            self.silent = Duration::ZERO;
        }
        self.heard = heard;
        heard.is_none() || self.silent >= SILENT_AFTER
    }

    /// Notes that the coordinator did not say that the session is gone: the next look is a second after `now`.
    pub(crate) fn asked(&mut self, now: Duration) {
        self.look_at = now + self.pause;
    }
}

/// Silence after which the coordinator is asked. It is longer than a keep-alive and its acknowledgement take: a node
/// that is there is heard of in that time.
pub(crate) const SILENT_AFTER: Duration = Duration::from_secs(6);
/// Interval of the looks, and of the questions to the coordinator.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time until the first question when there is no connection to the node.
const FIRST_LOOK: Duration = Duration::from_millis(200);
/// Time that the coordinator may take to answer.
pub const INQUIRY_DEADLINE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use rollhouse_wire::Settings;

    /// Looks when it says until it asks; when that is.
    fn asks_at(mut silence: Silence, heard: impl Fn(Duration) -> Option<u64>) -> Option<Duration> {
        for _ in 0..20 {
            let now = silence.look_at();
            if silence.look(now, heard(now)) {
                return Some(now);
            }
        }
        None
    }

    #[test]
    fn a_node_that_is_there_is_heard_of_before_anybody_asks_about_it() {
        let Settings { keep_alive, idle, .. } = Settings::default();
        assert!(keep_alive < SILENT_AFTER && SILENT_AFTER + LOOK_EVERY < idle);
        let beats = |now: Duration| Some(now.as_secs() / keep_alive.as_secs());
        assert_eq!(asks_at(Silence::new(Duration::ZERO, Some(0)), beats), None);
    }

    #[test]
    fn a_node_that_falls_silent_is_asked_about_after_6_s_and_one_without_connection_at_once() {
        let silent = asks_at(Silence::new(Duration::ZERO, Some(7)), |_| Some(7));
        assert_eq!(silent, Some(SILENT_AFTER));
        assert_eq!(asks_at(Silence::new(Duration::ZERO, None), |_| None), Some(FIRST_LOOK));
        let lost = |now| (now < Duration::from_secs(3)).then_some(7);
        assert_eq!(asks_at(Silence::new(Duration::ZERO, Some(7)), lost), Some(Duration::from_secs(3)));
    }

    #[test]
    fn it_goes_on_asking_a_second_after_each_answer() {
        let mut silence = Silence::new(Duration::ZERO, None);
        assert!(silence.look(FIRST_LOOK, None));
        let answered = FIRST_LOOK + Duration::from_millis(1500);
        silence.asked(answered);
        assert_eq!(silence.look_at(), answered + LOOK_EVERY);
        assert!(silence.look(silence.look_at(), None));
    }

    #[test]
    fn a_trainer_that_was_stopped_does_not_take_its_own_silence_for_the_nodes() {
        let mut silence = Silence::new(Duration::ZERO, Some(7));
        assert!(!silence.look(Duration::from_secs(60), Some(7)));
    }
}
