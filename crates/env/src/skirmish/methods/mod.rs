//! The methods of Skirmish-v0: what an agent that calls tools looks at and orders by.
//!
//! A payload is a JSON object of arguments by their names, or a list of them in the order of the schema. Methods that read show
//! what the player's side knows. Those that order take effect at once; time passes with steps alone.

mod arguments;
mod command;
mod control;
mod report;
mod works;

use rollhouse_core::MethodSpec;
use serde_json::Value;

use super::world::World;
use crate::CallError;
use arguments::{Arguments, Kind, Param, schema};
pub(crate) use report::{BUILDING_LETTERS, UNIT_LETTERS};

type Answer = Result<Value, CallError>;

/// A method.
struct Method {
    name: &'static str,
    summary: &'static str,
    params: &'static [Param],
    changes: bool,
    run: fn(&mut World, &Arguments) -> Answer,
}

const fn reads(
    name: &'static str,
    summary: &'static str,
    params: &'static [Param],
    run: fn(&mut World, &Arguments) -> Answer,
) -> Method {
    Method { name, summary, params, changes: false, run }
}

const fn orders(
    name: &'static str,
    summary: &'static str,
    params: &'static [Param],
    run: fn(&mut World, &Arguments) -> Answer,
) -> Method {
    Method { name, summary, params, changes: true, run }
}

const CELL: [Param; 2] = [("cell_x", Kind::Integer, true), ("cell_y", Kind::Integer, true)];
const UNITS: Param = ("unit_ids", Kind::Units, true);
const QUEUED: Param = ("queued", Kind::Flag, false);
const TO: &[Param] = &[UNITS, ("target_x", Kind::Integer, true), ("target_y", Kind::Integer, true), QUEUED];
const AT: &[Param] = &[UNITS, ("target_actor_id", Kind::Integer, true), QUEUED];
const BUILDING: &[Param] = &[("building_id", Kind::Integer, true)];
const UNIT_TYPE: Param = ("unit_type", Kind::Text, true);
const BUILDING_TYPE: Param = ("building_type", Kind::Text, true);
const RALLY: &[Param] = &[("building_id", Kind::Integer, true), CELL[0], CELL[1]];
const PLACE: &[Param] = &[BUILDING_TYPE, ("cell_x", Kind::Integer, false), ("cell_y", Kind::Integer, false)];
const TRAIN: &[Param] = &[UNIT_TYPE, ("count", Kind::Integer, false)];
const GROUP: &[Param] = &[("group_name", Kind::Text, true), UNITS];
const ADVANCE: &[Param] =
    &[("ticks", Kind::Integer, false), ("until", Kind::Object, false), ("check_every", Kind::Integer, false)];
const COMMAND: &[Param] = &[
    ("group_name", Kind::Text, true),
    ("command", Kind::Text, true),
    ("target_x", Kind::Integer, false),
    ("target_y", Kind::Integer, false),
    ("target_actor_id", Kind::Integer, false),
    ("stance", Kind::Text, false),
];

