//! Reasons for which a plug-in is not loaded.

use std::io;
use std::path::PathBuf;

use rollhouse_core::limits::MAX_PLUGINS;
use rollhouse_env::{MakeError, RegisterError};

use crate::abi::{MAX_ENVS, SYMBOL, VERSION};

/// Error of a plug-in that was not loaded. None of its envs is registered then.
#[derive(Debug, thiserror::Error)]
#[error("plug-in {}: {fault}", path.display())]
pub struct PluginError {
    /// File of the plug-in, as it was named.
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: PluginFault,
}

/// What is wrong with a plug-in.
#[derive(Debug, thiserror::Error)]
pub enum PluginFault {
    /// There are more plug-ins than [`MAX_PLUGINS`].
    #[error("{count} plug-ins are named, at most {MAX_PLUGINS} are loaded")]
    TooMany {
        /// Number of plug-ins.
        count: usize,
    },
    /// The file cannot be read.
    #[error("{0}")]
    File(io::Error),
    /// The path names something else than a file.
    #[error("it is not a file")]
    NotAFile,
    /// The file is no shared object for this machine, or lacks what it needs.
    #[error("it cannot be loaded: {0}")]
    Open(libloading::Error),
    /// The shared object exports no table.
    #[error("it exports no `{SYMBOL}`; an env in C++ declares it extern \"C\", as rollhouse.h does")]
    NoSymbol,
    /// The table is not there.
    #[error("`{SYMBOL}` returned NULL")]
    NoTable,
    /// The plug-in was made for another version of the interface.
    #[error("it has version {version} of the interface, must have {VERSION}")]
    Version {
        /// Version in its table.
        version: u32,
    },
    /// A structure cannot have that size.
    #[error("the `size` of its {structure} is {size}, must be a multiple of 8 from 16 on")]
    Size {
        /// Name of the structure.
        structure: &'static str,
        /// Size that it gives.
        size: u32,
    },
    /// The number of envs is 0 or above [`MAX_ENVS`].
    #[error("it has {count} envs, must have 1 to {MAX_ENVS}")]
    Envs {
        /// Number of envs in its table.
        count: u32,
    },
    /// A function is missing.
    #[error("its table has no `{function}`, which {why}")]
    Missing {
        /// Name of the function.
        function: &'static str,
        /// Reason for which the function is needed.
        why: &'static str,
    },
    /// An env is described in a way that makes no sense.
    #[error("env {env}: {source}")]
    Description {
        /// Number of the env in the plug-in.
        env: u32,
        /// What is wrong.
        source: DescriptionError,
    },
    /// An env cannot be made with its default options.
    #[error("env `{id}` cannot be made: {}", source_of(source))]
    Make {
        /// Id of the env.
        id: String,
        /// Reason.
        source: MakeError,
    },
    /// The env says that it is deterministic, and two equal runs differed.
    #[error(
        "env `{id}` is declared deterministic, but two runs with the same seeds and actions had different states"
    )]
    NotDeterministic {
        /// Id of the env.
        id: String,
    },
    /// The plug-in has changed how the processor computes.
    #[error(
        "it makes the processor take tiny numbers for 0, which would change every env; compile and link it without \
         -ffast-math"
    )]
    FlushesToZero,
    /// No thread could be started to load it.
    #[error("no thread to load it: {0}")]
    Thread(io::Error),
    /// One of its envs failed as a whole while it was tried out.
    #[error("it was tried out and failed: {message}")]
    Panicked {
        /// Message of the failure.
        message: String,
    },
    /// The worker process in which it is loaded refuses it, or cannot be had.
    #[error("{source}")]
    Worker {
        /// Reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// One of its envs cannot be registered.
    #[error("{0}")]
    Register(RegisterError),
}

/// Returns the cause of an error that names none itself, as [`MakeError::Refused`] does.
fn source_of(error: &MakeError) -> String {
    match error {
        MakeError::Refused { source } => source.to_string(),
        other => other.to_string(),
    }
}

/// What is wrong with the description of an env. Members are named as in rollhouse.h.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DescriptionError {
    /// A pointer is NULL.
    #[error("`{member}` is NULL")]
    Null {
        /// Member of the description.
        member: String,
    },
    /// A length is above its limit.
    #[error("`{member}` has {given}, may have at most {most}")]
    Many {
        /// Member of the description.
        member: String,
        /// Number that the plug-in gives.
        given: u64,
        /// The limit.
        most: u64,
    },
    /// A text is too long, no UTF-8, empty or has control characters.
    #[error("`{member}` is no text of 1 to {most} bytes of UTF-8 without control characters")]
    Text {
        /// Member of the description.
        member: String,
        /// The limit.
        most: usize,
    },
    /// A value makes no sense.
    #[error("`{member}` is {given}, must be {wanted}")]
    Value {
        /// Member of the description.
        member: String,
        /// Value that the plug-in gives.
        given: String,
        /// Condition that the value must meet.
        wanted: String,
    },
}
