//! Commands of the bridge as orders of the world.

use rollhouse_codec::openra::{ActionKind, Advance, Command, Interrupt, Stance};

use super::names;
use super::shape::ActionRow;

/// An order: item, kind, queued, subject, target, x, y.
pub(crate) type Order = [i64; 7];

/// What a command comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ordered {
    /// An order of the world.
    Order(Order),
    /// The game is given up.
    Surrender,
    /// Nothing is to be done.
    Nothing,
    /// The world has no such thing: it counts as rejected.
    Rejected,
}

/// What of the newest row decides what a command means.
pub(crate) trait Ground {
    /// Returns the cell on which a unit of one's own stands.
    fn cell_of_unit(&self, id: i64) -> Option<(i64, i64)>;
    /// Returns a cell for the building that is ready.
    fn free_place(&self) -> Option<(i64, i64)>;
    /// Returns the number of cells of the grid's side.
    fn side(&self) -> i64;
}

/// Greatest id of a unit of one's own, and of a building: what is beyond are selectors and enemies.
const LAST_UNIT: u32 = 64;
const LAST_OWN: u32 = 96;
/// Greatest id of all.
const LAST_ID: u32 = 192;

/// Returns what a command comes to.
pub(crate) fn ordered(command: &Command, ground: &impl Ground) -> Ordered {
    let Ok(action) = ActionKind::try_from(command.action) else { return Ordered::Rejected };
    let kind = match action {
        ActionKind::NoOp | ActionKind::FastAdvance => return Ordered::Nothing,
        ActionKind::Surrender => return Ordered::Surrender,
        ActionKind::Deploy | ActionKind::EnterTransport | ActionKind::Unload => return Ordered::Rejected,
        ActionKind::Move => 1,
        ActionKind::AttackMove => 2,
        ActionKind::Attack => 3,
        ActionKind::Stop => 4,
        ActionKind::Harvest => 5,
        ActionKind::Build => 6,
        ActionKind::Train => 7,
        ActionKind::Sell => 8,
        ActionKind::Repair => 9,
        ActionKind::PlaceBuilding => 10,
        ActionKind::CancelProduction => 11,
        ActionKind::SetRallyPoint => 12,
        ActionKind::Guard => 13,
        ActionKind::SetStance => 14,
        ActionKind::PowerDown => 15,
        ActionKind::SetPrimary => 16,
        ActionKind::Patrol => 17,
    };
    order(kind, action, command, ground).map_or(Ordered::Rejected, Ordered::Order)
}

fn order(kind: i64, action: ActionKind, command: &Command, ground: &impl Ground) -> Option<Order> {
    let subject = subject(action, command.actor_id)?;
    let item = match action {
        ActionKind::Build | ActionKind::Train | ActionKind::CancelProduction => {
            names::number_of(&command.item_type)?
        }
        ActionKind::PlaceBuilding => match command.item_type.as_str() {
            "" => 0,
            name => names::number_of(name)?,
        },
        _ => 0,
    };
    let target = match action {
        ActionKind::Attack | ActionKind::Guard => i64::from(id(command.target_actor_id, LAST_ID)?),
        _ => 0,
    };
    let named = (i64::from(command.target_x), i64::from(command.target_y));
    let (x, y) = match action {
        ActionKind::SetStance => (Stance::of_number(command.target_x)? as i64, 0),
        // Nought and nought stand for where it is.
        ActionKind::Harvest if named == (0, 0) => ground.cell_of_unit(subject)?,
        ActionKind::PlaceBuilding if named == (0, 0) => ground.free_place()?,
        ActionKind::Move
        | ActionKind::AttackMove
        | ActionKind::Patrol
        | ActionKind::Harvest
        | ActionKind::PlaceBuilding
        | ActionKind::SetRallyPoint => {
            let inside = |at: i64| (0..ground.side()).contains(&at);
            (inside(named.0) && inside(named.1)).then_some(named)?
        }
        _ => (0, 0),
    };
    // A building is placed by an order of its own here.
    let queued = i64::from(command.queued && !matches!(action, ActionKind::Build | ActionKind::Train));
    Some([item, kind, queued, subject, target, x, y])
}

/// Returns the subject of an order: 0 where the whole side obeys, else a unit or building of one's own.
fn subject(action: ActionKind, actor: u32) -> Option<i64> {
    let found = match action {
        ActionKind::Build | ActionKind::Train | ActionKind::PlaceBuilding | ActionKind::CancelProduction => 0,
        ActionKind::Sell
        | ActionKind::Repair
        | ActionKind::SetRallyPoint
        | ActionKind::PowerDown
        | ActionKind::SetPrimary => id(actor, LAST_OWN).filter(|id| *id > LAST_UNIT)?,
        _ => id(actor, LAST_UNIT)?,
    };
    Some(found.into())
}

fn id(id: u32, last: u32) -> Option<u32> {
    (1..=last).contains(&id).then_some(id)
}

