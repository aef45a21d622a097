//! `rollhouse replay stats`: shows totals of a folder or a store.

use std::collections::BTreeMap;
use std::io;

use rollhouse_core::Outcome;
use rollhouse_replay::{Damage, FolderStats, Library};
use rollhouse_wire::{RefusalCode, StoreDamage};
use serde::Serialize;

use crate::args::{Place, StatsArgs};
use crate::connect::{connect, request_failure};
use crate::failure::{Failure, Status};
use crate::human::{Bytes, Count, counted};
use crate::output::Output;
use crate::replay::read_failure;
use crate::replay::source::Source;
use crate::table::{Align, Table};

pub(super) fn run(args: &StatsArgs, out: &mut Output) -> Result<Status, Failure> {
    #[cfg(feature = "viewer")]
    if args.plot {
        return super::plot::run(args, out);
    }
    if args.data.place() == Place::Cluster
        && let Some(status) = stored(args, out)?
    {
        return Ok(status);
    }
    let source = Source::of(&args.data)?;
    let library = source.open()?;
    let stats = library.stats().map_err(read_failure)?;
    let damage = damage_of(&source, &library);
    if args.json {
        out.json(&Summed::of(&stats, damage))?;
    } else {
        // The folder that was named is the first.
        let inside = library.folders().len() - 1;
        print(source.shown(), source.is_folder(), inside, &stats, out)?;
        print_incomplete(stats.incomplete, out)?;
        print_damage(&damage, out)?;
    }
    Ok(Status::Done)
}

/// Asks the coordinator for the totals of its store. `None` if it cannot answer, because it is an older one.
fn stored(args: &StatsArgs, out: &mut Output) -> Result<Option<Status>, Failure> {
    let stats = match connect(&args.data.cluster)?.store_stats() {
        Ok(stats) => stats,
        Err(error) if error.refusal() == Some(RefusalCode::Unsupported) => return Ok(None),
        Err(error) => return Err(request_failure(&error)),
    };
    let mut summed = FolderStats {
        steps: stats.steps,
        no_numbers: stats.no_numbers,
        runs: stats.runs,
        segments: stats.segments,
        bytes: stats.bytes,
        incomplete: stats.incomplete,
        writing: true,
        ..FolderStats::default()
    };
    for count in stats.episodes {
        let outcome =
            count.outcome.parse::<Outcome>().map_err(|error| Failure::of(Status::Failed, &error))?;
        *summed.episodes.entry((count.env, outcome.word())).or_default() += count.episodes;
    }
    let damage: Vec<Damaged> = stats.damage.into_iter().map(Damaged::stored).collect();
    if args.json {
        out.json(&Summed::of(&summed, damage))?;
    } else {
        print(&Source::shown_of(&args.data), false, stats.folders as usize, &summed, out)?;
        print_incomplete(summed.incomplete, out)?;
        print_damage(&damage, out)?;
    }
    Ok(Some(Status::Done))
}

/// The output of `--json`; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct Summed<'a> {
    episodes: u64,
    steps: u64,
    no_numbers: u64,
    runs: u64,
    segments: u64,
    bytes: u64,
    envs: BTreeMap<&'a str, BTreeMap<&'static str, u64>>,
    writing: bool,
    torn_bytes: u64,
    incomplete: u64,
    damage: Vec<Damaged>,
}

/// Bytes that cannot be read.
#[derive(Debug, Serialize)]
pub(super) struct Damaged {
    /// The folder inside the one that was named, if the bytes are in one.
    folder: Option<String>,
    segment: u64,
    from: u64,
    to: u64,
    cause: String,
}

impl Damaged {
    pub(super) fn of(folder: Option<String>, damage: &Damage) -> Self {
        Self {
            folder,
            segment: damage.segment,
            from: damage.from,
            to: damage.to,
            cause: damage.cause.word().to_owned(),
        }
    }

    /// Makes the entry for damage that a coordinator reports.
    fn stored(damage: StoreDamage) -> Self {
        let StoreDamage { folder, segment, from, to, cause } = damage;
        Self { folder: Some(folder), segment, from, to, cause }
    }
}

/// Returns all known damage.
pub(super) fn damage_of(source: &Source, library: &Library) -> Vec<Damaged> {
    let damage = library.damage();
    damage.map(|(folder, damage)| Damaged::of(source.subfolder(folder.dir()), damage)).collect()
}

