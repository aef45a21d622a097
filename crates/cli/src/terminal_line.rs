//! One line on the terminal that is drawn over itself. It is written by hand: indicatif cuts a line that is too long for
//! the terminal at its end, and here parts are left out in an order of their own before the bar is.

use std::io::{self, IsTerminal, Write};

use rollhouse_core::plain;
use rustix::termios::tcgetwinsize;

/// Draws on stderr if that is a terminal, else does nothing.
pub(crate) struct TerminalLine {
    shown: bool,
}

impl TerminalLine {
    pub(crate) fn new() -> Self {
        Self { shown: io::stderr().is_terminal() }
    }

    /// Returns whether anything is drawn.
    pub(crate) const fn is_shown(&self) -> bool {
        self.shown
    }

    /// Draws the text that `line` makes for the available columns, and no more of it than fits: it never begins a
    /// second line.
    pub(crate) fn draw(&self, line: impl FnOnce(usize) -> String) {
        if self.shown {
            // A terminal whose last column is written to may begin a new line.
            let room = columns().saturating_sub(1);
            let line: String = plain(&line(room)).chars().take(room).collect();
            // A terminal that is gone is noticed by the signal it sends.
            let _drawn = write!(io::stderr().lock(), "\r{CLEAR}{line}");
        }
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        self.draw(|_| String::new());
    }
}

/// Returns how wide the terminal on stderr is now; one that does not say is taken to be as wide as most.
fn columns() -> usize {
    let told = tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    if told == 0 { USUAL_COLUMNS } else { told }
}

/// The code that erases to the end of the line.
const CLEAR: &str = "\x1b[K";

const USUAL_COLUMNS: usize = 80;