impl ActionRow {
    /// Returns the action of a step of that many ticks with at most [`ActionRow::most_orders`] orders.
    pub(crate) fn row(&self, orders: &[Order], ticks: u32, advance: &Advance) -> Vec<i64> {
        let mut row = vec![0; self.width];
        let orders = &orders[..orders.len().min(self.most_orders)];
        for (place, order) in orders.iter().enumerate() {
            let first = self.orders + place * self.order_width;
            self.order.iter().zip(order).for_each(|(field, value)| row[first + field] = *value);
        }
        row[self.order_count] = orders.len() as i64;
        row[self.ticks] = ticks.into();
        row[self.check_every] = i64::from(advance.check_every.unwrap_or(1).min(MAX_CHECK_EVERY));
        if advance.check_every.is_some() {
            let events = row[self.interrupts..].iter_mut().zip(Interrupt::ALL);
            events.for_each(|(bit, event)| *bit = advance.interrupts.has(event).into());
        }
        row
    }
}

/// Most ticks between two looks at events; more are clamped.
pub(crate) const MAX_CHECK_EVERY: u32 = 100;

#[cfg(test)]
mod tests {
    use rollhouse_codec::openra::{FastAdvanceRequest, MAX_TICKS};
    use rollhouse_core::ColumnRef;
    use rollhouse_env::{ActionCheck, Registry};

    use super::super::shape::Shape;
    use super::*;

    struct Plain;

    impl Ground for Plain {
        fn cell_of_unit(&self, id: i64) -> Option<(i64, i64)> {
            (id == 4).then_some((7, 8))
        }
        fn free_place(&self) -> Option<(i64, i64)> {
            Some((3, 4))
        }
        fn side(&self) -> i64 {
            44
        }
    }

    fn command(action: ActionKind, actor_id: u32) -> Command {
        Command { action: action as i32, actor_id, ..Command::default() }
    }

    #[test]
    fn commands_become_orders_by_the_table() {
        let go = Command { target_x: 5, target_y: 6, queued: true, ..command(ActionKind::AttackMove, 2) };
        assert_eq!(ordered(&go, &Plain), Ordered::Order([0, 2, 1, 2, 0, 5, 6]));
        let attack = Command { target_actor_id: 97, ..command(ActionKind::Attack, 2) };
        assert_eq!(ordered(&attack, &Plain), Ordered::Order([0, 3, 0, 2, 97, 0, 0]));
        let build = Command { item_type: "powr".into(), queued: true, ..command(ActionKind::Build, 65) };
        assert_eq!(ordered(&build, &Plain), Ordered::Order([8, 6, 0, 0, 0, 0, 0]));
        let stance = Command { target_x: 3, ..command(ActionKind::SetStance, 9) };
        assert_eq!(ordered(&stance, &Plain), Ordered::Order([0, 14, 0, 9, 0, 3, 0]));
        assert_eq!(ordered(&command(ActionKind::Harvest, 4), &Plain), Ordered::Order([0, 5, 0, 4, 0, 7, 8]));
        let place = command(ActionKind::PlaceBuilding, 0);
        assert_eq!(ordered(&place, &Plain), Ordered::Order([0, 10, 0, 0, 0, 3, 4]));
    }

    #[test]
    fn what_the_world_has_not_is_rejected_and_never_means_somebody_else() {
        for wrong in [
            command(ActionKind::Move, 0),
            // Selectors and enemies have these.
            command(ActionKind::Move, 97),
            command(ActionKind::Stop, u32::MAX),
            command(ActionKind::Sell, 4),
            command(ActionKind::Attack, 1),
            command(ActionKind::Deploy, 1),
            command(ActionKind::Build, 0),
            Command { target_x: -1, target_y: 5, ..command(ActionKind::Move, 1) },
            Command { target_x: 44, ..command(ActionKind::Move, 1) },
            Command { target_x: 4, ..command(ActionKind::SetStance, 1) },
            Command { item_type: "../etc".into(), ..command(ActionKind::Train, 0) },
            Command { action: 23, ..Command::default() },
        ] {
            assert_eq!(ordered(&wrong, &Plain), Ordered::Rejected, "{wrong:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_command_comes_to_an_action_of_the_space(
            action in -1..30_i32, actor_id: u32, target_actor_id: u32, at in (-50..50_i32, -50..50_i32),
            ticks: i32, every: i32, small in 0..200_u32, is_small: bool,
        ) {
            let entry = Registry::builtin().get("Skirmish-v0").unwrap();
            let shape = Shape::of(entry.spec()).unwrap().action;
            let (actor_id, target_actor_id) = if is_small { (small, small) } else { (actor_id, target_actor_id) };
            let (target_x, target_y) = at;
            let command = Command {
                action, actor_id, target_actor_id, target_x, target_y, item_type: "e1".into(), queued: is_small, ticks: 1,
            };
            let request = FastAdvanceRequest { ticks, check_events_every: every, ..FastAdvanceRequest::default() };
            let advance = Advance::of(request, 16).unwrap().1;
            let orders = match ordered(&command, &Plain) {
                Ordered::Order(order) => vec![order; 16],
                _ => Vec::new(),
            };
            assert!((1..=MAX_TICKS).contains(&advance.ticks));
            let row = shape.row(&orders, advance.ticks, &advance);
            let check = ActionCheck::of(&entry.spec().action_space).with_counted_of(entry.spec());
            assert_eq!(check.first_bad(ColumnRef::I64(&row), |_| true), None);
        }
    }
}
