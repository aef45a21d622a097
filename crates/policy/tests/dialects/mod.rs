//! Dense nets that are written in the forms of other programs play there, and when they are read back, as they do here.

use rollhouse_core::{BoxSpace, ColumnSpec, DType, Role};
use rollhouse_policy::{Dialect, DialectError, GivenNet, OnnxModel};

use super::*;

/// A space of choices of so many values each; of booleans where all have two.
fn choices(values: &[u64]) -> Space {
    Space::Box(BoxSpace {
        low: vec![0.0; values.len()].into(),
        high: values.iter().map(|&values| (values - 1) as f64).collect::<Vec<_>>().into(),
        shape: vec![values.len()],
        dtype: if values.iter().all(|values| *values == 2) { DType::U8 } else { DType::I64 },
        choices: true,
        parts: None,
        own: None,
    })
}

fn masked(mut env: EnvSpec) -> EnvSpec {
    env.info_channels = vec![ColumnSpec {
        path: "action_mask".to_owned(),
        dtype: DType::Bool,
        shape: vec![env.action_space.choices().unwrap() as usize],
        names: Vec::new(),
        role: Role::ActionMask,
    }];
    env
}

/// The likeliest actions of a model for 1,000 observations, a row of each.
fn likeliest(model: &dyn Model, env: &EnvSpec, mask: Option<&[u8]>) -> Vec<f64> {
    let mut policy = model.make(env, 3).unwrap();
    let elements = env.action_space.elements();
    let obs: Vec<f32> = (0..1000 * 4).map(|at| 3.0 * number(11, at)).collect();
    let mut actions = ColumnData::zeros(env.action_space.dtype(), 1000 * elements);
    let request =
        Act { first_lane: 0, step: 0, obs: &[ColumnRef::F32(&obs)], mask, actions: actions.as_mut() };
    policy.act(request).unwrap();
    (0..actions.len()).map(|at| actions.number(at)).collect()
}

fn deterministic() -> Sampling {
    Sampling { deterministic: true, ..Sampling::default() }
}

/// Asserts that a net plays the same in each of these dialects as it does itself, and returns the files.
#[track_caller]
fn assert_alike(file: &File, env: &EnvSpec, mask: Option<&[u8]>, dialects: &[Dialect]) -> Vec<OnnxModel> {
    let net = GivenNet::of_bytes("net", &file.bytes()).unwrap();
    let own = net.clone().with_sampling(deterministic()).unwrap();
    let wanted = likeliest(own.as_model(), env, mask);
    assert!(wanted.iter().any(|number| *number != wanted[0]), "{wanted:?}");
    let mut models = Vec::new();
    for &dialect in dialects {
        let bytes = net.in_dialect(dialect, env).unwrap();
        let model = OnnxModel::of_bytes("net", &bytes).unwrap();
        let found = likeliest(&model.clone().with_sampling(deterministic()).unwrap(), env, mask);
        for (at, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            assert!(
                (found - wanted).abs() <= 1e-5 * wanted.abs().max(1.0),
                "{dialect}, {at}: {found}, {wanted}"
            );
        }
        models.push(model);
    }
    models
}

#[test]
fn choices_are_logits_for_godot_and_places_for_unreal_and_ml_agents() {
    let scaled = of_ours()
        .tensor("obs_mean", &[4], vec![0.5, -0.5, 0.0, 1.0])
        .tensor("obs_var", &[4], vec![2.0, 0.5, 1.0, 4.0])
        .says("obs_clip", "1")
        .says("version", "7");
    let models = assert_alike(&scaled, &cartpole(), None, &Dialect::ALL);
    assert!(models.iter().all(|model| model.version() == 7));
    let shown: Vec<String> = models.iter().map(Model::description).collect();
    assert_eq!(shown[0], "a file of ONNX from obs [1, 4] to actions [1, 1], computed for all lanes at once");
    assert!(shown[1].contains("obs [?, 4], state_ins [1] to output [?, 2], state_outs [1]"), "{}", shown[1]);
    assert!(
        shown[2].contains("obs_0 [?, 4], action_masks [?, 2] to discrete_actions [?, 1]"),
        "{}",
        shown[2]
    );
    let names = |model: &OnnxModel| {
        model.columns(&cartpole()).specs().iter().map(|column| column.path.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&models[1]), ["log_prob"], "logits are drawn from");
}

