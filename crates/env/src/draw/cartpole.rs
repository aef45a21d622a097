//! The picture of a cart-pole: a cart on a track, and its pole.

use super::canvas::{Canvas, View};
use super::palette::{INK, LINE, OCHRE, PAPER, RED, SHADE, SKY};
use super::pixels;
use super::strip::{figure, line};
use crate::classic::cartpole::{CartPole, LENGTH, THETA_LIMIT, X_LIMIT};
use crate::scene::Scene;
use crate::{Image, ImageSize, trig};

/// Part of the scene in the picture, in metres; 0 is the track.
const VIEW: View = View { left: -2.6, bottom: -0.75, right: 2.6, top: 1.45 };

impl Scene<[f64; 4]> for CartPole {
    const SIZE: ImageSize = pixels(600, 400);
    const FPS: u32 = 50;

    fn picture(state: &[f64; 4], size: ImageSize) -> Image {
        let &[x, _, theta, _] = state;
        let mut canvas = Canvas::new(size, VIEW, PAPER);
        let view = canvas.view();
        let rail = canvas.at_least(0.02, 1.0) / 2.0;
        canvas.rectangle((view.left, view.bottom), (view.right, 0.0), SHADE);
        canvas.rectangle((view.left, -rail), (view.right, rail), LINE);
        // Where an episode ends.
        let (post, height) = (canvas.at_least(0.02, 1.0) / 2.0, canvas.at_least(0.12, 3.0));
        for limit in [-X_LIMIT, X_LIMIT] {
            canvas.rectangle((limit - post, -height), (limit + post, height), LINE);
        }
        // A metre of the pole has at least 24 pixels.
        let zoom = canvas.at_least(1.0, 24.0);
        let (half, high, corner) = (0.25 * zoom, 0.15 * zoom, 0.05 * zoom);
        canvas.rounded((x - half, -high), (x + half, high), corner, INK);
        let axle = (x, 0.075 * zoom);
        let (sin, cos) = trig::sin_cos(theta);
        let pole = 2.0 * LENGTH * zoom;
        let colour = if theta.abs() > THETA_LIMIT || x.abs() > X_LIMIT { RED } else { OCHRE };
        let tip = (axle.0 + pole * sin, axle.1 + pole * cos);
        canvas.line(&[axle, tip], canvas.at_least(0.085, 2.5), colour);
        canvas.disc(axle, canvas.at_least(0.04, 1.0), SKY);
        canvas.finish()
    }

    fn text(state: &[f64; 4], columns: usize) -> String {
        let &[x, _, theta, _] = state;
        let pole = match theta {
            theta if theta.abs() > THETA_LIMIT => b'_',
            theta if theta > THETA_LIMIT / 4.0 => b'/',
            theta if theta < -THETA_LIMIT / 4.0 => b'\\',
            _ => b'|',
        };
        let figures = format!("x {} m  pole {} deg", figure(x), figure(theta.to_degrees()));
        line(columns, &figures, |strip| {
            strip.fill(|_| b'-');
            strip.put((x / X_LIMIT + 1.0) / 2.0, &[b'[', pole, b']']);
        })
    }
}
