//! Going on from a step by hand.

use crate::args::ForkArgs;
use crate::failure::{Failure, Status};
use crate::output::Output;
use crate::play::{BY_HAND, GameSetup, print};

use super::{Fork, open};

pub(super) fn run(args: &ForkArgs, fork: &Fork<'_>, out: &mut Output) -> Result<Status, Failure> {
    let (dir, recorder) = (args.folder(), open(args)?);
    let lane = fork.begin(&recorder, BY_HAND, None)?;
    let about = format!("fork of {}, played by hand, recorded in {}", fork.parent(), dir.display());
    let spec = fork.entry.spec();
    let sitting = GameSetup { entry: &fork.entry, spec, about: &about, can_begin_anew: false };
    let (count, played) = sitting.play(lane, recorder, &args.hand)?;
    print(&played, count, &format!("{}, fork of {}", spec.id, fork.parent()), &dir, out)?;
    Ok(Status::Done)
}
