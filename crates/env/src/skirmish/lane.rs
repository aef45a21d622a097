//! Skirmish-v0 as an env: a world that is stepped by actions, called and drawn.

use rollhouse_core::{ColumnMut, ColumnRef, GameResult, Verdict};

use super::action::Action;
use super::advance::StopReason;
use super::events::Events;
use super::game::Game;
use super::methods;
use super::observation::observe;
use super::words::hash_of;
use super::world::World;
use crate::scene::Scene;
use crate::{CallError, Env, Generator, Image, ImageSize, RenderError, StateError, StepResult};

impl Env for World {
    fn reset(&mut self, generator: &mut Generator, obs: &mut [ColumnMut<'_>]) {
        self.begin(generator.next_u64());
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
        hash_of(self)
    }

    fn verdict(&self) -> Verdict {
        let result = self.game.result.unwrap_or(GameResult::Draw);
        Verdict::new(result, Some(self.game.sides[0].score().into()))
    }

    fn state(&self) -> Result<Vec<f64>, StateError> {
        self.packed()
    }

    fn set_state(&mut self, state: &[f64]) -> Result<(), StateError> {
        self.unpack(state)
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
