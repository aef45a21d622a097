//! The errors for which a configuration is refused.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::origin::Origin;

/// Reason for which a configuration is refused. Each names what has to be changed, and where it stands.
#[derive(Debug)]
pub enum ConfigError {
    /// The file cannot be read.
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file is longer than [`MAX_FILE_BYTES`] or no text.
    NoText {
        /// Path of the file.
        path: PathBuf,
    },
    /// A variable names a file that cannot be used.
    VariableFile {
        /// Name of the variable.
        variable: String,
        /// Fault of the file, [`Read`](Self::Read) or [`NoText`](Self::NoText).
        source: Box<ConfigError>,
    },
    /// Two variables set one key.
    TwoVariables {
        /// Name of one variable.
        first: String,
        /// Name of the other variable.
        second: String,
    },
    /// The file is no TOML.
    Syntax {
        /// Path of the file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// Explanation of the parser.
        message: String,
    },
    /// No setting has the key.
    UnknownKey {
        /// Key that was given.
        key: String,
        /// Place at which it was given.
        origin: Origin,
        /// Known keys that are spelt like it, nearest first.
        nearest: Vec<&'static str>,
    },
    /// The value is not what the key takes.
    Value {
        /// Key whose value it is.
        key: &'static str,
        /// Value that was given, cut to what fits a line.
        value: String,
        /// Values that the key takes.
        wanted: String,
        /// Further explanation, or empty.
        detail: String,
        /// Place at which the value was given.
        origin: Origin,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, .. } => write!(f, "{} cannot be read", path.display()),
            Self::NoText { path } => {
                write!(f, "{} is not a text of at most {MAX_FILE_BYTES} bytes", path.display())
            }
            Self::VariableFile { variable, .. } => write!(f, "${variable} names a file that cannot be used"),
            Self::TwoVariables { first, second } => {
                write!(f, "${first} and ${second} set the same key: one of them has to go")
            }
            Self::Syntax { path, line, message } => write!(f, "{}, line {line}: {message}", path.display()),
            Self::UnknownKey { key, origin, nearest } => {
                write!(f, "{origin}: unknown key `{key}`")?;
                match nearest.as_slice() {
                    [] => Ok(()),
                    [only] => write!(f, "; nearest is {only}"),
                    several => write!(f, "; nearest are {}", several.join(", ")),
                }
            }
            Self::Value { key, value, wanted, detail, origin } => {
                write!(f, "{origin}: {key} = `{value}`, expected {wanted}")?;
                if detail.is_empty() { Ok(()) } else { write!(f, "; {detail}") }
            }
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } => Some(source),
            Self::VariableFile { source, .. } => Some(&**source),
            Self::NoText { .. }
            | Self::TwoVariables { .. }
            | Self::Syntax { .. }
            | Self::UnknownKey { .. }
            | Self::Value { .. } => None,
        }
    }
}

/// Maximum number of bytes in a configuration file; ours have about 5,000.
pub const MAX_FILE_BYTES: u64 = 1 << 20;
