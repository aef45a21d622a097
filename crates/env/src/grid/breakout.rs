//! GridBreakout-v0, a game of bricks, a ball and a paddle on 10 x 10 cells, seen as an image with a channel per thing.
//!
//! The rules follow the published description of Breakout in MinAtar (Young and Tian 2019): the player moves a paddle
//! on the bottom row and bounces a ball to break three rows of bricks at the top, +1 for each; when all are broken
//! three new rows appear; the ball travels along diagonals, is reflected by walls and bricks, and leaves the paddle to
//! the left or right by the side it hit; the episode ends when the ball gets to the bottom; a trail shows where the
//! ball was; with probability 0.1 the last action is repeated. This game's difficulty does not ramp up. Where the
//! description leaves something open, this game decides (see `game.rs`), so scores cannot be compared with MinAtar's:
//! the ball starts in any column; it enters a brick's cell as it breaks it; new rows come when it next leaves the
//! paddle.

use rollhouse_core::{
    Bounds, BoxSpace, ColumnMut, DType, Determinism, EnvSource, EnvSpec, LaneSet, OptionSpec, OptionValue,
    Options, Space, Start,
};

use super::game::{BOTTOM, BRICK_ROWS, Game, Move, SIDE, STATE};
use crate::bounds::float;
use crate::scene::Scene;
use crate::{
    BatchEnv, BlockStep, Ended, EnvEntry, Generator, Image, ImageSize, LaneBlock, MakeError, RenderError,
    StateError,
};

/// Makes the registry's entry for the env.
pub(crate) fn breakout() -> EnvEntry {
    EnvEntry::soa(spec(), |_, options| Breakout::new(options)).drawn(Game::SIZE, Game::FPS)
}

fn spec() -> EnvSpec {
    EnvSpec {
        id: "GridBreakout-v0".into(),
        source: EnvSource::BuiltIn,
        summary: "break bricks with a ball and a paddle on 10 x 10 cells, seen as an image".into(),
        observation_space: Space::Box(BoxSpace {
            low: Bounds::all(0.0, PIXELS),
            high: Bounds::all(f64::from(LIT), PIXELS),
            shape: vec![SIDE, SIDE, CHANNELS],
            dtype: DType::U8,
            choices: false,
            parts: None,
            own: None,
        })
        .into(),
        action_space: Space::discrete(3),
        observation_names: Vec::new(),
        action_names: ["none", "left", "right"].map(String::from).into(),
        max_episode_steps: Some(1000),
        determinism: Determinism::Deterministic,
        methods: Vec::new(),
        options: vec![OptionSpec {
            name: STICKY.into(),
            default: OptionValue::Float(0.1),
            summary: "probability with which the paddle repeats its last move instead of the action's".into(),
        }],
        info_channels: Vec::new(),
        dynamics_hash: DYNAMICS_HASH,
    }
}

/// Hash that ties the spec to the dynamics; a test recomputes it.
const DYNAMICS_HASH: u64 = 0x0d91_9843_5762_e668;

const STICKY: &str = "sticky_action_probability";

/// Number of channels of a pixel, in this order: paddle, ball, trail, brick.
const CHANNELS: usize = 4;
const PADDLE: usize = 0;
const BALL: usize = 1;
const TRAIL: usize = 2;
const BRICK: usize = 3;

/// Number of bytes in an observation, `[row][column][channel]`.
const PIXELS: usize = SIDE * SIDE * CHANNELS;

/// Value of a pixel's channel where its thing is; the value is 0 where it is not. Image pipelines divide bytes by 255.
const LIT: u8 = 255;

/// A block of games.
struct Breakout {
    games: Vec<Game>,
    generators: Vec<Generator>,
    /// Value of [`STICKY`] of each lane.
    sticky: Vec<f64>,
}

impl Breakout {
    fn new(options: &[Options]) -> Result<Self, MakeError> {
        let sticky = options.iter().enumerate().map(|(lane, options)| sticky(lane, options));
        Ok(Self {
            sticky: sticky.collect::<Result<_, _>>()?,
            games: vec![Game::at((0, BRICK_ROWS.end as u8), (1, 1)); options.len()],
            generators: vec![Generator::seeded(0); options.len()],
        })
    }

    /// Returns the move of the paddle when the action is `action`. Draws nothing where no action sticks.
    fn sticky_move(&mut self, lane: usize, action: i64) -> Move {
        let probability = self.sticky[lane];
        let sticks = probability > 0.0 && self.generators[lane].next_f64() < probability;
        if sticks { self.games[lane].last } else { Move::of(action) }
    }
}

