//! Methods that produce units, and build, place and run buildings.

use serde_json::{Value, json};

use super::super::kinds::{BuildingKind, Item};
use super::super::map::Cell;
use super::super::orders::{Order, OrderKind};
use super::super::world::World;
use super::Answer;
use super::arguments::{Arguments, MAX_SHOWN};
use crate::CallError;

/// Most units that a call trains: as many as a line has at a time.
const MAX_COUNT: i64 = super::super::production::MAX_JOBS as i64;
/// Most cells that a call returns.
const MAX_PLACES: i64 = 64;

pub(super) fn train(world: &mut World, arguments: &Arguments) -> Answer {
    let item = item_of(arguments, "unit_type", |item| matches!(item, Item::Unit(_)))?;
    let count = arguments.integer("count", 1, 1, MAX_COUNT)?;
    let mut begun = 0;
    for _ in 0..count {
        match world.order(&Order::new(OrderKind::Train).of(item)) {
            Ok(()) => begun += 1,
            Err(refusal) if begun == 0 => return Err(CallError::refused(refusal.to_string())),
            Err(refusal) => return Ok(json!({"begun": begun, "refused": refusal.to_string()})),
        }
    }
    Ok(json!({"begun": begun}))
}

pub(super) fn build(world: &mut World, arguments: &Arguments) -> Answer {
    let (item, _) = building_of(arguments)?;
    order(world, &Order::new(OrderKind::Build).of(item))
}

pub(super) fn build_and_place(world: &mut World, arguments: &Arguments) -> Answer {
    let (item, kind) = building_of(arguments)?;
    let cell = place_for(world, arguments, kind)?;
    order(world, &Order { queued: true, ..Order::new(OrderKind::Build).of(item).to(cell) })
}

pub(super) fn place(world: &mut World, arguments: &Arguments) -> Answer {
    let (item, kind) = building_of(arguments)?;
    let cell = place_for(world, arguments, kind)?;
    order(world, &Order::new(OrderKind::PlaceBuilding).of(item).to(cell))
}

/// Returns the cell that the arguments name, or else the first where the building fits.
fn place_for(world: &World, arguments: &Arguments, kind: BuildingKind) -> Result<Cell, CallError> {
    if let Some(cell) = arguments.cell("cell_x", "cell_y")? {
        return Ok(cell);
    }
    let cells = world.game.placements(0, kind, home(world), 1);
    cells.first().copied().ok_or_else(|| CallError::refused("the building fits nowhere"))
}

/// Returns the middle of the first building.
fn home(world: &World) -> Cell {
    world.game.sides[0].buildings().next().map_or(Cell::default(), |(_, building)| building.middle())
}

pub(super) fn placements(world: &mut World, arguments: &Arguments) -> Answer {
    let (_, kind) = building_of(arguments)?;
    let most = arguments.integer("max_results", 8, 1, MAX_PLACES)?;
    let cells = world.game.placements(0, kind, home(world), most as usize);
    let cells: Vec<_> = cells.into_iter().map(|cell| json!({"cell_x": cell.x, "cell_y": cell.y})).collect();
    Ok(Value::Array(cells))
}

pub(super) fn cancel(world: &mut World, arguments: &Arguments) -> Answer {
    let item = item_of(arguments, "item_type", |_| true)?;
    order(world, &Order::new(OrderKind::CancelProduction).of(item))
}

pub(super) fn sell(world: &mut World, arguments: &Arguments) -> Answer {
    run(world, arguments, OrderKind::Sell)
}

pub(super) fn repair(world: &mut World, arguments: &Arguments) -> Answer {
    run(world, arguments, OrderKind::Repair)
}

pub(super) fn power_down(world: &mut World, arguments: &Arguments) -> Answer {
    run(world, arguments, OrderKind::PowerDown)
}

pub(super) fn set_primary(world: &mut World, arguments: &Arguments) -> Answer {
    run(world, arguments, OrderKind::SetPrimary)
}

pub(super) fn set_rally_point(world: &mut World, arguments: &Arguments) -> Answer {
    run(world, arguments, OrderKind::SetRallyPoint)
}

fn run(world: &mut World, arguments: &Arguments, kind: OrderKind) -> Answer {
    let cell = arguments.cell("cell_x", "cell_y")?.unwrap_or_default();
    order(world, &Order::new(kind).by(arguments.id("building_id")?).to(cell))
}

fn order(world: &mut World, order: &Order) -> Answer {
    let done = world.order(order).map_err(|refusal| CallError::refused(refusal.to_string()));
    done.map(|()| json!({"ordered": order.kind.name()}))
}

fn building_of(arguments: &Arguments) -> Result<(Item, BuildingKind), CallError> {
    match item_of(arguments, "building_type", |item| matches!(item, Item::Building(_)))? {
        item @ Item::Building(kind) => Ok((item, kind)),
        item @ Item::Unit(_) => Err(CallError::refused(format!("`{}` is no building", item.name()))),
    }
}

/// Returns the item that an argument names.
pub(super) fn item_of(arguments: &Arguments, name: &str, is: fn(Item) -> bool) -> Result<Item, CallError> {
    let given = arguments.text(name).unwrap_or_default();
    item_named(given).filter(|&item| is(item)).ok_or_else(|| {
        let items = (1..super::super::kinds::ITEM_NUMBERS as u8).filter_map(Item::of_number);
        let known: Vec<_> = items.filter(|&item| is(item)).map(Item::name).collect();
        let given: String = given.chars().take(MAX_SHOWN).collect();
        CallError::refused(format!("unknown `{name}` `{given}`; known are {}", known.join(", ")))
    })
}

pub(super) fn item_named(name: &str) -> Option<Item> {
    Item::of_name(name)
}
