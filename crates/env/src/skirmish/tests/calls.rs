//! The methods, as an agent calls them.

use serde_json::Value;

use super::super::methods;
use super::*;

#[test]
fn methods_that_read_change_nothing_and_answer_with_json() {
    let mut table = Table::new(&[], 1);
    let _ = table.step(&row_of(&[], 40, 1, &Until::default()));
    let before = table.world.state_hash();
    for spec in methods::specs().into_iter().filter(|spec| !spec.changes) {
        let payload = match spec.name.as_str() {
            "get_terrain_at" => r#"{"cell_x": 3, "cell_y": 4}"#,
            "lookup_unit" => r#"["tank"]"#,
            "lookup_building" | "get_valid_placements" => r#"{"building_type": "power_plant"}"#,
            "batch_lookup" => r#"{"queries": ["tank", "yard", "nothing"]}"#,
            _ => "",
        };
        let answer = table.call(&spec.name, payload).unwrap_or_else(|error| panic!("{}: {error}", spec.name));
        assert!(!answer.is_null(), "{}", spec.name);
    }
    assert_eq!(table.world.state_hash(), before);
}

#[test]
fn a_game_is_played_by_calls_alone() {
    let mut table = Table::new(&[], 2);
    let advance = |table: &mut Table, ticks: u32| {
        table
            .call(
                "advance",
                &format!(r#"{{"ticks": {ticks}, "until": {{"interrupts": ["production_complete"]}}}}"#),
            )
            .unwrap();
        let _ = table.step(&row_of(&[], 1, 1, &Until::default()));
    };
    for building in ["power_plant", "refinery", "barracks"] {
        table.call("build_and_place", &format!(r#"["{building}"]"#)).unwrap();
        advance(&mut table, 1000);
    }
    assert_eq!(table.call("train_unit", r#"{"unit_type": "rifle", "count": 3}"#).unwrap()["begun"], 3);
    (0..3).for_each(|_| advance(&mut table, 300));
    let units = table.call("get_units", "").unwrap();
    assert_eq!(units.as_array().unwrap().len(), 8, "the first four, a harvester and three: {units}");
    table.call("assign_group", r#"{"group_name": "scouts", "unit_ids": "type:rifle"}"#).unwrap();
    assert_eq!(table.call("get_groups", "").unwrap()["scouts"].as_array().unwrap().len(), 6);
    let ordered = table.call("command_group", r#"["scouts", "attack_move", 20, 18]"#).unwrap();
    assert_eq!(ordered["ordered"].as_array().unwrap().len(), 6);
    let done = table
        .call("batch", r#"[[{"method": "stop_units", "arguments": {"unit_ids": 1}}, {"method": "no"}]]"#);
    let done = done.unwrap();
    assert_eq!(done[0]["answer"]["ordered"], serde_json::json!([1]));
    assert!(done[1]["error"].as_str().unwrap().contains("unknown method"));
    let buildings = table.call("get_buildings", "").unwrap();
    let barracks = buildings.as_array().unwrap().iter().find(|it| it["type"] == "barracks").unwrap();
    table.call("sell", &format!("[{}]", barracks["id"])).unwrap();
    assert_eq!(table.call("get_buildings", "").unwrap().as_array().unwrap().len(), 3);
    assert!(table.call("get_map_text", "").unwrap()["map"].as_str().unwrap().contains('Y'));
}

#[test]
fn what_cannot_be_called_is_refused_with_value_and_limit_and_changes_nothing() {
    let mut table = Table::new(&[], 3);
    let before = table.world.state_hash();
    let nine = Value::Array(vec![serde_json::json!(["cash", ">=", 1]); 9]);
    for (method, payload, wanted) in [
        ("advance", r#"{"ticks": 0}"#, "`ticks` is 0, must be from 1 to 5000"),
        ("advance", r#"{"ticks": 5001}"#, "`ticks` is 5001, must be from 1 to 5000"),
        ("advance", r#"{"until": {"interrupts": ["rain"]}}"#, "unknown interrupt `rain`"),
        ("advance", r#"{"until": {"conditions": [["gold", ">=", 1]]}}"#, "unknown figure `gold`"),
        (
            "advance",
            &format!(r#"{{"until": {{"conditions": {nine}}}}}"#),
            "9 conditions cost too much, at most 8",
        ),
        ("move_units", r#"["1", 99, 2]"#, "`target_x` is 99, must be from 0 to 43"),
        ("move_units", r#"["100", 3, 3]"#, "100 is no unit of one's own"),
        ("move_units", "{", "the payload is no JSON"),
        ("move_units", "7", "arguments must be an object or a list"),
        ("move_units", r#"{"unit_ids": 1}"#, "`target_x` is missing"),
        ("move_units", r#"{"speed": 1}"#, "unknown argument `speed`"),
        ("attack_target", r#"[1, 97]"#, "target 97 is nothing that is seen or known"),
        ("train_unit", r#"["tank"]"#, "tank needs a factory"),
        ("train_unit", r#"["dragon"]"#, "unknown `unit_type` `dragon`"),
        ("sell", "[65]", "a yard cannot be sold"),
        ("place_building", r#"["power_plant", 3, 3]"#, "no building of that kind is ready"),
        ("command_group", r#"["none", "stop"]"#, "no group `none`"),
        ("set_stance", r#"["all_combat", "brave"]"#, "`stance` must be one of"),
    ] {
        let error = table.call(method, payload).unwrap_err().to_string();
        assert!(error.contains(wanted), "{method} {payload}: {error}");
        assert_eq!(table.world.state_hash(), before, "{method} {payload}");
    }
    assert!(matches!(table.call("fly", ""), Err(CallError::Unsupported)));
    let many = Value::Array(vec![serde_json::json!({"method": "get_units"}); 17]);
    let error = table.call("batch", &format!("[{many}]")).unwrap_err().to_string();
    assert!(error.contains("17 actions, at most 16"), "{error}");
}

#[test]
fn an_agent_surrenders_and_gives_up_by_a_call() {
    let mut table = Table::new(&[], 4);
    table.call("surrender", "").unwrap();
    let lost = table.step(&row_of(&[], 10, 1, &Until::default()));
    assert!(lost.terminated && table.world.verdict().result() == GameResult::Lose);
    let mut table = Table::new(&[], 4);
    table.call("reset", "{}").unwrap();
    let drawn = table.step(&row_of(&[], 1, 1, &Until::default()));
    assert!(drawn.truncated && !drawn.terminated);
    assert_eq!(table.world.verdict().result(), GameResult::Draw);
}

#[test]
fn the_names_by_which_agents_know_such_games_are_there() {
    let names: Vec<_> = methods::specs().into_iter().map(|spec| spec.name).collect();
    for name in [
        "get_game_state",
        "get_observation",
        "step",
        "reset",
        "get_map_info",
        "attack_move",
        "force_attack",
        "guard",
        "patrol",
        "retreat",
        "scatter",
        "harvest",
        "build_structure",
        "train_unit",
        "set_rally_point",
        "sell",
    ] {
        assert!(names.iter().any(|known| known == name), "{name}");
    }
    assert!(names.len() >= 40, "{} methods", names.len());
}
