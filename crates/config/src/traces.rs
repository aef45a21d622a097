//! The settings of traces.

use crate::setting::{Given, Setting, SettingValue, text};

/// Settings by which a process sends the calls of clients as traces of OpenTelemetry. They need a program that was
/// built with the feature `otlp`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Traces {
    /// Collector to which traces are sent. Default none: nothing is sent.
    pub endpoint: Endpoint,
}

/// Address of a collector that takes OTLP over HTTP, as `http://HOST:4318`; `None` if it is empty. The path below it,
/// `/v1/traces`, is not part of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Endpoint(pub Option<String>);

impl Traces {
    pub(crate) fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)> {
        vec![("traces.endpoint", &mut self.endpoint)]
    }
}

impl Endpoint {
    /// Parses an endpoint.
    ///
    /// # Errors
    /// If the text is no URL of HTTP that names a host.
    pub fn parse(endpoint: &str) -> Result<Self, String> {
        if endpoint.is_empty() {
            return Ok(Self(None));
        }
        let after = ["http://", "https://"].iter().find_map(|scheme| endpoint.strip_prefix(scheme));
        let host = after.ok_or("it begins with neither http:// nor https://")?;
        let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '?' | '#' | '@' | '"');
        match host.starts_with(['/', ':']) || host.is_empty() || !host.chars().all(plain) {
            true => Err("it names no host".to_owned()),
            false => Ok(Self(Some(endpoint.trim_end_matches('/').to_owned()))),
        }
    }
}

impl Setting for Endpoint {
    fn wanted(&self) -> String {
        "the URL of a collector, as in \"http://localhost:4318\", or nothing".to_owned()
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        *self = Self::parse(text(given)?)?;
        Ok(())
    }

    fn show(&self) -> SettingValue {
        SettingValue::Text(self.0.clone().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_url_of_http_or_nothing() {
        let of = |text: &str| Endpoint::parse(text).map(|endpoint| endpoint.0);
        assert_eq!(of("http://[::1]:4318/"), Ok(Some("http://[::1]:4318".to_owned())));
        assert_eq!(
            of("https://collector.example/base"),
            Ok(Some("https://collector.example/base".to_owned()))
        );
        assert_eq!(of(""), Ok(None));
        for text in [
            "collector:4318",
            "ftp://a",
            "http://",
            "http://:4318",
            "http:///v1",
            "http://a b",
            "http://me@a",
        ] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
