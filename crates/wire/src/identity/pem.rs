//! Certificates as text.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Returns the certificates in some PEM without everything else in it, such as keys and remarks.
pub(crate) fn certificates_in(pem: &str) -> String {
    let parts =
        pem.split_inclusive(END_OF_CERTIFICATE).filter_map(|part| part.rfind(BEGIN).map(|at| &part[at..]));
    let whole = parts.filter(|part| CertificateDer::from_pem_slice(part.as_bytes()).is_ok());
    whole.map(|part| format!("{part}\n")).collect()
}

/// Line at which a certificate begins.
pub(super) const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
/// Line at which a certificate ends.
pub(super) const END_OF_CERTIFICATE: &str = "-----END CERTIFICATE-----";
