//! Labels of episodes, which people give: pins, tags and notes.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::limits::{MAX_NOTE_BYTES, MAX_TAG_BYTES};

/// The label of an episode: what people have said of it. The default says nothing, and is kept nowhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Label {
    /// Whether nothing may drop or prune the episode.
    pub pinned: bool,
    /// Words that listings are narrowed by.
    pub tags: BTreeSet<Tag>,
    /// Free text, for people.
    pub note: Option<Note>,
}

/// A word that an episode is marked with: 1 to [`MAX_TAG_BYTES`] bytes without spaces, commas and control characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag(String);

/// A note on an episode: 1 to [`MAX_NOTE_BYTES`] bytes. It may hold anything; pass it through [`plain`](rollhouse_core::plain)
/// before you show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note(String);

/// An error: a text cannot be a tag or a note.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadLabel {
    /// The text is empty.
    #[error("it is empty")]
    Empty,
    /// The text is too long.
    #[error("it has {bytes} bytes; at most {most} are allowed")]
    TooLong {
        /// Bytes of the text.
        bytes: usize,
        /// Most bytes that are allowed.
        most: usize,
    },
    /// The text has a character that no tag may have.
    #[error("a tag cannot contain `{char}`", char = .0.escape_debug())]
    Character(char),
}

/// One change of an episode's label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelChange {
    /// Pins it, or takes that back.
    Pin(bool),
    /// Adds tags.
    Tag(Vec<Tag>),
    /// Takes tags off; tags that the episode does not have are ignored.
    Untag(Vec<Tag>),
    /// Puts a note in place of the one there was; `None` takes it off.
    Note(Option<Note>),
}

impl Label {
    /// Returns whether the label says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Applies a change to the label.
    pub fn change(&mut self, change: &LabelChange) {
        match change {
            LabelChange::Pin(pinned) => self.pinned = *pinned,
            LabelChange::Tag(tags) => self.tags.extend(tags.iter().cloned()),
            LabelChange::Untag(tags) => self.tags.retain(|tag| !tags.contains(tag)),
            LabelChange::Note(note) => self.note.clone_from(note),
        }
    }

    /// Joins the label of another copy of the episode into this one.
    pub fn join(&mut self, other: &Self) {
        self.pinned |= other.pinned;
        self.tags.extend(other.tags.iter().cloned());
        self.note = self.note.take().or_else(|| other.note.clone());
    }
}

impl Tag {
    /// Returns the word.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Note {
    /// Returns the text, which may hold anything.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Tag {
    type Err = BadLabel;

    fn from_str(text: &str) -> Result<Self, BadLabel> {
        let text = bounded(text, MAX_TAG_BYTES)?;
        let turns = |char| matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        let is_bad = |char: &char| char.is_whitespace() || char.is_control() || turns(*char) || *char == ',';
        match text.chars().find(is_bad) {
            Some(char) => Err(BadLabel::Character(char)),
            None => Ok(Self(text.to_owned())),
        }
    }
}

impl FromStr for Note {
    type Err = BadLabel;

    fn from_str(text: &str) -> Result<Self, BadLabel> {
        bounded(text, MAX_NOTE_BYTES).map(|text| Self(text.to_owned()))
    }
}

fn bounded(text: &str, most: usize) -> Result<&str, BadLabel> {
    match text.len() {
        0 => Err(BadLabel::Empty),
        bytes if bytes > most => Err(BadLabel::TooLong { bytes, most }),
        _ => Ok(text),
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_words_and_notes_are_anything_within_their_bounds() {
        for good in ["best", "grün", "v1.2", &"x".repeat(MAX_TAG_BYTES)] {
            assert_eq!(good.parse::<Tag>().unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a,b", "a\u{1b}b", "a\u{202e}b", &"x".repeat(MAX_TAG_BYTES + 1)] {
            assert!(bad.parse::<Tag>().is_err(), "{bad:?}");
        }
        let note = "\u{1b}[31mred\nand more".parse::<Note>().unwrap();
        assert_eq!(note.as_str(), "\u{1b}[31mred\nand more");
        assert!("".parse::<Note>().is_err());
        assert!("x".repeat(MAX_NOTE_BYTES + 1).parse::<Note>().is_err());
    }

    #[test]
    fn a_label_from_which_all_is_taken_back_says_nothing() {
        let tags = vec!["a".parse::<Tag>().unwrap(), "b".parse().unwrap()];
        let mut label = Label::default();
        label.change(&LabelChange::Pin(true));
        label.change(&LabelChange::Tag(tags.clone()));
        label.change(&LabelChange::Note(Some("n".parse().unwrap())));
        assert!(label.pinned && label.tags.len() == 2 && label.note.is_some());
        label.change(&LabelChange::Untag(tags));
        label.change(&LabelChange::Note(None));
        label.change(&LabelChange::Pin(false));
        assert!(label.is_empty());
    }
}
