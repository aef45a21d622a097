//! `rollhouse replay stats`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use rollhouse_replay::{Damage, FolderStats, RealDisk, Replays};
use serde::Serialize;

use crate::args::StatsArgs;
use crate::failure::{Failure, Status};
use crate::human::{Bytes, Count, counted};
use crate::output::Output;
use crate::replay::read_failure;
use crate::table::{Align, Table};

pub(super) fn run(args: &StatsArgs, out: &mut Output) -> Result<Status, Failure> {
    let replays = Replays::open_scanning(Arc::new(RealDisk), &args.data.data).map_err(read_failure)?;
    let stats = replays.stats().map_err(read_failure)?;
    if args.json {
        out.json(&Summed::of(&stats))?;
    } else {
        print(&args.data.data.display().to_string(), &stats, out)?;
    }
    Ok(Status::Done)
}

/// What `--json` prints; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct Summed<'a> {
    episodes: u64,
    steps: u64,
    runs: u64,
    segments: u64,
    bytes: u64,
    envs: BTreeMap<&'a str, BTreeMap<&'static str, u64>>,
    writing: bool,
    torn_bytes: u64,
    damage: Vec<Damaged>,
}

/// Bytes that cannot be read.
#[derive(Debug, Serialize)]
pub(super) struct Damaged {
    segment: u64,
    from: u64,
    to: u64,
    cause: &'static str,
}

impl Damaged {
    pub(super) fn of(damage: &Damage) -> Self {
        Self { segment: damage.segment, from: damage.from, to: damage.to, cause: damage.cause.word() }
    }
}

impl<'a> Summed<'a> {
    fn of(stats: &'a FolderStats) -> Self {
        let mut envs: BTreeMap<&str, BTreeMap<&'static str, u64>> = BTreeMap::new();
        for ((env, outcome), &count) in &stats.episodes {
            *envs.entry(env).or_default().entry(outcome).or_default() += count;
        }
        Self {
            episodes: stats.episodes.values().sum(),
            steps: stats.steps,
            runs: stats.runs,
            segments: stats.segments,
            bytes: stats.bytes,
            envs,
            writing: stats.writing,
            torn_bytes: stats.torn_bytes,
            damage: stats.damage.iter().map(Damaged::of).collect(),
        }
    }
}

fn print(dir: &str, stats: &FolderStats, out: &mut Output) -> io::Result<()> {
    let episodes: u64 = stats.episodes.values().sum();
    writeln!(
        out,
        "{dir}: {} and {} in {}, {}, {}",
        counted(episodes, "episode"),
        counted(stats.steps, "step"),
        counted(stats.runs, "run"),
        counted(stats.segments, "segment"),
        Bytes(stats.bytes),
    )?;
    if stats.steps > 0 {
        let (per_step, per_episode) =
            (stats.bytes as f64 / stats.steps as f64, stats.bytes as f64 / episodes.max(1) as f64);
        writeln!(out, "{per_step:.3} bytes a step, {per_episode:.1} bytes an episode")?;
    }
    if stats.writing {
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
    if stats.torn_bytes > 0 && !stats.writing {
        writeln!(
            out,
            "\n{} at the end were left by a crash; the next recording here, or `rollhouse replay repair`, cuts them off.",
            Bytes(stats.torn_bytes)
        )?;
    }
    print_damage(&stats.damage, out)
}

/// The stretches that cannot be read, if there are any.
pub(super) fn print_damage(damage: &[Damage], out: &mut Output) -> io::Result<()> {
    if damage.is_empty() {
        return writeln!(out, "\nNo damage.");
    }
    let count = counted(damage.len() as u64, "damaged stretch");
    // The plural of a word in -ch.
    let count = count.replace("stretchs", "stretches");
    writeln!(out, "\n{count}; all other episodes stay readable:")?;
    let mut table = Table::new(&[
        ("SEGMENT", Align::Right),
        ("FROM BYTE", Align::Right),
        ("TO BYTE", Align::Right),
        ("WHAT IS WRONG", Align::Left),
    ]);
    for stretch in damage {
        table.row(vec![
            stretch.segment.to_string(),
            stretch.from.to_string(),
            stretch.to.to_string(),
            stretch.cause.word().to_owned(),
        ]);
    }
    table.write(out)
}
