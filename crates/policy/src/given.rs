//! Policies as they are given: built-in ones by their names, others as files.

use std::sync::Arc;

use rollhouse_core::EnvSpec;

use crate::{
    Builtin, DenseNet, Dialect, DialectError, Model, NetFileError, Sampling, SamplingError, UnknownPolicy,
};
#[cfg(feature = "onnx")]
use crate::{OnnxError, OnnxModel};

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
    let net = GivenNet::of_bytes(name, file)?.with_version(version);
    Ok(match sampling {
        None => net.into_model(),
        Some(sampling) => net.with_sampling(sampling)?.into_model(),
    })
}

/// A net of a file, whichever form that has.
#[derive(Debug, Clone)]
pub enum GivenNet {
    /// A net of dense layers, of a file of safetensors.
    Dense(DenseNet),
    /// A net of a file of ONNX.
    #[cfg(feature = "onnx")]
    Onnx(OnnxModel),
}

impl GivenNet {
    /// Takes the net of the bytes of a file, under a name. The bytes tell the form.
    ///
    /// # Errors
    /// See [`PolicyError`].
    pub fn of_bytes(name: &str, bytes: &[u8]) -> Result<Self, PolicyError> {
        if !is_onnx(bytes) {
            return Ok(Self::Dense(DenseNet::of_bytes(name, bytes)?));
        }
        #[cfg(feature = "onnx")]
        return Ok(Self::Onnx(OnnxModel::of_bytes(name, bytes)?));
        #[cfg(not(feature = "onnx"))]
        Err(PolicyError::NoOnnx)
    }

    /// Returns the net as another version of its weights than the one that its file says.
    #[must_use]
    pub fn with_version(self, version: u64) -> Self {
        match self {
            Self::Dense(net) => Self::Dense(net.with_version(version)),
            #[cfg(feature = "onnx")]
            Self::Onnx(net) => Self::Onnx(net.with_version(version)),
        }
    }

    /// Has actions drawn in another way.
    ///
    /// # Errors
    /// The temperature is not above 0, or epsilon is no probability.
    pub fn with_sampling(self, sampling: Sampling) -> Result<Self, SamplingError> {
        Ok(match self {
            Self::Dense(net) => Self::Dense(net.with_sampling(sampling)?),
            #[cfg(feature = "onnx")]
            Self::Onnx(net) => Self::Onnx(net.with_sampling(sampling)?),
        })
    }

    /// Returns the bytes of a file of ONNX in a dialect, of the net as it plays in an env: its likeliest action, stretched or cut to
    /// the bounds, and where the dialect has them also actions that are drawn.
    ///
    /// # Errors
    /// See [`DialectError`].
    #[cfg(feature = "onnx")]
    pub fn in_dialect(&self, dialect: Dialect, env: &EnvSpec) -> Result<Vec<u8>, DialectError> {
        match self {
            Self::Dense(net) => net.in_dialect(dialect, env),
            Self::Onnx(net) if net.is_recurrent(env) => Err(DialectError::Recurrent { dialect }),
            Self::Onnx(net) => Err(DialectError::NotDense { dialect, net: net.description() }),
        }
    }

    /// Returns that this program writes no files of ONNX.
    ///
    /// # Errors
    /// Always: it was built without the cargo feature `onnx`.
    #[cfg(not(feature = "onnx"))]
    pub fn in_dialect(&self, _: Dialect, _: &EnvSpec) -> Result<Vec<u8>, DialectError> {
        Err(DialectError::NoOnnx)
    }

    /// Returns the net as a model.
    pub fn as_model(&self) -> &dyn Model {
        match self {
            Self::Dense(net) => net,
            #[cfg(feature = "onnx")]
            Self::Onnx(net) => net,
        }
    }

    /// Returns the model, to be shared.
    pub fn into_model(self) -> Arc<dyn Model> {
        match self {
            Self::Dense(net) => Arc::new(net),
            #[cfg(feature = "onnx")]
            Self::Onnx(net) => Arc::new(net),
        }
    }
}

/// Returns whether bytes begin as a file of ONNX does: with the first field of its message, a small number. A file of safetensors
/// has a `{` behind eight bytes.
fn is_onnx(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0x08)
        && bytes.get(1).is_some_and(|version| *version < 0x80)
        && bytes.get(8) != Some(&b'{')
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
    /// The file is one of ONNX, and no policy.
    #[cfg(feature = "onnx")]
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    /// The file is one of ONNX, which this program does not read.
    #[cfg(not(feature = "onnx"))]
    #[error("the file is one of ONNX, and this program was built without the cargo feature `onnx`")]
    NoOnnx,
}
