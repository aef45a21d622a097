//! Methods that order units.

use serde_json::{Value, json};

use super::super::actor::Actor;
use super::super::kinds::{Item, Line};
use super::super::map::Cell;
use super::super::orders::{Order, OrderKind, Selector};
use super::super::unit::{Stance, Unit};
use super::super::world::World;
use super::Answer;
use super::arguments::{Arguments, MAX_SHOWN};
use crate::CallError;

pub(super) fn go(world: &mut World, arguments: &Arguments) -> Answer {
    to(world, arguments, OrderKind::Move)
}

pub(super) fn attack_move(world: &mut World, arguments: &Arguments) -> Answer {
    to(world, arguments, OrderKind::AttackMove)
}

pub(super) fn patrol(world: &mut World, arguments: &Arguments) -> Answer {
    to(world, arguments, OrderKind::Patrol)
}

pub(super) fn attack(world: &mut World, arguments: &Arguments) -> Answer {
    at(world, arguments, OrderKind::Attack)
}

pub(super) fn guard(world: &mut World, arguments: &Arguments) -> Answer {
    at(world, arguments, OrderKind::Guard)
}

pub(super) fn stop(world: &mut World, arguments: &Arguments) -> Answer {
    plainly(world, arguments, OrderKind::Stop)
}

pub(super) fn retreat(world: &mut World, arguments: &Arguments) -> Answer {
    plainly(world, arguments, OrderKind::Retreat)
}

pub(super) fn scatter(world: &mut World, arguments: &Arguments) -> Answer {
    plainly(world, arguments, OrderKind::Scatter)
}

fn to(world: &mut World, arguments: &Arguments, kind: OrderKind) -> Answer {
    let cell = arguments.cell("target_x", "target_y")?.unwrap_or_default();
    let order = Order { queued: arguments.flag("queued"), ..Order::new(kind).to(cell) };
    let units = units_of(world, arguments, "unit_ids")?;
    give(world, &units, &order)
}

fn at(world: &mut World, arguments: &Arguments, kind: OrderKind) -> Answer {
    let target = arguments.id("target_actor_id")?;
    let order = Order { queued: arguments.flag("queued"), ..Order::new(kind).at(target) };
    let units = units_of(world, arguments, "unit_ids")?;
    give(world, &units, &order)
}

fn plainly(world: &mut World, arguments: &Arguments, kind: OrderKind) -> Answer {
    let units = units_of(world, arguments, "unit_ids")?;
    give(world, &units, &Order::new(kind))
}

pub(super) fn set_stance(world: &mut World, arguments: &Arguments) -> Answer {
    let order = stance(arguments)?;
    let units = units_of(world, arguments, "unit_ids")?;
    give(world, &units, &order)
}

/// Returns the order to take on the stance that the arguments name.
pub(super) fn stance(arguments: &Arguments) -> Result<Order, CallError> {
    let name = arguments.text("stance").unwrap_or_default();
    let number = Stance::NAMES.iter().position(|known| *known == name);
    let unknown = || CallError::refused(format!("`stance` must be one of {:?}", Stance::NAMES));
    let number = number.ok_or_else(unknown)?;
    Ok(Order::new(OrderKind::SetStance).to(Cell::new(number as u8, 0)))
}

pub(super) fn harvest(world: &mut World, arguments: &Arguments) -> Answer {
    let cell = arguments.cell("cell_x", "cell_y")?;
    let units = units_of(world, arguments, "unit_id")?;
    let own = units.first().and_then(|&slot| world.game.sides[0].unit(slot)).map(|unit| unit.cell);
    let cell = cell.or(own).unwrap_or_default();
    give(world, &units, &Order::new(OrderKind::Harvest).to(cell))
}

/// Gives an order to units. It is refused if none of them carries it out.
pub(super) fn give(world: &mut World, units: &[u8], order: &Order) -> Answer {
    let (mut ordered, mut refused, mut first) = (Vec::new(), Vec::new(), None);
    for &slot in units {
        let id = Actor::Unit(slot).id(false);
        match world.order(&order.by_unit(slot)) {
            Ok(()) => ordered.push(id),
            Err(refusal) => {
                refused.push(json!({"id": id, "reason": refusal.to_string()}));
                first = first.or(Some(refusal));
            }
        }
    }
    match first {
        Some(refusal) if ordered.is_empty() => Err(CallError::refused(refusal.to_string())),
        _ => Ok(json!({"ordered": ordered, "refused": refused})),
    }
}

/// Returns the places of the units that an argument names.
///
/// # Errors
/// If it names none.
pub(super) fn units_of(world: &World, arguments: &Arguments, name: &str) -> Result<Vec<u8>, CallError> {
    let units = match arguments.value(name) {
        Some(Value::String(text)) => units_of_text(world, text)?,
        Some(Value::Array(ids)) => {
            ids.iter().map(|id| unit_of(world, id.as_i64())).collect::<Result<_, _>>()?
        }
        Some(id) => vec![unit_of(world, id.as_i64())?],
        None => Vec::new(),
    };
    if units.is_empty() {
        return Err(CallError::refused(format!("`{name}` names no unit")));
    }
    Ok(units)
}

fn units_of_text(world: &World, text: &str) -> Result<Vec<u8>, CallError> {
    let all = |is: &dyn Fn(&Unit) -> bool| {
        world.game.sides[0].units().filter(|(_, unit)| is(unit)).map(|(slot, _)| slot).collect()
    };
    if let Some(place) = Selector::NAMES.iter().position(|known| *known == text) {
        return Ok(all(&|unit| Selector::ALL[place].has(unit)));
    }
    if let Some(kind) = text.strip_prefix("type:") {
        let Some(Item::Unit(kind)) = Item::of_name(kind) else {
            let kind: String = kind.chars().take(MAX_SHOWN).collect();
            return Err(CallError::refused(format!("no kind of unit `{kind}`")));
        };
        return Ok(all(&|unit| unit.kind == kind));
    }
    if let Some(group) = text.strip_prefix("group:") {
        return world
            .groups
            .members(&world.game, group)
            .map_err(|error| CallError::refused(error.to_string()));
    }
    text.split(',').map(|id| unit_of(world, id.trim().parse().ok())).collect()
}

fn unit_of(world: &World, id: Option<i64>) -> Result<u8, CallError> {
    let actor = id.and_then(|id| u8::try_from(id).ok()).and_then(Actor::of_id);
    match actor {
        Some((false, Actor::Unit(slot))) if world.game.sides[0].unit(slot).is_some() => Ok(slot),
        _ => Err(CallError::refused(match id {
            Some(id) => format!("{id} is no unit of one's own"),
            None => "units are named by ids, a selector, type:KIND or group:NAME".to_owned(),
        })),
    }
}

/// Returns the word for where a kind of unit is produced.
pub(super) const fn line_of(line: Line) -> &'static str {
    line.name()
}
