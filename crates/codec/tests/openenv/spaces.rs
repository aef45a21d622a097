//! Values of all kinds of spaces as JSON.

use rollhouse_codec::openenv::{BadBody, StepView, faults_reply, observation_reply, read_action, schemas};
use rollhouse_core::{
    Bounds, BoxSpace, ColumnData, ColumnRef, ColumnSpec, CompositeSpace, DType, Determinism, DiscreteSpace,
    EnvSource, EnvSpec, ObservationSpace, Role, SequenceSpace, Space, TextSpace,
};
use serde_json::{Value, json};

/// Returns a spec with those spaces.
pub(crate) fn spec(observation_space: ObservationSpace, action_space: Space) -> EnvSpec {
    EnvSpec {
        id: "Sample-v0".to_owned(),
        source: EnvSource::of_id("Sample-v0"),
        summary: "A sample.".to_owned(),
        observation_space,
        action_space,
        observation_names: Vec::new(),
        action_names: Vec::new(),
        max_episode_steps: None,
        determinism: Determinism::Deterministic,
        methods: Vec::new(),
        options: Vec::new(),
        info_channels: Vec::new(),
        dynamics_hash: 0,
    }
}

pub(crate) fn boxed(dtype: DType, low: f64, high: f64, shape: &[usize]) -> Space {
    let elements = shape.iter().product();
    let (low, high, shape) = (Bounds::all(low, elements), Bounds::all(high, elements), shape.to_vec());
    Space::Box(BoxSpace { low, high, shape, dtype, choices: false, parts: None, own: None })
}

fn carried(parts: CompositeSpace) -> Space {
    Space::Box(BoxSpace::of_parts(parts).expect("a column has them all"))
}

fn dict(parts: Vec<(&str, ObservationSpace)>) -> CompositeSpace {
    CompositeSpace::Dict { spaces: parts.into_iter().map(|(name, part)| (name.to_owned(), part)).collect() }
}

/// Returns a space with a part of each kind.
pub(crate) fn nested() -> CompositeSpace {
    let unit =
        dict(vec![("kind", Space::discrete(3).into()), ("push", boxed(DType::F32, -2.0, 2.0, &[2]).into())]);
    let units = SequenceSpace::new(carried(unit), 3, false).expect("a short one");
    let text = TextSpace::new(1, 4, "abÿ→".to_owned()).expect("a short one");
    let moves = Space::Discrete(DiscreteSpace { n: 3, start: 5, own: None });
    let pair =
        CompositeSpace::Tuple { spaces: vec![moves.into(), boxed(DType::U8, 0.0, 255.0, &[2, 2]).into()] };
    dict(vec![
        ("units", CompositeSpace::from(units).into()),
        ("says", CompositeSpace::from(text).into()),
        ("pair", pair.into()),
        ("flag", boxed(DType::Bool, 0.0, 1.0, &[2]).into()),
    ])
}

