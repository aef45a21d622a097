//! `rollhouse replay pin`, `unpin`, `tag`, `untag` and `note`.

use std::io;

use rollhouse_core::EpisodeName;
use rollhouse_replay::{Label, LabelChange};
use serde::Serialize;

use crate::args::{DataArgs, NoteArgs, PinArgs, TagArgs};
use crate::failure::{Failure, Status};
use crate::output::Output;
use crate::replay::source::Source;

pub(super) fn pin(args: &PinArgs, pinned: bool, out: &mut Output) -> Result<Status, Failure> {
    change(&args.data, &args.names, &LabelChange::Pin(pinned), args.json, out)
}

pub(super) fn tag(args: &TagArgs, adds: bool, out: &mut Output) -> Result<Status, Failure> {
    let tags = args.tags.clone();
    let what = if adds { LabelChange::Tag(tags) } else { LabelChange::Untag(tags) };
    change(&args.data, &[args.name], &what, args.json, out)
}

pub(super) fn note(args: &NoteArgs, out: &mut Output) -> Result<Status, Failure> {
    change(&args.data, &[args.name], &LabelChange::Note(args.text.clone()), args.json, out)
}

fn change(
    data: &DataArgs,
    names: &[EpisodeName],
    change: &LabelChange,
    json: bool,
    out: &mut Output,
) -> Result<Status, Failure> {
    let source = Source::of(data)?;
    let library = source.open()?;
    for &name in names {
        let label = source.label(&library, name, change)?;
        let labelled = Labelled { id: name.to_string(), label: ShownLabel::of(Some(&label)) };
        if json {
            out.json(&labelled)?;
        } else {
            labelled.print(out)?;
        }
    }
    Ok(Status::Done)
}

/// The labels of an episode; the field names are part of the interface.
#[derive(Debug, Default, Clone, Serialize)]
pub(super) struct ShownLabel {
    pinned: bool,
    tags: Vec<String>,
    note: Option<String>,
}

#[derive(Debug, Serialize)]
struct Labelled {
    id: String,
    #[serde(flatten)]
    label: ShownLabel,
}

impl ShownLabel {
    pub(super) fn of(label: Option<&Label>) -> Self {
        let Some(label) = label else { return Self::default() };
        Self {
            pinned: label.pinned,
            tags: label.tags.iter().map(ToString::to_string).collect(),
            note: label.note.as_ref().map(|note| note.as_str().to_owned()),
        }
    }

    /// Writes the labels in a few words, for a line of a listing: `pinned best,slow "why it matters"`.
    pub(super) fn words(&self) -> String {
        let pin = self.pinned.then(|| "pinned".to_owned());
        let tags = (!self.tags.is_empty()).then(|| self.tags.join(","));
        let note = self.note.as_ref().map(|note| format!("\"{}\"", shortened(note)));
        let words: Vec<String> = [pin, tags, note].into_iter().flatten().collect();
        words.join(" ")
    }

    /// Writes the lines of `replay show`.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let pin = self.pinned.then(|| ("pinned", "yes: nothing drops or prunes it".to_owned()));
        let tags = (!self.tags.is_empty()).then(|| ("tags", self.tags.join(", ")));
        let note = self.note.as_ref().map(|note| ("note", note.clone()));
        [pin, tags, note].into_iter().flatten().collect()
    }
}

impl Labelled {
    fn print(&self, out: &mut Output) -> io::Result<()> {
        let words = self.label.words();
        writeln!(out, "{}  {}", self.id, if words.is_empty() { "no labels" } else { &words })
    }
}

/// Returns the beginning of a note, for a listing.
fn shortened(note: &str) -> String {
    let mut chars = note.chars();
    let begins: String = chars.by_ref().take(MAX_SHOWN_NOTE).collect();
    if chars.next().is_some() { format!("{begins}…") } else { begins }
}

/// Number of characters of a note in a line of a listing.
const MAX_SHOWN_NOTE: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_with_escape_sequences_are_written_out_and_long_ones_cut_short() {
        let mut label = Label::default();
        label.change(&LabelChange::Pin(true));
        label.change(&LabelChange::Tag(vec!["b".parse().unwrap(), "a".parse().unwrap()]));
        label.change(&LabelChange::Note(Some("\u{1b}[2J\u{7}red".parse().unwrap())));
        let shown = ShownLabel::of(Some(&label));
        assert_eq!(shown.words(), "pinned a,b \"\u{1b}[2J\u{7}red\"");
        assert_eq!(shown.lines()[2], ("note", "\u{1b}[2J\u{7}red".to_owned()));
        assert_eq!(ShownLabel::of(None).words(), "");
        assert_eq!(shortened(&"x".repeat(41)).chars().count(), 41);
        assert!(shortened(&"x".repeat(41)).ends_with('…'));
    }
}
