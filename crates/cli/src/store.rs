//! `rollhouse store`: carries recordings to other places for keeping, and back.

mod export;
mod import;
mod progress;
mod verify;

use std::collections::BTreeSet;

use rollhouse_archive::{SegmentId, Shelf, Target, TargetError, TargetFault, TargetOptions};
use serde::Serialize;

use crate::args::{StoreWhat, TargetArgs};
use crate::failure::{Failure, Status};
use crate::output::{Output, say};

pub(crate) fn run(what: &StoreWhat, out: &mut Output) -> Result<Status, Failure> {
    match what {
        StoreWhat::Export(args) => export::run(args, out),
        StoreWhat::Import(args) => import::run(args, out),
        StoreWhat::Verify(args) => verify::run(args, out),
    }
}

/// Opens the shelf of the named target.
fn shelf(name: &str, args: &TargetArgs) -> Result<Shelf, Failure> {
    let options = TargetOptions { endpoint: args.endpoint.clone(), allow_http: args.allow_http };
    Target::named(name, &options).map(Shelf::new).map_err(|error| target_failure(&error))
}

/// Returns the segments at a target. Without any the target's name is probably wrong, so that is a failure.
fn segments_of(shelf: &Shelf) -> Result<BTreeSet<SegmentId>, Failure> {
    let segments = shelf.segments().map_err(|error| target_failure(&error))?;
    if segments.is_empty() {
        let what = format!("nothing was exported to {}", shelf.target().shown());
        return Err(Failure::new(Status::Usage, what));
    }
    Ok(segments)
}

/// Makes the failure of a command from that of a target.
pub(crate) fn target_failure(error: &TargetError) -> Failure {
    let status = match error.fault {
        TargetFault::Name => Status::Usage,
        TargetFault::Refused => Status::Refused,
        TargetFault::Unavailable => Status::Unavailable,
        TargetFault::Failed => Status::Failed,
    };
    let failure = Failure::of(status, error);
    match status {
        Status::Refused => failure
            .hint("the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY say who asks object storage"),
        Status::Unavailable => failure.hint("what was carried is there: the same command goes on from it"),
        _ => failure,
    }
}

/// A segment that was left out, with the reason; the field names are part of the interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct LeftOut {
    folder: String,
    segment: u64,
    why: String,
}

/// Reports which segments were left out.
fn say_left_out(left_out: &[LeftOut]) {
    for LeftOut { folder, segment, why } in left_out.iter().take(MOST_SHOWN) {
        say(&format!("left out: segment {segment} of {folder}: {why}"));
    }
    if left_out.len() > MOST_SHOWN {
        say(&format!("... and {} more; --json lists all of them", left_out.len() - MOST_SHOWN));
    }
}

/// Number of segments that are reported one by one.
const MOST_SHOWN: usize = 20;
