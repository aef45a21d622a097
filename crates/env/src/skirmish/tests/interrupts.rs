//! Every event happens, and ends the step that is to end for it.

use super::super::events::{EVENT_COUNT, Events};
use super::super::kinds::{BuildingKind, Item, UnitKind};
use super::super::map::Cell;
use super::super::orders::{OrderKind, Selector};
use super::super::unit::{Stance, Task};
use super::*;

/// Steps up to so many ticks until an event happens; panics if the step ends for anything else.
fn expect(table: &mut Table, orders: &[Order], event: Event, ticks: i64) {
    let until = Until { interrupts: Events::from(event), ..Until::default() };
    let _ = table.step(&row_of(orders, ticks, 1, &until));
    assert_eq!(table.info("stop_reason"), 3 + event as i32, "{}", event.name());
    assert!(i64::from(table.info("ticks_advanced")) < ticks, "{}", event.name());
    let events = table.column(&spec(), "events");
    assert!((0..EVENT_COUNT).all(|bit| (events.number(bit) != 0.0) >= (bit == event as usize)));
}

/// Puts units of the enemy next to those of the player, and has both stand and shoot.
fn enemies(table: &mut Table, kind: UnitKind, count: usize, near: Cell) {
    for _ in 0..count {
        let slot = table.world.game.add_unit(1, kind, near).unwrap();
        let unit = table.world.game.sides[1].units[usize::from(slot)].as_mut().unwrap();
        unit.stance = Stance::AttackAnything;
    }
}

fn home(table: &Table) -> Cell {
    table.world.game.sides[0].buildings().next().unwrap().1.middle()
}

/// Returns a cell some steps from home that is on the map.
fn outside(table: &Table, steps: i32) -> Cell {
    let home = home(table);
    let way = if home.x > 12 { -1 } else { 1 };
    home.shifted(steps * way, steps * way).unwrap()
}

#[test]
fn an_enemy_that_comes_into_sight_and_shoots_is_reported_and_so_are_losses() {
    let mut table = Table::new(&[], 1);
    let home = home(&table);
    let cell = table.world.game.placements(0, BuildingKind::PowerPlant, home, 1)[0];
    table.world.game.add_building(0, BuildingKind::PowerPlant, cell);
    let place = outside(&table, 3);
    enemies(&mut table, UnitKind::Tank, 4, place);
    expect(&mut table, &[], Event::EnemySpotted, 100);
    expect(&mut table, &[], Event::UnderAttack, 300);
    expect(&mut table, &[], Event::UnitDestroyed, 1000);
    expect(&mut table, &[], Event::OwnBuildingDestroyed, 5000);
    assert_eq!(table.world.game.result, None);
    expect(&mut table, &[], Event::GameOver, 5000);
    assert_eq!(table.world.game.result, Some(GameResult::Lose));
}

#[test]
fn a_building_of_the_enemy_is_discovered_destroyed_and_wins_the_game() {
    for (event, ticks) in
        [(Event::BuildingDiscovered, 100), (Event::EnemyBuildingDestroyed, 5000), (Event::GameOver, 5000)]
    {
        let mut table = Table::new(&[], 2);
        let goal = table.world.game.sides[1].buildings().next().unwrap().1.middle();
        for _ in 0..12 {
            table.world.game.add_unit(0, UnitKind::Tank, goal);
        }
        let order = Order::new(OrderKind::AttackMove).by(Selector::Combat.id()).to(goal);
        let near = table.world.game.free_near(goal).unwrap();
        expect(&mut table, &[order.to(near)], event, ticks);
    }
}

#[test]
fn a_unit_that_has_come_to_its_goal_is_reported() {
    let mut table = Table::new(&[], 3);
    let goal = outside(&table, 4);
    let near = table.world.game.free_near(goal).unwrap();
    expect(&mut table, &[Order::new(OrderKind::Move).by(1).to(near)], Event::UnitArrived, 500);
    let unit = table.world.game.sides[0].unit(0).unwrap();
    assert_eq!((unit.cell, unit.task), (near, Task::Idle));
}

#[test]
fn a_building_that_is_ready_and_a_unit_that_leaves_its_producer_are_reported() {
    let mut table = Table::new(&[], 4);
    let power = Order::new(OrderKind::Build).of(Item::Building(BuildingKind::PowerPlant));
    expect(&mut table, &[power], Event::ProductionComplete, 1000);
    let cell = table.world.game.placements(0, BuildingKind::PowerPlant, home(&table), 1)[0];
    let _ = table.step(&row_of(&[Order::new(OrderKind::PlaceBuilding).to(cell)], 1, 1, &Until::default()));
    assert_eq!(table.world.game.sides[0].count(BuildingKind::PowerPlant), 1);
    let cell = table.world.game.placements(0, BuildingKind::Barracks, home(&table), 1)[0];
    let barracks = Order::new(OrderKind::Build).of(Item::Building(BuildingKind::Barracks)).to(cell);
    expect(&mut table, &[Order { queued: true, ..barracks }], Event::ProductionComplete, 1000);
    let before = table.world.game.sides[0].units().count();
    let train = Order::new(OrderKind::Train).of(Item::Unit(UnitKind::Rifle));
    expect(&mut table, &[train], Event::ProductionComplete, 1000);
    assert_eq!(table.world.game.sides[0].units().count(), before + 1);
}

#[test]
fn another_tenth_of_the_map_is_reported() {
    let mut table = Table::new(&[], 5);
    let far = table.world.game.sides[1].buildings().next().unwrap().1.middle();
    let goal = table.world.game.free_near(far).unwrap();
    let go = Order::new(OrderKind::Move).by(Selector::Vehicles.id()).to(goal);
    expect(&mut table, &[go], Event::ExplorationMilestone, 1000);
}

#[test]
fn of_several_events_the_first_by_priority_is_the_reason() {
    let mut table = Table::new(&[], 1);
    let place = outside(&table, 2);
    enemies(&mut table, UnitKind::Tank, 4, place);
    let mut interrupts = Events::from(Event::UnderAttack) | Events::from(Event::EnemySpotted);
    interrupts |= Events::from(Event::UnitDestroyed);
    let _ = table.step(&row_of(&[], 400, 100, &Until { interrupts, ..Until::default() }));
    assert_eq!(table.info("stop_reason"), 3 + Event::EnemySpotted as i32);
}
