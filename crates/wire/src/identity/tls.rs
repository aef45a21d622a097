//! The settings of TLS 1.3 in the cluster: one provider, no resumption, no early data.

use std::sync::{Arc, OnceLock};

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    PeerMisbehaved, ServerConfig, SignatureScheme,
};

use super::clock::WallClock;
use super::reload::Identity;
use super::trust::{Certified, Expected, IdentityError, Side};
use crate::version::ALPN;

/// Returns the TLS settings of a listening endpoint. TLS lets a peer without a certificate through, and any certificate
/// whose key the peer has: `Hello` decides, and can say in words why not.
pub(crate) fn server(identity: Arc<Identity>) -> Result<quinn::ServerConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let any = Arc::new(AnyClient(provider.clone()));
    let mut tls = ServerConfig::builder_with_details(provider, Arc::new(WallClock))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(any)
        .with_cert_resolver(identity);
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;
    let quic = QuicServerConfig::try_from(tls).map_err(no_suite)?;
    Ok(quinn::ServerConfig::with_crypto(Arc::new(quic)))
}

/// Returns the TLS settings for dialling one peer, and the place where the check leaves its result.
pub(crate) fn client(
    identity: Arc<Identity>,
    expected: Expected,
) -> Result<(quinn::ClientConfig, Arc<Verdict>), Error> {
    let provider = Arc::new(ring::default_provider());
    let verdict = Arc::new(Verdict(OnceLock::new()));
    let check = ServerCheck {
        identity: identity.clone(),
        expected,
        provider: provider.clone(),
        verdict: verdict.clone(),
    };
    let mut tls = ClientConfig::builder_with_details(provider, Arc::new(WallClock))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(check))
        .with_client_cert_resolver(identity);
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.resumption = rustls::client::Resumption::disabled();
    tls.enable_sni = false;
    let quic = QuicClientConfig::try_from(tls).map_err(no_suite)?;
    Ok((quinn::ClientConfig::new(Arc::new(quic)), verdict))
}

/// The result of checking one server.
#[derive(Debug)]
pub(crate) struct Verdict(OnceLock<Result<Certified, IdentityError>>);

impl Verdict {
    pub(crate) fn get(&self) -> Option<&Result<Certified, IdentityError>> {
        self.0.get()
    }
}

/// Checks chain, role and name of the dialled server; host names play no part.
#[derive(Debug)]
struct ServerCheck {
    identity: Arc<Identity>,
    expected: Expected,
    provider: Arc<CryptoProvider>,
    verdict: Arc<Verdict>,
}

impl ServerCertVerifier for ServerCheck {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain: Vec<_> = std::iter::once(end_entity).chain(intermediates).cloned().collect();
        let checked = self.identity.certify(&chain, Side::Server, now).and_then(|found| {
            self.expected.check(&found)?;
            Ok(found)
        });
        let checked = self.verdict.0.get_or_init(|| checked);
        match checked {
            Ok(_) => Ok(ServerCertVerified::assertion()),
            Err(error) => {
                Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error.clone())))))
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Takes any certificate whose key the client has proven to hold.
#[derive(Debug)]
struct AnyClient(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    /// Accepts any certificate. This grants nothing: `Identity::certify` is asked before the answer to `Hello`.
    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn no_tls12() -> Error {
    PeerMisbehaved::SelectedUnofferedCipherSuite.into()
}

/// Turns a missing cipher suite into a TLS error. The provider has the suite of QUIC's first packets; only a change of
/// the library could take it away.
fn no_suite(error: quinn::crypto::rustls::NoInitialCipherSuite) -> Error {
    Error::General(error.to_string())
}
