//! The table of lane states, which stands only here.
//!
//! ```text
//! idle -> launching -> loading -> connecting -> streaming -> playing      once per start
//! playing -> over -> playing                                              once per episode, counted per batch
//! any -> backoff -> launching;  backoff -> failed;  over|playing -> cleanup -> idle
//! loading -> paused <-> replaying;  paused|replaying -> over -> paused|replaying     a recorded episode
//! playing <-> paused;  playing|paused -> planning -> playing;  standing while no owner is there     a live lane
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::pauses::{Pauses, jitter};

/// Stage of a lane's life, written as its [`LaneState::word`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LaneState {
    /// The lane runs nothing.
    Idle,
    /// The lane's process or env value is being made.
    Launching,
    /// The lane's assets are being loaded.
    Loading,
    /// The lane's env has been asked to answer and has not answered yet.
    Connecting,
    /// The lane's env answers; its first reset is under way.
    Streaming,
    /// An episode is under way.
    Playing,
    /// An episode has ended and the next has not begun; a recorded one stands at its last step.
    Over,
    /// A recorded episode stands at a step; a live world stands still, as its owner wants.
    Paused,
    /// A live world stands still while its owner plans, for a time that is set.
    Planning,
    /// A live world stands still: no owner is there.
    Standing,
    /// A recorded episode goes on by itself, step by step.
    Replaying,
    /// The lane is being put away.
    Cleanup,
    /// The lane failed and waits before it is started again.
    BackOff,
    /// The lane failed too often. It stays failed and is reported.
    Failed,
}

/// Event in a lane's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LaneEvent {
    /// The lane is to run.
    Start,
    /// The lane's env exists.
    Launched,
    /// The lane's assets are there.
    Loaded,
    /// The lane's env answers.
    Connected,
    /// The lane's reset has given a first observation.
    EpisodeStarted,
    /// The lane's episode ended.
    EpisodeEnded,
    /// The recorded episode that it shows is there.
    RecordingLoaded,
    /// Its recorded episode is to go on by itself.
    Play,
    /// Its recorded episode, or its live world, is to stand still.
    Pause,
    /// Its live world is to go on.
    Resume,
    /// The owner of its live world plans.
    Plan,
    /// The lane is no longer wanted.
    Stop,
    /// The lane has been put away.
    CleanedUp,
    /// The lane failed: it crashed, hung or missed a deadline.
    Fail,
    /// The lane's back-off is over.
    Retry,
    /// The lane has used up its restarts.
    GiveUp,
}

/// Error of an event that the state does not allow. The state stays as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a lane that is {from} cannot take {event:?}", from = .from.word())]
pub struct IllegalTransition {
    /// State in which the event came.
    pub from: LaneState,
    /// Event that the state refused.
    pub event: LaneEvent,
}

impl LaneState {
    /// All states, in the order of their declaration.
    pub const ALL: [Self; 14] = [
        Self::Idle,
        Self::Launching,
        Self::Loading,
        Self::Connecting,
        Self::Streaming,
        Self::Playing,
        Self::Over,
        Self::Paused,
        Self::Planning,
        Self::Standing,
        Self::Replaying,
        Self::Cleanup,
        Self::BackOff,
        Self::Failed,
    ];

    /// Returns the state that follows `event`.
    ///
    /// # Errors
    /// If the table has no such transition.
    pub const fn on(self, event: LaneEvent) -> Result<Self, IllegalTransition> {
        use LaneEvent as E;
        use LaneState as S;
        Ok(match (self, event) {
            (S::Idle, E::Start) => S::Launching,
            (S::Launching, E::Launched) => S::Loading,
            (S::Loading, E::Loaded) => S::Connecting,
            (S::Connecting, E::Connected) => S::Streaming,
            (S::Streaming | S::Over, E::EpisodeStarted) => S::Playing,
            (S::Playing | S::Paused | S::Replaying, E::EpisodeEnded) => S::Over,
            (S::Loading, E::RecordingLoaded) | (S::Playing | S::Replaying | S::Over, E::Pause) => S::Paused,
            (S::Paused | S::Planning, E::Resume) => S::Playing,
            (S::Playing | S::Paused, E::Plan) => S::Planning,
            (S::Paused | S::Over, E::Play) => S::Replaying,
            (S::Playing | S::Over | S::Paused | S::Replaying, E::Stop) => S::Cleanup,
            (S::Cleanup, E::CleanedUp) => S::Idle,
            (S::BackOff, E::Retry) => S::Launching,
            (S::BackOff, E::GiveUp) => S::Failed,
            (
                S::Launching
                | S::Loading
                | S::Connecting
                | S::Streaming
                | S::Playing
                | S::Over
                | S::Paused
                | S::Replaying,
                E::Fail,
            ) => S::BackOff,
            _ => return Err(IllegalTransition { from: self, event }),
        })
    }

    /// Returns the word for listings and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Launching => "launching",
            Self::Loading => "loading",
            Self::Connecting => "connecting",
            Self::Streaming => "streaming",
            Self::Playing => "playing",
            Self::Over => "over",
            Self::Paused => "paused",
            Self::Planning => "planning",
            Self::Standing => "standing",
            Self::Replaying => "replaying",
            Self::Cleanup => "cleanup",
            Self::BackOff => "backoff",
            Self::Failed => "failed",
        }
    }
}

