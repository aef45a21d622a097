//! Peers who do as they please: bare QUIC connections that believe any server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rollhouse_wire::{ALPN, CloseCode, ConnectionLost, Hello, Request, Versions, control};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use super::Cluster;

pub type Certificate = (CertificateDer<'static>, PrivateKeyDer<'static>);

/// A connection after the TLS handshake, and the endpoint it lives in.
pub struct Raw {
    pub endpoint: quinn::Endpoint,
    pub connection: quinn::Connection,
}

impl Raw {
    pub async fn connect(to: SocketAddr, certificate: Option<Certificate>) -> Self {
        let endpoint = quinn::Endpoint::client(super::localhost()).unwrap();
        let connection = endpoint.connect_with(config(certificate), to, "rollhouse").unwrap().await.unwrap();
        Self { endpoint, connection }
    }

    /// Opens a stream with those bytes, and ends it.
    pub async fn say(&self, bytes: &[u8]) -> quinn::RecvStream {
        let (mut send, receive) = self.connection.open_bi().await.unwrap();
        send.write_all(bytes).await.unwrap();
        send.finish().unwrap();
        receive
    }

    /// Says hello properly; the answer's bytes without their length word.
    pub async fn hello(&self, versions: Versions) -> Vec<u8> {
        let mut bytes = Vec::new();
        let hello = Hello { versions, program: "raw/test".into(), token: None };
        control::encode(&Request::Hello(hello), &mut bytes).unwrap();
        self.say(&bytes).await.read_to_end(1 << 20).await.unwrap().split_off(4)
    }

    /// With which code and reason the other side has closed the connection.
    pub async fn closed(&self) -> (CloseCode, String) {
        match ConnectionLost::from(self.connection.closed().await) {
            ConnectionLost::ByPeer { code, reason } => (code, reason),
            other => panic!("{other:?}"),
        }
    }
}

pub fn config(certificate: Option<Certificate>) -> quinn::ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone));
    let mut tls = match certificate {
        Some((certificate, key)) => tls.with_client_auth_cert(vec![certificate], key).unwrap(),
        None => tls.with_no_client_auth(),
    };
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let quic = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    quinn::ClientConfig::new(Arc::new(quic))
}

/// A certificate that the cluster's authority has signed, with any URI and dates.
pub fn certificate(cluster: &Cluster, uri: &str, from: SystemTime, to: SystemTime) -> Certificate {
    let key = std::fs::read_to_string(cluster.path().join("ca.key")).unwrap();
    let key = rcgen::KeyPair::from_pem(&key).unwrap();
    let mut authority = rcgen::CertificateParams::default();
    authority.distinguished_name = rcgen::DistinguishedName::new();
    authority.distinguished_name.push(rcgen::DnType::CommonName, "rollhouse cluster authority");
    let issuer = rcgen::Issuer::from_params(&authority, &key);
    let mut ours = rcgen::CertificateParams::default();
    ours.not_before = from.into();
    ours.not_after = to.into();
    ours.subject_alt_names = vec![rcgen::SanType::URI(uri.try_into().unwrap())];
    ours.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let own = rcgen::KeyPair::generate().unwrap();
    let signed = ours.signed_by(&own, &issuer).unwrap();
    (signed.der().clone(), PrivatePkcs8KeyDer::from(own.serialize_der()).into())
}

pub const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}
