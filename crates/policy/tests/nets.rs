//! Dense nets are read as their makers wrote them, and choose as their outputs say.
#![allow(clippy::unwrap_used, reason = "test code")]

#[cfg(feature = "onnx")]
mod dialects;

use std::collections::HashMap;

use proptest::prelude::*;
use rollhouse_core::{ColumnData, ColumnMut, ColumnRef, EnvSpec, ObservationSpace, Space, split_mix64};
use rollhouse_env::Registry;
use rollhouse_policy::{Act, DenseNet, Model, ModelError, NetFileError, Sampling};
use safetensors::tensor::{Dtype, TensorView, serialize};

/// A number of [-1, 1) from a counter.
fn number(seed: u64, at: usize) -> f32 {
    (split_mix64((seed << 32) + at as u64) >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// Tensors of a file, by name.
#[derive(Clone, Default)]
struct File {
    tensors: Vec<(String, Vec<usize>, Vec<f32>)>,
    metadata: HashMap<String, String>,
}

impl File {
    fn tensor(mut self, name: &str, shape: &[usize], numbers: Vec<f32>) -> Self {
        self.tensors.push((name.to_owned(), shape.to_vec(), numbers));
        self
    }

    /// Adds a layer of numbers that follow from its name.
    fn layer(self, name: &str, inputs: usize, outputs: usize) -> Self {
        let seed = name.bytes().fold(7, |seed, byte| seed * 31 % 99_991 + u64::from(byte));
        let weights = (0..inputs * outputs).map(|at| number(seed, at)).collect();
        let bias = (0..outputs).map(|at| number(seed + 1, at)).collect();
        self.tensor(&format!("{name}.weight"), &[outputs, inputs], weights).tensor(
            &format!("{name}.bias"),
            &[outputs],
            bias,
        )
    }

    fn says(mut self, key: &str, value: &str) -> Self {
        self.metadata.insert(key.to_owned(), value.to_owned());
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let data: Vec<Vec<u8>> = self
            .tensors
            .iter()
            .map(|(_, _, numbers)| numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
            .collect();
        let views = self.tensors.iter().zip(&data).map(|((name, shape, _), data)| {
            (name.clone(), TensorView::new(Dtype::F32, shape.clone(), data).unwrap())
        });
        serialize(views, Some(self.metadata.clone().into_iter().collect())).unwrap()
    }

    fn net(&self) -> Result<DenseNet, NetFileError> {
        DenseNet::of_bytes("net", &self.bytes())
    }

    fn numbers(&self, name: &str) -> &[f32] {
        &self.tensors.iter().find(|(of, _, _)| of == name).unwrap().2
    }

    /// What the layers of these names make of inputs, in double precision.
    fn outputs(&self, names: &[&str], inputs: &[f64], activation: fn(f64) -> f64) -> Vec<f64> {
        let mut row = inputs.to_vec();
        for (at, name) in names.iter().enumerate() {
            let weights = self.numbers(&format!("{name}.weight"));
            let bias = self.numbers(&format!("{name}.bias"));
            let sum = |(weights, bias): (&[f32], &f32)| {
                f64::from(*bias) + weights.iter().zip(&row).map(|(a, b)| f64::from(*a) * b).sum::<f64>()
            };
            let sums = weights.chunks(row.len()).zip(bias).map(sum);
            let last = at + 1 == names.len();
            row = sums.map(|sum| if last { sum } else { activation(sum) }).collect();
        }
        row
    }
}

/// The spec of CartPole with other spaces.
fn spec(obs: Space, actions: Space) -> EnvSpec {
    let mut spec = Registry::builtin().get("CartPole-v1").unwrap().spec().clone();
    (spec.observation_space, spec.action_space) = (ObservationSpace::Plain(obs), actions);
    spec
}

fn numbers_of(count: usize) -> Space {
    Space::f32_box(&vec![-10.0; count], &vec![10.0; count])
}

fn cartpole() -> EnvSpec {
    spec(numbers_of(4), Space::discrete(2))
}

/// A net of ours for CartPole, with a value.
fn of_ours() -> File {
    File::default()
        .layer("policy.0", 4, 17)
        .layer("policy.2", 17, 2)
        .layer("value.0", 4, 5)
        .layer("value.2", 5, 1)
}

/// What a policy chooses for one lane that shows `obs`, and what it notes.
fn chosen(net: &DenseNet, env: &EnvSpec, obs: &[f32], step: u64) -> (Vec<f64>, Vec<Vec<f64>>) {
    let mut policy = net.make(env, 5).unwrap();
    let mut actions = ColumnData::zeros(env.action_space.dtype(), env.action_space.elements());
    let obs = [ColumnRef::F32(obs)];
    policy.act(Act { first_lane: 3, step, obs: &obs, mask: None, actions: actions.as_mut() }).unwrap();
    let all = |column: &ColumnData| (0..column.len()).map(|at| column.number(at)).collect::<Vec<_>>();
    (all(&actions), policy.notes().iter().map(all).collect())
}

#[test]
fn an_action_is_noted_with_its_log_probability_and_value_as_double_precision_has_them() {
    let file = of_ours();
    let (net, env) = (file.net().unwrap(), cartpole());
    let names: Vec<String> = net.columns(&env).specs().iter().map(|column| column.path.clone()).collect();
    assert_eq!(names, ["log_prob", "value"]);
    for step in 0..200 {
        let obs: Vec<f32> = (0..4).map(|at| 3.0 * number(step, at)).collect();
        let (action, noted) = chosen(&net, &env, &obs, step);
        let inputs: Vec<f64> = obs.iter().map(|&number| f64::from(number)).collect();
        let logits = file.outputs(&["policy.0", "policy.2"], &inputs, f64::tanh);
        let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
        let wanted = logits[action[0] as usize] - sum.ln();
        assert!((noted[0][0] - wanted).abs() < 1e-5, "step {step}: {} and {wanted}", noted[0][0]);
        let value = file.outputs(&["value.0", "value.2"], &inputs, f64::tanh)[0];
        assert!((noted[1][0] - value).abs() < 1e-5 * value.abs().max(1.0));
    }
}

#[test]
fn actions_of_a_net_are_the_same_bits_on_every_machine() {
    let (net, env) = (of_ours().net().unwrap(), cartpole());
    let mut hash = 0u64;
    for step in 0..500 {
        let obs: Vec<f32> = (0..4).map(|at| 3.0 * number(step, at)).collect();
        let (action, noted) = chosen(&net, &env, &obs, step);
        for number in action.into_iter().chain(noted.into_iter().flatten()) {
            hash = split_mix64(hash ^ number.to_bits());
        }
    }
    assert_eq!(hash, SAME_BITS, "{hash:#018x}");
}

/// What the machine that the test was written on has.
const SAME_BITS: u64 = 0x0116_11ce_6874_5fb7;

/// A file, the layers to its outputs, and the activation between them.
type Case<'a> = (&'a File, &'a [&'a str], fn(f64) -> f64);

#[test]
fn nets_of_other_makers_are_recognised_by_the_names_of_their_tensors() {
    let actor_critic = File::default()
        .layer("mlp_extractor.policy_net.0", 4, 8)
        .layer("mlp_extractor.policy_net.2", 8, 8)
        .layer("mlp_extractor.value_net.0", 4, 8)
        .layer("action_net", 8, 2)
        .layer("value_net", 8, 1);
    let clean_rl = File::default().layer("actor.0", 4, 8).layer("actor.2", 8, 2).layer("critic.0", 4, 1);
    let q_net = File::default().layer("q_net.q_net.0", 4, 8).layer("q_net.q_net.2", 8, 2);
    let relu = |x: f64| x.max(0.0);
    let cases: [Case<'_>; 3] = [
        (
            &actor_critic,
            &["mlp_extractor.policy_net.0", "mlp_extractor.policy_net.2", "action_net"],
            f64::tanh,
        ),
        (&clean_rl, &["actor.0", "actor.2"], f64::tanh),
        (&q_net, &["q_net.q_net.0", "q_net.q_net.2"], relu),
    ];
    for (file, names, activation) in cases {
        let net = file.net().unwrap();
        assert_eq!(net.sampling().unwrap().deterministic, names[0].starts_with("q_net"));
        let likeliest = Sampling { deterministic: true, ..Sampling::default() };
        let net = net.with_sampling(likeliest).unwrap();
        for at in 0..50 {
            let obs: Vec<f32> = (0..4).map(|place| 3.0 * number(at, place)).collect();
            let inputs: Vec<f64> = obs.iter().map(|&number| f64::from(number)).collect();
            let outputs = file.outputs(names, &inputs, activation);
            assert_eq!(
                chosen(&net, &cartpole(), &obs, at).0[0],
                f64::from(u8::from(outputs[1] > outputs[0]))
            );
        }
    }
}

#[test]
fn a_soft_actor_critic_is_squashed_to_the_bounds_and_its_density_is_that_of_what_was_drawn() {
    let file =
        File::default().layer("actor.latent_pi.0", 3, 8).layer("actor.mu", 8, 2).layer("actor.log_std", 8, 2);
    let (net, env) = (file.net().unwrap(), spec(numbers_of(3), Space::f32_box(&[-2.0, 0.0], &[2.0, 5.0])));
    for step in 0..200 {
        let obs: Vec<f32> = (0..3).map(|at| number(step, at)).collect();
        let (action, noted) = chosen(&net, &env, &obs, step);
        assert!((-2.0..=2.0).contains(&action[0]) && (0.0..=5.0).contains(&action[1]), "{action:?}");
        let squashed = [action[0] / 2.0, action[1] / 2.5 - 1.0];
        if squashed.iter().any(|number| number.abs() > 0.99) {
            // Single precision has too few bits there to say what was drawn.
            continue;
        }
        let inputs: Vec<f64> = obs.iter().map(|&number| f64::from(number)).collect();
        let relu = |x: f64| x.max(0.0);
        let means = file.outputs(&["actor.latent_pi.0", "actor.mu"], &inputs, relu);
        let stds = file.outputs(&["actor.latent_pi.0", "actor.log_std"], &inputs, relu);
        let wanted: f64 = (0..2)
            .map(|at| {
                let squashed = squashed[at];
                let normal = (squashed.atanh() - means[at]) / stds[at].exp();
                let density = -0.5 * normal * normal - stds[at] - 0.5 * std::f64::consts::TAU.ln();
                density - (1.0 - squashed * squashed + 1e-6).ln()
            })
            .sum();
        assert!((noted[0][0] - wanted).abs() < 2e-3 * wanted.abs().max(1.0), "{} and {wanted}", noted[0][0]);
    }
}

#[test]
fn a_quantity_out_of_bounds_is_cut_and_what_was_drawn_is_noted() {
    let file = File::default().layer("policy.0", 3, 1).tensor("log_std", &[1], vec![0.5]);
    let (net, env) = (file.net().unwrap(), spec(numbers_of(3), Space::f32_box(&[-0.1], &[0.1])));
    let names: Vec<String> = net.columns(&env).specs().iter().map(|column| column.path.clone()).collect();
    assert_eq!(names, ["log_prob", "drawn_action"]);
    let mut cut = 0;
    for step in 0..100 {
        let (action, noted) = chosen(&net, &env, &[0.1, 0.2, 0.3], step);
        let drawn = noted[1][0];
        assert!((action[0] - drawn.clamp(f64::from(-0.1f32), f64::from(0.1f32))).abs() < 1e-9);
        cut += u32::from((action[0] - drawn).abs() > 1e-6);
    }
    assert!(cut > 50, "{cut} of 100");
}

#[test]
fn choices_are_drawn_as_often_as_their_probabilities_say_and_never_against_a_mask() {
    let file = File::default().layer("policy.0", 2, 5);
    let env = spec(numbers_of(2), Space::discrete(5));
    let logits = file.outputs(&["policy.0"], &[0.3, -0.7], f64::tanh);
    for (sampling, mask) in [
        (Sampling::default(), [1, 1, 1, 1, 1]),
        (Sampling { temperature: 0.5, ..Sampling::default() }, [1, 0, 1, 1, 0]),
        (Sampling { epsilon: 0.3, ..Sampling::default() }, [0, 1, 1, 0, 1]),
        (Sampling { epsilon: 0.4, deterministic: true, ..Sampling::default() }, [1, 1, 1, 0, 1]),
    ] {
        let allowed = |at: usize| mask[at] == 1;
        let best = (0..5).filter(|&at| allowed(at)).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
        let weight = |at: usize| match allowed(at) {
            true if sampling.deterministic => f64::from(u8::from(at == best)),
            true => (logits[at] / sampling.temperature).exp(),
            false => 0.0,
        };
        let (sum, count): (f64, f64) =
            ((0..5).map(weight).sum(), (0..5).filter(|&at| allowed(at)).count() as f64);
        let probability = |at: usize| {
            let alike = if allowed(at) { sampling.epsilon / count } else { 0.0 };
            (1.0 - sampling.epsilon) * weight(at) / sum + alike
        };
        let mut policy = file.net().unwrap().with_sampling(sampling).unwrap().make(&env, 9).unwrap();
        let (lanes, steps) = (50, 400);
        let obs: Vec<f32> = [0.3, -0.7].repeat(lanes);
        let mut times = [0u32; 5];
        for step in 0..steps {
            let mut actions = vec![0i64; lanes];
            let request = Act {
                first_lane: 0,
                step,
                obs: &[ColumnRef::F32(&obs)],
                mask: Some(&mask.repeat(lanes)),
                actions: ColumnMut::I64(&mut actions),
            };
            policy.act(request).unwrap();
            for (lane, &action) in actions.iter().enumerate() {
                times[action as usize] += 1;
                let noted = policy.notes()[0].number(lane);
                assert!(
                    (noted - probability(action as usize).ln()).abs() < 1e-5,
                    "{sampling:?}, action {action}"
                );
            }
        }
        for (at, &found) in times.iter().enumerate() {
            let (of, wanted) = (lanes as f64 * steps as f64, probability(at));
            let spread = 5.0 * (of * wanted * (1.0 - wanted)).sqrt();
            assert!(
                (f64::from(found) - of * wanted).abs() <= spread,
                "{sampling:?}: {times:?}, {at} has {wanted}"
            );
        }
    }
}

proptest! {
    #[test]
    fn equal_requests_give_equal_actions_however_a_batch_is_cut(seed in 0u64..500, cut in 1usize..12) {
        let (net, env) = (of_ours().net().unwrap(), cartpole());
        let obs: Vec<f32> = (0..13 * 4).map(|at| number(seed, at)).collect();
        let play = |parts: &[std::ops::Range<usize>]| {
            let mut policy = net.make(&env, seed).unwrap();
            let mut actions = vec![0i64; 13];
            for lanes in parts {
                let request = Act {
                    first_lane: lanes.start as u32,
                    step: seed,
                    obs: &[ColumnRef::F32(&obs[lanes.start * 4..lanes.end * 4])],
                    mask: None,
                    actions: ColumnMut::I64(&mut actions[lanes.clone()]),
                };
                policy.act(request).unwrap();
            }
            actions
        };
        prop_assert_eq!(play(&[0..cut, cut..13]), play(&[cut..13, 0..cut]));
        prop_assert_eq!(play(&[0..1, 1..13]), play(&[cut..13, 0..cut]));
    }
}

#[test]
fn inputs_are_scaled_as_the_file_says() {
    let layers = of_ours();
    let scaled = layers
        .clone()
        .tensor("obs_mean", &[4], vec![1.0; 4])
        .tensor("obs_var", &[4], vec![4.0; 4])
        .says("obs_clip", "3");
    let obs = [3.0, 5.0, -1.0, 1e6];
    let (_, noted) = chosen(&scaled.net().unwrap(), &cartpole(), &obs, 0);
    let (_, wanted) = chosen(&layers.net().unwrap(), &cartpole(), &[1.0, 2.0, -1.0, 3.0], 0);
    assert!((noted[1][0] - wanted[1][0]).abs() < 1e-5, "{noted:?} and {wanted:?}");
}

#[test]
fn a_file_that_is_no_net_is_refused_with_what_is_wrong_in_it() {
    let refused = |file: File| file.net().unwrap_err().to_string();
    assert_eq!(
        refused(File::default().layer("conv.0", 2, 2)),
        "none of its tensors, conv.0.bias, conv.0.weight, has a name of a known net's: policy.0.weight, or as \
         Stable-Baselines3, actor and critic; Stable-Baselines3, soft actor-critic; Stable-Baselines3, deep Q-network; \
         CleanRL, quantities; CleanRL, choices have them"
    );
    assert_eq!(
        refused(File::default().layer("policy.0", 4, 8).layer("policy.2", 7, 2)),
        "tensor `policy.2.weight` has the shape [2, 7], must have 8 inputs"
    );
    assert_eq!(
        refused(File::default().tensor("policy.0.weight", &[1, 2], vec![1.0, f32::NAN])),
        "number 1 of tensor `policy.0.weight` is NaN"
    );
    assert_eq!(
        refused(of_ours().says("activation", "step")),
        "metadata `activation` is `step`, must be identity, tanh, relu, elu or silu"
    );
    assert_eq!(
        refused(File::default().tensor("policy.0.weight", &[2, 0], Vec::new())),
        "tensor `policy.0.weight` has the shape [2, 0], must have [outputs, inputs]"
    );
    let scaled = |mean: usize, variance: usize| {
        let file = of_ours().tensor("obs_mean", &[mean], vec![1.0; mean]);
        file.tensor("obs_var", &[variance], vec![1.0; variance])
    };
    assert_eq!(
        refused(scaled(1, 1)),
        "tensor `obs_mean` has the shape [1], must have [4], as the net's inputs"
    );
    assert_eq!(
        refused(scaled(4, 3)),
        "tensor `obs_var` has the shape [3], must have [4], as the net's inputs"
    );
    assert_eq!(
        refused(File::default().layer("policy.0", 4, 2).layer("value.0", 2, 1)),
        "tensor `value.0.weight` has the shape [1, 2], must have 4 inputs, as the layers to the actions"
    );
    assert_eq!(
        refused(File::default().layer("policy.0", 4, 2).layer("value.0", 4, 3)),
        "tensor `value.0.weight` has the shape [3, 4], must have one output"
    );
    for cut in [0, 7, 8, 40] {
        let bytes = of_ours().bytes();
        assert!(matches!(DenseNet::of_bytes("net", &bytes[..cut]), Err(NetFileError::Format(_))), "{cut}");
    }
}

#[test]
fn an_env_of_other_spaces_is_refused_with_both_numbers() {
    let net = of_ours().net().unwrap();
    let refused = |env: &EnvSpec| net.make(env, 0).err().unwrap();
    assert_eq!(refused(&spec(numbers_of(3), Space::discrete(2))), ModelError::Inputs { net: 4, env: 3 });
    assert_eq!(refused(&spec(numbers_of(4), Space::discrete(3))), ModelError::Outputs { net: 2, env: 3 });
    let alike = Sampling { epsilon: 0.5, ..Sampling::default() };
    let quantity = File::default().layer("policy.0", 4, 1).tensor("log_std", &[1], vec![0.0]);
    let quantity = quantity.net().unwrap().with_sampling(alike).unwrap();
    let env = spec(numbers_of(4), Space::f32_box(&[-1.0], &[1.0]));
    assert_eq!(quantity.make(&env, 0).err(), Some(ModelError::Epsilon { epsilon: 0.5 }));
}

#[test]
fn a_lane_whose_outputs_are_no_numbers_fails_alone() {
    let mut policy = of_ours().net().unwrap().make(&cartpole(), 0).unwrap();
    let obs = [0.0, 0.0, 0.0, 0.0, 0.0, f32::NAN, 0.0, 0.0];
    let mut actions = [0i64; 2];
    let request = Act {
        first_lane: 8,
        step: 0,
        obs: &[ColumnRef::F32(&obs)],
        mask: None,
        actions: ColumnMut::I64(&mut actions),
    };
    policy.act(request).unwrap();
    assert_eq!(policy.failed(), [9]);
    let of_it = |column: usize| policy.notes()[column].as_ref().as_f32().unwrap()[1];
    assert!(of_it(0).is_finite() && of_it(1) == 0.0, "what is noted of it is no number");
    let fine = Act {
        first_lane: 8,
        step: 1,
        obs: &[ColumnRef::F32(&obs[..4])],
        mask: None,
        actions: ColumnMut::I64(&mut actions[..1]),
    };
    policy.act(fine).unwrap();
    assert_eq!(policy.failed(), [0; 0]);
}

#[cfg(not(feature = "onnx"))]
#[test]
fn a_file_of_onnx_is_refused_by_the_features_name_where_it_is_not_built_in() {
    let file = include_bytes!("onnx/refused/none.onnx");
    let refused = rollhouse_policy::model_of("net", 0, None, file).unwrap_err().to_string();
    assert_eq!(
        refused,
        "the file is one of ONNX, and this program was built without the cargo feature `onnx`"
    );
}
