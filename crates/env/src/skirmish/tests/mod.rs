//! Whole games: against each other, by chance, and step by step.

mod advancing;
mod calls;
mod chance;
mod interrupts;
mod states;
mod strengths;

use rollhouse_core::{ColumnData, ColumnRef, EnvSpec, GameResult, Options};

use super::action::WIDTH;
use super::advance::{MAX_CONDITIONS, Until};
use super::events::Event;
use super::game::{Game, Setup};
use super::map::Cell;
use super::opponent::{Script, Strength};
use super::orders::{MAX_ORDERS, Order, OrderKind};
use super::world::World;
use super::{spec, terms};
use crate::{CallError, Env, Generator, StepResult};

/// What most games here begin with.
const SETUP: Setup = Setup { map: 0, cash: 4000, has_fog: true };

/// Plays a game between two scripts, at most so many ticks.
fn play(setup: Setup, seed: u64, strengths: [Strength; 2], ticks: u32) -> Game {
    let mut game = Game::new(setup, seed);
    let mut scripts = [Script::new(strengths[0], 0), Script::new(strengths[1], 1)];
    for _ in 0..ticks {
        scripts.iter_mut().for_each(|script| script.play(&mut game));
        game.tick();
        if game.result.is_some() {
            break;
        }
    }
    game
}

/// A lane of the env, with its columns.
struct Table {
    world: World,
    generator: Generator,
    obs: Vec<ColumnData>,
    infos: Vec<ColumnData>,
}

impl Table {
    /// Makes a lane with options, whose episode has begun.
    fn new(given: &[(&str, rollhouse_core::OptionValue)], seed: u64) -> Self {
        let spec = spec();
        let given: Vec<_> = given.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let options = Options::check(&spec.options, &given).unwrap();
        let zeros = |spec: &rollhouse_core::ColumnSpec| ColumnData::zeros(spec.dtype, spec.elements());
        let obs = spec.obs_columns().iter().map(zeros).collect();
        let infos = spec.info_channels.iter().map(zeros).collect();
        let world = World::new(terms(&options).unwrap());
        let mut table = Self { world, generator: Generator::seeded(seed), obs, infos };
        let mut columns: Vec<_> = table.obs.iter_mut().map(ColumnData::as_mut).collect();
        table.world.reset(&mut table.generator, &mut columns);
        table
    }

    /// Takes a step with a row of the action's column.
    fn step(&mut self, row: &[i64]) -> StepResult {
        let mut columns: Vec<_> = self.obs.iter_mut().map(ColumnData::as_mut).collect();
        let mut infos: Vec<_> = self.infos.iter_mut().map(ColumnData::as_mut).collect();
        self.world.step(&mut self.generator, ColumnRef::I64(row), &mut columns, &mut infos)
    }

    fn call(&mut self, method: &str, payload: &str) -> Result<serde_json::Value, CallError> {
        let answer = self.world.call(&mut self.generator, method, payload)?;
        Ok(serde_json::from_str(&answer).unwrap())
    }

    /// Returns the info channel of that name.
    fn info(&self, name: &str) -> i32 {
        let place = super::spaces::INFOS.iter().position(|known| *known == name).unwrap();
        self.infos[place].number(0) as i32
    }

    /// Returns the column of the observation of that path.
    fn column(&self, spec: &EnvSpec, path: &str) -> &ColumnData {
        let place = spec.obs_columns().iter().position(|column| column.path == path);
        &self.obs[place.unwrap_or_else(|| panic!("no column {path}"))]
    }
}

/// Returns the row of an action.
fn row_of(orders: &[Order], ticks: i64, check_every: i64, until: &Until) -> Vec<i64> {
    let mut row = vec![check_every];
    let items = orders.iter().flat_map(|order| {
        let Order { kind, subject, target, cell, item, queued } = *order;
        [item.into(), kind as i64, queued.into(), subject.into(), target.into(), cell.x.into(), cell.y.into()]
    });
    row.extend(items);
    row.resize(1 + MAX_ORDERS * 7, 0);
    row.extend([orders.len() as i64, ticks, until.needs_all.into()]);
    let first = row.len();
    let conditions = until.conditions.iter();
    row.extend(conditions.flat_map(|it| [it.comparison as i64, it.figure as i64, it.value]));
    row.resize(first + MAX_CONDITIONS * 3, 0);
    row.push(until.conditions.len() as i64);
    row.extend(Event::ALL.map(|event| i64::from(until.interrupts.has(event))));
    assert_eq!(row.len(), WIDTH);
    row
}
