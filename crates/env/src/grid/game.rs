//! The rules of GridBreakout-v0, one lane at a time.

use rollhouse_core::StateHasher;

use crate::Generator;

/// Number of cells on a side of the square grid. Columns count from the left, rows from the top.
pub(crate) const SIDE: usize = 10;

/// Rows that have bricks at the start.
pub(crate) const BRICK_ROWS: std::ops::Range<usize> = 1..4;

/// Set of all bricks: bit `(row - 1) * 10 + column` for each.
const ALL_BRICKS: u32 = (1 << ((BRICK_ROWS.end - BRICK_ROWS.start) * SIDE)) - 1;

/// Row of the paddle; a ball that gets there has been missed.
pub(crate) const BOTTOM: usize = SIDE - 1;

/// Row in which the ball starts, the one under the bricks.
const START_ROW: u8 = BRICK_ROWS.end as u8;

/// Column in which the paddle starts.
const START_PADDLE: u8 = 5;

/// Number of doubles that [`Game::to_state`] returns.
pub(crate) const STATE: usize = 9;

/// State of one game.
///
/// Invariants: positions lie on the grid, each part of the velocity is 1 or -1, the ball is in no cell that has
/// a brick, and while an episode runs it is above the bottom row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Game {
    /// Column and row of the ball.
    pub(crate) ball: (u8, u8),
    /// Number of columns and rows that the ball moves in a step.
    pub(crate) velocity: (i8, i8),
    /// Column and row of the ball one step earlier.
    pub(crate) trail: (u8, u8),
    /// Column of the paddle.
    pub(crate) paddle: u8,
    /// Bricks that are left, as a set of the bits of [`brick_bit`].
    pub(crate) bricks: u32,
    /// Last move of the paddle.
    pub(crate) last: Move,
}

/// Move of the paddle in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Move {
    Stay,
    Left,
    Right,
}

impl Move {
    /// Returns the move of an action's number; numbers past the last one count as no move.
    pub(crate) const fn of(action: i64) -> Self {
        match action {
            1 => Self::Left,
            2 => Self::Right,
            _ => Self::Stay,
        }
    }
}

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Moved {
    /// A brick was broken.
    pub(crate) broke: bool,
    /// The ball is on the bottom row: the game is over.
    pub(crate) missed: bool,
}

impl Game {
    /// Begins a new game: all bricks are there, and the ball is under them in any column, on its way down to either
    /// side.
    pub(crate) fn begin(generator: &mut Generator) -> Self {
        let column = (generator.next_f64() * SIDE as f64) as u8;
        let right = generator.next_f64() < 0.5;
        Self::at((column, START_ROW), (if right { 1 } else { -1 }, 1))
    }

    /// Returns a game with all bricks and the ball at a given place.
    pub(crate) const fn at(ball: (u8, u8), velocity: (i8, i8)) -> Self {
        Self { ball, velocity, trail: ball, paddle: START_PADDLE, bricks: ALL_BRICKS, last: Move::Stay }
    }

    /// Returns whether the cell has a brick.
    pub(crate) const fn has_brick(&self, column: u8, row: u8) -> bool {
        match brick_bit(column, row) {
            Some(bit) => self.bricks & bit != 0,
            None => false,
        }
    }

    /// Makes one step: first the paddle moves, then the ball.
    pub(crate) fn step(&mut self, paddle: Move) -> Moved {
        self.last = paddle;
        self.paddle = match paddle {
            Move::Stay => self.paddle,
            Move::Left => self.paddle.saturating_sub(1),
            Move::Right => (self.paddle + 1).min(SIDE as u8 - 1),
        };
        let next = self.bounce();
        self.trail = self.ball;
        self.ball = next;
        let (column, row) = next;
        let mut moved = Moved { broke: false, missed: usize::from(row) == BOTTOM };
        if let Some(bit) = brick_bit(column, row)
            && self.bricks & bit != 0
        {
            self.bricks &= !bit;
            self.velocity.1 = -self.velocity.1;
            moved.broke = true;
        }
        moved
    }

