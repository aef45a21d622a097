//! The cluster's certificate authority, which makes certificates.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use rollhouse_core::is_node_name;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::clock;
use super::error::AuthorityError;
use super::files::{self, MAX_FILE_BYTES, Readers};
use super::pem::END_OF_CERTIFICATE;
use super::trust::{Authorities, CERTIFIED_ROLES, Certified, Fingerprint, Side, is_name};
use crate::Role;

/// Signs the certificates of one cluster. Its folder holds `ca.pem` for everybody and `ca.key` (0600) for those who
/// issue certificates; nodes and coordinators need only the first.
pub struct CertificateAuthority {
    certificate: CertificateDer<'static>,
    pem: String,
    key: KeyPair,
}

impl CertificateAuthority {
    /// Makes an authority in `folder`, which must exist, valid for `validity` from now. Blocks on the disk.
    ///
    /// # Errors
    /// [`AuthorityError::Exists`] if the folder has an authority: replacing it would cut off everybody. See
    /// [`AuthorityError`] for the others.
    pub fn create(folder: &Path, validity: Duration) -> Result<Self, AuthorityError> {
        let (certificate_path, key_path) = (folder.join(CA_CERTIFICATE), folder.join(CA_KEY));
        for path in [&certificate_path, &key_path] {
            if path.exists() {
                return Err(AuthorityError::Exists(path.clone()));
            }
        }
        let key = KeyPair::generate().map_err(AuthorityError::Make)?;
        let mut parameters = parameters(validity, backdated(validity));
        // It may let an issuer of nodes sign below it, and nobody below that.
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        parameters.distinguished_name = name_of_authority();
        let certificate = parameters.self_signed(&key).map_err(AuthorityError::Make)?;
        // The key first: a certificate without a key would stand in the way of the next attempt.
        write(&key_path, key.serialize_pem().as_bytes(), Readers::Owner)?;
        write(&certificate_path, certificate.pem().as_bytes(), Readers::All)?;
        Ok(Self { pem: certificate.pem(), certificate: certificate.der().clone(), key })
    }

    /// Loads the authority in `folder`. If `ca.pem` holds several certificates (a rotation), the one that belongs to
    /// `ca.key` counts. Blocks on the disk.
    ///
    /// # Errors
    /// See [`AuthorityError`].
    pub fn load(folder: &Path) -> Result<Self, AuthorityError> {
        let (certificate_path, key_path) = (folder.join(CA_CERTIFICATE), folder.join(CA_KEY));
        let key = text(&key_path)?;
        let key =
            KeyPair::from_pem(&key).map_err(|source| AuthorityError::BadKey { path: key_path, source })?;
        let pem = text(&certificate_path)?;
        let (certificate, pem) = pem
            .split_inclusive(END_OF_CERTIFICATE)
            .filter_map(|pem| Some((CertificateDer::from_pem_slice(pem.as_bytes()).ok()?, pem)))
            .find(|(certificate, _)| belongs(certificate, &key))
            .ok_or(AuthorityError::NoCertificate(certificate_path))?;
        Ok(Self { certificate, pem: format!("{}\n", pem.trim()), key })
    }

    /// Returns the authority's certificate as PEM, which everybody in the cluster is given.
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    /// Returns the fingerprint of the authority's certificate, which connection strings carry.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// Makes a key and a certificate for it. The certificate holds from an hour ago, because clocks differ, until
    /// `validity` from now.
    ///
    /// # Errors
    /// See [`AuthorityError`].
    pub fn issue(&self, role: Role, name: &str, validity: Duration) -> Result<Issued, AuthorityError> {
        self.issue_backdated(role, name, validity, backdated(validity))
    }

    /// Makes a key and a certificate as [`CertificateAuthority::issue`] does, but one that holds from now on: for a
    /// name whose other certificates were revoked.
    ///
    /// # Errors
    /// See [`AuthorityError`].
    pub fn issue_from_now(
        &self,
        role: Role,
        name: &str,
        validity: Duration,
    ) -> Result<Issued, AuthorityError> {
        self.issue_backdated(role, name, validity, Duration::ZERO)
    }

