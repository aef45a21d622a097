//! test/Foretold-v0, an env whose rows follow from seed, options and actions by rules that `oracle.rs` has as well. The module
//! `foretold` of the tests of Python is the same env.

use rollhouse_core::{
    Bounds, BoxSpace, ColumnMut, ColumnRef, ColumnSpec, CompositeSpace, DType, Determinism, EnvSource,
    EnvSpec, OptionSpec, OptionValue, Role, Space, StateHasher,
};
use rollhouse_env::{Env, EnvEntry, Generator, MakeError, StepResult};

/// Makes the registry's entry for the env.
pub(crate) fn foretold() -> EnvEntry {
    EnvEntry::per_lane(spec(), |options| {
        let scale = options.float("scale").ok_or(MakeError::Missing { lane: 0, name: "scale" })?;
        if scale < 0.0 {
            let wanted = "0 or more".to_owned();
            return Err(MakeError::Option { lane: 0, name: "scale", value: scale, wanted });
        }
        let at = |name| options.int(name).and_then(|at| u64::try_from(at).ok());
        Ok(Foretold { scale, panic_at: at("panic_at"), hang_at: at("hang_at"), mark: 0.0, steps: 0 })
    })
}

pub(crate) fn spec() -> EnvSpec {
    let boxed = |most, shape: &[usize], dtype| {
        let elements = shape.iter().product();
        let (low, high) = (Bounds::all(0.0, elements), Bounds::all(most, elements));
        Space::Box(BoxSpace {
            low,
            high,
            shape: shape.to_vec(),
            dtype,
            choices: false,
            parts: None,
            own: None,
        })
    };
    let spaces = vec![
        ("count".to_owned(), boxed(1000.0, &[2], DType::I64).into()),
        ("mark".to_owned(), boxed(1.0, &[1], DType::F64).into()),
    ];
    let option = |name: &str, default, summary: &str| OptionSpec {
        name: name.into(),
        default,
        summary: summary.into(),
    };
    EnvSpec {
        id: "test/Foretold-v0".into(),
        source: EnvSource::BuiltIn,
        summary: "shows the mark of its episode, its steps and its last action".into(),
        observation_space: CompositeSpace::Dict { spaces }.into(),
        action_space: Space::discrete(4),
        observation_names: Vec::new(),
        action_names: Vec::new(),
        max_episode_steps: None,
        determinism: Determinism::Deterministic,
        methods: Vec::new(),
        options: vec![
            option("hang_at", OptionValue::Int(-1), "step of an episode at which it blocks forever"),
            option("panic_at", OptionValue::Int(-1), "step of an episode at which it fails, 0 in its reset"),
            option("scale", OptionValue::Float(1.0), "factor of rewards, not below 0"),
        ],
        info_channels: vec![echo()],
        dynamics_hash: 1,
    }
}

/// The info channel.
pub(crate) fn echo() -> ColumnSpec {
    ColumnSpec {
        path: "echo".into(),
        dtype: DType::F64,
        shape: Vec::new(),
        names: Vec::new(),
        role: Role::Info,
    }
}

/// The lane's mark is drawn as its episode begins; the number of its steps follows from it.
struct Foretold {
    scale: f64,
    panic_at: Option<u64>,
    hang_at: Option<u64>,
    mark: f64,
    steps: u64,
}

impl Foretold {
    /// Fails if the options name this step, and shows it else.
    fn show(&self, action: i64, obs: &mut [ColumnMut<'_>]) {
        assert!(
            self.panic_at != Some(self.steps),
            "panic asked for by option panic_at at step {}",
            self.steps
        );
        while self.hang_at == Some(self.steps) {
            std::thread::park();
        }
        let [ColumnMut::I64(count), ColumnMut::F64(mark)] = obs else { panic!("two columns") };
        count.copy_from_slice(&[self.steps as i64, action]);
        mark[0] = self.mark;
    }
}

impl Env for Foretold {
    fn reset(&mut self, generator: &mut Generator, obs: &mut [ColumnMut<'_>]) {
        (self.mark, self.steps) = (generator.next_f64(), 0);
        self.show(0, obs);
    }

    fn step(
        &mut self,
        _: &mut Generator,
        action: ColumnRef<'_>,
        obs: &mut [ColumnMut<'_>],
        infos: &mut [ColumnMut<'_>],
    ) -> StepResult {
        let action = action.as_i64().map_or(0, |action| action[0]);
        self.steps += 1;
        self.show(action, obs);
        let [ColumnMut::F64(echo)] = infos else { panic!("one info") };
        echo[0] = self.mark * self.steps as f64;
        let terminated = self.steps >= 3 + (self.mark * 9.0) as u64;
        StepResult { reward: self.scale * (self.mark + action as f64), terminated, truncated: false }
    }

    fn state_hash(&self) -> u32 {
        StateHasher::new().f64(self.mark).word(self.steps).finish()
    }
}
