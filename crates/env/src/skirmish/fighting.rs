//! How units and turrets choose targets and shoot, and what hits do.

use super::actor::{Actor, Target};
use super::events::Event;
use super::game::Game;
use super::hit::Hit;
use super::kinds::{Armour, BuildingRules, UnitRules, Weapon};
use super::map::Cell;
use super::unit::{Stance, Task, Unit};

impl Unit {
    /// Returns whether a cell is in the range of its weapon.
    pub(super) fn reaches(&self, cell: Cell) -> bool {
        self.weapon().is_some_and(|weapon| in_range(weapon, self.cell, cell))
    }

    /// Returns whether it leaves its way for enemies that it sees.
    pub(super) const fn goes_after_enemies(&self) -> bool {
        match self.task {
            Task::AttackMove { .. } | Task::Patrol { .. } | Task::Guard { .. } => true,
            Task::Idle => matches!(self.stance, Stance::AttackAnything),
            Task::Move { .. } | Task::Attack { .. } | Task::Harvest { .. } => false,
        }
    }

    /// Returns the distance up to which it looks for targets, if it does.
    fn looks_up_to(&self, weapon: &Weapon) -> Option<u8> {
        match self.stance {
            Stance::HoldFire => None,
            Stance::ReturnFire if self.hurt == 0 => None,
            _ if self.goes_after_enemies() => Some(weapon.range.max(self.rules().sight + 1)),
            _ => Some(weapon.range),
        }
    }
}

#[inline]
fn in_range(weapon: &Weapon, from: Cell, to: Cell) -> bool {
    let range = u32::from(weapon.range);
    from.square_to(to) <= range * range + range
}

impl Game {
    /// Has a unit aim, and shoot if it can.
    pub(super) fn fight(&mut self, side: usize, slot: usize, unit: &mut Unit) {
        let Some(weapon) = unit.weapon() else { return };
        if let Task::Attack { target } = unit.task {
            unit.aim = Some(target);
        } else if (self.tick + slot as u32).is_multiple_of(AIM_TICKS) {
            let sight = unit.looks_up_to(weapon);
            unit.aim = sight.and_then(|sight| self.find_target(side, unit.cell, sight));
        }
        let Some(aim) = unit.aim else { return };
        let Some(place) = self.place_of(aim, unit.cell) else {
            unit.aim = None;
            return;
        };
        if unit.cooldown > 0 || !unit.reaches(place) || !self.sides[side].fog.sees(place) {
            return;
        }
        unit.face(place);
        unit.cooldown = weapon.reload;
        let Some(armour) = self.armour_of(aim) else { return };
        let damage = weapon.damage_to(armour) * (10 + i32::from(unit.level())) / 10;
        let shooter = Target { side: side as u8, actor: Actor::Unit(slot as u8), serial: unit.serial };
        self.hits.push(Hit { target: aim, damage, shooter: Some(shooter) });
    }

    /// Has the turrets of a side aim and shoot.
    pub(super) fn fire_turrets(&mut self, side: usize) {
        let is_low = self.sides[side].power.is_low();
        for slot in 0..self.sides[side].buildings.len() {
            let Some(building) = &mut self.sides[side].buildings[slot] else { continue };
            let Some(weapon) = &building.rules().weapon else { continue };
            building.cooldown = building.cooldown.saturating_sub(1);
            if building.cooldown > 0 || building.is_off || is_low {
                continue;
            }
            let cell = building.cell;
            let Some(target) = self.find_target(side, cell, weapon.range) else {
                // It looks again a little later.
                self.reload_turret(side, slot, AIM_TICKS as u16);
                continue;
            };
            self.reload_turret(side, slot, weapon.reload);
            let damage = self.armour_of(target).map_or(0, |armour| weapon.damage_to(armour));
            self.hits.push(Hit { target, damage, shooter: None });
        }
    }

    fn reload_turret(&mut self, side: usize, slot: usize, ticks: u16) {
        if let Some(building) = &mut self.sides[side].buildings[slot] {
            building.cooldown = ticks;
        }
    }

