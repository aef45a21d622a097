//! Games of players that order at random.

use rollhouse_core::OptionValue;

use super::super::actor::{MAX_BUILDINGS, MAX_UNITS};
use super::super::building::footprint;
use super::super::events::Events;
use super::super::kinds::{ITEM_NUMBERS, Item};
use super::super::map::{CELLS, Cell, SIDE};
use super::super::observation::observe;
use super::super::orders::{ORDER_KINDS, OrderKind, SUBJECTS};
use super::*;
use crate::scene::Scene;
use crate::{ActionCheck, Image, ImageSize};

/// Draws integers below a bound.
struct Dice(Generator);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        (self.0.next_u64() % bound.max(1) as u64) as usize
    }

    fn any(&mut self) -> Order {
        Order {
            kind: OrderKind::ALL[self.below(ORDER_KINDS)],
            subject: self.below(SUBJECTS) as u8,
            target: self.below(193) as u8,
            cell: Cell::new(self.below(SIDE) as u8, self.below(SIDE) as u8),
            item: self.below(ITEM_NUMBERS) as u8,
            queued: self.below(2) == 1,
        }
    }
}

/// Panics if something of a game is not as it has to be.
fn check(game: &Game) {
    let mut standing = [0_u8; CELLS];
    for side in &game.sides {
        assert!(side.cash >= 0 && side.ore >= 0 && side.ore <= side.power.capacity.max(0));
        assert!(side.units().count() <= MAX_UNITS && side.buildings().count() <= MAX_BUILDINGS);
        let stats = side.stats;
        let counts = [stats.units_killed, stats.units_lost, stats.buildings_killed, stats.kills_cost];
        assert!(counts.iter().chain([&stats.buildings_lost, &stats.income]).all(|&count| count >= 0));
        for (_, unit) in side.units() {
            assert!(unit.hp > 0 && unit.hp <= unit.rules().hp, "{unit:?}");
            assert!(game.map.is_passable(unit.cell) && game.occupied[unit.cell.index()] != 0, "{unit:?}");
            standing[unit.cell.index()] += 1;
        }
        for (_, building) in side.buildings() {
            assert!(building.hp > 0 && building.hp <= building.rules().hp, "{building:?}");
            footprint(building.kind, building.cell).for_each(|cell| standing[cell.index()] += 1);
        }
    }
    assert!(standing.iter().all(|&count| count <= 1), "two stand in one cell");
    let taken = game.occupied.iter().zip(game.walls.iter()).filter(|(unit, wall)| **unit != 0 || **wall != 0);
    assert_eq!(taken.count(), standing.iter().filter(|&&count| count > 0).count());
}

#[test]
fn whatever_is_ordered_nothing_panics_and_all_counts_stay_in_bounds() {
    for seed in 0..12 {
        let mut dice = Dice(Generator::seeded(seed));
        let setup = Setup { map: seed as usize % 3, cash: 50_000, has_fog: seed % 4 != 0 };
        let mut game = Game::new(setup, seed);
        let mut script = Script::new(Strength::ALL[seed as usize % 4], 1);
        while game.result.is_none() && game.tick < 4000 {
            for _ in 0..dice.below(4) {
                let _ = game.order(0, &dice.any());
            }
            script.play(&mut game);
            game.tick();
            if game.tick.is_multiple_of(16) {
                check(&game);
            }
        }
    }
}

