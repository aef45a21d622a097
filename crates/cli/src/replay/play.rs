//! `rollhouse replay play`.

use std::io::{self, IsTerminal};

use rollhouse_env::Registry;
use rollhouse_viewer::{Look, ViewError, Viewing, view};

use crate::args::PlayArgs;
use crate::failure::{Failure, Status};
use crate::human::When;
use crate::replay::read_failure;
use crate::replay::source::Source;

pub(super) fn run(args: &PlayArgs) -> Result<Status, Failure> {
    if !io::stdout().is_terminal() {
        let failure = Failure::new(Status::Usage, "an episode is played on a terminal, and stdout is none");
        return Err(failure.hint(format_args!(
            "`rollhouse replay show {name}` says what is known of it, `rollhouse replay export {name}` writes its steps out",
            name = args.name
        )));
    }
    let library = Source::of(&args.data)?.open()?;
    let first = library.find(args.name).map_err(read_failure)?;
    let viewing = Viewing {
        library: &library,
        registry: &Registry::builtin(),
        look: Look::of(|name| std::env::var(name).ok()),
        when: &|ms| When(ms).to_string(),
        at: args.at,
        speed: args.speed.0,
    };
    view(&viewing, &first).map_err(|error| match error {
        ViewError::Read(error) => read_failure(error),
        ViewError::Terminal(_) => Failure::of(Status::Failed, &error),
    })?;
    Ok(Status::Done)
}