/// Returns the probability with which a lane's actions stick.
fn sticky(lane: usize, options: &Options) -> Result<f64, MakeError> {
    let probability = float(options, lane, STICKY)?;
    if (0.0..=1.0).contains(&probability) {
        Ok(probability)
    } else {
        Err(MakeError::option(lane, STICKY, probability, "0 to 1".into()))
    }
}

impl LaneBlock for Breakout {
    fn lanes(&self) -> usize {
        self.games.len()
    }

    fn seed(&mut self, lane: usize, seed: u64) {
        self.generators[lane] = Generator::seeded(seed);
    }

    fn position(&self, lane: usize) -> Start {
        self.generators[lane].position()
    }

    fn restore(&mut self, lane: usize, start: Start) {
        self.generators[lane] = Generator::at(start);
    }

    fn set_options(&mut self, lane: usize, options: &Options) -> Result<(), MakeError> {
        self.sticky[lane] = sticky(lane, options)?;
        Ok(())
    }

    fn state_hash(&self, lane: usize) -> u32 {
        self.games[lane].hash()
    }

    fn state(&self, lane: usize) -> Result<Vec<f64>, StateError> {
        Ok(self.games[lane].to_state().to_vec())
    }

    fn set_state(&mut self, lane: usize, state: &[f64]) -> Result<(), StateError> {
        let state = state.try_into().map_err(|_| StateError::Length { given: state.len(), wanted: STATE })?;
        self.games[lane] =
            Game::from_state(state).map_err(|index| StateError::Value { index, given: state[index] })?;
        Ok(())
    }

    fn render(&self, lane: usize, size: ImageSize) -> Result<Image, RenderError> {
        Ok(Game::picture(&self.games[lane], size))
    }

    fn text(&self, lane: usize, columns: usize) -> Result<String, RenderError> {
        Ok(Game::text(&self.games[lane], columns))
    }
}

impl BatchEnv for Breakout {
    fn reset(&mut self, lanes: LaneSet, obs: &mut [ColumnMut<'_>]) -> LaneSet {
        let images = images(obs, self.lanes());
        for lane in lanes & LaneSet::first(self.games.len()) {
            self.games[lane] = Game::begin(&mut self.generators[lane]);
            draw(&self.games[lane], &mut images[lane]);
        }
        LaneSet::NONE
    }

    fn step(&mut self, step: BlockStep<'_, '_>) -> Ended {
        let lanes = self.lanes();
        let actions = step.actions.as_i64().filter(|actions| actions.len() == lanes);
        let actions = actions.expect("the action column has the spec's type and one row per lane");
        let mut ended = Ended::default();
        step.rewards[..lanes].fill(0.0);
        for lane in LaneSet::first(lanes) & !(step.skip | step.reset) {
            let paddle = self.sticky_move(lane, actions[lane]);
            let moved = self.games[lane].step(paddle);
            step.rewards[lane] = f64::from(u8::from(moved.broke));
            ended.terminated.insert_if(lane, moved.missed);
        }
        for lane in step.reset & LaneSet::first(lanes) {
            self.games[lane] = Game::begin(&mut self.generators[lane]);
        }
        for (game, image) in self.games.iter().zip(images(step.obs, lanes)) {
            draw(game, image);
        }
        ended
    }
}

/// Returns the rows of the one observation column.
///
/// # Panics
/// If the caller gave another type or number of rows than the spec says.
fn images<'a>(columns: &'a mut [ColumnMut<'_>], lanes: usize) -> &'a mut [[u8; PIXELS]] {
    let images = columns.first_mut().and_then(ColumnMut::as_u8_mut).map(|column| column.as_chunks_mut().0);
    images
        .filter(|images| images.len() == lanes)
        .expect("the obs column has the spec's type and a row per lane")
}

/// Writes a game's observation into `image`.
fn draw(game: &Game, image: &mut [u8; PIXELS]) {
    image.fill(0);
    let mut light = |(column, row): (u8, u8), channel: usize| {
        image[(usize::from(row) * SIDE + usize::from(column)) * CHANNELS + channel] = LIT;
    };
    light((game.paddle, BOTTOM as u8), PADDLE);
    light(game.ball, BALL);
    light(game.trail, TRAIL);
    let mut left = game.bricks;
    while left != 0 {
        let brick = left.trailing_zeros() as usize;
        left &= left - 1;
        light(((brick % SIDE) as u8, (BRICK_ROWS.start + brick / SIDE) as u8), BRICK);
    }
}
