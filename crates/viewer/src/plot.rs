//! Plotting numbers as bars of eighths of a cell.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;
use rollhouse_replay::{Bucket, Timeline};

/// Draws one bar per column, from the bottom of `area` up, as [`bars_between`] does between the least and the largest value.
pub(crate) fn bars(values: impl Iterator<Item = f64> + Clone, area: Rect, style: Style, buffer: &mut Buffer) {
    bars_between(range(values.clone()), values, area, style, buffer);
}

/// Draws one bar per column, from the bottom of `area` up, whose height is its value's place between `least` and `most`;
/// NaN has no bar. Bars are of half the height if these are the same.
pub(crate) fn bars_between(
    (least, most): (f64, f64),
    values: impl Iterator<Item = f64>,
    area: Rect,
    style: Style,
    buffer: &mut Buffer,
) {
    let full = usize::from(area.height) * 8;
    for (x, value) in (area.left()..area.right()).zip(values) {
        if value.is_nan() {
            continue;
        }
        let part = if most > least { ((value - least) / (most - least)).clamp(0.0, 1.0) } else { 0.5 };
        // Even the smallest is seen.
        let mut eighths = 1 + (part * (full - 1) as f64).round() as usize;
        for y in (area.top()..area.bottom()).rev() {
            if let Some(cell) = buffer.cell_mut((x, y)).filter(|_| eighths > 0) {
                cell.set_symbol(EIGHTHS[eighths.min(8)]).set_style(style);
            }
            eighths = eighths.saturating_sub(8);
        }
    }
}

/// Returns the least and the largest finite value.
pub(crate) fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let finite = values.filter(|value| value.is_finite());
    finite
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(value), most.max(value)))
}

/// Returns the timeline's bucket for each of `columns` columns of an episode of `length` steps; `None` where nothing
/// was passed yet.
pub(crate) fn columns(timeline: &Timeline, length: u64, columns: u16) -> Vec<Option<Bucket>> {
    let (buckets, width) = (timeline.buckets(), timeline.width());
    let column = |column: u16| {
        let (first, last) = steps_of(column, length, columns);
        let (first, last) = ((first - 1) / width, (last - 1) / width);
        let inside = buckets.get(first as usize..=last as usize)?;
        let mut joined = *inside.first()?;
        inside[1..].iter().for_each(|bucket| joined.join(*bucket));
        Some(joined)
    };
    if length == 0 { vec![None; columns.into()] } else { (0..columns).map(column).collect() }
}

/// Returns the first and the last step that a column of the timeline stands for, from 1.
fn steps_of(column: u16, length: u64, columns: u16) -> (u64, u64) {
    let at = |column: u16| (u128::from(column) * u128::from(length) / u128::from(columns)) as u64;
    let first = (at(column) + 1).min(length);
    (first, at(column + 1).max(first))
}

/// Returns the column of a step.
pub(crate) fn column_of(step: u64, length: u64, columns: u16) -> u16 {
    let last = columns.saturating_sub(1);
    let at = (u128::from(step) * u128::from(columns)).div_ceil(u128::from(length.max(1)));
    u16::try_from(at.saturating_sub(1)).map_or(last, |at| at.min(last))
}

const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_go_from_the_least_to_the_largest_over_the_whole_height() {
        let area = Rect::new(0, 0, 5, 2);
        let mut buffer = Buffer::empty(area);
        bars([0.0, 8.0, f64::NAN, 16.0, 16.0].into_iter(), area, Style::new(), &mut buffer);
        assert_eq!(buffer, Buffer::with_lines([" ▁ ██", "▁█ ██"]));
    }

    #[test]
    fn each_step_stands_in_the_column_that_stands_for_it() {
        for (length, columns) in [(1_u64, 80_u16), (7, 80), (80, 80), (81, 80), (1_000_000, 119)] {
            let mut next = 1;
            for column in 0..columns {
                let (first, last) = steps_of(column, length, columns);
                assert!(first <= last && last <= length, "{column} of {length}");
                assert!(first <= next, "no step is left out: {column} of {length}");
                next = last + 1;
                if length >= u64::from(columns) {
                    assert_eq!(column_of(last, length, columns), column);
                }
            }
            assert_eq!(next, length + 1);
        }
    }
}
