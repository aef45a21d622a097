//! The tables of names: what an item of the world is called on the bridge.

/// Something that is built or trained.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ItemNames {
    /// Name on the bridge: an actor of Red Alert, which clients know.
    pub(crate) actor: &'static str,
    /// Name in the world. Clients may say it, too.
    pub(crate) own: &'static str,
    /// Queue in which it is produced.
    pub(crate) queue: &'static str,
    pub(crate) cost: i32,
    /// Cells of a building's side; 0 of a unit.
    pub(crate) size: i32,
}

const fn unit(actor: &'static str, own: &'static str, queue: &'static str, cost: i32) -> ItemNames {
    ItemNames { actor, own, queue, cost, size: 0 }
}

const fn building(actor: &'static str, own: &'static str, cost: i32, size: i32) -> ItemNames {
    ItemNames { actor, own, queue: "Building", cost, size }
}

/// Items by their numbers in the world, less one.
pub(crate) static ITEMS: [ItemNames; 14] = [
    unit("e1", "rifle", "Infantry", 100),
    unit("e3", "rocket", "Infantry", 300),
    unit("jeep", "buggy", "Vehicle", 500),
    unit("2tnk", "tank", "Vehicle", 800),
    unit("arty", "artillery", "Vehicle", 700),
    unit("harv", "harvester", "Vehicle", 1000),
    building("fact", "yard", 2500, 3),
    building("powr", "power_plant", 300, 2),
    building("proc", "refinery", 1500, 3),
    building("tent", "barracks", 400, 2),
    building("weap", "factory", 1500, 3),
    building("silo", "silo", 150, 1),
    ItemNames { queue: "Defense", ..building("gun", "turret", 600, 1) },
    building("dome", "radar", 1000, 2),
];

/// Other names that clients may say: of the other faction's buildings and units of the same use.
const ALIASES: [(&str, &str); 8] = [
    ("apwr", "powr"),
    ("barr", "tent"),
    ("1tnk", "2tnk"),
    ("3tnk", "2tnk"),
    ("v2rl", "arty"),
    ("pbox", "gun"),
    ("tsla", "gun"),
    ("ftur", "gun"),
];

/// What a unit does, by its number in the world.
pub(crate) const ACTIVITIES: [&str; 7] =
    ["idle", "move", "attack_move", "attack", "guard", "patrol", "harvest"];

/// Names of the maps by their numbers in the world.
pub(crate) const MAPS: [&str; 3] = ["duel", "river", "highlands"];

/// Faction of either side.
pub(crate) const FACTION: &str = "england";

/// Returns the names of the item of that number; `None` of 0 and of one that there is not.
pub(crate) fn of_number(number: i64) -> Option<&'static ItemNames> {
    ITEMS.get(usize::try_from(number).ok()?.checked_sub(1)?)
}

/// Returns the number of the item of that name.
pub(crate) fn number_of(name: &str) -> Option<i64> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, actor)| actor);
    let place = ITEMS.iter().position(|item| item.actor == name || item.own == name)?;
    Some(place as i64 + 1)
}

/// Returns the queue of the line of that number in the world.
pub(crate) const fn queue_of(line: i64) -> &'static str {
    match line {
        0 => "Building",
        1 => "Infantry",
        _ => "Vehicle",
    }
}

/// Returns what the building of that number could produce of `producible`.
pub(crate) fn produced_by(building: i64, producible: &[u8]) -> Vec<String> {
    let queues: &[&str] = match of_number(building).map(|item| item.actor) {
        Some("fact") => &["Building", "Defense"],
        Some("tent") => &["Infantry"],
        Some("weap") => &["Vehicle"],
        _ => return Vec::new(),
    };
    let items = ITEMS.iter().zip(producible.get(1..).unwrap_or_default());
    items
        .filter(|(item, is)| **is == 1 && queues.contains(&item.queue))
        .map(|(item, _)| item.actor.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use rollhouse_engine::{Engine, EngineConfig, Reset};
    use rollhouse_env::Registry;

    use super::*;

    #[test]
    fn the_table_has_the_names_and_the_costs_of_the_world_in_its_order() {
        let entry = Registry::builtin().get("Skirmish-v0").unwrap();
        let mut engine = Engine::new(&entry, EngineConfig::new(1), None).unwrap();
        engine.reset(&Reset::all()).unwrap();
        for item in &ITEMS {
            let method = if item.size == 0 { "lookup_unit" } else { "lookup_building" };
            let kind = if item.size == 0 { "unit_type" } else { "building_type" };
            let answer = engine.call(0, method, &serde_json::json!({ kind: item.own }).to_string()).unwrap();
            let rules: serde_json::Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(rules["cost"], item.cost, "{answer}");
            if item.size > 0 {
                assert_eq!(rules["size"], item.size, "{answer}");
            }
        }
        let map = engine.call(0, "get_map_info", "").unwrap();
        assert!(map.contains(MAPS[0]), "{map}");
    }

    #[test]
    fn items_are_known_by_the_names_of_both_sides() {
        assert_eq!(
            (number_of("powr"), number_of("power_plant"), number_of("e1")),
            (Some(8), Some(8), Some(1))
        );
        assert_eq!((number_of("barr"), number_of("3tnk"), number_of("spy")), (Some(10), Some(4), None));
        assert!(ALIASES.iter().all(|(_, actor)| number_of(actor).is_some()));
    }
}
