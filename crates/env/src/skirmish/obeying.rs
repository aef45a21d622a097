//! How a side obeys orders: each is checked wholly before anything changes.

use super::actor::{Actor, Target};
use super::building::footprint;
use super::game::Game;
use super::kinds::{BuildingKind, Item, Line};
use super::map::Cell;
use super::orders::{Addressee, Order, OrderKind, Refusal, Selector};
use super::production::{Job, MAX_JOBS};
use super::unit::{MAX_QUEUED, Stance, Task, Unit};

impl Game {
    /// Has a side carry out an order.
    ///
    /// # Errors
    /// If it cannot be carried out; nothing has changed then.
    pub(crate) fn order(&mut self, side: usize, order: &Order) -> Result<(), Refusal> {
        if self.result.is_some() {
            return Err(Refusal::Over);
        }
        match order.kind.addressee() {
            Addressee::Unit => self.order_units(side, order),
            Addressee::Building => self.order_building(side, order),
            Addressee::Side => match order.kind {
                OrderKind::Build => self.build(side, order),
                OrderKind::Train => self.train(side, order),
                OrderKind::PlaceBuilding => self.place_ready(side, order),
                OrderKind::CancelProduction => self.cancel(side, order),
                // Nothing is ordered.
                _ => return Ok(()),
            },
        }?;
        let orders = &mut self.sides[side].stats.orders;
        *orders = orders.saturating_add(1);
        Ok(())
    }

    /// Has one or several units obey. Of several, those that cannot are passed by, unless none can.
    fn order_units(&mut self, side: usize, order: &Order) -> Result<(), Refusal> {
        let Some(selector) = Selector::of_id(order.subject) else {
            let Some((false, Actor::Unit(slot))) = Actor::of_id(order.subject) else {
                return Err(Refusal::NoUnit(order.subject));
            };
            return self.order_unit(side, slot, order);
        };
        let mut obeyed = Err(Refusal::NoneSelected(selector));
        for slot in 0..self.sides[side].units.len() as u8 {
            if self.sides[side].unit(slot).is_some_and(|unit| selector.has(unit)) {
                let done = self.order_unit(side, slot, order);
                obeyed = if obeyed.is_ok() { obeyed } else { done };
            }
        }
        obeyed
    }

    fn order_unit(&mut self, side: usize, slot: u8, order: &Order) -> Result<(), Refusal> {
        let unit = self.sides[side].unit(slot).ok_or(Refusal::NoUnit(order.subject))?;
        let is_armed = unit.weapon().is_some();
        let (cell, from) = (order.cell, unit.cell);
        let armed = |task: Task| if is_armed { Ok(task) } else { Err(Refusal::Incapable(order.kind)) };
        let task = match order.kind {
            OrderKind::Move => Task::Move { to: self.reachable(cell)? },
            OrderKind::AttackMove => armed(Task::AttackMove { to: self.reachable(cell)? })?,
            OrderKind::Patrol => armed(Task::Patrol { to: self.reachable(cell)?, back: from })?,
            OrderKind::Attack => armed(Task::Attack { target: self.enemy(side, order.target)? })?,
            OrderKind::Guard => Task::Guard { target: self.ward(side, slot, order.target)? },
            OrderKind::Harvest if is_armed => return Err(Refusal::Incapable(order.kind)),
            OrderKind::Harvest => Task::Harvest { near: self.reachable(cell)? },
            OrderKind::Retreat => Task::Move { to: self.refuge(side).ok_or(Refusal::NoPlace(from))? },
            OrderKind::Scatter => Task::Move { to: self.aside(from) },
            OrderKind::SetStance => return self.set_stance(side, slot, cell.x),
            _ => Task::Idle,
        };
        let Some(unit) = &mut self.sides[side].units[usize::from(slot)] else {
            return Err(Refusal::NoUnit(order.subject));
        };
        if !order.queued || unit.is_idle() || task == Task::Idle {
            unit.take_on(task, task != Task::Idle);
            return Ok(());
        }
        if unit.queued.len() == MAX_QUEUED {
            return Err(Refusal::TasksFull);
        }
        unit.queued.push(task);
        unit.is_ordered = true;
        Ok(())
    }

