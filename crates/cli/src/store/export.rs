//! `rollhouse store export`: carries recordings to a target.

use std::collections::BTreeSet;

use rollhouse_archive::{Carried, Kept, Manifest, Outgoing, OutgoingError, SegmentId, Selection, Shelf};
use rollhouse_core::RunId;
use serde::Serialize;

use super::progress::Progress;
use super::{LeftOut, say_left_out, shelf, target_failure};
use crate::args::StoreExportArgs;
use crate::failure::{Failure, Status};
use crate::human::{Bytes, counted};
use crate::output::{Output, say};
use crate::replay::read_failure;
use crate::replay::source::Source;

pub(super) fn run(args: &StoreExportArgs, out: &mut Output) -> Result<Status, Failure> {
    let shelf = shelf(&args.to, &args.target)?;
    let source = Source::of(&args.data)?;
    let library = source.open()?;
    let which = if args.all { Selection::All } else { Selection::Runs(args.runs.iter().copied().collect()) };
    let carried = Carried::of(source.disk(), &library, &which).map_err(|error| outgoing_failure(&error))?;
    if let Selection::Runs(asked) = &which {
        every_run_is_there(asked, &carried.runs)?;
    }
    shelf.target().prepare().map_err(|error| target_failure(&error))?;
    // Over the network reading again costs what sending does: there a segment's folder and number have to do.
    let there = if source.is_folder() { BTreeSet::new() } else { found(&shelf)? };
    let mut export = Export { to: shelf.target().shown().to_owned(), ..Export::default() };
    export.runs = carried.runs.len() as u64;
    export.unsealed = carried.unsealed;
    let mut manifest = Manifest::new();
    let mut progress = Progress::new("exporting", carried.segments.len());
    for outgoing in &carried.segments {
        let done = carry(&shelf, outgoing, &there, &mut manifest, &mut export);
        if done.is_err() {
            progress.clear();
        }
        done?;
        progress.add(outgoing.bytes);
    }
    progress.clear();
    if !manifest.is_empty() {
        export.manifest = Some(shelf.conclude(&manifest).map_err(|error| target_failure(&error))?);
    }
    export.print(args.json, out)?;
    Ok(if export.left_out.is_empty() { Status::Done } else { Status::Found })
}

/// The result; the field names are part of the interface.
#[derive(Debug, Default, Serialize)]
struct Export {
    to: String,
    runs: u64,
    segments: u64,
    bytes: u64,
    episodes: u64,
    /// Number of these segments that were there already.
    present: u64,
    sent_bytes: u64,
    /// Number of segments without a seal, which are not carried.
    unsealed: u64,
    left_out: Vec<LeftOut>,
    manifest: Option<String>,
}

impl Export {
    fn print(&self, json: bool, out: &mut Output) -> Result<(), Failure> {
        if json {
            return Ok(out.json(self)?);
        }
        say_left_out(&self.left_out);
        if self.unsealed > 0 {
            let unsealed = counted(self.unsealed, "segment");
            say(&format!(
                "{unsealed} without a seal stayed: what is being recorded comes with the next export"
            ));
        }
        let (runs, segments) = (counted(self.runs, "run"), counted(self.segments, "segment"));
        writeln!(out, "{runs} in {segments} ({}) at {}", Bytes(self.bytes), self.to)?;
        let sent = self.segments - self.present;
        let (sent, present) = (counted(sent, "segment"), counted(self.present, "segment"));
        writeln!(out, "{sent} sent ({}), {present} there already", Bytes(self.sent_bytes))?;
        Ok(())
    }
}

/// Returns the segments that have a label at the target.
fn found(shelf: &Shelf) -> Result<BTreeSet<SegmentId>, Failure> {
    shelf.segments().map_err(|error| target_failure(&error))
}

/// Carries one segment, unless it is there.
fn carry(
    shelf: &Shelf,
    outgoing: &Outgoing,
    there: &BTreeSet<SegmentId>,
    manifest: &mut Manifest,
    export: &mut Export,
) -> Result<(), Failure> {
    let Outgoing { folder, number, .. } = outgoing;
    let least = SegmentId { number: *number, folder: folder.clone(), crc: 0 };
    let known = there.range(&least..).next().filter(|id| (id.number, &id.folder) == (*number, folder));
    if let Some(id) = known {
        manifest.add(id, outgoing.bytes);
        export.segments += 1;
        export.present += 1;
        export.bytes += outgoing.bytes;
        return Ok(());
    }
    let Some(checked) = outgoing.read().map_err(read_failure)? else {
        let why = "it is damaged; `rollhouse replay stats` says where".to_owned();
        export.left_out.push(LeftOut { folder: folder.clone(), segment: *number, why });
        return Ok(());
    };
    let bytes = checked.bytes.len() as u64;
    let kept = shelf.keep(&checked).map_err(|error| target_failure(&error))?;
    manifest.add(&checked.id, bytes);
    export.segments += 1;
    export.bytes += bytes;
    export.episodes += checked.episodes;
    match kept {
        Kept::Present => export.present += 1,
        Kept::Sent => export.sent_bytes += bytes,
    }
    Ok(())
}

fn every_run_is_there(asked: &BTreeSet<u64>, runs: &BTreeSet<RunId>) -> Result<(), Failure> {
    let there: BTreeSet<u64> = runs.iter().map(|run| run.short()).collect();
    match asked.difference(&there).count() {
        0 => Ok(()),
        missing => {
            let what =
                format!("{} of those asked for is in no sealed segment", counted(missing as u64, "run"));
            let hint = "`rollhouse replay ls` shows runs in front of the episodes' names; what is being recorded is sealed \
                        when its segment is full or the recorder ends";
            Err(Failure::new(Status::Usage, what).hint(hint))
        }
    }
}

fn outgoing_failure(error: &OutgoingError) -> Failure {
    let hint = "it is written once to the file `spool` in the folder, which has to be writable for that";
    Failure::of(Status::Failed, error).hint(hint)
}
