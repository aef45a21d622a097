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
mod chunk;
mod codec;
mod disk;
mod encode;
mod extent;
mod folder;
mod handover;
mod index;
mod lanes;
pub mod limits;
mod record;
mod recorder;
mod run;
mod run_record;
mod segment;
mod walk;
mod writer;

pub use block::{BlockRecorder, End, Row};
pub use disk::{Disk, DiskFile, Locking, RealDisk};
pub use folder::RepairReport;
pub use index::{Damage, DamageCause};
pub use recorder::{
    BeginError, DiskError, OpenError, RecordError, Recorded, Recorder, RecorderConfig, RunRecorder, Status,
};
pub use run::{PolicyInfo, RecordKind, RecordMode, RunHeader};
pub use run_record::RunInfo;
