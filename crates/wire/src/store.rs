//! Recordings: how nodes ship them and how readers read the store.

use serde::{Deserialize, Serialize};

/// Node to coordinator: a sealed segment. Its bytes follow on the same stream, which then ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ship {
    /// Name of the spool: drawn when the spool was made and kept with it.
    pub spool: String,
    /// The segment's number in it.
    pub segment: u64,
    /// Its bytes.
    pub bytes: u64,
    /// CRC-32C over all of them.
    pub crc: u32,
}

/// What became of a shipped segment. All but the last let the node remove it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shipped {
    /// It is in the store and survives a power cut there. Episodes of it may be set aside.
    Durable,
    /// The store had it already, the same bytes, durably.
    Known,
    /// It is damaged, or the store has another segment under its number. The store has set it aside, and may drop it
    /// there when it sets aside more; the node keeps it.
    Quarantined,
}

/// Lists a folder of the store, a part of it at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreList {
    /// Relative to the store, parts joined by `/`; empty is the store itself.
    pub path: String,
    /// Only names after this one; empty begins with the first.
    #[serde(default)]
    pub after: String,
}

/// What is in the folder, at most [`MAX_STORE_ENTRIES`](crate::limits::MAX_STORE_ENTRIES) of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreListing {
    /// By name, in the order of their bytes.
    pub entries: Vec<StoreEntry>,
    /// Whether more follow; ask again `after` the last of these.
    #[serde(default)]
    pub more: bool,
}

/// A file or folder of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreEntry {
    /// Its name.
    pub name: String,
    /// Its bytes; `None` for a folder.
    pub bytes: Option<u64>,
}

/// Reads a part of a file of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreRead {
    /// As in [`StoreList`].
    pub path: String,
    /// From this byte on.
    pub offset: u64,
    /// At most so many; at most [`MAX_STORE_READ_BYTES`](crate::limits::MAX_STORE_READ_BYTES).
    pub bytes: u32,
}

/// Has the coordinator read a segment of the store again, every byte of it, and make anew what it keeps beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreRepair {
    /// The segment, as in [`StoreRead`].
    pub path: String,
}

/// The segment was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreRepaired {
    /// Its bytes.
    pub bytes: u64,
    /// Whether some of them are damaged. They stay as they are; readers find them out for themselves from now on.
    pub damaged: bool,
}

/// So many bytes of the file follow on the stream, which then ends; fewer than asked only at the file's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreData {
    /// Bytes that follow.
    pub bytes: u32,
    /// Bytes of the whole file.
    pub file_bytes: u64,
}
