//! test/Orders-v0, whose observations and actions have texts and sequences.

use rollhouse_core::{
    BadCounted, BoxSpace, ColumnMut, ColumnRef, CompositeSpace, Determinism, EnvSource, EnvSpec,
    SequenceSpace, Space, StateHasher, TextSpace,
};

use crate::{Env, EnvEntry, Generator, StepResult};

/// Makes the registry's entry for the env.
pub(crate) fn orders() -> EnvEntry {
    EnvEntry::per_lane(spec(), |_| Ok(Orders { word: Vec::new(), moves: Vec::new() }))
}

fn spec() -> EnvSpec {
    let spaces = spaces().unwrap_or_default();
    let action_space = BoxSpace::of_parts(CompositeSpace::Dict { spaces: spaces.clone() });
    EnvSpec {
        id: "test/Orders-v0".into(),
        source: EnvSource::BuiltIn,
        summary: "for tests of the machinery: shows the word and the moves of its last action, turned round"
            .into(),
        observation_space: CompositeSpace::Dict { spaces }.into(),
        // All of its elements are small integers.
        action_space: action_space.map_or_else(|_| Space::discrete(1), Space::Box),
        observation_names: Vec::new(),
        action_names: Vec::new(),
        max_episode_steps: Some(40),
        determinism: Determinism::Deterministic,
        methods: Vec::new(),
        options: Vec::new(),
        info_channels: Vec::new(),
        dynamics_hash: DYNAMICS_HASH,
    }
}

type Parts = Vec<(String, rollhouse_core::ObservationSpace)>;

fn spaces() -> Result<Parts, BadCounted> {
    let word = CompositeSpace::from(TextSpace::new(0, LETTERS, "aß☃".into())?);
    let moves = CompositeSpace::from(SequenceSpace::new(Space::discrete(4), MOVES, true)?);
    Ok(vec![("moves".into(), moves.into()), ("word".into(), word.into())])
}

/// Hash that ties the spec to the dynamics; a test recomputes it.
const DYNAMICS_HASH: u64 = 0x0075_7723_289f_6fa7;

/// Most characters of a word.
const LETTERS: usize = 5;
/// Most moves of an action.
const MOVES: usize = 3;

/// The last action.
struct Orders {
    word: Vec<i32>,
    moves: Vec<i64>,
}

impl Orders {
    fn show(&self, obs: &mut [ColumnMut<'_>]) {
        let [
            ColumnMut::I64(moves),
            ColumnMut::I64([move_count]),
            ColumnMut::I32(codes),
            ColumnMut::I64([letters]),
        ] = obs
        else {
            return;
        };
        moves.fill(0);
        codes.fill(0);
        moves.iter_mut().zip(&self.moves).for_each(|(to, &from)| *to = from);
        codes.iter_mut().zip(&self.word).for_each(|(to, &from)| *to = from);
        (*move_count, *letters) = (self.moves.len() as i64, self.word.len() as i64);
    }
}

impl Env for Orders {
    fn reset(&mut self, generator: &mut Generator, obs: &mut [ColumnMut<'_>]) {
        (self.word, self.moves) = (Vec::new(), vec![generator.uniform(0.0, 4.0) as i64]);
        self.show(obs);
    }

    fn step(
        &mut self,
        _: &mut Generator,
        action: ColumnRef<'_>,
        obs: &mut [ColumnMut<'_>],
        _: &mut [ColumnMut<'_>],
    ) -> StepResult {
        // An action is its columns one after the other: moves, their number, code points, their number.
        let (moves, word) = action.as_i64().unwrap_or_default().split_at(MOVES + 1);
        self.moves = moves[..moves[MOVES] as usize].iter().rev().copied().collect();
        self.word = word[..word[LETTERS] as usize].iter().rev().map(|&code| code as i32).collect();
        self.show(obs);
        let reward = (self.moves.iter().sum::<i64>() + self.word.len() as i64) as f64;
        StepResult {
            reward,
            terminated: self.moves.len() == MOVES && self.word.len() == LETTERS,
            truncated: false,
        }
    }

    fn state_hash(&self) -> u32 {
        let hasher = self.moves.iter().fold(StateHasher::new(), |hasher, &step| hasher.word(step as u64));
        self.word
            .iter()
            .fold(hasher.word(self.moves.len() as u64), |hasher, &code| hasher.word(code as u64))
            .finish()
    }
}
