//! HTTP of the routes: bodies in, answers out, and sockets that begin as requests.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    ALLOW, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE, WWW_AUTHENTICATE,
};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use rollhouse_codec::openenv;

/// An answer.
pub(super) type Answer = Response<Full<Bytes>>;

/// Reason for which a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoBody {
    Long,
    Late,
    Broken,
}

/// Time in which a body comes.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// What a key of a handshake is hashed with (RFC 6455, 1.3).
const HANDSHAKE: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Bytes of a key of a handshake, as text.
const KEY_BYTES: usize = 24;

/// Reads a body of at most so many bytes as text.
pub(super) async fn body(body: Incoming, most: usize) -> Result<String, NoBody> {
    if body.size_hint().lower() > most as u64 {
        return Err(NoBody::Long);
    }
    let read = tokio::time::timeout(BODY_WITHIN, Limited::new(body, most).collect()).await;
    let read = read.map_err(|_| NoBody::Late)?;
    let read =
        read.map_err(|error| if error.is::<LengthLimitError>() { NoBody::Long } else { NoBody::Broken })?;
    String::from_utf8(read.to_bytes().into()).map_err(|_| NoBody::Broken)
}

/// Returns an answer of JSON.
pub(super) fn json(status: StatusCode, text: Vec<u8>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// Returns an answer that says why there is no other.
pub(super) fn detail(status: StatusCode, why: &str) -> Answer {
    json(status, openenv::detail(why))
}

/// Returns the answer to a request without the token.
pub(super) fn unauthorized() -> Answer {
    let answer = detail(StatusCode::UNAUTHORIZED, "`authorization: Bearer TOKEN` is wanted");
    with(answer, WWW_AUTHENTICATE, "Bearer")
}

/// Returns the answer to a request by a method that its route does not have.
pub(super) fn not_allowed(allowed: &'static str) -> Answer {
    with(detail(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"), ALLOW, allowed)
}

/// Returns the answer with which a socket begins, if these are the headers of a handshake; `None` if they ask for no socket.
pub(super) fn handshake(headers: &HeaderMap) -> Option<Result<Answer, Answer>> {
    if !has(headers, &UPGRADE, "websocket") || !has(headers, &CONNECTION, "upgrade") {
        return None;
    }
    let version = headers.get(SEC_WEBSOCKET_VERSION);
    if version.is_none_or(|version| version != "13") {
        let refused = detail(StatusCode::UPGRADE_REQUIRED, "WebSocket of version 13 is spoken");
        return Some(Err(with(refused, SEC_WEBSOCKET_VERSION, "13")));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok()).map(str::trim);
    let Some(key) = key.filter(|key| key.len() == KEY_BYTES) else {
        return Some(Err(detail(StatusCode::BAD_REQUEST, "the handshake has no key")));
    };
    let accept = STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{HANDSHAKE}").as_bytes()));
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answer = with(with(answer, UPGRADE, "websocket"), CONNECTION, "Upgrade");
    Some(Ok(with(answer, SEC_WEBSOCKET_ACCEPT, &accept)))
}

fn with(mut answer: Answer, name: HeaderName, value: &str) -> Answer {
    // Words and base64 may stand in a header.
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().insert(name, value);
    }
    answer
}

/// Returns whether a header has a word in its lists.
fn has(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let lists = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|found| found.trim().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn a_handshake_is_answered_as_the_standard_has_it() {
        // RFC 6455, 1.3.
        let asked = headers(&[
            ("upgrade", "websocket"),
            ("connection", "keep-alive, Upgrade"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ]);
        let answer = handshake(&asked).unwrap().unwrap();
        assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(answer.headers()[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn what_is_no_handshake_is_none_and_a_bad_one_is_refused() {
        assert!(handshake(&HeaderMap::new()).is_none());
        assert!(handshake(&headers(&[("upgrade", "h2c"), ("connection", "upgrade")])).is_none());
        let asked = [("upgrade", "websocket"), ("connection", "upgrade")];
        let status = |more: &[(&'static str, &'static str)]| {
            handshake(&headers(&[&asked[..], more].concat())).unwrap().unwrap_err().status()
        };
        assert_eq!(status(&[]), StatusCode::UPGRADE_REQUIRED);
        assert_eq!(status(&[("sec-websocket-version", "13")]), StatusCode::BAD_REQUEST);
        assert_eq!(
            status(&[("sec-websocket-version", "13"), ("sec-websocket-key", "short")]),
            StatusCode::BAD_REQUEST
        );
    }
}
