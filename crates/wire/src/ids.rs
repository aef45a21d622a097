//! Names of sessions and their incarnations, and the secrets that let owners in.

use std::fmt;

use ring::digest;
use rollhouse_core::{EpisodeName, RunId};
use serde::{Deserialize, Serialize};

/// The id of a session, which is a part of a pool. It stays the same when the session is placed anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionId {
    /// The pool, which is a run.
    #[serde(with = "run_id")]
    pub pool: RunId,
    /// Index of the session in its pool, in the order of lanes.
    pub index: u32,
}

/// Prints the run's short id and the index, as in `k3f9q2tz/2`.
impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = EpisodeName { run: self.pool.short(), lane: 0, number: 0 };
        write!(f, "{}/{}", name.run_word(), self.index)
    }
}

/// Number of a placement of a session. A later placement has a greater one; everybody refuses smaller ones than they
/// have seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Incarnation {
    /// The coordinator's term: raised and made durable at each of its starts.
    pub term: u64,
    /// Number of the placement within the term.
    pub counter: u64,
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term, self.counter)
    }
}

/// The secret that lets its holder attach to one incarnation of a session: 16 random bytes, known to coordinator, node
/// and owner. It is compared in constant time and never printed.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Secret(#[serde(with = "serde_bytes")] [u8; 16]);

impl Secret {
    /// Makes a secret of those bytes, which must come from a cryptographic generator.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the key that lets its holder watch the incarnation of the session that has this secret, and nothing
    /// else: the first 16 bytes of the SHA-256 of `rollhouse watch`, the secret and the name of the owner that watches.
    /// The secret cannot be found from the key. Coordinators of earlier versions name nobody.
    #[must_use]
    pub fn watch_key(&self, owner: &str) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(b"rollhouse watch");
        context.update(&self.0);
        context.update(owner.as_bytes());
        let mut key = [0; 16];
        key.copy_from_slice(&context.finish().as_ref()[..16]);
        Self(key)
    }

    /// Returns whether the two are the same, in a time that does not depend on where they differ.
    pub fn matches(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.matches(other)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Draws a new id for a pool of that owner. Nobody else can open a pool, and so record a run, under it: its last 4
/// bytes are the first of the SHA-256 of the 12 before them and the owner's name, and an owner does not choose the
/// name.
pub fn new_pool_id(owner: &str) -> RunId {
    pool_id_of(owner, RunId::generate())
}

/// Returns whether an id is one of that owner's pools.
pub fn is_pool_of(owner: &str, pool: RunId) -> bool {
    pool_id_of(owner, pool) == pool
}

/// Returns the id of that owner's pool that begins as the `drawn` one.
pub fn pool_id_of(owner: &str, drawn: RunId) -> RunId {
    let mut bytes = drawn.as_u128().to_be_bytes();
    let (first, last) = bytes.split_at_mut(OWNER_FROM);
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(first);
    context.update(owner.as_bytes());
    last.copy_from_slice(&context.finish().as_ref()[..last.len()]);
    RunId::from_u128(u128::from_be_bytes(bytes))
}

/// Offset of the bytes in a pool's id that tell its owner. Before them are 42 random bits beside the time.
const OWNER_FROM: usize = 12;

/// Reads and writes a run id as 16 big-endian bytes.
pub mod run_id {
    use rollhouse_core::RunId;
    use serde::{Deserializer, Serializer};

    /// Writes the id.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(id: &RunId, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            to.serialize_str(&id.to_string())
        } else {
            serde_bytes::serialize(&id.as_u128().to_be_bytes(), to)
        }
    }

    /// Reads an id.
    ///
    /// # Errors
    /// If the value is not 16 bytes.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<RunId, D::Error> {
        let bytes: [u8; 16] = serde_bytes::deserialize(from)?;
        Ok(RunId::from_u128(u128::from_be_bytes(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pools_id_is_of_one_owner_and_another_one_each_time() {
        let (a, b) = (new_pool_id("ada"), new_pool_id("ada"));
        assert_ne!(a, b);
        for id in [a, b] {
            assert!(is_pool_of("ada", id));
            assert!(!is_pool_of("bob", id) && !is_pool_of("", id) && !is_pool_of("ada:1", id));
        }
        assert!(!is_pool_of("ada", RunId::from_u128(a.as_u128() ^ (1 << 40))), "drawn bits");
        assert!(!is_pool_of("ada", RunId::from_u128(a.as_u128() ^ 1)), "the owner's");
    }

    /// Fixes the bytes, because other clients have to compute the same key.
    #[test]
    fn a_watch_key_is_that_of_its_secret_and_neither_is_the_other() {
        let secret = Secret::from_bytes([7; 16]);
        let key =
            Secret::from_bytes([187, 100, 168, 114, 131, 212, 29, 141, 35, 114, 161, 134, 20, 63, 244, 222]);
        assert_eq!(secret.watch_key(""), key);
        assert_ne!(secret.watch_key(""), secret);
        assert_ne!(secret.watch_key("ada"), key);
        assert_ne!(Secret::from_bytes([8; 16]).watch_key(""), key);
    }

    #[test]
    fn the_id_that_is_documented_is_that_of_its_owner() {
        let id = RunId::from_u128(0x0198_0000_0000_7000_8000_0000_0000_0000);
        assert_eq!(pool_id_of("ada", id).as_u128() as u32, 0x044d_4695);
    }
}
