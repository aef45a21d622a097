//! `rollhouse replay repair`: repairs a folder or a store after a crash or damage.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rollhouse_client::Cluster;
use rollhouse_replay::{Disk, OpenError, RealDisk, RepairError, RepairReport, repair_all};
use rollhouse_wire::{RefusalCode, StoreEntry, StoreList, StoreListing};

use crate::args::{Place, RepairArgs};
use crate::connect::{connect, request_failure};
use crate::failure::{Failure, Status};
use crate::human::{Bytes, counted};
use crate::output::Output;
use crate::replay::source::Source;
use crate::replay::stats::{Damaged, damage_of, print_damage, print_incomplete};
use crate::replay::{read_failure, subfolder};

pub(super) fn run(args: &RepairArgs, out: &mut Output) -> Result<Status, Failure> {
    match args.data.place() {
        Place::Folder(data) => folder(&data, out),
        Place::Cluster => store(args, out),
    }
}

/// Asks a coordinator to read its whole store again. Segments appear in a store whole or not at all, so there is
/// nothing to cut off: the files beside them are rebuilt, and damage stays and is reported.
fn store(args: &RepairArgs, out: &mut Output) -> Result<Status, Failure> {
    let cluster = connect(&args.data.cluster)?;
    let (mut segments, mut bytes) = (0, 0);
    for folder in entries(&cluster, "")?.into_iter().filter(|entry| entry.bytes.is_none()) {
        let path = format!("{}/{SEGMENTS}", folder.name);
        for segment in entries(&cluster, &path)? {
            match cluster.repair_store(format!("{path}/{}", segment.name)) {
                Ok(repaired) => {
                    segments += 1;
                    bytes += repaired.bytes;
                }
                // Dropped since it was listed, to keep the store's budget.
                Err(error) if error.refusal() == Some(RefusalCode::NotFound) => {}
                Err(error) => return Err(request_failure(&error)),
            }
        }
    }
    let (count, bytes) = (counted(segments, "segment"), Bytes(bytes));
    writeln!(out, "The coordinator has read {count} ({bytes}) and made its summaries anew.")?;
    let source = Source::of(&args.data)?;
    let library = source.open()?;
    let damage = damage_of(&source, &library);
    print_incomplete(library.incomplete().map_err(read_failure)?, out)?;
    print_damage(&damage, out)?;
    Ok(if damage.is_empty() { Status::Done } else { Status::Found })
}

/// Returns all entries of a folder of the store.
fn entries(cluster: &Cluster, path: &str) -> Result<Vec<StoreEntry>, Failure> {
    let mut all: Vec<StoreEntry> = Vec::new();
    loop {
        let after = all.last().map_or_else(String::new, |entry| entry.name.clone());
        let list = StoreList { path: path.to_owned(), after };
        let listing: StoreListing = cluster.request(list).map_err(|error| request_failure(&error))?;
        let ends = listing.entries.is_empty() || !listing.more;
        all.extend(listing.entries);
        if ends {
            return Ok(all);
        }
    }
}

fn folder(data: &Path, out: &mut Output) -> Result<Status, Failure> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let repairs = repair_all(&disk, data).map_err(read_failure)?;
    let several = repairs.len() > 1;
    let (mut repaired, mut incomplete, mut damage) = (0, 0, Vec::new());
    let (mut refused, mut failed) = (None, None);
    for repair in repairs {
        let folder = subfolder(data, &repair.dir);
        match repair.result {
            Ok(report) => {
                repaired += 1;
                incomplete += report.incomplete;
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
        print_incomplete(incomplete, out)?;
        print_damage(&damage, out)?;
    }
    match (failed, refused) {
        (Some(failure), _) => Err(failure),
        (None, Some(error)) if repaired == 0 => Err(failure(error)),
        _ => Ok(if damage.is_empty() { Status::Done } else { Status::Found }),
    }
}

/// Prints what was done to a folder, which `of` names.
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

/// The subfolder in which a store's folder keeps its segments.
const SEGMENTS: &str = "segments";
