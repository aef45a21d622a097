//! The picture of an acrobot: two links, one hanging from the other, and the line above which the lower one is to
//! swing.

use super::canvas::{Canvas, Point, View};
use super::palette::{BLUE, GREEN, INK, LINE, OCHRE, PAPER, SKY};
use super::pixels;
use super::strip::{figure, line};
use crate::classic::acrobot::Acrobot;
use crate::scene::Scene;
use crate::{Image, ImageSize, trig};

/// Part of the scene in the picture, in lengths of a link; 0 is the upper link's axle.
const VIEW: View = View { left: -2.3, bottom: -2.3, right: 2.3, top: 2.3 };

/// Height of the line.
const GOAL: f64 = 1.0;

impl Scene<[f64; 4]> for Acrobot {
    const SIZE: ImageSize = pixels(500, 500);
    const FPS: u32 = 15;

    fn picture(state: &[f64; 4], size: ImageSize) -> Image {
        let mut canvas = Canvas::new(size, VIEW, PAPER);
        let [joint, tip] = ends(state);
        dashes(&mut canvas, if tip.1 > GOAL { GREEN } else { LINE });
        let (axle, thickness) = ((0.0, 0.0), canvas.at_least(0.2, 3.5));
        canvas.line(&[axle, joint], thickness, BLUE);
        canvas.line(&[joint, tip], thickness, SKY);
        canvas.disc(axle, 0.6 * thickness, INK);
        for place in [axle, joint] {
            canvas.disc(place, 0.3 * thickness, OCHRE);
        }
        canvas.finish()
    }

    fn text(state: &[f64; 4], columns: usize) -> String {
        let [_, (_, height)] = ends(state);
        let [first, second] = [state[0], state[1]].map(|angle| figure(angle.to_degrees()));
        let figures = format!("tip {}  links {first} {second} deg", figure(height));
        // How high the tip is, from hanging to upright.
        line(columns, &figures, |strip| {
            strip.fill(|_| b'.');
            strip.put((GOAL + 2.0) / 4.0, b"|");
            strip.put((height + 2.0) / 4.0, b"o");
        })
    }
}

/// Returns the lower ends of both links. Angles count from hanging, to the right.
fn ends(&[first, second, ..]: &[f64; 4]) -> [Point; 2] {
    let (sin_1, cos_1) = trig::sin_cos(first);
    let (sin_2, cos_2) = trig::sin_cos(first + second);
    [(sin_1, -cos_1), (sin_1 + sin_2, -cos_1 - cos_2)]
}

/// Draws the line, from one side of the picture to the other.
fn dashes(canvas: &mut Canvas, colour: super::canvas::Colour) {
    let (view, half) = (canvas.view(), canvas.at_least(0.025, 1.0) / 2.0);
    let dash = canvas.at_least(0.16, 3.0);
    // The widest picture has 4096 times its height of them in view, the usual one 14.
    let count = ((view.right - view.left) / (2.0 * dash)).ceil().min(1024.0) as usize;
    for index in 0..count {
        let left = view.left + (2.0 * index as f64 + 0.5) * dash;
        canvas.rectangle((left, GOAL - half), (left + dash, GOAL + half), colour);
    }
}
