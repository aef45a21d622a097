//! Scripted players of four strengths. They order as an agent does, and know no more: maps and where sides begin, and what they
//! see and have seen.

use super::game::Game;
use super::kinds::{BuildingKind, Item, Line, UnitKind};
use super::map::Cell;
use super::orders::{Order, OrderKind, Selector};
use super::unit::{Stance, Task, Unit};

/// How well a scripted player plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Strength {
    Beginner,
    Easy,
    Medium,
    Hard,
}

impl Strength {
    pub(crate) const ALL: [Self; 4] = [Self::Beginner, Self::Easy, Self::Medium, Self::Hard];
    pub(crate) const NAMES: [&str; 4] = ["beginner", "easy", "medium", "hard"];

    const fn plan(self) -> &'static Plan {
        &PLANS[self as usize]
    }
}

/// What a player of some strength strives for.
struct Plan {
    /// Ticks between two thoughts.
    think: u32,
    refineries: usize,
    harvesters: usize,
    barracks: usize,
    factories: usize,
    turrets: usize,
    has_radar: bool,
    /// Fighting units with which it sets out.
    group: usize,
    /// How often it chooses each kind of unit that fights: rifle, rocket, buggy, tank, artillery.
    mix: [u64; 5],
    /// Money that infantry leaves to the factories, once there are any.
    reserve: i32,
    /// Items that wait in a line of units.
    waiting: usize,
    /// Whether it sends reinforcements in groups, and not one by one.
    has_patience: bool,
    /// Whether it mends what is damaged and comes back to defend its base.
    has_care: bool,
}

static PLANS: [Plan; 4] = [
    Plan {
        think: 250,
        refineries: 1,
        harvesters: 1,
        barracks: 1,
        factories: 0,
        turrets: 0,
        has_radar: false,
        group: 5,
        mix: [1, 0, 0, 0, 0],
        reserve: 0,
        waiting: 1,
        has_patience: false,
        has_care: false,
    },
    Plan {
        think: 120,
        refineries: 1,
        harvesters: 1,
        barracks: 1,
        factories: 1,
        turrets: 1,
        has_radar: false,
        group: 7,
        mix: [5, 2, 2, 0, 0],
        reserve: 0,
        waiting: 1,
        has_patience: false,
        has_care: false,
    },
    Plan {
        think: 100,
        refineries: 1,
        harvesters: 2,
        barracks: 1,
        factories: 1,
        turrets: 1,
        has_radar: false,
        group: 8,
        mix: [4, 2, 2, 3, 0],
        reserve: 0,
        waiting: 1,
        has_patience: false,
        has_care: true,
    },
    Plan {
        think: 12,
        refineries: 2,
        harvesters: 5,
        barracks: 1,
        factories: 2,
        turrets: 3,
        has_radar: true,
        group: 12,
        mix: [2, 1, 0, 6, 1],
        reserve: 800,
        waiting: 1,
        has_patience: true,
        has_care: true,
    },
];

/// A scripted player of one side.
#[derive(Debug, Clone, PartialEq, Hash)]
pub(crate) struct Script {
    strength: Strength,
    side: usize,
    /// Whether its army is on its way to the enemy.
    pub(super) is_attacking: bool,
}

impl Script {
    pub(crate) const fn new(strength: Strength, side: usize) -> Self {
        Self { strength, side, is_attacking: false }
    }

    /// Orders what it wants done, in ticks in which it thinks.
    pub(crate) fn play(&mut self, game: &mut Game) {
        let plan = self.strength.plan();
        if !game.tick.is_multiple_of(plan.think) || game.result.is_some() {
            return;
        }
        self.build(game, plan);
        self.train(game, plan);
        self.harvest(game);
        if plan.has_care {
            self.mend(game);
        }
        self.lead(game, plan);
    }

    /// Gives an order. One that cannot be carried out is given again, or another one, in a later thought.
    fn order(&self, game: &mut Game, order: &Order) -> bool {
        game.order(self.side, order).is_ok()
    }

    fn build(&self, game: &mut Game, plan: &Plan) {
        let own = &game.sides[self.side];
        if let Some(Item::Building(kind)) = own.production.ready().map(|job| job.item) {
            if let Some(cell) = self.site(game, kind) {
                self.order(game, &Order::new(OrderKind::PlaceBuilding).to(cell));
            }
            return;
        }
        if own.production.line(Line::Structures).is_empty()
            && let Some(kind) = self.next_building(game, plan)
        {
            self.order(game, &Order::new(OrderKind::Build).of(Item::Building(kind)));
        }
    }

