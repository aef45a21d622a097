//! A worker that does what it is told, for trying and testing a host.
//!
//! Its argument is the host's process id, or the folder in which a host listens; then a second one may be a place. A hello of "never" makes it hang before it is
//! ready, one of "refuse" makes it end. One of "connect" makes it say twice that it tries to connect before it is ready, one
//! of "connect for ever" three times before it hangs.

use std::io::{Read, Write};
use std::process::ExitCode;

use rollhouse_host::{Command, Link, LinkError};

/// Answers with the payload in reverse and the code it came with.
pub const ECHO: u64 = 1;
/// Ends with the exit code in the payload's first byte.
pub const EXIT: u64 = 2;
/// Never answers.
pub const HANG: u64 = 3;
/// Starts a process that outlives this one if nobody ends it, and answers with its id in decimal.
pub const SPAWN: u64 = 4;
/// Writes as many bytes as the payload's first eight say to the standard error before it answers.
pub const SAY: u64 = 5;
/// Says that it has tried so many times to connect as the payload's first eight bytes say, and never answers.
pub const CONNECT: u64 = 7;
/// Publishes the payload's first eight bytes as the first word, and never answers.
pub const PUBLISH: u64 = 6;

fn main() -> ExitCode {
    match work() {
        Ok(code) => code,
        Err(error) => panic!("{error}"),
    }
}

fn work() -> Result<ExitCode, LinkError> {
    let told = std::env::args().nth(1).ok_or(LinkError::Protocol("no process id of the host"))?;
    let mut link = match told.parse() {
        Ok(host) => Link::open(host)?,
        Err(_) => {
            let place = std::env::args().nth(2).and_then(|place| place.parse().ok());
            Link::connect(std::path::Path::new(&told), place)?
        }
    };
    match link.hello() {
        b"never" => hang(),
        b"refuse" => {
            std::io::stderr().write_all(b"refused\n")?;
            return Ok(ExitCode::from(9));
        }
        b"connect" => (1..=2).chain([0]).try_for_each(|retries| link.connecting(retries))?,
        b"connect for ever" => {
            (1..=3).try_for_each(|retries| link.connecting(retries))?;
            hang();
        }
        _ => {}
    }
    let hello = link.hello().to_vec();
    link.ready(&hello)?;
    loop {
        let Command { code, mut payload } = match link.receive() {
            Err(LinkError::Os(error)) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            command => command?,
        };
        match code {
            EXIT => return Ok(ExitCode::from(payload.first().copied().unwrap_or(0))),
            HANG => hang(),
            CONNECT => {
                link.connecting(payload.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))?;
                hang();
            }
            PUBLISH => {
                let number = payload.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                link.publish(0, number)?;
                hang();
            }
            SAY => {
                let bytes = payload.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                std::io::copy(&mut std::io::repeat(b'x').take(bytes), &mut std::io::stderr())?;
                link.reply(code, &[])?;
            }
            SPAWN => {
                let child = std::process::Command::new("sleep").arg("1000").spawn()?;
                link.reply(code, child.id().to_string().as_bytes())?;
            }
            _ => {
                payload.reverse();
                link.reply(code, &payload)?;
            }
        }
    }
}

fn hang() -> ! {
    loop {
        std::thread::park();
    }
}