    /// Returns the cell that the ball enters next, after walls and paddle have turned it. The ball is reflected at the
    /// edge of a cell, so that a ball turned in one direction keeps its place in that direction for a step.
    ///
    /// A ball about to enter the bottom row goes up again if the paddle is under it, or in the cell towards which it
    /// moves: then it has hit the paddle's near side and goes back to the side from which it came.
    fn bounce(&mut self) -> (u8, u8) {
        let (velocity, ball) = (&mut self.velocity, self.ball);
        let inside = |place: u8| (usize::from(place) < SIDE).then_some(place);
        let column = ball.0.checked_add_signed(velocity.0).and_then(inside).unwrap_or_else(|| {
            velocity.0 = -velocity.0;
            ball.0
        });
        let row = ball.1.checked_add_signed(velocity.1).and_then(inside).unwrap_or_else(|| {
            velocity.1 = -velocity.1;
            ball.1
        });
        let next = match (usize::from(row) == BOTTOM, self.paddle) {
            (true, paddle) if paddle == ball.0 => (column, ball.1),
            (true, paddle) if paddle == column => {
                velocity.0 = -velocity.0;
                ball
            }
            _ => return (column, row),
        };
        velocity.1 = -1;
        if self.bricks == 0 {
            self.bricks = ALL_BRICKS;
        }
        next
    }

    /// Returns the hash of everything on which later states depend.
    pub(crate) fn hash(&self) -> u32 {
        let byte = |value: u8, place: u32| u64::from(value) << (8 * place);
        let ball = byte(self.ball.0, 0) | byte(self.ball.1, 1);
        let velocity = byte(self.velocity.0 as u8, 2) | byte(self.velocity.1 as u8, 3);
        let trail = byte(self.trail.0, 4) | byte(self.trail.1, 5);
        let paddle = byte(self.paddle, 6) | byte(self.last as u8, 7);
        StateHasher::new().word(ball | velocity | trail | paddle).word(u64::from(self.bricks)).finish()
    }

    /// Returns the game as doubles: column and row of the ball, of its velocity and of its trail, column of the paddle,
    /// bricks as a number with bit `(row - 1) * 10 + column` for each, the paddle's last move (0 none, 1 left, 2
    /// right).
    pub(crate) fn to_state(self) -> [f64; STATE] {
        let (ball, velocity, trail) = (self.ball, self.velocity, self.trail);
        [
            f64::from(ball.0),
            f64::from(ball.1),
            f64::from(velocity.0),
            f64::from(velocity.1),
            f64::from(trail.0),
            f64::from(trail.1),
            f64::from(self.paddle),
            f64::from(self.bricks),
            f64::from(self.last as u8),
        ]
    }

    /// Returns the game that has the state `state`, as [`Game::to_state`] gave it.
    ///
    /// # Errors
    /// Returns the place of a number that breaks an invariant.
    pub(crate) fn from_state(state: &[f64; STATE]) -> Result<Self, usize> {
        let cell = |index: usize| whole(state, index, 0.0, SIDE as f64 - 1.0).map(|value| value as u8);
        let sign = |index: usize| match state[index] {
            1.0 => Ok(1),
            -1.0 => Ok(-1),
            _ => Err(index),
        };
        let game = Self {
            ball: (cell(0)?, cell(1)?),
            velocity: (sign(2)?, sign(3)?),
            trail: (cell(4)?, cell(5)?),
            paddle: cell(6)?,
            bricks: whole(state, 7, 0.0, f64::from(ALL_BRICKS))? as u32,
            last: Move::of(whole(state, 8, 0.0, 2.0)? as i64),
        };
        if game.has_brick(game.ball.0, game.ball.1) { Err(7) } else { Ok(game) }
    }
}