#[test]
fn several_choices_keep_their_places_and_their_masks() {
    let file = File::default().layer("policy.0", 4, 9).layer("policy.1", 9, 5).says("activation", "silu");
    let env = spec(numbers_of(4), choices(&[3, 2]));
    assert_alike(&file, &env, None, &Dialect::ALL);
    let mask: Vec<u8> =
        (0..1000u32).flat_map(|k| [1, k % 2, k / 2 % 2, 1, k / 4 % 2]).map(|allowed| allowed as u8).collect();
    assert_alike(&file, &masked(env.clone()), Some(&mask), &[Dialect::MlAgents]);
    let booleans = File::default().layer("policy.0", 4, 3);
    assert_alike(&booleans, &spec(numbers_of(4), choices(&[2, 2, 2])), None, &Dialect::ALL);
    let values = File::default().layer("q_net.q_net.0", 4, 8).layer("q_net.q_net.2", 8, 3);
    let greedy = assert_alike(&values, &spec(numbers_of(4), Space::discrete(3)), None, &[Dialect::Godot]);
    assert!(greedy[0].sampling().unwrap().deterministic, "values are not drawn from");
}

#[test]
fn quantities_are_cut_or_stretched_to_their_bounds() {
    let bounds = Space::f32_box(&[-0.5, -2.0], &[0.5, f32::INFINITY]);
    let own = File::default().layer("policy.0", 4, 2).tensor("log_std", &[2], vec![-1.0, 0.5]);
    assert_alike(&own, &spec(numbers_of(4), bounds), None, &Dialect::ALL);
    let elu = File::default().layer("policy.0", 4, 8).layer("policy.1", 8, 4).says("activation", "elu");
    let free = Space::f32_box(&[f32::NEG_INFINITY; 2], &[f32::INFINITY; 2]);
    assert_alike(&elu, &spec(numbers_of(4), free), None, &Dialect::ALL);
    let squashed =
        File::default().layer("actor.latent_pi.0", 4, 8).layer("actor.mu", 8, 2).layer("actor.log_std", 8, 2);
    let stretched = spec(numbers_of(4), Space::f32_box(&[-2.0, 0.0], &[2.0, 5.0]));
    assert_alike(&squashed, &stretched, None, &Dialect::ALL);
}

#[test]
fn what_a_dialect_has_no_place_for_is_refused_by_name() {
    let refused = |bytes: &[u8], dialect: Dialect, env: &EnvSpec| -> DialectError {
        GivenNet::of_bytes("net", bytes).unwrap().in_dialect(dialect, env).unwrap_err()
    };
    let ours = of_ours().bytes();
    let mut picture = cartpole();
    let bounds = |number: f64| vec![number; 4].into();
    picture.observation_space = ObservationSpace::Plain(Space::Box(BoxSpace {
        low: bounds(0.0),
        high: bounds(255.0),
        shape: vec![2, 2, 1],
        dtype: DType::U8,
        choices: false,
        parts: None,
        own: None,
    }));
    assert_eq!(
        refused(&ours, Dialect::Unreal, &picture).to_string(),
        "unreal takes numbers in a row, and `obs` of the env's observations has the shape [2, 2, 1], as a picture"
    );
    assert_eq!(
        refused(&ours, Dialect::Godot, &masked(cartpole())).to_string(),
        "the env has an action mask, and godot has no input for one"
    );
    assert!(matches!(
        refused(&ours, Dialect::MlAgents, &spec(numbers_of(4), Space::discrete(3))),
        DialectError::Model(ModelError::Outputs { net: 2, env: 3 })
    ));
    assert!(matches!(
        refused(&ours, Dialect::MlAgents, &spec(numbers_of(5), Space::discrete(2))),
        DialectError::Model(ModelError::Inputs { net: 4, env: 5 })
    ));
    let recurrent = include_bytes!("../onnx/cartpole_gru.onnx");
    let cartpole = Registry::builtin().get("CartPole-v1").unwrap().spec().clone();
    assert_eq!(
        refused(recurrent, Dialect::Unreal, &cartpole).to_string(),
        "the net has a state of each lane, and unreal is written of dense layers, which have none"
    );
    let other = refused(include_bytes!("../onnx/sb3_ppo.onnx"), Dialect::Godot, &cartpole).to_string();
    assert!(other.starts_with("godot is written of nets of dense layers in files of safetensors"), "{other}");
}
