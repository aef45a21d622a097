//! The output of commands: buffered data on stdout, messages on stderr.
//!
//! Names, causes and notes may be chosen by others. Lines of text and messages are therefore cleaned here, where all of
//! them pass, and not by callers: they cannot control a terminal, nor begin a line of their own.

use std::fmt;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Writes one line of a message to stderr, cleaned as lines on stdout are; as an object `{"note": ...}` where messages are
/// JSON.
pub fn say(line: &str) {
    match messages_are_json() {
        true => say_json(&Note { note: line.strip_prefix("note: ").unwrap_or(line) }),
        false => say_line(line),
    }
}

/// Writes what went wrong to stderr: `error: ...` and the hints below it, or an object that docs/json.md describes. The
/// code is that with which the command will end; null while it goes on.
pub fn complain(error: &str, hints: &[String], code: Option<u8>) {
    if messages_are_json() {
        return say_json(&Complaint { error, hints, code });
    }
    say_line(&format!("error: {error}"));
    hints.iter().for_each(|hint| say_line(hint));
}

/// Makes every message on stderr an object of JSON on a line of its own from here on: of a command with `--json`.
pub fn use_json_messages() {
    JSON_MESSAGES.store(true, Ordering::Relaxed);
}

/// Returns whether messages on stderr are JSON.
pub(crate) fn messages_are_json() -> bool {
    JSON_MESSAGES.load(Ordering::Relaxed)
}

/// The form of messages: of the process, as stderr is.
static JSON_MESSAGES: AtomicBool = AtomicBool::new(false);

#[derive(Serialize)]
struct Note<'a> {
    note: &'a str,
}

#[derive(Serialize)]
struct Complaint<'a> {
    error: &'a str,
    hints: &'a [String],
    code: Option<u8>,
}

fn say_line(line: &str) {
    // Nobody is left to read it if stderr is gone.
    let _said = writeln!(io::stderr().lock(), "{}", plain_line(line));
}

fn say_json(message: &impl Serialize) {
    if let Ok(text) = serde_json::to_string(message) {
        // As above.
        let _said = writeln!(io::stderr().lock(), "{}", plain_json(text));
    }
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
