//! The reasons why an episode could not be written out.

use std::{fmt, io};

use rollhouse_env::RenderError;
use rollhouse_replay::{PortableError, RecomputeError, SimulateError};

/// The reason why an episode could not be written out.
#[derive(Debug)]
pub enum ExportError {
    /// Its steps are not recorded and cannot be recomputed, or it has no such step.
    Recompute(RecomputeError),
    /// The env does not draw itself as it is recomputed, and no image was recorded.
    NoPicture {
        /// Id of the env.
        env: String,
        /// The reason why it cannot be recomputed, if it cannot.
        source: Option<RecomputeError>,
    },
    /// The env failed to draw itself.
    Render(RenderError),
    /// The episode is not in the form of recordings that can be carried elsewhere.
    Portable(PortableError),
    /// Two of the form's columns would have this name.
    SameName(String),
    /// The output accepts no more bytes.
    Write(io::Error),
    /// The caller asked to stop.
    Stopped,
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recompute(error) => error.fmt(f),
            Self::NoPicture { env, source: None } => {
                write!(f, "{env} does not draw itself, and no images of it are recorded")
            }
            Self::NoPicture { env, source: Some(_) } => write!(f, "there is no picture of {env}"),
            Self::Render(error) => error.fmt(f),
            Self::Portable(error) => error.fmt(f),
            Self::SameName(name) => {
                write!(
                    f,
                    "two columns would be called `{name}` in this form; `--format rhr` keeps them apart"
                )
            }
            Self::Write(error) => error.fmt(f),
            Self::Stopped => f.write_str("stopped before the end"),
        }
    }
}

impl std::error::Error for ExportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Recompute(error) => error.source(),
            Self::NoPicture { source, .. } => source.as_ref().map(|error| error as _),
            Self::Render(error) => error.source(),
            Self::Portable(error) => error.source(),
            Self::Write(error) => error.source(),
            Self::SameName(_) | Self::Stopped => None,
        }
    }
}

impl From<SimulateError> for ExportError {
    fn from(error: SimulateError) -> Self {
        Self::Recompute(error.into())
    }
}

impl From<RecomputeError> for ExportError {
    fn from(error: RecomputeError) -> Self {
        Self::Recompute(error)
    }
}

impl From<RenderError> for ExportError {
    fn from(error: RenderError) -> Self {
        Self::Render(error)
    }
}

impl From<PortableError> for ExportError {
    fn from(error: PortableError) -> Self {
        match error {
            PortableError::Write(error) => Self::Write(error),
            PortableError::Stopped => Self::Stopped,
            error => Self::Portable(error),
        }
    }
}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}
