//! Times files of ONNX: reads lines `FILE LANES` on stdin, has a policy of the file act on so many lanes for a tenth of a second, and
//! answers with the microseconds of a request. `crates/python/benches/models.py` asks it between other runtimes' turns.
#![allow(clippy::print_stdout, reason = "what it prints is its answer")]

use std::collections::HashMap;
use std::error::Error;
use std::io::{BufRead, stdin};
use std::time::{Duration, Instant};

use rollhouse_core::{BoxSpace, ColumnData, ColumnRef, DType, EnvSpec, ObservationSpace, Space};
use rollhouse_env::Registry;
use rollhouse_policy::{Act, Policy, model_of};

/// A policy, and what the lanes that it plays show.
struct Timed {
    policy: Box<dyn Policy>,
    obs: ColumnData,
    actions: ColumnData,
    step: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut timed = HashMap::new();
    for line in stdin().lock().lines() {
        let line = line?;
        let (file, lanes) = line.rsplit_once(' ').ok_or("lines are `FILE LANES`")?;
        if !timed.contains_key(&line) {
            timed.insert(line.clone(), Timed::new(file, lanes.parse()?)?);
        }
        if let Some(timed) = timed.get_mut(&line) {
            println!("{}", timed.turn()?);
        }
    }
    Ok(())
}

impl Timed {
    fn new(file: &str, lanes: usize) -> Result<Self, Box<dyn Error>> {
        let model = model_of("timed", 0, None, &std::fs::read(file)?)?;
        let (policy, env) = fitting(|env| Ok(model.make(env, 0)?))?;
        let space = env.observation_space.columns()[0].1.clone();
        let count = space.elements() * lanes;
        let obs: ColumnData = match space.dtype() {
            DType::U8 => {
                ColumnRef::U8(&(0..count).map(|at| (at * 7919 % 256) as u8).collect::<Vec<_>>()).into()
            }
            _ => ColumnRef::F32(
                &(0..count).map(|at| (at * 7919 % 256) as f32 / 128.0 - 1.0).collect::<Vec<_>>(),
            )
            .into(),
        };
        let actions = ColumnData::zeros(env.action_space.dtype(), env.action_space.elements() * lanes);
        Ok(Self { policy, obs, actions, step: 0 })
    }

    /// Returns the microseconds of a request.
    fn turn(&mut self) -> Result<f64, Box<dyn Error>> {
        let (begun, mut requests) = (Instant::now(), 0u32);
        while requests < 2 || begun.elapsed() < TURN {
            self.step += 1;
            let obs = [self.obs.as_ref()];
            let (step, actions) = (self.step, self.actions.as_mut());
            self.policy.act(Act { first_lane: 0, step, obs: &obs, mask: None, actions })?;
            requests += 1;
        }
        Ok(begun.elapsed().as_secs_f64() * 1e6 / f64::from(requests))
    }
}

/// Returns what is made of the first env that fits: one of CartPole's spaces, of stacked pictures, or of some numbers.
fn fitting<T>(make: impl Fn(&EnvSpec) -> Result<T, Box<dyn Error>>) -> Result<(T, EnvSpec), Box<dyn Error>> {
    let spec = Registry::builtin().get("CartPole-v1")?.spec().clone();
    let pictures = Space::Box(BoxSpace {
        low: vec![0.0; 4 * 84 * 84].into(),
        high: vec![255.0; 4 * 84 * 84].into(),
        shape: vec![4, 84, 84],
        dtype: DType::U8,
        choices: false,
        parts: None,
        own: None,
    });
    let numbers = Space::f32_box(&[-1.0; 16], &[1.0; 16]);
    let mut last = None;
    for (obs, actions) in [(None, 2), (Some(pictures), 6), (Some(numbers), 4)] {
        let mut env = spec.clone();
        if let Some(obs) = obs {
            env.observation_space = ObservationSpace::Plain(obs);
            env.action_space = Space::discrete(actions);
        }
        match make(&env) {
            Ok(made) => return Ok((made, env)),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| "no env".into()))
}

/// How long a turn takes.
const TURN: Duration = Duration::from_millis(100);
