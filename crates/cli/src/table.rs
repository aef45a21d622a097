//! Aligned tables.

use std::io::{self, Write};

/// Rows of text under a head, each column as wide as its widest cell.
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

/// On which side of its column a cell stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; cells that are missing stay empty, cells that are too many are not shown.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let width = |index: usize, head: &str| {
            let cells = self.rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.chars().count());
            cells.max().unwrap_or(0).max(head.chars().count())
        };
        let widths: Vec<usize> =
            self.columns.iter().enumerate().map(|(i, (head, _))| width(i, head)).collect();
        let heads: Vec<String> = self.columns.iter().map(|(head, _)| (*head).to_owned()).collect();
        for row in std::iter::once(&heads).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, width), (_, align)) in row.iter().zip(&widths).zip(&self.columns) {
                let cell = match align {
                    Align::Left => format!("{cell:<width$}"),
                    Align::Right => format!("{cell:>width$}"),
                };
                line.push_str(&cell);
                line.push_str("  ");
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&[("NAME", Align::Left), ("STEPS", Align::Right)]);
        table.row(vec!["a".into(), "1".into()]);
        table.row(vec!["longer".into(), "123456".into()]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        let wanted = "NAME     STEPS\na            1\nlonger  123456\n";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }
}
