//! The folder in which a node keeps what it was given when it joined.
//!
//! `identity.pem` (0600) holds the node's key, its certificate and those that link it to the authority, so that key and
//! certificate are always a pair, whenever the power goes; `ca.pem` holds the authorities that the node trusts.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::IdentityFileError;
use super::files::{self, Readers};
use super::key_request::KeyRequest;
use super::reload::{CertificateFiles, Identity, Trust};
use super::trust::{Certified, Expected, IdentityError};
use super::validity::Validity;
use crate::Enrolled;
use crate::limits::MAX_CERTIFICATES_BYTES;

/// The folder in which a node that has joined keeps its key, its certificate and its trusted authorities, and in which
/// renewed ones take their place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedFolder(PathBuf);

impl JoinedFolder {
    /// Makes a value for that folder, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns whether the folder holds a certificate that was given.
    pub fn is_joined(&self) -> bool {
        self.0.join(IDENTITY).exists()
    }

    /// Loads the identity that was given last. Blocks on the disk.
    ///
    /// # Errors
    /// See [`IdentityFileError`]; also when the certificate has expired.
    pub fn load(&self) -> Result<Arc<Identity>, IdentityFileError> {
        let identity = self.0.join(IDENTITY);
        let files = CertificateFiles { certificate: identity.clone(), key: identity };
        Identity::load(Trust::File(self.0.join(CA)), Some(files))
    }

    /// Keeps the certificate that the node `name` was given for the key of `request`, if it can be used. It takes the
    /// place of the earlier one, durably. Blocks on the disk.
    ///
    /// # Errors
    /// See [`JoinedError`]; the earlier certificate stays in that case.
    pub fn keep(&self, request: &KeyRequest, given: &Enrolled, name: &str) -> Result<Validity, JoinedError> {
        let bytes = given.certificate.len().max(given.authorities.len());
        if bytes > MAX_CERTIFICATES_BYTES {
            return Err(JoinedError::TooLong { bytes });
        }
        let new = Self(self.0.join(NEW));
        DirBuilder::new().recursive(true).mode(0o700).create(&new.0).map_err(|e| write_error(&new.0, e))?;
        let put = |name: &str, contents: &str, readers| {
            let path = new.0.join(name);
            files::replace(&path, contents.as_bytes(), readers).map_err(|error| write_error(&path, error))
        };
        put(CA, &given.authorities, Readers::All)?;
        put(IDENTITY, &format!("{}{}", request.key_pem(), given.certificate), Readers::Owner)?;
        let validity = new.check(name)?;
        // Whom the new certificate is believed by is trusted before it is shown.
        for name in [CA, IDENTITY] {
            let (from, to) = (new.0.join(name), self.0.join(name));
            fs::rename(&from, &to).map_err(|error| write_error(&to, error))?;
        }
        File::open(&self.0).and_then(|folder| folder.sync_all()).map_err(|e| write_error(&self.0, e))?;
        Ok(validity)
    }

    fn check(&self, name: &str) -> Result<Validity, JoinedError> {
        let identity = self.load().map_err(JoinedError::Useless)?;
        let (certified, validity) = identity
            .certified()
            .zip(identity.validity())
            .ok_or(JoinedError::Other(IdentityError::Missing))?;
        Expected::node(name).check(&certified).map_err(JoinedError::Other)?;
        Ok(validity)
    }

    /// Returns the holder of the kept certificate, whether it still holds or not; `None` if it cannot be read.
    pub fn shown(&self) -> Option<Certified> {
        let shown = super::show_certificates(&self.0.join(IDENTITY)).ok()?;
        shown.into_iter().next()?.certified
    }
}

