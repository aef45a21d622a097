//! `rollhouse completions` and `rollhouse man`: the command line's description for shells and for `man`.

use std::fs;
use std::io::Write;

use crate::args::{CompletionsArgs, ManArgs, command};
use crate::failure::{Failure, Status};
use crate::output::Output;

/// Prints the script with which a shell completes the command.
pub(crate) fn for_shell(args: &CompletionsArgs, out: &mut Output) -> Result<Status, Failure> {
    // In memory first: it panics where it cannot write, as to `| head`.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), NAME, &mut script);
    out.bytes().write_all(&script)?;
    Ok(Status::Done)
}

/// Writes a page for each command that is not hidden.
pub(crate) fn pages(args: &ManArgs) -> Result<Status, Failure> {
    let written =
        fs::create_dir_all(&args.folder).and_then(|()| clap_mangen::generate_to(command(), &args.folder));
    written
        .map(|()| Status::Done)
        .map_err(|error| Failure::new(Status::Failed, format_args!("{}: {error}", args.folder.display())))
}

const NAME: &str = "rollhouse";
