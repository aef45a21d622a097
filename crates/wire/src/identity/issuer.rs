//! The coordinator's issuer of certificates for nodes, and for nobody else.
//!
//! Its own certificate is signed by the cluster's authority. The URI `urn:rollhouse:issuer:node` in it says for whom it
//! may sign. A peer that checks a chain through the issuer takes its holder for a node or for nobody: a thief of the
//! issuer's key can be any node, but no trainer, admin or coordinator.

use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use rollhouse_core::is_node_name;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::authority::{
    CertificateAuthority, backdated, belongs, holder_parameters, parameters, text, write,
};
use super::clock;
use super::error::AuthorityError;
use super::files::Readers;
use super::key_request::{KeyRequest, RequestedKey};
use super::pem::certificates_in;
use super::trust::{Authorities, Certified, ISSUER_URN, Side};
use super::validity::Validity;
use crate::Role;

/// Signs certificates of nodes. Its file (0600) holds its key, its certificate and the authority's.
pub struct NodeIssuer {
    /// The issuer's certificate, then the authority's.
    chain: Vec<CertificateDer<'static>>,
    chain_pem: String,
    key: KeyPair,
    /// The time in which every certificate of the chain holds.
    validity: Validity,
}

/// The moment at which a new certificate begins to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begins {
    /// It holds from somewhat before now, because clocks differ: an hour, or a tenth of its validity if that is less.
    Backdated,
    /// It holds from now, because others of the name were revoked.
    Now,
}

/// A certificate that was issued to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedToNode {
    /// PEM: the node's certificate, the issuer's, the authority's.
    pub certificate_pem: String,
    /// The time in which it holds.
    pub validity: Validity,
    /// Whether it holds for less time than was asked for, because the issuer does.
    pub is_cut_short: bool,
}

