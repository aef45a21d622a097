//! The position of a replay: the same step for all that watch it.
//!
//! ```text
//! loading --loaded--> paused --play--> replaying --the last step--> over
//!                       ^ <---pause---- |                           | play: from the reset on
//!                       | <--step, seek back------------------------/
//! ```
//!
//! Pure: nothing drives it. While it replays, the step follows from the time of each look.

use std::time::Duration;

use rollhouse_core::{LaneEvent, LaneState};
use rollhouse_wire::{FASTEST_REPLAY, REPLAY_STEPS_PER_SECOND, ReplayStanding, SLOWEST_REPLAY};

/// The position in a recorded episode. `now` is any clock that only goes forward.
#[derive(Debug, Clone, PartialEq)]
pub struct Player {
    length: u64,
    state: LaneState,
    /// The step at which it stood at `since`.
    at: u64,
    since: Duration,
    speed: f64,
    /// The serial number of what it showed at `since`.
    serial: u64,
}

/// A change of the position or of the speed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Move {
    /// Go to a step, and go on from there if the replay plays.
    Seek(u64),
    /// Stand still so many steps on (or back, if negative), no further than the episode goes.
    Step(i64),
    /// Go on at that multiple of the usual speed; from the reset on if it stands at the end.
    Play(f64),
    /// Stand still.
    Pause,
}

/// The replay as it is shown at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlayerView {
    /// The step and the state of the replay.
    pub standing: ReplayStanding,
    /// A number that grows with every step that is passed and every move.
    pub serial: u64,
}

/// Why the replay does not move.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum MoveError {
    /// The episode is shorter.
    #[error("step = {step}; the episode has {length}")]
    NoSuchStep {
        /// The step that was asked for.
        step: u64,
        /// Steps of the episode.
        length: u64,
    },
    /// The speed is out of bounds.
    #[error("speed = {speed}; must be {SLOWEST_REPLAY} to {FASTEST_REPLAY}")]
    Speed {
        /// The speed that was asked for.
        speed: f64,
    },
}

impl Player {
    /// Makes a player that stands at the reset of an episode of `length` steps, which is not loaded yet.
    pub const fn new(length: u64) -> Self {
        Self { length, state: LaneState::Loading, at: 0, since: Duration::ZERO, speed: 1.0, serial: 1 }
    }

    /// Notes that the episode is loaded.
    pub fn loaded(&mut self) {
        self.turn(LaneEvent::RecordingLoaded);
        self.end_at_last();
    }

    /// Makes a move. Returns what is shown then.
    ///
    /// # Errors
    /// See [`MoveError`]; nothing has moved then.
    pub fn on(&mut self, now: Duration, asked: Move) -> Result<PlayerView, MoveError> {
        let PlayerView { standing, serial } = self.look(now);
        let here = standing.step;
        let (to, event) = match asked {
            Move::Seek(step) if step > self.length => {
                return Err(MoveError::NoSuchStep { step, length: self.length });
            }
            Move::Seek(step) if self.state == LaneState::Over && step < self.length => {
                (step, Some(LaneEvent::Pause))
            }
            Move::Seek(step) => (step, None),
            Move::Step(by) => (here.saturating_add_signed(by).min(self.length), Some(LaneEvent::Pause)),
            // A number that is none is no such speed either.
            Move::Play(speed) if !(SLOWEST_REPLAY..=FASTEST_REPLAY).contains(&speed) => {
                return Err(MoveError::Speed { speed });
            }
            Move::Play(speed) => {
                self.speed = speed;
                (if here == self.length { 0 } else { here }, Some(LaneEvent::Play))
            }
            Move::Pause if here == self.length => (here, None),
            Move::Pause => (here, Some(LaneEvent::Pause)),
        };
        (self.at, self.since, self.serial) = (to, now, serial + 1);
        if let Some(event) = event {
            self.turn(event);
        }
        self.end_at_last();
        Ok(self.look(now))
    }

    /// Returns what is shown now. An episode that has come to its last step is over from then on.
    pub fn look(&mut self, now: Duration) -> PlayerView {
        if self.state == LaneState::Replaying {
            let passed = self.passed(now).min(self.length - self.at);
            if self.at + passed == self.length {
                (self.at, self.serial) = (self.length, self.serial + passed);
                self.end_at_last();
                return self.shows(0);
            }
            return self.shows(passed);
        }
        self.shows(0)
    }

    /// Returns the time at which the next step is shown by itself; `None` if the replay stands still.
    pub fn next_at(&self, now: Duration) -> Option<Duration> {
        let period = self.period();
        (self.state == LaneState::Replaying)
            .then(|| self.since + Duration::from_nanos(period.saturating_mul(self.passed(now) + 1)))
    }

    fn shows(&self, passed: u64) -> PlayerView {
        let Self { length, state, at, speed, serial, .. } = *self;
        let standing = ReplayStanding { state, step: at + passed, length, speed };
        PlayerView { standing, serial: serial + passed }
    }

    /// Returns the steps since the last move, if the replay plays.
    fn passed(&self, now: Duration) -> u64 {
        let nanos = u64::try_from(now.saturating_sub(self.since).as_nanos()).unwrap_or(u64::MAX);
        nanos / self.period()
    }

    /// Returns the nanoseconds of a step: whole ones, so that the next step is due when it is shown, and not a moment
    /// later.
    fn period(&self) -> u64 {
        // Speeds are within their bounds: half a millisecond at least.
        (1e9 / (REPLAY_STEPS_PER_SECOND * self.speed)) as u64
    }

