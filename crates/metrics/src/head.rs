//! Reads the head of an HTTP request.

use httparse::Status;

/// Request as its head states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) kind: RequestKind,
    /// True if only the head of the answer is wanted.
    pub(crate) head_only: bool,
    /// True if metrics are wanted in OpenMetrics rather than in the text of Prometheus.
    pub(crate) open_metrics: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Metrics,
    Health,
    Readiness,
    /// The server has no such path.
    UnknownPath,
    /// The method does not read.
    OtherMethod,
    /// The bytes are no HTTP/1, or the head has more than [`MAX_HEADERS`] headers.
    Malformed,
}

/// Parses the bytes so far; `None` as long as the head is not complete.
pub(crate) fn parse(bytes: &[u8]) -> Option<RequestHead> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let kind = match request.parse(bytes) {
        Ok(Status::Partial) => return None,
        Ok(Status::Complete(_)) => kind(request.method, request.path),
        Err(_) => RequestKind::Malformed,
    };
    let accepts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
    let accepts: Vec<&str> = accepts.filter_map(|header| std::str::from_utf8(header.value).ok()).collect();
    let wanted = |kind| accepts.iter().map(|accept| weight(accept, kind)).fold(0.0, f64::max);
    let open = wanted("application/openmetrics-text");
    let open_metrics = open > 0.0 && open >= wanted("text/plain");
    Some(RequestHead { kind, head_only: request.method == Some("HEAD"), open_metrics })
}

/// Returns the weight that an `Accept` header gives to a media type, from 0 to 1; 0 if it does not name the type.
fn weight(accept: &str, kind: &str) -> f64 {
    let weights = accept.split(',').filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        parts.next().filter(|named| named.eq_ignore_ascii_case(kind))?;
        let quality = parts.find_map(|part| part.strip_prefix("q="));
        // What cannot be read says nothing against it.
        Some(quality.and_then(|quality| quality.parse().ok()).unwrap_or(1.0))
    });
    weights.fold(0.0, f64::max)
}

fn kind(method: Option<&str>, path: Option<&str>) -> RequestKind {
    if !matches!(method, Some("GET" | "HEAD")) {
        return RequestKind::OtherMethod;
    }
    match path.map(|path| path.split('?').next().unwrap_or(path)) {
        Some("/metrics") => RequestKind::Metrics,
        Some("/healthz") => RequestKind::Health,
        Some("/readyz") => RequestKind::Readiness,
        _ => RequestKind::UnknownPath,
    }
}

/// Maximum number of headers in a request; scrapers and probes send about ten.
const MAX_HEADERS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(text: &str) -> Option<RequestKind> {
        parse(text.as_bytes()).map(|head| head.kind)
    }

    #[test]
    fn only_reading_known_paths_is_answered() {
        assert_eq!(kind_of("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Some(RequestKind::Metrics));
        assert_eq!(kind_of("GET /healthz?verbose HTTP/1.0\r\n\r\n"), Some(RequestKind::Health));
        assert_eq!(kind_of("GET /metrics/ HTTP/1.1\r\n\r\n"), Some(RequestKind::UnknownPath));
        assert_eq!(kind_of("POST /metrics HTTP/1.1\r\n\r\n"), Some(RequestKind::OtherMethod));
        assert!(parse(b"HEAD /readyz HTTP/1.1\r\n\r\n").is_some_and(|head| head.head_only));
    }

    #[test]
    fn open_metrics_are_given_to_whoever_wants_them_no_less_than_text() {
        let open = |accept: &str| {
            let head = format!("GET /metrics HTTP/1.1\r\nACCEPT: {accept}\r\n\r\n");
            parse(head.as_bytes()).is_some_and(|head| head.open_metrics)
        };
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;\
            q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert!(open(prometheus));
        assert!(open("application/openmetrics-text"));
        assert!(!open("text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5"));
        assert!(!open("application/openmetrics-text;q=0, text/plain"));
        assert!(!open("*/*") && !open("text/html"));
    }

    #[test]
    fn a_head_is_waited_for_until_it_is_complete_or_nonsense() {
        let whole = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(kind_of(&whole[..end]), None, "{end}");
        }
        assert_eq!(kind_of("\x16\x03\x01\x02"), Some(RequestKind::Malformed), "a TLS handshake");
        let headers: String = (0..100).map(|n| format!("a{n}: b\r\n")).collect();
        assert_eq!(kind_of(&format!("GET / HTTP/1.1\r\n{headers}\r\n")), Some(RequestKind::Malformed));
    }
}