impl NodeIssuer {
    /// Makes an issuer that holds for `validity` from now, in the file `path`, which is replaced whole. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// See [`AuthorityError`].
    pub fn create(
        authority: &CertificateAuthority,
        validity: Duration,
        path: &Path,
    ) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate().map_err(AuthorityError::Make)?;
        let mut parameters = parameters(validity, backdated(validity));
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        parameters.distinguished_name = name_of_issuer();
        let uri = format!("{ISSUER_URN}{}", Role::Node.word()).try_into().map_err(AuthorityError::Make)?;
        parameters.subject_alt_names = vec![SanType::URI(uri)];
        parameters.use_authority_key_identifier_extension = true;
        let certificate = authority.sign(&parameters, &key)?;
        let chain = vec![certificate.der().clone(), authority.certificate().clone()];
        let chain_pem = format!("{}{}", certificate.pem(), authority.certificate_pem());
        let contents = format!("{}{chain_pem}", key.serialize_pem());
        let issuer = Self::of(path, chain, chain_pem, key)?;
        // One whose certificates nobody believes is told of now, not when the first node joins.
        let request = KeyRequest::make()?;
        let asked = RequestedKey::read(request.request()).map_err(AuthorityError::Request)?;
        issuer.issue(&asked, "node", validity, Begins::Backdated)?;
        write(path, contents.as_bytes(), Readers::Owner)?;
        Ok(issuer)
    }

    /// Loads the issuer in that file. Blocks on the disk.
    ///
    /// # Errors
    /// See [`AuthorityError`]; [`AuthorityError::Read`] if there is no such file.
    pub fn load(path: &Path) -> Result<Self, AuthorityError> {
        let contents = text(path)?;
        let key = KeyPair::from_pem(&contents)
            .map_err(|source| AuthorityError::BadKey { path: path.to_path_buf(), source })?;
        let chain_pem = certificates_in(&contents);
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(chain_pem.as_bytes()).filter_map(Result::ok).collect();
        Self::of(path, chain, chain_pem, key)
    }

    fn of(
        path: &Path,
        chain: Vec<CertificateDer<'static>>,
        chain_pem: String,
        key: KeyPair,
    ) -> Result<Self, AuthorityError> {
        let missing = || AuthorityError::NoCertificate(path.to_path_buf());
        chain.first().filter(|own| chain.len() > 1 && belongs(own, &key)).ok_or_else(missing)?;
        let all = chain.iter().map(|link| Validity::of(link)).collect::<Option<Vec<_>>>();
        let validity = all.and_then(|all| all.into_iter().reduce(Validity::within)).ok_or_else(missing)?;
        Ok(Self { chain, chain_pem, key, validity })
    }

    /// Returns the time in which the issuer, and certificates that it signs, can hold.
    pub const fn validity(&self) -> Validity {
        self.validity
    }

    /// Makes a certificate for the key of the node `name`. It holds for `validity` from now, but no longer than the
    /// issuer, and begins as `begins` says.
    ///
    /// # Errors
    /// See [`AuthorityError`]; [`AuthorityError::Useless`] if the issuer does not hold any more.
    pub fn issue(
        &self,
        key: &RequestedKey,
        name: &str,
        validity: Duration,
        begins: Begins,
    ) -> Result<IssuedToNode, AuthorityError> {
        if !is_node_name(name) {
            return Err(AuthorityError::NodeName(name.chars().take(200).collect()));
        }
        let left = self.validity.left(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let certified = Certified { role: Role::Node, name: name.to_string() };
        let validity_left = validity.min(left);
        let backdated = match begins {
            Begins::Backdated => backdated(validity_left),
            Begins::Now => Duration::ZERO,
        };
        let parameters = holder_parameters(&certified, validity_left, backdated)?;
        let mut ours = CertificateParams::default();
        ours.distinguished_name = name_of_issuer();
        let issuer = Issuer::from_params(&ours, &self.key);
        let certificate = parameters.signed_by(key, &issuer).map_err(AuthorityError::Make)?;
        let mut chain = vec![certificate.der().clone()];
        chain.extend(self.chain.iter().cloned());
        // Nobody is given what nobody believes.
        let known = Authorities::Known(self.chain.last().cloned().into_iter().collect());
        known.certify(&chain, Side::Client, clock::now()).map_err(AuthorityError::Useless)?;
        let held = Validity::of(certificate.der()).map_or(self.validity, |own| own.within(self.validity));
        Ok(IssuedToNode {
            certificate_pem: format!("{}{}", certificate.pem(), self.chain_pem),
            validity: held,
            is_cut_short: left < validity,
        })
    }
}

impl fmt::Debug for NodeIssuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeIssuer").field("validity", &self.validity).finish_non_exhaustive()
    }
}

