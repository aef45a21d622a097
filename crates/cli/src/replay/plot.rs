//! `rollhouse replay stats --plot`: draws returns and lengths.

use std::io::{self, IsTerminal, Write};

use rollhouse_viewer::{Look, overview_screen};

use crate::args::StatsArgs;
use crate::failure::{Failure, Status};
use crate::output::{Output, say};
use crate::replay::read_failure;
use crate::replay::source::Source;

pub(super) fn run(args: &StatsArgs, out: &mut Output) -> Result<Status, Failure> {
    let source = Source::of(&args.data)?;
    let envs = source.open()?.overview().map_err(read_failure)?;
    if envs.is_empty() {
        say(&format!("no episodes to draw in {}", source.shown()));
        return Ok(Status::Done);
    }
    if let Some(path) = &args.svg {
        let svg = overview_screen(&envs, COLUMNS, Look::Colour).svg();
        std::fs::write(path, svg).map_err(|error| {
            Failure::new(Status::Failed, format_args!("writing {} failed: {error}", path.display()))
        })?;
        return Ok(Status::Done);
    }
    let is_terminal = io::stdout().is_terminal();
    let look = if is_terminal { Look::of(|name| std::env::var(name).ok()) } else { Look::Plain };
    let columns = rustix::termios::tcgetwinsize(io::stdout()).map_or(COLUMNS, |size| size.ws_col);
    out.bytes().write_all(overview_screen(&envs, columns, look).text(is_terminal).as_bytes())?;
    Ok(Status::Done)
}

/// Number of columns if there is no terminal to tell it.
const COLUMNS: u16 = 100;
