//! Policies as they are given: built-in ones by their names, others as files.

use std::sync::Arc;

use crate::{Builtin, DenseNet, Model, NetFileError, Sampling, SamplingError, UnknownPolicy};

/// Returns the model of a policy of that name: of its file, or the built-in one if there is none. `sampling` takes the place of
/// what the file says of drawing actions; a built-in policy passes it by, with the version.
///
/// # Errors
/// See [`PolicyError`].
pub fn model_of(
    name: &str,
    version: u64,
    sampling: Option<Sampling>,
    file: &[u8],
) -> Result<Arc<dyn Model>, PolicyError> {
    if file.is_empty() {
        return Ok(Arc::new(name.parse::<Builtin>()?));
    }
    let net = DenseNet::of_bytes(name, file)?.with_version(version);
    Ok(match sampling {
        None => Arc::new(net),
        Some(sampling) => Arc::new(net.with_sampling(sampling)?),
    })
}

/// Reason for which something given is no policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// There is no file, and no built-in policy of the name.
    #[error(transparent)]
    Unknown(#[from] UnknownPolicy),
    /// The file has no net.
    #[error(transparent)]
    File(#[from] NetFileError),
    /// Actions are to be drawn in a way that there is not.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
}
