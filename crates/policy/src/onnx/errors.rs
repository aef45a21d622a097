//! Reasons for which files of ONNX are refused.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use rollhouse_core::StepColumnsError;

use super::wire::NoMessage;
use crate::ModelError;

/// Reason for which a file of ONNX is no policy.
#[derive(Debug, thiserror::Error)]
pub enum OnnxError {
    /// The bytes are no model of ONNX, or end too early.
    #[error("the file is none of ONNX, or is cut off")]
    Format,
    /// The file is longer than what is read.
    #[error("the file has {bytes} bytes; at most {} are read", crate::MAX_NET_BYTES)]
    TooLong {
        /// Bytes of the file.
        bytes: u64,
    },
    /// The file has more of something than is taken.
    #[error("the file has {given} {what}; at most {limit} are taken")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How much of it there is.
        given: usize,
        /// How much is taken.
        limit: usize,
    },
    /// The file has operators of another version.
    #[error("the file is of opset {given}; {least} to {most} are taken")]
    Opset {
        /// The file's version.
        given: i64,
        /// The first that is taken.
        least: i64,
        /// The last that is taken.
        most: i64,
    },
    /// An operator is unknown.
    #[error("operator `{operator}`, of which `{output}` comes, is not among those that run here")]
    Operator {
        /// The first operator that is unknown.
        operator: String,
        /// The output of its node.
        output: String,
    },
    /// A node has a graph of its own.
    #[error("the file has graphs within nodes, as of branches and loops, which do not run here")]
    Subgraph,
    /// The file has a sparse tensor.
    #[error("the file has a sparse tensor, which is not read")]
    Sparse,
    /// The numbers of a tensor are in another file.
    #[error("the numbers of tensor `{name}` are in another file; write the model into one")]
    External {
        /// Name of the tensor.
        name: String,
    },
    /// A number of a tensor is none, or infinite.
    #[error("number {index} of tensor `{name}` is {given}")]
    NotFinite {
        /// Name of the tensor.
        name: String,
        /// Place of the number.
        index: usize,
        /// The number.
        given: f64,
    },
    /// A tensor has other numbers than its shape calls for.
    #[error("tensor `{name}` of shape {shape:?} has {here} numbers")]
    Tensor {
        /// Name of the tensor.
        name: String,
        /// Its shape.
        shape: Vec<i64>,
        /// How many numbers the file has of it.
        here: usize,
    },
    /// An input, output or tensor is of a type that is not taken.
    #[error(
        "`{name}` is of element type {given} of ONNX; float, double, float16, int8, int32, int64, uint8 and bool are taken"
    )]
    Type {
        /// Name of what is of the type.
        name: String,
        /// Number of the type.
        given: i64,
    },
    /// The number of axes of an input is not said.
    #[error("the file does not say how many axes input `{name}` has")]
    Rank {
        /// Name of the input.
        name: String,
    },
    /// An input or output is no tensor.
    #[error("`{name}` is no tensor")]
    NoTensor {
        /// Its name.
        name: String,
    },
    /// The file's metadata say a version that is none.
    #[error("metadata `version` is `{given}`, must be a whole number")]
    Version {
        /// What the file has.
        given: String,
    },
    /// The runtime does not take the file.
    #[error("the net cannot be loaded")]
    Runtime(#[source] Box<dyn Error + Send + Sync>),
    /// The runtime has panicked as it loaded the file.
    #[error("the runtime has panicked as it loaded the net: {0}")]
    Panicked(String),
}

impl From<NoMessage> for OnnxError {
    fn from(_: NoMessage) -> Self {
        Self::Format
    }
}

/// Reason for which a file of ONNX cannot play in an env.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BindError {
    /// The observation has texts or sequences, whose numbers are not always as many.
    #[error("the env's observations have texts or sequences, which an ONNX file cannot take")]
    Counted,
    /// An input is nothing that the env gives.
    #[error("input `{name}` of shape {shape} is nothing that the env gives; its observations have {gives}")]
    Input {
        /// Name of the input.
        name: String,
        /// Its shape, `?` where it is not said.
        shape: String,
        /// What the env's observations have.
        gives: String,
    },
    /// A lane's states are too many or too long.
    #[error("the states of a lane: {0}")]
    States(StepColumnsError),
    /// Of no output actions can be made.
    #[error("the outputs have {has} numbers of a lane, the env's actions need {needs}")]
    Outputs {
        /// The outputs.
        has: String,
        /// What one of them would have.
        needs: String,
    },
    /// Actions are to be drawn, and the file's outputs are actions.
    #[error("the file's actions are taken as they are: temperature and epsilon are for logits and means")]
    Taken,
    /// The file's actions are taken as they are, and it is not told which are allowed.
    #[error(
        "the env says which actions are allowed, and the file gives actions without an input `action_masks`"
    )]
    Unmasked,
    /// The action space is none of which outputs are known.
    #[error(transparent)]
    Model(Box<ModelError>),
    /// The file is not loaded.
    #[error(transparent)]
    Load(Cause),
    /// The net does not run on what the env shows.
    #[error("the net does not run on what the env shows")]
    Run(#[source] Cause),
}

/// What a runtime says. It is equal to itself alone.
#[derive(Debug, Clone)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

impl Cause {
    pub(super) fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(error))
    }
}

impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// Returns a name as messages show it.
pub(super) fn shown(name: &str) -> String {
    name.chars().take(64).collect()
}
