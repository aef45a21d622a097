//! Methods that end games, say how time is to pass, command groups, and call several others.

use arrayvec::ArrayVec;
use rollhouse_core::limits::MAX_CALLS_OF_STEP;
use serde_json::{Value, json};

use super::super::actor::Actor;
use super::super::advance::{
    Advance, Comparison, Condition, MAX_CHECK_EVERY, MAX_CONDITIONS, MAX_TICKS, MAX_VALUE, Until,
};
use super::super::events::Event;
use super::super::figures::Figure;
use super::super::orders::{Order, OrderKind};
use super::super::world::World;
use super::arguments::{Arguments, MAX_SHOWN};
use super::command::{give, stance, units_of};
use super::{Answer, find};
use crate::CallError;

pub(super) fn advance(world: &mut World, arguments: &Arguments) -> Answer {
    let ticks = arguments.integer("ticks", 1, 1, MAX_TICKS.into())?;
    let check_every = arguments.integer("check_every", 1, 1, MAX_CHECK_EVERY.into())?;
    let until = arguments.value("until").map_or_else(|| Ok(Until::default()), until_of)?;
    world.asked = Some(Advance { ticks: ticks as u32, check_every: check_every as u32, until });
    Ok(json!({"ticks": ticks, "check_every": check_every}))
}

/// Reads what a step is to end for: `{"interrupts": [NAME], "conditions": [[FIGURE, COMPARISON, NUMBER]], "all": BOOL}`.
fn until_of(value: &Value) -> Result<Until, CallError> {
    let mut until = Until { needs_all: value["all"].as_bool().unwrap_or_default(), ..Until::default() };
    if let Some(unknown) =
        value.as_object().and_then(|it| it.keys().find(|key| !UNTIL.contains(&key.as_str())))
    {
        return Err(unknown_name("part of `until`", unknown, &UNTIL));
    }
    for name in list_of(value, "interrupts")? {
        let name = name.as_str().unwrap_or_default();
        let place = Event::NAMES.iter().position(|known| *known == name);
        let event = place.ok_or_else(|| unknown_name("interrupt", name, &Event::NAMES))?;
        until.interrupts.insert(Event::ALL[event]);
    }
    let conditions = list_of(value, "conditions")?;
    if conditions.len() > MAX_CONDITIONS {
        let given = conditions.len();
        return Err(CallError::refused(format!(
            "{given} conditions cost too much, at most {MAX_CONDITIONS}"
        )));
    }
    let conditions: Result<ArrayVec<_, MAX_CONDITIONS>, _> = conditions.iter().map(condition_of).collect();
    until.conditions = conditions?;
    Ok(until)
}

const UNTIL: [&str; 3] = ["all", "conditions", "interrupts"];

/// Returns the list of that name, or no elements.
fn list_of<'a>(value: &'a Value, name: &str) -> Result<&'a [Value], CallError> {
    match &value[name] {
        Value::Null => Ok(&[]),
        Value::Array(list) => Ok(list),
        _ => Err(CallError::refused(format!("`{name}` of `until` must be a list"))),
    }
}

fn condition_of(value: &Value) -> Result<Condition, CallError> {
    let form = || CallError::refused("a condition is a list of a figure, a comparison and an integer");
    let [Value::String(figure), Value::String(comparison), number] =
        value.as_array().map_or(&[][..], Vec::as_slice)
    else {
        return Err(form());
    };
    let found = Figure::of_name(figure).ok_or_else(|| unknown_name("figure", figure, &Figure::NAMES))?;
    let place = Comparison::NAMES.iter().position(|known| known == comparison);
    let place = place.ok_or_else(|| unknown_name("comparison", comparison, &Comparison::NAMES))?;
    let value = number.as_i64().ok_or_else(form)?;
    if !(0..=MAX_VALUE).contains(&value) {
        return Err(CallError::refused(format!("a figure is compared to {value}, must be 0 to {MAX_VALUE}")));
    }
    Ok(Condition { figure: found, comparison: Comparison::ALL[place], value })
}

