//! This crate writes, finds, reads and verifies recorded episodes.
//!
//! A [`Recorder`] writes the episodes of a run to a folder while they are stepped: stepping threads append to
//! buffers ([`BlockRecorder`]), a writer thread codes them as chunks and appends those to segment files.
//! [`Replays`] reads a folder, also while a writer writes to it: lists ([`Query`]), finds and loads episodes,
//! goes through their steps ([`Playback`], and back too: [`Seeker`]) and verifies them by living through them again.
//! A [`Library`] reads a folder together with those directly in it, as several processes record into them.
//!
//! | thread or task | runs on | on cancel | on error |
//! |---|---|---|---|
//! | writer | own thread `replay-writer` | writes and seals what it has | goes on in a new segment after an I/O error, with back-off; after a panic it is told as gone, and what is handed over is counted as lost |
//! | syncer | own thread `replay-syncer` | ends after what it was asked for | an I/O error goes to the writer; after a panic the writer does its work itself, and what it was sealing counts as lost |
//!
//! Not a goal: stepping envs for their own sake (the engine does), and moving recordings between machines.
//!
//! Its folders, from the lowest up, each of which imports from those before it only: `code` (values and their bytes),
//! `stored` (files), `read`, `play`, `write`, `check` and `change`.
//!
//! Start reading at [`BlockRecorder`] and [`Replays`]; every byte on disk is described in
//! `docs/replay-format.md`.
#![forbid(unsafe_code)]

mod change;
mod check;
mod clock;
mod code;
mod disk;
mod disk_error;
pub mod limits;
mod play;
mod read;
mod stored;
pub mod testing;
mod write;

pub use change::import::{ImportError, Importer};
pub use change::portable::{Portable, PortableError, write_portable};
pub use change::prune::{
    FolderPrune, MAX_KEPT_BEST, PruneError, PrunePlan, PruneRules, Pruned, plan_prune, prune,
};
pub use check::difference::{CompareError, Comparison, Difference, FieldDifference};
pub use check::repair::{FolderRepair, RepairError, repair, repair_all};
pub use check::verification::Verification;
pub use code::calls::CalledAt;
pub use code::episode::{Episode, EpisodeInfo, StepFrom, Steps};
pub use code::events::Finish;
pub use code::frame::{Frame, FrameError, Frames};
pub use code::run::{PolicyInfo, RecordKind, RunHeader};
pub use code::run_record::RunInfo;
pub use code::versions::PolicyVersions;
pub use disk::{Disk, DiskFile, DiskRoom, Locking, RealDisk, read_all};
pub use disk_error::DiskError;
pub use play::divergence::{Divergence, Value, hash_digits};
pub use play::envs::{Envs, LearnEnv};
pub use play::head::PlayedStep;
pub use play::keyframes::SeekBounds;
pub use play::playback::Playback;
pub use play::recompute::RecomputeError;
pub use play::seeker::Seeker;
pub use play::simulate::SimulateError;
pub use play::timeline::{Bucket, Timeline};
pub use play::unroll::{Unrolled, Unroller};
pub use read::archived::{ARCHIVED, Archived, ArchivedSegment};
pub use read::label::{BadLabel, Label, LabelChange, Note, Tag};
pub use read::label_file::{LabelError, Labels, labels_path};
pub use read::library::{Library, LibraryEpisode, QUARANTINE};
pub use read::news::News;
pub use read::order::{Rank, Sort, SortKey, UnknownSort};
pub use read::overview::{EnvOverview, EpisodeGroup};
pub use read::query::Query;
pub use read::read_error::ReadError;
pub use read::replays::Replays;
pub use read::run_filter::RunFilter;
pub use read::sealed::SealedHere;
pub use read::so_far::SoFar;
pub use read::stats::FolderStats;
pub use stored::aside::{AsideEpisode, SetAside, aside_path};
pub use stored::catalogue::{SegmentPlace, forget_gathered, gather};
pub use stored::damage::{Damage, DamageCause};
pub use stored::index::SealedSegment;
pub use stored::lines::{Lines, LinesRead};
pub use stored::lock::{OpenError, STORE_LOCK, WriterLock, lock_store};
pub use stored::names::{segment_name, segment_number};
pub use stored::part::{part_of_run, part_of_runs};
pub use stored::recover::RepairReport;
pub use stored::rows::rows_path;
pub use stored::summary::{
    BlockRange, EpisodeKey, FinishedEpisode, SegmentSummary, segment_path, summary_path,
};
pub use write::block::{BlockRecorder, End, Row};
pub use write::record_error::{BeginError, RecordError};
pub use write::recorded::{Recorded, Status};
pub use write::recorder::{Backlog, Beside, Recorder, RecorderWatch, RunRecorder};
pub use write::recorder_config::{OnOutage, RecorderConfig};
pub use write::spool::{Spool, is_spool_name, kept_name_of_folder, name_of_folder, name_of_part};
