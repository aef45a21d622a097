//! The maps: terrain, heights, ore and where the two sides begin. They are read once and shared by all lanes.

use std::sync::OnceLock;

/// Cells of a side of a grid, into which the largest map fits. Grids have this width on every map, so that a cell's place does not
/// depend on it. With fewer, each bound of the planes would be written one by one into every recording.
pub(crate) const SIDE: usize = 44;
/// Cells of a grid.
pub(crate) const CELLS: usize = SIDE * SIDE;

/// A cell, from the upper left corner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub(crate) struct Cell {
    pub(crate) x: u8,
    pub(crate) y: u8,
}

impl Cell {
    pub(crate) const fn new(x: u8, y: u8) -> Self {
        Self { x, y }
    }

    /// Returns its place in a grid.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.y as usize * SIDE + self.x as usize
    }

    /// Returns the cell of a place in a grid.
    #[inline]
    pub(crate) const fn of_index(index: usize) -> Self {
        Self { x: (index % SIDE) as u8, y: (index / SIDE) as u8 }
    }

    /// Returns the number of steps to another cell, where a step may be diagonal.
    pub(crate) const fn steps_to(self, other: Self) -> u8 {
        let (x, y) = (self.x.abs_diff(other.x), self.y.abs_diff(other.y));
        if x > y { x } else { y }
    }

    /// Returns the square of the distance to another cell.
    #[inline]
    pub(crate) const fn square_to(self, other: Self) -> u32 {
        let (x, y) = (self.x.abs_diff(other.x) as u32, self.y.abs_diff(other.y) as u32);
        x * x + y * y
    }

    /// Returns the cell `x` columns and `y` rows away, if there is one in a grid.
    #[inline]
    pub(crate) fn shifted(self, x: i32, y: i32) -> Option<Self> {
        let (x, y) = (i32::from(self.x) + x, i32::from(self.y) + y);
        let inside = (0..SIDE as i32).contains(&x) && (0..SIDE as i32).contains(&y);
        inside.then_some(Self { x: x as u8, y: y as u8 })
    }
}

/// The eight ways to a neighbour, straight ones first; their places are what units face.
pub(crate) const WAYS: [(i32, i32); 8] =
    [(0, -1), (1, 0), (0, 1), (-1, 0), (1, -1), (1, 1), (-1, 1), (-1, -1)];

/// What the ground of a cell is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Terrain {
    Clear = 0,
    /// Units take half as long again.
    Rough = 1,
    Water = 2,
    Rock = 3,
}

impl Terrain {
    pub(crate) const fn is_passable(self) -> bool {
        matches!(self, Self::Clear | Self::Rough)
    }
}

/// A map. What lies outside of its width and height is rock.
pub(crate) struct Map {
    pub(crate) name: &'static str,
    /// Place of the map among [`NAMES`].
    pub(crate) number: usize,
    pub(crate) width: u8,
    pub(crate) height: u8,
    pub(crate) terrain: [Terrain; CELLS],
    /// Heights, 0 to 2. Units see a cell further for each.
    pub(crate) heights: [u8; CELLS],
    /// Loads of ore at the beginning.
    pub(crate) ore: [u8; CELLS],
    /// Middle cell of the yard of either side.
    pub(crate) starts: [Cell; 2],
}

impl Map {
    /// Returns the map of that number.
    pub(crate) fn of(number: usize) -> &'static Self {
        static MAPS: OnceLock<[Map; MAP_COUNT]> = OnceLock::new();
        &MAPS.get_or_init(|| std::array::from_fn(Map::read))[number % MAP_COUNT]
    }

    /// Returns whether a cell lies on the map.
    pub(crate) const fn has(&self, cell: Cell) -> bool {
        cell.x < self.width && cell.y < self.height
    }

    /// Returns whether units can stand on the cell's ground.
    #[inline]
    pub(crate) const fn is_passable(&self, cell: Cell) -> bool {
        self.terrain[cell.index()].is_passable()
    }

    /// Returns every cell of the map, row by row.
    pub(crate) fn cells(&self) -> impl Iterator<Item = Cell> + use<> {
        let (width, height) = (self.width, self.height);
        (0..height).flat_map(move |y| (0..width).map(move |x| Cell { x, y }))
    }

    /// Reads the upper half of a map. The lower one is the same, turned by half a turn, so that no side is better off.
    fn read(number: usize) -> Self {
        let half = HALVES[number];
        let (width, height) = (half[0].len(), half.len() * 2);
        let mut map = Self {
            name: NAMES[number],
            number,
            width: width as u8,
            height: height as u8,
            terrain: [Terrain::Rock; CELLS],
            heights: [0; CELLS],
            ore: [0; CELLS],
            starts: [Cell::default(); 2],
        };
        for (y, row) in half.iter().enumerate() {
            for (x, symbol) in row.bytes().enumerate() {
                let here = Cell::new(x as u8, y as u8);
                let there = Cell::new((width - 1 - x) as u8, (height - 1 - y) as u8);
                map.set(here, symbol);
                map.set(there, symbol);
                if symbol == b'1' {
                    map.starts = [here, there];
                }
            }
        }
        map
    }

    fn set(&mut self, cell: Cell, symbol: u8) {
        let (terrain, height, ore) = match symbol {
            b',' => (Terrain::Rough, 0, 0),
            b'~' => (Terrain::Water, 0, 0),
            b'#' => (Terrain::Rock, 2, 0),
            b'^' => (Terrain::Clear, 1, 0),
            b'A' => (Terrain::Clear, 2, 0),
            b'o' => (Terrain::Clear, 0, POOR),
            b'O' => (Terrain::Clear, 0, RICH),
            _ => (Terrain::Clear, 0, 0),
        };
        let index = cell.index();
        (self.terrain[index], self.heights[index], self.ore[index]) = (terrain, height, ore);
    }
}

