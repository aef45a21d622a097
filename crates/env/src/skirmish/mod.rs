//! Skirmish-v0, a strategy game in real time: two sides on a map with ore, buildings, units and fog.
//!
//! A game ([`game`]) is a value without clock and files, so that start and orders decide everything. A step applies up to 16 orders
//! and then advances by up to 5,000 ticks, or until something happens ([`advance`]). The player has side 0; a script
//! ([`opponent`]) has the other one, and knows no more than a player. Maps and rules are tables of the program that all lanes share.
//!
//! Wall time is no part of it: a step says how many ticks it took, and whoever measures time does so around the step.

mod acting;
mod action;
mod actor;
mod advance;
mod allowing;
mod building;
mod events;
mod fighting;
mod figures;
mod fog;
pub(crate) mod game;
mod groups;
mod hit;
pub(crate) mod kinds;
mod lane;
pub(crate) mod map;
mod methods;
mod obeying;
mod observation;
mod opponent;
mod orders;
mod packing;
mod paths;
mod producing;
mod production;
mod side;
mod spaces;
mod state;
#[cfg(test)]
mod tests;
mod unit;
mod words;
mod world;

use rollhouse_core::{Determinism, EnvSource, EnvSpec, OptionSpec, OptionValue, Options, Space};

use crate::bounds::float;
use crate::scene::Scene;
use crate::{EnvEntry, MakeError};
use advance::Weights;
use game::{Game, Setup};
use map::NAMES;
use opponent::Strength;
use spaces::MAX_TIME;
use world::{Terms, World};

pub(crate) use building::{Building, Sighting};
pub(crate) use methods::{BUILDING_LETTERS, UNIT_LETTERS};
pub(crate) use observation::known_ore;
pub(crate) use unit::Unit;

/// Makes the registry's entry for the env.
pub(crate) fn skirmish() -> EnvEntry {
    let entry = EnvEntry::per_lane(spec(), |options| Ok(World::new(terms(options)?)));
    entry.drawn(<Game as Scene<Game>>::SIZE, <Game as Scene<Game>>::FPS)
}

fn spec() -> EnvSpec {
    EnvSpec {
        id: ID.into(),
        source: EnvSource::BuiltIn,
        summary: "a strategy game in real time: mine, build and fight a scripted player, through fog".into(),
        observation_space: spaces::observations().unwrap_or_else(|_| Space::discrete(1).into()),
        action_space: spaces::actions().unwrap_or_else(|_| Space::discrete(1)),
        observation_names: Vec::new(),
        action_names: Vec::new(),
        max_episode_steps: None,
        determinism: Determinism::Deterministic,
        methods: methods::specs(),
        options: options(),
        info_channels: spaces::info_channels(),
        dynamics_hash: DYNAMICS_HASH,
    }
}

const ID: &str = "Skirmish-v0";

/// Hash that ties the spec to the dynamics; a test recomputes it.
const DYNAMICS_HASH: u64 = 0x45dc_bc6f_0e2b_2a4a;

const MAP: &str = "map";
const OPPONENT: &str = "opponent";
const FOG: &str = "fog";
const CASH: &str = "cash";
const TIME_LIMIT: &str = "time_limit";
const KILLS: &str = "reward_kills";
const LOSSES: &str = "reward_losses";
const INCOME: &str = "reward_income";
const OUTCOME: &str = "reward_outcome";

/// Most cash with which a side may begin.
const MAX_START_CASH: i64 = 100_000;

fn options() -> Vec<OptionSpec> {
    let option = |name: &str, default, summary: &str| OptionSpec {
        name: name.into(),
        default,
        summary: summary.into(),
    };
    let weight = |name: &str, weight, summary: &str| option(name, OptionValue::Float(weight), summary);
    vec![
        option(MAP, OptionValue::Text(NAMES[0].into()), "map: duel, river or highlands"),
        option(OPPONENT, OptionValue::Text("easy".into()), "scripted player: beginner, easy, medium or hard"),
        option(FOG, OptionValue::Bool(true), "whether a side sees only what its units and buildings do"),
        option(CASH, OptionValue::Int(4000), "money with which either side begins, 0 to 100,000"),
        option(TIME_LIMIT, OptionValue::Int(15_000), "ticks after which a game is a draw, 1 to 100,000"),
        weight(KILLS, 1.0, "reward for each 1,000 of what was destroyed of the enemy's"),
        weight(LOSSES, 1.0, "reward that each 1,000 of what was lost takes"),
        weight(INCOME, 0.1, "reward for each 1,000 of ore that was brought in"),
        weight(OUTCOME, 10.0, "reward that a victory gives and a defeat takes"),
    ]
}

/// Returns what makes drawn actions of an env ones that its masks allow, if it is this one.
pub(crate) fn allow_of(spec: &EnvSpec) -> Option<crate::Allow> {
    let is_this = spec.source == EnvSource::BuiltIn && spec.id == ID && spec.dynamics_hash == DYNAMICS_HASH;
    is_this.then_some(allowing::allow)
}

/// Reads what the options of a lane say.
fn terms(options: &Options) -> Result<Terms, MakeError> {
    let map = place(options, MAP, &NAMES)?;
    let opponent = place(options, OPPONENT, &Strength::NAMES)?;
    let has_fog = options.flag(FOG).ok_or(MakeError::Missing { lane: 0, name: FOG })?;
    let cash = integer(options, CASH, 0, MAX_START_CASH)? as i32;
    let weight = |name| float(options, 0, name);
    Ok(Terms {
        setup: Setup { map, cash, has_fog },
        opponent: Strength::ALL[opponent],
        time_limit: integer(options, TIME_LIMIT, 1, MAX_TIME)? as u32,
        weights: Weights {
            kills: weight(KILLS)?,
            losses: weight(LOSSES)?,
            income: weight(INCOME)?,
            outcome: weight(OUTCOME)?,
        },
    })
}

/// Returns the place of an option's text among the known ones.
fn place(options: &Options, name: &'static str, known: &[&str]) -> Result<usize, MakeError> {
    let text = options.text(name).ok_or(MakeError::Missing { lane: 0, name })?;
    let place = known.iter().position(|known| *known == text);
    place.ok_or_else(|| {
        let text: String = text.chars().take(64).collect();
        MakeError::Refused {
            source: format!("option `{name}` is `{text}`, must be {}", known.join(", ")).into(),
        }
    })
}

fn integer(options: &Options, name: &'static str, low: i64, high: i64) -> Result<i64, MakeError> {
    let value = options.int(name).ok_or(MakeError::Missing { lane: 0, name })?;
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    Err(MakeError::option(0, name, value as f64, format!("{low} to {high}")))
}
