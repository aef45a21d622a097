//! How episodes are written, found, read and verified.
//!
//! A [`Recorder`] writes the episodes of a run to a folder as they are stepped, at a cost to the stepping
//! thread of half a nanosecond a lane-step.
//!
//! Not a goal: stepping environments (the engine does), and moving recordings between machines.
//!
//! Start reading at [`BlockRecorder`], the stepping thread's end.
#![forbid(unsafe_code)]

mod block;
mod buffer;
mod catalogue;
mod chunk;
mod codec;
mod data;
mod disk;
mod encode;
mod episode;
mod extent;
mod folder;
mod handover;
mod index;
mod lanes;
pub mod limits;
mod load;
mod playback;
mod query;
mod record;
mod recorder;
mod replays;
mod run;
mod run_record;
mod segment;
mod simulate;
pub mod testing;
mod verify;
mod walk;
mod writer;

pub use block::{BlockRecorder, End, Row};
pub use data::ColumnData;
pub use disk::{Disk, DiskFile, Locking, RealDisk};
pub use episode::{Episode, EpisodeInfo, Steps};
pub use folder::RepairReport;
pub use index::{Damage, DamageCause};
pub use playback::{PlayedStep, Playback};
pub use query::{Query, Sort, SortKey, UnknownSort};
pub use recorder::{
    BeginError, DiskError, OpenError, RecordError, Recorded, Recorder, RecorderConfig, RunRecorder, Status,
};
pub use replays::{FolderStats, ReadError, Replays};
pub use run::{PolicyInfo, RecordKind, RecordMode, RunHeader};
pub use run_record::RunInfo;
pub use simulate::SimulateError;
pub use verify::{Divergence, Value, Verification};
