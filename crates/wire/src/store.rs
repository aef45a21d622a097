//! Recordings: the messages with which nodes ship them and readers read the store.

use rollhouse_core::limits::MAX_OWNERS_NAMED;
use rollhouse_core::{bounded_list, bounded_text};
use serde::{Deserialize, Serialize};

use crate::limits::MAX_OWNER_BYTES;
use crate::session::is_false;

/// A sealed segment that a node ships to the coordinator. Its bytes follow on the same stream, which then ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ship {
    /// Name of the spool: drawn when the spool was made and kept with it.
    pub spool: String,
    /// Number of the segment in the spool.
    pub segment: u64,
    /// Length of the segment in bytes.
    pub bytes: u64,
    /// CRC-32C of all bytes.
    pub crc: u32,
    /// Whose the bytes are; those that are not listed are the node's own. An owner none of whose runs is in the segment
    /// counts for nothing.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded_list::<_, MAX_OWNERS_NAMED, _>"
    )]
    pub owned: Vec<OwnerPart>,
}

/// An owner's part of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerPart {
    /// The owner, as in [`OpenSession`](crate::OpenSession).
    #[serde(deserialize_with = "bounded_text::<MAX_OWNER_BYTES, _>")]
    pub owner: String,
    /// Whether the owner is an admin.
    #[serde(default, skip_serializing_if = "is_false")]
    pub operates: bool,
    /// Bytes of its recordings.
    pub bytes: u64,
}

/// The result of shipping a segment. With all but the last the node may remove it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shipped {
    /// The segment is in the store and survives a power cut there. Episodes of it may be set aside.
    Durable,
    /// The store had the same bytes already, durably.
    Known,
    /// The segment is damaged, or the store has another one under its number. The store has set it aside, and may drop
    /// it there when it sets aside more; the node keeps it.
    Quarantined,
}

/// Lists a folder of the store, a part at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreList {
    /// Path of the folder, relative to the store, parts joined by `/`; empty is the store itself.
    pub path: String,
    /// The name after which the list begins; empty begins with the first.
    #[serde(default)]
    pub after: String,
}

/// The contents of the folder, at most [`MAX_STORE_ENTRIES`](crate::limits::MAX_STORE_ENTRIES) entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreListing {
    /// The entries by name, in the order of the names' bytes.
    pub entries: Vec<StoreEntry>,
    /// Whether more follow; ask again `after` the last of these.
    #[serde(default)]
    pub more: bool,
}

/// A file or folder of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreEntry {
    /// Name of the file or folder.
    pub name: String,
    /// Length of the file in bytes; `None` for a folder.
    pub bytes: Option<u64>,
}

/// Reads a part of a file of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreRead {
    /// Path of the file, as in [`StoreList`].
    pub path: String,
    /// Offset of the first byte to read.
    pub offset: u64,
    /// Number of bytes to read at most; at most [`MAX_STORE_READ_BYTES`](crate::limits::MAX_STORE_READ_BYTES).
    pub bytes: u32,
}

/// Asks the coordinator to read a segment of the store again, every byte of it, and to rebuild the files that it keeps
/// beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreRepair {
    /// Path of the segment, as in [`StoreRead`].
    pub path: String,
}

/// The answer to [`StoreRepair`]: the segment was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreRepaired {
    /// Length of the segment in bytes.
    pub bytes: u64,
    /// Whether some bytes are damaged. They stay as they are; from now on readers find them out for themselves.
    pub damaged: bool,
}

/// The answer to [`StoreRead`]: this many bytes of the file follow on the stream, which then ends. They are fewer than
/// asked for only at the file's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreData {
    /// Number of bytes that follow.
    pub bytes: u32,
    /// Length of the whole file in bytes.
    pub file_bytes: u64,
}
