//! The checks of a certificate: for whom it speaks, and whether it may be believed.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use super::validity::Validity;
use crate::Role;
use crate::limits::{MAX_CHAIN, MAX_NAME_BYTES};

/// The holder of a believed certificate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Certified {
    /// The holder's role, which decides what it may do.
    pub role: Role,
    /// The holder's name. It is unique within the role if the operator takes care.
    pub name: String,
}

impl Certified {
    /// Returns the URI that stands in the certificate's subject alternative names.
    pub fn uri(&self) -> String {
        format!("{URN}{}:{}", self.role.word(), self.name)
    }

    fn parse(uri: &str) -> Option<Self> {
        let (word, name) = uri.strip_prefix(URN)?.split_once(':')?;
        let role = CERTIFIED_ROLES.into_iter().find(|role| role.word() == word)?;
        is_name(name).then(|| Self { role, name: name.to_string() })
    }
}

impl fmt::Display for Certified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`", self.role.word(), self.name)
    }
}

/// Returns whether that text may name the holder of a certificate or a token: letters, digits, `.`, `_` and `-`.
pub fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !text.is_empty() && text.len() <= MAX_NAME_BYTES && text.bytes().all(plain)
}

/// The role and name that a dialled peer must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The peer's role.
    pub role: Role,
    /// The peer's name, if it is known beforehand.
    pub name: Option<String>,
}

impl Expected {
    /// The coordinator, whatever its name is.
    pub const COORDINATOR: Self = Self { role: Role::Coordinator, name: None };

    /// Returns the expectation of the node with that name.
    pub fn node(name: impl Into<String>) -> Self {
        Self { role: Role::Node, name: Some(name.into()) }
    }

    /// Checks that the peer is the expected one.
    ///
    /// # Errors
    /// [`IdentityError::WrongRole`] or [`IdentityError::WrongName`].
    pub(crate) fn check(&self, found: &Certified) -> Result<(), IdentityError> {
        if found.role != self.role {
            return Err(IdentityError::WrongRole { found: found.clone(), expected: self.role });
        }
        match &self.name {
            Some(name) if *name != found.name => {
                Err(IdentityError::WrongName { found: found.clone(), expected: name.clone() })
            }
            _ => Ok(()),
        }
    }
}

impl Certified {
    /// Returns the holder that a certificate names, without any check; `None` if it is not a peer's certificate.
    pub(crate) fn shown_by(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        certificate.valid_uri_names().find_map(Self::parse)
    }
}

/// SHA-256 over the DER certificate of a cluster's authority. Printed as `sha256:` and 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Returns the fingerprint of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FINGERPRINT_PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let error = || FingerprintError(text.chars().take(80).collect());
        let hex = text.strip_prefix(FINGERPRINT_PREFIX).ok_or_else(error)?;
        let mut bytes = [0; 32];
        crate::hex::decode(hex, &mut bytes).ok_or_else(error)?;
        Ok(Self(bytes))
    }
}

/// The error for text that is not a fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a fingerprint, which is sha256: and 64 hexadecimal digits")]
pub struct FingerprintError(String);

/// The authorities that are believed.
#[derive(Debug, Clone)]
pub(crate) enum Authorities {
    /// The certificates of the authorities; during a rotation the old and the new.
    Known(Vec<CertificateDer<'static>>),
    /// The fingerprint of the authority, whose certificate the peer sends along.
    Pinned(Fingerprint),
}

/// The side of a handshake that shows a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
}

impl Authorities {
    /// Checks a chain, the holder's certificate first, and returns its holder. The handshake has to check that the
    /// holder has the key.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub(crate) fn certify(
        &self,
        chain: &[CertificateDer<'_>],
        side: Side,
        now: UnixTime,
    ) -> Result<Certified, IdentityError> {
        let (leaf, others) = chain.split_first().ok_or(IdentityError::Missing)?;
        // What a stranger makes us compute grows with it.
        if chain.len() > MAX_CHAIN {
            return Err(IdentityError::TooMany { certificates: chain.len() });
        }
        let certificate = EndEntityCert::try_from(leaf).map_err(IdentityError::Malformed)?;
        let believed: Vec<&CertificateDer<'_>> = match self {
            Self::Known(known) => known.iter().collect(),
            Self::Pinned(pin) => others.iter().filter(|other| Fingerprint::of(other) == *pin).collect(),
        };
        // An authority is an anchor, whose own dates webpki does not look at.
        let anchors: Vec<TrustAnchor<'_>> = believed
            .into_iter()
            .filter(|authority| Validity::of(authority).is_some_and(|validity| validity.holds(now)))
            .filter_map(|authority| webpki::anchor_from_trusted_cert(authority).ok())
            .collect();
        let usage = match side {
            Side::Server => KeyUsage::server_auth(),
            Side::Client => KeyUsage::client_auth(),
        };
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms.all;
        let path = certificate
            .verify_for_usage(algorithms, &anchors, others, now, usage, None, None)
            .map_err(IdentityError::from_chain)?;
        let mut named = certificate.valid_uri_names().filter_map(Certified::parse);
        let certified = match (named.next(), named.next()) {
            (Some(certified), None) => certified,
            _ => return Err(IdentityError::NoRole),
        };
        // An issuer of one role certifies nobody of another.
        let mut limits = path.intermediate_certificates().flat_map(|issuer| issuer.valid_uri_names());
        let word = certified.role.word();
        match limits.any(|uri| uri.strip_prefix(ISSUER_URN).is_some_and(|role| role != word)) {
            true => Err(IdentityError::WrongIssuer { found: certified }),
            false => Ok(certified),
        }
    }

    /// Returns the next moment, since 1970, at which [`Authorities::certify`] may decide otherwise for that chain than
    /// it does `now`: one of the certificates begins or ceases to hold.
    pub(crate) fn next_change(&self, chain: &[CertificateDer<'_>], now: Duration) -> Duration {
        let known = match self {
            Self::Known(known) => known.as_slice(),
            Self::Pinned(_) => &[],
        };
        let dates = chain.iter().chain(known).filter_map(|certificate| Validity::of(certificate));
        // The last second counts.
        let changes = dates.flat_map(|dates| [dates.not_before, dates.not_after.saturating_add(1)]);
        let changes = changes.filter_map(|change| u64::try_from(change).ok().map(Duration::from_secs));
        changes.filter(|change| *change > now).min().unwrap_or(Duration::MAX)
    }
}

/// The reason why a certificate is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The peer showed no certificate.
    #[error("no certificate was shown")]
    Missing,
    /// The chain is longer than is accepted.
    #[error("{certificates} certificates were shown, at most {MAX_CHAIN} are checked")]
    TooMany {
        /// Number of certificates in the chain.
        certificates: usize,
    },
    /// The certificate cannot be read.
    #[error("the certificate cannot be read")]
    Malformed(#[source] webpki::Error),
    /// The certificate has expired.
    #[error("the certificate expired {ago} s ago", ago = .ago.as_secs())]
    Expired {
        /// Time since it expired.
        ago: Duration,
    },
    /// The certificate does not hold yet; most often a clock is wrong.
    #[error("the certificate becomes valid in {until} s", until = .until.as_secs())]
    NotYet {
        /// Time until it begins to hold.
        until: Duration,
    },
    /// No authority of this cluster has signed it for this use.
    #[error("the certificate was not issued by this cluster for this use")]
    Foreign(#[source] webpki::Error),
    /// The certificate names no role or more than one.
    #[error("the certificate does not name one role as {URN}<role>:<name>")]
    NoRole,
    /// Its signer may not certify a holder of that role.
    #[error("the certificate is that of {found}, signed by an issuer for another role")]
    WrongIssuer {
        /// The holder that it names.
        found: Certified,
    },
    /// The certificate was revoked.
    #[error("the certificate of {found} was revoked")]
    Revoked {
        /// The certificate's holder.
        found: Certified,
    },
    /// Its holder has another role.
    #[error("the certificate is that of {found}, expected the role {expected}", expected = .expected.word())]
    WrongRole {
        /// The certificate's holder.
        found: Certified,
        /// The role that was expected.
        expected: Role,
    },
    /// Its holder has another name.
    #[error("the certificate is that of {found}, expected the name `{expected}`")]
    WrongName {
        /// The certificate's holder.
        found: Certified,
        /// The name that was expected.
        expected: String,
    },
}

impl IdentityError {
    fn from_chain(error: webpki::Error) -> Self {
        match error {
            webpki::Error::CertExpired { time, not_after } => {
                Self::Expired { ago: Duration::from_secs(time.as_secs().saturating_sub(not_after.as_secs())) }
            }
            webpki::Error::CertNotValidYet { time, not_before } => Self::NotYet {
                until: Duration::from_secs(not_before.as_secs().saturating_sub(time.as_secs())),
            },
            other => Self::Foreign(other),
        }
    }

    /// Returns the word in metrics.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::TooMany { .. } => "too_many",
            Self::Malformed(_) => "malformed",
            Self::Expired { .. } => "expired",
            Self::NotYet { .. } => "not_yet",
            Self::Foreign(_) => "foreign",
            Self::NoRole => "no_role",
            Self::WrongIssuer { .. } => "wrong_issuer",
            Self::Revoked { .. } => "revoked",
            Self::WrongRole { .. } => "wrong_role",
            Self::WrongName { .. } => "wrong_name",
        }
    }
}

/// The roles that a certificate can name.
pub(crate) const CERTIFIED_ROLES: [Role; 5] =
    [Role::Viewer, Role::Trainer, Role::Node, Role::Admin, Role::Coordinator];
const URN: &str = "urn:rollhouse:";
/// The text before the word of the only role that an issuer below an authority may certify.
pub(crate) const ISSUER_URN: &str = "urn:rollhouse:issuer:";
const FINGERPRINT_PREFIX: &str = "sha256:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_of_many_certificates_is_refused_before_any_signature_is_checked() {
        let rubbish = CertificateDer::from(vec![1]);
        let certify = |certificates| {
            let chain = vec![rubbish.clone(); certificates];
            Authorities::Known(Vec::new()).certify(&chain, Side::Client, UnixTime::now())
        };
        assert_eq!(certify(MAX_CHAIN + 1), Err(IdentityError::TooMany { certificates: MAX_CHAIN + 1 }));
        assert!(matches!(certify(MAX_CHAIN), Err(IdentityError::Malformed(_))));
    }
}
