//! Stdout: data, buffered.

use std::io::{self, BufWriter, StdoutLock, Write};

use serde::Serialize;

/// Where a command's data goes.
pub struct Output {
    out: BufWriter<StdoutLock<'static>>,
}

impl Output {
    /// Takes stdout until it is dropped; what is written is buffered until it is flushed.
    pub fn stdout() -> Self {
        Self { out: BufWriter::new(io::stdout().lock()) }
    }

    /// One JSON value on a line of its own.
    pub fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, value).map_err(io::Error::from)?;
        self.out.write_all(b"\n")
    }
}

/// One line of talk, on stderr.
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