/// Returns a value of a space as JSON.
pub(crate) fn shown(space: &ObservationSpace, columns: &[ColumnRef<'_>]) -> Value {
    let spec = spec(space.clone(), Space::discrete(1));
    let step = StepView {
        spec: &spec,
        obs: columns,
        infos: &[],
        reward: Some(1.0),
        terminated: false,
        truncated: true,
    };
    let reply: Value = serde_json::from_slice(&observation_reply(&step)).expect("JSON");
    assert_eq!((&reply["type"], &reply["data"]["done"]), (&"observation".into(), &true.into()));
    reply["data"]["observation"]["obs"].clone()
}

fn read(space: &Space, value: &Value) -> Result<ColumnData, (String, Value)> {
    read_action(space, &json!({ "metadata": {}, "action": value }).to_string()).map_err(|error| {
        let BadBody::Fields(faults) = error else { panic!("no JSON: {error}") };
        let reply: Value = serde_json::from_slice(&faults_reply(&faults)).expect("JSON");
        let fault = &reply["data"]["errors"][0];
        (fault["type"].as_str().expect("a word").to_owned(), fault["loc"].clone())
    })
}

fn value() -> Value {
    json!({
        "units": [{ "kind": 2, "push": [0.1, -2] }, { "push": [1, 2], "kind": 0 }],
        "says": "a→",
        "pair": [6, [[1, 2], [3, 255]]],
        "flag": [true, 0],
    })
}

#[test]
fn an_action_with_parts_of_all_kinds_is_read_into_its_row_and_comes_back() {
    let space = carried(nested());
    let ColumnData::F64(row) = read(&space, &value()).unwrap() else { panic!("singles and integers") };
    let single = f64::from(0.1_f32);
    let units = [2.0, single, -2.0, 0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 2.0];
    let says = [97.0, 8594.0, 0.0, 0.0, 2.0];
    assert_eq!(row, [&units[..], &says, &[6.0, 1.0, 2.0, 3.0, 255.0, 1.0, 0.0]].concat());
    let mut back = value();
    back["units"] = json!([{ "kind": 2, "push": [0.1, -2.0] }, { "kind": 0, "push": [1.0, 2.0] }]);
    back["flag"] = json!([true, false]);
    assert_eq!(shown(&space.into(), &[ColumnRef::F64(&row)]), back);
}

#[test]
fn an_observation_of_several_columns_is_the_same_value() {
    let columns = [
        ColumnRef::F64(&[2.0, 0.5, -2.0, 0.0, 1.0, 2.0, 0.0, 0.0, 0.0]),
        ColumnRef::I64(&[2]),
        ColumnRef::I32(&[97, 8594, 0, 0]),
        ColumnRef::I64(&[2]),
        ColumnRef::I64(&[6]),
        ColumnRef::U8(&[1, 2, 3, 255]),
        ColumnRef::U8(&[1, 0]),
    ];
    let mut wanted = value();
    wanted["units"] = json!([{ "kind": 2, "push": [0.5, -2.0] }, { "kind": 0, "push": [1.0, 2.0] }]);
    wanted["flag"] = json!([true, false]);
    assert_eq!(shown(&nested().into(), &columns), wanted);
}

#[test]
fn plain_values_are_numbers_and_nested_lists_and_what_is_not_finite_is_null() {
    let single = boxed(DType::F32, f64::NEG_INFINITY, f64::INFINITY, &[2, 2]);
    assert_eq!(
        shown(&single.into(), &[ColumnRef::F32(&[0.1, 1.0, f32::NAN, f32::NEG_INFINITY])]),
        json!([[0.1, 1.0], [null, null]])
    );
    assert_eq!(shown(&Space::discrete(2).into(), &[ColumnRef::I64(&[1])]), json!(1));
    assert_eq!(shown(&boxed(DType::F64, 0.0, 1.0, &[]).into(), &[ColumnRef::F64(&[0.25])]), json!(0.25));
    assert_eq!(read(&Space::discrete(2), &json!(1.0)), Ok(ColumnData::I64(vec![1])));
    let bound = f64::from(0.1_f32);
    let push = boxed(DType::F32, -bound, bound, &[2]);
    assert_eq!(
        read(&push, &json!([0.1, -0.1])),
        Ok(ColumnData::F32(vec![0.1, -0.1])),
        "the bound as it is written"
    );
}

#[test]
fn what_lies_outside_is_refused_with_the_place_and_the_kind_of_the_fault() {
    let space = carried(nested());
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut value = value();
        change(&mut value);
        read(&space, &value).unwrap_err()
    };
    let fault = |kind: &str, loc: Value| (kind.to_owned(), loc);
    for (wanted, change) in [
        (
            fault("less_than_equal", json!(["action", "units", 0, "kind"])),
            &(|value: &mut Value| value["units"][0]["kind"] = 3.into()) as &dyn Fn(&mut Value),
        ),
        (fault("greater_than_equal", json!(["action", "pair", 0])), &|value| value["pair"][0] = 4.into()),
        (fault("too_short", json!(["action", "pair", 1, 1])), &|value| value["pair"][1][1] = json!([1])),
        (fault("too_long", json!(["action", "pair", 1])), &|value| {
            value["pair"][1] = json!([[1, 2], [3, 4], []])
        }),
        (fault("int_from_float", json!(["action", "pair", 1, 0, 1])), &|value| {
            value["pair"][1][0][1] = 0.5.into();
        }),
        (fault("too_long", json!(["action", "units"])), &|value| {
            value["units"] = json!(vec![value["units"][0].clone(); 4]);
        }),
        (fault("missing", json!(["action", "says"])), &|value| {
            value.as_object_mut().unwrap().remove("says");
        }),
        (fault("extra_forbidden", json!(["action", "other"])), &|value| value["other"] = 1.into()),
        (fault("string_too_long", json!(["action", "says"])), &|value| value["says"] = "aaaaa".into()),
        (fault("string_too_short", json!(["action", "says"])), &|value| value["says"] = "".into()),
        (fault("string_pattern_mismatch", json!(["action", "says"])), &|value| value["says"] = "c".into()),
        (fault("string_type", json!(["action", "says"])), &|value| value["says"] = 3.into()),
        (fault("dict_type", json!(["action"])), &|value| *value = json!([1])),
        (fault("list_type", json!(["action", "flag"])), &|value| value["flag"] = true.into()),
        (fault("float_type", json!(["action", "units", 1, "push", 0])), &|value| {
            value["units"][1]["push"][0] = "x".into();
        }),
    ] {
        assert_eq!(refused(change), wanted);
    }
}

