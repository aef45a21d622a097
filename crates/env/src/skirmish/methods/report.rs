//! Methods that tell what the player's side knows.

use serde_json::{Map as Object, Value, json};

use super::super::actor::Actor;
use super::super::events::Event;
use super::super::figures::Figure;
use super::super::game::Game;
use super::super::kinds::{BuildingKind, ITEM_NUMBERS, Item, Weapon};
use super::super::map::Cell;
use super::super::observation::{known_ore, of_building, of_line, of_unit};
use super::super::spaces::{BUILDING_FIELDS, Field, JOB_FIELDS, UNIT_FIELDS};
use super::super::unit::{Stance, Task};
use super::super::world::World;
use super::Answer;
use super::arguments::Arguments;
use super::command::line_of;
use super::works::{item_named, item_of};
use crate::CallError;

/// Most kinds that a call looks up.
const MAX_QUERIES: usize = 32;

pub(super) fn state(world: &mut World, _: &Arguments) -> Answer {
    let game = &world.game;
    let events: Vec<_> = Event::ALL.into_iter().filter(|&it| world.events.has(it)).map(Event::name).collect();
    Ok(json!({
        "tick": game.tick,
        "time_limit": world.terms().time_limit,
        "phase": if game.result.is_some() { "game_over" } else { "playing" },
        "result": game.result.and_then(rollhouse_core::GameResult::word),
        "score": game.sides[0].score(),
        "economy": figures(game, &ECONOMY),
        "military": figures(game, &MILITARY),
        "explored_percent": game.sides[0].fog.explored_percent(game.map),
        "events": events,
    }))
}

const ECONOMY: [Figure; 6] = [
    Figure::Cash,
    Figure::Ore,
    Figure::PowerProvided,
    Figure::PowerDrained,
    Figure::ResourceCapacity,
    Figure::HarvesterCount,
];

const MILITARY: [Figure; 13] = [
    Figure::UnitsKilled,
    Figure::UnitsLost,
    Figure::BuildingsKilled,
    Figure::BuildingsLost,
    Figure::ArmyValue,
    Figure::ActiveUnitCount,
    Figure::KillsCost,
    Figure::DeathsCost,
    Figure::AssetsValue,
    Figure::OrderCount,
    Figure::IdleUnits,
    Figure::VisibleEnemies,
    Figure::KnownEnemyBuildings,
];

fn figures(game: &Game, figures: &[Figure]) -> Value {
    let figure = |figure: &Figure| (Figure::NAMES[*figure as usize].to_owned(), json!(figure.of(game, 0)));
    Value::Object(figures.iter().map(figure).collect())
}

pub(super) fn observation(world: &mut World, arguments: &Arguments) -> Answer {
    let mut report = state(world, arguments)?;
    report["units"] = units(world, arguments)?;
    report["buildings"] = buildings(world, arguments)?;
    report["enemies"] = enemies(world, arguments)?;
    report["production"] = production(world, arguments)?;
    Ok(report)
}

pub(super) fn economy(world: &mut World, _: &Arguments) -> Answer {
    Ok(figures(&world.game, &ECONOMY))
}

/// Returns numbers of an observation under their names.
fn named(fields: &[Field], numbers: &[i64]) -> Object<String, Value> {
    fields.iter().zip(numbers).map(|(&(name, ..), number)| (name.to_owned(), json!(number))).collect()
}

pub(super) fn units(world: &mut World, _: &Arguments) -> Answer {
    let game = &world.game;
    let unit = |(slot, unit)| {
        let unit: &super::super::unit::Unit = unit;
        let mut report = named(&UNIT_FIELDS, &of_unit(game, slot, unit));
        report.insert("type".to_owned(), json!(unit.rules().name));
        report.insert("activity".to_owned(), json!(Task::NAMES[usize::from(unit.task.number())]));
        report.insert("stance".to_owned(), json!(Stance::NAMES[unit.stance as usize]));
        Value::Object(report)
    };
    Ok(Value::Array(game.sides[0].units().map(unit).collect()))
}

pub(super) fn buildings(world: &mut World, _: &Arguments) -> Answer {
    let game = &world.game;
    let building = |(slot, building)| {
        let building: &super::super::building::Building = building;
        let mut report = named(&BUILDING_FIELDS, &of_building(game, slot, building));
        report.insert("type".to_owned(), json!(building.rules().name));
        Value::Object(report)
    };
    Ok(Value::Array(game.sides[0].buildings().map(building).collect()))
}

