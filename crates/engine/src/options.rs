//! Changes of lanes' options between two steps.

use std::collections::BTreeMap;
use std::fmt;

use rollhouse_core::{OptionError, OptionSpec, OptionValue, Options};
use rollhouse_env::StateError;

/// Options of several lanes by name: one value or distribution for all lanes, or one for each. Options that are not named stay as they
/// are.
pub type LaneOptions = BTreeMap<String, Vec<OptionValue>>;

/// Change of options, as every block is told of it.
pub(crate) struct Change {
    pub(crate) values: LaneOptions,
    /// First row of the batch for which `values` has values, one after the other.
    pub(crate) first: usize,
    /// Function that tells which rows change. Rows for which `values` has no place do not exist.
    pub(crate) wanted: Box<dyn Fn(usize) -> bool + Send + Sync>,
    /// True if the rows that change are about to begin an episode, so that their states are not kept.
    pub(crate) forget: bool,
}

impl Change {
    /// Refuses lists that are neither one value nor one for each of `lanes` lanes.
    pub(crate) fn check(values: &LaneOptions, lanes: usize) -> Result<(), OptionsError> {
        match values.iter().find(|(_, values)| values.len() != 1 && values.len() != lanes) {
            Some((name, values)) => {
                Err(OptionsError::Length { name: name.clone(), given: values.len(), lanes })
            }
            None => Ok(()),
        }
    }

    /// Returns the options of the lane in `row` after the change.
    pub(crate) fn apply(
        &self,
        schema: &[OptionSpec],
        row: usize,
        now: &Options,
    ) -> Result<Options, OptionsError> {
        let mut given: BTreeMap<String, OptionValue> =
            now.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
        for (name, values) in &self.values {
            let place = if values.len() == 1 { 0 } else { row - self.first };
            given.insert(name.clone(), values[place].clone());
        }
        let given: Vec<_> = given.into_iter().collect();
        Options::check(schema, &given).map_err(|source| OptionsError::Option { lane: row, source })
    }
}

/// Reason for which options of lanes were not changed. All stay as they were, but for lanes that are lost by it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum OptionsError {
    /// Lanes that are recorded, or that keep a log to go on elsewhere, keep the options with which they were made: a
    /// recording has them only once, and nothing in it tells of a state that was set.
    Recorded,
    /// The number of values is neither one nor that of the lanes.
    Length {
        /// Name of the option.
        name: String,
        /// Number of values that were given.
        given: usize,
        /// Number of lanes for which they were given.
        lanes: usize,
    },
    /// The options do not fit a message.
    TooLong {
        /// Maximum number of bytes in a message.
        limit: usize,
    },
    /// The env has no such option, or it takes another kind of value.
    Option {
        /// Row of the batch.
        lane: usize,
        /// Fault in the option.
        source: OptionError,
    },
    /// The env cannot work with the value.
    Make {
        /// Row of the batch: the first row of the block that could not be made.
        lane: usize,
        /// Message of the env.
        message: String,
    },
    /// The lane's env has failed and is not back. The lane can be given options when it is.
    Lost {
        /// Row of the batch.
        lane: usize,
    },
    /// The lane plays and its state cannot be carried over.
    State {
        /// Row of the batch.
        lane: usize,
        /// Reason that the env gave.
        source: StateError,
    },
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recorded => f.write_str("recorded lanes keep the options and states they have"),
            Self::Length { name, given, lanes } => {
                write!(
                    f,
                    "{given} values of option `{name}` given, 1 or one for each of {lanes} lanes is wanted"
                )
            }
            Self::TooLong { limit } => write!(f, "seeds, mask and options take more than {limit} bytes"),
            Self::Option { lane, source } => write!(f, "lane {lane}: {source}"),
            Self::Make { lane, message } => write!(f, "lanes from {lane} on: {message}"),
            Self::Lost { lane } => write!(f, "lane {lane} has failed and waits for its restart"),
            Self::State { lane, .. } => {
                write!(f, "lane {lane} plays and cannot be made anew with another option: reset it as well")
            }
        }
    }
}

impl std::error::Error for OptionsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::State { source, .. } => Some(source),
            // What an option's own error says is this error's text.
            _ => None,
        }
    }
}