    fn set_stance(&mut self, side: usize, slot: u8, number: u8) -> Result<(), Refusal> {
        let stance = Stance::ALL.get(usize::from(number)).ok_or(Refusal::NoStance(number))?;
        if let Some(unit) = &mut self.sides[side].units[usize::from(slot)] {
            unit.stance = *stance;
        }
        Ok(())
    }

    /// Returns the cell, if a unit could be sent there. What fog hides is taken for passable ground of the map.
    fn reachable(&self, cell: Cell) -> Result<Cell, Refusal> {
        let is_ground = self.map.has(cell) && self.map.is_passable(cell);
        if is_ground { Ok(cell) } else { Err(Refusal::NoPlace(cell)) }
    }

    /// Returns the enemy of that id, if the side sees it or has seen it as a building.
    fn enemy(&self, side: usize, id: u8) -> Result<Target, Refusal> {
        let refused = Err(Refusal::NoTarget { id });
        let enemy = 1 - side as u8;
        match Actor::of_id(id) {
            None => refused,
            Some((false, _)) => Err(Refusal::WrongTarget(id)),
            Some((true, actor @ Actor::Unit(slot))) => {
                let unit = self.sides[1 - side].unit(slot);
                match unit.filter(|unit| self.sides[side].fog.sees(unit.cell)) {
                    Some(unit) => Ok(Target { side: enemy, actor, serial: unit.serial }),
                    None => refused,
                }
            }
            Some((true, actor @ Actor::Building(slot))) => {
                match self.sides[side].sightings[usize::from(slot)] {
                    Some(sighting) => Ok(Target { side: enemy, actor, serial: sighting.serial }),
                    None => refused,
                }
            }
        }
    }

    /// Returns what a unit of that side can guard: another unit, or a building.
    fn ward(&self, side: usize, slot: u8, id: u8) -> Result<Target, Refusal> {
        match Actor::of_id(id) {
            None => Err(Refusal::NoTarget { id }),
            Some((true, _)) => Err(Refusal::WrongTarget(id)),
            Some((false, actor)) if actor == Actor::Unit(slot) => Err(Refusal::WrongTarget(id)),
            Some((false, actor)) => {
                self.sides[side].target(side as u8, actor).ok_or(Refusal::NoTarget { id })
            }
        }
    }

    /// Returns a free cell near to the first building of a side, where its units withdraw to.
    pub(crate) fn refuge(&self, side: usize) -> Option<Cell> {
        let (_, building) = self.sides[side].buildings().next()?;
        self.free_near(building.middle())
    }

    /// Returns a free cell a few steps away, drawn at random.
    fn aside(&mut self, from: Cell) -> Cell {
        let drawn = self.draw();
        let far = |bits: u64| (bits % 7) as i32 - 3;
        let cell = from.shifted(far(drawn), far(drawn >> 32)).unwrap_or(from);
        self.free_near(cell).unwrap_or(from)
    }