    /// Returns the nearest enemy that the side sees within a distance, those that shoot before all others.
    pub(super) fn find_target(&self, side: usize, from: Cell, sight: u8) -> Option<Target> {
        let (fog, enemy) = (&self.sides[side].fog, &self.sides[1 - side]);
        let reach = u32::from(sight) * u32::from(sight) + u32::from(sight);
        let seen = |cell: Cell| Some(from.square_to(cell)).filter(|&at| at <= reach && fog.sees(cell));
        let units = enemy.units().filter_map(|(slot, unit)| {
            let square = seen(unit.cell)?;
            Some((unit.weapon().is_none(), square, Actor::Unit(slot), unit.serial))
        });
        let buildings = enemy.buildings().filter_map(|(slot, building)| {
            let square = seen(building.nearest(from))?;
            Some((building.rules().weapon.is_none(), square, Actor::Building(slot), building.serial))
        });
        let best =
            units.chain(buildings).min_by_key(|&(harmless, square, _, serial)| (harmless, square, serial));
        best.map(|(.., actor, serial)| Target { side: 1 - side as u8, actor, serial })
    }

    fn armour_of(&self, target: Target) -> Option<Armour> {
        let side = &self.sides[usize::from(target.side)];
        match target.actor {
            Actor::Unit(slot) => side.unit(slot).map(|unit| unit.rules().armour),
            Actor::Building(_) => Some(Armour::Stone),
        }
    }

    /// Takes the hit points of all shots of the tick, and removes what has none left.
    pub(super) fn land_hits(&mut self) {
        let mut hits = std::mem::take(&mut self.hits);
        for &hit in &hits {
            match hit.target.actor {
                Actor::Unit(slot) => self.hit_unit(hit, slot),
                Actor::Building(slot) => self.hit_building(hit, slot),
            }
        }
        hits.clear();
        self.hits = hits;
    }

    fn hit_unit(&mut self, hit: Hit, slot: u8) {
        let side = usize::from(hit.target.side);
        let own = &mut self.sides[side];
        let Some(unit) = own.units[usize::from(slot)].as_mut().filter(|it| it.serial == hit.target.serial)
        else {
            return;
        };
        let UnitRules { hp, cost, .. } = *unit.rules();
        unit.hp -= hit.damage;
        unit.hurt = HURT_TICKS;
        if (unit.marked_hp - unit.hp) * 20 > hp {
            unit.marked_hp = unit.hp;
            own.events.insert(Event::UnderAttack);
        }
        if unit.hp > 0 {
            return;
        }
        own.events.insert(Event::UnitDestroyed);
        own.stats.units_lost += 1;
        own.stats.deaths_cost += cost;
        self.remove_unit(side, slot);
        let enemy = &mut self.sides[1 - side].stats;
        enemy.units_killed += 1;
        enemy.kills_cost += cost;
        self.praise(hit.shooter);
    }

    fn hit_building(&mut self, hit: Hit, slot: u8) {
        let side = usize::from(hit.target.side);
        let own = &mut self.sides[side];
        let building = own.buildings[usize::from(slot)].as_mut();
        let Some(building) = building.filter(|it| it.serial == hit.target.serial) else { return };
        let BuildingRules { hp, cost, .. } = *building.rules();
        building.hp -= hit.damage;
        if (building.marked_hp - building.hp) * 20 > hp {
            building.marked_hp = building.hp;
            own.events.insert(Event::UnderAttack);
        }
        if building.hp > 0 {
            return;
        }
        own.events.insert(Event::OwnBuildingDestroyed);
        own.stats.buildings_lost += 1;
        own.stats.deaths_cost += cost;
        self.remove_building(side, slot);
        let enemy = &mut self.sides[1 - side];
        enemy.events.insert(Event::EnemyBuildingDestroyed);
        enemy.stats.buildings_killed += 1;
        enemy.stats.kills_cost += cost;
        self.praise(hit.shooter);
    }

    /// Counts a kill of a unit, if it lives.
    fn praise(&mut self, shooter: Option<Target>) {
        let Some(Target { side, actor: Actor::Unit(slot), serial }) = shooter else { return };
        let unit = self.sides[usize::from(side)].units[usize::from(slot)].as_mut();
        if let Some(unit) = unit.filter(|unit| unit.serial == serial) {
            unit.kills = unit.kills.saturating_add(1);
        }
    }
}

/// Ticks between two looks for a target.
const AIM_TICKS: u32 = 4;
/// Ticks for which a unit remembers a hit.
const HURT_TICKS: u16 = 100;
