//! `rollhouse replay export`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use rollhouse_core::{ColumnData, ColumnSpec, EnvSpec};
use rollhouse_env::Registry;
use rollhouse_replay::{LibraryEpisode, Playback, PlayedStep};
use serde::{Serialize, Serializer};

use crate::args::ExportArgs;
use crate::failure::{Failure, Status};
use crate::output::Output;
use crate::replay::read_failure;
use crate::replay::source::Source;

pub(super) fn run(args: &ExportArgs, out: &mut Output) -> Result<Status, Failure> {
    let found = Source::of(&args.data)?.open()?.find(args.name).map_err(read_failure)?;
    write_out(&found, args.output.as_deref(), out)
}

/// Writes an episode out step by step, to a file if one is named.
pub(super) fn write_out(
    found: &LibraryEpisode,
    output: Option<&Path>,
    out: &mut Output,
) -> Result<Status, Failure> {
    let episode = found.folder.load(&found.info).map_err(read_failure)?;
    let playback =
        Playback::new(&Registry::builtin(), &episode).map_err(|error| Failure::of(Status::Failed, &error))?;
    match output {
        None => write(playback, &episode.info.run.spec, out)?,
        Some(path) => {
            let failed = |error| {
                Failure::new(Status::Failed, format_args!("writing {} failed: {error}", path.display()))
            };
            let mut file = BufWriter::new(File::create(path).map_err(failed)?);
            write(playback, &episode.info.run.spec, &mut file).and_then(|()| Ok(file.flush()?)).map_err(
                |error| match error {
                    WriteError::Disk(error) => failed(error),
                    other => other.into(),
                },
            )?;
        }
    }
    Ok(Status::Done)
}

fn write(mut playback: Playback<'_>, spec: &EnvSpec, out: &mut impl Write) -> Result<(), WriteError> {
    let (obs, action) = (spec.obs_columns(), spec.action_column());
    while let Some(step) = playback.next_step().map_err(WriteError::Simulate)? {
        serde_json::to_writer(&mut *out, &line(&step, &obs, &action)).map_err(io::Error::from)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// The fields of one line, in their order: `t` and `obs` of the reset, all of them of a step.
fn line<'a>(step: &'a PlayedStep, obs: &'a [ColumnSpec], action: &'a ColumnSpec) -> Line<'a> {
    Line {
        t: step.t,
        action: step.action.as_ref().map(|data| Row { data, spec: action }),
        reward: step.reward,
        obs: Observation { specs: obs, columns: &step.obs },
        ended: (step.t > 0).then_some(Flags { terminated: step.terminated, truncated: step.truncated }),
    }
}

/// One line; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct Line<'a> {
    t: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<Row<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reward: Option<f64>,
    obs: Observation<'a>,
    #[serde(flatten)]
    ended: Option<Flags>,
}

#[derive(Debug, Serialize)]
struct Flags {
    terminated: bool,
    truncated: bool,
}

/// The only column of a plain space, or a map from path to column.
#[derive(Debug)]
struct Observation<'a> {
    specs: &'a [ColumnSpec],
    columns: &'a [ColumnData],
}

impl Serialize for Observation<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.specs, self.columns) {
            ([spec], [data]) if spec.path.is_empty() => Row { data, spec }.serialize(serializer),
            (specs, columns) => serializer
                .collect_map(specs.iter().zip(columns).map(|(spec, data)| (&spec.path, Row { data, spec }))),
        }
    }
}

/// One row of a column: a number for a scalar, else the elements in row-major order, each with as many digits
/// as its type needs. What is not finite is null.
#[derive(Debug)]
struct Row<'a> {
    data: &'a ColumnData,
    spec: &'a ColumnSpec,
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !self.spec.shape.is_empty() {
            return self.data.serialize(serializer);
        }
        match self.data {
            ColumnData::U8(row) => row.first().serialize(serializer),
            ColumnData::I32(row) => row.first().serialize(serializer),
            ColumnData::I64(row) => row.first().serialize(serializer),
            ColumnData::F32(row) => row.first().serialize(serializer),
            ColumnData::F64(row) => row.first().serialize(serializer),
        }
    }
}

/// Why an episode could not be written out.
#[derive(Debug)]
enum WriteError {
    Simulate(rollhouse_replay::SimulateError),
    Disk(io::Error),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Simulate(error) => Self::of(Status::Failed, &error),
            WriteError::Disk(error) => error.into(),
        }
    }
}
