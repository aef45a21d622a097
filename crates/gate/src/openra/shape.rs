//! Where a world has what the bridge shows and takes: the columns of an env of Skirmish's shape.

use rollhouse_codec::openra::{Interrupt, PLANES};
use rollhouse_core::{ColumnRef, CompositeSpace, DType, EnvSpec, ObservationSpace, Space};

/// Reason for which an env cannot stand behind the bridge.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WrongShape {
    /// It lacks a column, or has it otherwise.
    #[error("{env} cannot be played through OpenRA's bridge: {what}")]
    Column {
        /// Id of the env.
        env: String,
        /// What it lacks.
        what: String,
    },
}

/// A sequence of an observation: where its items and their number are, and where an item has which field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rows<const N: usize> {
    items: usize,
    count: usize,
    width: usize,
    fields: [usize; N],
}

impl<const N: usize> Rows<N> {
    /// Returns the fields of each item, in the order in which they were named.
    pub(crate) fn of<'a>(&self, obs: &'a [ColumnRef<'_>]) -> impl Iterator<Item = [i64; N]> + use<'a, N> {
        let Self { items, count, width, fields } = self.clone();
        let count = obs[count].as_i64().and_then(|column| column.first()).copied().unwrap_or_default();
        let items = obs[items].as_i64().unwrap_or_default();
        let rows = items.chunks_exact(width.max(1)).take(usize::try_from(count).unwrap_or_default());
        rows.map(move |row| fields.map(|field| row[field]))
    }
}

pub(crate) const UNIT: [&str; 14] = [
    "id",
    "type",
    "pos_x",
    "pos_y",
    "cell_x",
    "cell_y",
    "hp_percent",
    "is_idle",
    "activity",
    "can_attack",
    "facing",
    "level",
    "stance",
    "speed",
];
pub(crate) const ENEMY: [&str; 11] = [
    "id",
    "type",
    "pos_x",
    "pos_y",
    "cell_x",
    "cell_y",
    "hp_percent",
    "can_attack",
    "facing",
    "level",
    "speed",
];
pub(crate) const BUILDING: [&str; 14] = [
    "id",
    "type",
    "cell_x",
    "cell_y",
    "hp_percent",
    "is_producing",
    "production_percent",
    "producing_item",
    "is_powered",
    "is_repairing",
    "sell_value",
    "rally_x",
    "rally_y",
    "power",
];
pub(crate) const ENEMY_BUILDING: [&str; 5] = ["id", "type", "cell_x", "cell_y", "hp_percent"];
pub(crate) const JOB: [&str; 5] = ["line", "item", "percent", "remaining_ticks", "is_paused"];
pub(crate) const ECONOMY: [&str; 6] =
    ["cash", "ore", "power_provided", "power_drained", "resource_capacity", "harvester_count"];
pub(crate) const MILITARY: [&str; 11] = [
    "units_killed",
    "units_lost",
    "buildings_killed",
    "buildings_lost",
    "army_value",
    "active_unit_count",
    "kills_cost",
    "deaths_cost",
    "assets_value",
    "experience",
    "order_count",
];

/// Where the observation has what is shown.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ObservedColumns {
    pub(crate) units: Rows<14>,
    pub(crate) unit_ranges: Rows<1>,
    pub(crate) enemies: Rows<11>,
    pub(crate) enemy_ranges: Rows<1>,
    pub(crate) buildings: Rows<14>,
    pub(crate) enemy_buildings: Rows<5>,
    pub(crate) jobs: Rows<5>,
    pub(crate) economy: [usize; 6],
    pub(crate) military: [usize; 11],
    /// Columns `width`, `height` and `number` of the map.
    pub(crate) map: [usize; 3],
    pub(crate) tick: usize,
    pub(crate) explored: usize,
    pub(crate) events: usize,
    pub(crate) planes: Planes,
    pub(crate) masks: Masks,
}

/// Where the planes are, and how wide and high the grid is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Planes {
    pub(crate) column: usize,
    pub(crate) side: usize,
}

/// Where the masks are: of items that could be produced, and of cells for the building that is ready.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Masks {
    pub(crate) produce: usize,
    pub(crate) place: usize,
}

