//! The picture of an Echo lane: the last action as bars, and the count of steps as bits.

use super::canvas::{Canvas, View};
use super::palette::{BLUE, INK, LINE, OCHRE, PAPER, RED, SHADE};
use super::pixels;
use super::strip::line;
use crate::echo::{ACTIONS, Echo};
use crate::scene::Scene;
use crate::{Image, ImageSize};

/// Part of a lane's state that is drawn: the number of steps of its episode and its last action.
pub(crate) type EchoState = (u64, [f32; ACTIONS]);

/// Part of the scene in the picture. A bar's place is 1 wide, a value of 1 is 1 high, and the bits are below.
const VIEW: View = View { left: -0.6, bottom: -2.2, right: ACTIONS as f64 + 0.6, top: 1.4 };

/// Number of bits of the count that observations show.
const BITS: u32 = 16;

/// Factor by which heights are drawn larger, so that bars are as high as they are wide together.
const TALL: f64 = 3.0;

impl Scene<EchoState> for Echo {
    const SIZE: ImageSize = pixels(600, 400);
    const FPS: u32 = 15;

    fn picture(&(steps, action): &EchoState, size: ImageSize) -> Image {
        let tall = View { bottom: VIEW.bottom * TALL, top: VIEW.top * TALL, ..VIEW };
        let mut canvas = Canvas::new(size, tall, PAPER);
        let width = ACTIONS as f64;
        let thin = canvas.at_least(0.04, 1.0) / 2.0;
        for (place, value) in action.into_iter().enumerate() {
            let (left, right) = (place as f64 + 0.12, place as f64 + 0.88);
            canvas.rectangle((left, -TALL), (right, TALL), SHADE);
            // Actions may lie out of bounds: those are cut at an end of another colour.
            let height = TALL * f64::from(value.clamp(-1.0, 1.0));
            let (low, high) = (height.min(0.0), height.max(0.0));
            if value != 0.0 {
                canvas.rectangle((left, low), (right, high), if value < 0.0 { OCHRE } else { BLUE });
            }
            if value.abs() > 1.0 {
                let (low, high) = if value < 0.0 { (-TALL - 0.3, -TALL) } else { (TALL, TALL + 0.3) };
                canvas.rectangle((left, low), (right, high), RED);
            }
        }
        canvas.rectangle((0.0, -thin), (width, thin), LINE);
        let cell = width / f64::from(BITS);
        let gap = canvas.at_least(0.12 * cell, 0.6);
        for bit in 0..BITS {
            let left = f64::from(BITS - 1 - bit) * cell;
            let colour = if steps >> bit & 1 == 1 { INK } else { SHADE };
            let (low, high) = (-1.85 * TALL, -1.5 * TALL);
            canvas.rectangle((left + gap, low), (left + cell - gap, high), colour);
        }
        canvas.finish()
    }

    fn text(&(steps, action): &EchoState, columns: usize) -> String {
        // From -1 over 0 to 1.
        const LEVELS: &[u8; 9] = b"_.,:-=+*#";
        line(columns, &format!("steps {steps}"), |strip| {
            strip.fill(|place| {
                let value = f64::from(action[((place * ACTIONS as f64) as usize).min(ACTIONS - 1)]);
                LEVELS[((value.clamp(-1.0, 1.0) + 1.0) * 4.0).round() as usize]
            });
        })
    }
}
