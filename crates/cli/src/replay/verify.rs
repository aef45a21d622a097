//! `rollhouse replay verify`: recomputes episodes and compares them with their recording.

use std::io;
use std::time::{Duration, Instant};

use rollhouse_host::RecordedEnvs;
use rollhouse_replay::{Divergence, LibraryEpisode, Value, Verification, hash_digits};
use serde::Serialize;

use crate::args::VerifyArgs;
use crate::failure::{Failure, Status};
use crate::human::{Count, Real, Si, Time, counted};
use crate::output::{Output, say};
use crate::python_envs;
use crate::replay::nearest::find_or_nearest;
use crate::replay::read_failure;
use crate::replay::source::Source;
use crate::replay::stats::{damage_of, print_damage, print_incomplete};

pub(super) fn run(args: &VerifyArgs, out: &mut Output) -> Result<Status, Failure> {
    let registry = args.plugins.registry()?;
    let hosted = python_envs::of_recordings(&args.hosting, false)?;
    let learn = python_envs::learner(hosted.as_ref());
    let envs = python_envs::envs(&registry, learn.as_deref());
    let began = Instant::now();
    let mut tally = Tally { json: args.json, ..Tally::default() };
    let source = Source::of(&args.data)?;
    let (damage, incomplete) = if args.names.is_empty() {
        let library = source.open_scanning()?;
        library.verify_all(envs, |found| tally.take(&found, out)).map_err(read_failure)?;
        (damage_of(&source, &library), library.incomplete().map_err(read_failure)?)
    } else {
        let library = source.open()?;
        let episodes =
            args.names.iter().map(|&name| find_or_nearest(&library, name)).collect::<Result<Vec<_>, _>>()?;
        LibraryEpisode::verify(episodes, envs, |found| tally.take(&found, out)).map_err(read_failure)?;
        (Vec::new(), 0)
    };
    if let Some(error) = tally.failed.take() {
        return Err(error.into());
    }
    if !damage.is_empty() {
        if args.json {
            let stretches = counted(damage.len() as u64, "damaged part");
            let place = args.data.option();
            say(&format!(
                "{stretches} of the folder cannot be read; `rollhouse replay stats{place}` lists them"
            ));
        } else {
            print_damage(&damage, out)?;
            writeln!(out)?;
        }
    }
    if !args.json {
        tally.print(began.elapsed(), out)?;
        print_incomplete(incomplete, out)?;
    }
    match hosted.as_ref().and_then(RecordedEnvs::refusal).map(|refusal| python_envs::failure(&refusal)) {
        Some(failure) if tally.differing == 0 && damage.is_empty() => return Err(failure),
        Some(failure) => say(failure.message()),
        None => {}
    }
    let clean = tally.differing + tally.unknown == 0 && damage.is_empty();
    Ok(if clean { Status::Done } else { Status::Found })
}

/// The output of `--json` for an episode; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct Verified<'a> {
    id: String,
    ok: bool,
    compared: bool,
    steps: u64,
    first_divergence: Option<&'a Divergence>,
    note: Option<&'a str>,
}

/// The counts so far, and the first failure to print it.
#[derive(Debug, Default)]
struct Tally {
    json: bool,
    compared: u64,
    /// Steps of the episodes that were compared.
    steps: u64,
    differing: u64,
    /// Episodes that could not be compared, but were recorded whole and are complete.
    whole: u64,
    /// Episodes of which nothing is known: they could not be compared, and hold too little to be looked at.
    unknown: u64,
    /// Those among both that an interpreter would recompute.
    want_python: u64,
    failed: Option<io::Error>,
}

impl Tally {
    fn take(&mut self, found: &Verification, out: &mut Output) {
        if found.is_compared() {
            self.compared += 1;
            self.steps += found.steps;
            self.differing += u64::from(!found.ok);
        } else {
            self.whole += u64::from(found.ok);
            self.unknown += u64::from(!found.ok);
            self.want_python += u64::from(found.wants_python());
        }
        if self.failed.is_none() {
            self.failed = self.show(found, out).err();
        }
    }

