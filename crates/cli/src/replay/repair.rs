//! `rollhouse replay repair`.

use std::io::{self, Write};
use std::sync::Arc;

use rollhouse_replay::{Disk, OpenError, RealDisk, RepairError, RepairReport, repair_all};

use crate::args::{Place, RepairArgs};
use crate::failure::{Failure, Status};
use crate::human::{Bytes, counted};
use crate::output::Output;
use crate::replay::stats::{Damaged, print_damage};
use crate::replay::{read_failure, subfolder};

pub(super) fn run(args: &RepairArgs, out: &mut Output) -> Result<Status, Failure> {
    let Place::Folder(data) = args.data.place() else {
        return Err(Failure::new(Status::Usage, "the store of a cluster cannot be repaired from afar")
            .hint("its coordinator repairs it when it starts; --data DIR names a folder on this machine"));
    };
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let repairs = repair_all(&disk, &data).map_err(read_failure)?;
    let several = repairs.len() > 1;
    let (mut repaired, mut damage) = (0, Vec::new());
    let (mut refused, mut failed) = (None, None);
    for repair in repairs {
        let folder = subfolder(&data, &repair.dir);
        match repair.result {
            Ok(report) => {
                repaired += 1;
                let of = if several { format!("{}: ", repair.dir.display()) } else { String::new() };
                print(&of, &report, out)?;
                damage.extend(report.damage.iter().map(|stretch| Damaged::of(folder.clone(), stretch)));
            }
            Err(error @ RepairError::Open(OpenError::Locked { .. })) => {
                if several {
                    writeln!(out, "{error}; it is left alone")?;
                }
                refused.get_or_insert(error);
            }
            Err(error) => {
                if let Some(earlier) = failed.replace(failure(error)) {
                    let _code = earlier.report();
                }
            }
        }
    }
    if repaired > 0 {
        match several {
            false => writeln!(out, "The catalogue is made anew.")?,
            true => {
                writeln!(out, "{} repaired, each with its catalogue made anew.", counted(repaired, "folder"))?
            }
        }
        print_damage(&damage, out)?;
    }
    match (failed, refused) {
        (Some(failure), _) => Err(failure),
        (None, Some(error)) if repaired == 0 => Err(failure(error)),
        _ => Ok(if damage.is_empty() { Status::Done } else { Status::Found }),
    }
}

/// What was done to a folder; `of` says which one.
fn print(of: &str, report: &RepairReport, out: &mut Output) -> io::Result<()> {
    for (segment, bytes) in &report.truncated {
        writeln!(out, "{of}segment {segment}: cut off {} that a crash had left half written", Bytes(*bytes))?;
    }
    for segment in &report.removed {
        writeln!(out, "{of}segment {segment}: removed, since nothing in it was complete")?;
    }
    let sealed = report.sealed.len() as u64;
    if sealed > 0 {
        writeln!(out, "{of}{} sealed that a crash had left open", counted(sealed, "segment"))?;
    }
    Ok(())
}

fn failure(error: RepairError) -> Failure {
    match error {
        RepairError::Read(error) => read_failure(error),
        RepairError::Open(OpenError::Locked { .. }) => Failure::of(Status::Refused, &error)
            .hint("a running recording repairs what it needs by itself; wait for it to end"),
        RepairError::Open(_) => Failure::of(Status::Failed, &error),
    }
}