/// Restarts of one thing that fails: pauses of 1 s doubling to 60 s, less jitter, and at most 5 restarts in any 5
/// minutes.
///
/// Pure: `now` is any clock that only goes forward, as a duration since its own zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackOff {
    seed: u64,
    failures: Vec<Duration>,
    total: u64,
}

/// Decision about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartDecision {
    /// The thing is started again after this time.
    RetryAfter(Duration),
    /// The thing failed too often and is left as it is.
    GiveUp,
}

impl BackOff {
    /// Returns a back-off without failures. `seed` decides the jitter.
    pub const fn new(seed: u64) -> Self {
        Self { seed, failures: Vec::new(), total: 0 }
    }

    /// Notes a failure at `now` and decides what to do about it.
    pub fn failed(&mut self, now: Duration) -> RestartDecision {
        self.failures.retain(|&at| now.saturating_sub(at) < RESTART_WINDOW);
        if self.failures.len() >= MAX_RESTARTS {
            return RestartDecision::GiveUp;
        }
        let doublings = self.failures.len() as u32;
        self.failures.push(now);
        self.total += 1;
        let base = BACK_OFF.after(doublings);
        // Jitter takes away an eighth to three eighths, so that restarts of many do not fall together, and the first
        // leaves time within its second to be noticed and done.
        RestartDecision::RetryAfter(base - base / 8 - jitter(base / 4, self.seed ^ self.total))
    }

    /// Returns the number of failures so far.
    pub const fn total(&self) -> u64 {
        self.total
    }
}

const BACK_OFF: Pauses = Pauses { first: Duration::from_secs(1), longest: Duration::from_secs(60) };
const RESTART_WINDOW: Duration = Duration::from_secs(300);
const MAX_RESTARTS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [LaneEvent; 16] = [
        LaneEvent::Start,
        LaneEvent::Launched,
        LaneEvent::Loaded,
        LaneEvent::Connected,
        LaneEvent::EpisodeStarted,
        LaneEvent::EpisodeEnded,
        LaneEvent::RecordingLoaded,
        LaneEvent::Play,
        LaneEvent::Pause,
        LaneEvent::Resume,
        LaneEvent::Plan,
        LaneEvent::Stop,
        LaneEvent::CleanedUp,
        LaneEvent::Fail,
        LaneEvent::Retry,
        LaneEvent::GiveUp,
    ];

    #[test]
    fn a_start_walks_through_every_waiting_state_to_playing() {
        use LaneEvent as E;
        let mut state = LaneState::Idle;
        for event in [
            E::Start,
            E::Launched,
            E::Loaded,
            E::Connected,
            E::EpisodeStarted,
            E::EpisodeEnded,
            E::EpisodeStarted,
        ] {
            state = state.on(event).unwrap();
        }
        assert_eq!(state, LaneState::Playing);
    }

    #[test]
    fn exactly_the_transitions_of_the_table_are_allowed() {
        let allowed: usize =
            LaneState::ALL.iter().map(|s| EVENTS.iter().filter(|&&e| s.on(e).is_ok()).count()).sum();
        assert_eq!(allowed, 34);
        for event in EVENTS {
            let failed = LaneState::Failed;
            assert_eq!(failed.on(event), Err(IllegalTransition { from: failed, event }));
        }
    }

    #[test]
    fn a_recorded_episode_pauses_goes_on_and_begins_again_after_its_end() {
        use LaneEvent as E;
        use LaneState as S;
        let mut state = S::Idle;
        for (event, next) in [
            (E::Start, S::Launching),
            (E::Launched, S::Loading),
            (E::RecordingLoaded, S::Paused),
            (E::Play, S::Replaying),
            (E::Pause, S::Paused),
            (E::Play, S::Replaying),
            (E::EpisodeEnded, S::Over),
            (E::Play, S::Replaying),
            (E::EpisodeEnded, S::Over),
            (E::Pause, S::Paused),
            (E::Stop, S::Cleanup),
        ] {
            state = state.on(event).unwrap();
            assert_eq!(state, next);
        }
        assert!(S::Paused.on(E::EpisodeStarted).is_err(), "nothing is played in it");
    }

    #[test]
    fn back_off_doubles_and_gives_up_after_five_restarts_in_five_minutes() {
        let mut back_off = BackOff::new(1);
        let mut now = Duration::ZERO;
        for exponent in 0..5 {
            let RestartDecision::RetryAfter(wait) = back_off.failed(now) else { panic!("gave up early") };
            let base = Duration::from_secs(1 << exponent);
            assert!(wait <= base * 7 / 8 && wait >= base * 5 / 8, "{wait:?} for {base:?}");
            now += wait;
        }
        assert_eq!(back_off.failed(now), RestartDecision::GiveUp);
    }

    #[test]
    fn old_failures_are_forgiven() {
        let mut back_off = BackOff::new(1);
        for minute in 0..100 {
            let decision = back_off.failed(Duration::from_secs(minute * 301));
            assert!(matches!(decision, RestartDecision::RetryAfter(wait) if wait <= Duration::from_secs(1)));
        }
    }
}