pub(super) fn enemies(world: &mut World, _: &Arguments) -> Answer {
    let game = &world.game;
    let own = &game.sides[0];
    let seen = game.sides[1].units().filter(|(_, unit)| own.fog.sees(unit.cell));
    let units: Vec<_> = seen
        .map(|(slot, unit)| {
            json!({
                "id": Actor::Unit(slot).id(true), "type": unit.rules().name,
                "cell_x": unit.cell.x, "cell_y": unit.cell.y, "hp_percent": unit.hp_percent(),
            })
        })
        .collect();
    let known = (0..).zip(&own.sightings).filter_map(|(slot, it)| Some((slot, it.as_ref()?)));
    let buildings: Vec<_> = known
        .map(|(slot, it)| {
            json!({
                "id": Actor::Building(slot).id(true), "type": it.kind.rules().name,
                "cell_x": it.cell.x, "cell_y": it.cell.y, "hp_percent": it.hp_percent,
                "is_visible": game.sees_building(0, it.kind, it.cell),
            })
        })
        .collect();
    Ok(json!({"units": units, "buildings": buildings}))
}

pub(super) fn production(world: &mut World, _: &Arguments) -> Answer {
    let game = &world.game;
    let lines = super::super::kinds::Line::ALL.into_iter().flat_map(|line| of_line(game, line));
    let job = |numbers: [i64; 6]| {
        let mut report = named(&JOB_FIELDS, &numbers);
        let item = Item::of_number(numbers[2] as u8);
        report.insert("item".to_owned(), json!(item.map(Item::name)));
        report.insert("line".to_owned(), json!(item.map(|item| line_of(item.line()))));
        Value::Object(report)
    };
    let jobs: Vec<_> = lines.map(job).collect();
    let all = (0..ITEM_NUMBERS as u8).filter_map(Item::of_number);
    let available: Vec<_> = all.filter(|&item| game.producible(0, item).is_ok()).map(Item::name).collect();
    Ok(json!({"queue": jobs, "available": available}))
}

pub(super) fn map_info(world: &mut World, _: &Arguments) -> Answer {
    let map = world.game.map;
    Ok(json!({
        "map_name": map.name, "width": map.width, "height": map.height,
        "own_start": cell(own_start(&world.game)), "enemy_start": cell(enemy_start(&world.game)),
    }))
}

fn cell(cell: Cell) -> Value {
    json!({"cell_x": cell.x, "cell_y": cell.y})
}

/// Returns the start that is nearer to the first building of one's own.
fn own_start(game: &Game) -> Cell {
    let home = game.sides[0].buildings().next().map_or(game.map.starts[0], |(_, it)| it.middle());
    let nearer = game.map.starts.into_iter().min_by_key(|start| start.square_to(home));
    nearer.unwrap_or(home)
}

fn enemy_start(game: &Game) -> Cell {
    let own = own_start(game);
    game.map.starts.into_iter().find(|&start| start != own).unwrap_or(own)
}

/// Draws the map: own buildings and units in capitals and small letters, enemies' as `!` and `?`.
pub(super) fn map_text(world: &mut World, _: &Arguments) -> Answer {
    let game = &world.game;
    let rows: Vec<String> = (0..game.map.height)
        .map(|y| (0..game.map.width).map(|x| letter(game, Cell::new(x, y))).collect())
        .collect();
    Ok(json!({
        "map": rows.join("\n"),
        "key": "own buildings YPRBFSTD, own units robtah, ? enemy unit, ! enemy building, * ore, \
            # rock, ~ water, , rough, . clear, blank unseen; rows from y 0, columns from x 0",
    }))
}

fn letter(game: &Game, cell: Cell) -> char {
    use super::super::map::Terrain;
    let own = &game.sides[0];
    if !own.fog.has_seen(cell) {
        return ' ';
    }
    let on = |middle: Cell, size: u8| {
        (middle.x..middle.x + size).contains(&cell.x) && (middle.y..middle.y + size).contains(&cell.y)
    };
    if let Some((_, unit)) = own.units().find(|(_, unit)| unit.cell == cell) {
        return char::from(UNIT_LETTERS[unit.kind as usize]);
    }
    if let Some((_, building)) = own.buildings().find(|(_, it)| on(it.cell, it.rules().size)) {
        return char::from(BUILDING_LETTERS[building.kind as usize]);
    }
    let mut enemies = game.sides[1].units();
    if own.fog.sees(cell) && enemies.any(|(_, unit)| unit.cell == cell) {
        return '?';
    }
    if own.sightings.iter().flatten().any(|it| on(it.cell, it.kind.rules().size)) {
        return '!';
    }
    match game.map.terrain[cell.index()] {
        _ if known_ore(game, cell) > 0 => '*',
        Terrain::Clear => '.',
        Terrain::Rough => ',',
        Terrain::Water => '~',
        Terrain::Rock => '#',
    }
}

/// Letters of the kinds of units: rifle, rocket, buggy, tank, artillery, harvester.
pub(crate) const UNIT_LETTERS: &[u8; 6] = b"robtah";
/// Letters of the kinds of buildings: yard, power plant, refinery, barracks, factory, silo, turret, radar.
pub(crate) const BUILDING_LETTERS: &[u8; 8] = b"YPRBFSTD";

