//! The words of Rollhouse as types, which every crate shares.
//!
//! Answers "what is it called and what are its limits": ids and names, spaces and columns, outcomes,
//! the lane lifecycle, seeds, sets of lanes, state hashes, and how a file is opened that others may have put there
//! ([`open_regular`]). No other I/O, no clock, no threads, no global randomness.
//!
//! Not a goal: helpers that merely happen to be used twice. Start reading at [`EnvSpec`], then [`LaneState`].
#![forbid(unsafe_code)]

mod autoreset;
mod bounded;
mod bounds;
mod budget;
mod column;
mod column_data;
mod counted;
mod deadlines;
mod drawing;
mod env_source;
mod goal;
mod hash;
mod joining;
mod lane_clock;
mod lane_set;
mod lifecycle;
pub mod limits;
mod method;
pub mod msgpack;
mod name;
mod node_name;
mod options;
mod outcome;
mod own_dtype;
mod owned_bytes;
mod pace;
mod panic;
mod parent;
mod parts;
mod past;
mod pauses;
mod plain;
mod plugin;
mod record_rule;
mod regular_file;
mod seed;
mod shared_bound;
mod shares;
mod space;
mod space_reader;
mod spec;
mod step_columns;
mod turns;
mod when_full;

pub use autoreset::{AutoresetMode, UnknownAutoreset};
pub use bounded::{bounded_list, bounded_text, bounded_text_or_none, cut_sentence, cut_text};
pub use bounds::Bounds;
pub use budget::{Budget, EnvTerms, Holdings, OverBudget, Scales, Weight, Workers};
pub use column::{ColumnMut, ColumnRef, ColumnSpec, DType, Role};
pub use column_data::ColumnData;
pub use counted::{BadCounted, SequenceSpace, TextSpace};
pub use deadlines::{DeadlineSettings, LaneDeadlines};
pub use drawing::{Drawing, ElementRange, Settling};
pub use env_source::{EnvId, EnvKind, EnvSource, NoEnvKind, PythonLanes};
pub use goal::Goal;
pub use hash::StateHasher;
pub use joining::{Joined, Joining};
pub use lane_clock::{ClockEvent, LaneClock, MAX_PLANNING, MAX_TICKS, Marks, NotNow, Tick};
pub use lane_set::{LANE_BIT, LaneSet, LaneSetIter};
pub use lifecycle::{BackOff, IllegalTransition, LaneEvent, LaneState, RestartDecision};
pub use method::{BadMethod, Call, MethodSpec};
pub use name::{EpisodeName, NameError, RunId};
pub use node_name::{NODE_NAME_RULE, is_node_name};
pub use options::{Distribution, OptionError, OptionSpec, OptionValue, Options};
pub use outcome::{Interruption, Outcome};
pub use own_dtype::{BadOwnDType, OwnDType};
pub use owned_bytes::OwnedBytes;
pub use pace::{BadPace, Clock, Pace, UnknownClock};
pub use panic::{contained, panic_message};
pub use parent::Parent;
pub use parts::InexactPart;
pub use past::{Began, Past, PastEvent, PlayedActions};
pub use pauses::{Pauses, jitter};
pub use plain::{is_plain, plain, plain_json, plain_line};
pub use plugin::Plugin;
pub use record_rule::{RecordRule, UnknownRule};
pub use regular_file::{
    has_no_locks, lock_refused, open_regular, open_regular_with, read_regular, read_regular_text,
};
pub use seed::{
    SeedSchedule, Start, per_episode_seed, random_bits, random_bits_keyed, random_key, split_mix64,
};
pub use shared_bound::{Beyond, SharedBound};
pub use shares::{Claimant, OverShare, Portion, ShareBook, Shares};
pub use space::{BoxSpace, CompositeSpace, DiscreteSpace, MaskError, ObservationSpace, Space};
pub use spec::{
    ACTION_TAKEN, DROPPED, Determinism, EnvSpec, GameResult, LATE, POLICY_VERSION, Reports, SamePath, TICKS,
    UnknownResult, Verdict,
};
pub use step_columns::{CONTROLS, STOOD_MS, StepColumn, StepColumns, StepColumnsError};
pub use turns::Turns;
pub use when_full::WhenFull;
