//! Connection strings: `rollhouse://HOST:PORT?token=...&ca=...`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use rollhouse_wire::{FingerprintError, Trust};

use crate::transport::{Transport, UnknownTransport};

/// The address of a coordinator, and the secrets that prove either side's identity.
///
/// Written as `rollhouse://HOST[:PORT][?token=TOKEN][&ca=CA][&transport=auto|shm|quic][&attach=FOLDER]`. The port defaults to [`DEFAULT_PORT`], an IPv6
/// address stands in brackets, and values may be percent-encoded.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// A name or an IP address, without brackets.
    pub host: String,
    /// The coordinator's UDP port.
    pub port: u16,
    /// The bearer token, if the string carries one. Never printed.
    pub token: Option<String>,
    /// The authority by which the cluster is verified, if the string names it: `sha256:` and the fingerprint of its
    /// certificate, or the path of a PEM file.
    pub ca: Option<Trust>,
    /// The transport by which lanes are stepped, if the string names one.
    pub transport: Option<Transport>,
    /// The folder in which to look for nodes' attach sockets, if the string names one.
    pub attach: Option<PathBuf>,
}

/// The coordinator's port when none is named.
pub const DEFAULT_PORT: u16 = 7600;

const SCHEME: &str = "rollhouse://";
const FINGERPRINT: &str = "sha256:";
/// Most bytes of a connection string: more than any host name with a token and a path.
const MAX_ADDRESS_BYTES: usize = 8 * 1024;

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.len() > MAX_ADDRESS_BYTES {
            return Err(AddressError::TooLong { bytes: text.len() });
        }
        let rest = text.strip_prefix(SCHEME).ok_or(AddressError::Scheme)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, port) = place_of(place.strip_suffix('/').unwrap_or(place))?;
        let mut address = Self { host, port, token: None, ca: None, transport: None, attach: None };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or(AddressError::NoValue)?;
            let value =
                percent_decoded(value).ok_or_else(|| AddressError::Encoding { key: key.to_owned() })?;
            let twice = match key {
                "token" => address.token.replace(value).is_some(),
                "ca" => address.ca.replace(trust_of(&value)?).is_some(),
                "transport" => {
                    let transport = value.parse().map_err(AddressError::Transport)?;
                    address.transport.replace(transport).is_some()
                }
                "attach" => address.attach.replace(value.into()).is_some(),
                _ => return Err(AddressError::Key(key.to_owned())),
            };
            if twice {
                return Err(AddressError::Twice(key.to_owned()));
            }
        }
        Ok(address)
    }
}

/// Prints what [`Address::from_str`] reads back, without the token.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bracket = self.host.contains(':');
        let (open, close) = if bracket { ("[", "]") } else { ("", "") };
        write!(f, "{SCHEME}{open}{}{close}:{}", self.host, self.port)?;
        let ca = self.ca.as_ref().map(|ca| match ca {
            Trust::Fingerprint(fingerprint) => format!("ca={fingerprint}"),
            Trust::File(path) => format!("ca={}", path.display()),
        });
        let transport = self.transport.map(|transport| format!("transport={transport}"));
        let attach = self.attach.as_ref().map(|folder| format!("attach={}", folder.display()));
        let pairs = [ca, transport, attach].into_iter().flatten();
        for (pair, before) in pairs.zip(['?', '&', '&']) {
            write!(f, "{before}{pair}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self}, token: {})", if self.token.is_some() { "present" } else { "absent" })
    }
}

/// Parses the value of `ca`: `sha256:` and a fingerprint, or the path of a PEM file.
///
/// # Errors
/// An empty text, or a malformed fingerprint.
pub fn trust_of(ca: &str) -> Result<Trust, AddressError> {
    if ca.is_empty() {
        return Err(AddressError::EmptyCa);
    }
    if ca.starts_with(FINGERPRINT) {
        return ca.parse().map(Trust::Fingerprint).map_err(AddressError::Fingerprint);
    }
    Ok(Trust::File(ca.into()))
}

fn place_of(place: &str) -> Result<(String, u16), AddressError> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or(AddressError::Host)?;
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return Err(AddressError::Host),
            }
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '@' | '#' | '&' | '=');
    if host.is_empty() || host.contains(odd) {
        return Err(AddressError::Host);
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(text) => match text.parse() {
            Ok(port) if port != 0 => port,
            _ => return Err(AddressError::Port),
        },
    };
    Ok((host.to_owned(), port))
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            // `from_str_radix` takes a sign.
            digits.bytes().all(|b| b.is_ascii_hexdigit()).then_some(())?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