    fn issue_backdated(
        &self,
        role: Role,
        name: &str,
        validity: Duration,
        backdated: Duration,
    ) -> Result<Issued, AuthorityError> {
        if !CERTIFIED_ROLES.contains(&role) {
            return Err(AuthorityError::Role(role));
        }
        if !is_name(name) {
            return Err(AuthorityError::Name(name.chars().take(200).collect()));
        }
        if role == Role::Node && !is_node_name(name) {
            return Err(AuthorityError::NodeName(name.to_owned()));
        }
        let certified = Certified { role, name: name.to_string() };
        let key = KeyPair::generate().map_err(AuthorityError::Make)?;
        let parameters = holder_parameters(&certified, validity, backdated)?;
        let certificate = self.sign(&parameters, &key)?;
        // An authority that another program made may bear another name, and nobody would believe the result.
        let known = Authorities::Known(vec![self.certificate.clone()]);
        known
            .certify(&[certificate.der().clone()], Side::Client, clock::now())
            .map_err(AuthorityError::Useless)?;
        Ok(Issued {
            certificate_pem: format!("{}{}", certificate.pem(), self.pem),
            key_pem: key.serialize_pem(),
        })
    }

    /// Returns the authority's certificate.
    pub(super) const fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub(super) fn sign(
        &self,
        parameters: &CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<rcgen::Certificate, AuthorityError> {
        let mut ours = CertificateParams::default();
        ours.distinguished_name = name_of_authority();
        parameters.signed_by(key, &Issuer::from_params(&ours, &self.key)).map_err(AuthorityError::Make)
    }
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CertificateAuthority({})", self.fingerprint())
    }
}

/// A new certificate and its key.
pub struct Issued {
    /// PEM: the certificate and after it the authority's.
    pub certificate_pem: String,
    /// PEM: the key, PKCS #8.
    pub key_pem: String,
}

impl Issued {
    /// Writes `certificate` and `key` (0600), each replaced whole and durably. The key goes first; readers take the two
    /// only as a matching pair. Blocks on the disk.
    ///
    /// # Errors
    /// See [`AuthorityError::Write`].
    pub fn write(&self, certificate: &Path, key: &Path) -> Result<(), AuthorityError> {
        write(key, self.key_pem.as_bytes(), Readers::Owner)?;
        write(certificate, self.certificate_pem.as_bytes(), Readers::All)
    }
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Issued(..)")
    }
}

/// Returns how long before now a new certificate begins: short ones a tenth of their time.
pub(super) fn backdated(validity: Duration) -> Duration {
    BACKDATED.min(validity / 10)
}

/// Returns the parameters that all our certificates share.
pub(super) fn parameters(validity: Duration, backdated: Duration) -> CertificateParams {
    let now = SystemTime::now();
    let mut parameters = CertificateParams::default();
    parameters.not_before = (now - backdated).into();
    parameters.not_after = (now + validity.min(LONGEST_VALIDITY)).into();
    parameters.distinguished_name = DistinguishedName::new();
    parameters
}

/// Returns the parameters of the certificate of somebody with a role in a cluster.
pub(super) fn holder_parameters(
    certified: &Certified,
    validity: Duration,
    backdated: Duration,
) -> Result<CertificateParams, AuthorityError> {
    let mut parameters = parameters(validity, backdated);
    parameters.distinguished_name.push(DnType::CommonName, certified.to_string());
    let uri = certified.uri().try_into().map_err(AuthorityError::Make)?;
    parameters.subject_alt_names = vec![SanType::URI(uri)];
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if matches!(certified.role, Role::Node | Role::Coordinator) {
        parameters.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    parameters.use_authority_key_identifier_extension = true;
    Ok(parameters)
}

/// Returns the authority's name. It is the same for every cluster, so that a key alone suffices to issue; clusters
/// differ by their keys.
fn name_of_authority() -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, "rollhouse cluster authority");
    name
}

pub(super) fn belongs(certificate: &CertificateDer<'_>, key: &KeyPair) -> bool {
    webpki::EndEntityCert::try_from(certificate)
        .is_ok_and(|parsed| parsed.subject_public_key_info().as_ref() == key.subject_public_key_info())
}

pub(super) fn write(path: &Path, contents: &[u8], readers: Readers) -> Result<(), AuthorityError> {
    files::replace(path, contents, readers)
        .map_err(|source| AuthorityError::Write { path: path.to_path_buf(), source })
}

pub(super) fn text(path: &Path) -> Result<String, AuthorityError> {
    let error = |source| AuthorityError::Read { path: path.to_path_buf(), source };
    let bytes = files::read(path, MAX_FILE_BYTES).map_err(error)?;
    String::from_utf8(bytes).map_err(|bad| error(io::Error::new(io::ErrorKind::InvalidData, bad)))
}

/// The name of the authority's certificate in its folder.
pub const CA_CERTIFICATE: &str = "ca.pem";
/// The name of the authority's key in its folder.
pub const CA_KEY: &str = "ca.key";
/// Time by which the clocks of peers may be behind ours.
const BACKDATED: Duration = Duration::from_secs(3600);
/// The longest validity, a hundred years: it keeps the year within what a certificate can say.
const LONGEST_VALIDITY: Duration = Duration::from_secs(100 * 365 * 86_400);
