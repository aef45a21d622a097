//! The picture of a pendulum: a rod that turns around one of its ends.

use super::canvas::{Canvas, View};
use super::palette::{GREEN, INK, LINE, PAPER, RED, SHADE};
use super::pixels;
use super::strip::{figure, line};
use crate::classic::pendulum::Pendulum;
use crate::scene::Scene;
use crate::{Image, ImageSize, trig};

/// Part of the scene in the picture, in lengths of the rod; 0 is its axle.
const VIEW: View = View { left: -1.3, bottom: -1.3, right: 1.3, top: 1.3 };

impl Scene<[f64; 2]> for Pendulum {
    const SIZE: ImageSize = pixels(500, 500);
    const FPS: u32 = 30;

    fn picture(state: &[f64; 2], size: ImageSize) -> Image {
        let mut canvas = Canvas::new(size, VIEW, PAPER);
        // The way of the rod's end, and where it is to stay.
        canvas.circle((0.0, 0.0), 1.0, canvas.at_least(0.012, 1.0), SHADE);
        canvas.line(&[(0.0, 1.14), (0.0, 1.22)], canvas.at_least(0.03, 1.5), GREEN);
        // Angles count from upright, to the left.
        let (sin, cos) = trig::sin_cos(state[0]);
        let thickness = canvas.at_least(0.2, 5.0);
        canvas.line(&[(0.0, 0.0), (-sin, cos)], thickness, RED);
        canvas.disc((0.0, 0.0), 0.32 * thickness, INK);
        canvas.disc((0.0, 0.0), 0.12 * thickness, LINE);
        canvas.finish()
    }

    fn text(state: &[f64; 2], columns: usize) -> String {
        // From hanging over left, upright and right to hanging.
        let angle = trig::modulo_tau(state[0] + std::f64::consts::PI) - std::f64::consts::PI;
        let figures = format!("angle {} deg  {} rad/s", figure(angle.to_degrees()), figure(state[1]));
        line(columns, &figures, |strip| {
            strip.fill(|_| b'.');
            strip.put(0.5, b"^");
            strip.put(0.5 - angle / std::f64::consts::TAU, b"o");
        })
    }
}