/// Why a text is not a connection string. Never contains the token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is longer than any connection string.
    #[error("a connection string of {bytes} bytes, at most {MAX_ADDRESS_BYTES} allowed")]
    TooLong {
        /// Bytes of the text.
        bytes: usize,
    },
    /// It does not begin with `rollhouse://`.
    #[error("a connection string begins with {SCHEME}")]
    Scheme,
    /// It has no host, or the host has characters that no host has.
    #[error("a connection string has a host, as in {SCHEME}HOST:{DEFAULT_PORT}")]
    Host,
    /// The port is not a number from 1 to 65535. It is not shown: the token may stand there if the `?` was forgotten.
    #[error("the port in a connection string is not a number from 1 to 65535")]
    Port,
    /// The transport's word is unknown.
    #[error("{0}")]
    Transport(UnknownTransport),
    /// A key is none of `token`, `ca`, `transport` and `attach`.
    #[error("unknown key `{0}` in a connection string; known are token, ca, transport, attach")]
    Key(String),
    /// A key has no `=` and value. It is not shown: it may be the token.
    #[error("what follows the `?` of a connection string is KEY=VALUE, more of them after `&`")]
    NoValue,
    /// A key occurs twice.
    #[error("key `{0}` stands twice in a connection string")]
    Twice(String),
    /// A value's percent-encoding is broken.
    #[error("the value of `{key}` is not percent-encoded text")]
    Encoding {
        /// The value's key.
        key: String,
    },
    /// A fingerprint is malformed.
    #[error("ca: {0}")]
    Fingerprint(#[source] FingerprintError),
    /// `ca` has no value.
    #[error("ca is empty; {FINGERPRINT} and 64 hexadecimal digits, or a PEM file, are wanted")]
    EmptyCa,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_part_is_read() {
        let hex = "0a".repeat(32);
        let address: Address =
            format!("rollhouse://example.org:1234?token=rh_1_a%2Bb&ca=sha256:{hex}").parse().unwrap();
        assert_eq!((address.host.as_str(), address.port), ("example.org", 1234));
        assert_eq!(address.token.as_deref(), Some("rh_1_a+b"));
        assert_eq!(address.ca, trust_of(&format!("sha256:{hex}")).ok());
        assert!(matches!(address.ca, Some(Trust::Fingerprint(_))));
    }

    #[test]
    fn transport_and_the_folder_of_attach_sockets_are_read_and_printed() {
        let text = "rollhouse://host:7600?ca=/ca.pem&transport=shm&attach=/mnt/node";
        let address: Address = text.parse().unwrap();
        assert_eq!(
            (address.transport, address.attach.clone()),
            (Some(Transport::Shm), Some("/mnt/node".into()))
        );
        assert_eq!(address.to_string(), text);
    }

    #[test]
    fn port_token_and_ca_may_be_left_out() {
        let address: Address = "rollhouse://[::1]".parse().unwrap();
        assert_eq!((address.host.as_str(), address.port), ("::1", DEFAULT_PORT));
        assert_eq!((address.token, address.ca), (None, None));
        let address: Address = "rollhouse://host/?ca=/etc/ca%20one.pem".parse().unwrap();
        assert_eq!(address.ca, Some(Trust::File("/etc/ca one.pem".into())));
    }

    #[test]
    fn each_mistake_has_its_own_error() {
        let of = |text: &str| text.parse::<Address>().unwrap_err();
        assert_eq!(of("http://host"), AddressError::Scheme);
        assert_eq!(of("rollhouse://"), AddressError::Host);
        assert_eq!(of("rollhouse://a b"), AddressError::Host);
        assert_eq!(of("rollhouse://[::1"), AddressError::Host);
        assert_eq!(of("rollhouse://host:0"), AddressError::Port);
        assert_eq!(of("rollhouse://host:65536"), AddressError::Port);
        assert_eq!(of("rollhouse://host?user"), AddressError::NoValue);
        assert_eq!(of("rollhouse://host?user=x"), AddressError::Key("user".into()));
        assert_eq!(of("rollhouse://host?token=a&token=b"), AddressError::Twice("token".into()));
        assert_eq!(of("rollhouse://host?token=%+1"), AddressError::Encoding { key: "token".into() });
        assert!(matches!(of("rollhouse://host?ca=sha256:12"), AddressError::Fingerprint(_)));
        assert_eq!(of("rollhouse://host?ca="), AddressError::EmptyCa);
        assert!(matches!(of("rollhouse://host?transport=tcp"), AddressError::Transport(_)));
    }

    #[test]
    fn neither_form_of_printing_shows_the_token() {
        let address: Address = "rollhouse://host?token=rh_1_secret".parse().unwrap();
        assert!(!format!("{address} {address:?}").contains("secret"));
    }

    #[test]
    fn no_mistake_shows_the_token() {
        for mistaken in [
            "rollhouse://host:1&token=rh_1_secret",
            "rollhouse://host:1/token=rh_1_secret",
            "rollhouse://host&token=rh_1_secret",
            "rollhouse://host:1?rh_1_secret",
            "rollhouse://host:1?tokenrh_1_secret",
            "rollhouse://host:1?token=rh_1_secret&user=x",
            "rollhouse://host:1?token=rh_1_secret%",
            "http://host:1?token=rh_1_secret",
            "rh_1_secret",
        ] {
            let error = mistaken.parse::<Address>().unwrap_err();
            assert!(!format!("{error} {error:?}").contains("secret"), "{mistaken}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(rollhouse://)?[ -~]{0,60}") {
            if let Ok(address) = text.parse::<Address>() {
                let printed = Address { token: None, ca: None, attach: None, ..address.clone() }.to_string();
                let back: Address = printed.parse().unwrap();
                prop_assert_eq!((back.host, back.port), (address.host, address.port));
            }
        }
    }
}
