//! Writes episodes as a Parquet file: a row for the reset, then one for each step, episode after episode.
//!
//! Rows are gathered until there are [`ROWS`] of them or their observations take [`ROWS_BYTES`]. They then become a row
//! group, the only part of the file in memory. Short episodes are recomputed side by side; an episode that is longer
//! than a row group is recomputed alone and part by part.

mod columns;
mod runs;

use std::io::{self, Write};
use std::sync::Arc;

use ::parquet::basic::Encoding;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::ColumnPath;
use rollhouse_core::{ColumnData, ColumnSpec, EnvSpec, EpisodeName, StepColumns};
use rollhouse_env::Registry;
use rollhouse_replay::{Episode, Playback, RecomputeError, RunInfo, Unrolled, Unroller};
use serde::Serialize;

use crate::error::ExportError;
use crate::names::check_different;
use crate::watch::{Watch, tell_at_once};
use columns::{Columns, Rows, Span};

/// A Parquet file that is being written. The observations and actions of all its episodes have the same columns.
pub struct ParquetFile<'a> {
    registry: &'a Registry,
    out: &'a mut dyn Write,
    /// The writer of the file. It writes into memory, from which each row group is copied to `out`: the writer wants an
    /// output that may go to other threads.
    writer: SerializedFileWriter<Vec<u8>>,
    obs: Vec<ColumnSpec>,
    actions: Vec<ColumnSpec>,
    step_columns: StepColumns,
    columns: Columns,
    /// The episodes of the next row group.
    waiting: Vec<Episode>,
    waiting_rows: usize,
    /// Number of rows of a row group.
    most_rows: usize,
    unroller: Unroller<'a>,
    unrolled: Unrolled,
    /// Number of steps of the episodes that are written.
    steps: u64,
}

/// The episodes that could not be recomputed, and why; the file has nothing of them.
pub type LeftOut = Vec<(EpisodeName, RecomputeError)>;

/// Number of rows of a row group.
const ROWS: usize = 1 << 16;

/// Bytes of a row group's observations, unless a single row has more.
const ROWS_BYTES: usize = 16 << 20;

impl<'a> ParquetFile<'a> {
    /// Begins a file for episodes with the columns of a run.
    ///
    /// # Errors
    /// If `out` fails, or two columns would have the same name; nothing is written then.
    pub fn new(registry: &'a Registry, run: &RunInfo, out: &'a mut dyn Write) -> Result<Self, ExportError> {
        let RunInfo { spec, step_columns, .. } = run;
        let (obs, actions) = (spec.obs_columns(), spec.action_parts());
        let columns = Columns::of(&obs, &actions, step_columns.specs());
        check_different(columns.all_names())?;
        let properties = Arc::new(properties(spec, &obs, &columns)?);
        let writer = SerializedFileWriter::new(Vec::new(), columns.schema()?, properties)?;
        let row_bytes: usize = obs.iter().map(ColumnSpec::row_bytes).sum();
        let most_rows = (ROWS_BYTES / row_bytes.max(1)).clamp(1, ROWS);
        Ok(Self {
            registry,
            out,
            writer,
            obs,
            actions,
            step_columns: step_columns.clone(),
            columns,
            waiting: Vec::new(),
            waiting_rows: 0,
            most_rows,
            unroller: Unroller::new(registry),
            unrolled: Unrolled::default(),
            steps: 0,
        })
    }

    /// Returns whether episodes of that run have the columns of the file.
    pub fn takes(&self, run: &RunInfo) -> bool {
        let RunInfo { spec, step_columns, .. } = run;
        spec.obs_columns() == self.obs
            && spec.action_parts() == self.actions
            && *step_columns == self.step_columns
    }

    /// Adds an episode, whose rows may be written later. Returns the episodes, this one or earlier ones, whose
    /// recomputation turned out to differ from the recording.
    ///
    /// # Errors
    /// If `out` fails, `watch` asks to stop, or an env panics in an episode of which some rows are written. The file is of
    /// no use then.
    pub fn add(&mut self, episode: Episode, watch: &mut Watch<'_>) -> Result<LeftOut, ExportError> {
        let rows = episode.info.length as usize + 1;
        let mut left_out = LeftOut::new();
        if self.waiting_rows + rows > self.most_rows {
            left_out = self.write_waiting(watch)?;
        }
        if rows > self.most_rows {
            self.write_long(&episode, watch)?;
        } else {
            self.waiting_rows += rows;
            self.waiting.push(episode);
        }
        Ok(left_out)
    }

    /// Writes the remaining rows.
    ///
    /// # Errors
    /// Those of [`ParquetFile::add`].
    pub fn finish(mut self, watch: &mut Watch<'_>) -> Result<LeftOut, ExportError> {
        let left_out = self.write_waiting(watch)?;
        self.writer.finish()?;
        self.carry()?;
        Ok(left_out)
    }

