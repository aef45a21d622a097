//! A new key and the request for a certificate of it (PKCS #10, RFC 2986): made by a node, read by the issuer.
//!
//! Only two things count in a request: the key, and that the asker has it. Names and wishes in it are ignored.

use std::fmt;

use rcgen::{CertificateParams, DistinguishedName, KeyPair, PublicKeyData};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};

use super::der::{BIT_STRING, Der, INTEGER, SEQUENCE};
use super::error::{AuthorityError, KeyRequestError};
use crate::limits::MAX_CERTIFICATE_REQUEST_BYTES;

/// A new key, which stays where it was made, and the request for a certificate of it, which travels.
pub struct KeyRequest {
    key_pem: String,
    request: Vec<u8>,
}

impl KeyRequest {
    /// Makes a key of the curve P-256 and signs a request with it. Takes well under a millisecond.
    ///
    /// # Errors
    /// [`AuthorityError::Make`] if the system gives no random bytes.
    pub fn make() -> Result<Self, AuthorityError> {
        let key = KeyPair::generate().map_err(AuthorityError::Make)?;
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        let request = parameters.serialize_request(&key).map_err(AuthorityError::Make)?;
        Ok(Self { key_pem: key.serialize_pem(), request: request.der().to_vec() })
    }

    /// Returns the request as DER.
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// Returns the key, PKCS #8 as PEM, for a file that only its owner can read.
    pub(super) fn key_pem(&self) -> &str {
        &self.key_pem
    }
}

impl fmt::Debug for KeyRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyRequest(..)")
    }
}

/// A public key for which a certificate was asked, by somebody who has the private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedKey {
    /// A point of the curve P-256, uncompressed.
    point: [u8; POINT_BYTES],
}

impl RequestedKey {
    /// Reads a request and checks its signature.
    ///
    /// # Errors
    /// See [`KeyRequestError`]; the length is checked first.
    pub fn read(request: &[u8]) -> Result<Self, KeyRequestError> {
        if request.len() > MAX_CERTIFICATE_REQUEST_BYTES {
            return Err(KeyRequestError::TooLong { bytes: request.len() });
        }
        let Parts { signed, key, algorithm, signature } = parts(request).ok_or(KeyRequestError::Malformed)?;
        let key = key.strip_prefix(KEY_PREFIX).and_then(|point| <[u8; POINT_BYTES]>::try_from(point).ok());
        let point = key.filter(|_| algorithm == ECDSA_WITH_SHA256).ok_or(KeyRequestError::OtherKey)?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &point)
            .verify(signed, signature)
            .map_err(|_| KeyRequestError::Signature)?;
        Ok(Self { point })
    }

    /// Returns the SHA-256 of the key, which tells requests for one key from those for others.
    pub fn digest(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, &self.point).as_ref());
        bytes
    }
}

impl PublicKeyData for RequestedKey {
    fn der_bytes(&self) -> &[u8] {
        &self.point
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

struct Parts<'a> {
    signed: &'a [u8],
    /// The contents of `SubjectPublicKeyInfo`.
    key: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
}

fn parts(request: &[u8]) -> Option<Parts<'_>> {
    let mut outer = Der(request);
    let mut parts = Der(outer.take(SEQUENCE)?);
    outer.end()?;
    let signed = parts.take_whole(SEQUENCE)?;
    let algorithm = parts.take(SEQUENCE)?;
    let (unused, signature) = parts.take(BIT_STRING)?.split_first()?;
    parts.end()?;
    let mut info = Der(Der(signed).take(SEQUENCE)?);
    info.take(INTEGER)?;
    info.take(SEQUENCE)?;
    let key = info.take(SEQUENCE)?;
    (*unused == 0).then_some(Parts { signed, key, algorithm, signature })
}

/// Bytes of an uncompressed point: the byte 4, and two coordinates.
const POINT_BYTES: usize = 65;
/// The bytes before the point in the information of a P-256 key (RFC 5480): `id-ecPublicKey`, `secp256r1`, and the bit
/// string's tag, length and unused bits.
const KEY_PREFIX: &[u8] = &[
    0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// The identifier `ecdsa-with-SHA256` (RFC 5758), which has no parameters.
const ECDSA_WITH_SHA256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_gives_the_key_that_signed_it_and_each_key_is_another() {
        let (one, other) = (KeyRequest::make().unwrap(), KeyRequest::make().unwrap());
        let read = |of: &KeyRequest| RequestedKey::read(of.request()).unwrap();
        let pair = KeyPair::from_pem(one.key_pem()).unwrap();
        assert_eq!(read(&one).der_bytes(), pair.der_bytes());
        assert_eq!(read(&one).digest(), read(&one).digest());
        assert_ne!(read(&one).digest(), read(&other).digest());
    }

    #[test]
    fn no_byte_of_a_request_can_be_changed_cut_or_added() {
        let made = KeyRequest::make().unwrap();
        let good = made.request();
        for at in 0..good.len() {
            let mut bad = good.to_vec();
            bad[at] ^= 1;
            assert!(RequestedKey::read(&bad).is_err(), "byte {at}");
            assert!(RequestedKey::read(&good[..at]).is_err(), "cut at {at}");
        }
        assert_eq!(RequestedKey::read(&[good, &[0]].concat()), Err(KeyRequestError::Malformed));
    }

    #[test]
    fn a_request_for_another_kind_of_key_or_with_anothers_signature_is_refused_as_that() {
        let other = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let request = CertificateParams::default().serialize_request(&other).unwrap();
        assert_eq!(RequestedKey::read(request.der()), Err(KeyRequestError::OtherKey));
        let long = vec![0; MAX_CERTIFICATE_REQUEST_BYTES + 1];
        let bytes = long.len();
        assert_eq!(RequestedKey::read(&long), Err(KeyRequestError::TooLong { bytes }));
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_are_no_request(bytes: Vec<u8>) {
            proptest::prop_assert!(RequestedKey::read(&bytes).is_err());
        }
    }
}
