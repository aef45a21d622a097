//! A peer's certificate, looked at again for as long as something is done for its holder.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::{CertificateDer, UnixTime};

use super::reload::{Identity, Loaded};
use super::trust::{Certified, Expected, IdentityError, Side};

/// The certificate that a peer showed, with its chain. That the peer has its key was proven by the handshake; whether
/// it is believed changes while the peer is connected: its time ends, or an authority is no longer trusted. Clones are
/// handles to the same one.
#[derive(Clone)]
pub struct PeerCertificate(Arc<Shown>);

struct Shown {
    /// Whom we believe.
    identity: Arc<Identity>,
    /// The holder's first.
    chain: Vec<CertificateDer<'static>>,
    side: Side,
    /// Whom it has to speak for, if that was known beforehand.
    expected: Option<Expected>,
    believed: Mutex<Option<Believed>>,
}

/// That it was believed, which needs no other look until something can have changed.
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
        Self(Arc::new(Shown { identity, chain, side, expected, believed: Mutex::default() }))
    }

    /// Whom it speaks for, if it is believed at that time by what the trusted files say now. Costs about as much as a
    /// glance at a clock unless something can have changed since the last time; then it checks up to
    /// [`MAX_CHAIN`](crate::limits::MAX_CHAIN) signatures.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn certify(&self, now: SystemTime) -> Result<Certified, IdentityError> {
        let Shown { identity, chain, side, expected, believed } = &*self.0;
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let loaded = identity.current();
        // Every change is one assignment, so that a panic leaves none half done.
        let mut believed = believed.lock().unwrap_or_else(PoisonError::into_inner);
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
    /// Whether both are the same certificate, shown with the same chain.
    pub fn is(&self, other: &Self) -> bool {
        self.0.chain == other.0.chain
    }
}

impl fmt::Debug for PeerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerCertificate").field("certificates", &self.0.chain.len()).finish_non_exhaustive()
    }
}
