//! A request's head: what is asked for.

use httparse::Status;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) what: What,
    /// Only the head of the answer is wanted.
    pub(crate) head_only: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Metrics,
    Health,
    Readiness,
    /// No such path.
    Elsewhere,
    /// Something else than reading.
    OtherMethod,
    /// No HTTP/1, or a head with more than [`MAX_HEADERS`] headers.
    Malformed,
}

/// Looks at the bytes so far; `None` as long as the head is not complete.
pub(crate) fn parse(bytes: &[u8]) -> Option<Asked> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let what = match request.parse(bytes) {
        Ok(Status::Partial) => return None,
        Ok(Status::Complete(_)) => what(request.method, request.path),
        Err(_) => What::Malformed,
    };
    Some(Asked { what, head_only: request.method == Some("HEAD") })
}

fn what(method: Option<&str>, path: Option<&str>) -> What {
    if !matches!(method, Some("GET" | "HEAD")) {
        return What::OtherMethod;
    }
    match path.map(|path| path.split('?').next().unwrap_or(path)) {
        Some("/metrics") => What::Metrics,
        Some("/healthz") => What::Health,
        Some("/readyz") => What::Readiness,
        _ => What::Elsewhere,
    }
}

/// Headers of one request; scrapers and probes send about ten.
const MAX_HEADERS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn what_of(text: &str) -> Option<What> {
        parse(text.as_bytes()).map(|asked| asked.what)
    }

    #[test]
    fn only_reading_known_paths_is_answered() {
        assert_eq!(what_of("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Some(What::Metrics));
        assert_eq!(what_of("GET /healthz?verbose HTTP/1.0\r\n\r\n"), Some(What::Health));
        assert_eq!(what_of("GET /metrics/ HTTP/1.1\r\n\r\n"), Some(What::Elsewhere));
        assert_eq!(what_of("POST /metrics HTTP/1.1\r\n\r\n"), Some(What::OtherMethod));
        assert!(parse(b"HEAD /readyz HTTP/1.1\r\n\r\n").is_some_and(|asked| asked.head_only));
    }

    #[test]
    fn a_head_is_waited_for_until_it_is_complete_or_nonsense() {
        let whole = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(what_of(&whole[..end]), None, "{end}");
        }
        assert_eq!(what_of("\x16\x03\x01\x02"), Some(What::Malformed), "a TLS handshake");
        let headers: String = (0..100).map(|n| format!("a{n}: b\r\n")).collect();
        assert_eq!(what_of(&format!("GET / HTTP/1.1\r\n{headers}\r\n")), Some(What::Malformed));
    }
}
