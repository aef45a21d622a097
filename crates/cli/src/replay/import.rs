//! `rollhouse replay import`: takes in exported episodes, and lists what replays of OpenRA say of themselves.

mod openra;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rollhouse_core::{EpisodeName, open_regular};
use rollhouse_replay::limits::MAX_SEGMENT_BYTES;
use rollhouse_replay::{ImportError, Importer, OpenError, Portable, RealDisk};
use serde::Serialize;

use crate::args::ImportArgs;
use crate::failure::{Failure, Status};
use crate::human::{Count, Real, counted};
use crate::output::{Output, say};
use crate::replay::read_failure;

pub(super) fn run(args: &ImportArgs, out: &mut Output) -> Result<Status, Failure> {
    let dir = args.folder();
    let mut status = Status::Done;
    let mut left_out = |file: &Path, failure: &Failure| {
        say(&format!("{} is left out: {}", file.display(), failure.message()));
        if status == Status::Done {
            status = failure.status();
        }
    };
    let (listed, files): (Vec<&PathBuf>, Vec<_>) = args.files.iter().partition(|file| is_openra(file));
    for file in listed {
        match openra::read(file) {
            Ok(replay) => replay.print(args.json, out)?,
            Err(failure) => left_out(file, &failure),
        }
    }
    if files.is_empty() {
        return Ok(status);
    }
    let mut importer = Importer::open(Arc::new(RealDisk), &dir).map_err(import_failure)?;
    let mut taken = 0;
    for file in &files {
        match take_in(&mut importer, file) {
            Ok(imported) => {
                taken += 1;
                imported.print(args.json, out)?;
            }
            Err(failure) => left_out(file, &failure),
        }
    }
    if !args.json {
        let (taken, files) = (counted(taken, "episode"), counted(files.len() as u64, "file"));
        writeln!(out, "{taken} of {files} taken into {}", dir.display())?;
    }
    Ok(status)
}

/// Returns whether a file's name is that of a replay of OpenRA.
fn is_openra(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("orarep"))
}

/// Reads a file and adds its episodes.
fn take_in(importer: &mut Importer, file: &Path) -> Result<Imported, Failure> {
    let bytes = read(file)
        .map_err(|error| Failure::new(Status::Failed, format_args!("it cannot be read: {error}")))?;
    let episode = Portable::read(bytes).map_err(|error| Failure::of(Status::Found, &error))?;
    importer.add(&episode).map_err(import_failure)?;
    Ok(Imported::of(&episode))
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // What is longer is no recording: that it is cut off here shows.
    open_regular(file)?.take(MAX_SEGMENT_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The output of `--json` for an episode that was taken in; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct Imported {
    id: String,
    env: String,
    length: u64,
    #[serde(rename = "return")]
    total_reward: Option<f64>,
    outcome: &'static str,
    #[serde(skip)]
    name: EpisodeName,
}

impl Imported {
    fn of(episode: &Portable) -> Self {
        let info = episode.info();
        Self {
            id: info.name.to_string(),
            env: info.env().to_owned(),
            length: info.length,
            total_reward: info.total_reward,
            outcome: info.outcome.word(),
            name: info.name,
        }
    }

    fn print(&self, json: bool, out: &mut Output) -> io::Result<()> {
        if json {
            return out.json(self);
        }
        let total = self.total_reward.map_or_else(|| "?".to_owned(), |total| Real(total).to_string());
        let Self { name, env, length, outcome, .. } = self;
        writeln!(out, "{name}  {env}  return {total}  {} steps  {outcome}", Count(*length))
    }
}

fn import_failure(error: ImportError) -> Failure {
    match error {
        ImportError::Read(error) => read_failure(error),
        ImportError::Open(OpenError::Locked { .. }) => Failure::of(Status::Refused, &error)
            .hint("a folder has one writer at a time; --data DIR names another one"),
        ImportError::Store(_) => {
            let hint = "import into a folder, and carry that there by `rollhouse store export` and `rollhouse store import`";
            Failure::of(Status::Refused, &error).hint(hint)
        }
        ImportError::Present(_) => Failure::of(Status::Refused, &error),
        ImportError::Open(_) | ImportError::Disk(_) => Failure::of(Status::Failed, &error),
    }
}
