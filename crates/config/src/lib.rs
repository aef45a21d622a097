//! The configuration of a coordinator, a node, or both in one process: typed values, each with a default, over which go
//! a TOML file, environment variables and flags, in that order.
//!
//! A [`Config`] lists its keys with the field that holds each one's value, and that list is all there is: reading,
//! checking, naming the nearest key, and showing where a value came from work on it. Unknown keys and values that do
//! not parse stop the start, with key, value, wanted type, place and nearest keys. The only I/O is reading the file,
//! and the files that variables name whose own names end in `_FILE`.
//!
//! Not a goal: putting a setting into force in a running process, which the caller does by loading again and comparing,
//! and settings of a single command, which are its flags. Start reading at [`load`], then [`NodeConfig`].
#![forbid(unsafe_code)]

mod budget;
mod coordinator;
mod deadline;
mod error;
mod file;
mod hosting;
mod load;
mod local;
mod log;
mod node;
mod openra;
mod origin;
mod plugins;
mod python;
mod quantity;
mod setting;
mod shared;
mod traces;

pub use budget::{BudgetSettings, Envs};
pub use coordinator::{CoordinatorConfig, LeastTerm};
pub use deadline::{Deadline, LaneDeadline};
pub use error::{ConfigError, MAX_FILE_BYTES};
pub use hosting::Hosting;
pub use load::{Effective, Loaded, Role, Sources, load, variable};
pub use local::{LocalConfig, LocalListen, LocalMetrics};
pub use log::{Log, LogFormat, LogLevel, LogLevels};
pub use node::{NodeConfig, NodeJoining};
pub use openra::{Engines, Openra};
pub use origin::Origin;
pub use plugins::Plugins;
pub use python::{Packages, Python};
pub use quantity::{Bytes, Cores, Time};
pub use setting::{
    Bounded, Concealed, Config, Given, HostPort, Labels, MAX_LABELS, MAX_NAME_BYTES, MAX_TEXT_BYTES,
    MAX_UIDS, Place, Setting, SettingValue, Uids,
};
pub use shared::{Archive, AttachSettings, Enrolment, Network, Spool, Store, Tls, Worker};
pub use traces::{Endpoint, Traces};
