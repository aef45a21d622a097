//! What a side sees and has seen.

use super::map::{CELLS, Cell, Map, SIDE};

/// Cells that a side sees, each with the number of its units and buildings that do, and cells that it has seen.
#[derive(Debug, Clone, PartialEq, Hash)]
pub(crate) struct Fog {
    seers: Box<[u8; CELLS]>,
    explored: Box<[u8; CELLS]>,
    /// Number of cells that it has seen.
    pub(crate) explored_cells: u32,
    /// Whether there is fog; a side sees the whole map without.
    enabled: bool,
}

/// Greatest distance up to which anything sees: a radar's, and the heights of a hill.
const MAX_SIGHT: usize = 12;

/// Half widths of the rows of a disc, by its radius and the row's distance from the middle.
static DISCS: [[u8; MAX_SIGHT + 1]; MAX_SIGHT + 1] = discs();

const fn discs() -> [[u8; MAX_SIGHT + 1]; MAX_SIGHT + 1] {
    let mut discs = [[0; MAX_SIGHT + 1]; MAX_SIGHT + 1];
    let mut radius = 0;
    while radius <= MAX_SIGHT {
        let mut row = 0;
        while row <= radius {
            let mut half = 0;
            // A cell more than the circle has: corners look round then.
            while (half + 1) * (half + 1) + row * row <= radius * radius + radius {
                half += 1;
            }
            discs[radius][row] = half as u8;
            row += 1;
        }
        radius += 1;
    }
    discs
}

impl Fog {
    /// Makes the fog of a map of which nothing has been seen; without fog all of it has.
    pub(crate) fn new(map: &Map, enabled: bool) -> Self {
        let mut fog =
            Self { seers: Box::new([0; CELLS]), explored: Box::new([0; CELLS]), explored_cells: 0, enabled };
        if !enabled {
            for cell in map.cells() {
                fog.explored[cell.index()] = 1;
                fog.explored_cells += 1;
            }
        }
        fog
    }

    /// Returns whether the side sees the cell now.
    #[inline]
    pub(crate) fn sees(&self, cell: Cell) -> bool {
        !self.enabled || self.seers[cell.index()] > 0
    }

    /// Returns whether the side has seen the cell at any time.
    #[inline]
    pub(crate) fn has_seen(&self, cell: Cell) -> bool {
        self.explored[cell.index()] != 0
    }

    /// Notes that the side has seen a cell at some time.
    pub(super) fn explore(&mut self, cell: Cell) {
        let explored = &mut self.explored[cell.index()];
        self.explored_cells += u32::from(*explored == 0);
        *explored = 1;
    }

    /// Returns the part of the map that the side has seen, in percent.
    pub(crate) fn explored_percent(&self, map: &Map) -> u32 {
        self.explored_cells * 100 / (u32::from(map.width) * u32::from(map.height))
    }

    /// Adds something that sees from a cell up to a distance.
    pub(crate) fn add(&mut self, map: &Map, at: Cell, sight: u8) {
        if self.enabled {
            let Self { seers, explored, explored_cells, .. } = self;
            each_row(map, at, sight, |row| {
                for (seers, explored) in seers[row.clone()].iter_mut().zip(&mut explored[row]) {
                    *seers = seers.saturating_add(1);
                    *explored_cells += u32::from(*explored == 0);
                    *explored = 1;
                }
            });
        }
    }

    /// Takes back what [`Fog::add`] added.
    pub(crate) fn remove(&mut self, map: &Map, at: Cell, sight: u8) {
        if self.enabled {
            let seers = &mut self.seers;
            each_row(map, at, sight, |row| seers[row].iter_mut().for_each(|n| *n = n.saturating_sub(1)));
        }
    }
}

/// Calls `take` with the places of each row of a disc that lie on the map.
fn each_row(map: &Map, at: Cell, sight: u8, mut take: impl FnMut(std::ops::Range<usize>)) {
    let radius = usize::from(sight + map.heights[at.index()]).min(MAX_SIGHT);
    let (x, y) = (usize::from(at.x), usize::from(at.y));
    for row in y.saturating_sub(radius)..(y + radius + 1).min(map.height.into()) {
        let half = usize::from(DISCS[radius][row.abs_diff(y)]);
        let (from, to) = (x.saturating_sub(half), (x + half + 1).min(map.width.into()));
        take(row * SIDE + from..row * SIDE + to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_and_goes_leaves_what_was_seen_and_nothing_that_is() {
        let map = Map::of(0);
        let mut fog = Fog::new(map, true);
        let (here, there) = (Cell::new(4, 4), Cell::new(6, 4));
        fog.add(map, here, 3);
        fog.add(map, there, 3);
        fog.remove(map, here, 3);
        assert!(fog.sees(there) && !fog.sees(Cell::new(1, 4)) && fog.has_seen(Cell::new(1, 4)));
        fog.remove(map, there, 3);
        assert!(map.cells().all(|cell| !fog.sees(cell)));
        let seen = map.cells().filter(|&cell| fog.has_seen(cell)).count();
        assert_eq!(seen as u32, fog.explored_cells);
    }

    #[test]
    fn without_fog_everything_is_seen() {
        let map = Map::of(1);
        let fog = Fog::new(map, false);
        assert!(map.cells().all(|cell| fog.sees(cell) && fog.has_seen(cell)));
        assert_eq!(fog.explored_percent(map), 100);
    }
}