    fn end_at_last(&mut self) {
        if self.at == self.length {
            self.turn(LaneEvent::EpisodeEnded);
        }
    }

    /// Follows an event of the lane's life. An event that the table does not have changes nothing, such as play while
    /// playing.
    fn turn(&mut self, event: LaneEvent) {
        self.state = self.state.on(event).unwrap_or(self.state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn loaded(length: u64) -> Player {
        let mut player = Player::new(length);
        player.loaded();
        player
    }

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn stands(shows: PlayerView) -> (LaneState, u64) {
        (shows.standing.state, shows.standing.step)
    }

    #[test]
    fn a_replay_goes_on_with_the_time_at_its_speed_and_is_over_at_its_last_step() {
        let mut player = loaded(100);
        assert_eq!(stands(player.look(at(50.0))), (LaneState::Paused, 0), "it waits to be played");
        player.on(at(50.0), Move::Play(0.5)).unwrap();
        assert_eq!(stands(player.look(at(52.001))), (LaneState::Replaying, 30));
        player.on(at(52.001), Move::Play(2.0)).unwrap();
        assert_eq!(stands(player.look(at(53.002))), (LaneState::Replaying, 90));
        assert_eq!(stands(player.look(at(90.0))), (LaneState::Over, 100));
        assert_eq!(player.next_at(at(90.0)), None);
        let again = player.on(at(91.0), Move::Play(1.0)).unwrap();
        assert_eq!(stands(again), (LaneState::Replaying, 0), "from the reset on");
    }

    #[test]
    fn a_pause_holds_still_and_a_seek_goes_on_if_it_was_replaying() {
        let mut player = loaded(1_000);
        player.on(at(0.0), Move::Play(1.0)).unwrap();
        let paused = player.on(at(1.001), Move::Pause).unwrap();
        assert_eq!(stands(paused), (LaneState::Paused, 30));
        assert_eq!(player.look(at(1_000.0)), paused);
        assert_eq!(stands(player.on(at(1_000.0), Move::Seek(7)).unwrap()), (LaneState::Paused, 7));
        player.on(at(1_000.0), Move::Play(1.0)).unwrap();
        assert_eq!(stands(player.on(at(1_001.0), Move::Seek(500)).unwrap()), (LaneState::Replaying, 500));
        assert_eq!(stands(player.look(at(1_002.001))), (LaneState::Replaying, 530));
        assert_eq!(stands(player.on(at(1_002.001), Move::Step(-2)).unwrap()), (LaneState::Paused, 528));
    }

    #[test]
    fn what_lies_outside_of_the_episode_or_of_its_speeds_moves_nothing() {
        let mut player = loaded(10);
        player.on(at(0.0), Move::Seek(4)).unwrap();
        let before = player.clone();
        for asked in [Move::Seek(11), Move::Play(0.0), Move::Play(f64::NAN), Move::Play(65.0)] {
            player.on(at(1.0), asked).unwrap_err();
            assert_eq!(player, before, "{asked:?}");
        }
        assert_eq!(stands(player.on(at(1.0), Move::Step(i64::MIN)).unwrap()), (LaneState::Paused, 0));
        assert_eq!(stands(player.on(at(1.0), Move::Step(i64::MAX)).unwrap()), (LaneState::Over, 10));
        assert_eq!(stands(player.on(at(1.0), Move::Pause).unwrap()), (LaneState::Over, 10));
        assert_eq!(stands(player.on(at(1.0), Move::Seek(9)).unwrap()), (LaneState::Paused, 9));
    }

    #[test]
    fn an_episode_of_no_steps_is_over_from_the_beginning() {
        let mut player = loaded(0);
        assert_eq!(stands(player.look(at(1.0))), (LaneState::Over, 0));
        assert_eq!(stands(player.on(at(1.0), Move::Play(1.0)).unwrap()), (LaneState::Over, 0));
    }

    fn moves() -> impl Strategy<Value = Move> {
        prop_oneof![
            (0u64..60).prop_map(Move::Seek),
            (-20i64..20).prop_map(Move::Step),
            (0.0f64..70.0).prop_map(Move::Play),
            Just(Move::Pause),
        ]
    }

    proptest! {
        /// Whoever waits for a serial number after the one that he has seen misses nothing, and sleeps until the moment
        /// at which there is something new.
        #[test]
        fn serial_numbers_only_grow_and_the_next_step_is_shown_when_it_is_due(
            asked in prop::collection::vec((0u64..3_000_000_000, prop::option::of(moves())), 1..60)
        ) {
            let mut player = loaded(50);
            let (mut now, mut last) = (Duration::ZERO, player.look(Duration::ZERO));
            for (wait, asked) in asked {
                now += Duration::from_nanos(wait);
                let before = player.look(now);
                prop_assert!(before.serial >= last.serial);
                prop_assert_eq!(before.serial > last.serial, before.standing.step != last.standing.step);
                let shows = match asked.map(|asked| player.on(now, asked)) {
                    Some(Ok(shows)) => {
                        prop_assert!(shows.serial > before.serial);
                        shows
                    }
                    Some(Err(_)) | None => before,
                };
                prop_assert!(shows.standing.step <= 50);
                prop_assert_eq!(shows.standing.state == LaneState::Over, shows.standing.step == 50);
                if let Some(next) = player.next_at(now) {
                    prop_assert!(next > now);
                    let mut ahead = player.clone();
                    prop_assert_eq!(ahead.look(next - Duration::from_nanos(1)).serial, shows.serial);
                    prop_assert_eq!(ahead.look(next).serial, shows.serial + 1);
                }
                last = shows;
            }
        }
    }
}