pub(super) fn exploration(world: &mut World, _: &Arguments) -> Answer {
    let fog = &world.game.sides[0].fog;
    let explored = fog.explored_percent(world.game.map);
    Ok(json!({"explored_percent": explored, "explored_cells": fog.explored_cells}))
}

pub(super) fn terrain_at(world: &mut World, arguments: &Arguments) -> Answer {
    let game = &world.game;
    let at = arguments.cell("cell_x", "cell_y")?.unwrap_or_default();
    if !game.map.has(at) {
        return Err(CallError::refused(format!(
            "cell {},{} is not on the map of {} x {}",
            at.x, at.y, game.map.width, game.map.height
        )));
    }
    let fog = &game.sides[0].fog;
    let sight = if fog.sees(at) {
        "visible"
    } else if fog.has_seen(at) {
        "explored"
    } else {
        "hidden"
    };
    let terrain = ["clear", "rough", "water", "rock"][game.map.terrain[at.index()] as usize];
    Ok(json!({
        "terrain": terrain, "height": game.map.heights[at.index()], "sight": sight,
        "passable": game.map.is_passable(at), "ore": known_ore(game, at),
    }))
}

pub(super) fn map_analysis(world: &mut World, _: &Arguments) -> Answer {
    let game = &world.game;
    let home = own_start(game);
    let ore = game.map.cells().filter(|&at| known_ore(game, at) > 0);
    let mut ore: Vec<_> = ore.collect();
    ore.sort_by_key(|at| (at.square_to(home), at.index()));
    let loads: u32 = ore.iter().map(|&at| u32::from(known_ore(game, at))).sum();
    let nearest: Vec<_> = ore.into_iter().take(8).map(cell).collect();
    Ok(json!({
        "known_ore_loads": loads, "nearest_ore": nearest,
        "own_start": cell(home), "enemy_start": cell(enemy_start(game)),
        "steps_to_enemy_start": home.steps_to(enemy_start(game)),
    }))
}

pub(super) fn intel(world: &mut World, arguments: &Arguments) -> Answer {
    let name = super::super::opponent::Strength::NAMES[world.terms().opponent as usize];
    let stats = world.game.sides[0].stats;
    let mut report = enemies(world, arguments)?;
    report["opponent"] = json!(name);
    report["enemy_start"] = cell(enemy_start(&world.game));
    report["units_killed"] = json!(stats.units_killed);
    report["buildings_killed"] = json!(stats.buildings_killed);
    Ok(report)
}

pub(super) fn lookup_unit(_: &mut World, arguments: &Arguments) -> Answer {
    item_of(arguments, "unit_type", |item| matches!(item, Item::Unit(_))).map(rules_of)
}

pub(super) fn lookup_building(_: &mut World, arguments: &Arguments) -> Answer {
    item_of(arguments, "building_type", |item| matches!(item, Item::Building(_))).map(rules_of)
}

pub(super) fn batch_lookup(_: &mut World, arguments: &Arguments) -> Answer {
    let queries = arguments.value("queries").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if queries.len() > MAX_QUERIES {
        let given = queries.len();
        return Err(CallError::refused(format!("{given} queries, at most {MAX_QUERIES}")));
    }
    let report = queries.iter().filter_map(Value::as_str).map(|name| item_named(name).map(rules_of));
    Ok(report.map(|rules| rules.unwrap_or(Value::Null)).collect())
}

pub(super) fn tech_tree(_: &mut World, _: &Arguments) -> Answer {
    let items = (1..ITEM_NUMBERS as u8).filter_map(Item::of_number);
    let items = items.filter(|item| *item != Item::Building(BuildingKind::Yard));
    Ok(Value::Object(items.map(|item| (item.name().to_owned(), json!(needs(item)))).collect()))
}

fn needs(item: Item) -> Vec<&'static str> {
    item.needs().iter().map(|kind| kind.rules().name).collect()
}

/// Returns the rules of an item.
fn rules_of(item: Item) -> Value {
    let mut report = json!({
        "type": item.name(), "item": item.number(), "cost": item.cost(), "ticks": item.ticks(),
        "line": line_of(item.line()), "needs": needs(item),
    });
    let weapon = match item {
        Item::Unit(kind) => {
            let rules = kind.rules();
            (report["hp"], report["speed"], report["sight"]) =
                (json!(rules.hp), json!(rules.speed), json!(rules.sight));
            rules.weapon.as_ref()
        }
        Item::Building(kind) => {
            let rules = kind.rules();
            (report["hp"], report["size"], report["sight"]) =
                (json!(rules.hp), json!(rules.size), json!(rules.sight));
            (report["power"], report["capacity"]) = (json!(rules.power), json!(rules.capacity));
            rules.weapon.as_ref()
        }
    };
    if let Some(Weapon { range, damage, reload, percent: [flesh, steel, stone] }) = weapon {
        report["weapon"] = json!({
            "range": range, "damage": damage, "reload_ticks": reload,
            "percent": {"flesh": flesh, "steel": steel, "stone": stone},
        });
    }
    report
}
