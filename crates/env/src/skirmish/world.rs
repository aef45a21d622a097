//! A game against a scripted player, and what the player has asked for.

use std::hash::{Hash, Hasher};

use super::action::Action;
use super::advance::{Advance, Advanced, Weights, advance};
use super::events::Events;
use super::game::{Game, Setup};
use super::groups::Groups;
use super::opponent::{Script, Strength};
use super::orders::{Order, Refusal};

/// What the options of a lane say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Terms {
    pub(crate) setup: Setup,
    pub(crate) opponent: Strength,
    /// Ticks after which a game is a draw.
    pub(crate) time_limit: u32,
    pub(crate) weights: Weights,
}

/// A game, who plays the other side, and what was asked for by methods and is still to come.
pub(crate) struct World {
    terms: Terms,
    pub(crate) game: Game,
    pub(super) script: Script,
    pub(crate) groups: Groups,
    /// What the next step advances by in place of what its action says.
    pub(crate) asked: Option<Advance>,
    /// Whether the next step is the episode's last.
    pub(crate) is_given_up: bool,
    /// What happened in the last step.
    pub(crate) events: Events,
}

impl World {
    pub(crate) fn new(terms: Terms) -> Self {
        Self {
            terms,
            game: Game::new(terms.setup, 0),
            script: Script::new(terms.opponent, 1),
            groups: Groups::default(),
            asked: None,
            is_given_up: false,
            events: Events::NONE,
        }
    }

    /// Begins the game of a seed.
    pub(crate) fn begin(&mut self, seed: u64) {
        *self = Self { game: Game::new(self.terms.setup, seed), ..Self::new(self.terms) };
    }

    /// Returns a copy for its state to be taken from.
    pub(super) fn of_state(&self) -> Self {
        let (game, script) = (self.game.without_ways(), self.script.clone());
        let (groups, asked) = (self.groups.clone(), self.asked.clone());
        Self { game, script, groups, asked, ..*self }
    }

    pub(crate) const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Has the player's side carry out an order.
    pub(crate) fn order(&mut self, order: &Order) -> Result<(), Refusal> {
        self.game.order(0, order)
    }

    /// Carries out the orders of an action, and advances. Returns what that came to, how many orders were refused, and the first
    /// reason for that.
    pub(crate) fn play(&mut self, action: &Action) -> (Advanced, i32, i32) {
        let (mut refused, mut reason) = (0, 0);
        for order in &action.orders {
            if let Err(refusal) = self.game.order(0, order) {
                refused += 1;
                reason = if reason == 0 { refusal.code().into() } else { reason };
            }
        }
        let by = self.asked.take().unwrap_or_else(|| action.advance.clone());
        let Terms { weights, time_limit, .. } = &self.terms;
        let done = advance(&mut self.game, &mut self.script, &by, weights, *time_limit);
        self.events = done.events;
        (done, refused, reason)
    }
}

impl Hash for World {
    /// Hashes everything on which later states depend; the terms are the lane's options.
    fn hash<H: Hasher>(&self, words: &mut H) {
        (&self.game, &self.script, &self.groups, &self.asked, self.is_given_up).hash(words);
    }
}
