//! The picture of Skirmish: the map as the player knows it, with figures above.

use super::canvas::{Canvas, Colour, Point, View};
use super::letters::write;
use super::palette::{CREAM, DUSK, GREEN, NIGHT, OCHRE, RED, SKY};
use super::pixels;
use super::strip::{fits, line};
use crate::scene::Scene;
use crate::skirmish::game::Game;
use crate::skirmish::kinds::{BuildingKind, UnitKind};
use crate::skirmish::map::Cell;
use crate::skirmish::{BUILDING_LETTERS, Building, Sighting, UNIT_LETTERS, Unit, known_ore};
use crate::{Image, ImageSize};

const GROUND: [Colour; 4] =
    [Colour(0x4d, 0x5b, 0x40), Colour(0x5f, 0x58, 0x40), Colour(0x2c, 0x52, 0x74), Colour(0x6b, 0x68, 0x64)];
const OWN: Colour = SKY;
const OWN_DARK: Colour = Colour(0x1f, 0x5a, 0x88);
const ENEMY: Colour = RED;
const ENEMY_DARK: Colour = Colour(0x7d, 0x2c, 0x12);
const ORE: Colour = OCHRE;
const PALE: Colour = Colour(0x9a, 0xa2, 0x8c);
/// Cells between two numbers at the edges.
const PLACES: usize = 5;

impl Scene<Game> for Game {
    const SIZE: ImageSize = pixels(640, 672);
    /// Ticks of a second, where a step is one.
    const FPS: u32 = 25;

    fn picture(game: &Game, size: ImageSize) -> Image {
        let (width, height) = (f64::from(game.map.width), f64::from(game.map.height));
        let head = height / 20.0;
        let view = View { left: 0.0, bottom: 0.0, right: width, top: height + head };
        let mut canvas = Canvas::new(size, view, NIGHT);
        game.map.cells().for_each(|cell| ground(&mut canvas, game, cell));
        places(&mut canvas, game);
        let own = &game.sides[0];
        for sighting in own.sightings.iter().flatten() {
            let &Sighting { kind, cell, hp_percent, .. } = sighting;
            let is_seen = game.sees_building(0, kind, cell);
            let colour = if is_seen { ENEMY } else { ENEMY_DARK };
            building(&mut canvas, game, (kind, cell), (colour, ENEMY_DARK), f64::from(hp_percent) / 100.0);
        }
        for (_, it) in own.buildings() {
            building(&mut canvas, game, (it.kind, it.cell), (OWN, OWN_DARK), it.hp_percent() as f64 / 100.0);
            rally(&mut canvas, game, it);
        }
        for (_, it) in game.sides[1].units().filter(|(_, it)| own.fog.sees(it.cell)) {
            unit(&mut canvas, game, it, (ENEMY, ENEMY_DARK));
        }
        own.units().for_each(|(_, it)| unit(&mut canvas, game, it, (OWN, OWN_DARK)));
        figures(&mut canvas, game, (width, height), head);
        canvas.finish()
    }

    fn text(game: &Game, columns: usize) -> String {
        let own = &game.sides[0];
        let power = own.power;
        let units = own.units().count();
        let seen = game.sides[1].units().filter(|(_, unit)| own.fog.sees(unit.cell)).count();
        let clock = format!("tick {:>5}  money {:>5}", game.tick, own.money());
        let sides =
            format!("{clock}  power {}/{}  {units} units  {seen} enemies", power.drained, power.provided);
        let all = format!("{sides}  score {}", own.score());
        // What is played by is shown on terminals of any width.
        let figures = [all, sides].into_iter().find(|figures| fits(columns, figures)).unwrap_or(clock);
        let width = f64::from(game.map.width);
        line(columns, &figures, |strip| {
            let place = |cell: Cell| (f64::from(cell.x) + 0.5) / width;
            for it in own.sightings.iter().flatten() {
                strip.put(place(it.cell), b"!");
            }
            for (_, it) in own.buildings() {
                strip.put(place(it.middle()), &[BUILDING_LETTERS[it.kind as usize]]);
            }
            for (_, it) in own.units() {
                strip.put(place(it.cell), &[UNIT_LETTERS[it.kind as usize]]);
            }
            for (_, it) in game.sides[1].units().filter(|(_, unit)| own.fog.sees(unit.cell)) {
                strip.put(place(it.cell), b"?");
            }
        })
    }
}

/// Returns a point of the scene, whose y goes up, of one of the map.
fn point(game: &Game, x: f64, y: f64) -> Point {
    (x, f64::from(game.map.height) - y)
}

/// Returns a colour that is darker, by a part of its light.
fn dimmed(Colour(red, green, blue): Colour, part: u16) -> Colour {
    let dim = |light: u8| (u16::from(light) * part / 100) as u8;
    Colour(dim(red), dim(green), dim(blue))
}

fn ground(canvas: &mut Canvas, game: &Game, cell: Cell) {
    let fog = &game.sides[0].fog;
    let light = match (fog.sees(cell), fog.has_seen(cell)) {
        (true, _) => 100,
        (false, true) => 55,
        (false, false) => 22,
    };
    let index = cell.index();
    let light = light + light * u16::from(game.map.heights[index]) / 8;
    let (x, y) = (f64::from(cell.x), f64::from(cell.y));
    let colour = dimmed(GROUND[game.map.terrain[index] as usize], light);
    canvas.rectangle(point(game, x, y + 1.0), point(game, x + 1.0, y), colour);
    let ore = known_ore(game, cell);
    if ore > 0 {
        let radius = 0.15 + f64::from(ore) / 200.0;
        canvas.disc(point(game, x + 0.5, y + 0.5), radius, dimmed(ORE, light));
    }
}

