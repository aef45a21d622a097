//! Writes an episode as lines of JSON.

use std::io::{self, Write};

use rollhouse_core::{Call, ColumnData, ColumnSpec, plain_json};
use rollhouse_env::Registry;
use rollhouse_replay::{Episode, Playback, PlayedStep};
use serde::{Serialize, Serializer};

use crate::error::ExportError;
use crate::names::check_different;
use crate::noted::noted_of;
use crate::watch::{Watch, tell};

pub(crate) fn write(
    registry: &Registry,
    episode: &Episode,
    out: &mut dyn Write,
    watch: &mut Watch<'_>,
) -> Result<(), ExportError> {
    let spec = &episode.info.run.spec;
    let (obs, actions) = (spec.obs_columns(), spec.action_parts());
    check_different(obs.iter().map(|column| &*column.path))?;
    check_different(actions.iter().map(|column| &*column.path))?;
    check_different(spec.info_channels.iter().map(|column| &*column.path))?;
    let mut playback = Playback::new(registry, episode)?;
    let mut lines = Vec::with_capacity(2 * LINES_BYTES);
    while let Some(step) = playback.next_step()? {
        let version = step.t.checked_sub(1).map_or(0, |before| episode.policy_versions.of_step(before));
        let split = step.action.as_ref().and_then(|action| spec.split_actions(action));
        let parts = split.as_deref().or(step.action.as_ref().map(std::slice::from_ref));
        let action = parts.map(|columns| Values { specs: &actions, columns });
        let mut line = line(&step, &obs, action, version);
        line.infos = Noted(spec.info_channels.iter().zip(step.infos.iter().cloned()).collect());
        if let Some(before) = step.t.checked_sub(1) {
            line.step_columns = Noted(noted_of(episode, before));
            line.calls = episode.calls_after(before).iter().map(|called| Called::of(&called.call)).collect();
        }
        let text = serde_json::to_string(&line).map_err(io::Error::from)?;
        lines.extend_from_slice(plain_json(text).as_bytes());
        lines.push(b'\n');
        if lines.len() >= LINES_BYTES {
            out.write_all(&lines)?;
            lines.clear();
        }
        tell(watch, step.t)?;
    }
    Ok(out.write_all(&lines)?)
}

/// Bytes of lines that are written at once.
const LINES_BYTES: usize = 1 << 16;

/// Returns the fields of one line, in their order: `t` and `obs` for the reset, all of them for a step; the version of
/// the policy where somebody has said it.
fn line<'a>(
    step: &'a PlayedStep,
    obs: &'a [ColumnSpec],
    action: Option<Values<'a>>,
    version: u64,
) -> Line<'a> {
    Line {
        t: step.t,
        action,
        reward: step.reward,
        obs: Values { specs: obs, columns: &step.obs },
        infos: Noted(Vec::new()),
        ended: (step.t > 0).then_some(Flags { terminated: step.terminated, truncated: step.truncated }),
        policy_version: Some(version).filter(|&version| version > 0),
        step_columns: Noted(Vec::new()),
        calls: Vec::new(),
    }
}

/// One line; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct Line<'a> {
    t: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<Values<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reward: Option<f64>,
    obs: Values<'a>,
    /// A row of each info channel, by name.
    #[serde(skip_serializing_if = "Noted::is_empty")]
    infos: Noted<'a>,
    #[serde(flatten)]
    ended: Option<Flags>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy_version: Option<u64>,
    #[serde(skip_serializing_if = "Noted::is_empty")]
    step_columns: Noted<'a>,
    /// Calls that changed the lane right before the action.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    calls: Vec<Called<'a>>,
}

/// A row of each step column, by name.
#[derive(Debug)]
struct Noted<'a>(Vec<(&'a ColumnSpec, ColumnData)>);

impl Noted<'_> {
    const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Noted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(spec, data)| (&spec.path, Row { data, spec })))
    }
}

/// A call of a method of the env.
#[derive(Debug, Serialize)]
struct Called<'a> {
    method: &'a str,
    payload: serde_json::Value,
}

impl<'a> Called<'a> {
    /// Shows a call; a payload that is no JSON is shown as text.
    fn of(call: &'a Call) -> Self {
        let payload = serde_json::from_str(&call.payload);
        Self { method: &call.method, payload: payload.unwrap_or_else(|_| call.payload.as_str().into()) }
    }
}

#[derive(Debug, Serialize)]
struct Flags {
    terminated: bool,
    truncated: bool,
}

/// An observation or an action: the only column of a plain space, or a map from path to column.
#[derive(Debug)]
struct Values<'a> {
    specs: &'a [ColumnSpec],
    columns: &'a [ColumnData],
}

impl Serialize for Values<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.specs, self.columns) {
            ([spec], [data]) if spec.path.is_empty() => Row { data, spec }.serialize(serializer),
            (specs, columns) => serializer
                .collect_map(specs.iter().zip(columns).map(|(spec, data)| (&spec.path, Row { data, spec }))),
        }
    }
}

/// One row of a column: a number for a scalar, else the elements in row-major order, each with as many digits as its
/// type needs. A value that is not finite is null.
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
