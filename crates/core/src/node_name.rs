//! Names of nodes, which are also parts of the names of folders.

use crate::limits::MAX_NAME_BYTES;

/// Returns whether a node may have that name: 1 to [`MAX_NAME_BYTES`] letters, digits, `.`, `_` and `-`, of which the
/// first is neither `.` nor `-` and the last is not `.`. Recordings of a node lie in folders that are named for it, and
/// such a folder is neither hidden nor an option of a command.
pub fn is_node_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.bytes().all(plain)
        && !name.starts_with(['.', '-'])
        && !name.ends_with('.')
}

/// The rule of [`is_node_name`] in words that follow "a node's name has".
pub const NODE_NAME_RULE: &str =
    "1 to 128 letters, digits, `.`, `_` or `-`, the first is neither `.` nor `-`, and the last is not `.`";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_make_odd_folders_are_no_names_of_nodes() {
        let longest = "n".repeat(MAX_NAME_BYTES);
        for name in ["a", "node-1", "gpu_07.rack-2", "_x", "9", "A", longest.as_str()] {
            assert!(is_node_name(name), "{name}");
        }
        let longer = "n".repeat(MAX_NAME_BYTES + 1);
        let odd =
            ["", ".", "..", ".x", "-", "-x", "x.", "x..", "a/b", "a\\b", "a b", "ä", "a\n", "a\0", "a:b"];
        for name in odd.into_iter().chain([longer.as_str()]) {
            assert!(!is_node_name(name), "{name:?}");
        }
        assert!(NODE_NAME_RULE.contains(&MAX_NAME_BYTES.to_string()));
    }
}
