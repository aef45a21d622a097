//! One line of text about a lane: a strip that shows positions, and figures behind it.

/// Characters of a strip, which stands between two bars.
pub(super) struct Strip {
    cells: Vec<u8>,
}

/// Maximum number of cells of a strip: the eye does not follow a longer one.
const MAX_CELLS: usize = 80;

/// Minimum number of cells of a strip beside which figures are shown.
const MIN_CELLS: usize = 12;

/// Number of characters that the two bars take.
const BARS: usize = 2;

/// Returns whether figures are shown beside the strip of a line of so many columns.
pub(super) const fn fits(columns: usize, figures: &str) -> bool {
    columns >= BARS + MIN_CELLS + 1 + figures.len()
}

/// Returns a line of at most `columns` ASCII characters: a strip of cells that `draw` fills, and, where there is room
/// for both, `figures`.
pub(super) fn line(columns: usize, figures: &str, draw: impl FnOnce(&mut Strip)) -> String {
    let beside = if fits(columns, figures) { columns.checked_sub(BARS + 1 + figures.len()) } else { None };
    let cells = beside.unwrap_or(columns.saturating_sub(BARS)).min(MAX_CELLS);
    if cells == 0 {
        return String::new();
    }
    let mut strip = Strip { cells: vec![b' '; cells] };
    draw(&mut strip);
    let strip: String = strip.cells.into_iter().map(char::from).collect();
    match beside {
        Some(_) => format!("|{strip}| {figures}"),
        None => format!("|{strip}|"),
    }
}

impl Strip {
    /// Fills each cell with the symbol that `symbol` returns for the cell's middle, from 0 at the left to 1 at the
    /// right.
    pub(super) fn fill(&mut self, symbol: impl Fn(f64) -> u8) {
        let cells = self.cells.len() as f64;
        for (index, cell) in self.cells.iter_mut().enumerate() {
            *cell = symbol((index as f64 + 0.5) / cells);
        }
    }

    /// Writes `symbols` with their middle at a place from 0 to 1. For a place beyond the strip an arrow points there; a
    /// place that is no number is left out.
    pub(super) fn put(&mut self, place: f64, symbols: &[u8]) {
        let cells = self.cells.len();
        if place.is_nan() {
            return;
        }
        if !(0.0..=1.0).contains(&place) {
            let (end, arrow) = if place < 0.0 { (0, b'<') } else { (cells - 1, b'>') };
            self.cells[end] = arrow;
            return;
        }
        let middle = ((place * cells as f64) as usize).min(cells - 1);
        for (index, symbol) in symbols.iter().enumerate() {
            if let Some(cell) =
                (middle + index).checked_sub(symbols.len() / 2).and_then(|at| self.cells.get_mut(at))
            {
                *cell = *symbol;
            }
        }
    }
}

/// Formats a number with its sign, in the same width for all numbers up to a thousand.
pub(super) fn figure(value: f64) -> String {
    match value.abs() < 1000.0 || !value.is_finite() {
        true => format!("{value:>+7.2}"),
        false => format!("{value:>+7.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_give_way_before_the_strip_does() {
        let drawn = |columns| line(columns, "x 1", |strip| strip.put(0.5, b"o"));
        assert_eq!(drawn(20), "|       o      | x 1");
        assert_eq!(drawn(18), "|      o     | x 1");
        assert_eq!(drawn(17), "|       o       |");
        assert_eq!(drawn(3), "|o|");
        assert_eq!(drawn(2), "");
    }

    #[test]
    fn what_lies_beyond_the_strip_is_pointed_at() {
        let drawn = |place| line(12, "", |strip| strip.put(place, b"[o]"));
        assert_eq!(drawn(0.0), "|o]        |");
        assert_eq!(drawn(1.0), "|        [o|");
        assert_eq!(drawn(-0.1), "|<         |");
        assert_eq!(drawn(f64::INFINITY), "|         >|");
        assert_eq!(drawn(f64::NAN), "|          |");
    }
}
