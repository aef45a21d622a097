//! `rollhouse replay prune`: removes episodes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rollhouse_replay::{
    Disk, FolderPrune, OpenError, PruneError, PrunePlan, PruneRules, RealDisk, plan_prune, prune,
};
use serde::Serialize;

use crate::args::{Place, PruneArgs};
use crate::audit_note;
use crate::failure::{Failure, Status};
use crate::human::{Bytes, Count, counted};
use crate::output::{Output, say};
use crate::replay::ls::with_tag;
use crate::replay::source::Source;
use crate::replay::{label_failure, read_failure};

pub(super) fn run(args: &PruneArgs, out: &mut Output) -> Result<Status, Failure> {
    let Place::Folder(data) = args.data.place() else {
        let failure = Failure::new(Status::Refused, "a cluster's store is pruned by its coordinator alone");
        return Err(failure.hint("its setting store.budget_bytes says how much it keeps"));
    };
    if !args.has_rule() {
        let failure = Failure::new(Status::Usage, "nothing says which episodes are to go");
        return Err(failure
            .hint("give --older-than, --keep-size, --keep-best or a filter; `--older-than 0s` lets all go"));
    }
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let rules = rules(args)?;
    if args.yes {
        audit_note::note_of_store(&data, "prune", &args.rules_in_words())?;
    }
    let done = if args.yes { prune(&disk, &data, &rules) } else { plan_prune(&disk, &data, &rules) };
    let plan = done.map_err(prune_failure)?;
    if args.json {
        out.json(&PruneResult::of(&plan, args.yes))?;
    } else {
        print(&plan, &data, args.yes, out)?;
    }
    Ok(Status::Done)
}

fn rules(args: &PruneArgs) -> Result<PruneRules, Failure> {
    let filter = match &args.tag {
        Some(tag) => with_tag(args.query(), Some(tag), false, || {
            let source = Source::of(&args.data)?;
            source.labels(&source.open()?)
        })?,
        None => args.query(),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let before = args.older_than.map(|age| now.saturating_sub(age).as_millis());
    Ok(PruneRules {
        filter,
        before_ms: before.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX)),
        keep_bytes: args.keep_size,
        keep_best: args.keep_best.map(|count| count as usize),
        unshipped: args.unshipped,
    })
}

fn print(plan: &PrunePlan, data: &Path, is_done: bool, out: &mut Output) -> io::Result<()> {
    for dir in &plan.busy {
        say(&format!("{} is being recorded into; it is left alone", dir.display()));
    }
    for dir in &plan.unshipped {
        say(&format!(
            "{} may hold what was not shipped or exported yet; it is left alone without --unshipped",
            dir.display()
        ));
    }
    let several = plan.folders.len() > 1;
    for folder in plan.folders.iter().filter(|_| several) {
        writeln!(out, "{}: {}", folder.dir.display(), gone(folder, is_done))?;
    }
    let sum = plan.sum();
    let verb = if is_done { "Removed" } else { "Would remove" };
    if sum.episodes == 0 {
        writeln!(out, "Nothing of {} {}.", data.display(), if is_done { "was to go" } else { "would go" })?;
    } else {
        writeln!(out, "{verb} {}.", gone(&sum, is_done))?;
    }
    if sum.pinned > 0 {
        writeln!(
            out,
            "{} because of {} pins.",
            stay(sum.pinned, is_done),
            if sum.pinned == 1 { "its" } else { "their" }
        )?;
    }
    if sum.stuck > 0 {
        writeln!(
            out,
            "{}: their segments hold too much else that stays, or are damaged.",
            stay(sum.stuck, is_done)
        )?;
    }
    if !is_done && sum.episodes > 0 {
        say("nothing was changed; --yes does it");
    }
    Ok(())
}

/// Describes what goes: `12 episodes in 3 segments, which gives 4.00 MB`.
fn gone(of: &FolderPrune, is_done: bool) -> String {
    let (episodes, segments) = (counted(of.episodes, "episode"), counted(of.segments, "segment"));
    let about = if is_done { "" } else { "about " };
    let room = Bytes(of.bytes.saturating_sub(of.again_bytes));
    let again = match (of.again, of.again_bytes) {
        (0, _) => String::new(),
        (again, bytes) => {
            format!("; {} of them that stay are recorded again in {}", Count(again), Bytes(bytes))
        }
    };
    format!("{episodes} in {segments}, which gives {about}{room}{again}")
}

fn stay(count: u64, is_done: bool) -> String {
    let verb = match (count, is_done) {
        (_, false) => "would stay",
        (1, true) => "stays",
        (_, true) => "stay",
    };
    format!("{} {verb}", counted(count, "episode"))
}

fn prune_failure(error: PruneError) -> Failure {
    match error {
        PruneError::Read(error) => read_failure(error),
        PruneError::Label(error) => label_failure(error),
        PruneError::Store(_) => {
            Failure::of(Status::Refused, &error).hint("its setting store.budget_bytes says how much it keeps")
        }
        PruneError::Open(OpenError::Locked { .. }) => Failure::of(Status::Refused, &error),
        PruneError::Again(_) => Failure::of(Status::Found, &error).hint("nothing was removed"),
        PruneError::Open(_) | PruneError::Disk(_) => Failure::of(Status::Failed, &error),
    }
}

/// The output of `--json`; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct PruneResult {
    done: bool,
    episodes: u64,
    segments: u64,
    bytes: u64,
    recorded_again: u64,
    recorded_again_bytes: u64,
    pinned: u64,
    stuck: u64,
    busy: Vec<PathBuf>,
    unshipped: Vec<PathBuf>,
}

impl PruneResult {
    fn of(plan: &PrunePlan, done: bool) -> Self {
        let sum = plan.sum();
        Self {
            done,
            episodes: sum.episodes,
            segments: sum.segments,
            bytes: sum.bytes,
            recorded_again: sum.again,
            recorded_again_bytes: sum.again_bytes,
            pinned: sum.pinned,
            stuck: sum.stuck,
            busy: plan.busy.clone(),
            unshipped: plan.unshipped.clone(),
        }
    }
}
