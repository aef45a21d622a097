//! An action as its column has it, taken apart: orders, and by what to advance.

use arrayvec::ArrayVec;

use super::advance::{Advance, Comparison, Condition, MAX_CONDITIONS, Until};
use super::events::{EVENT_COUNT, Event, Events};
use super::figures::Figure;
use super::map::Cell;
use super::orders::{MAX_ORDERS, Order, OrderKind};
use super::spaces::{CONDITION_FIELDS, ORDER_FIELDS};

/// What an agent does in a step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Action {
    pub(crate) orders: ArrayVec<Order, MAX_ORDERS>,
    pub(crate) advance: Advance,
}

const ORDER: usize = ORDER_FIELDS.len();
const CONDITION: usize = CONDITION_FIELDS.len();
/// Elements of an action's row: `check_every`, orders and their number, `ticks`, `all`, conditions and their number,
/// interrupts.
pub(crate) const WIDTH: usize =
    1 + MAX_ORDERS * ORDER + 1 + 1 + 1 + MAX_CONDITIONS * CONDITION + 1 + EVENT_COUNT;

impl Action {
    /// Reads an action of its row, whose elements have been found to be of the space. A row of another length is no action
    /// of this env, and counts as one that does nothing.
    pub(crate) fn of(row: &[i64]) -> Self {
        let Ok(row) = <&[i64; WIDTH]>::try_from(row) else {
            return Self { orders: ArrayVec::new(), advance: Advance::default() };
        };
        let (check_every, row) = row.split_at(1);
        let (orders, row) = row.split_at(MAX_ORDERS * ORDER);
        let (order_count, row) = row.split_at(1);
        let (ticks, row) = row.split_at(1);
        let (all, row) = row.split_at(1);
        let (conditions, row) = row.split_at(MAX_CONDITIONS * CONDITION);
        let (condition_count, interrupts) = row.split_at(1);
        let orders = orders.as_chunks().0.iter().take(count(order_count));
        let conditions = conditions.as_chunks().0.iter().take(count(condition_count));
        let mut events = Events::NONE;
        Event::ALL
            .into_iter()
            .zip(interrupts)
            .filter(|(_, bit)| **bit != 0)
            .for_each(|(it, _)| events.insert(it));
        let until = Until {
            interrupts: events,
            conditions: conditions.map(condition).collect(),
            needs_all: all[0] != 0,
        };
        let (ticks, check_every) = (ticks[0].max(1) as u32, check_every[0].max(1) as u32);
        Self { orders: orders.map(order).collect(), advance: Advance { ticks, check_every, until } }
    }
}

fn count(column: &[i64]) -> usize {
    usize::try_from(column[0]).unwrap_or_default()
}

fn order(&[item, kind, queued, subject, target, x, y]: &[i64; ORDER]) -> Order {
    Order {
        kind: OrderKind::ALL[kind as usize % OrderKind::ALL.len()],
        subject: subject as u8,
        target: target as u8,
        cell: Cell::new(x as u8, y as u8),
        item: item as u8,
        queued: queued != 0,
    }
}

fn condition(&[comparison, figure, value]: &[i64; CONDITION]) -> Condition {
    Condition {
        figure: Figure::ALL[figure as usize % Figure::ALL.len()],
        comparison: Comparison::ALL[comparison as usize % Comparison::ALL.len()],
        value,
    }
}

#[cfg(test)]
mod tests {
    use super::super::spaces;
    use super::*;

    #[test]
    fn a_row_has_the_elements_of_the_space_and_comes_apart_into_orders_and_conditions() {
        assert_eq!(spaces::actions().unwrap().elements(), WIDTH);
        let mut row = [0; WIDTH];
        row[0] = 7;
        row[1..=ORDER].copy_from_slice(&[0, 2, 1, 5, 0, 11, 12]);
        row[1 + MAX_ORDERS * ORDER] = 1;
        row[2 + MAX_ORDERS * ORDER] = 50;
        row[4 + MAX_ORDERS * ORDER..][..CONDITION].copy_from_slice(&[1, 1, 900]);
        row[4 + MAX_ORDERS * ORDER + MAX_CONDITIONS * CONDITION] = 1;
        row[WIDTH - 1] = 1;
        let action = Action::of(&row);
        let order = Order { queued: true, ..Order::new(OrderKind::AttackMove).by(5).to(Cell::new(11, 12)) };
        assert_eq!(action.orders[..], [order]);
        assert_eq!((action.advance.ticks, action.advance.check_every), (50, 7));
        assert_eq!(action.advance.until.interrupts, Events::from(Event::ExplorationMilestone));
        let condition = Condition { figure: Figure::Cash, comparison: Comparison::AtMost, value: 900 };
        assert_eq!(action.advance.until.conditions[..], [condition]);
    }
}