#[test]
fn lists_of_any_depth_end_at_the_first_place_that_has_none() {
    let deep = format!("{{\"action\":{}{}}}", "[".repeat(500_000), "]".repeat(500_000));
    assert!(matches!(read_action(&Space::discrete(2), &deep), Err(BadBody::Fields(_))));
    let open = format!("{{\"action\":{}", "[".repeat(500_000));
    assert!(matches!(read_action(&Space::discrete(2), &open), Err(BadBody::Json(_))));
    let aside = format!("{{\"action\":1,\"metadata\":{{\"a\":{}{}}}}}", "[".repeat(9999), "]".repeat(9999));
    assert!(read_action(&Space::discrete(2), &aside).is_ok(), "metadata is passed over, whatever it is");
}

#[test]
fn infos_and_masks_are_shown_by_their_names_and_masks_alone_after_a_reset() {
    let mut spec = spec(Space::discrete(2).into(), Space::discrete(2));
    let channel = |path: &str, dtype, shape: &[usize], role| ColumnSpec {
        path: path.to_owned(),
        dtype,
        shape: shape.to_vec(),
        names: Vec::new(),
        role,
    };
    spec.info_channels = vec![
        channel("speed", DType::F64, &[], Role::Info),
        channel("mask", DType::Bool, &[2], Role::ActionMask),
        channel("version", DType::I64, &[], Role::PolicyVersion),
    ];
    let (obs, infos) =
        ([ColumnRef::I64(&[1])], [ColumnRef::F64(&[2.5]), ColumnRef::U8(&[1, 0]), ColumnRef::I64(&[7])]);
    let infos_of = |reward| {
        let step =
            StepView { spec: &spec, obs: &obs, infos: &infos, reward, terminated: false, truncated: false };
        let reply: Value = serde_json::from_slice(&observation_reply(&step)).unwrap();
        assert_eq!(reply["data"]["reward"], json!(reward));
        reply["data"]["observation"]["infos"].clone()
    };
    assert_eq!(infos_of(Some(0.5)), json!({ "speed": 2.5, "mask": [true, false] }));
    assert_eq!(infos_of(None), json!({ "mask": [true, false] }));
}

#[test]
fn schemas_say_of_each_part_what_it_may_be() {
    let mut spec = spec(nested().into(), carried(nested()));
    let schema: Value = serde_json::from_slice(&schemas(&spec)).unwrap();
    let action = &schema["action"]["properties"]["action"]["properties"];
    assert_eq!(action["pair"]["prefixItems"][0], json!({ "type": "integer", "minimum": 5, "maximum": 7 }));
    assert_eq!(action["says"]["maxLength"], 4);
    assert_eq!(action["units"]["maxItems"], 3);
    assert_eq!(action["units"]["items"]["properties"]["push"]["items"]["maximum"], 2.0);
    let obs = &schema["observation"]["properties"]["obs"]["properties"];
    let push = &obs["units"]["items"]["properties"]["push"]["items"];
    assert_eq!(*push, json!({ "type": ["number", "null"] }), "envs may leave the bounds of quantities");
    assert_eq!(schema["observation"], schema["reset_observation"]);
    (spec.action_space, spec.action_names) = (Space::discrete(2), vec!["left".into(), "right".into()]);
    let schema: Value = serde_json::from_slice(&schemas(&spec)).unwrap();
    assert_eq!(schema["action"]["properties"]["action"]["description"], "0: left, 1: right");
}
