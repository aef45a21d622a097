//! The engine, which steps lanes.
//!
//! An [`Engine`] owns a batch of lanes of one env: it steps them in blocks of 64 on one or more threads, begins
//! and ends their episodes as the autoreset mode says, applies the time limit, contains panics, starts failed
//! lanes again, and shows every row to the recorder. Two ways to step:
//!
//! - *lockstep*: [`Engine::step`] moves every lane once and gives a [`Frame`] over all of them;
//! - *first-done*: [`Engine::send`] hands in actions of some lanes, [`Engine::recv`] takes those that are ready.
//!
//! Lanes of an env with a late side (`late.rs`) are posted and collected; both ways to step mean the same for them.
//!
//! Between two steps the owner looks at lanes and changes them; a [`Method`] lets others do so by name.
//!
//! ```text
//! Engine ──┬── Crew (the caller's thread) ── Block ── BlockEnv, Episodes, Restarts, BlockRecorder
//!          └── Crew (one thread each)     ── Block ...
//! ```
//!
//! | thread or task | runs on | on cancel | on error |
//! |---|---|---|---|
//! | crew | own threads `rollhouse-step-N` | ends after the turn, or the sent lanes, that it is stepping | a panic outside an env, which loses its lanes only, ends it, and the next step reports `Hung` |
//!
//! A [`Player`] has a policy play the lanes, and fills a [`Fragment`] with what they have shown and done.
//!
//! Not a goal: what policies are (crate policy), owning threads for a whole run and restarting those that hang
//! (crate node). Start reading at [`Engine`], then `block.rs`.
#![forbid(unsafe_code)]

mod block;
mod call_lane;
mod calls;
mod clock;
mod command;
mod config;
mod crew;
mod crews;
mod engine;
mod episodes;
mod error;
mod first_done;
mod flags;
mod fragment;
mod fragment_part;
mod fragment_whole;
mod glance;
mod lane_access;
mod lane_words;
mod methods;
mod note_steps;
mod noted;
mod options;
mod pace_lanes;
mod paced;
mod past;
mod player;
mod render;
mod reset;
mod restart;
mod setup;
mod stats;
mod timings;
mod words;

pub use call_lane::{CallAnswer, CallLane, CallParams};
pub use calls::{CallFault, CallRefused};
pub use command::{BeginRecording, CommandError, CommandFault, CommandLanes, Effect, Method, Nothing};
pub use config::{EngineConfig, MAX_SUB_BATCHES, MIN_LANES_PER_THREAD};
pub use engine::Engine;
pub use error::{ConfigError, StepError};
pub use first_done::Received;
pub use fragment::{Finals, Fragment, FragmentColumns};
pub use fragment_part::FragmentPart;
pub use glance::Glance;
pub use lane_words::{AskWords, WordsAnswer, WordsParams};
pub use methods::{
    AttributeSpec, AttributeValue, Attributes, Dispatch, GetAttributes, GetParams, LaneRange, METHODS,
    PolicyVersionParams, ResetLanes, ResetParams, Schema, SchemaAnswer, SetAttributes, SetOptions,
    SetOptionsParams, SetParams, SetPolicyVersion, Statistics, StatisticsAnswer, SummaryAnswer, dispatch,
};
pub use note_steps::{NoteParams, NoteSteps, NotedColumn};
pub use options::{LaneOptions, OptionsError};
pub use pace_lanes::{PaceAnswer, PaceControl, PaceLanes, PaceParams};
pub use paced::{MAX_NOTED_TICKS, MAX_QUEUED_ACTIONS, PacedLanes, PostError, Punctuality};
pub use past::{LogEvent, ResumeError};
pub use player::{PlayError, Player};
pub use render::{Render, RenderAnswer, RenderParams, UnpackError};
pub use reset::Reset;
pub use rollhouse_arena::{BatchColumns, Frame};
pub use rollhouse_env::{ActionCheck, BadAction, Image};
pub use stats::{Stats, Summary};
pub use timings::{SAMPLE_EVERY, Samples, Timings};
pub use words::LaneWords;
