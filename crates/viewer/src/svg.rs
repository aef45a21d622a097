//! Drawing a screen as an SVG picture, for web pages.

use std::fmt::Write;
use std::ops::Range;

use ratatui_core::buffer::{Buffer, Cell};
use ratatui_core::style::{Color, Modifier};

/// Returns a screen as an SVG file, in the colours of a dark terminal where it names none.
pub(crate) fn svg_of(screen: &Buffer) -> String {
    let (columns, rows) = (screen.area.width, screen.area.height);
    let (width, height) = (place(columns, CELL_WIDTH) + MARGIN, place(rows, CELL_HEIGHT) + MARGIN);
    let ground = Ink(GROUND);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"{MARGIN}\" fill=\"{ground}\"/>\n\
         <g shape-rendering=\"crispEdges\">\n"
    );
    for block in blocks(screen) {
        line(&mut svg, format_args!("{block}"));
    }
    line(&mut svg, format_args!("</g>\n<g font-family=\"{FONT}\" font-size=\"14\">"));
    for row in 0..rows {
        for word in words(screen, row) {
            line(&mut svg, format_args!("{word}"));
        }
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

fn line(svg: &mut String, text: std::fmt::Arguments<'_>) {
    // A string takes everything.
    let _taken = svg.write_fmt(text);
    svg.push('\n');
}

fn place(cell: u16, size: f64) -> f64 {
    f64::from(cell) * size + MARGIN
}

/// A word: consecutive letters of one colour.
struct Word {
    row: u16,
    left: u16,
    right: u16,
    text: String,
    ink: [u8; 3],
    modifier: Modifier,
}

/// Returns the words of a row.
fn words(screen: &Buffer, row: u16) -> Vec<Word> {
    let cell = |column: u16| &screen[(screen.area.x + column, screen.area.y + row)];
    let mut words: Vec<Word> = Vec::new();
    for column in (0..screen.area.width).filter(|&column| !is_empty(cell(column))) {
        let (ink, modifier) = (Colours::of(cell(column)).front, cell(column).modifier);
        let symbol = cell(column).symbol();
        match words.last_mut().filter(|word| (word.ink, word.modifier) == (ink, modifier)) {
            Some(word) if word.right == column => word.text.push_str(symbol),
            // One blank does not part them.
            Some(word) if word.right + 1 == column && is_blank(cell(word.right)) => {
                word.text.push(' ');
                word.text.push_str(symbol);
            }
            _ => words.push(Word { row, left: column, right: 0, text: symbol.to_owned(), ink, modifier }),
        }
        words.iter_mut().last().into_iter().for_each(|word| word.right = column + 1);
    }
    words
}

impl std::fmt::Display for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (x, y) = (place(self.left, CELL_WIDTH), place(self.row, CELL_HEIGHT) + BASELINE);
        // A font has other widths: its letters are drawn to those of the cells.
        let width = f64::from(self.right - self.left) * CELL_WIDTH;
        let ink = Ink(self.ink);
        write!(
            f,
            "<text x=\"{x}\" y=\"{y}\" textLength=\"{width}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{ink}\""
        )?;
        if self.modifier.contains(Modifier::BOLD) {
            f.write_str(" font-weight=\"bold\"")?;
        }
        write!(f, ">{}</text>", self.text.replace('&', "&amp;").replace('<', "&lt;"))
    }
}

/// Returns whether a cell has no letters: it is blank, or has two colours that are drawn as such.
fn is_empty(cell: &Cell) -> bool {
    is_blank(cell) || front_of(cell).is_some()
}

fn is_blank(cell: &Cell) -> bool {
    matches!(cell.symbol(), "" | " ")
}

/// Returns the eighths of a cell's height in which a block has the colour of letters; `None` if there is no block in
/// the cell.
fn front_of(cell: &Cell) -> Option<Range<u16>> {
    if cell.symbol() == UPPER_HALF {
        return Some(0..EIGHTHS / 2);
    }
    let full = LOWER.iter().position(|symbol| *symbol == cell.symbol())?;
    Some(EIGHTHS - 1 - full as u16..EIGHTHS)
}

/// A block of one colour: columns, and eighths of rows.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Block {
    left: u16,
    right: u16,
    top: u16,
    bottom: u16,
    ink: [u8; 3],
}

impl std::fmt::Display for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (x, y) = (place(self.left, CELL_WIDTH), place(self.top, CELL_EIGHTH));
        let width = f64::from(self.right - self.left) * CELL_WIDTH;
        let height = f64::from(self.bottom - self.top) * CELL_EIGHTH;
        write!(
            f,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{}\"/>",
            Ink(self.ink)
        )
    }
}

