//! A target in S3-compatible object storage.
//!
//! Every put is one request whose signature covers the checksum of the bytes: storage that received other bytes refuses
//! it. Requests without an answer, or with the answer "too busy", are tried again a few times.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::HttpError;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, Error, ObjectStore, ObjectStoreExt, RetryConfig};
use tokio::runtime::Runtime;

use crate::error::{TargetError, TargetFault};
use crate::folder::too_large;
use crate::label::LABELS;
use crate::limits::{CONNECT_TIMEOUT, MAX_RETRIES, READ_TIMEOUT, REQUEST_TIMEOUT, RETRY_TIMEOUT};
use crate::target_options::TargetOptions;

pub(crate) struct Objects {
    storage: AmazonS3,
    bucket: String,
    prefix: Path,
    /// The runtime that drives the connections while a request is made.
    runtime: Runtime,
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").field("bucket", &self.bucket).field("prefix", &self.prefix).finish()
    }
}

impl Objects {
    /// Makes the target for `BUCKET/PREFIX`; credentials, region and other settings come from the environment, as for
    /// every S3 tool.
    pub(crate) fn named(rest: &str, options: &TargetOptions) -> Result<Self, TargetError> {
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let name = |what: String| TargetError::new(TargetFault::Name, what);
        if bucket.is_empty() {
            return Err(name(format!("s3://{rest} names no bucket: s3://BUCKET/PREFIX")));
        }
        let prefix = Path::parse(prefix.trim_end_matches('/'));
        let prefix =
            prefix.map_err(|error| name(format!("s3://{rest} has no good prefix")).because(error))?;
        // Another part of the program may have chosen already: it is the same one.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        if let Some(endpoint) = &options.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
        let plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
        let asked = options.allow_http || std::env::var("AWS_ALLOW_HTTP").is_ok_and(|value| value == "true");
        if plain && !asked {
            return Err(name(
                "the endpoint of object storage is http://, and everybody on the way could read and change what is \
                 sent: --allow-http or AWS_ALLOW_HTTP=true allow it"
                    .to_owned(),
            ));
        }
        let client = ClientOptions::new()
            .with_allow_http(asked)
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_read_timeout(READ_TIMEOUT)
            .with_timeout(REQUEST_TIMEOUT);
        let retry = RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: MAX_RETRIES,
            retry_timeout: RETRY_TIMEOUT,
        };
        let storage = builder.with_client_options(client).with_retry(retry).build();
        let storage = storage
            .map_err(|error| name(format!("s3://{rest} cannot be reached as it is")).because(error))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| {
            TargetError::new(TargetFault::Failed, "no connection can be driven").because(error)
        })?;
        Ok(Self { storage, bucket: bucket.to_owned(), prefix, runtime })
    }

    fn path(&self, name: &str) -> Path {
        let parts = name.split('/').filter(|part| !part.is_empty());
        parts.fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// Checks that the bucket is there and that we may look into it: some storage accepts objects for a bucket that
    /// does not exist.
    pub(crate) fn prepare(&self) -> Result<(), TargetError> {
        let prefix = self.path(LABELS);
        self.runtime.block_on(async {
            let first = self.storage.list(Some(&prefix)).try_next().await;
            first.map(drop).map_err(|error| self.failed("listing", LABELS, error))
        })
    }

    pub(crate) fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), TargetError> {
        let put = self.runtime.block_on(self.storage.put(&self.path(name), Bytes::from(bytes).into()));
        put.map(drop).map_err(|error| self.failed("putting", name, error))
    }

    pub(crate) fn get(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, TargetError> {
        self.runtime.block_on(async {
            let got = match self.storage.get(&self.path(name)).await {
                Ok(got) => got,
                Err(error) if self.is_none(&error) => return Ok(None),
                Err(error) => return Err(self.failed("getting", name, error)),
            };
            let len = got.meta.size;
            if len > most {
                return Err(too_large(name, len, most));
            }
            let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
            let mut pieces = got.into_stream();
            while let Some(piece) =
                pieces.try_next().await.map_err(|error| self.failed("getting", name, error))?
            {
                if (bytes.len() + piece.len()) as u64 > most {
                    return Err(too_large(name, (bytes.len() + piece.len()) as u64, most));
                }
                bytes.extend_from_slice(&piece);
            }
            Ok(Some(bytes))
        })
    }

    pub(crate) fn len(&self, name: &str) -> Result<Option<u64>, TargetError> {
        match self.runtime.block_on(self.storage.head(&self.path(name))) {
            Ok(meta) => Ok(Some(meta.size)),
            Err(error) if self.is_none(&error) => Ok(None),
            Err(error) => Err(self.failed("looking at", name, error)),
        }
    }

    pub(crate) fn list(&self, folder: &str, visit: &mut dyn FnMut(&str)) -> Result<(), TargetError> {
        let prefix = self.path(folder);
        self.runtime.block_on(async {
            let mut found = self.storage.list(Some(&prefix));
            while let Some(meta) =
                found.try_next().await.map_err(|error| self.failed("listing", folder, error))?
            {
                let Some(parts) = meta.location.prefix_match(&prefix) else { continue };
                let parts: Vec<String> = parts.map(|part| part.as_ref().to_owned()).collect();
                visit(&parts.join("/"));
            }
            Ok(())
        })
    }

    /// Returns whether the error says that no object has the name; false if there is no bucket.
    fn is_none(&self, error: &Error) -> bool {
        matches!(error, Error::NotFound { .. }) && !says(error, "NoSuchBucket")
    }

    fn failed(&self, operation: &str, name: &str, error: Error) -> TargetError {
        if says(&error, "NoSuchBucket") {
            return TargetError::new(TargetFault::Name, format!("there is no bucket {}", self.bucket));
        }
        let fault = match &error {
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => TargetFault::Refused,
            _ if has_status(&error, "401") || has_status(&error, "403") => TargetFault::Refused,
            Error::NotFound { .. } => TargetFault::Name,
            _ if is_away(&error) => TargetFault::Unavailable,
            _ => TargetFault::Failed,
        };
        let what = match fault {
            TargetFault::Refused => format!("s3://{} refused {operation} {name}", self.bucket),
            TargetFault::Unavailable => {
                format!("s3://{} does not answer: {operation} {name} failed", self.bucket)
            }
            _ => format!("{operation} {name} in s3://{} failed", self.bucket),
        };
        TargetError::new(fault, what).because(error)
    }
}

/// Returns whether the storage gave that code as its reason, which stands in the text only.
fn says(error: &Error, code: &str) -> bool {
    error.to_string().contains(&format!("<Code>{code}</Code>"))
}

/// Returns whether the storage did not answer, did not answer completely, or answered "not now".
fn is_away(error: &Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.downcast_ref::<HttpError>().is_some() {
            return true;
        }
        cause = error.source();
    }
    has_status(error, "5")
}

/// Returns whether the storage answered with a status that begins with that, which stands in the text only.
fn has_status(error: &Error, status: &str) -> bool {
    error.to_string().contains(&format!("status code: {status}"))
}

/// Checks that several threads may use it at once; one of them drives the others' connections.
const _: fn(&Arc<Objects>) = |objects| {
    fn is_shared<T: Send + Sync>(_: &T) {}
    is_shared(objects);
};
