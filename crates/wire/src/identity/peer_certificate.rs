//! A peer's certificate, which is checked again for as long as something is done for its holder.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, UnixTime};

use super::reload::{Identity, Loaded};
use super::trust::{Certified, Expected, IdentityError, Side};

/// The certificate that a peer showed, with its chain. The handshake has proven that the peer has its key. Whether the
/// certificate is believed changes while the peer is connected: it expires, or an authority is no longer trusted.
/// Clones are handles to the same one.
#[derive(Clone)]
pub struct PeerCertificate(Arc<CertificateCheck>);

struct CertificateCheck {
    /// Our identity, with the authorities that we believe.
    identity: Arc<Identity>,
    /// The holder's certificate first, then those that link it to an authority.
    chain: Vec<CertificateDer<'static>>,
    side: Side,
    /// The holder that is expected, if it was known beforehand.
    expected: Option<Expected>,
    believed: Mutex<Option<Believed>>,
}

/// A check with a good result, which holds until something can have changed.
struct Believed {
    certified: Certified,
    against: Arc<Loaded>,
    from: Duration,
    until: Duration,
}

impl PeerCertificate {
    pub(crate) fn new(
        identity: Arc<Identity>,
        chain: Vec<CertificateDer<'static>>,
        side: Side,
        expected: Option<Expected>,
    ) -> Self {
        Self(Arc::new(CertificateCheck { identity, chain, side, expected, believed: Mutex::default() }))
    }

    /// Returns the holder, if the trusted files say now that the certificate is believed at that time. Costs about as
    /// much as reading the clock unless something can have changed since the last time; then it checks up to
    /// [`MAX_CHAIN`](crate::limits::MAX_CHAIN) signatures.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn certify(&self, now: SystemTime) -> Result<Certified, IdentityError> {
        let CertificateCheck { identity, chain, side, expected, believed } = &*self.0;
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let loaded = identity.current();
        // Every change is one assignment, so that a panic leaves none half done.
        let mut believed = believed.lock();
        if let Some(known) = &*believed
            && Arc::ptr_eq(&known.against, &loaded)
            && (known.from..known.until).contains(&now)
        {
            return Ok(known.certified.clone());
        }
        *believed = None;
        let certified = loaded.certify(chain, *side, UnixTime::since_unix_epoch(now))?;
        if let Some(expected) = expected {
            expected.check(&certified)?;
        }
        let until = loaded.authorities.next_change(chain, now);
        let found = certified.clone();
        *believed = Some(Believed { certified, against: loaded, from: now, until });
        Ok(found)
    }
}

impl PeerCertificate {
    /// Returns whether both are the same certificate, shown with the same chain.
    pub fn is(&self, other: &Self) -> bool {
        self.0.chain == other.0.chain
    }
}

impl fmt::Debug for PeerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerCertificate").field("certificates", &self.0.chain.len()).finish_non_exhaustive()
    }
}
