//! Identities: the cluster's authority, its certificates, and the checks of a peer's certificate.
//!
//! A certificate carries its holder's role and name as a URI, `urn:rollhouse:<role>:<name>`. Chain, dates, use and role
//! are checked, host names are not. Servers check clients after the TLS handshake, when they answer `Hello`, so that a
//! refusal can say why; until then a connection can do nothing.

mod authority;
mod clock;
mod der;
mod error;
mod files;
mod issuer;
mod joined_folder;
mod key_request;
mod peer_certificate;
mod pem;
mod reload;
mod revoked;
mod tls;
mod trust;
mod validity;

pub use authority::{CA_CERTIFICATE, CA_KEY, CertificateAuthority, Issued};
pub use error::{AuthorityError, IdentityFileError, KeyRequestError};
pub(crate) use files::{Kept, Stamp, read as read_file};
pub use files::{Readers, replace as replace_file};
pub use issuer::{Begins, IssuedToNode, NodeIssuer};
pub use joined_folder::{JoinedError, JoinedFolder};
pub use key_request::{KeyRequest, RequestedKey};
pub use peer_certificate::PeerCertificate;
pub use reload::{CertificateFiles, Identity, ShownCertificate, Trust, show_certificates};
pub use revoked::Revoked;
pub(crate) use tls::{client as tls_client, server as tls_server};
pub(crate) use trust::Side;
pub use trust::{Certified, Expected, Fingerprint, FingerprintError, IdentityError, is_name};
pub use validity::Validity;
