//! A recorded episode that a node shows: how keys move it, and how its position is shown.

use rollhouse_core::LaneState;
use rollhouse_wire::{FASTEST_REPLAY, ReplayStanding, SLOWEST_REPLAY};

use crate::keys::Key;
use crate::numbers::count;

/// A move of a recorded episode that a node shows, for everyone who watches it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReplayMove {
    /// Go to a step.
    Seek(u64),
    /// Go so many steps forward or back, and pause.
    Step(i64),
    /// Play at that speed.
    Play(f64),
    /// Pause.
    Pause,
}

/// Returns the move that a key asks for, given the episode's position.
pub(crate) fn move_for(key: Key, standing: ReplayStanding) -> Option<ReplayMove> {
    let ReplayStanding { state, step, length, speed } = standing;
    let plays = state == LaneState::Replaying;
    let tenth = (length / 10).max(1);
    Some(match key {
        Key::Char(' ') if plays => ReplayMove::Pause,
        Key::Char(' ') => ReplayMove::Play(speed),
        Key::Left | Key::Char('h') => ReplayMove::Step(-1),
        Key::Right | Key::Char('l') => ReplayMove::Step(1),
        Key::PageUp => ReplayMove::Seek(step.saturating_sub(tenth)),
        Key::PageDown => ReplayMove::Seek((step + tenth).min(length)),
        Key::Home => ReplayMove::Seek(0),
        Key::End => ReplayMove::Seek(length),
        Key::Char('+' | '=') if plays => ReplayMove::Play((speed * 2.0).min(FASTEST_REPLAY)),
        Key::Char('-') if plays => ReplayMove::Play((speed / 2.0).max(SLOWEST_REPLAY)),
        _ => return None,
    })
}

/// Returns the text for the bar at the bottom: a sign and the position.
pub(crate) fn sign(standing: ReplayStanding) -> String {
    let ReplayStanding { state, step, length, speed } = standing;
    let sign = match state {
        LaneState::Replaying => "▶ replay",
        LaneState::Over => "■ over  ",
        _ => "‖ paused",
    };
    let speed = if speed < 1.0 { format!("1/{:.0}x", 1.0 / speed) } else { format!("{speed:.0}x") };
    format!("{sign}  {} of {}  {speed}  ", count(step), count(length))
}

/// Keys of such an episode, for the bar at the bottom.
pub(crate) const KEYS: &str = "? help  q quit  space play  ←→ step  Home End  +- speed";

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(state: LaneState) -> ReplayStanding {
        ReplayStanding { state, step: 50, length: 181, speed: 0.5 }
    }

    #[test]
    fn keys_move_a_recorded_episode_as_they_move_one_that_is_played_here() {
        let paused = standing(LaneState::Paused);
        let moves = [
            (Key::Char(' '), Some(ReplayMove::Play(0.5))),
            (Key::Left, Some(ReplayMove::Step(-1))),
            (Key::Char('l'), Some(ReplayMove::Step(1))),
            (Key::PageUp, Some(ReplayMove::Seek(32))),
            (Key::PageDown, Some(ReplayMove::Seek(68))),
            (Key::Home, Some(ReplayMove::Seek(0))),
            (Key::End, Some(ReplayMove::Seek(181))),
            (Key::Char('+'), None),
            (Key::Char('q'), None),
        ];
        for (key, wanted) in moves {
            assert_eq!(move_for(key, paused), wanted, "{key:?}");
        }
        let replaying = standing(LaneState::Replaying);
        assert_eq!(move_for(Key::Char(' '), replaying), Some(ReplayMove::Pause));
        assert_eq!(move_for(Key::Char('+'), replaying), Some(ReplayMove::Play(1.0)));
        assert_eq!(move_for(Key::Char('-'), replaying), Some(ReplayMove::Play(0.25)));
        let slowest = ReplayStanding { speed: SLOWEST_REPLAY, ..replaying };
        assert_eq!(move_for(Key::Char('-'), slowest), Some(ReplayMove::Play(SLOWEST_REPLAY)));
    }

    #[test]
    fn where_it_stands_is_said_at_the_bottom() {
        assert_eq!(sign(standing(LaneState::Replaying)), "▶ replay  50 of 181  1/2x  ");
        let over = ReplayStanding { state: LaneState::Over, step: 181, length: 181, speed: 4.0 };
        assert_eq!(sign(over), "■ over    181 of 181  4x  ");
    }
}