/// Where a row of the action has what is ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ActionRow {
    pub(crate) width: usize,
    pub(crate) check_every: usize,
    pub(crate) ticks: usize,
    pub(crate) orders: usize,
    pub(crate) order_count: usize,
    pub(crate) interrupts: usize,
    /// Fields of an order: item, kind, queued, subject, target, x, y.
    pub(crate) order: [usize; 7],
    /// Numbers of an order.
    pub(crate) order_width: usize,
    /// Most orders of a step.
    pub(crate) most_orders: usize,
}

/// An env's columns, found by their names.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shape {
    pub(crate) obs: ObservedColumns,
    pub(crate) action: ActionRow,
    /// Info channels `ticks_advanced`, `stop_reason` and `rejected_orders`.
    pub(crate) infos: [usize; 3],
}

const ORDER: [&str; 7] = ["item", "kind", "queued", "subject", "target", "x", "y"];
const INFOS: [&str; 3] = ["ticks_advanced", "stop_reason", "rejected_orders"];
const METHODS: [&str; 2] = ["get_game_state", "surrender"];

impl Shape {
    /// Finds the columns of an env.
    ///
    /// # Errors
    /// If it lacks one: it is no env of Skirmish's shape.
    pub(crate) fn of(spec: &EnvSpec) -> Result<Self, WrongShape> {
        let wrong = |what: String| WrongShape::Column { env: spec.id.to_string(), what };
        let finder = Finder { space: &spec.observation_space, columns: spec.observation_space.columns() };
        let obs = finder.observed().map_err(wrong)?;
        let action = action(&spec.action_space).map_err(wrong)?;
        let info = |name: &str| {
            let place = spec.info_channels.iter().position(|it| it.path == name && it.dtype == DType::I32);
            place.ok_or_else(|| wrong(format!("it has no int32 info `{name}`")))
        };
        let infos = [info(INFOS[0])?, info(INFOS[1])?, info(INFOS[2])?];
        match METHODS.iter().find(|name| spec.methods.iter().all(|known| known.name != **name)) {
            Some(lacking) => Err(wrong(format!("it has no method `{lacking}`"))),
            None => Ok(Self { obs, action, infos }),
        }
    }
}

struct Finder<'a> {
    space: &'a ObservationSpace,
    columns: Vec<(String, &'a Space)>,
}

