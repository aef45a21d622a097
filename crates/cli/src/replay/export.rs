//! `rollhouse replay export`: writes episodes out for other programs.

mod chosen;
#[cfg(feature = "formats")]
mod one_table;
mod progress;
mod whole_file;

use std::io::{self, BufWriter, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rollhouse_core::EpisodeName;
use rollhouse_env::Registry;
use rollhouse_export::{ExportError, Format, Settings, write};
use rollhouse_replay::LibraryEpisode;

use crate::args::ExportArgs;
use crate::failure::{Failure, Status};
use crate::human::{Bytes, Time, counted};
use crate::output::{Output, say};
use crate::replay::read_failure;
use crate::replay::source::Source;
use crate::signals;
use chosen::Chosen;
use progress::Progress;
use whole_file::WholeFile;

pub(super) fn run(args: &ExportArgs, out: &mut Output) -> Result<Status, Failure> {
    let form = Form { settings: args.settings()?, registry: args.plugins.registry()? };
    let mut chosen = Chosen::of(args, &Source::of(&args.data)?)?;
    match &args.into {
        Some(dir) => into_folder(&mut chosen, &form, dir, out),
        #[cfg(feature = "formats")]
        None if form.settings.format == Format::Parquet => {
            one_table::write(&mut chosen, &form.registry, args.output.as_deref(), out)
        }
        None => write_out(&chosen.only()?, &form, args.output.as_deref(), out),
    }
}

/// How episodes are written out.
pub(super) struct Form {
    pub(super) settings: Settings,
    /// The envs by which they are recomputed.
    pub(super) registry: Registry,
}

/// Writes an episode out, to a file if one is named.
pub(super) fn write_out(
    found: &LibraryEpisode,
    form: &Form,
    output: Option<&Path>,
    out: &mut Output,
) -> Result<Status, Failure> {
    match output {
        Some(path) => {
            let (ending, mut progress) = (signals::ending()?, Progress::new(Some(1)));
            let written = write_file(found, form, path, &ending, &mut progress);
            progress.clear();
            written.map_err(|error| error.of_file(path))?;
        }
        None => {
            if !form.settings.format.is_text() && io::stdout().is_terminal() {
                let what = format!("a {} cannot be shown on a terminal", form.settings.format.extension());
                return Err(Failure::new(Status::Usage, what).hint("-o FILE writes it into a file"));
            }
            let episode = found.folder.load(&found.info).map_err(read_failure)?;
            write(&form.settings, &form.registry, &Arc::new(episode), out.bytes(), &mut |_| true).map_err(
                |error| match error {
                    ExportError::Write(error) => error.into(),
                    error => Failure::of(Status::Failed, &error),
                },
            )?;
        }
    }
    Ok(Status::Done)
}

/// Writes a file for each episode.
fn into_folder(chosen: &mut Chosen, form: &Form, dir: &Path, out: &mut Output) -> Result<Status, Failure> {
    std::fs::create_dir_all(dir).map_err(|error| {
        Failure::new(Status::Failed, format_args!("{} cannot be made: {error}", dir.display()))
    })?;
    let ending = signals::ending()?;
    let mut done = Done::default();
    let mut progress = Progress::new(None);
    while let Some(page) = chosen.next_page()? {
        progress.expect(chosen.total());
        for found in &page {
            let path = dir.join(file_name(&found.info.name, &form.settings));
            let added = done.add(found, form, &path, &ending, &mut progress);
            if added.is_err() {
                progress.clear();
            }
            added?;
        }
    }
    progress.clear();
    done.print(dir, progress.elapsed(), out)
}

/// Returns the name of an episode's file: pictures of several steps have different names.
fn file_name(name: &EpisodeName, settings: &Settings) -> String {
    let extension = settings.format.extension();
    match settings.at.filter(|_| settings.format == Format::Png) {
        Some(at) => format!("{name}.{at}.{extension}"),
        None => format!("{name}.{extension}"),
    }
}

fn nothing_chosen() -> Failure {
    Failure::new(Status::Usage, "no episode is chosen")
        .hint("`rollhouse replay ls` with the same filters lists those that would be")
}

/// The result of writing several episodes.
#[derive(Debug, Default)]
struct Done {
    written: u64,
    bytes: u64,
    /// Number of episodes whose file was there.
    present: u64,
    left_out: u64,
}

impl Done {
    /// Writes one more episode, unless its file is there. An error ends the whole export.
    fn add(
        &mut self,
        found: &LibraryEpisode,
        form: &Form,
        path: &Path,
        ending: &AtomicBool,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        if path.exists() {
            self.present += 1;
            progress.next(0);
            return Ok(());
        }
        match write_file(found, form, path, ending, progress) {
            Ok(bytes) => {
                (self.written, self.bytes) = (self.written + 1, self.bytes + bytes);
                progress.next(bytes);
            }
            Err(error @ (WriteError::File(_) | WriteError::Export(ExportError::Stopped))) => {
                let written = counted(self.written, "episode");
                let hint = format!("{written} written; the same command goes on from there");
                return Err(error.of_file(path).hint(hint));
            }
            Err(error) => {
                progress.clear();
                say(&format!("{} is left out: {}", found.info.name, error.of_file(path).message()));
                self.left_out += 1;
                progress.next(0);
            }
        }
        Ok(())
    }

    fn print(&self, dir: &Path, took: std::time::Duration, out: &mut Output) -> Result<Status, Failure> {
        let Self { written, bytes, present, left_out } = *self;
        if written + present + left_out == 0 {
            return Err(nothing_chosen());
        }
        let (shown, size) = (counted(written, "episode"), Bytes(bytes));
        writeln!(out, "{shown} written into {} ({size} in {})", dir.display(), Time(took))?;
        if present > 0 {
            writeln!(out, "{} there already", counted(present, "file"))?;
        }
        if left_out > 0 {
            writeln!(out, "{} left out", counted(left_out, "episode"))?;
        }
        Ok(if left_out > 0 { Status::Failed } else { Status::Done })
    }
}

/// Writes an episode into a file that gets its name once it is whole, and returns its bytes.
fn write_file(
    found: &LibraryEpisode,
    form: &Form,
    path: &Path,
    ending: &AtomicBool,
    progress: &mut Progress,
) -> Result<u64, WriteError> {
    let episode = found.folder.load(&found.info).map_err(|error| WriteError::Read(read_failure(error)))?;
    let length = episode.info.length;
    let mut watch = |step| {
        progress.at(&found.info.name, step, length);
        !ending.load(Ordering::Relaxed)
    };
    let mut file = BufWriter::new(WholeFile::create(path).map_err(WriteError::File)?);
    write(&form.settings, &form.registry, &Arc::new(episode), &mut file, &mut watch).map_err(|error| {
        match error {
            ExportError::Write(error) => WriteError::File(error),
            error => WriteError::Export(error),
        }
    })?;
    let file = file.into_inner().map_err(|error| WriteError::File(error.into_error()))?;
    file.finish().map_err(WriteError::File)
}

/// The reason why a file was not written.
enum WriteError {
    Read(Failure),
    Export(ExportError),
    File(io::Error),
}

impl WriteError {
    fn of_file(self, path: &Path) -> Failure {
        match self {
            Self::Read(failure) => failure,
            Self::Export(ExportError::Stopped) => Failure::new(
                Status::Interrupted,
                format_args!("{} is not whole and was removed", path.display()),
            ),
            Self::Export(error) => Failure::of(Status::Failed, &error),
            Self::File(error) => {
                Failure::new(Status::Failed, format_args!("writing {} failed: {error}", path.display()))
            }
        }
    }
}
