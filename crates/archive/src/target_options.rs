//! What is said of object storage beside its name.

/// Settings for reaching object storage, in addition to its name and the usual variables of the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TargetOptions {
    /// Its URL, unless it is Amazon's; takes precedence over `AWS_ENDPOINT_URL`.
    pub endpoint: Option<String>,
    /// Whether it may be reached without TLS; `AWS_ALLOW_HTTP` set to `true` allows it too.
    pub allow_http: bool,
}
