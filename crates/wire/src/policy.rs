//! Policies of a cluster: the messages by which files of weights go to the coordinator and from there to nodes.

use std::fmt;
use std::str::FromStr;

use ring::digest;
use rollhouse_core::{bounded_text, is_node_name};
use serde::{Deserialize, Serialize};

use crate::hex;
use crate::limits::{MAX_NAME_BYTES, MAX_OWNER_BYTES};

/// The SHA-256 of a policy's file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PolicyHash(#[serde(with = "serde_bytes")] [u8; 32]);

impl PolicyHash {
    /// Returns the hash of a file.
    pub fn of(file: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest::digest(&digest::SHA256, file).as_ref());
        Self(bytes)
    }
}

/// Prints the hash as 64 hexadecimal digits.
impl fmt::Display for PolicyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = String::with_capacity(64);
        hex::encode(&self.0, &mut digits);
        f.write_str(&digits)
    }
}

impl fmt::Debug for PolicyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PolicyHash({self})")
    }
}

/// A policy of the cluster and one of its versions. Versions of a name count up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PolicyVersion {
    /// The policy's name.
    #[serde(deserialize_with = "bounded_text::<MAX_NAME_BYTES, _>")]
    pub name: String,
    /// The version.
    pub version: u64,
}

/// Prints name and version as in `pong@3`.
impl fmt::Display for PolicyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.version)
    }
}

/// A policy of the cluster as people name it: `pong@3`, or `pong` for its newest version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRef {
    /// The policy's name.
    pub name: String,
    /// Its version; `None` is the newest.
    pub version: Option<u64>,
}

/// Error of a text that names no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no policy, which is NAME or NAME@VERSION; a name has {POLICY_NAME_RULE}", .0.escape_debug())]
pub struct BadPolicyRef(String);

impl FromStr for PolicyRef {
    type Err = BadPolicyRef;

    fn from_str(text: &str) -> Result<Self, BadPolicyRef> {
        let bad = || BadPolicyRef(text.chars().take(200).collect());
        let (name, version) = match text.split_once('@') {
            None => (text, None),
            Some((name, version)) => (name, Some(version.parse().map_err(|_| bad())?)),
        };
        if !is_policy_name(name) {
            return Err(bad());
        }
        Ok(Self { name: name.to_owned(), version })
    }
}

impl fmt::Display for PolicyRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.version.map_or(Ok(()), |version| write!(f, "@{version}"))
    }
}

/// Returns whether a policy may have that name: the rule is that of names of nodes, and it does not end as a file does.
pub fn is_policy_name(name: &str) -> bool {
    is_node_name(name) && ![".safetensors", ".onnx"].iter().any(|ending| name.ends_with(ending))
}

/// The rule of [`is_policy_name`] in words that follow "a policy's name has".
pub const POLICY_NAME_RULE: &str = "1 to 128 letters, digits, `.`, `_` or `-`, the first is neither `.` nor `-`, the last is not `.`, and it does not end \
     in .safetensors or .onnx";

/// Stores a version of a policy. The bytes of its file follow on the same stream, which then ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutPolicy {
    /// Its name. The first who stores a version under it is its owner.
    #[serde(deserialize_with = "bounded_text::<MAX_NAME_BYTES, _>")]
    pub name: String,
    /// Its version, above all that there are. Absent takes the next, or the version that has the same file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Length of the file.
    pub bytes: u64,
    /// Hash of the file.
    pub hash: PolicyHash,
}

/// The answer to [`PutPolicy`]: the version is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyPut {
    /// The version.
    pub version: u64,
    /// Whether it was there before, with the same file.
    pub known: bool,
}

/// What there is of a version of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyInfo {
    /// Its name and version.
    pub policy: PolicyVersion,
    /// Length of the file.
    pub bytes: u64,
    /// Hash of the file.
    pub hash: PolicyHash,
    /// What the file is: `safetensors` or `onnx`.
    pub format: String,
    /// Its owner.
    #[serde(deserialize_with = "bounded_text::<MAX_OWNER_BYTES, _>")]
    pub owner: String,
    /// When it was stored: milliseconds since 1970.
    pub put_ms: u64,
}

/// A page of the policies of owners whom the asker may read, in the order of names and versions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PolicyList {
    /// The versions.
    pub policies: Vec<PolicyInfo>,
    /// Whether there are more behind them.
    pub more: bool,
}

/// Fetches the file of a version of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchPolicy {
    /// The policy's name.
    #[serde(deserialize_with = "bounded_text::<MAX_NAME_BYTES, _>")]
    pub name: String,
    /// Its version. Absent is the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// The answer to [`FetchPolicy`]; the bytes of the file follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyBytes {
    /// What there is of it.
    pub info: PolicyInfo,
}

/// Removes a version of a policy, or all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovePolicy {
    /// The policy's name.
    #[serde(deserialize_with = "bounded_text::<MAX_NAME_BYTES, _>")]
    pub name: String,
    /// The version. Absent removes all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// The answer to [`RemovePolicy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRemoved {
    /// Number of versions that were removed.
    pub versions: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The file of a policy of the cluster, as a coordinator names it to nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFile {
    /// The version.
    pub version: u64,
    /// Length of the file.
    pub bytes: u64,
    /// Hash of the file.
    pub hash: PolicyHash,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_reads_as_a_file_is_none_of_a_policy() {
        for name in ["pong", "pong-2", "a.b", "safetensors"] {
            assert!(is_policy_name(name), "{name}");
        }
        for name in ["", "pong.safetensors", "pong.onnx", "pong@3", "a/b", "-x", "x."] {
            assert!(!is_policy_name(name), "{name}");
        }
    }

    #[test]
    fn a_policy_is_named_with_or_without_its_version() {
        for text in ["pong", "pong@0", "a-b.c@18446744073709551615"] {
            assert_eq!(text.parse::<PolicyRef>().unwrap().to_string(), text);
        }
        for text in ["", "@3", "pong@", "pong@-1", "pong@3@4", "pong@latest", "net.onnx"] {
            assert_eq!(text.parse::<PolicyRef>(), Err(BadPolicyRef(text.to_owned())));
        }
    }

    #[test]
    fn a_hash_is_printed_as_digits() {
        let of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(PolicyHash::of(&[]).to_string(), of_nothing);
    }
}
