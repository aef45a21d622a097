//! Labels of the episodes of a store: pins, tags and notes.

use rollhouse_core::RunId;
use serde::{Deserialize, Serialize};

/// Asks the coordinator to change the label of an episode of its store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreLabel {
    /// Its run.
    #[serde(with = "crate::ids::run_id")]
    pub run: RunId,
    /// Its lane.
    pub lane: u32,
    /// Its number in the lane.
    pub number: u64,
    /// The change.
    pub change: StoreLabelChange,
}

/// One thing that is said of an episode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum StoreLabelChange {
    /// Pins it, or takes that back.
    Pin {
        /// Whether nothing may drop it.
        pinned: bool,
    },
    /// Adds tags.
    Tag {
        /// Each a word.
        tags: Vec<String>,
    },
    /// Takes tags off.
    Untag {
        /// Those that it does not have are none of its.
        tags: Vec<String>,
    },
    /// Puts a note in place of the one there was.
    Note {
        /// `None` takes it off.
        note: Option<String>,
    },
}

/// Asks the coordinator for the labels of its store's episodes, a page at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StoreLabels {
    /// Only of episodes behind this one; all if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<StoreLabelPlace>,
}

/// A place in the order of runs, lanes and numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreLabelPlace {
    /// Its run.
    #[serde(with = "crate::ids::run_id")]
    pub run: RunId,
    /// Its lane.
    pub lane: u32,
    /// Its number in the lane.
    pub number: u64,
}

/// The label of an episode. The answer to a [`StoreLabel`] is the label after the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreLabelled {
    /// Its run.
    #[serde(with = "crate::ids::run_id")]
    pub run: RunId,
    /// Its lane.
    pub lane: u32,
    /// Its number in the lane.
    pub number: u64,
    /// Whether nothing may drop it.
    pub pinned: bool,
    /// In the order of their bytes.
    pub tags: Vec<String>,
    /// Free text, which may hold anything.
    pub note: Option<String>,
}

/// A part of what is said, in the order of runs, lanes and numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StoreLabelPage {
    /// Episodes of which something is said: about [`MAX_STORE_PAGE_BYTES`](crate::limits::MAX_STORE_PAGE_BYTES) of them.
    pub labels: Vec<StoreLabelled>,
    /// Whether more follow; ask again `after` the last of these.
    #[serde(default)]
    pub more: bool,
}
