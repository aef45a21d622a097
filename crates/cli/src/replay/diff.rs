//! `rollhouse replay diff`: finds the first difference of two episodes.

use std::io;

use rollhouse_core::EpisodeName;
use rollhouse_replay::{Comparison, Difference, Episode, Value};
use serde::Serialize;

use crate::args::DiffArgs;
use crate::failure::{Failure, Status};
use crate::human::{Count, counted};
use crate::output::Output;
use crate::replay::nearest::find_or_nearest;
use crate::replay::read_failure;
use crate::replay::source::Source;
use crate::replay::verify::words;

pub(super) fn run(args: &DiffArgs, out: &mut Output) -> Result<Status, Failure> {
    let library = Source::of(&args.data)?.open()?;
    let load = |name: EpisodeName| {
        let found = find_or_nearest(&library, name)?;
        found.folder.load(&found.info).map_err(read_failure)
    };
    let (a, b) = (load(args.a)?, load(args.b)?);
    let registry = args.plugins.registry()?;
    let compared = Comparison::new(&registry, &a, &b)
        .and_then(|mut both| Ok((both.first_difference()?, both.same_steps())));
    let (difference, same) = compared.map_err(|error| Failure::of(Status::Failed, &error))?;
    if args.json {
        out.json(&Compared::of(&a, &b, same, difference.as_ref()))?;
    } else {
        print(&a, &b, same, difference.as_ref(), out)?;
    }
    Ok(if difference.is_none() { Status::Done } else { Status::Found })
}

/// The output of `--json`; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct Compared<'a> {
    a: String,
    b: String,
    same_steps: u64,
    first_difference: Option<&'a Difference>,
}

impl<'a> Compared<'a> {
    fn of(a: &Episode, b: &Episode, same_steps: u64, first_difference: Option<&'a Difference>) -> Self {
        Self { a: a.info.name.to_string(), b: b.info.name.to_string(), same_steps, first_difference }
    }
}

fn print(
    a: &Episode,
    b: &Episode,
    same: u64,
    found: Option<&Difference>,
    out: &mut Output,
) -> io::Result<()> {
    let Some(Difference { step, fields }) = found else {
        return writeln!(out, "they are the same: {}", counted(same, "step"));
    };
    match step {
        0 => writeln!(out, "they differ from the reset on:\n")?,
        _ => writeln!(out, "{} are the same; they part at step {}:\n", counted(same, "step"), Count(*step))?,
    }
    let [first, second] = [a, b].map(|episode| episode.info.name.to_string());
    let shown = fields.iter().take(MOST_SHOWN);
    let mut rows = vec![(String::new(), first, second)];
    rows.extend(shown.map(|field| (field.field.clone(), exact(&field.a), exact(&field.b))));
    let width = |column: fn(&(String, String, String)) -> &String| {
        rows.iter().map(|row| column(row).chars().count()).max().unwrap_or(0)
    };
    let (field, value) = (width(|row| &row.0), width(|row| &row.1));
    for (name, a, b) in &rows {
        writeln!(out, "  {name:<field$}  {a:<value$}  {b}")?;
    }
    if fields.len() > MOST_SHOWN {
        let more = counted((fields.len() - MOST_SHOWN) as u64, "value");
        writeln!(out, "  ... and {more} more; --json lists all of them")?;
    }
    Ok(())
}

/// Writes a value with all its digits: two values may differ in the last one.
fn exact(value: &Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        other => words(other),
    }
}

/// Number of values that are shown one by one.
const MOST_SHOWN: usize = 20;
