//! The picture of a mountain car: a car between two hills, and the flag that it is to reach.

use super::canvas::{Canvas, Point, View};
use super::palette::{BLUE, GREEN, INK, LINE, OCHRE, PAPER, SHADE, SKY};
use super::pixels;
use super::strip::{figure, line};
use crate::classic::mountain_car::{self, MAX_POSITION, MIN_POSITION, MountainCar};
use crate::classic::mountain_car_continuous::{self, MountainCarContinuous};
use crate::scene::Scene;
use crate::{Image, ImageSize, trig};

/// Part of the scene in the picture, in the env's positions; heights have the same unit.
const VIEW: View = View { left: MIN_POSITION - 0.04, bottom: -0.04, right: MAX_POSITION + 0.04, top: 1.26 };

const SIZE: ImageSize = pixels(600, 400);

impl Scene<[f64; 2]> for MountainCar {
    const SIZE: ImageSize = SIZE;
    const FPS: u32 = 30;

    fn picture(state: &[f64; 2], size: ImageSize) -> Image {
        picture(state[0], mountain_car::GOAL_POSITION, size)
    }

    fn text(state: &[f64; 2], columns: usize) -> String {
        text([state[0], state[1]], mountain_car::GOAL_POSITION, columns)
    }
}

impl Scene<[f64; 3]> for MountainCarContinuous {
    const SIZE: ImageSize = SIZE;
    const FPS: u32 = 30;

    fn picture(state: &[f64; 3], size: ImageSize) -> Image {
        picture(state[0], mountain_car_continuous::GOAL_POSITION, size)
    }

    fn text(state: &[f64; 3], columns: usize) -> String {
        text([state[0], state[1]], mountain_car_continuous::GOAL_POSITION, columns)
    }
}

/// Returns the height of the ground, which is flat beyond the range of the car.
fn height(position: f64) -> f64 {
    let (sin, _) = trig::sin_cos(3.0 * position.clamp(MIN_POSITION, MAX_POSITION));
    0.55 + 0.45 * sin
}

fn picture(position: f64, goal: f64, size: ImageSize) -> Image {
    let mut canvas = Canvas::new(size, VIEW, PAPER);
    let view = canvas.view();
    // Corners a few pixels apart look like a curve.
    let corners = (size.width() / 4).clamp(32, 1024);
    let step = (view.right - view.left) / corners as f64;
    let ground: Vec<Point> =
        (0..=corners).map(|i| view.left + step * i as f64).map(|x| (x, height(x))).collect();
    let mut hill = ground.clone();
    hill.extend([(view.right, view.bottom), (view.left, view.bottom)]);
    canvas.polygon(&hill, SHADE);
    canvas.line(&ground, canvas.at_least(0.007, 1.0), LINE);

    let reached = position >= goal;
    let (foot, pole) = (height(goal), canvas.at_least(0.16, 10.0));
    let (cloth, drop) = (canvas.at_least(0.085, 4.5), canvas.at_least(0.075, 5.0));
    let top = foot + pole;
    let colour = if reached { GREEN } else { OCHRE };
    canvas.polygon(&[(goal, top), (goal + cloth, top - drop / 2.0), (goal, top - drop)], colour);
    canvas.line(&[(goal, foot), (goal, top)], canvas.at_least(0.009, 1.0), INK);

    car(&mut canvas, position);
    canvas.finish()
}

/// Draws the car, upright on the slope on which it stands.
fn car(canvas: &mut Canvas, position: f64) {
    // It is at least 14 pixels long.
    let unit = canvas.at_least(0.15, 14.0);
    let foot = (position, height(position));
    let slope = 1.35 * trig::sin_cos(3.0 * position).1;
    let length = (1.0 + slope * slope).sqrt();
    let (along, up) = ((1.0 / length, slope / length), (-slope / length, 1.0 / length));
    let at = |x: f64, y: f64| {
        let (x, y) = (x * unit, y * unit);
        (foot.0 + along.0 * x + up.0 * y, foot.1 + along.1 * x + up.1 * y)
    };
    let cabin = [at(-0.30, 0.36), at(-0.20, 0.62), at(0.12, 0.62), at(0.26, 0.36)];
    canvas.polygon(&cabin, SKY);
    canvas.line(&[cabin[0], cabin[1], cabin[2], cabin[3]], 0.06 * unit, BLUE);
    let body = [at(-0.5, 0.16), at(-0.48, 0.38), at(0.3, 0.4), at(0.5, 0.32), at(0.5, 0.16)];
    canvas.polygon(&body, BLUE);
    for x in [-0.28, 0.28] {
        canvas.disc(at(x, 0.14), 0.14 * unit, INK);
        canvas.disc(at(x, 0.14), 0.05 * unit, LINE);
    }
}

fn text([position, velocity]: [f64; 2], goal: f64, columns: usize) -> String {
    let place = |position: f64| (position - MIN_POSITION) / (MAX_POSITION - MIN_POSITION);
    let figures = format!("x {}  v {:>+7.4}", figure(position), velocity.clamp(-9.0, 9.0));
    line(columns, &figures, |strip| {
        strip.fill(|place| {
            // From 0.1 in the valley to 1 on the hill.
            match height(MIN_POSITION + place * (MAX_POSITION - MIN_POSITION)) {
                height if height < 0.25 => b'_',
                height if height < 0.5 => b'.',
                height if height < 0.75 => b'-',
                height if height < 0.93 => b'\'',
                _ => b'"',
            }
        });
        strip.put(place(goal), b"P");
        strip.put(place(position), b"o");
    })
}
