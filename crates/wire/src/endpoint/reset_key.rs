//! The key by which peers believe that a connection is gone.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use quinn::EndpointConfig;
use quinn_proto::HashedConnectionIdGenerator;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use crate::identity::{Readers, read_file, replace_file};

/// The secret of QUIC's stateless resets. A process that listens again with its earlier key tells peers of its earlier
/// connections, with their next packet, that those are gone. Otherwise they would wait for their idle time-out of 15 s.
///
/// The key is kept in a file that only its owner can read. Anybody who knows it can end the listener's connections, and
/// nothing else.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ResetKey([u8; KEY_BYTES]);

impl ResetKey {
    /// Reads the key in that file, or draws and writes one if there is none. Blocks for the disk.
    ///
    /// # Errors
    /// If the file cannot be read or written, or does not hold a key.
    pub fn kept_in(path: &Path) -> io::Result<Self> {
        match read_file(path, KEY_BYTES as u64) {
            Ok(bytes) => {
                let message = format!("a key of {} bytes, {KEY_BYTES} are wanted", bytes.len());
                let wrong = |_| io::Error::new(io::ErrorKind::InvalidData, message);
                bytes.try_into().map(Self).map_err(wrong)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut key = [0; KEY_BYTES];
                let drawn = SystemRandom::new().fill(&mut key);
                drawn.map_err(|_| io::Error::other("the system gives no random numbers"))?;
                replace_file(path, &key, Readers::Owner)?;
                Ok(Self(key))
            }
            Err(error) => Err(error),
        }
    }

    /// Makes an endpoint use the key: for the tokens of its resets, and to recognise connection ids of its earlier
    /// connections.
    pub(crate) fn apply(&self, config: &mut EndpointConfig) {
        let derive = |what: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.0), what);
        let tokens = derive(b"rollhouse stateless reset");
        config.reset_key(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, tokens.as_ref())));
        let ids = derive(b"rollhouse connection ids");
        let ids = ids.as_ref().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        config.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(ids)));
    }
}

impl fmt::Debug for ResetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResetKey(..)")
    }
}

const KEY_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_drawn_once_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reset.key");
        let drawn = ResetKey::kept_in(&path).unwrap();
        assert_eq!(ResetKey::kept_in(&path).unwrap(), drawn);
        assert_ne!(ResetKey::kept_in(&folder.path().join("other.key")).unwrap(), drawn);
        assert_eq!(format!("{drawn:?}"), "ResetKey(..)");
        std::fs::write(&path, "short").unwrap();
        assert_eq!(ResetKey::kept_in(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
