//! Names whose certificates are not believed any more, although they have not expired.
//!
//! ```text
//! # who               the last second, since 1970, of those that are not
//! node node-3         1795512345
//! ```
//!
//! Names and times are kept, not serial numbers: a thief of a node's key may have had its certificate renewed since,
//! and nobody would know the number of the new one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use rustls::pki_types::CertificateDer;

use super::error::IdentityFileError;
use super::files::{self, MAX_FILE_BYTES, Readers, replace};
use super::trust::{CERTIFIED_ROLES, Certified, IdentityError, is_name};
use super::validity::Validity;

/// Names with a moment each. A certificate of such a name is not believed if it began to hold until that moment; one
/// that begins later is new, and believed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Revoked {
    /// The last second, since 1970, by the role's word and the name.
    until: BTreeMap<(&'static str, String), u64>,
}

impl Revoked {
    /// Reads that file; without a file nobody is revoked. Blocks on the disk.
    ///
    /// # Errors
    /// [`IdentityFileError::Read`], or [`IdentityFileError::Revoked`] for a malformed line.
    pub fn read(path: &Path) -> Result<Self, IdentityFileError> {
        let bytes = match files::read(path, MAX_FILE_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(IdentityFileError::Read { path: path.to_path_buf(), source }),
        };
        let mut revoked = Self::default();
        for (index, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                let (certified, until) = parse(line).ok_or_else(|| IdentityFileError::Revoked {
                    path: path.to_path_buf(),
                    line: index + 1,
                })?;
                revoked.revoke(&certified, Duration::from_secs(until));
            }
        }
        Ok(revoked)
    }

    /// Writes the file, whole and durably. Blocks on the disk.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let mut text =
            "# Certificates that are not believed: ROLE NAME and the last second, since 1970.\n".to_owned();
        for ((role, name), until) in &self.until {
            // Writing to a string cannot fail.
            let _written = writeln!(text, "{role} {name} {until}");
        }
        replace(path, text.as_bytes(), Readers::All)
    }

    /// Revokes the certificates of that name that began to hold until then, unless they are revoked already.
    pub fn revoke(&mut self, of: &Certified, until: Duration) {
        let known = self.until.entry((of.role.word(), of.name.clone())).or_default();
        *known = (*known).max(until.as_secs());
    }

    /// Returns the revoked names, each with its last second since 1970, by role and name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str, u64)> {
        self.until.iter().map(|((role, name), until)| (*role, name.as_str(), *until))
    }

    /// Returns whether certificates of that name have been revoked.
    pub(super) fn names(&self, of: &Certified) -> bool {
        self.until(of).is_some()
    }

    /// Refuses a revoked certificate, whose holder is `found`.
    pub(super) fn check(
        &self,
        found: &Certified,
        certificate: &CertificateDer<'_>,
    ) -> Result<(), IdentityError> {
        let Some(until) = self.until(found) else { return Ok(()) };
        // One without dates was not believed before.
        let began = Validity::of(certificate).map_or(i64::MIN, |dates| dates.not_before);
        match u64::try_from(began).is_ok_and(|began| began > until) {
            true => Ok(()),
            false => Err(IdentityError::Revoked { found: found.clone() }),
        }
    }

    fn until(&self, of: &Certified) -> Option<u64> {
        self.until.get(&(of.role.word(), of.name.clone())).copied()
    }
}

fn parse(line: &str) -> Option<(Certified, u64)> {
    let mut words = line.split_whitespace();
    let (role, name, until) = (words.next()?, words.next()?, words.next()?);
    let role = CERTIFIED_ROLES.into_iter().find(|known| known.word() == role)?;
    let whole = words.next().is_none() && is_name(name);
    whole.then_some((Certified { role, name: name.to_owned() }, until.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CertificateAuthority, CertificateFiles, Identity, Role, Trust};
    use rustls::pki_types::UnixTime;
    use rustls::pki_types::pem::PemObject;
    use std::time::{SystemTime, UNIX_EPOCH};

    const DAY: Duration = Duration::from_secs(86_400);

    fn node(name: &str) -> Certified {
        Certified { role: Role::Node, name: name.to_owned() }
    }

    #[test]
    fn what_is_revoked_is_read_as_it_was_written_and_later_moments_win() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("revoked");
        assert_eq!(Revoked::read(&path).unwrap(), Revoked::default(), "no file revokes nobody");
        let mut revoked = Revoked::default();
        revoked.revoke(&node("n1"), Duration::from_secs(20));
        revoked.revoke(&node("n1"), Duration::from_secs(10));
        revoked.revoke(&Certified { role: Role::Admin, name: "n1".to_owned() }, Duration::from_secs(5));
        revoked.write(&path).unwrap();
        assert_eq!(Revoked::read(&path).unwrap(), revoked);
        assert_eq!(revoked.iter().collect::<Vec<_>>(), [("admin", "n1", 5), ("node", "n1", 20)]);
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("revoked");
        for line in ["node n1", "node n1 soon", "king n1 5", "node n/1 5", "node n1 5 6", "token n1 5"] {
            std::fs::write(&path, format!("# who\n\nnode n2 7 # gone\n{line}\n")).unwrap();
            let error = Revoked::read(&path).unwrap_err();
            assert!(matches!(error, IdentityFileError::Revoked { line: 4, .. }), "{line}: {error:?}");
        }
    }

    #[test]
    fn a_revoked_certificate_is_not_believed_and_one_that_begins_later_is() {
        let folder = tempfile::tempdir().unwrap();
        let authority = CertificateAuthority::create(folder.path(), 30 * DAY).unwrap();
        let files = |name: &str| CertificateFiles {
            certificate: folder.path().join(format!("{name}.pem")),
            key: folder.path().join(format!("{name}.key")),
        };
        let own = files("own");
        let issue = |role, name: &str| authority.issue(role, name, DAY).unwrap();
        issue(Role::Coordinator, "main").write(&own.certificate, &own.key).unwrap();
        let path = folder.path().join("revoked");
        let trust = || Trust::File(folder.path().join("ca.pem"));
        let identity = Identity::load_refusing(trust(), Some(own.clone()), &path).unwrap();
        let (old, other) = (issue(Role::Node, "n1"), issue(Role::Node, "n2"));
        assert_eq!(identity.believes(&old.certificate_pem), Ok(node("n1")));

        let mut revoked = Revoked::default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        revoked.revoke(&node("n1"), now - Duration::from_secs(1));
        revoked.write(&path).unwrap();
        identity.look_again();
        let refused = IdentityError::Revoked { found: node("n1") };
        assert_eq!(identity.believes(&old.certificate_pem), Err(refused.clone()));
        assert_eq!(identity.believes(&other.certificate_pem), Ok(node("n2")));
        // It begins an hour ago, as all do.
        assert_eq!(identity.believes(&issue(Role::Node, "n1").certificate_pem), Err(refused));
        let new = authority.issue_from_now(Role::Node, "n1", DAY).unwrap();
        assert_eq!(identity.believes(&new.certificate_pem), Ok(node("n1")));
        let chain = CertificateDer::from_pem_slice(new.certificate_pem.as_bytes()).unwrap();
        assert!(Validity::of(&chain).unwrap().holds(UnixTime::now()));

        std::fs::write(&path, "nonsense").unwrap();
        identity.look_again();
        assert!(identity.trouble().is_some());
        assert!(identity.believes(&old.certificate_pem).is_err(), "what was read before stays in force");
    }
}
