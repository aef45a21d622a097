//! The picture of GridBreakout: bricks, ball and paddle on a board.

use super::canvas::{Canvas, Colour, Point, View};
use super::palette::{BOARD, CREAM, DUSK, NIGHT, RED, SKY};
use super::pixels;
use super::strip::line;
use crate::grid::game::{BOTTOM, BRICK_ROWS, Game, SIDE};
use crate::scene::Scene;
use crate::{Image, ImageSize};

/// Part of the scene in the picture, in cells; 0 is the board's lower left corner.
const VIEW: View = View { left: 0.0, bottom: 0.0, right: SIDE as f64, top: SIDE as f64 };

/// Colours of the rows of bricks, from the top.
const BRICKS: [Colour; 3] = [RED, Colour(0xdd, 0x84, 0x34), Colour(0xe6, 0xb8, 0x52)];

impl Scene<Game> for Game {
    const SIZE: ImageSize = pixels(400, 400);
    const FPS: u32 = 15;

    fn picture(game: &Game, size: ImageSize) -> Image {
        let mut canvas = Canvas::new(size, VIEW, NIGHT);
        canvas.rectangle((VIEW.left, VIEW.bottom), (VIEW.right, VIEW.top), BOARD);
        let gap = canvas.at_least(0.06, 0.6);
        for (row, colour) in BRICK_ROWS.zip(BRICKS) {
            for column in (0..SIDE as u8).filter(|&column| game.has_brick(column, row as u8)) {
                let (x, y) = middle((column, row as u8));
                canvas.rectangle((x - 0.5 + gap, y - 0.5 + gap), (x + 0.5 - gap, y + 0.5 - gap), colour);
            }
        }
        canvas.disc(middle(game.trail), 0.18, DUSK);
        let (x, y) = middle((game.paddle, BOTTOM as u8));
        canvas.rounded((x - 0.5, y - 0.1), (x + 0.5, y + 0.3), 0.15, SKY);
        let missed = usize::from(game.ball.1) == BOTTOM;
        canvas.disc(middle(game.ball), 0.34, if missed { RED } else { CREAM });
        canvas.finish()
    }

    fn text(game: &Game, columns: usize) -> String {
        let bricks = game.bricks.count_ones();
        let (down, row) = (if game.velocity.1 > 0 { 'v' } else { '^' }, game.ball.1);
        let figures = format!("ball in row {row} of {BOTTOM} {down}  {bricks:>2} bricks");
        line(columns, &figures, |strip| {
            let place = |column: u8| (f64::from(column) + 0.5) / SIDE as f64;
            strip.put(place(game.paddle), b"===");
            strip.put(place(game.ball.0), b"o");
        })
    }
}

/// Returns the middle of a cell.
fn middle((column, row): (u8, u8)) -> Point {
    (f64::from(column) + 0.5, VIEW.top - f64::from(row) - 0.5)
}
