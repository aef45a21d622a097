//! Advancing a game by many ticks at once: until they are over, or something happens for which the agent wants to be asked.

use arrayvec::ArrayVec;

use super::events::{Event, Events};
use super::figures::Figure;
use super::game::Game;
use super::opponent::Script;

/// What a step is to advance by.
#[derive(Debug, Clone, PartialEq, Hash)]
pub(crate) struct Advance {
    /// Ticks, 1 to [`MAX_TICKS`].
    pub(crate) ticks: u32,
    /// Ticks between two checks of `until`, 1 to [`MAX_CHECK_EVERY`].
    pub(crate) check_every: u32,
    pub(crate) until: Until,
}

/// Maximum number of ticks of a step.
pub(crate) const MAX_TICKS: u32 = 5000;
/// Maximum number of ticks between two checks.
pub(crate) const MAX_CHECK_EVERY: u32 = 100;
/// Maximum number of conditions: all of them cost less than a tick.
pub(crate) const MAX_CONDITIONS: usize = 8;
/// Greatest number to which a figure is compared.
pub(crate) const MAX_VALUE: i64 = 1_000_000;

/// For what a step ends before its ticks are over. The end of the game ends it in any case.
#[derive(Debug, Clone, PartialEq, Default, Hash)]
pub(crate) struct Until {
    /// Events since the step began.
    pub(crate) interrupts: Events,
    pub(crate) conditions: ArrayVec<Condition, MAX_CONDITIONS>,
    /// Whether all conditions have to hold, or one.
    pub(crate) needs_all: bool,
}

/// A comparison of a figure with a number.
#[derive(Debug, Clone, Copy, PartialEq, Hash)]
pub(crate) struct Condition {
    pub(crate) figure: Figure,
    pub(crate) comparison: Comparison,
    pub(crate) value: i64,
}

/// How a figure is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Comparison {
    AtLeast,
    AtMost,
    Equal,
    Unequal,
}

impl Comparison {
    pub(crate) const ALL: [Self; 4] = [Self::AtLeast, Self::AtMost, Self::Equal, Self::Unequal];
    pub(crate) const NAMES: [&str; 4] = [">=", "<=", "==", "!="];

    const fn holds(self, figure: i64, value: i64) -> bool {
        match self {
            Self::AtLeast => figure >= value,
            Self::AtMost => figure <= value,
            Self::Equal => figure == value,
            Self::Unequal => figure != value,
        }
    }
}

/// Why a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// Its ticks are over.
    Ticks,
    /// The game's time is.
    TimeLimit,
    /// Its conditions hold.
    Condition,
    /// An event happened.
    Event(Event),
}

impl StopReason {
    /// Returns the reason's number in infos.
    pub(crate) const fn number(self) -> i64 {
        match self {
            Self::Ticks => 0,
            Self::TimeLimit => 1,
            Self::Condition => 2,
            Self::Event(event) => 3 + event as i64,
        }
    }
}

impl Default for Advance {
    /// One tick.
    fn default() -> Self {
        Self { ticks: 1, check_every: 1, until: Until::default() }
    }
}

impl Until {
    /// Returns whether the conditions hold. Without any they do not.
    fn holds(&self, game: &Game) -> bool {
        let holds = |it: &Condition| it.comparison.holds(it.figure.of(game, 0), it.value);
        match (self.conditions.is_empty(), self.needs_all) {
            (true, _) => false,
            (false, true) => self.conditions.iter().all(holds),
            (false, false) => self.conditions.iter().any(holds),
        }
    }
}

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Advanced {
    pub(crate) ticks: u32,
    pub(crate) reason: StopReason,
    pub(crate) reward: f64,
    /// Everything that happened to the player's side.
    pub(crate) events: Events,
}

/// Weights of a tick's reward, per 1,000 of worth, and of the end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Weights {
    pub(crate) kills: f64,
    pub(crate) losses: f64,
    pub(crate) income: f64,
    pub(crate) outcome: f64,
}

/// Advances a game whose other side a script plays, at most to its time limit.
pub(crate) fn advance(
    game: &mut Game,
    script: &mut Script,
    advance: &Advance,
    weights: &Weights,
    time_limit: u32,
) -> Advanced {
    let mut done = Advanced { ticks: 0, reason: StopReason::Ticks, reward: 0.0, events: Events::NONE };
    while done.ticks < advance.ticks {
        let before = game.sides[0].stats;
        script.play(game);
        game.tick();
        done.ticks += 1;
        done.events |= game.sides[0].events;
        done.reward += weights.of_tick(before, game);
        if game.result.is_some() {
            done.reason = StopReason::Event(Event::GameOver);
            break;
        }
        if game.tick >= time_limit {
            done.reason = StopReason::TimeLimit;
            break;
        }
        if !done.ticks.is_multiple_of(advance.check_every) || done.ticks == advance.ticks {
            continue;
        }
        if let Some(event) = done.events.both(advance.until.interrupts).first() {
            done.reason = StopReason::Event(event);
            break;
        }
        if advance.until.holds(game) {
            done.reason = StopReason::Condition;
            break;
        }
    }
    done
}

impl Weights {
    /// Returns the reward of the last tick: what changed since `before`. Ticks are added up one by one, so that a step of many
    /// has the sum of as many steps.
    fn of_tick(&self, before: super::side::Stats, game: &Game) -> f64 {
        let now = game.sides[0].stats;
        let mut reward = 0.0;
        // Mostly nothing has changed.
        if now != before {
            let more = |now: i32, before: i32| f64::from(now - before) / 1000.0;
            reward += self.kills * more(now.kills_cost, before.kills_cost);
            reward -= self.losses * more(now.deaths_cost, before.deaths_cost);
            reward += self.income * more(now.income, before.income);
        }
        match game.result {
            Some(rollhouse_core::GameResult::Win) => reward + self.outcome,
            Some(rollhouse_core::GameResult::Lose) => reward - self.outcome,
            _ => reward,
        }
    }
}
