//! Changes of lanes' options between two steps.

use std::collections::BTreeMap;
use std::fmt;

use rollhouse_core::limits::MAX_EPISODE_OPTIONS_BYTES;
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
    /// True if the rows that change have the options from their next episode on, so that their states are not kept.
    pub(crate) begins: bool,
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
        let of_row = |values: &Vec<OptionValue>| {
            let place = if values.len() == 1 { 0 } else { row - self.first };
            values[place].clone()
        };
        let values = self.values.iter().map(|(name, values)| (name.clone(), of_row(values)));
        with_values(schema, row, now, &values.collect())
    }
}

/// Returns the options of the lane in `row` with those values instead of its own.
pub(crate) fn with_values(
    schema: &[OptionSpec],
    row: usize,
    now: &Options,
    values: &BTreeMap<String, OptionValue>,
) -> Result<Options, OptionsError> {
    let mut given: BTreeMap<String, OptionValue> =
        now.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
    given.extend(values.iter().map(|(name, value)| (name.clone(), value.clone())));
    let given: Vec<_> = given.into_iter().collect();
    Options::check(schema, &given).map_err(|source| OptionsError::Option { lane: row, source })
}

/// Returns the refusal of an env that is tried with options, with its causes.
pub(crate) fn cannot_be_made(error: &dyn std::error::Error) -> OptionsError {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    let message = causes.fold(error.to_string(), |message, cause| format!("{message}: {cause}"));
    OptionsError::Make { lane: 0, message }
}

/// Reason for which options of lanes were not changed. All stay as they were, but for lanes that are lost by it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum OptionsError {
    /// Lanes that are recorded take options for their next episodes only, and no states: a recording has the options with
    /// which an episode began, and nothing in it tells of what was set since.
    Recorded,
    /// The options of a recorded lane that are others than its run's take more than
    /// [`MAX_EPISODE_OPTIONS_BYTES`](rollhouse_core::limits::MAX_EPISODE_OPTIONS_BYTES).
    TooLarge {
        /// Row of the batch.
        lane: usize,
        /// Number of bytes.
        bytes: usize,
    },
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
            Self::Recorded => {
                f.write_str("recorded lanes keep the options and states they have: give options to a reset")
            }
            Self::TooLarge { lane, bytes } => write!(
                f,
                "lane {lane} is recorded, and its options take {bytes} bytes, at most {MAX_EPISODE_OPTIONS_BYTES} are recorded with each episode"
            ),
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