    fn show(&self, found: &Verification, out: &mut Output) -> io::Result<()> {
        if self.json {
            return out.json(&Verified {
                id: found.name.to_string(),
                ok: found.ok,
                compared: found.is_compared(),
                steps: found.steps,
                first_divergence: found.first_divergence.as_ref(),
                note: found.note.as_deref(),
            });
        }
        if found.ok || self.differing + self.unknown > MOST_SHOWN {
            return Ok(());
        }
        match (&found.first_divergence, &found.note) {
            (Some(divergence), Some(note)) if divergence.field == "dynamics" => {
                let (then, now) = (words(&divergence.recorded), words(&divergence.replayed));
                writeln!(out, "{}: {note}: {then} then, {now} now", found.name)
            }
            (Some(divergence), _) => writeln!(out, "{}: {}", found.name, sentence(divergence)),
            (None, Some(note)) => writeln!(out, "{}: {}", found.name, brief(note)),
            (None, None) => writeln!(out, "{}: not as recorded", found.name),
        }
    }

    fn print(&self, took: Duration, out: &mut Output) -> io::Result<()> {
        let Self { compared, steps, differing, whole, unknown, want_python, .. } = self;
        let shown = differing + unknown;
        if shown > MOST_SHOWN {
            writeln!(out, "... and {} more; --json lists all of them\n", Count(shown - MOST_SHOWN))?;
        }
        let rate = Si(*steps as f64 / took.as_secs_f64().max(f64::MIN_POSITIVE));
        let steps = counted(*steps, "step");
        writeln!(
            out,
            "{} recomputed: {steps} in {} ({rate} steps/s)",
            counted(*compared, "episode"),
            Time(took)
        )?;
        match differing {
            0 if *compared == 0 => {}
            0 if whole + unknown > 0 => writeln!(out, "all that were recomputed are as recorded")?,
            0 => writeln!(out, "all of them are as recorded")?,
            differing => writeln!(out, "{} not as recorded", counted(*differing, "episode"))?,
        }
        if *whole > 0 {
            let whole = counted(*whole, "episode");
            writeln!(out, "{whole} not compared, but complete and with right checksums")?;
        }
        if *unknown > 0 {
            writeln!(out, "{} not compared", counted(*unknown, "episode"))?;
        }
        if *want_python > 0 {
            let episodes = counted(*want_python, "episode");
            writeln!(
                out,
                "{episodes} of Python envs: --python PYTHON --allow PACKAGE recomputes those that are deterministic"
            )?;
        }
        Ok(())
    }
}

fn sentence(divergence: &Divergence) -> String {
    let Divergence { from, to, field, recorded, replayed } = divergence;
    if field == "dynamics" {
        let (then, now) = (words(recorded), words(replayed));
        return format!("the environment's dynamics have changed since: {then} then, {now} now");
    }
    if field == "recording" {
        return words(recorded);
    }
    let place =
        if from == to { format!("at step {from}") } else { format!("somewhere from step {from} to {to}") };
    format!("{field} differs {place}: recorded {}, replayed {}", words(recorded), words(replayed))
}

/// Returns a note as one line: what an env says of its failure ends with the reason.
fn brief(note: &str) -> String {
    let (first, last) = (note.lines().next(), note.lines().next_back());
    match (first, last) {
        (Some(first), Some(last)) if note.lines().count() > 1 => {
            format!("{first} ... {last}")
        }
        _ => note.to_owned(),
    }
}

/// Writes a value for a message.
pub(super) fn words(value: &Value) -> String {
    match value {
        Value::Nothing => "nothing".to_owned(),
        Value::Flag(flag) => flag.to_string(),
        Value::Hash(hash) => format!("hash {}", hash_digits(*hash)),
        Value::Number(number) => Real(*number).to_string(),
        Value::Text(text) => text.clone(),
    }
}

/// Number of differing episodes that are shown one by one.
const MOST_SHOWN: u64 = 20;