#[test]
fn the_same_seed_and_actions_are_the_same_game_and_other_seeds_are_others() {
    let run = |seed| {
        let mut table = Table::new(&[("opponent", OptionValue::Text("medium".into()))], seed);
        let mut dice = Dice(Generator::seeded(9));
        let hashes: Vec<_> = (0..150)
            .map(|_| {
                let orders: Vec<_> = (0..dice.below(17)).map(|_| dice.any()).collect();
                let step = table.step(&row_of(&orders, 1 + dice.below(40) as i64, 1, &Until::default()));
                (table.world.state_hash(), step.reward.to_bits())
            })
            .collect();
        (hashes, table.obs)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
}

/// Returns an order that the observation says can be carried out, if it says so of one.
fn allowed(table: &Table, spec: &EnvSpec, dice: &mut Dice) -> Option<Order> {
    let mask = table.column(spec, "masks/orders");
    let bits: Vec<_> = (0..SUBJECTS * ORDER_KINDS).filter(|&bit| mask.number(bit) != 0.0).collect();
    let bit = bits[dice.below(bits.len())];
    let kind = OrderKind::ALL[bit % ORDER_KINDS];
    let order = Order::new(kind).by((bit / ORDER_KINDS) as u8);
    let ids = |path: &str, fields: usize, id: usize| -> Vec<u8> {
        let (items, count) = (format!("{path}/items"), format!("{path}/count"));
        let count = table.column(spec, &count).number(0) as usize;
        (0..count).map(|item| table.column(spec, &items).number(item * fields + id) as u8).collect()
    };
    let mut one_of = |ids: Vec<u8>| ids.get(dice.below(ids.len())).copied();
    match kind {
        OrderKind::Attack => {
            let known = [ids("enemies", 12, 6), ids("enemy_buildings", 6, 3)].concat();
            Some(order.at(one_of(known)?))
        }
        OrderKind::Guard => Some(order.at(one_of(ids("buildings", 15, 3))?)),
        OrderKind::CancelProduction => Some(Order { item: one_of(ids("production", 6, 2))?, ..order }),
        OrderKind::Build | OrderKind::Train => {
            let produce = table.column(spec, "masks/produce");
            let is_unit = kind == OrderKind::Train;
            let items = (1..ITEM_NUMBERS as u8).filter(|&item| produce.number(item.into()) != 0.0);
            let items = items.filter(|&it| matches!(Item::of_number(it), Some(Item::Unit(_))) == is_unit);
            Some(Order { item: one_of(items.collect())?, ..order })
        }
        OrderKind::SetStance => Some(order.to(Cell::new(dice.below(4) as u8, 0))),
        _ => {
            let (spatial, place) = (table.column(spec, "spatial"), table.column(spec, "masks/place"));
            let is_open = |cell: &usize| match kind {
                OrderKind::PlaceBuilding => place.number(*cell) != 0.0,
                _ => spatial.number(cell * 9 + 3) != 0.0,
            };
            let cells: Vec<_> = (0..CELLS).filter(is_open).collect();
            Some(order.to(Cell::of_index(*cells.get(dice.below(cells.len()))?)))
        }
    }
}

#[test]
fn what_masks_allow_is_never_refused_and_plays_a_sensible_game() {
    let spec = spec();
    let (mut given, mut built) = (0, 0);
    for seed in 0..4 {
        let mut table = Table::new(&[("fog", OptionValue::Bool(seed != 3))], seed);
        let mut dice = Dice(Generator::seeded(seed));
        for step in 0..600 {
            let order = allowed(&table, &spec, &mut dice);
            let ended = table.step(&row_of(order.as_slice(), 4, 1, &Until::default()));
            assert_eq!(table.info("refusal"), 0, "step {step}: {order:?}");
            given += 1;
            if ended.terminated || ended.truncated {
                break;
            }
        }
        built += table.world.game.sides[0].buildings().count();
    }
    assert!(given > 500 && built > 4, "{given} orders, {built} buildings");
}

/// Returns what people see of a game.
fn drawn(game: &Game) -> (Image, String) {
    let size = ImageSize::new(240, 252).unwrap();
    (<Game as Scene<Game>>::picture(game, size), <Game as Scene<Game>>::text(game, 120))
}

#[test]
fn what_fog_hides_changes_nothing_of_what_is_shown() {
    let spec = spec();
    let shown = |game: &Game| {
        let zeros = |spec: &rollhouse_core::ColumnSpec| ColumnData::zeros(spec.dtype, spec.elements());
        let mut obs: Vec<_> = spec.obs_columns().iter().map(zeros).collect();
        let mut columns: Vec<_> = obs.iter_mut().map(ColumnData::as_mut).collect();
        observe(game, Events::NONE, &mut columns);
        obs
    };
    for seed in 0..6 {
        let mut game = play(SETUP, seed, [Strength::Medium, Strength::Hard], 1500 + 400 * seed as u32);
        let (before, drawn) = (shown(&game), drawn(&game));
        let hidden = game.sides[1].units().filter(|(_, unit)| !game.sides[0].fog.sees(unit.cell));
        let hidden: Vec<_> = hidden.map(|(slot, _)| slot).collect();
        assert!(!hidden.is_empty());
        hidden.into_iter().for_each(|slot| game.remove_unit(1, slot));
        let sees = |game: &Game, kind, cell| game.sees_building(0, kind, cell);
        let unseen = game.sides[1].buildings().filter(|(_, it)| !sees(&game, it.kind, it.cell));
        let unseen: Vec<_> = unseen.map(|(slot, _)| slot).collect();
        unseen.into_iter().for_each(|slot| game.remove_building(1, slot));
        for cell in game.map.cells().filter(|&cell| !game.sides[0].fog.sees(cell)).collect::<Vec<_>>() {
            game.ore[cell.index()] = game.ore[cell.index()].saturating_sub(1);
        }
        (game.sides[1].cash, game.sides[1].ore) = (1, 0);
        let after = shown(&game);
        assert!(drawn == self::drawn(&game), "the picture or the line of text");
        for ((column, before), after) in spec.obs_columns().iter().zip(&before).zip(&after) {
            assert_eq!(before, after, "column {}", column.path);
        }
    }
}

/// Plays a game of drawn actions, which masks mend if `is_mended`. Returns how many orders were given and how many were refused.
fn play_by_chance(seed: u64, is_mended: bool) -> (i64, i64) {
    let (spec, map) = (spec(), super::super::NAMES[seed as usize % 3]);
    let allow = crate::allow_of(&spec).unwrap();
    let check = ActionCheck::of(&spec.action_space).with_counted_of(&spec);
    let mut dice = Dice(Generator::seeded(seed));
    let options = [(super::super::MAP, OptionValue::Text(map.into()))];
    let mut table = Table::new(&options, seed);
    let (mut given, mut refused) = (0, 0);
    for _ in 0..300 {
        let orders: Vec<_> = (0..dice.below(MAX_ORDERS + 1)).map(|_| dice.any()).collect();
        let mut row = row_of(&orders, 20, 1, &Until::default());
        if is_mended {
            let obs: Vec<_> = table.obs.iter().map(ColumnData::as_ref).collect();
            allow(&obs, &mut row);
        }
        assert!(check.all_good(ColumnRef::I64(&row)), "{row:?}");
        let StepResult { terminated, .. } = table.step(&row);
        (given, refused) = (given + orders.len() as i64, refused + i64::from(table.info("rejected_orders")));
        if terminated {
            break;
        }
    }
    (given, refused)
}

#[test]
fn most_drawn_orders_are_refused_and_few_of_those_that_masks_have_mended() {
    for seed in 0..6 {
        let (given, refused) = play_by_chance(seed, false);
        assert!(refused * 10 > given * 7, "{refused} of {given}");
        let (given, refused) = play_by_chance(seed, true);
        assert!(refused * 10 < given, "{refused} of {given}");
    }
}

#[test]
fn columns_stand_where_masks_are_looked_for_and_others_leave_drawn_actions_as_they_are() {
    use super::super::allowing::*;
    let columns = spec().obs_columns();
    assert_eq!(columns.len(), COLUMNS);
    let places = [
        (BUILDINGS, "buildings/items"),
        (ENEMIES, "enemies/items"),
        (ENEMY_BUILDINGS, "enemy_buildings/items"),
        (ORDERS, "masks/orders"),
        (PLACE, "masks/place"),
        (PRODUCE, "masks/produce"),
        (PRODUCTION, "production/items"),
        (SPATIAL, "spatial"),
        (TICK, "tick"),
        (UNITS, "units/items"),
    ];
    for (place, path) in places {
        assert_eq!(columns[place].path, path);
    }
    let orders = [Order::new(OrderKind::Train).by(77)];
    let mut row = row_of(&orders, 20, 1, &Until::default());
    let before = row.clone();
    allow(&[], &mut row);
    allow(&[ColumnRef::I64(&[]); COLUMNS], &mut row);
    assert_eq!(row, before);
}

#[test]
fn a_line_of_text_has_tick_and_money_where_the_rest_has_no_room() {
    let game = play(SETUP, 1, [Strength::Hard, Strength::Easy], 2400);
    let line = |columns| <Game as Scene<Game>>::text(&game, columns);
    assert!(line(120).contains("score") && line(75).contains(" enemies") && !line(75).contains("score"));
    assert!(line(40).contains("tick  2400  money"), "{}", line(40));
    assert!((0..130).all(|columns| line(columns).len() <= columns));
}
