//! `rollhouse replay quarantine`: lists and reads what a store has set aside.

use rollhouse_export::{Format, Settings};
use rollhouse_replay::{LibraryEpisode, QUARANTINE, Query, Replays};
use serde::Serialize;

use crate::args::{QuarantineLsArgs, QuarantineReadArgs, QuarantineWhat};
use crate::failure::{Failure, Status};
use crate::human::{Bytes, Count, Real, counted};
use crate::output::{Output, say};
use crate::replay::export::Form;
use crate::replay::source::Source;
use crate::replay::{Listed, export, read_failure};
use crate::table::{Align, Table};

pub(super) fn run(what: &QuarantineWhat, out: &mut Output) -> Result<Status, Failure> {
    match what {
        QuarantineWhat::Ls(args) => ls(args, out),
        QuarantineWhat::Read(args) => read(args, out),
    }
}

fn ls(args: &QuarantineLsArgs, out: &mut Output) -> Result<Status, Failure> {
    let source = Source::of(&args.data)?;
    let aside = source.open_set_aside()?;
    let episodes = aside.list(&Query::default()).map_err(read_failure)?;
    let segments = aside.folders().iter().filter(|folder| is_whole_segment(folder));
    let segments = segments.map(|folder| AsideSegment::of(&source, folder)).collect::<Result<Vec<_>, _>>()?;
    if args.json {
        for episode in &episodes {
            let (listed, folder) = (Listed::of(&episode.info), folder(&source, episode));
            out.json(&AsideEpisode { kind: "episode", listed, folder })?;
        }
        return segments.iter().try_for_each(|segment| Ok(out.json(segment)?)).map(|()| Status::Done);
    }
    if episodes.is_empty() && segments.is_empty() {
        say(&format!("nothing is set aside in {}", source.shown()));
        return Ok(Status::Done);
    }
    let mut table = Table::new(&[
        ("EPISODE", Align::Left),
        ("ENV", Align::Left),
        ("RETURN", Align::Right),
        ("STEPS", Align::Right),
        ("OUTCOME", Align::Left),
        ("FOLDER", Align::Left),
    ]);
    for episode in &episodes {
        let info = &episode.info;
        table.row(vec![
            info.name.to_string(),
            info.env().to_owned(),
            info.total_reward.map_or_else(|| "?".to_owned(), |total| Real(total).to_string()),
            Count(info.length).to_string(),
            info.outcome.word().to_owned(),
            folder(&source, episode),
        ]);
    }
    table.write(out)?;
    for segment in &segments {
        say(&format!(
            "{}: a segment of {}, {} damaged, that is set aside as a whole",
            segment.folder,
            Bytes(segment.bytes),
            counted(segment.damage, "stretch")
        ));
    }
    Ok(Status::Done)
}

fn read(args: &QuarantineReadArgs, out: &mut Output) -> Result<Status, Failure> {
    let source = Source::of(&args.data)?;
    let mut found = source.open_set_aside()?.find_all(args.name).map_err(read_failure)?;
    if let Some(wanted) = &args.folder {
        found.retain(|episode| folder(&source, episode) == *wanted);
    }
    match found.as_slice() {
        [one] => {
            let form = Form { settings: Settings::new(Format::Jsonl), registry: args.plugins.registry()? };
            export::write_out(one, &form, args.output.as_deref(), out)
        }
        [] => {
            let failure = Failure::new(Status::Usage, format_args!("no episode {} is set aside", args.name));
            Err(failure.hint("`rollhouse replay quarantine ls` lists those that are"))
        }
        several => {
            let mut folders: Vec<String> = several.iter().map(|episode| folder(&source, episode)).collect();
            folders.dedup();
            let message = format_args!("{} is set aside {} times", args.name, several.len()).to_string();
            let failure = Failure::new(Status::Usage, format_args!("{message}, in {}", folders.join(", ")));
            Err(failure.hint("name one of the folders with --in FOLDER"))
        }
    }
}

/// Returns whether a folder holds one segment that is set aside as a whole.
fn is_whole_segment(folder: &Replays) -> bool {
    folder.dir().parent().and_then(|above| above.file_name()) == Some(QUARANTINE.as_ref())
}

fn folder(source: &Source, episode: &LibraryEpisode) -> String {
    source.subfolder(episode.folder.dir()).unwrap_or_default()
}

/// The output of `--json` for an episode, beside the fields of `replay ls`.
#[derive(Debug, Serialize)]
struct AsideEpisode<'a> {
    kind: &'static str,
    #[serde(flatten)]
    listed: Listed<'a>,
    folder: String,
}

/// The output of `--json` for a segment.
#[derive(Debug, Serialize)]
struct AsideSegment {
    kind: &'static str,
    folder: String,
    bytes: u64,
    /// Number of damaged stretches in it.
    damage: u64,
}

impl AsideSegment {
    fn of(source: &Source, folder: &Replays) -> Result<Self, Failure> {
        let bytes = folder.stats().map_err(read_failure)?.bytes;
        let name = source.subfolder(folder.dir()).unwrap_or_default();
        Ok(Self { kind: "segment", folder: name, bytes, damage: folder.damage().count() as u64 })
    }
}
