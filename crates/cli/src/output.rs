//! Stdout: data, buffered.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use rollhouse_coordinator::Level;
use serde::Serialize;

use crate::human::rfc3339;

/// Where a command's data goes.
pub(crate) struct Output {
    out: BufWriter<StdoutLock<'static>>,
}

impl Output {
    pub(crate) fn stdout() -> Self {
        Self { out: BufWriter::new(io::stdout().lock()) }
    }

    /// One JSON value on a line of its own.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, value).map_err(io::Error::from)?;
        self.out.write_all(b"\n")
    }
}

/// One line of talk, on stderr.
pub(crate) fn say(line: &str) {
    // Nobody is left to tell if stderr is gone.
    let _said = writeln!(io::stderr().lock(), "{line}");
}

/// One line of a service's log, on stderr: `2026-11-20T23:47:02.125Z info  joined the coordinator, term 2`.
pub(crate) fn log(level: Level, line: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = rfc3339(u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    let level = match level {
        Level::Info => "info ",
        Level::Warning => "warn ",
        Level::Error => "error",
    };
    say(&format!("{time} {level} {line}"));
}

/// A line that asks nothing of whoever reads it; see [`log`].
pub(crate) fn info(line: &str) {
    log(Level::Info, line);
}

/// A line about what may go on by itself; see [`log`].
pub(crate) fn warn(line: &str) {
    log(Level::Warning, line);
}

/// A line about what somebody has to look after; see [`log`].
pub(crate) fn error(line: &str) {
    log(Level::Error, line);
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