impl<'a> Summed<'a> {
    fn of(stats: &'a FolderStats, damage: Vec<Damaged>) -> Self {
        let mut envs: BTreeMap<&str, BTreeMap<&'static str, u64>> = BTreeMap::new();
        for ((env, outcome), &count) in &stats.episodes {
            *envs.entry(env).or_default().entry(outcome).or_default() += count;
        }
        Self {
            episodes: stats.episodes.values().sum(),
            steps: stats.steps,
            no_numbers: stats.no_numbers,
            runs: stats.runs,
            segments: stats.segments,
            bytes: stats.bytes,
            envs,
            writing: stats.writing,
            torn_bytes: stats.torn_bytes,
            incomplete: stats.incomplete,
            damage,
        }
    }
}

fn print(
    shown: &str,
    is_folder: bool,
    inside: usize,
    stats: &FolderStats,
    out: &mut Output,
) -> io::Result<()> {
    let episodes: u64 = stats.episodes.values().sum();
    writeln!(
        out,
        "{}: {} and {} in {}, {}, {}",
        shown,
        counted(episodes, "episode"),
        counted(stats.steps, "step"),
        counted(stats.runs, "run"),
        counted(stats.segments, "segment"),
        Bytes(stats.bytes),
    )?;
    if inside > 0 {
        writeln!(out, "Added up over it and {} in it.", counted(inside as u64, "folder"))?;
    }
    if stats.steps > 0 {
        let (per_step, per_episode) =
            (stats.bytes as f64 / stats.steps as f64, stats.bytes as f64 / episodes.max(1) as f64);
        writeln!(out, "{per_step:.3} bytes a step, {per_episode:.1} bytes an episode")?;
    }
    if stats.writing && is_folder {
        writeln!(out, "A run is being recorded here now.")?;
    }
    if episodes > 0 {
        let columns = [("ENV", Align::Left), ("OUTCOME", Align::Left), ("EPISODES", Align::Right)];
        let mut table = Table::new(&columns);
        for ((env, outcome), &count) in &stats.episodes {
            table.row(vec![env.clone(), (*outcome).to_owned(), Count(count).to_string()]);
        }
        writeln!(out)?;
        table.write(out)?;
    }
    if stats.no_numbers > 0 {
        writeln!(
            out,
            "\n{} finished with a return that is no number.",
            counted(stats.no_numbers, "episode")
        )?;
    }
    if stats.abandoned_bytes > 0 {
        writeln!(
            out,
            "\n{} at the end were left by a crash; the next recording here, or `rollhouse replay repair`, cuts them off.",
            Bytes(stats.abandoned_bytes)
        )?;
    }
    Ok(())
}

/// Prints how many episodes are not listed although their ends are there, if there are any.
pub(super) fn print_incomplete(incomplete: u64, out: &mut Output) -> io::Result<()> {
    if incomplete == 0 {
        return Ok(());
    }
    let episodes = counted(incomplete, "episode");
    writeln!(
        out,
        "\n{episodes} not listed: the beginning is gone, dropped to keep a budget or lost while a disk took nothing."
    )
}

/// Prints the stretches that cannot be read, if there are any.
pub(super) fn print_damage(damage: &[Damaged], out: &mut Output) -> io::Result<()> {
    if damage.is_empty() {
        return writeln!(out, "\nNo damage.");
    }
    let count = counted(damage.len() as u64, "damaged stretch");
    // The plural of a word in -ch.
    let count = count.replace("stretchs", "stretches");
    writeln!(out, "\n{count}; all other episodes stay readable:")?;
    let mut columns = vec![
        ("SEGMENT", Align::Right),
        ("FROM BYTE", Align::Right),
        ("TO BYTE", Align::Right),
        ("WHAT IS WRONG", Align::Left),
    ];
    let folders = damage.iter().any(|stretch| stretch.folder.is_some());
    if folders {
        columns.insert(0, ("FOLDER", Align::Left));
    }
    let mut table = Table::new(&columns);
    for stretch in damage {
        let folder = folders.then(|| stretch.folder.clone().unwrap_or_else(|| ".".to_owned()));
        let numbers = [stretch.segment, stretch.from, stretch.to].map(|number| number.to_string());
        table.row(folder.into_iter().chain(numbers).chain([stretch.cause.clone()]).collect());
    }
    table.write(out)
}