    /// Returns the kind of building that it misses most.
    fn next_building(&self, game: &Game, plan: &Plan) -> Option<BuildingKind> {
        use BuildingKind::{Barracks, Factory, PowerPlant, Radar, Refinery, Silo, Turret};
        let own = &game.sides[self.side];
        let count = |kind| own.count(kind);
        if own.power.provided - own.power.drained < SPARE_POWER {
            return Some(PowerPlant);
        }
        let is_safe = self.army(game) * 2 >= plan.group;
        let is_full = own.ore * 5 > own.power.capacity * 4 && own.power.capacity > 0;
        let wants = [
            (Refinery, count(Refinery) < 1),
            (Barracks, count(Barracks) < plan.barracks),
            (Factory, count(Factory) < plan.factories.min(1)),
            (Turret, count(Turret) < plan.turrets.min(1)),
            (Refinery, is_safe && count(Refinery) < plan.refineries),
            (Factory, is_safe && count(Factory) < plan.factories),
            (Turret, count(Turret) < plan.turrets),
            (Radar, is_safe && plan.has_radar && count(Radar) < 1),
            (Silo, is_full && count(Silo) < MAX_SILOS),
        ];
        wants.into_iter().find(|(_, is_wanted)| *is_wanted).map(|(kind, _)| kind)
    }

    /// Returns where a building goes: turrets to the side of the enemy, others around the yard, not always at the same cell.
    fn site(&self, game: &mut Game, kind: BuildingKind) -> Option<Cell> {
        let home = game.sides[self.side].buildings().next()?.1.middle();
        let near = if kind == BuildingKind::Turret { between(home, self.goal(game)) } else { home };
        let cells = game.placements(self.side, kind, near, SITES);
        let drawn = game.draw() as usize % cells.len().max(1);
        // Where there is room, buildings keep a way between each other.
        cells.get(drawn).copied()
    }

    fn train(&self, game: &mut Game, plan: &Plan) {
        for line in [Line::Vehicles, Line::Infantry] {
            let own = &game.sides[self.side];
            if own.producer(line).is_none() || own.production.line(line).len() >= plan.waiting {
                continue;
            }
            let mining = own.units().filter(|(_, unit)| unit.kind == UnitKind::Harvester).count();
            // The first ones come at once, others as the army grows.
            let wanted = plan.harvesters.min(FIRST_HARVESTERS + self.army(game) / 5);
            let wants_harvester = line == Line::Vehicles && mining < wanted;
            // What the first buildings cost is kept for them.
            let has_factories = own.count(BuildingKind::Factory) >= plan.factories.min(1);
            let is_idle = own.production.line(Line::Vehicles).is_empty();
            let reserve = if line == Line::Infantry && is_idle { plan.reserve } else { 0 };
            let saved = if has_factories { reserve } else { SAVINGS };
            let kind = if wants_harvester { UnitKind::Harvester } else { choose(game.draw(), plan, line) };
            let own = &game.sides[self.side];
            if own.money() - saved >= kind.rules().cost && plan_allows(plan, kind) {
                self.order(game, &Order::new(OrderKind::Train).of(Item::Unit(kind)));
            }
        }
    }

    /// Returns the number of units that fight.
    fn army(&self, game: &Game) -> usize {
        game.sides[self.side].units().filter(|(_, unit)| unit.weapon().is_some()).count()
    }

    /// Sends harvesters that do nothing for ore.
    fn harvest(&self, game: &mut Game) {
        let idle = |(slot, unit): (u8, &Unit)| {
            (unit.kind == UnitKind::Harvester && unit.is_idle()).then_some((slot, unit.cell))
        };
        let idle: Vec<_> = game.sides[self.side].units().filter_map(idle).collect();
        for (slot, cell) in idle {
            self.order(game, &Order::new(OrderKind::Harvest).by_unit(slot).to(cell));
        }
    }

    /// Has buildings mended that have lost a quarter.
    fn mend(&self, game: &mut Game) {
        let own = &game.sides[self.side];
        let damaged = own.buildings().filter(|(_, it)| !it.is_repaired && it.hp * 4 < it.rules().hp * 3);
        let damaged: Vec<_> = damaged.map(|(slot, _)| slot).collect();
        for slot in damaged {
            self.order(game, &Order::new(OrderKind::Repair).by_building(slot));
        }
    }

    /// Leads the army: it gathers until it is large enough, and then goes for the enemy until little is left of it.
    fn lead(&mut self, game: &mut Game, plan: &Plan) {
        let own = &game.sides[self.side];
        let army: Vec<_> =
            own.units().filter(|(_, it)| it.weapon().is_some()).map(|(slot, _)| slot).collect();
        if plan.has_care
            && let Some(intruder) = self.intruder(game)
        {
            for &slot in &army {
                self.send(game, slot, intruder);
            }
            return;
        }
        if army.len() >= plan.group {
            self.is_attacking = true;
        } else if army.len() * 3 < plan.group {
            self.is_attacking = false;
        }
        if self.is_attacking {
            let goal = self.goal(game);
            let is_waiting = |slot: &u8| game.sides[self.side].unit(*slot).is_some_and(Unit::is_idle);
            let waiting = army.iter().filter(|slot| is_waiting(slot)).count();
            let goes = !plan.has_patience || waiting * 2 >= plan.group;
            let going: Vec<_> = army.into_iter().filter(|slot| goes || !is_waiting(slot)).collect();
            going.into_iter().for_each(|slot| self.send(game, slot, goal));
        } else {
            // Who waits looks around.
            let stance = Order::new(OrderKind::SetStance).to(Cell::new(Stance::AttackAnything as u8, 0));
            self.order(game, &stance.by(Selector::Combat.id()));
        }
    }

