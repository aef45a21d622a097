//! Files of ONNX play as their makers wrote them. `onnx/make.py` makes them, and what onnxruntime computes of them.
#![allow(clippy::unwrap_used, reason = "test code")]

use rollhouse_core::{
    BoxSpace, ColumnData, ColumnRef, ColumnSpec, CompositeSpace, DType, EnvSpec, ObservationSpace, Role,
    Space, split_mix64,
};
use rollhouse_env::Registry;
use rollhouse_policy::{
    Act, ActError, Computation, Model, ModelError, OnnxError, OnnxModel, Policy, Sampling, model_of,
};

/// A number of [-1, 1) from a counter, as `make.py` has it.
fn number(seed: usize, at: usize) -> f32 {
    (split_mix64(((seed as u64) << 32) + at as u64) >> 40) as f32 / (1 << 23) as f32 - 1.0
}

fn observation(k: usize, numbers: usize) -> Vec<f32> {
    (0..numbers).map(|at| number(k, at)).collect()
}

/// Whether a lane begins an episode, as `make.py` has it.
fn begins(lane: usize, step: usize) -> bool {
    step == 0 || (7 * step + lane).is_multiple_of(11)
}

/// A file of these tests, and what onnxruntime computes of it.
macro_rules! file {
    ($name:literal) => {
        (
            include_bytes!(concat!("onnx/", $name, ".onnx")).as_slice(),
            numbers(include_bytes!(concat!("onnx/", $name, ".f32"))),
        )
    };
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn numbers_of(count: usize) -> Space {
    Space::f32_box(&vec![-1.0; count], &vec![1.0; count])
}

/// The spec of CartPole with other spaces.
fn spec(obs: impl Into<ObservationSpace>, actions: Space) -> EnvSpec {
    let mut spec = Registry::builtin().get("CartPole-v1").unwrap().spec().clone();
    (spec.observation_space, spec.action_space) = (obs.into(), actions);
    spec
}

/// A space of choices, or with `kind` 2 each of booleans.
fn choices(values: &[u64]) -> Space {
    Space::Box(BoxSpace {
        low: vec![0.0; values.len()].into(),
        high: values.iter().map(|&values| (values - 1) as f64).collect::<Vec<_>>().into(),
        shape: vec![values.len()],
        dtype: DType::I64,
        choices: true,
        parts: None,
        own: None,
    })
}

fn likeliest(model: OnnxModel) -> OnnxModel {
    model.with_sampling(Sampling { deterministic: true, ..Sampling::default() }).unwrap()
}

/// Has a policy act on lanes from `first_lane` on. Returns their actions and notes, a row of each.
fn act(
    policy: &mut dyn Policy,
    env: &EnvSpec,
    (first_lane, step): (u32, u64),
    obs: &[ColumnRef<'_>],
    mask: Option<&[u8]>,
    lanes: usize,
) -> Result<Vec<Vec<f64>>, ActError> {
    let elements = env.action_space.elements();
    let mut actions = ColumnData::zeros(env.action_space.dtype(), lanes * elements);
    policy.act(Act { first_lane, step, obs, mask, actions: actions.as_mut() })?;
    let row = |lane: usize| {
        let action = (0..elements).map(|at| actions.number(lane * elements + at));
        let notes = policy.notes().iter().flat_map(|column| {
            let each = column.len() / lanes;
            (0..each).map(move |at| column.number(lane * each + at))
        });
        action.chain(notes).collect()
    };
    Ok((0..lanes).map(row).collect())
}

/// What a model chooses for 1,000 observations of so many numbers, in batches of several sizes, and notes of them.
fn played(model: &OnnxModel, env: &EnvSpec, inputs: usize) -> Vec<Vec<f64>> {
    let mut policy = model.make(env, 3).unwrap();
    let (mut rows, mut first) = (Vec::new(), 0);
    for lanes in [1, 7, 64, 300, 2, 1, 625] {
        let obs: Vec<f32> = (first..first + lanes).flat_map(|k| observation(k, inputs)).collect();
        rows.extend(act(&mut *policy, env, (first as u32, 0), &[ColumnRef::F32(&obs)], None, lanes).unwrap());
        first += lanes;
    }
    rows
}

/// Asserts that numbers are those of onnxruntime.
#[track_caller]
fn assert_near(found: f64, wanted: f32, of: &str) {
    let wanted = f64::from(wanted);
    assert!((found - wanted).abs() <= 1e-5 * wanted.abs().max(1.0), "{of}: {found} and {wanted}");
}

#[test]
fn a_policy_of_stable_baselines3_chooses_and_values_as_onnxruntime_says() {
    let (file, wanted) = file!("sb3_ppo");
    let model = OnnxModel::of_bytes("ppo", file).unwrap();
    let env = spec(numbers_of(4), Space::discrete(2));
    let names: Vec<String> = model.columns(&env).specs().iter().map(|column| column.path.clone()).collect();
    assert_eq!(names, ["log_prob", "value"]);
    let rows = played(&model, &env, 4);
    for (k, (row, wanted)) in rows.iter().zip(wanted.chunks(3)).enumerate() {
        assert_eq!(row[0], f64::from(wanted[0]), "{k}");
        assert_near(row[2], wanted[1], "value");
        assert_near(row[1], wanted[2], "log-probability");
    }
    assert!(rows.iter().any(|row| row[0] == 0.0) && rows.iter().any(|row| row[0] == 1.0));
}

#[test]
fn a_policy_of_rsl_rl_of_batch_1_plays_any_number_of_lanes() {
    let (file, wanted) = file!("rsl_rl_mlp");
    let env = spec(numbers_of(6), Space::f32_box(&[-9.0, -9.0], &[9.0, 9.0]));
    let model = OnnxModel::of_bytes("rsl_rl", file).unwrap();
    for (row, wanted) in played(&model, &env, 6).iter().zip(wanted.chunks(2)) {
        (0..2).for_each(|at| assert_near(row[at], wanted[at], "action"));
    }
}

#[test]
fn actions_of_unreals_names_are_taken_as_they_are_and_cut_to_the_bounds() {
    let (file, wanted) = file!("unreal");
    let env = spec(numbers_of(6), Space::f32_box(&[-0.5, -0.5], &[0.5, 0.5]));
    let model = OnnxModel::of_bytes("unreal", file).unwrap();
    for (row, wanted) in played(&model, &env, 6).iter().zip(wanted.chunks(2)) {
        for at in 0..2 {
            assert_near(row[at], wanted[at].clamp(-0.5, 0.5), "action");
            assert_near(row[3 + at], wanted[at], "before it is cut");
        }
    }
}

#[test]
fn logits_of_godot_rl_are_drawn_from_and_its_state_is_passed_through() {
    let (file, wanted) = file!("godot_rl");
    let env = spec(numbers_of(5), Space::discrete(3));
    let model = OnnxModel::of_bytes("godot", file).unwrap();
    assert!(!model.make(&env, 0).unwrap().is_recurrent());
    assert_drawn(&played(&model, &env, 5), &wanted, 3, 3);
    // The same outputs are means of quantities, which are taken as they are.
    let env = spec(numbers_of(5), numbers_of(3));
    for (row, wanted) in played(&model, &env, 5).iter().zip(wanted.chunks(3)) {
        (0..3).for_each(|at| assert_near(row[4 + at], wanted[at], "mean"));
    }
}

/// Asserts that actions of `n` values were drawn from the first logits of rows of `stride` numbers.
#[track_caller]
fn assert_drawn(rows: &[Vec<f64>], wanted: &[f32], n: usize, stride: usize) {
    let mut times = vec![0; n];
    for (row, wanted) in rows.iter().zip(wanted.chunks(stride)) {
        let logits: Vec<f64> = wanted[..n].iter().map(|&logit| f64::from(logit)).collect();
        let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
        assert_near(row[1], (logits[row[0] as usize] - sum.ln()) as f32, "log-probability");
        times[row[0] as usize] += 1;
    }
    assert!(times.iter().all(|&times| times > 0), "{times:?}");
}

#[test]
fn the_first_output_of_rllibs_has_logits_or_means_with_deviations() {
    let (file, wanted) = file!("rllib");
    let model = OnnxModel::of_bytes("rllib", file).unwrap();
    assert_drawn(&played(&model, &spec(numbers_of(3), Space::discrete(2)), 3), &wanted, 2, 2);
    let env = spec(numbers_of(3), Space::f32_box(&[-9.0], &[9.0]));
    for (row, wanted) in played(&model, &env, 3).iter().zip(wanted.chunks(2)) {
        let (mean, log_std) = (f64::from(wanted[0]), f64::from(wanted[1]));
        let normal = (row[2] - mean) / log_std.exp();
        let density = -0.5 * normal * normal - log_std - 0.5 * std::f64::consts::TAU.ln();
        assert!((row[1] - density).abs() < 1e-4 * density.abs().max(1.0), "{row:?}: {density}");
    }
    let rows = played(&likeliest(model), &env, 3);
    rows.iter().zip(wanted.chunks(2)).for_each(|(row, wanted)| assert_near(row[0], wanted[0], "mean"));
}

#[test]
fn likeliest_actions_of_ml_agents_are_taken_and_masks_given() {
    let (file, wanted) = file!("ml_agents");
    let mut env = spec(numbers_of(8), choices(&[3, 2]));
    env.info_channels = vec![ColumnSpec {
        path: "action_mask".to_owned(),
        dtype: DType::Bool,
        shape: vec![5],
        names: Vec::new(),
        role: Role::ActionMask,
    }];
    let model = OnnxModel::of_bytes("ml_agents", file).unwrap();
    let mut policy = model.make(&env, 0).unwrap();
    let mask: Vec<u8> =
        (0..1000u32).flat_map(|k| [1, k % 2, k / 2 % 2, 1, k / 4 % 2]).map(|allowed| allowed as u8).collect();
    let obs: Vec<f32> = (0..1000).flat_map(|k| observation(k, 8)).collect();
    let rows = act(&mut *policy, &env, (0, 0), &[ColumnRef::F32(&obs)], Some(&mask), 1000).unwrap();
    for ((row, wanted), mask) in rows.iter().zip(wanted.chunks(2)).zip(mask.chunks(5)) {
        assert_eq!(row[..2], [f64::from(wanted[0]), f64::from(wanted[1])]);
        assert!(mask[row[0] as usize] == 1 && mask[3 + row[1] as usize] == 1);
    }
}

/// What a recurrent model chooses in 25 steps of 40 lanes, each step in two requests.
fn played_recurrent(model: &OnnxModel, env: &EnvSpec, inputs: usize) -> Vec<Vec<f64>> {
    let mut policy = model.make(env, 3).unwrap();
    assert!(policy.is_recurrent());
    let mut all = Vec::new();
    for step in 0..25 {
        (0..40).filter(|&lane| begins(lane, step)).for_each(|lane| policy.begin(lane as u32));
        let cut = step % 5 * 8 + 1;
        for lanes in [0..cut, cut..40] {
            let k = |lane: usize| step * 40 + lane;
            let obs: Vec<f32> = lanes.clone().flat_map(|lane| observation(k(lane), inputs)).collect();
            let at = (lanes.start as u32, step as u64);
            all.extend(act(&mut *policy, env, at, &[ColumnRef::F32(&obs)], None, lanes.len()).unwrap());
        }
        // Another policy goes on where this one stands.
        let mut next = model.make(env, 3).unwrap();
        next.recall(policy.memory().unwrap().clone());
        policy = next;
    }
    all
}

#[test]
fn states_of_isaac_labs_layers_go_from_step_to_step_and_end_with_the_episode() {
    for (file, wanted) in [file!("isaac_lstm"), file!("rsl_rl_lstm")] {
        let env = spec(numbers_of(6), Space::f32_box(&[-9.0, -9.0], &[9.0, 9.0]));
        let model = OnnxModel::of_bytes("isaac", file).unwrap();
        for (k, (row, wanted)) in played_recurrent(&model, &env, 6).iter().zip(wanted.chunks(2)).enumerate() {
            (0..2).for_each(|at| assert_near(row[at], wanted[at], &format!("action {k}")));
        }
    }
}

#[test]
fn an_unbatched_step_of_torchrl_is_told_which_episodes_begin() {
    let (file, wanted) = file!("torchrl_gru");
    let env = spec(numbers_of(4), Space::discrete(3));
    let model = OnnxModel::of_bytes("torchrl", file).unwrap();
    for (k, (row, wanted)) in played_recurrent(&model, &env, 4).iter().zip(wanted.chunks(3)).enumerate() {
        assert_eq!(wanted[row[0] as usize], 1.0, "{k}");
    }
}

/// An env that shows bytes of a picture, channels last, and two numbers.
fn pixels() -> EnvSpec {
    let picture = Space::Box(BoxSpace {
        low: vec![0.0; 300].into(),
        high: vec![255.0; 300].into(),
        shape: vec![10, 10, 3],
        dtype: DType::U8,
        choices: false,
        parts: None,
        own: None,
    });
    let spaces = vec![
        ("image".to_owned(), ObservationSpace::Plain(picture)),
        ("speed".to_owned(), ObservationSpace::Plain(numbers_of(2))),
    ];
    spec(ObservationSpace::Composite(CompositeSpace::Dict { spaces }), Space::discrete(4))
}

#[test]
fn parts_of_an_observation_go_to_the_inputs_of_their_names_channels_first() {
    let (file, wanted) = file!("pixels");
    let (env, model) = (pixels(), OnnxModel::of_bytes("pixels", file).unwrap());
    let image: Vec<u8> =
        (0..1000).flat_map(|k| (0..300).map(move |at| ((number(k, at) + 1.0) * 128.0) as u8)).collect();
    let speed: Vec<f32> = (0..1000).flat_map(|k| [number(k, 300), number(k, 301)]).collect();
    let mut policy = model.make(&env, 0).unwrap();
    let obs = [ColumnRef::U8(&image), ColumnRef::F32(&speed)];
    let rows = act(&mut *policy, &env, (0, 0), &obs, None, 1000).unwrap();
    assert_drawn(&rows, &wanted, 4, 5);
    rows.iter().zip(wanted.chunks(5)).for_each(|(row, wanted)| assert_near(row[2], wanted[4], "value"));
}

#[test]
fn files_of_one_row_are_computed_for_all_lanes_at_once_where_that_gives_the_same() {
    let quantities = || Space::f32_box(&[-9.0, -9.0], &[9.0, 9.0]);
    use Computation::{DenseLayers, LaneByLane, Together};
    for (name, file, env, how) in [
        ("sb3_ppo", file!("sb3_ppo").0, spec(numbers_of(4), Space::discrete(2)), Together),
        ("rsl_rl_mlp", file!("rsl_rl_mlp").0, spec(numbers_of(6), quantities()), Together),
        ("rsl_rl_lstm", file!("rsl_rl_lstm").0, spec(numbers_of(6), quantities()), Together),
        ("isaac_lstm", file!("isaac_lstm").0, spec(numbers_of(6), quantities()), Together),
        ("ml_agents", file!("ml_agents").0, spec(numbers_of(8), choices(&[3, 2])), Together),
        ("pixels", file!("pixels").0, pixels(), Together),
        ("rllib", file!("rllib").0, spec(numbers_of(3), Space::discrete(2)), DenseLayers),
        ("unreal", file!("unreal").0, spec(numbers_of(6), quantities()), DenseLayers),
        // Its exporter has written the shape of one row into the graph.
        ("torchrl_gru", file!("torchrl_gru").0, spec(numbers_of(4), Space::discrete(3)), LaneByLane),
    ] {
        let model = OnnxModel::of_bytes(name, file).unwrap();
        assert_eq!(model.computation(&env).unwrap(), how, "{name}");
    }
}

/// A file of one layer that is refused.
macro_rules! refused {
    ($name:literal) => {
        include_bytes!(concat!("onnx/refused/", $name, ".onnx")).as_slice()
    };
}

#[test]
fn a_file_that_is_no_policy_is_refused_with_what_is_wrong_in_it() {
    let refused = |bytes: &[u8]| OnnxModel::of_bytes("net", bytes).unwrap_err().to_string();
    for (bytes, words) in [
        (refused!("nan"), "number 6 of tensor `weight_0` is NaN"),
        (refused!("infinite"), "number 3 of tensor `weight_0` is -inf"),
        (
            refused!("external"),
            "the numbers of tensor `weight_0` are in another file; write the model into one",
        ),
        (refused!("rank"), "the file does not say how many axes input `obs` has"),
        (refused!("opset"), "the file is of opset 22; 9 to 21 are taken"),
        (
            refused!("branch"),
            "the file has graphs within nodes, as of branches and loops, which do not run here",
        ),
        (refused!("operator"), "operator `Gamm`, of which `actions` comes, is not among those that run here"),
        (
            refused!("domain"),
            "operator `com.example.Gemm`, of which `actions` comes, is not among those that run here",
        ),
        (refused!("short"), "tensor `weight_0` of shape [3, 4] has 8 numbers"),
        (
            refused!("texts"),
            "`obs` is of element type 8 of ONNX; float, double, float16, int8, int32, int64, uint8 and bool are taken",
        ),
        (b"\x08\x08 and nothing more", "the file is none of ONNX, or is cut off"),
    ] {
        assert_eq!(refused(bytes), words);
    }
}

#[test]
fn a_file_is_refused_where_inputs_or_outputs_are_none_of_the_env() {
    let model = |bytes| OnnxModel::of_bytes("net", bytes).unwrap();
    let why = |model: &OnnxModel, env: &EnvSpec| model.make(env, 0).map(|_| ()).unwrap_err().to_string();
    let quantities = spec(numbers_of(4), numbers_of(2));
    assert!(model(refused!("none")).make(&quantities, 0).is_ok());
    assert_eq!(
        why(&model(refused!("none")), &spec(numbers_of(3), numbers_of(2))),
        "input `obs` of shape [1, 4] is nothing that the env gives; its observations have [3]"
    );
    assert_eq!(
        why(&model(refused!("none")), &spec(numbers_of(4), numbers_of(3))),
        "the outputs have `actions` 2 numbers of a lane, the env's actions need 3 of actions or means, or 6 of means and deviations"
    );
    assert_eq!(
        why(&model(refused!("none")), &spec(numbers_of(4), Space::discrete(5))),
        "the outputs have `actions` 2 numbers of a lane, the env's actions need 1 of actions, or 5 of logits"
    );
    assert!(matches!(
        model(refused!("unfit")).make(&spec(numbers_of(5), numbers_of(2)), 0),
        Err(ModelError::Onnx(rollhouse_policy::BindError::Run(_)))
    ));
    let drawing = Sampling { temperature: 0.5, ..Sampling::default() };
    let drawn = model(refused!("none")).with_sampling(drawing).unwrap();
    assert!(why(&drawn, &quantities).contains("taken as they are"));
}

#[test]
fn a_model_is_given_by_the_bytes_of_its_file() {
    let env = spec(numbers_of(4), numbers_of(2));
    let given = model_of("net", 7, None, refused!("none")).unwrap();
    assert_eq!((given.name(), given.version()), ("net", 7));
    assert!(given.make(&env, 0).is_ok());
    let cut = &refused!("none")[..60];
    assert!(matches!(
        model_of("net", 0, None, cut),
        Err(rollhouse_policy::PolicyError::Onnx(OnnxError::Format))
    ));
}

#[test]
fn files_that_are_cut_or_changed_anywhere_are_refused_or_play() {
    let envs = [
        spec(numbers_of(4), numbers_of(2)),
        spec(numbers_of(6), Space::f32_box(&[-9.0, -9.0], &[9.0, 9.0])),
        spec(numbers_of(8), choices(&[3, 2])),
        spec(numbers_of(4), Space::discrete(3)),
        pixels(),
    ];
    let files = [
        refused!("none"),
        file!("isaac_lstm").0,
        file!("ml_agents").0,
        file!("torchrl_gru").0,
        file!("pixels").0,
    ];
    let (mut played, mut seed) = (0, 0u64);
    let mut draw = |below: usize| {
        seed += 1;
        split_mix64(seed) as usize % below
    };
    for (file, env) in files.into_iter().zip(&envs) {
        for round in 0..120 {
            let mut bytes = file.to_vec();
            if round % 6 == 0 {
                bytes.truncate(draw(file.len()));
            }
            // What describes the graph stands at both ends, before and behind the weights.
            let place = draw(bytes.len().max(1));
            for _ in 0..1 + round % 4 {
                let at = (place + draw(40)) % bytes.len().max(1);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = draw(256) as u8;
                }
            }
            let Ok(model) = OnnxModel::of_bytes("net", &bytes) else { continue };
            let Ok(mut policy) = model.make(env, 0) else { continue };
            let columns = env.obs_columns();
            let obs: Vec<ColumnData> =
                columns.iter().map(|column| ColumnData::zeros(column.dtype, 3 * column.elements())).collect();
            let obs: Vec<ColumnRef<'_>> = obs.iter().map(ColumnData::as_ref).collect();
            played += usize::from(act(&mut *policy, env, (0, 0), &obs, None, 3).is_ok());
        }
    }
    assert!(played > 20, "{played} of 600 play");
}