/// The reason why a given certificate is not kept.
#[expect(missing_docs, reason = "the fields' names say what they are")]
#[derive(Debug, thiserror::Error)]
pub enum JoinedError {
    /// The certificates are longer than [`MAX_CERTIFICATES_BYTES`].
    #[error("certificates of {bytes} bytes were given, at most {MAX_CERTIFICATES_BYTES} allowed")]
    TooLong {
        /// Their length in bytes.
        bytes: usize,
    },
    /// A file cannot be written.
    #[error("{path} cannot be written", path = .path.display())]
    Write { path: PathBuf, source: io::Error },
    /// It is not a certificate of the node's key that the authorities beside it believe.
    #[error("the coordinator gave certificates that cannot be used")]
    Useless(#[source] IdentityFileError),
    /// The certificate belongs to somebody else.
    #[error("the coordinator gave somebody else's certificate")]
    Other(#[source] IdentityError),
}

fn write_error(path: &Path, source: io::Error) -> JoinedError {
    JoinedError::Write { path: path.to_path_buf(), source }
}

const IDENTITY: &str = "identity.pem";
const CA: &str = "ca.pem";
/// The folder in which files are made before they are put in their place.
const NEW: &str = "new";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Begins, CertificateAuthority, NodeIssuer, RequestedKey};
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;
    use tempfile::TempDir;

    const DAY: Duration = Duration::from_secs(86_400);

    struct Given {
        folder: TempDir,
        issuer: NodeIssuer,
        authorities: String,
    }

    impl Given {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let authority = CertificateAuthority::create(folder.path(), 30 * DAY).unwrap();
            let issuer = NodeIssuer::create(&authority, 10 * DAY, &folder.path().join("issuer.pem")).unwrap();
            Self { folder, issuer, authorities: authority.certificate_pem().to_owned() }
        }

        fn enrolled(&self, request: &KeyRequest, node: &str) -> Enrolled {
            let key = RequestedKey::read(request.request()).unwrap();
            let certificate = self.issuer.issue(&key, node, DAY, Begins::Backdated).unwrap().certificate_pem;
            Enrolled { certificate, authorities: self.authorities.clone() }
        }
    }

    #[test]
    fn what_was_given_is_kept_for_its_owner_only_and_taken_at_the_next_look() {
        let given = Given::new();
        let joined = JoinedFolder::new(given.folder.path().join("joined"));
        assert!(!joined.is_joined() && joined.shown().is_none());
        let request = KeyRequest::make().unwrap();
        joined.keep(&request, &given.enrolled(&request, "n1"), "n1").unwrap();
        let identity = joined.load().unwrap();
        assert_eq!(identity.certified(), joined.shown());
        let mode = fs::metadata(joined.path().join(IDENTITY)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (before, next) = (identity.certified().unwrap(), KeyRequest::make().unwrap());
        joined.keep(&next, &given.enrolled(&next, "n1"), "n1").unwrap();
        identity.read_again();
        assert_eq!(identity.certified(), Some(before));
        assert!(identity.trouble().is_none());
        assert!(fs::read_to_string(joined.path().join(IDENTITY)).unwrap().starts_with(next.key_pem()));
    }

    #[test]
    fn what_is_of_no_use_leaves_what_was_there_as_it_is() {
        let (given, foreign) = (Given::new(), Given::new());
        let joined = JoinedFolder::new(given.folder.path().join("joined"));
        let request = KeyRequest::make().unwrap();
        joined.keep(&request, &given.enrolled(&request, "n1"), "n1").unwrap();
        let before = fs::read(joined.path().join(IDENTITY)).unwrap();
        let other = KeyRequest::make().unwrap();
        let good = given.enrolled(&other, "n1");
        let long = Enrolled { certificate: " ".repeat(MAX_CERTIFICATES_BYTES + 1), ..good.clone() };
        assert!(matches!(joined.keep(&other, &long, "n1"), Err(JoinedError::TooLong { .. })));
        assert!(matches!(joined.keep(&request, &good, "n1"), Err(JoinedError::Useless(_))), "another key's");
        let theirs = Enrolled { authorities: foreign.authorities.clone(), ..good.clone() };
        assert!(
            matches!(joined.keep(&other, &theirs, "n1"), Err(JoinedError::Useless(_))),
            "nobody believes it"
        );
        let named = given.enrolled(&other, "n2");
        assert!(matches!(joined.keep(&other, &named, "n1"), Err(JoinedError::Other(_))), "another name");
        assert_eq!(fs::read(joined.path().join(IDENTITY)).unwrap(), before);
    }
}
