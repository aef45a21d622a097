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
//! Start reading at [`BlockRecorder`] and [`Replays`]; every byte on disk is described in
//! `docs/replay-format.md`.
#![forbid(unsafe_code)]

mod archived;
mod aside;
mod block;
mod buffer;
mod catalogue;
mod chunk;
mod clock;
mod codec;
mod coding;
mod copies;
mod difference;
mod disk;
mod divergence;
mod encode;
mod episode;
mod events;
mod extent;
mod find;
mod folder;
mod frame;
mod frame_chunk;
mod handover;
mod happened;
mod head;
mod heads;
mod import;
mod index;
mod keyframes;
mod label;
mod labels;
mod lanes;
mod library;
pub mod limits;
mod lines;
mod load;
mod news;
mod one_segment;
mod order;
mod outage;
mod overview;
mod part;
mod plain;
mod planes;
mod playback;
mod portable;
mod prune;
mod query;
mod read_error;
mod recompute;
mod record;
mod record_error;
mod recorded_picture;
mod recorder;
mod relive;
mod repair;
mod replays;
mod rerecord;
mod returns;
mod rows;
mod run;
mod run_record;
mod sealed;
mod seeker;
mod segment;
mod segments;
mod select;
mod simulate;
mod so_far;
mod spool;
mod stats;
mod summary;
mod syncer;
pub mod testing;
mod timeline;
mod unroll;
mod verify;
mod walk;
mod writer;

pub use archived::{ARCHIVED, Archived, ArchivedSegment};
pub use aside::{AsideEpisode, SetAside, aside_path};
pub use block::{BlockRecorder, End, Finish, Row};
pub use catalogue::{Catalogue, SegmentPlace, forget_gathered, gather};
pub use difference::{CompareError, Comparison, Difference, FieldDifference};
pub use disk::{Disk, DiskFile, Locking, RealDisk};
pub use divergence::{Divergence, Value};
pub use episode::{Episode, EpisodeInfo, StepFrom, Steps};
pub use folder::{RepairReport, STORE_LOCK, WriterLock, lock_store};
pub use frame::{Frame, FrameError, Frames};
pub use import::{ImportError, Importer};
pub use index::{Damage, DamageCause, read_all};
pub use keyframes::SeekBounds;
pub use label::{BadLabel, Label, LabelChange, Note, Tag};
pub use labels::{LabelError, Labels, labels_path};
pub use library::{Library, LibraryEpisode, QUARANTINE};
pub use lines::{Lines, LinesRead};
pub use news::News;
pub use order::Rank;
pub use overview::{EnvOverview, EpisodeGroup};
pub use part::part_of_run;
pub use plain::plain;
pub use playback::{Playback, PlayedStep};
pub use portable::{Portable, PortableError, write_portable};
pub use prune::{FolderPrune, MAX_KEPT_BEST, PruneError, PrunePlan, PruneRules, Pruned, plan_prune, prune};
pub use query::{Query, Sort, SortKey, UnknownSort};
pub use read_error::ReadError;
pub use recompute::RecomputeError;
pub use record_error::{BeginError, DiskError, OpenError, RecordError};
pub use recorder::{Backlog, OnOutage, Recorded, Recorder, RecorderConfig, RunRecorder, Status};
pub use repair::{FolderRepair, RepairError, repair, repair_all};
pub use replays::Replays;
pub use rows::rows_path;
pub use run::{PolicyInfo, RecordKind, RecordMode, RunHeader};
pub use run_record::RunInfo;
pub use sealed::SealedHere;
pub use seeker::Seeker;
pub use segment::{segment_name, segment_number};
pub use simulate::SimulateError;
pub use so_far::SoFar;
pub use spool::{SealedSegment, Spool, is_spool_name, kept_name_of_folder, name_of_folder, name_of_part};
pub use stats::FolderStats;
pub use summary::{BlockRange, EpisodeKey, FinishedEpisode, SegmentSummary, segment_path, summary_path};
pub use timeline::{Bucket, Timeline};
pub use unroll::{Unrolled, Unroller};
pub use verify::Verification;
