//! The output of commands: buffered data on stdout, messages on stderr.
//!
//! Names, causes and notes may be chosen by others. Lines of text and messages are therefore cleaned here, where all of
//! them pass, and not by callers: they cannot control a terminal, nor begin a line of their own.

use std::fmt;
use std::io::{self, BufWriter, StdoutLock, Write};

use rollhouse_core::{plain_json, plain_line};
use serde::Serialize;

/// The buffered stdout to which a command writes its data.
///
/// `write!` and `writeln!` write one line of text, cleaned; line breaks at its ends stay.
pub struct Output<W: Write = BufWriter<StdoutLock<'static>>> {
    out: W,
}

impl Output {
    /// Takes stdout until it is dropped; data is buffered until it is flushed.
    pub fn stdout() -> Self {
        Self { out: BufWriter::new(io::stdout().lock()) }
    }
}

impl<W: Write> Output<W> {
    /// Writes to `out`.
    pub const fn to(out: W) -> Self {
        Self { out }
    }

    /// Writes a line of text, of which nothing but line breaks at its ends controls a terminal.
    pub fn write_fmt(&mut self, line: fmt::Arguments<'_>) -> io::Result<()> {
        self.out.write_all(plain_line(&line.to_string()).as_bytes())
    }

    /// Writes one JSON value on a line of its own, with escapes for all that is not plain text.
    pub fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string(value).map_err(io::Error::from)?;
        self.out.write_all(plain_json(text).as_bytes())?;
        self.out.write_all(b"\n")
    }

    /// Returns the writer for bytes that are no lines of text: files in their formats, and pictures whose texts are
    /// cleaned already.
    pub const fn bytes(&mut self) -> &mut W {
        &mut self.out
    }

    /// Writes out what is buffered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Returns what it wrote to.
    #[cfg(test)]
    pub(crate) fn into_inner(self) -> W {
        self.out
    }
}

/// Writes one line of a message to stderr, cleaned as lines on stdout are.
pub fn say(line: &str) {
    // Nobody is left to tell if stderr is gone.
    let _said = writeln!(io::stderr().lock(), "{}", plain_line(line));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_neither_controls_a_terminal_nor_begins_another_line() {
        let mut out = Output::to(Vec::new());
        let name = "a\u{1b}[2J\nb\u{9b}\u{202e}";
        writeln!(out, "\nnode {name}").unwrap();
        let wanted = "\nnode a\\u{1b}[2J\\u{a}b\\u{9b}\\u{202e}\n";
        assert_eq!(String::from_utf8(out.into_inner()).unwrap(), wanted);
    }
}
