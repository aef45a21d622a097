//! `rollhouse replay repair`.

use std::io::Write;
use std::sync::Arc;

use rollhouse_replay::{OpenError, RealDisk, RepairError, repair};

use crate::args::RepairArgs;
use crate::failure::{Failure, Status};
use crate::human::{Bytes, counted};
use crate::output::Output;
use crate::replay::read_failure;
use crate::replay::stats::print_damage;

pub(super) fn run(args: &RepairArgs, out: &mut Output) -> Result<Status, Failure> {
    let report = repair(Arc::new(RealDisk), &args.data.data).map_err(|error| match error {
        RepairError::Read(error) => read_failure(error),
        RepairError::Open(OpenError::Locked { .. }) => Failure::of(Status::Refused, &error)
            .hint("a running recording repairs what it needs by itself; wait for it to end"),
        RepairError::Open(_) => Failure::of(Status::Failed, &error),
    })?;
    for (segment, bytes) in &report.truncated {
        writeln!(out, "segment {segment}: cut off {} that a crash had left half written", Bytes(*bytes))?;
    }
    for segment in &report.removed {
        writeln!(out, "segment {segment}: removed, since nothing in it was complete")?;
    }
    let sealed = report.sealed.len() as u64;
    if sealed > 0 {
        writeln!(out, "{} sealed that a crash had left open", counted(sealed, "segment"))?;
    }
    writeln!(out, "The catalogue is made anew.")?;
    print_damage(&report.damage, out)?;
    Ok(if report.damage.is_empty() { Status::Done } else { Status::Found })
}