/// Number of maps.
pub(crate) const MAP_COUNT: usize = 3;
/// Names of the maps, in the order of their numbers.
pub(crate) const NAMES: [&str; MAP_COUNT] = ["duel", "river", "highlands"];
/// Loads of ore of a poor and a rich cell.
const POOR: u8 = 24;
pub(crate) const RICH: u8 = 60;

const HALVES: [&[&str]; MAP_COUNT] = [DUEL, RIVER, HIGHLANDS];

const DUEL: &[&str] = &[
    "........................",
    ".........oo.............",
    "........oOOo......,,....",
    "....1...oOOo.....,,,,...",
    ".........oo.......,,....",
    "....................^^..",
    "..oo.......##......^AA^.",
    ".oOOo......##.......^^..",
    "..oo...,,...........,...",
    "......,,,,..............",
    ".......,,.....##...oo...",
    "..............##..oOOo..",
];

const RIVER: &[&str] = &[
    "................................",
    "................................",
    "..........oo....................",
    ".........oOOo.........,,,,......",
    "....1....oOOo.......,,,,,,,.....",
    "..........oo..........,,,.......",
    "................................",
    ".................##.............",
    "..oo.............##.......^^....",
    ".oOOo....................^AA^...",
    ".oOOo.....^^..............^^....",
    "..oo.....^AA^...................",
    "..........^^...........oo.......",
    "......................oOOo......",
    "~~~~~~,,,~~~~~~~~~~~~~~,,,~~~~~~",
    "~~~~~~,,,~~~~~~~~~~~~~~,,,~~~~~~",
];

const HIGHLANDS: &[&str] = &[
    "........................................",
    "........................................",
    "...........oo...........................",
    "..........oOOo............^^^^..........",
    "....1.....oOOo...........^AAAA^.........",
    "...........oo.............^^^^...oo.....",
    "................................oOOo....",
    ".................##..............oo.....",
    "...oo............##.....................",
    "..oOOo...........##......,,,,...........",
    "..oOOo.................,,,,,,,..........",
    "...oo...^^^..............,,,......##....",
    ".......^AAA^......................##....",
    "........^^^.......##..............##....",
    "..................##....................",
    "......,,,.................oo............",
    ".....,,,,,,..............oOOo.....^^....",
    "......,,,.................oo.....^AA^...",
    "..............##..................^^....",
    "~~~~~~~~,,,,..##....~~~~~~~~....,,,,~~~~",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_the_same_from_either_side_and_fit_into_a_grid() {
        for (number, half) in HALVES.iter().enumerate() {
            let map = Map::of(number);
            assert!(half.iter().all(|row| row.len() == usize::from(map.width)), "{}", map.name);
            assert!(usize::from(map.width.max(map.height)) <= SIDE);
            for cell in map.cells() {
                let turned = Cell::new(map.width - 1 - cell.x, map.height - 1 - cell.y);
                assert_eq!(map.terrain[cell.index()], map.terrain[turned.index()]);
                assert_eq!(map.ore[cell.index()], map.ore[turned.index()]);
            }
            assert_ne!(map.starts[0], map.starts[1]);
        }
    }

    #[test]
    fn every_passable_cell_can_be_reached_from_a_start() {
        for number in 0..MAP_COUNT {
            let map = Map::of(number);
            let (mut reached, mut open) = ([false; CELLS], vec![map.starts[0]]);
            while let Some(cell) = open.pop() {
                if std::mem::replace(&mut reached[cell.index()], true) {
                    continue;
                }
                let near = WAYS.iter().filter_map(|&(x, y)| cell.shifted(x, y));
                open.extend(near.filter(|&cell| map.is_passable(cell)));
            }
            assert!(map.cells().all(|cell| !map.is_passable(cell) || reached[cell.index()]), "{}", map.name);
        }
    }
}
