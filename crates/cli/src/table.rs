//! Aligned tables for the terminal.

use std::io::{self, Write};

use rollhouse_core::plain;

use crate::output::Output;

/// Rows of text under a head, each column as wide as its widest cell.
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
    /// Least widths of the columns.
    widths: Vec<usize>,
    has_head: bool,
}

/// The side of its column on which a cell stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Its cells begin below each other.
    Left,
    /// Its cells end below each other, as numbers do.
    Right,
}

impl Table {
    /// Makes a table without rows, with a head for each column.
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        let widths = columns.iter().map(|(head, _)| head.chars().count()).collect();
        Self { columns: columns.to_vec(), rows: Vec::new(), widths, has_head: true }
    }

    /// Adds a row; cells that are missing stay empty, cells that are too many are not shown. What others chose is
    /// cleaned: a cell stays on its line, has the width that is counted, and cannot control a terminal.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| plain(cell)).collect());
    }

    /// Writes the rows, under a head the first time, and forgets them. More rows may follow and are written below.
    pub fn write<W: Write>(&mut self, out: &mut Output<W>) -> io::Result<()> {
        let rows = std::mem::take(&mut self.rows);
        for (index, width) in self.widths.iter_mut().enumerate() {
            let cells = rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.chars().count());
            *width = cells.max().unwrap_or(0).max(*width);
        }
        let widths = &self.widths;
        let heads: Vec<String> = self.columns.iter().map(|(head, _)| (*head).to_owned()).collect();
        let head = std::mem::take(&mut self.has_head).then_some(&heads);
        for row in head.into_iter().chain(&rows) {
            let mut line = String::new();
            for ((cell, width), (_, align)) in row.iter().zip(widths).zip(&self.columns) {
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
        let mut out = Output::to(Vec::new());
        table.write(&mut out).unwrap();
        let wanted = "NAME     STEPS\na            1\nlonger  123456\n";
        assert_eq!(String::from_utf8(out.into_inner()).unwrap(), wanted);
    }

    #[test]
    fn what_follows_stands_under_what_was_written_without_another_head() {
        let mut table = Table::new(&[("NAME", Align::Left), ("STEPS", Align::Right)]);
        let mut out = Output::to(Vec::new());
        for (name, steps) in [("longer", "1"), ("a", "123456"), ("b", "2")] {
            table.row(vec![name.into(), steps.into()]);
            table.write(&mut out).unwrap();
        }
        let wanted = "NAME    STEPS\nlonger      1\na       123456\nb            2\n";
        assert_eq!(String::from_utf8(out.into_inner()).unwrap(), wanted);
    }

    #[test]
    fn a_cell_that_others_chose_stays_in_its_column() {
        let mut table = Table::new(&[("NODE", Align::Left), ("LANES", Align::Right)]);
        table.row(vec!["a\u{1b}[2J\nb\u{202e}".into(), "1".into()]);
        let mut out = Output::to(Vec::new());
        table.write(&mut out).unwrap();
        let wanted = "NODE                      LANES\na\\u{1b}[2J\\u{a}b\\u{202e}      1\n";
        assert_eq!(String::from_utf8(out.into_inner()).unwrap(), wanted);
    }
}
