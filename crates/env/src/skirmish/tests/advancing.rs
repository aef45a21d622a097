//! Many ticks in one step.

use rollhouse_core::OptionValue;

use super::super::actor::Actor;
use super::super::advance::{Comparison, Condition};
use super::super::figures::Figure;
use super::super::kinds::{BuildingKind, Item, UnitKind};
use super::super::map::Cell;
use super::super::orders::{OrderKind, Selector};
use super::*;
use crate::ActionCheck;

fn opening() -> Vec<Order> {
    let scouts = Order::new(OrderKind::AttackMove).by(Selector::Combat.id()).to(Cell::new(20, 18));
    let power = Order::new(OrderKind::Build).of(Item::Building(BuildingKind::PowerPlant));
    vec![scouts, power]
}

#[test]
fn fifty_ticks_in_a_step_are_fifty_steps_of_a_tick() {
    let (mut at_once, mut one_by_one) = (Table::new(&[], 3), Table::new(&[], 3));
    let mut steps = 0;
    loop {
        let orders = if steps == 0 { opening() } else { Vec::new() };
        let whole = at_once.step(&row_of(&orders, 50, 1, &Until::default()));
        let mut reward = 0.0;
        let mut last = StepResult::default();
        for tick in 0..at_once.info("ticks_advanced") {
            let orders = if tick == 0 { &orders[..] } else { &[] };
            last = one_by_one.step(&row_of(orders, 1, 1, &Until::default()));
            reward += last.reward;
        }
        assert_eq!((whole.terminated, whole.truncated), (last.terminated, last.truncated));
        assert_eq!(whole.reward.to_bits(), reward.to_bits());
        assert_eq!(at_once.world.state_hash(), one_by_one.world.state_hash(), "step {steps}");
        let events = spec().obs_columns().iter().position(|column| column.path == "events").unwrap();
        let shown = at_once.obs.iter().zip(&one_by_one.obs).enumerate();
        assert!(shown.filter(|(place, _)| *place != events).all(|(_, (one, other))| one == other));
        steps += 1;
        if whole.terminated || whole.truncated {
            break;
        }
    }
    assert!(steps > 20, "the game took {steps} steps");
}

#[test]
fn too_many_orders_ticks_or_conditions_are_refused_with_value_and_limit() {
    let spec = spec();
    let check = ActionCheck::of(&spec.action_space).with_counted_of(&spec);
    let names: Vec<_> = match &spec.action_space {
        rollhouse_core::Space::Box(space) => space.part_names(),
        rollhouse_core::Space::Discrete(_) => panic!("an action has parts"),
    };
    let good = row_of(&opening(), 1, 1, &Until::default());
    assert!(check.all_good(ColumnRef::I64(&good)));
    for (name, value, wanted) in [
        ("orders/count", 17, "a number of items from 0 to 16"),
        ("ticks", 0, "an integer from 1 to 5000"),
        ("ticks", 5001, "an integer from 1 to 5000"),
        ("check_every", 101, "an integer from 1 to 100"),
        ("until/conditions/count", 9, "a number of items from 0 to 8"),
        ("until/interrupts[9]", 2, "an integer from 0 to 1"),
    ] {
        let mut row = good.clone();
        row[names.iter().position(|known| known == name).unwrap()] = value;
        let error = check.first_bad(ColumnRef::I64(&row), |_| true).unwrap();
        assert!(error.value.starts_with(&value.to_string()), "{error}");
        assert_eq!(error.wanted, wanted, "{name}");
    }
    let mut row = good;
    let kind = names.iter().position(|name| name == "orders/items[1]").unwrap();
    row[kind] = 20;
    assert!(check.first_bad(ColumnRef::I64(&row), |_| true).is_some(), "there is no such kind of order");
}

#[test]
fn a_step_ends_at_the_first_check_at_which_its_conditions_hold() {
    let condition = |figure, comparison, value| Condition { figure, comparison, value };
    let late = condition(Figure::Tick, Comparison::AtLeast, 33);
    let poor = condition(Figure::Cash, Comparison::AtMost, 0);
    for (needs_all, conditions, check_every, ticks, reason) in [
        (false, &[late, poor][..], 1, 33, 2),
        (false, &[late, poor], 10, 40, 2),
        (true, &[late, poor], 1, 60, 0),
        (true, &[late], 7, 35, 2),
        (true, &[], 1, 60, 0),
    ] {
        let mut table = Table::new(&[], 4);
        let until = Until { conditions: conditions.iter().copied().collect(), needs_all, ..Until::default() };
        let _ = table.step(&row_of(&[], 60, check_every, &until));
        assert_eq!((table.info("ticks_advanced"), table.info("stop_reason")), (ticks, reason));
    }
}

#[test]
fn a_game_is_a_draw_at_its_time_limit_and_won_or_lost_otherwise() {
    let mut table = Table::new(&[("time_limit", OptionValue::Int(120))], 5);
    let first = table.step(&row_of(&[], 100, 1, &Until::default()));
    assert!(!first.truncated && !first.terminated);
    let last = table.step(&row_of(&[], 100, 1, &Until::default()));
    assert!(last.truncated && !last.terminated);
    assert_eq!((table.info("ticks_advanced"), table.info("stop_reason")), (20, 1));
    assert_eq!(table.world.verdict().result(), GameResult::Draw);

    let mut table = Table::new(&[("opponent", OptionValue::Text("hard".into()))], 5);
    let lost = loop {
        let step = table.step(&row_of(&[], 5000, 100, &Until::default()));
        if step.terminated || step.truncated {
            break step;
        }
    };
    assert!(lost.terminated && !lost.truncated && lost.reward < -5.0, "{lost:?}");
    assert_eq!((table.info("stop_reason"), table.world.verdict().result()), (3, GameResult::Lose));
}

#[test]
fn orders_that_cannot_be_carried_out_are_counted_with_the_first_reason() {
    let mut table = Table::new(&[], 6);
    let treason = Order::new(OrderKind::Attack).by(1).at(Actor::Unit(1).id(false));
    let blind = Order::new(OrderKind::Attack).by(1).at(Actor::Unit(0).id(true));
    let nobody = Order::new(OrderKind::Move).by(60).to(Cell::new(5, 5));
    let early = Order::new(OrderKind::Train).of(Item::Unit(UnitKind::Tank));
    let good = Order::new(OrderKind::Move).by(1).to(Cell::new(6, 6));
    let _ = table.step(&row_of(&[nobody, early, good], 1, 1, &Until::default()));
    assert_eq!((table.info("rejected_orders"), table.info("refusal")), (2, 2));
    let _ = table.step(&row_of(&[treason, blind], 1, 1, &Until::default()));
    assert_eq!((table.info("rejected_orders"), table.info("refusal")), (2, 6));
    let _ = table.step(&row_of(&[], 1, 1, &Until::default()));
    assert_eq!((table.info("rejected_orders"), table.info("refusal")), (0, 0));
}
