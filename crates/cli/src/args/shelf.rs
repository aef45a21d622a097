//! The arguments of pinning, tagging, noting and pruning episodes.

use std::time::Duration;

use clap::Args;
use rollhouse_core::{EpisodeName, GameResult, Outcome};
use rollhouse_replay::{MAX_KEPT_BEST, Note, Query, Tag};

use super::{DataArgs, finite, number, short_run};

#[derive(Debug, Args)]
pub(crate) struct PinArgs {
    /// The episodes, as `replay ls` prints them, e.g. k3f9q2tz-17-203
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<EpisodeName>,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Print one JSON object a line instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TagArgs {
    /// The episode, as `replay ls` prints it, e.g. k3f9q2tz-17-203
    #[arg(value_name = "NAME")]
    pub(crate) name: EpisodeName,
    /// The tags: words without spaces and commas
    #[arg(value_name = "TAG", required = true)]
    pub(crate) tags: Vec<Tag>,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NoteArgs {
    /// The episode, as `replay ls` prints it, e.g. k3f9q2tz-17-203
    #[arg(value_name = "NAME")]
    pub(crate) name: EpisodeName,
    /// The text of the note, which takes the place of an earlier one
    #[arg(value_name = "TEXT", required_unless_present = "remove", conflicts_with = "remove")]
    pub(crate) text: Option<Note>,
    /// Remove the note
    #[arg(long)]
    pub(crate) remove: bool,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "An episode goes if every rule lets it go and it is not pinned. At least one rule is needed;\n\
                        `--older-than 0s` lets all go. Segments that hold much that stays are left whole, with what\n\
                        was to go in them: docs/replay-format.md, section 9."
)]
pub(crate) struct PruneArgs {
    /// Only episodes that started longer ago: a number with s, m, h, d or w, e.g. 30d
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) older_than: Option<Duration>,
    /// Only the oldest segments, as many as have to go so that all together take at most this much: e.g. 10GB, 500MiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) keep_size: Option<u64>,
    /// Keep the N of each environment with the highest return, among those that the filters match
    #[arg(long, value_name = "N", value_parser = number::whole::<u32, 1, { MAX_KEPT_BEST as u64 }>)]
    pub(crate) keep_best: Option<u32>,
    /// Only episodes of this environment
    #[arg(long, value_name = "ID")]
    pub(crate) env: Option<String>,
    /// Only episodes that ended in this way: terminated, truncated, crashed, hung, node_lost, evicted, cancelled,
    /// disconnected or policy
    #[arg(long, value_name = "O")]
    pub(crate) outcome: Option<Outcome>,
    /// Only episodes with this result, for envs that give one: win, lose or draw
    #[arg(long, value_name = "W")]
    pub(crate) result: Option<GameResult>,
    /// Only episodes with at least this return
    #[arg(long, value_name = "R", allow_negative_numbers = true, value_parser = finite)]
    pub(crate) min_return: Option<f64>,
    /// Only episodes of this run: the first part of their names, e.g. k3f9q2tz
    #[arg(long, value_name = "RUN", value_parser = short_run)]
    pub(crate) run: Option<u64>,
    /// Only episodes with this tag
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<Tag>,
    /// Prune folders whose episodes are shipped or exported, as a node's spool, even if they may not have been yet
    #[arg(long)]
    pub(crate) unshipped: bool,
    /// Remove them; without this, only list what would go
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

impl PruneArgs {
    /// Returns whether any argument says what is to go.
    pub(crate) const fn has_rule(&self) -> bool {
        self.older_than.is_some()
            || self.keep_size.is_some()
            || self.keep_best.is_some()
            || self.env.is_some()
            || self.outcome.is_some()
            || self.result.is_some()
            || self.min_return.is_some()
            || self.run.is_some()
            || self.tag.is_some()
    }

    /// Returns the rules in the words of the command line, for the audit.
    pub(crate) fn rules_in_words(&self) -> String {
        let rules = [
            ("older-than", self.older_than.map(|age| format!("{}s", age.as_secs()))),
            ("keep-size", self.keep_size.map(|bytes| bytes.to_string())),
            ("keep-best", self.keep_best.map(|count| count.to_string())),
            ("env", self.env.clone()),
            ("outcome", self.outcome.map(|outcome| outcome.word().to_owned())),
            ("result", self.result.and_then(GameResult::word).map(str::to_owned)),
            ("min-return", self.min_return.map(|least| least.to_string())),
            ("run", self.run.map(|run| EpisodeName { run, lane: 0, number: 0 }.run_word())),
            ("tag", self.tag.as_ref().map(ToString::to_string)),
        ];
        let given = rules.into_iter().filter_map(|(name, value)| Some(format!("--{name} {}", value?)));
        let flag = self.unshipped.then(|| "--unshipped".to_owned());
        given.chain(flag).collect::<Vec<_>>().join(" ")
    }

    /// Returns the filters without the tag.
    pub(crate) fn query(&self) -> Query {
        Query {
            env: self.env.clone(),
            outcome: self.outcome,
            result: self.result,
            min_return: self.min_return,
            run: self.run,
            ..Query::default()
        }
    }
}

fn age(text: &str) -> Result<Duration, String> {
    let wanted = || "a number with s, m, h, d or w is wanted, e.g. 30d".to_owned();
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wanted)?;
    let seconds: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return Err(wanted()),
    };
    let number: u64 = number.parse().map_err(|_| wanted())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wanted)
}

fn size(text: &str) -> Result<u64, String> {
    let wanted = || "a number with kB, MB, GB, TB, KiB, MiB, GiB or TiB is wanted, e.g. 10GB".to_owned();
    let at = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let bytes: u64 = match unit.trim_start() {
        "B" | "" => 1,
        "kB" | "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(wanted()),
    };
    let number: u64 = number.parse().map_err(|_| wanted())?;
    number.checked_mul(bytes).ok_or_else(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: the audit named what was pruned as `PruneRules { filter: Query { env: Some("X"), ...`.
    #[test]
    fn rules_stand_in_the_audit_as_they_are_typed() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            prune: PruneArgs,
        }
        let words =
            "--older-than 60s --keep-best 3 --env X --outcome truncated --run k3f9q2tz --tag odd --unshipped";
        let line = <Line as clap::Parser>::parse_from(format!("prune {words} --yes").split(' '));
        assert_eq!(line.prune.rules_in_words(), words);
    }

    #[test]
    fn ages_are_a_number_and_a_unit() {
        for (text, seconds) in [("0s", 0), ("90m", 5400), ("30d", 2_592_000), ("2w", 1_209_600)] {
            assert_eq!(age(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for bad in
            ["", "30", "d", "-1d", "1.5d", "1y", "30ä", "99999999999999999999d", "9999999999999999999w"]
        {
            assert!(age(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_a_number_and_a_unit() {
        for (text, bytes) in [("0", 0), ("10GB", 10_000_000_000), ("500MiB", 500 << 20), ("7 kB", 7000)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "GB", "1.5GB", "-1GB", "10XB", "99999999TiB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