impl Finder<'_> {
    fn observed(&self) -> Result<ObservedColumns, String> {
        let scalar = |path: &str| self.column(path, DType::I32, 1);
        let all = |group: &str, names: &[&str]| {
            let found = names.iter().map(|name| scalar(&format!("{group}/{name}")));
            found.collect::<Result<Vec<_>, _>>()
        };
        let [economy, military, map] = [
            all("economy", &ECONOMY)?,
            all("military", &MILITARY)?,
            all("map", &["width", "height", "number"])?,
        ];
        let exact = || "it has other columns".to_owned();
        let planes = self.planes()?;
        Ok(ObservedColumns {
            units: self.rows("units", UNIT)?,
            unit_ranges: self.rows("units", ["attack_range"])?,
            enemies: self.rows("enemies", ENEMY)?,
            enemy_ranges: self.rows("enemies", ["attack_range"])?,
            buildings: self.rows("buildings", BUILDING)?,
            enemy_buildings: self.rows("enemy_buildings", ENEMY_BUILDING)?,
            jobs: self.rows("production", JOB)?,
            economy: economy.try_into().map_err(|_| exact())?,
            military: military.try_into().map_err(|_| exact())?,
            map: map.try_into().map_err(|_| exact())?,
            tick: scalar("tick")?,
            explored: scalar("explored_percent")?,
            events: self.column("events", DType::U8, Interrupt::ALL.len())?,
            masks: Masks {
                produce: self.column("masks/produce", DType::U8, super::names::ITEMS.len() + 1)?,
                place: self.column("masks/place", DType::U8, planes.side * planes.side)?,
            },
            planes,
        })
    }

    fn planes(&self) -> Result<Planes, String> {
        let place = self.columns.iter().position(|(path, _)| path == "spatial");
        let found = place.and_then(|column| match *self.columns[column].1.shape() {
            [side, other, PLANES] if side == other => Some(Planes { column, side }),
            _ => None,
        });
        let found = found.filter(|it| self.columns[it.column].1.dtype() == DType::F32);
        found.ok_or_else(|| format!("it has no float32 column `spatial` of [side, side, {PLANES}]"))
    }

    fn column(&self, path: &str, dtype: DType, elements: usize) -> Result<usize, String> {
        let fits = |(known, space): &(String, &Space)| {
            known == path && space.dtype() == dtype && space.elements() == elements
        };
        let place = self.columns.iter().position(fits);
        place.ok_or_else(|| format!("it has no {} column `{path}` of {elements}", dtype.name()))
    }

    /// Finds a sequence of Dicts of integers, and fields of its items.
    fn rows<const N: usize>(&self, name: &str, fields: [&str; N]) -> Result<Rows<N>, String> {
        let none = || format!("it has no Sequence of Dicts `{name}`");
        let ObservationSpace::Composite(CompositeSpace::Dict { spaces }) = self.space else {
            return Err("its observation is no Dict".to_owned());
        };
        let part = spaces.iter().find(|(known, _)| known == name).map(|(_, part)| part);
        let Some(ObservationSpace::Composite(CompositeSpace::Sequence(sequence))) = part else {
            return Err(none());
        };
        let parts = sequence.item().parts().ok_or_else(none)?.columns();
        let mut found = [0; N];
        for (place, field) in found.iter_mut().zip(fields) {
            let at = parts.iter().position(|(known, space)| known == field && space.elements() == 1);
            *place = at.ok_or_else(|| format!("items of `{name}` have no `{field}`"))?;
        }
        let (width, most) = (parts.len(), sequence.maximum());
        Ok(Rows {
            items: self.column(&format!("{name}/items"), DType::I64, width * most)?,
            count: self.column(&format!("{name}/count"), DType::I64, 1)?,
            width,
            fields: found,
        })
    }
}

fn action(space: &Space) -> Result<ActionRow, String> {
    let none = |what: &str| format!("its action has no `{what}`");
    let parts = space.parts().ok_or("its action is no Dict")?;
    let columns = parts.columns();
    let place = |path: &str| {
        let at = columns.iter().position(|(known, _)| known == path).ok_or_else(|| none(path))?;
        Ok::<_, String>(columns[..at].iter().map(|(_, space)| space.elements()).sum())
    };
    let CompositeSpace::Dict { spaces } = parts else { return Err("its action is no Dict".to_owned()) };
    let orders = spaces.iter().find(|(name, _)| name == "orders").map(|(_, part)| part);
    let Some(ObservationSpace::Composite(CompositeSpace::Sequence(orders))) = orders else {
        return Err(none("orders"));
    };
    let fields = orders.item().parts().ok_or_else(|| none("orders"))?.columns();
    let mut order = [0; ORDER.len()];
    for (at, field) in order.iter_mut().zip(ORDER) {
        let found = fields.iter().position(|(known, _)| known == field);
        *at = found.ok_or_else(|| format!("its orders have no `{field}`"))?;
    }
    Ok(ActionRow {
        width: space.elements(),
        check_every: place("check_every")?,
        ticks: place("ticks")?,
        orders: place("orders/items")?,
        order_count: place("orders/count")?,
        interrupts: place("until/interrupts")?,
        order,
        order_width: fields.len(),
        most_orders: orders.maximum(),
    })
}

#[cfg(test)]
mod tests {
    use rollhouse_env::Registry;

    use super::*;

    #[test]
    fn skirmish_has_the_shape_and_other_envs_are_refused_by_name() {
        let entry = |id| Registry::builtin().get(id).unwrap();
        let shape = Shape::of(entry("Skirmish-v0").spec()).unwrap();
        assert_eq!((shape.action.most_orders, shape.action.order_width, shape.obs.planes.side), (16, 7, 44));
        let refused = Shape::of(entry("CartPole-v1").spec()).unwrap_err().to_string();
        assert!(
            refused.starts_with("CartPole-v1 cannot be played through OpenRA's bridge: it has no"),
            "{refused}"
        );
    }
}