/// Returns the parts of a screen that have another colour than its ground; equal parts below each other are joined.
fn blocks(screen: &Buffer) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for eighth in 0..screen.area.height * EIGHTHS {
        let ink = |column: u16| {
            let cell = &screen[(screen.area.x + column, screen.area.y + eighth / EIGHTHS)];
            let Colours { front, back } = Colours::of(cell);
            let is_front = front_of(cell).is_some_and(|front| front.contains(&(eighth % EIGHTHS)));
            if is_front { front } else { back }
        };
        let (above, mut left) = (blocks.len(), 0);
        while left < screen.area.width {
            let ink_here = ink(left);
            let right = (left + 1..screen.area.width)
                .find(|&column| ink(column) != ink_here)
                .unwrap_or(screen.area.width);
            if ink_here != GROUND {
                let is_above = |block: &&mut Block| {
                    (block.left, block.right, block.bottom, block.ink) == (left, right, eighth, ink_here)
                };
                match blocks[..above].iter_mut().find(is_above) {
                    Some(block) => block.bottom += 1,
                    None => {
                        blocks.push(Block { left, right, top: eighth, bottom: eighth + 1, ink: ink_here })
                    }
                }
            }
            left = right;
        }
    }
    blocks
}

/// The colours in which a cell is drawn.
struct Colours {
    front: [u8; 3],
    back: [u8; 3],
}

impl Colours {
    fn of(cell: &Cell) -> Self {
        let ink = |colour, usual| match colour {
            Color::Rgb(red, green, blue) => [red, green, blue],
            _ => usual,
        };
        let (front, back) = (ink(cell.fg, LETTERS), ink(cell.bg, GROUND));
        match cell.modifier.contains(Modifier::REVERSED) {
            true => Self { front: back, back: front },
            false => Self { front, back },
        }
    }
}

/// A colour in the notation of web pages.
struct Ink([u8; 3]);

impl std::fmt::Display for Ink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [red, green, blue] = self.0;
        write!(f, "#{red:02x}{green:02x}{blue:02x}")
    }
}

/// Character of a cell with two colours, one above the other.
const UPPER_HALF: &str = "▀";
/// Blocks that stand on the ground of a cell, an eighth higher each.
const LOWER: [&str; EIGHTHS as usize] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// Parts into which the height of a cell is divided.
const EIGHTHS: u16 = 8;
/// Colour of the ground where a screen names none.
const GROUND: [u8; 3] = [24, 26, 31];
/// Colour of letters where a screen names none.
const LETTERS: [u8; 3] = [215, 218, 224];
/// Width of a cell in pixels.
const CELL_WIDTH: f64 = 8.5;
const CELL_HEIGHT: f64 = 18.0;
const CELL_EIGHTH: f64 = CELL_HEIGHT / EIGHTHS as f64;
const FONT: &str = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";
/// Pixels from the top of a cell to the baseline of letters.
const BASELINE: f64 = 13.5;
/// Pixels around the screen.
const MARGIN: f64 = 8.0;

#[cfg(test)]
mod tests {
    use ratatui_core::layout::Rect;
    use ratatui_core::style::Style;

    use super::*;

    #[test]
    fn letters_are_shown_where_they_stand_and_mean_nothing_to_a_page() {
        let mut screen = Buffer::empty(Rect::new(0, 0, 20, 2));
        screen.set_string(
            2,
            1,
            "<script> &",
            Style::new().fg(Color::Rgb(1, 2, 255)).add_modifier(Modifier::BOLD),
        );
        let svg = svg_of(&screen);
        let wanted = "<text x=\"25\" y=\"39.5\" textLength=\"85\" lengthAdjust=\"spacingAndGlyphs\" fill=\"#0102ff\" font-weight=\"bold\">&lt;script> &amp;</text>";
        assert!(svg.contains(wanted) && !svg.contains("<script"), "{svg}");
    }

    #[test]
    fn cells_and_halves_of_a_colour_are_one_block() {
        let mut screen = Buffer::empty(Rect::new(0, 0, 6, 3));
        for (x, y) in [(1, 0), (2, 0), (1, 1), (2, 1)] {
            screen[(x, y)].set_symbol(UPPER_HALF).set_fg(Color::Rgb(9, 9, 9));
            screen[(x, y)].set_bg(if y == 0 { Color::Rgb(9, 9, 9) } else { Color::Rgb(200, 0, 0) });
        }
        let block = |top, bottom, ink| Block { left: 1, right: 3, top, bottom, ink };
        assert_eq!(blocks(&screen), [block(0, 12, [9, 9, 9]), block(12, 16, [200, 0, 0])]);
        assert!(!svg_of(&screen).contains("<text"));
    }
}