    /// Sends a unit to a cell, unless it is on its way there.
    fn send(&self, game: &mut Game, slot: u8, to: Cell) {
        let task = game.sides[self.side].unit(slot).map(|unit| unit.task);
        let is_sent =
            matches!(task, Some(Task::AttackMove { to: goal }) if goal.steps_to(to) <= SPREAD as u8);
        if is_sent {
            return;
        }
        let drawn = game.draw();
        let far = |bits: u64| (bits % (2 * SPREAD as u64 + 1)) as i32 - SPREAD;
        let cell = to.shifted(far(drawn), far(drawn >> 32)).unwrap_or(to);
        let order = Order::new(OrderKind::AttackMove).by_unit(slot);
        if !self.order(game, &order.to(cell)) {
            let _ = self.order(game, &order.to(to));
        }
    }

    /// Returns where an enemy that it sees is near to one of its buildings.
    fn intruder(&self, game: &Game) -> Option<Cell> {
        let (own, enemy) = (&game.sides[self.side], &game.sides[1 - self.side]);
        let seen = enemy.units().map(|(_, unit)| unit.cell).filter(|&cell| own.fog.sees(cell));
        let mut seen = seen.filter(|&cell| {
            own.buildings().any(|(_, building)| building.nearest(cell).steps_to(cell) <= NEAR_BASE)
        });
        seen.next()
    }

    /// Returns where it goes for the enemy: to a building that it knows, to its start, and then all over the map.
    fn goal(&self, game: &mut Game) -> Cell {
        let own = &game.sides[self.side];
        let home = own.buildings().next().map_or(game.map.starts[0], |(_, building)| building.middle());
        let known = own.sightings.iter().flatten().map(|it| it.cell);
        let known = known.min_by_key(|cell| (cell.square_to(home), cell.index()));
        if let Some(cell) = known.and_then(|cell| game.free_near(cell)) {
            return cell;
        }
        let far = game.map.starts.into_iter().max_by_key(|start| start.square_to(home)).unwrap_or(home);
        if !own.fog.has_seen(far) {
            return game.free_near(far).unwrap_or(far);
        }
        let drawn = game.draw() as usize;
        let unseen: Vec<_> = game.map.cells().filter(|&cell| self.may_hide(game, cell)).collect();
        unseen.get(drawn % unseen.len().max(1)).copied().unwrap_or(far)
    }

    fn may_hide(&self, game: &Game, cell: Cell) -> bool {
        game.map.is_passable(cell) && !game.sides[self.side].fog.sees(cell)
    }
}

/// Chooses a kind of unit of a line as often as the plan says.
fn choose(drawn: u64, plan: &Plan, line: Line) -> UnitKind {
    let kinds = || UnitKind::ALL.into_iter().zip(plan.mix).filter(|(kind, _)| kind.rules().line == line);
    let all: u64 = kinds().map(|(_, weight)| weight).sum();
    let mut left = drawn % all.max(1);
    for (kind, weight) in kinds() {
        match left.checked_sub(weight) {
            None => return kind,
            Some(rest) => left = rest,
        }
    }
    if line == Line::Infantry { UnitKind::Rifle } else { UnitKind::Buggy }
}

/// Returns whether the plan has units of that kind at all.
fn plan_allows(plan: &Plan, kind: UnitKind) -> bool {
    kind == UnitKind::Harvester || plan.mix.get(kind as usize).is_some_and(|&weight| weight > 0)
}

/// Returns a cell a third of the way to another.
fn between(from: Cell, to: Cell) -> Cell {
    let third = |from: u8, to: u8| ((u16::from(from) * 2 + u16::from(to)) / 3) as u8;
    Cell::new(third(from.x, to.x), third(from.y, to.y))
}

/// Harvesters with which it begins, if it wants as many.
const FIRST_HARVESTERS: usize = 3;
/// Power that is to be left.
const SPARE_POWER: i32 = 35;
const MAX_SILOS: usize = 3;
/// Cells among which it chooses where to build.
const SITES: usize = 12;
/// Money that is kept until there is a factory.
const SAVINGS: i32 = 1200;
/// Cells by which units are sent to different places.
const SPREAD: i32 = 2;
/// Steps from a building within which an enemy is an intruder.
const NEAR_BASE: u8 = 9;