/// Writes the numbers of every fifth column and row at the edges, by which cells are named in orders.
fn places(canvas: &mut Canvas, game: &Game) {
    let dot = 0.11;
    for x in (0..game.map.width).step_by(PLACES) {
        write(canvas, &x.to_string(), point(game, f64::from(x) + 0.1, 0.1), dot, PALE);
    }
    for y in (0..game.map.height).step_by(PLACES).skip(1) {
        write(canvas, &y.to_string(), point(game, 0.1, f64::from(y) + 0.2), dot, PALE);
    }
}

fn building(
    canvas: &mut Canvas,
    game: &Game,
    (kind, cell): (BuildingKind, Cell),
    (colour, dark): (Colour, Colour),
    health: f64,
) {
    let size = f64::from(kind.rules().size);
    let (x, y) = (f64::from(cell.x), f64::from(cell.y));
    let (low, high) = (point(game, x + 0.06, y + size - 0.06), point(game, x + size - 0.06, y + 0.06));
    canvas.rounded(low, high, 0.2, dark);
    canvas.rounded((low.0 + 0.1, low.1 + 0.1), (high.0 - 0.1, high.1 - 0.1), 0.15, colour);
    let letter = char::from(BUILDING_LETTERS[kind as usize]).to_string();
    let dot = size * 0.13;
    let corner = point(game, x + size / 2.0 - 1.5 * dot, y + size / 2.0 - 2.5 * dot);
    write(canvas, &letter, corner, dot, NIGHT);
    bar(canvas, point(game, x + 0.1, y + size), size - 0.2, health);
}

fn rally(canvas: &mut Canvas, game: &Game, building: &Building) {
    let Some(rally) = building.rally else { return };
    let middle = |cell: Cell| point(game, f64::from(cell.x) + 0.5, f64::from(cell.y) + 0.5);
    canvas.line(&[middle(building.middle()), middle(rally)], 0.06, OWN_DARK);
    canvas.disc(middle(rally), 0.2, OWN);
}

/// Draws how many hit points are left, if some are not.
fn bar(canvas: &mut Canvas, (left, bottom): Point, width: f64, health: f64) {
    if health < 1.0 {
        canvas.rectangle((left, bottom), (left + width, bottom + 0.14), NIGHT);
        let colour = if health > 0.5 { GREEN } else { OCHRE };
        canvas.rectangle((left, bottom), (left + width * health, bottom + 0.14), colour);
    }
}

/// Draws a unit: infantry as discs, vehicles as squares that point to where they face, each with its letter.
fn unit(canvas: &mut Canvas, game: &Game, unit: &Unit, (colour, dark): (Colour, Colour)) {
    let (x, y) = unit.place();
    let (x, y) = (x as f64 / 256.0, y as f64 / 256.0);
    let middle = point(game, x, y);
    let (way_x, way_y) = unit.way();
    let tip = point(game, x + 0.5 * way_x, y + 0.5 * way_y);
    match unit.kind {
        UnitKind::Rifle | UnitKind::Rocket => {
            canvas.disc(middle, 0.36, dark);
            canvas.disc(middle, 0.3, colour);
        }
        _ => {
            canvas.line(&[middle, tip], 0.2, dark);
            let around = |half: f64| ((middle.0 - half, middle.1 - half), (middle.0 + half, middle.1 + half));
            let (low, high) = around(0.44);
            canvas.rounded(low, high, 0.12, dark);
            let (low, high) = around(0.36);
            canvas.rounded(low, high, 0.1, colour);
        }
    }
    let letter = char::from(UNIT_LETTERS[unit.kind as usize]).to_string();
    write(canvas, &letter, (middle.0 - 0.15, middle.1 + 0.25), 0.1, NIGHT);
    if unit.cargo > 0 {
        canvas.disc((middle.0 + 0.3, middle.1 - 0.3), 0.14, ORE);
    }
    bar(canvas, (middle.0 - 0.4, middle.1 - 0.55), 0.8, unit.hp_percent() as f64 / 100.0);
}

/// Writes the figures above the map.
fn figures(canvas: &mut Canvas, game: &Game, (width, height): (f64, f64), head: f64) {
    let own = &game.sides[0];
    let dot = head / 9.0;
    let top = height + head - 2.0 * dot;
    let texts = [
        (format!("T {}", game.tick), CREAM),
        (format!("MONEY {}", own.money()), OCHRE),
        (
            format!("POWER {}/{}", own.power.drained, own.power.provided),
            if own.power.is_low() { RED } else { GREEN },
        ),
        (format!("UNITS {}", own.units().count()), SKY),
        (format!("KILLS {}", own.stats.units_killed + own.stats.buildings_killed), DUSK),
    ];
    let letters: usize = texts.iter().map(|(text, _)| text.len() + 2).sum();
    // They get smaller where a small map has no room for them.
    let dot = dot.min(width / (letters as f64 * 4.0));
    let mut left = dot * 2.0;
    for (text, colour) in texts {
        write(canvas, &text, (left, top), dot, colour);
        left += (text.len() + 2) as f64 * 4.0 * dot;
    }
}