    /// Writes the waiting episodes as a row group.
    fn write_waiting(&mut self, watch: &mut Watch<'_>) -> Result<LeftOut, ExportError> {
        self.waiting_rows = 0;
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return Ok(LeftOut::new());
        }
        self.unroller.unroll(&self.obs, &waiting, &mut self.unrolled);
        let failed = std::mem::take(&mut self.unrolled.failed);
        let is_whole = |at: usize| failed.binary_search_by_key(&at, |(at, _)| *at).is_err();
        let split: Vec<_> = waiting.iter().map(split).collect();
        let whole = waiting.iter().enumerate().filter(|(at, _)| is_whole(*at));
        let spans: Vec<_> = whole
            .map(|(at, episode)| Span {
                episode,
                actions: columns_of(episode, &split[at]),
                t: 0,
                first: self.unrolled.firsts[at],
                rows: episode.info.length as usize + 1,
            })
            .collect();
        let Unrolled { obs, rewards, .. } = &self.unrolled;
        let rows = Rows { spans: &spans, obs, rewards };
        self.columns.write(&rows, &mut self.writer)?;
        self.carry()?;
        self.steps += waiting.iter().map(|episode| episode.info.length).sum::<u64>();
        tell_at_once(watch, self.steps)?;
        Ok(failed.into_iter().map(|(at, error)| (waiting[at].info.name, error)).collect())
    }

    /// Writes an episode that is longer than a row group.
    fn write_long(&mut self, episode: &Episode, watch: &mut Watch<'_>) -> Result<(), ExportError> {
        let mut playback = Playback::new(self.registry, episode)?;
        let mut obs: Vec<_> = self.obs.iter().map(|spec| ColumnData::zeros(spec.dtype, 0)).collect();
        let (mut rewards, split) = (Vec::new(), split(episode));
        let actions = columns_of(episode, &split);
        let mut t = 0;
        loop {
            obs.iter_mut().for_each(ColumnData::clear);
            rewards.clear();
            let rows = playback.next_rows(self.most_rows, &mut obs, &mut rewards)?;
            if rows == 0 {
                break;
            }
            let spans = [Span { episode, actions, t, first: 0, rows }];
            self.columns.write(&Rows { spans: &spans, obs: &obs, rewards: &rewards }, &mut self.writer)?;
            self.carry()?;
            t += rows;
            tell_at_once(watch, self.steps + t as u64 - 1)?;
        }
        self.steps += episode.info.length;
        Ok(())
    }

    /// Copies the written bytes to the output.
    fn carry(&mut self) -> Result<(), ExportError> {
        self.writer.flush()?;
        let written = self.writer.inner_mut();
        self.out.write_all(written)?;
        written.clear();
        Ok(())
    }
}

impl std::fmt::Debug for ParquetFile<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetFile").field("steps", &self.steps).finish_non_exhaustive()
    }
}

/// Returns the columns of an episode's actions, if they have several.
fn split(episode: &Episode) -> Option<Vec<ColumnData>> {
    episode.info.run.spec.split_actions(&episode.actions)
}

/// Returns the columns of an episode's actions, which were `split` if they have several.
fn columns_of<'a>(episode: &'a Episode, split: &'a Option<Vec<ColumnData>>) -> &'a [ColumnData] {
    split.as_deref().unwrap_or(std::slice::from_ref(&episode.actions))
}

/// Writes one episode as a file.
pub(crate) fn write(
    registry: &Registry,
    episode: &Episode,
    out: &mut dyn Write,
    watch: &mut Watch<'_>,
) -> Result<(), ExportError> {
    let mut file = ParquetFile::new(registry, &episode.info.run, out)?;
    let mut left_out = file.add(episode.clone(), watch)?;
    left_out.extend(file.finish(watch)?);
    match left_out.pop() {
        Some((_, error)) => Err(error.into()),
        None => Ok(()),
    }
}

/// Returns the encodings of columns: values that repeat take few bits, others are stored as they are, so that no time
/// is spent on packing.
fn properties(
    spec: &EnvSpec,
    obs: &[ColumnSpec],
    columns: &Columns,
) -> Result<WriterProperties, ExportError> {
    let parts = if spec.action_space.parts().is_some() { spec.action_parts() } else { Vec::new() };
    let about = About {
        env: &spec.id,
        dynamics: format!("{:016x}", spec.dynamics_hash),
        action_names: &spec.action_names,
        obs: obs.iter().map(Shape::of).collect(),
        actions: parts.iter().map(Shape::of).collect(),
    };
    let about = serde_json::to_string(&about).map_err(io::Error::from)?;
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("rollhouse ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_dictionary_enabled(false)
        .set_write_batch_size(WRITTEN_AT_ONCE)
        .set_key_value_metadata(Some(vec![KeyValue::new("rollhouse".to_owned(), about)]));
    for (name, repeats) in columns.names() {
        let path = ColumnPath::from(name);
        properties = if repeats {
            properties
                .set_column_dictionary_enabled(path.clone(), true)
                .set_column_dictionary_page_size_limit(path, DICTIONARY_BYTES)
        } else {
            properties.set_column_encoding(path, Encoding::PLAIN)
        };
    }
    let t = ColumnPath::from(columns::T);
    properties = properties
        .set_column_encoding(t.clone(), Encoding::DELTA_BINARY_PACKED)
        .set_column_statistics_enabled(t, EnabledStatistics::Chunk);
    Ok(properties.build())
}

/// Number of values that are handed to the encoders at once.
const WRITTEN_AT_ONCE: usize = 8192;

/// Bytes of different values above which a column is stored as it is.
const DICTIONARY_BYTES: usize = 4096;

/// The file's own description under the key `rollhouse`; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct About<'a> {
    env: &'a str,
    dynamics: String,
    action_names: &'a [String],
    obs: Vec<Shape<'a>>,
    /// Columns of an action that has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    actions: Vec<Shape<'a>>,
}

#[derive(Debug, Serialize)]
struct Shape<'a> {
    path: &'a str,
    shape: &'a [usize],
    dtype: &'a str,
}

impl<'a> Shape<'a> {
    fn of(column: &'a ColumnSpec) -> Self {
        Self { path: &column.path, shape: &column.shape, dtype: column.dtype.name() }
    }
}

impl From<ParquetError> for ExportError {
    fn from(error: ParquetError) -> Self {
        // All goes into memory: what can fail is of the encoders.
        Self::Write(io::Error::other(error))
    }
}
