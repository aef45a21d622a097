//! Writes an episode as NumPy arrays.
//!
//! The file is an archive of `.npy` files, as `numpy.savez` writes it. The columns stand one after another, so that the
//! episode is passed once for each of them: nothing has to be kept or sought.

use std::io::{self, Write};

use rollhouse_core::{ColumnData, ColumnSpec, DType};
use rollhouse_env::Registry;
use rollhouse_replay::{Episode, Playback, PlayedStep};
use serde::Serialize;

use crate::error::ExportError;
use crate::names::check_different;
use crate::watch::{Watch, tell};
use crate::zip::{Entry, Zip};

pub(crate) fn write(
    registry: &Registry,
    episode: &Episode,
    out: &mut dyn Write,
    watch: &mut Watch<'_>,
) -> Result<(), ExportError> {
    let spec = &episode.info.run.spec;
    let steps = episode.info.length;
    let (obs, parts) = (spec.obs_columns(), spec.action_parts());
    let names = |root, columns: &[ColumnSpec]| {
        (0..columns.len()).map(|index| name_of(root, index, columns)).collect::<Vec<_>>()
    };
    check_different([names("obs", &obs), names("action", &parts)].concat())?;
    let mut zip = Zip::new(out);
    put_meta(&mut zip, episode)?;
    let mut pass = Pass { registry, episode, number: 0, of: obs.len() as u64 + 1, watch };
    for (index, column) in obs.iter().enumerate() {
        let bytes = (steps + 1) * column.row_bytes() as u64;
        let mut array =
            begin(&mut zip, &name_of("obs", index, &obs), column.dtype, &shape(steps + 1, column), bytes)?;
        pass.go(|step, row| {
            step.obs.get(index).into_iter().for_each(|data| append_le(data, row));
            array.put(row)
        })?;
        array.end()?;
    }
    let split = spec.split_actions(&episode.actions);
    let columns = split.as_deref().unwrap_or(std::slice::from_ref(&episode.actions));
    for (index, (action, column)) in parts.iter().zip(columns).enumerate() {
        let (name, bytes) = (name_of("action", index, &parts), steps * action.row_bytes() as u64);
        put_rows(begin(&mut zip, &name, action.dtype, &shape(steps, action), bytes)?, column, action, steps)?;
    }
    let mut array = begin(&mut zip, "reward", DType::F64, &[steps], steps * size_of::<f64>() as u64)?;
    pass.go(|step, row| {
        row.extend(step.reward.into_iter().flat_map(f64::to_le_bytes));
        array.put(row)
    })?;
    array.end()?;
    for (column, spec) in episode.step_columns.iter().zip(episode.info.run.step_columns.specs()) {
        let (name, bytes) = (format!("step/{}", spec.path), steps * spec.row_bytes() as u64);
        put_rows(begin(&mut zip, &name, spec.dtype, &shape(steps, spec), bytes)?, column, spec, steps)?;
    }
    let (terminated, truncated) = episode.info.outcome.flags();
    for (name, flag) in [("terminated", terminated), ("truncated", truncated)] {
        let mut array = begin(&mut zip, name, DType::Bool, &[steps], steps)?;
        for step in 1..=steps {
            array.put(&[u8::from(flag && step == steps)])?;
        }
        array.end()?;
    }
    Ok(zip.finish()?)
}

/// Writes a column of which each of so many steps has a row, which may have no element.
fn put_rows(mut array: Entry<'_, '_>, column: &ColumnData, spec: &ColumnSpec, steps: u64) -> io::Result<()> {
    let mut bytes = Vec::new();
    for row in (0..steps as usize).map_while(|row| column.row(row, spec.elements())) {
        bytes.clear();
        append_le(&ColumnData::from(row), &mut bytes);
        array.put(&bytes)?;
    }
    array.end()
}

/// A pass through the episode for one column.
struct Pass<'a, 'w> {
    registry: &'a Registry,
    episode: &'a Episode,
    number: u64,
    of: u64,
    watch: &'a mut Watch<'w>,
}

impl Pass<'_, '_> {
    /// Gives each step to a function, with empty memory for the bytes of a row.
    fn go(
        &mut self,
        mut each: impl FnMut(&PlayedStep, &mut Vec<u8>) -> io::Result<()>,
    ) -> Result<(), ExportError> {
        let mut playback = Playback::new(self.registry, self.episode)?;
        let mut row = Vec::new();
        while let Some(step) = playback.next_step()? {
            row.clear();
            each(&step, &mut row)?;
            if step.t.is_multiple_of(self.of) {
                tell(self.watch, (self.number * self.episode.info.length + step.t) / self.of)?;
            }
        }
        self.number += 1;
        Ok(())
    }
}

