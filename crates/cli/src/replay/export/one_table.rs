//! The export of several episodes as one table.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rollhouse_env::Registry;
use rollhouse_export::{ExportError, LeftOut, ParquetFile};
use rollhouse_replay::LibraryEpisode;

use super::chosen::Chosen;
use super::progress::Progress;
use super::whole_file::WholeFile;
use super::{WriteError, nothing_chosen};
use crate::failure::{Failure, Status};
use crate::human::counted;
use crate::output::{Output, say};
use crate::replay::read_failure;
use crate::signals;

/// Writes all episodes into a file, or to stdout if none is named.
pub(super) fn write(
    chosen: &mut Chosen,
    registry: &Registry,
    output: Option<&Path>,
    out: &mut Output,
) -> Result<Status, Failure> {
    let left_out = match output {
        Some(path) => {
            let (ending, mut progress) = (signals::ending()?, Progress::new(None));
            let written = write_file(chosen, registry, path, &ending, &mut progress);
            progress.clear();
            written?
        }
        None => {
            if io::stdout().is_terminal() {
                let failure = Failure::new(Status::Usage, "a parquet cannot be shown on a terminal");
                return Err(failure.hint("-o FILE writes it into a file"));
            }
            let of_error = |error: ExportError| match error {
                ExportError::Write(error) => error.into(),
                error => Failure::of(Status::Failed, &error),
            };
            write_rows(chosen, registry, out.bytes(), &mut |_, _| true, &of_error)?
        }
    };
    Ok(if left_out > 0 { Status::Failed } else { Status::Done })
}

fn write_file(
    chosen: &mut Chosen,
    registry: &Registry,
    path: &Path,
    ending: &AtomicBool,
    progress: &mut Progress,
) -> Result<u64, Failure> {
    let of_disk = |error| WriteError::File(error).of_file(path);
    let of_error = |error: ExportError| match error {
        ExportError::Write(error) => of_disk(error),
        error => WriteError::Export(error).of_file(path),
    };
    let mut file = BufWriter::new(WholeFile::create(path).map_err(of_disk)?);
    let mut watch = |episodes, steps| {
        progress.table(episodes, steps);
        !ending.load(Ordering::Relaxed)
    };
    let left_out = write_rows(chosen, registry, &mut file, &mut watch, &of_error)?;
    let file = file.into_inner().map_err(|error| of_disk(error.into_error()))?;
    file.finish().map_err(of_disk)?;
    Ok(left_out)
}

/// Writes the table and returns how many episodes are left out. `watch` is told about episodes and steps, and says
/// whether to go on.
fn write_rows(
    chosen: &mut Chosen,
    registry: &Registry,
    out: &mut dyn Write,
    watch: &mut dyn FnMut(u64, u64) -> bool,
    of_error: &dyn Fn(ExportError) -> Failure,
) -> Result<u64, Failure> {
    let mut page = chosen.next_page()?.ok_or_else(nothing_chosen)?;
    let mut file = ParquetFile::new(registry, &page[0].info.run, out).map_err(of_error)?;
    let (mut episodes, mut left_out) = (0, 0);
    loop {
        for same in page.chunk_by(|one, next| Arc::ptr_eq(&one.folder, &next.folder)) {
            check_columns(&file, same, &page[0])?;
            let loaded = same[0].folder.load_many(same.iter().map(|found| &found.info));
            for (found, episode) in same.iter().zip(loaded) {
                episodes += 1;
                match episode {
                    Ok(episode) => {
                        let added = file.add(episode, &mut |steps| watch(episodes, steps));
                        left_out += tell(added.map_err(of_error)?);
                    }
                    Err(error) => {
                        let why = read_failure(error);
                        say(&format!("{} is left out: {}", found.info.name, why.message()));
                        left_out += 1;
                    }
                }
            }
        }
        match chosen.next_page()? {
            Some(next) => page = next,
            None => break,
        }
    }
    left_out += tell(file.finish(&mut |steps| watch(episodes, steps)).map_err(of_error)?);
    if left_out > 0 {
        say(&format!("{} left out", counted(left_out, "episode")));
    }
    Ok(left_out)
}

fn check_columns(
    file: &ParquetFile<'_>,
    found: &[LibraryEpisode],
    first: &LibraryEpisode,
) -> Result<(), Failure> {
    let other = found.iter().find(|other| !file.takes(&other.info.run));
    other.map_or(Ok(()), |other| {
        let (one, other) = (first.info.env(), other.info.env());
        let what = format!("episodes of {one} and {other} have different columns, and there is one table");
        Err(Failure::new(Status::Usage, what)
            .hint("--env ID chooses those of one env; --into DIR writes a file of each episode"))
    })
}

/// Names the episodes that are left out, and counts them.
fn tell(left_out: LeftOut) -> u64 {
    for (name, error) in &left_out {
        let why = Failure::of(Status::Failed, error);
        say(&format!("{name} is left out: {}", why.message()));
    }
    left_out.len() as u64
}
