//! The pace at which steps are shown or taken.

use std::time::Duration;

use crate::numbers::count;

/// A pace: whether time passes, how many steps a second it brings, and how much of the next one is due.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Steps per second at speed 1x.
    usual: f64,
    /// Speed as a power of two.
    speed: i32,
    is_playing: bool,
    /// Steps that are due and were not taken, the part of one included.
    due: f64,
}

impl Pace {
    /// Makes a pace of so many steps per second at speed 1x, at which no time passes yet.
    pub(crate) fn new(usual: f64, speed: i32) -> Self {
        Self { usual, speed: speed.clamp(SLOWEST, FASTEST), is_playing: false, due: 0.0 }
    }

    /// Has time pass from now on, or stops it; nothing is due then.
    pub(crate) const fn set_playing(&mut self, is_playing: bool) {
        (self.is_playing, self.due) = (is_playing, 0.0);
    }

    /// Stops time.
    pub(crate) const fn pause(&mut self) {
        self.is_playing = false;
    }

    pub(crate) const fn is_playing(&self) -> bool {
        self.is_playing
    }

    /// Doubles the speed, unless it is the fastest.
    pub(crate) fn go_faster(&mut self) {
        self.speed = (self.speed + 1).min(FASTEST);
    }

    /// Halves the speed, unless it is the slowest.
    pub(crate) fn go_slower(&mut self) {
        self.speed = (self.speed - 1).max(SLOWEST);
    }

    /// Lets time pass, if it does; returns how many whole steps are due.
    pub(crate) fn let_pass(&mut self, passed: Duration) -> u64 {
        if !self.is_playing {
            return 0;
        }
        self.due += passed.as_secs_f64() * self.rate();
        self.due as u64
    }

    /// Notes that so many of the due steps are taken.
    pub(crate) fn take(&mut self, steps: u64) {
        self.due -= steps as f64;
    }

    /// Notes that one due step is taken, and that of those left over at most one is made up for.
    pub(crate) fn take_one(&mut self) {
        self.due = (self.due - 1.0).min(1.0);
    }

    /// Returns the seconds until a step is due.
    pub(crate) fn seconds_left(&self) -> f64 {
        (1.0 - self.due).max(0.0) / self.rate()
    }

    fn rate(&self) -> f64 {
        self.usual * 2f64.powi(self.speed)
    }

    /// Returns the steps per second at speed 1x.
    pub(crate) const fn usual(&self) -> f64 {
        self.usual
    }

    /// Returns the speed as a power of two.
    pub(crate) const fn speed(&self) -> i32 {
        self.speed
    }

    /// Returns the speed as it is shown: `1/16x` to `64x`.
    pub(crate) fn speed_word(&self) -> String {
        match self.speed {
            slow @ ..0 => format!("1/{}x", count(1 << -slow)),
            speed => format!("{}x", count(1 << speed)),
        }
    }
}

/// The slowest speed: 1/16x.
pub const SLOWEST: i32 = -4;
/// The fastest speed: 64x.
pub const FASTEST: i32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_shown_as_people_say_them() {
        assert_eq!([-9, 0, 6].map(|speed| Pace::new(1.0, speed).speed_word()), ["1/16x", "1x", "64x"]);
    }

    #[test]
    fn whole_steps_are_due_while_time_passes_and_parts_of_them_are_kept() {
        let mut pace = Pace::new(10.0, 1);
        assert_eq!(pace.let_pass(Duration::from_secs(1)), 0);
        pace.set_playing(true);
        assert_eq!(pace.let_pass(Duration::from_millis(125)), 2);
        pace.take(2);
        assert_eq!(pace.let_pass(Duration::from_millis(25)), 1);
        assert_eq!(pace.let_pass(Duration::from_millis(300)), 7);
        pace.take_one();
        assert_eq!(pace.let_pass(Duration::ZERO), 1);
    }
}
