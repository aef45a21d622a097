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
        return Err(failure.hint(
            "`rollhouse replay show NAME` says what is known of one, `rollhouse replay export NAME` writes its steps out",
        ));
    }
    let source = Source::of(&args.data)?;
    let library = source.open()?;
    let first = args.name.map(|name| library.find(name)).transpose().map_err(read_failure)?;
    let viewing = Viewing {
        library: &library,
        place: source.shown(),
        registry: &Registry::builtin(),
        look: Look::of(|name| std::env::var(name).ok()),
        when: &|ms| When(ms).to_string(),
        at: args.at,
        speed: args.speed.0,
    };
    view(&viewing, first.as_ref()).map_err(|error| match error {
        ViewError::Read(error) => read_failure(error),
        ViewError::Terminal(_) => Failure::of(Status::Failed, &error),
    })?;
    Ok(Status::Done)
}