static METHODS: &[Method] = &[
    reads(
        "get_game_state",
        "returns tick, result, score, economy, army and what is known of the enemy",
        &[],
        report::state,
    ),
    reads(
        "get_observation",
        "returns the state with units, buildings, enemies and production",
        &[],
        report::observation,
    ),
    reads("get_economy", "returns money, ore, power and harvesters", &[], report::economy),
    reads("get_units", "returns the units of one's own", &[], report::units),
    reads("get_buildings", "returns the buildings of one's own", &[], report::buildings),
    reads("get_enemies", "returns the enemies that are seen, and buildings that were", &[], report::enemies),
    reads("get_production", "returns what is produced, and what could be", &[], report::production),
    reads(
        "get_map_info",
        "returns the map's name and size, and where the sides begin",
        &[],
        report::map_info,
    ),
    reads("get_map_text", "draws what is known of the map in letters, a row a line", &[], report::map_text),
    reads("get_exploration_status", "returns how much of the map has been seen", &[], report::exploration),
    reads("get_terrain_at", "returns what is known of a cell", &CELL, report::terrain_at),
    reads(
        "get_map_analysis",
        "returns where ore is known, and the way to the enemy's start",
        &[],
        report::map_analysis,
    ),
    reads(
        "get_opponent_intel",
        "returns what was seen of the enemy, and what was destroyed",
        &[],
        report::intel,
    ),
    reads("lookup_unit", "returns the rules of a kind of unit", &[UNIT_TYPE], report::lookup_unit),
    reads(
        "lookup_building",
        "returns the rules of a kind of building",
        &[BUILDING_TYPE],
        report::lookup_building,
    ),
    reads("lookup_tech_tree", "returns what each kind of unit and building needs", &[], report::tech_tree),
    reads(
        "batch_lookup",
        "returns the rules of several kinds of units and buildings",
        &[("queries", Kind::Texts, true)],
        report::batch_lookup,
    ),
    reads(
        "get_valid_placements",
        "returns where a building could be placed, near the first one of one's own",
        &[BUILDING_TYPE, ("max_results", Kind::Integer, false)],
        works::placements,
    ),
    reads("get_groups", "returns the groups and their units", &[], control::groups),
    orders(
        "advance",
        "has the next step take that many ticks, or fewer if something of `until` happens, in place of what its action says",
        ADVANCE,
        control::advance,
    ),
    orders("step", "is `advance`", ADVANCE, control::advance),
    orders(
        "reset",
        "has the next step end the episode as a draw, so that the next one begins",
        &[],
        control::give_up,
    ),
    orders("surrender", "has the next tick lose the game", &[], control::surrender),
    orders(
        "batch",
        "calls up to 16 other methods in turn, each `{\"method\": NAME, \"arguments\": {...}}`, and returns what each answered",
        &[("actions", Kind::List, true)],
        control::batch,
    ),
    orders("move_units", "moves units to a cell, without a fight", TO, command::go),
    orders("attack_move", "moves units to a cell; they fight what they meet", TO, command::attack_move),
    orders("attack_target", "has units attack an enemy", AT, command::attack),
    orders("force_attack", "is `attack_target`", AT, command::attack),
    orders("stop_units", "has units drop what they do", &[UNITS], command::stop),
    orders("guard_target", "has units stay with a unit or building and fight for it", AT, command::guard),
    orders("guard", "is `guard_target`", AT, command::guard),
    orders(
        "patrol_units",
        "has units go to a cell and back until they have another order",
        TO,
        command::patrol,
    ),
    orders("patrol", "is `patrol_units`", TO, command::patrol),
    orders("retreat", "moves units back to the base, without a fight", &[UNITS], command::retreat),
    orders("scatter", "moves units a few cells apart", &[UNITS], command::scatter),
    orders(
        "set_stance",
        "sets which enemies units shoot at by themselves: hold_fire, return_fire, defend, attack_anything",
        &[UNITS, ("stance", Kind::Text, true)],
        command::set_stance,
    ),
    orders(
        "harvest",
        "has a harvester mine near a cell, or near itself",
        &[("unit_id", Kind::Units, true), ("cell_x", Kind::Integer, false), ("cell_y", Kind::Integer, false)],
        command::harvest,
    ),
    orders("build_unit", "trains units of a kind, one by default", TRAIN, works::train),
    orders("train_unit", "is `build_unit`", TRAIN, works::train),
    orders(
        "build_structure",
        "builds a building, which is placed when it is ready",
        &[BUILDING_TYPE],
        works::build,
    ),
    orders(
        "build_and_place",
        "builds a building that is placed by itself, at a cell or where it first fits",
        PLACE,
        works::build_and_place,
    ),
    orders(
        "place_building",
        "places the building that is ready, at a cell or where it first fits",
        PLACE,
        works::place,
    ),
    orders(
        "cancel_production",
        "takes the last item of a kind out of its line and gives the money back",
        &[("item_type", Kind::Text, true)],
        works::cancel,
    ),
    orders("sell_building", "sells a building for half of its cost", BUILDING, works::sell),
    orders("sell", "is `sell_building`", BUILDING, works::sell),
    orders("repair_building", "begins or ends the repair of a building", BUILDING, works::repair),
    orders("power_down", "cuts a building's power, or gives it back", BUILDING, works::power_down),
    orders(
        "set_primary",
        "has a building be the one that its line's items leave",
        BUILDING,
        works::set_primary,
    ),
    orders("set_rally_point", "sets where a building's units go", RALLY, works::set_rally_point),
    orders(
        "assign_group",
        "makes units a group, in place of those that it had",
        GROUP,
        control::assign_group,
    ),
    orders("add_to_group", "adds units to a group", GROUP, control::add_to_group),
    orders(
        "command_group",
        "orders a group: move, attack_move, attack, stop, guard, patrol, retreat, scatter or set_stance",
        COMMAND,
        control::command_group,
    ),
];

/// Returns the methods as the spec lists them.
pub(super) fn specs() -> Vec<MethodSpec> {
    let spec = |method: &Method| {
        let spec = match method.changes {
            true => MethodSpec::changing(method.name, method.summary),
            false => MethodSpec::reading(method.name, method.summary),
        };
        spec.with_params(&schema(method.params))
    };
    METHODS.iter().map(spec).collect()
}

/// Calls a method on a lane.
///
/// # Errors
/// If there is no such method, the payload is none for it, or what it orders is refused; nothing has changed then.
pub(super) fn call(world: &mut World, name: &str, payload: &str) -> Result<String, CallError> {
    let method = find(name).ok_or(CallError::Unsupported)?;
    let arguments = Arguments::read(payload, method.params)?;
    (method.run)(world, &arguments).map(|answer| answer.to_string())
}

fn find(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn methods_have_different_names_and_schemas_that_are_json() {
        let names: BTreeSet<_> = METHODS.iter().map(|method| method.name).collect();
        assert_eq!(names.len(), METHODS.len());
        assert!(MethodSpec::check_all(&specs()).is_ok());
        for spec in specs() {
            assert!(serde_json::from_str::<Value>(&spec.params).is_ok_and(|schema| schema.is_object()));
        }
    }
}
