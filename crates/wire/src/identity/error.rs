//! Reasons for which keys, certificates and their files cannot be used.

use std::fmt;
use std::io;
use std::path::PathBuf;

use rollhouse_core::NODE_NAME_RULE;

use super::trust::IdentityError;
use crate::Role;
use crate::limits::MAX_CERTIFICATE_REQUEST_BYTES;

/// The reason why an authority cannot be made or read, or a certificate cannot be issued.
#[expect(missing_docs, reason = "the fields' names say what they are")]
#[derive(Debug)]
pub enum AuthorityError {
    /// The folder has an authority already.
    Exists(PathBuf),
    /// A file cannot be read.
    Read { path: PathBuf, source: io::Error },
    /// A file cannot be written.
    Write { path: PathBuf, source: io::Error },
    /// The key cannot be read.
    BadKey {
        /// The key's file.
        path: PathBuf,
        source: rcgen::Error,
    },
    /// None of the certificates in the file belongs to the key.
    NoCertificate(PathBuf),
    /// No certificate can be issued to that role.
    Role(Role),
    /// The text is not a name.
    Name(String),
    /// The text is not a node's name.
    NodeName(String),
    /// The certificate cannot be made.
    Make(rcgen::Error),
    /// The certificate was made but would not be believed.
    Useless(IdentityError),
    /// The bytes are not a request for a certificate.
    Request(KeyRequestError),
}

impl fmt::Display for AuthorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists(path) => {
                write!(f, "{} exists; a second authority would cut off all", path.display())
            }
            Self::Read { path, .. } => write!(f, "{} cannot be read", path.display()),
            Self::Write { path, .. } => write!(f, "{} cannot be written", path.display()),
            Self::BadKey { path, .. } => write!(f, "{} holds no usable key", path.display()),
            Self::NoCertificate(path) => {
                write!(f, "{} holds no certificate that belongs to the key beside it", path.display())
            }
            Self::Role(role) => write!(f, "no certificate is issued to the role {}", role.word()),
            Self::Name(name) => write!(
                f,
                "`{name}` is not a name; a name has 1 to {} letters, digits, `.`, `_` or `-`",
                crate::limits::MAX_NAME_BYTES
            ),
            Self::NodeName(name) => {
                write!(f, "`{name}` is not a node's name; a node's name has {NODE_NAME_RULE}")
            }
            Self::Make(_) => f.write_str("the certificate cannot be made"),
            Self::Useless(_) => {
                f.write_str("the certificate would not be believed by this authority's cluster")
            }
            Self::Request(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AuthorityError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } | Self::Write { source, .. } => Some(source),
            Self::BadKey { source, .. } | Self::Make(source) => Some(source),
            Self::Useless(source) => Some(source),
            Self::Exists(_)
            | Self::NoCertificate(_)
            | Self::Role(_)
            | Self::Name(_)
            | Self::NodeName(_)
            | Self::Request(_) => None,
        }
    }
}

/// The reason why bytes are not a request for a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyRequestError {
    /// The request is longer than [`MAX_CERTIFICATE_REQUEST_BYTES`].
    #[error("the certificate request has {bytes} bytes, at most {MAX_CERTIFICATE_REQUEST_BYTES} allowed")]
    TooLong {
        /// Length of the request in bytes.
        bytes: usize,
    },
    /// The bytes are not PKCS #10.
    #[error("the certificate request is not pkcs #10")]
    Malformed,
    /// Its key is not of the curve P-256, or its signature not ECDSA with SHA-256.
    #[error("the certificate request has another kind of key or signature than ecdsa with p-256 and sha-256")]
    OtherKey,
    /// Its signature is not by its key.
    #[error("the certificate request is not signed with its key")]
    Signature,
}

/// The reason why the files of an identity cannot be used.
#[expect(missing_docs, reason = "the fields' names say what they are")]
#[derive(Debug, thiserror::Error)]
pub enum IdentityFileError {
    /// A file cannot be read.
    #[error("{path} cannot be read", path = .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file is not PEM.
    #[error("{path} is not PEM", path = .path.display())]
    Pem { path: PathBuf, source: rustls::pki_types::pem::Error },
    /// The file has no certificate.
    #[error("{path} holds no certificate", path = .0.display())]
    Empty(PathBuf),
    /// The key cannot be used, or is not that of the certificate.
    #[error("{path} is not the key of the certificate", path = .path.display())]
    Key { path: PathBuf, source: rustls::Error },
    /// A line of the file of revoked certificates is malformed.
    #[error("line {line} of {path} is not ROLE NAME SECONDS", path = .path.display())]
    Revoked {
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
    },
    /// The cluster would not believe the certificate.
    #[error("the cluster would not believe {path}", path = .path.display())]
    Refused { path: PathBuf, source: Box<IdentityError> },
}
