//! What a dense net of two hidden layers of 64, with a value beside it, costs for the lanes of CartPole: choosing, sampling and what it
//! notes. Time a lane is the counter's.

use divan::Bencher;
use rollhouse_core::{ColumnMut, ColumnRef, split_mix64};
use rollhouse_env::Registry;
use rollhouse_policy::{Act, DenseNet, Model};

fn main() {
    divan::main();
}

/// A file of safetensors with such a net.
fn file() -> Vec<u8> {
    let (mut header, mut data) = (String::from("{"), Vec::new());
    for (head, outputs) in [("policy", 2), ("value", 1)] {
        for (at, (inputs, outputs)) in [(4, 64), (64, 64), (64, outputs)].into_iter().enumerate() {
            for (part, shape) in [("weight", vec![outputs, inputs]), ("bias", vec![outputs])] {
                let count: usize = shape.iter().product();
                let numbers =
                    (0..count).map(|i| (split_mix64(i as u64) >> 40) as f32 / (1 << 23) as f32 - 1.0);
                let from = data.len();
                data.extend(numbers.flat_map(|number| (number * 0.3).to_le_bytes()));
                let comma = if header.len() > 1 { "," } else { "" };
                header += &format!(
                    r#"{comma}"{head}.{at}.{part}":{{"dtype":"F32","shape":{shape:?},"data_offsets":[{from},{}]}}"#,
                    data.len()
                );
            }
        }
    }
    header.push('}');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend(data);
    file
}

#[divan::bench(args = [1, 64, 256, 1024])]
fn cartpole(bencher: Bencher<'_, '_>, lanes: usize) {
    let net = DenseNet::of_bytes("net", &file()).expect("a net");
    let env = Registry::builtin().get("CartPole-v1").expect("a built-in env");
    let mut policy = net.make(env.spec(), 7).expect("it fits");
    let obs: Vec<f32> =
        (0..lanes * 4).map(|i| (split_mix64(i as u64) >> 40) as f32 / (1 << 24) as f32).collect();
    let (mut actions, mut step) = (vec![0i64; lanes], 0);
    bencher.counter(lanes).bench_local(|| {
        step += 1;
        let obs = [ColumnRef::F32(&obs)];
        policy.act(Act { first_lane: 0, step, obs: &obs, mask: None, actions: ColumnMut::I64(&mut actions) })
    });
}