/// Returns the name of a column: `root` of the only one, or `root/` and its path, if that may be a name in an archive.
fn name_of(root: &str, index: usize, columns: &[ColumnSpec]) -> String {
    let path = &columns[index].path;
    let is_plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(['\\', '\0', ':']);
    match path.split('/').all(is_plain) {
        _ if path.is_empty() && columns.len() == 1 => root.to_owned(),
        true if path.len() <= MAX_NAME_BYTES => format!("{root}/{path}"),
        _ => format!("{root}/column {index}"),
    }
}

/// Bytes of the longest path that is a name in the archive.
const MAX_NAME_BYTES: usize = 1024;

fn shape(rows: u64, column: &ColumnSpec) -> Vec<u64> {
    std::iter::once(rows).chain(column.shape.iter().map(|&side| side as u64)).collect()
}

/// Begins an array whose elements have that many bytes.
fn begin<'z, 'a>(
    zip: &'z mut Zip<'a>,
    name: &str,
    dtype: DType,
    shape: &[u64],
    bytes: u64,
) -> io::Result<Entry<'z, 'a>> {
    let header = header(dtype_word(dtype), shape);
    let mut array = zip.file(&format!("{name}.npy"), header.len() as u64 + bytes)?;
    array.put(&header)?;
    Ok(array)
}

/// Returns the header before an array's elements: NumPy's format 1.0 (numpy/lib/format.py).
fn header(dtype: &str, shape: &[u64]) -> Vec<u8> {
    // A comma behind the only one makes a tuple of it.
    let sides: String = shape.iter().map(|side| format!("{side},")).collect();
    let mut text = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({sides}), }}");
    let unpadded = MAGIC.len() + size_of::<u16>() + text.len() + 1;
    text.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(ALIGNED) - unpadded));
    text.push('\n');
    [MAGIC, &(text.len() as u16).to_le_bytes(), text.as_bytes()].concat()
}

const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";
/// Multiple of bytes at which elements begin.
const ALIGNED: usize = 64;

const fn dtype_word(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "|b1",
        DType::U8 => "|u1",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
    }
}

fn append_le(data: &ColumnData, out: &mut Vec<u8>) {
    match data {
        ColumnData::U8(values) => out.extend(values),
        ColumnData::I32(values) => out.extend(values.iter().copied().flat_map(i32::to_le_bytes)),
        ColumnData::I64(values) => out.extend(values.iter().copied().flat_map(i64::to_le_bytes)),
        ColumnData::F32(values) => out.extend(values.iter().copied().flat_map(f32::to_le_bytes)),
        ColumnData::F64(values) => out.extend(values.iter().copied().flat_map(f64::to_le_bytes)),
    }
}

/// The facts about the episode beside its columns; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct Meta<'a> {
    id: String,
    env: &'a str,
    length: u64,
    #[serde(rename = "return")]
    total_reward: Option<f64>,
    outcome: &'a str,
    seed: Option<u64>,
    policy: &'a str,
    policy_version: u64,
    started_ms: u64,
    dynamics: String,
    observation_names: &'a [String],
    action_names: &'a [String],
    /// The episode from which it was forked, and the step; null if it was not.
    parent: Option<String>,
    parent_step: Option<u64>,
}

/// Writes the facts as JSON in an array of one string, which `str(array)` gives.
fn put_meta(zip: &mut Zip<'_>, episode: &Episode) -> Result<(), ExportError> {
    let info = &episode.info;
    let meta = Meta {
        id: info.name.to_string(),
        env: info.env(),
        length: info.length,
        total_reward: info.total_reward,
        outcome: info.outcome.word(),
        seed: info.seed(),
        policy: &info.policy().name,
        policy_version: info.policy().version,
        started_ms: info.started_ms,
        dynamics: format!("{:016x}", info.dynamics()),
        observation_names: &info.run.spec.observation_names,
        action_names: &info.run.spec.action_names,
        parent: info.parent().map(|parent| parent.name().to_string()),
        parent_step: info.parent().map(|parent| parent.step),
    };
    let json = serde_json::to_string(&meta).map_err(io::Error::from)?;
    let letters: Vec<u8> = json.chars().flat_map(|letter| u32::from(letter).to_le_bytes()).collect();
    let header = header(&format!("<U{}", letters.len() / size_of::<u32>()), &[]);
    let mut array = zip.file("meta.npy", (header.len() + letters.len()) as u64)?;
    array.put(&header)?;
    array.put(&letters)?;
    Ok(array.end()?)
}