    fn order_building(&mut self, side: usize, order: &Order) -> Result<(), Refusal> {
        let refused = Refusal::NoBuilding { id: order.subject };
        let Some((false, Actor::Building(slot))) = Actor::of_id(order.subject) else { return Err(refused) };
        let cell = order.cell;
        let on_map = self.map.has(cell);
        let own = &mut self.sides[side];
        let Some(building) = own.buildings.get_mut(usize::from(slot)).and_then(Option::as_mut) else {
            return Err(refused);
        };
        let line = Line::ALL.into_iter().find(|line| line.producer() == building.kind);
        match order.kind {
            OrderKind::Sell if building.kind == BuildingKind::Yard => return Err(Refusal::Unsellable),
            OrderKind::Sell => {
                let value = building.sell_value();
                own.earn(value);
                self.remove_building(side, slot);
            }
            OrderKind::Repair if building.hp == building.rules().hp => return Err(Refusal::Undamaged),
            OrderKind::Repair => building.is_repaired = !building.is_repaired,
            OrderKind::SetRallyPoint if line.is_none_or(|line| line == Line::Structures) => {
                return Err(Refusal::Unproductive);
            }
            OrderKind::SetRallyPoint if !on_map || !self.map.is_passable(cell) => {
                return Err(Refusal::NoPlace(cell));
            }
            OrderKind::SetRallyPoint => building.rally = Some(cell),
            OrderKind::SetPrimary => {
                let line = line.ok_or(Refusal::Unproductive)?;
                own.production.primary[line as usize] = Some(slot);
            }
            _ => {
                building.is_off = !building.is_off;
                own.count_buildings();
            }
        }
        Ok(())
    }

    /// Returns an item that is ordered by its number, if the side could produce it now.
    pub(crate) fn producible(&self, side: usize, item: Item) -> Result<Item, Refusal> {
        let own = &self.sides[side];
        if let Some(lacking) = own.lacks(item) {
            return Err(Refusal::Lacks { item, lacking });
        }
        let money = own.money();
        if money < item.cost() {
            return Err(Refusal::Poor { item, money });
        }
        let line = item.line();
        if own.production.line(line).is_full() {
            return Err(Refusal::LineFull { line, limit: MAX_JOBS });
        }
        let jobs = |is: fn(Item) -> bool| own.production.jobs().filter(|job| is(job.item)).count();
        match item {
            Item::Unit(_) => {
                let units = own.units().count() + jobs(|item| matches!(item, Item::Unit(_)));
                if units >= own.units.len() { Err(Refusal::UnitsFull) } else { Ok(item) }
            }
            Item::Building(BuildingKind::Yard) => Err(Refusal::NoItem(item.number())),
            Item::Building(_) => {
                let buildings = own.buildings().count() + jobs(|item| matches!(item, Item::Building(_)));
                if buildings >= own.buildings.len() { Err(Refusal::BuildingsFull) } else { Ok(item) }
            }
        }
    }

    fn train(&mut self, side: usize, order: &Order) -> Result<(), Refusal> {
        match Item::of_number(order.item) {
            Some(item @ Item::Unit(_)) => self.begin(side, item, None),
            _ => Err(Refusal::NoItem(order.item)),
        }
    }

    fn build(&mut self, side: usize, order: &Order) -> Result<(), Refusal> {
        let Some(item @ Item::Building(kind)) = Item::of_number(order.item) else {
            return Err(Refusal::NoItem(order.item));
        };
        let place = order.queued.then_some(order.cell);
        if place.is_some_and(|cell| !self.fits(side, kind, cell)) {
            return Err(Refusal::Unfit { kind, cell: order.cell });
        }
        self.begin(side, item, place)
    }

    fn begin(&mut self, side: usize, item: Item, place: Option<Cell>) -> Result<(), Refusal> {
        let item = self.producible(side, item)?;
        let own = &mut self.sides[side];
        own.spend(item.cost());
        own.production.line_mut(item.line()).push(Job::new(item, place));
        Ok(())
    }

    fn place_ready(&mut self, side: usize, order: &Order) -> Result<(), Refusal> {
        let ready = self.sides[side].production.ready().map(|job| job.item);
        let Some(item @ Item::Building(kind)) = ready else { return Err(Refusal::NotReady) };
        if order.item != 0 && order.item != item.number() {
            return Err(Refusal::NotReady);
        }
        if !self.fits(side, kind, order.cell) {
            return Err(Refusal::Unfit { kind, cell: order.cell });
        }
        self.place(side, kind, order.cell);
        Ok(())
    }

