//! `rollhouse replay ls --watch`: lists episodes as they come.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rollhouse_replay::News;

use crate::args::LsArgs;
use crate::failure::{Failure, Status};
use crate::output::{Output, say};
use crate::replay::ls::{Printer, query_of};
use crate::replay::source::Source;
use crate::replay::{Listed, read_failure};
use crate::signals;

/// Prints episodes that end from now on, until Ctrl-C or until there were as many as the limit says.
pub(super) fn run(args: &LsArgs, out: &mut Output) -> Result<Status, Failure> {
    let ending = signals::ending()?;
    let source = Source::of(&args.data)?;
    let mut library = source.open()?;
    let mut news = News::since(&library).map_err(read_failure)?;
    let mut printer = Printer::new(args.json, false);
    let mut left = args.filter.limit.unwrap_or(usize::MAX);
    let mut is_away = false;
    say(&format!("watching {}; Ctrl-C ends", source.shown()));
    while left > 0 && wait(&ending) {
        let looked = source.look_again(&library).and_then(|again| {
            let query = query_of(args, || source.labels(&again))?;
            let found = news.take(&again, &query).map_err(read_failure)?;
            library = again;
            Ok(found)
        });
        let found = match looked {
            Ok(found) => found,
            Err(failure) if failure.status() == Status::Usage => return Err(failure),
            Err(failure) => {
                if !std::mem::replace(&mut is_away, true) {
                    say(&format!("{} cannot be read for now: {}", source.shown(), failure.message()));
                }
                continue;
            }
        };
        if std::mem::take(&mut is_away) {
            say(&format!("{} is back", source.shown()));
        }
        let labels = source.labels(&library)?;
        let shown = found.len().min(left);
        left -= shown;
        printer
            .print(found[..shown].iter().map(|one| Listed::of(&one.info).with(&labels, &one.info)), out)?;
        out.flush()?;
    }
    Ok(Status::Done)
}

/// Waits until it is time to look again; false if it is to end.
fn wait(ending: &AtomicBool) -> bool {
    for _ in 0..LOOK_EVERY.as_millis() / SLICE.as_millis() {
        if ending.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::park_timeout(SLICE);
    }
    !ending.load(Ordering::Relaxed)
}

/// Interval at which new episodes are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Longest time until Ctrl-C is noticed.
const SLICE: Duration = Duration::from_millis(50);
