//! The output of commands: buffered data on stdout, messages on stderr.

use std::io::{self, BufWriter, StdoutLock, Write};

use serde::Serialize;

/// The buffered stdout to which a command writes its data.
pub struct Output {
    out: BufWriter<StdoutLock<'static>>,
}

impl Output {
    /// Takes stdout until it is dropped; data is buffered until it is flushed.
    pub fn stdout() -> Self {
        Self { out: BufWriter::new(io::stdout().lock()) }
    }

    /// Writes one JSON value on a line of its own.
    pub fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, value).map_err(io::Error::from)?;
        self.out.write_all(b"\n")
    }
}

/// Writes one line of a message to stderr.
pub fn say(line: &str) {
    // Nobody is left to tell if stderr is gone.
    let _said = writeln!(io::stderr().lock(), "{line}");
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