fn unknown_name(what: &str, name: &str, known: &[&str]) -> CallError {
    let name: String = name.chars().take(MAX_SHOWN).collect();
    CallError::refused(format!("unknown {what} `{name}`; known are {}", known.join(", ")))
}

pub(super) fn surrender(world: &mut World, _: &Arguments) -> Answer {
    world.game.surrender(0);
    Ok(json!({"surrendered": true}))
}

pub(super) fn give_up(world: &mut World, _: &Arguments) -> Answer {
    world.is_given_up = true;
    Ok(json!({"ends_with_next_step": true}))
}

/// Calls several methods. One that is refused does not keep the others from being called.
pub(super) fn batch(world: &mut World, arguments: &Arguments) -> Answer {
    let actions = arguments.value("actions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if actions.len() > MAX_CALLS_OF_STEP {
        let given = actions.len();
        return Err(CallError::refused(format!("{given} actions, at most {MAX_CALLS_OF_STEP}")));
    }
    let answer = |action: &Value| match one_of_batch(world, action) {
        Ok(answer) => json!({"answer": answer}),
        Err(error) => json!({"error": error.to_string()}),
    };
    Ok(Value::Array(actions.iter().map(answer).collect()))
}

fn one_of_batch(world: &mut World, action: &Value) -> Answer {
    let name = action["method"].as_str().unwrap_or_default();
    let method = find(name).filter(|method| method.name != "batch");
    let method = method.ok_or_else(|| unknown_name("method", name, &["all others than batch"]))?;
    (method.run)(world, &Arguments::of(action["arguments"].clone(), method.params)?)
}

pub(super) fn groups(world: &mut World, _: &Arguments) -> Answer {
    let group = |name: &str| {
        let members = world.groups.members(&world.game, name).unwrap_or_default();
        let ids: Vec<_> = members.into_iter().map(|slot| Actor::Unit(slot).id(false)).collect();
        (name.to_owned(), json!(ids))
    };
    Ok(Value::Object(world.groups.names().map(group).collect()))
}

pub(super) fn assign_group(world: &mut World, arguments: &Arguments) -> Answer {
    assign(world, arguments, false)
}

pub(super) fn add_to_group(world: &mut World, arguments: &Arguments) -> Answer {
    assign(world, arguments, true)
}

fn assign(world: &mut World, arguments: &Arguments, keeps: bool) -> Answer {
    let units = units_of(world, arguments, "unit_ids")?;
    let own = &world.game.sides[0];
    let serials: Vec<_> = units.iter().filter_map(|&slot| own.unit(slot)).map(|unit| unit.serial).collect();
    world.groups.forget_dead(&world.game);
    let name = arguments.text("group_name").unwrap_or_default();
    let assigned = world.groups.assign(name, &serials, keeps);
    assigned.map_err(|error| CallError::refused(error.to_string()))?;
    Ok(json!({"assigned": serials.len()}))
}

pub(super) fn command_group(world: &mut World, arguments: &Arguments) -> Answer {
    let name = arguments.text("group_name").unwrap_or_default();
    let units = world.groups.members(&world.game, name);
    let units = units.map_err(|error| CallError::refused(error.to_string()))?;
    if units.is_empty() {
        return Err(CallError::refused("no unit of the group lives"));
    }
    let command = arguments.text("command").unwrap_or_default();
    let kind = COMMANDS.into_iter().find(|kind| kind.name() == command);
    let kind = kind.ok_or_else(|| unknown_name("command", command, &COMMANDS.map(OrderKind::name)))?;
    let order = match kind {
        OrderKind::SetStance => stance(arguments)?,
        kind => {
            let cell = arguments.cell("target_x", "target_y")?.unwrap_or_default();
            Order::new(kind).to(cell).at(arguments.id("target_actor_id")?)
        }
    };
    give(world, &units, &order)
}

/// What a group can be ordered.
const COMMANDS: [OrderKind; 9] = [
    OrderKind::Move,
    OrderKind::AttackMove,
    OrderKind::Attack,
    OrderKind::Stop,
    OrderKind::Guard,
    OrderKind::Patrol,
    OrderKind::Retreat,
    OrderKind::Scatter,
    OrderKind::SetStance,
];