/// Returns the issuer's name. It is the same for every cluster, so that its file suffices to issue.
fn name_of_issuer() -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, "rollhouse issuer of nodes");
    name
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::UnixTime;

    use super::super::pem::BEGIN;
    use super::*;
    use crate::IdentityError;

    const DAY: Duration = Duration::from_secs(86_400);

    fn asked() -> RequestedKey {
        RequestedKey::read(KeyRequest::make().unwrap().request()).unwrap()
    }

    /// Returns the holder for whom a peer that knows the authority takes a chain.
    fn certify(authority: &CertificateAuthority, pem: &str) -> Result<Certified, IdentityError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect();
        let pinned = Authorities::Pinned(authority.fingerprint());
        let known = Authorities::Known(vec![authority.certificate().clone()]);
        let found = known.certify(&chain, Side::Client, UnixTime::now());
        assert_eq!(pinned.certify(&chain, Side::Client, UnixTime::now()), found);
        found
    }

    #[test]
    fn what_an_issuer_signs_is_believed_as_that_node_by_file_and_by_fingerprint() {
        let folder = tempfile::tempdir().unwrap();
        let authority = CertificateAuthority::create(folder.path(), 30 * DAY).unwrap();
        let path = folder.path().join("issuer.pem");
        NodeIssuer::create(&authority, 10 * DAY, &path).unwrap();
        let issuer = NodeIssuer::load(&path).unwrap();
        let issued = issuer.issue(&asked(), "n1", DAY, Begins::Backdated).unwrap();
        let found = certify(&authority, &issued.certificate_pem).unwrap();
        assert_eq!(found, Certified { role: Role::Node, name: "n1".into() });
        assert!(!issued.is_cut_short);
        assert!(!issued.certificate_pem.contains("PRIVATE"));
        let long = issuer.issue(&asked(), "n1", 20 * DAY, Begins::Backdated).unwrap();
        assert!(long.is_cut_short && long.validity.not_after <= issuer.validity().not_after);
        assert!(matches!(
            issuer.issue(&asked(), "a b", DAY, Begins::Backdated),
            Err(AuthorityError::NodeName(_))
        ));
    }

    /// Guards against this symptom: a thief of the coordinator's issuer makes himself an admin.
    #[test]
    fn whom_an_issuer_of_nodes_certifies_as_anybody_else_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let authority = CertificateAuthority::create(folder.path(), 30 * DAY).unwrap();
        let issuer = NodeIssuer::create(&authority, 10 * DAY, &folder.path().join("issuer.pem")).unwrap();
        for role in [Role::Admin, Role::Trainer, Role::Viewer, Role::Coordinator] {
            let certified = Certified { role, name: "mallory".into() };
            let mut ours = CertificateParams::default();
            ours.distinguished_name = name_of_issuer();
            let forged = holder_parameters(&certified, DAY, Duration::ZERO).unwrap();
            let forged = forged.signed_by(&asked(), &Issuer::from_params(&ours, &issuer.key)).unwrap();
            let found = certify(&authority, &format!("{}{}", forged.pem(), issuer.chain_pem));
            assert_eq!(found, Err(IdentityError::WrongIssuer { found: certified }));
        }
    }

    #[test]
    fn an_issuer_cannot_make_another_one_below_it() {
        let folder = tempfile::tempdir().unwrap();
        let authority = CertificateAuthority::create(folder.path(), 30 * DAY).unwrap();
        let issuer = NodeIssuer::create(&authority, 10 * DAY, &folder.path().join("issuer.pem")).unwrap();
        let mut ours = CertificateParams::default();
        ours.distinguished_name = name_of_issuer();
        let by_issuer = Issuer::from_params(&ours, &issuer.key);
        let key = KeyPair::generate().unwrap();
        let mut below = parameters(DAY, Duration::ZERO);
        below.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        below.distinguished_name.push(DnType::CommonName, "below");
        let signed = below.signed_by(&key, &by_issuer).unwrap();
        let admin = Certified { role: Role::Admin, name: "mallory".into() };
        let leaf = holder_parameters(&admin, DAY, Duration::ZERO).unwrap();
        let leaf = leaf.signed_by(&asked(), &Issuer::from_params(&below, &key)).unwrap();
        let chain = format!("{}{}{}", leaf.pem(), signed.pem(), issuer.chain_pem);
        assert!(matches!(certify(&authority, &chain), Err(IdentityError::Foreign(_))));
    }

    #[test]
    fn a_file_that_is_no_issuers_is_refused_and_a_key_beside_certificates_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let authority = CertificateAuthority::create(folder.path(), 30 * DAY).unwrap();
        let path = folder.path().join("issuer.pem");
        assert!(matches!(NodeIssuer::load(&path), Err(AuthorityError::Read { .. })));
        let issued = authority.issue(Role::Node, "n", DAY).unwrap();
        let other = authority.issue(Role::Node, "n", DAY).unwrap();
        std::fs::write(&path, format!("{}{}", issued.key_pem, other.certificate_pem)).unwrap();
        assert!(matches!(NodeIssuer::load(&path), Err(AuthorityError::NoCertificate(_))));
        let mixed = format!("# ours\n{}{}", issued.key_pem, issued.certificate_pem);
        assert_eq!(certificates_in(&mixed).matches(BEGIN).count(), 2);
        assert!(!certificates_in(&mixed).contains("PRIVATE"));
    }
}
