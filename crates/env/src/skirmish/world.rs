//! Skirmish-v0 as an env: one lane is one game against a scripted player.

use rollhouse_core::{ColumnMut, ColumnRef, GameResult, Verdict};

use super::action::Action;
use super::advance::{Advance, Advanced, StopReason, Weights, advance};
use super::events::Events;
use super::game::{Game, Setup};
use super::groups::Groups;
use super::methods;
use super::observation::observe;
use super::opponent::{Script, Strength};
use super::orders::{Order, Refusal};
use super::words::hash_of;
use crate::scene::Scene;
use crate::{CallError, Env, Generator, Image, ImageSize, RenderError, StepResult};

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
    script: Script,
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

    pub(crate) const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Has the player's side carry out an order.
    pub(crate) fn order(&mut self, order: &Order) -> Result<(), Refusal> {
        self.game.order(0, order)
    }

    /// Carries out the orders of an action, and advances. Returns what that came to, how many orders were refused, and the first
    /// reason for that.
    fn play(&mut self, action: &Action) -> (Advanced, i32, i32) {
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

impl Env for World {
    fn reset(&mut self, generator: &mut Generator, obs: &mut [ColumnMut<'_>]) {
        let mut world = Self::new(self.terms);
        world.game = Game::new(self.terms.setup, generator.next_u64());
        *self = world;
        observe(&self.game, Events::NONE, obs);
    }

    fn step(
        &mut self,
        _: &mut Generator,
        action: ColumnRef<'_>,
        obs: &mut [ColumnMut<'_>],
        infos: &mut [ColumnMut<'_>],
    ) -> StepResult {
        let action = Action::of(action.as_i64().unwrap_or_default());
        let (done, refused, reason) = self.play(&action);
        observe(&self.game, done.events, obs);
        let said =
            [reason, refused, self.game.sides[0].score(), done.reason.number() as i32, done.ticks as i32];
        for (channel, value) in infos.iter_mut().zip(said) {
            if let Some(channel) = channel.as_i32_mut() {
                channel[0] = value;
            }
        }
        let terminated = self.game.result.is_some();
        let is_cut = done.reason == StopReason::TimeLimit || self.is_given_up;
        StepResult { reward: done.reward, terminated, truncated: is_cut && !terminated }
    }

    fn state_hash(&self) -> u32 {
        hash_of(&(&self.game, &self.script, &self.groups, &self.asked, self.is_given_up))
    }

    fn verdict(&self) -> Verdict {
        let result = self.game.result.unwrap_or(GameResult::Draw);
        Verdict::new(result, Some(self.game.sides[0].score().into()))
    }

    fn call(&mut self, _: &mut Generator, method: &str, payload: &str) -> Result<String, CallError> {
        methods::call(self, method, payload)
    }

    fn render(&self, size: ImageSize) -> Result<Image, RenderError> {
        Ok(<Game as Scene<Game>>::picture(&self.game, size))
    }

    fn text(&self, columns: usize) -> Result<String, RenderError> {
        Ok(<Game as Scene<Game>>::text(&self.game, columns))
    }
}
