//! Which version of the protocol two peers speak.

use serde::{Deserialize, Serialize};

/// The TLS application protocol of every connection. It names the family; versions are agreed on in
/// [`Hello`](crate::Hello), so that a refusal can name both sides'.
pub const ALPN: &[u8] = b"rollhouse/1";

/// The newest version this program speaks.
pub const VERSION: u16 = 1;
/// The oldest version this program speaks.
pub const OLDEST_VERSION: u16 = 1;

/// The versions a peer speaks, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// The oldest.
    pub oldest: u16,
    /// The newest.
    pub newest: u16,
}

impl Versions {
    /// This program's.
    pub const OURS: Self = Self { oldest: OLDEST_VERSION, newest: VERSION };

    /// The newest version both speak; `None` if there is none.
    pub fn common(self, other: Self) -> Option<u16> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest && newest >= other.oldest).then_some(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_version_is_spoken() {
        let ours = Versions { oldest: 2, newest: 4 };
        assert_eq!(ours.common(Versions { oldest: 1, newest: 3 }), Some(3));
        assert_eq!(ours.common(Versions { oldest: 4, newest: 9 }), Some(4));
        assert_eq!(ours.common(Versions { oldest: 5, newest: 9 }), None);
        assert_eq!(ours.common(Versions { oldest: 1, newest: 1 }), None);
    }
}
