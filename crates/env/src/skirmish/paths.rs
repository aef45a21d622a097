//! The ways to goals: how many steps every cell is away from one.

use super::map::{CELLS, Cell, Map, WAYS};

/// The steps to each of the last goals, while nothing is built or torn down. They follow from map and buildings, so they are
/// no part of a game's state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Paths {
    fields: Vec<Field>,
    /// Place of the field that gives way to the next one.
    next: usize,
    open: Vec<u16>,
}

#[derive(Debug, Clone)]
struct Field {
    goal: Cell,
    steps: Box<[u16; CELLS]>,
}

/// Maximum number of goals to which the steps are kept.
const MAX_FIELDS: usize = 48;
/// Number of steps from a cell from which there is no way.
pub(crate) const NO_WAY: u16 = u16::MAX;

impl Paths {
    /// Forgets all, since something was built or torn down.
    pub(crate) fn forget(&mut self) {
        self.fields.clear();
        self.next = 0;
    }

    /// Returns the number of steps from each cell to `goal`. `walls` says of each cell which building stands there, 0 for
    /// none; a goal inside of one is reached at its edge.
    pub(crate) fn to(&mut self, map: &Map, walls: &[u8; CELLS], goal: Cell) -> &[u16; CELLS] {
        let found = self.fields.iter().position(|field| field.goal == goal);
        let place = found.unwrap_or_else(|| {
            let place = self.place();
            self.fields[place].goal = goal;
            let Self { fields, open, .. } = self;
            spread(map, walls, goal, &mut fields[place].steps, open);
            place
        });
        &self.fields[place].steps
    }

    /// Returns the place of a field that may be overwritten.
    fn place(&mut self) -> usize {
        if self.fields.len() < MAX_FIELDS {
            self.fields.push(Field { goal: Cell::default(), steps: Box::new([NO_WAY; CELLS]) });
            return self.fields.len() - 1;
        }
        self.next = (self.next + 1) % MAX_FIELDS;
        self.next
    }
}

/// Writes the number of steps from every cell to `goal`.
fn spread(map: &Map, walls: &[u8; CELLS], goal: Cell, steps: &mut [u16; CELLS], open: &mut Vec<u16>) {
    steps.fill(NO_WAY);
    open.clear();
    let wall = walls[goal.index()];
    if wall == 0 {
        steps[goal.index()] = 0;
        open.push(goal.index() as u16);
    } else {
        for (index, _) in walls.iter().enumerate().filter(|(_, other)| **other == wall) {
            steps[index] = 0;
            open.push(index as u16);
        }
    }
    let mut at = 0;
    while let Some(&index) = open.get(at) {
        at += 1;
        let cell = Cell::of_index(index.into());
        let next = steps[usize::from(index)] + 1;
        for near in WAYS.iter().filter_map(|&(x, y)| cell.shifted(x, y)) {
            let near = near.index();
            if steps[near] == NO_WAY && walls[near] == 0 && map.terrain[near].is_passable() {
                steps[near] = next;
                open.push(near as u16);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_lead_around_buildings_and_to_the_edge_of_one_that_is_the_goal() {
        let map = Map::of(0);
        let mut walls = [0; CELLS];
        for y in 0..11 {
            walls[Cell::new(12, y).index()] = 1;
        }
        let mut paths = Paths::default();
        let steps = paths.to(map, &walls, Cell::new(13, 0));
        assert_eq!(steps[Cell::new(11, 0).index()], 22, "around the wall's end");
        walls[Cell::new(12, 0).index()] = 2;
        paths.forget();
        let steps = paths.to(map, &walls, Cell::new(12, 0));
        assert_eq!(steps[Cell::new(10, 0).index()], 2);
        for goal in map.cells().take(MAX_FIELDS * 2) {
            paths.to(map, &walls, goal);
        }
        assert_eq!(paths.fields.len(), MAX_FIELDS);
    }
}
