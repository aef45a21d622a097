//! The versions of the protocol, and the choice of the one that two peers speak.

use serde::{Deserialize, Serialize};

/// The TLS application protocol of every connection. It names the family of protocols; versions are agreed on in
/// [`Hello`](crate::Hello), so that a refusal can name those of both sides.
pub const ALPN: &[u8] = b"rollhouse/1";

/// The newest version that this program speaks.
pub const VERSION: u16 = 1;
/// The oldest version that this program speaks.
pub const OLDEST_VERSION: u16 = 1;

/// The versions that a peer speaks, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// The oldest version.
    pub oldest: u16,
    /// The newest version.
    pub newest: u16,
}

impl Versions {
    /// The versions that this program speaks.
    pub const OURS: Self = Self { oldest: OLDEST_VERSION, newest: VERSION };

    /// Returns the newest version that both speak; `None` if there is none.
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