    /// Takes the last item of that kind out of its line, and gives the money back.
    fn cancel(&mut self, side: usize, order: &Order) -> Result<(), Refusal> {
        let item = Item::of_number(order.item).ok_or(Refusal::NoItem(order.item))?;
        let own = &mut self.sides[side];
        let line = own.production.line_mut(item.line());
        let place = line.iter().rposition(|job| job.item == item).ok_or(Refusal::NotProduced)?;
        line.remove(place);
        own.earn(item.cost());
        Ok(())
    }

    /// Has a side surrender: it loses with the next tick.
    pub(crate) const fn surrender(&mut self, side: usize) {
        self.sides[side].has_surrendered = true;
    }

    /// Returns whether an order of that kind to that subject could be carried out, with a target, a cell or an item that fits.
    pub(crate) fn may(&self, side: usize, kind: OrderKind, subject: u8) -> bool {
        let own = &self.sides[side];
        if self.result.is_some() {
            return false;
        }
        let unit = |unit: &Unit| match kind {
            OrderKind::AttackMove | OrderKind::Patrol => unit.weapon().is_some(),
            OrderKind::Attack => unit.weapon().is_some() && self.knows_enemies(side),
            OrderKind::Harvest => unit.weapon().is_none(),
            OrderKind::Guard | OrderKind::Retreat => own.buildings().next().is_some(),
            _ => true,
        };
        match (kind.addressee(), Actor::of_id(subject), Selector::of_id(subject)) {
            (Addressee::Side, ..) => subject == 0 && self.may_side(side, kind),
            (Addressee::Unit, _, Some(selector)) => own.units().any(|(_, it)| selector.has(it) && unit(it)),
            (Addressee::Unit, Some((false, Actor::Unit(slot))), None) => own.unit(slot).is_some_and(unit),
            (Addressee::Building, Some((false, Actor::Building(slot))), None) => {
                own.building(slot).is_some_and(|building| {
                    let line = Line::ALL.into_iter().find(|line| line.producer() == building.kind);
                    match kind {
                        OrderKind::Sell => building.kind != BuildingKind::Yard,
                        OrderKind::Repair => building.hp < building.rules().hp,
                        OrderKind::SetRallyPoint => line.is_some_and(|line| line != Line::Structures),
                        OrderKind::SetPrimary => line.is_some(),
                        _ => true,
                    }
                })
            }
            _ => false,
        }
    }

    fn may_side(&self, side: usize, kind: OrderKind) -> bool {
        let items = |is: fn(&Item) -> bool| {
            let mut all = (0..super::kinds::ITEM_NUMBERS as u8).filter_map(Item::of_number).filter(is);
            all.any(|item| self.producible(side, item).is_ok())
        };
        match kind {
            OrderKind::Build => items(|item| matches!(item, Item::Building(_))),
            OrderKind::Train => items(|item| matches!(item, Item::Unit(_))),
            OrderKind::PlaceBuilding => match self.sides[side].production.ready().map(|job| job.item) {
                Some(Item::Building(kind)) => self.map.cells().any(|cell| self.fits(side, kind, cell)),
                _ => false,
            },
            OrderKind::CancelProduction => self.sides[side].production.jobs().next().is_some(),
            _ => true,
        }
    }

    /// Returns whether a side sees an enemy or knows of a building of one.
    fn knows_enemies(&self, side: usize) -> bool {
        let own = &self.sides[side];
        own.sightings.iter().any(Option::is_some)
            || self.sides[1 - side].units().any(|(_, unit)| own.fog.sees(unit.cell))
    }

    /// Returns whether a side sees a cell of a building now.
    pub(crate) fn sees_building(&self, side: usize, kind: BuildingKind, cell: Cell) -> bool {
        footprint(kind, cell).any(|cell| self.sides[side].fog.sees(cell))
    }
}

impl Selector {
    pub(crate) fn has(self, unit: &Unit) -> bool {
        match self {
            Self::Combat => unit.weapon().is_some(),
            Self::Idle => unit.is_idle(),
            Self::Infantry => unit.rules().line == Line::Infantry,
            Self::Vehicles => unit.rules().line == Line::Vehicles,
        }
    }
}
