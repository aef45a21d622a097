//! `rollhouse store verify`: reads everything at a target and reports damage.

use std::collections::BTreeSet;

use rollhouse_archive::SegmentId;
use serde::Serialize;

use super::progress::Progress;
use super::{MOST_SHOWN, segments_of, shelf, target_failure};
use crate::args::StoreVerifyArgs;
use crate::failure::{Failure, Status};
use crate::human::{Bytes, counted};
use crate::output::{Output, say};

pub(super) fn run(args: &StoreVerifyArgs, out: &mut Output) -> Result<Status, Failure> {
    let shelf = shelf(&args.from, &args.target)?;
    let segments = segments_of(&shelf)?;
    let mut verified = Verified { target: shelf.target().shown().to_owned(), ..Verified::default() };
    let manifests = shelf.manifests(|name, manifest| {
        verified.manifests += 1;
        match manifest {
            None => drop(verified.flaws.insert(format!("{name} is damaged"))),
            Some(manifest) => verified.missing(&segments, manifest.segments()),
        }
    });
    manifests.map_err(|error| target_failure(&error))?;
    let mut progress = Progress::new("verifying", segments.len());
    for id in &segments {
        let fetched = shelf.fetch(id);
        if fetched.is_err() {
            progress.clear();
        }
        let bytes = match fetched.map_err(|error| target_failure(&error))? {
            Ok(checked) => {
                verified.segments += 1;
                verified.episodes += checked.episodes;
                checked.bytes.len() as u64
            }
            Err(flaw) => {
                verified.flaws.insert(flaw.to_string());
                0
            }
        };
        verified.bytes += bytes;
        progress.add(bytes);
    }
    progress.clear();
    verified.print(args.json, out)?;
    Ok(if verified.flaws.is_empty() { Status::Done } else { Status::Found })
}

/// The result; the field names are part of the interface.
#[derive(Debug, Default, Serialize)]
struct Verified {
    target: String,
    /// Number of segments that are whole.
    segments: u64,
    bytes: u64,
    episodes: u64,
    manifests: u64,
    flaws: BTreeSet<String>,
}

impl Verified {
    /// Notes segments that a manifest lists and the target does not have; each once.
    fn missing(&mut self, there: &BTreeSet<SegmentId>, listed: impl Iterator<Item = SegmentId>) {
        for id in listed.filter(|id| !there.contains(id)) {
            self.flaws.insert(format!("{} is missing", id.label_object()));
        }
    }

    fn print(&self, json: bool, out: &mut Output) -> Result<(), Failure> {
        if json {
            return Ok(out.json(self)?);
        }
        for flaw in self.flaws.iter().take(MOST_SHOWN) {
            writeln!(out, "{flaw}")?;
        }
        if self.flaws.len() > MOST_SHOWN {
            writeln!(out, "... and {} more; --json lists all of them", self.flaws.len() - MOST_SHOWN)?;
        }
        let (segments, episodes) = (counted(self.segments, "segment"), counted(self.episodes, "episode"));
        writeln!(out, "{segments} of {} are whole ({}, {episodes})", self.target, Bytes(self.bytes))?;
        if !self.flaws.is_empty() {
            say("remove what is damaged there and export it again; what is damaged is never imported");
        }
        Ok(())
    }
}