/// Returns the number at `index` if it is a whole one in that range.
fn whole(state: &[f64; STATE], index: usize, low: f64, high: f64) -> Result<f64, usize> {
    let value = state[index];
    if value >= low && value <= high && value.fract() == 0.0 { Ok(value) } else { Err(index) }
}

/// Returns the bit of the brick that belongs in a cell; none outside the rows of bricks.
pub(crate) const fn brick_bit(column: u8, row: u8) -> Option<u32> {
    let (column, row) = (column as usize, row as usize);
    if row >= BRICK_ROWS.start && row < BRICK_ROWS.end {
        Some(1 << ((row - BRICK_ROWS.start) * SIDE + column))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows under the bricks are empty, so that the ball flies freely there.
    fn ball(at: (u8, u8), velocity: (i8, i8), paddle: u8) -> Game {
        Game { paddle, ..Game::at(at, velocity) }
    }

    const NOTHING: Moved = Moved { broke: false, missed: false };

    #[test]
    fn the_ball_moves_along_its_diagonal_and_leaves_a_trail() {
        let mut game = ball((4, 5), (1, 1), 0);
        assert_eq!(game.step(Move::Stay), NOTHING);
        assert_eq!((game.ball, game.trail), ((5, 6), (4, 5)));
        assert_eq!(game.step(Move::Stay), NOTHING);
        assert_eq!((game.ball, game.trail), ((6, 7), (5, 6)));
    }

    #[test]
    fn the_paddle_moves_before_the_ball_and_stops_at_the_walls() {
        let mut game = ball((4, 5), (1, 1), 1);
        game.step(Move::Left);
        assert_eq!(game.paddle, 0);
        game.step(Move::Left);
        assert_eq!(game.paddle, 0);
        // Paddle at 5 moves under the ball at 6 in the very step in which it would fall.
        let mut game = ball((6, 8), (1, 1), 5);
        assert_eq!(game.step(Move::Right), NOTHING);
        assert_eq!((game.paddle, game.ball), (6, (7, 8)));
        let mut game = ball((4, 5), (1, 1), 9);
        game.step(Move::Right);
        assert_eq!(game.paddle, 9);
    }

    #[test]
    fn side_walls_and_ceiling_reflect() {
        let mut game = ball((9, 5), (1, 1), 0);
        game.step(Move::Stay);
        assert_eq!((game.ball, game.velocity), ((9, 6), (-1, 1)));
        let mut game = ball((0, 5), (-1, 1), 0);
        game.step(Move::Stay);
        assert_eq!((game.ball, game.velocity), ((0, 6), (1, 1)));
        let mut game = Game { bricks: 0, ..ball((3, 0), (1, -1), 0) };
        game.step(Move::Stay);
        assert_eq!((game.ball, game.velocity), ((4, 0), (1, 1)));
        let mut corner = Game { bricks: 0, ..ball((0, 0), (-1, -1), 0) };
        corner.step(Move::Stay);
        assert_eq!((corner.ball, corner.velocity), ((0, 0), (1, 1)));
    }

    #[test]
    fn a_ball_that_enters_a_brick_breaks_it_and_turns_back() {
        let mut game = ball((4, 4), (1, -1), 0);
        assert!(game.has_brick(5, 3));
        assert_eq!(game.step(Move::Stay), Moved { broke: true, missed: false });
        assert!(!game.has_brick(5, 3));
        assert_eq!((game.ball, game.velocity), ((5, 3), (1, 1)));
        assert_eq!(game.step(Move::Stay), NOTHING);
        assert_eq!(game.ball, (6, 4));
        assert_eq!(game.bricks.count_ones(), 29);
    }

    #[test]
    fn a_paddle_under_the_ball_sends_it_on_and_one_ahead_of_it_sends_it_back() {
        let mut under = ball((4, 8), (1, 1), 4);
        assert_eq!(under.step(Move::Stay), NOTHING);
        assert_eq!((under.ball, under.velocity), ((5, 8), (1, -1)));
        let mut ahead = ball((4, 8), (1, 1), 5);
        assert_eq!(ahead.step(Move::Stay), NOTHING);
        assert_eq!((ahead.ball, ahead.velocity), ((4, 8), (-1, -1)));
        // At the wall, which turns it first, the cell it is headed for is the one it is over.
        let mut wall = ball((9, 8), (1, 1), 9);
        assert_eq!(wall.step(Move::Stay), NOTHING);
        assert_eq!((wall.ball, wall.velocity), ((9, 8), (-1, -1)));
    }

    #[test]
    fn a_ball_the_paddle_misses_ends_the_game_on_the_bottom_row() {
        let mut game = ball((4, 8), (1, 1), 6);
        assert_eq!(game.step(Move::Stay), Moved { broke: false, missed: true });
        assert_eq!(game.ball, (5, 9));
    }

    #[test]
    fn new_rows_come_when_the_ball_next_leaves_the_paddle_after_the_last_brick() {
        let last = brick_bit(5, 3).unwrap();
        let mut game = Game { bricks: last, ..ball((4, 4), (1, -1), 9) };
        assert!(game.step(Move::Stay).broke);
        assert_eq!(game.bricks, 0);
        // From (5, 3) down to the right: (6, 4), (7, 5), (8, 6), (9, 7), then along the wall to (9, 8).
        for _ in 0..5 {
            assert_eq!(game.step(Move::Stay), NOTHING);
            assert_eq!(game.bricks, 0);
        }
        assert_eq!((game.ball, game.velocity), ((9, 8), (-1, 1)));
        assert_eq!(game.step(Move::Stay), NOTHING);
        assert_eq!((game.ball, game.bricks), ((8, 8), ALL_BRICKS));
    }

    #[test]
    fn any_play_keeps_the_ball_on_the_grid_and_out_of_bricks() {
        let mut generator = Generator::seeded(3);
        let (mut misses, mut sets) = (0, 0);
        let mut game = Game::begin(&mut generator);
        for _ in 0..200_000 {
            // Go under the ball or where it is headed, with a mistake now and then.
            let ahead = generator.next_f64() < 0.5;
            let aim = game.ball.0 as i8 + if ahead { game.velocity.0 } else { 0 };
            let careless = generator.next_f64() < 0.001;
            let paddle = match (aim - game.paddle as i8).signum() {
                _ if careless => Move::Left,
                -1 => Move::Left,
                1 => Move::Right,
                _ => Move::Stay,
            };
            let bricks = game.bricks;
            let moved = game.step(paddle);
            assert!(usize::from(game.ball.0) < SIDE && usize::from(game.ball.1) < SIDE, "{game:?}");
            assert!(!game.has_brick(game.ball.0, game.ball.1), "{game:?}");
            assert_eq!(Game::from_state(&game.to_state()), Ok(game));
            assert_eq!(moved.broke, game.bricks.count_ones() + 1 == bricks.count_ones());
            sets += u32::from(bricks == 0 && game.bricks == ALL_BRICKS);
            if moved.missed {
                misses += 1;
                game = Game::begin(&mut generator);
            }
        }
        assert!(sets > 10 && misses > 10, "{sets} sets of bricks cleared, {misses} games lost");
    }

    #[test]
    fn a_state_that_no_game_can_be_in_is_refused_by_the_place_of_the_number() {
        let good = Game::at((4, 5), (1, -1)).to_state();
        let with = |index: usize, value: f64| {
            let mut state = good;
            state[index] = value;
            Game::from_state(&state)
        };
        for (index, value) in
            [(0, 10.0), (1, -1.0), (2, 0.0), (3, f64::NAN), (4, 0.5), (6, 1e300), (7, 1e9 + 1e8), (8, 3.0)]
        {
            assert_eq!(with(index, value), Err(index), "{value}");
        }
        assert_eq!(with(1, 3.0), Err(7), "the ball cannot be inside a brick");
    }
}
