//! Observations: rows of columns to JSON.

use rollhouse_core::{
    ColumnRef, ColumnSpec, CompositeSpace, DType, EnvSpec, ObservationSpace, Role, SequenceSpace, Space,
    TextSpace,
};
use serde::Serialize;

/// What a lane shows after a reset or a step.
#[derive(Debug, Clone, Copy)]
pub struct StepView<'a> {
    /// Spec of the env.
    pub spec: &'a EnvSpec,
    /// One row of each column of the observation, in the space's own order.
    pub obs: &'a [ColumnRef<'a>],
    /// One row of each info channel of the spec.
    pub infos: &'a [ColumnRef<'a>],
    /// Reward of the step; `None` after a reset.
    pub reward: Option<f64>,
    /// Whether the episode terminated.
    pub terminated: bool,
    /// Whether it was truncated.
    pub truncated: bool,
}

/// Where the columns of a value come from.
enum Cells<'a, 'c> {
    /// One row of each.
    Columns(std::slice::Iter<'c, ColumnRef<'a>>),
    /// One after the other in a row that carries them.
    Row(ColumnRef<'a>, usize),
}

impl StepView<'_> {
    /// Writes the object that OpenEnv calls the data of an observation: `observation`, `reward` and `done`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"observation\":{\"obs\":");
        write_space(out, &self.spec.observation_space, &mut Cells::Columns(self.obs.iter()));
        out.extend_from_slice(b",\"terminated\":");
        json(out, &self.terminated);
        out.extend_from_slice(b",\"truncated\":");
        json(out, &self.truncated);
        if shown_infos(self.spec).next().is_some() {
            self.write_infos(out);
        }
        out.extend_from_slice(b",\"metadata\":{}},\"reward\":");
        json(out, &self.reward);
        out.extend_from_slice(b",\"done\":");
        json(out, &(self.terminated || self.truncated));
        out.push(b'}');
    }

    fn write_infos(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"infos\":{");
        let is_first = self.reward.is_none();
        let written =
            shown_infos(self.spec).filter(|(_, channel)| !is_first || channel.role.is_in_first_rows());
        for (place, (column, channel)) in written.enumerate() {
            if place > 0 {
                out.push(b',');
            }
            json(out, &channel.path);
            out.push(b':');
            write_array(out, channel.dtype, &channel.shape, self.infos[column]);
        }
        out.push(b'}');
    }
}

/// Returns the info channels that clients are shown, with their places.
pub(crate) fn shown_infos(spec: &EnvSpec) -> impl Iterator<Item = (usize, &ColumnSpec)> {
    let channels = spec.info_channels.iter().enumerate();
    channels.filter(|(_, channel)| matches!(channel.role, Role::Info | Role::ActionMask))
}

impl<'a> Cells<'a, '_> {
    fn next(&mut self, elements: usize) -> ColumnRef<'a> {
        match self {
            Self::Columns(columns) => columns.next().copied().unwrap_or(ColumnRef::U8(&[])),
            Self::Row(row, at) => {
                let start = *at;
                *at += elements;
                row.slice(start, *at)
            }
        }
    }
}

fn write_space(out: &mut Vec<u8>, space: &ObservationSpace, cells: &mut Cells<'_, '_>) {
    match space {
        ObservationSpace::Plain(space) => {
            let row = cells.next(space.elements());
            write_plain(out, space, row);
        }
        ObservationSpace::Composite(parts) => write_composite(out, parts, cells),
    }
}

fn write_plain(out: &mut Vec<u8>, space: &Space, row: ColumnRef<'_>) {
    match space.parts() {
        Some(parts) => write_composite(out, parts, &mut Cells::Row(row, 0)),
        None => write_array(out, space.dtype(), space.shape(), row),
    }
}

fn write_composite(out: &mut Vec<u8>, space: &CompositeSpace, cells: &mut Cells<'_, '_>) {
    match space {
        CompositeSpace::Dict { spaces } => {
            list(out, [b'{', b'}'], spaces, |out, (name, space)| {
                json(out, name);
                out.push(b':');
                write_space(out, space, cells);
            });
        }
        CompositeSpace::Tuple { spaces } => {
            list(out, [b'[', b']'], spaces, |out, space| write_space(out, space, cells));
        }
        CompositeSpace::Text(text) => write_text(out, text, cells),
        CompositeSpace::Sequence(sequence) => write_sequence(out, sequence, cells),
    }
}

fn write_text(out: &mut Vec<u8>, space: &TextSpace, cells: &mut Cells<'_, '_>) {
    let codes = cells.next(space.max_length());
    let count = counted(cells, codes.len());
    let code = |at| whole(codes, at).and_then(|code| char::from_u32(u32::try_from(code).ok()?));
    let text: String = (0..count).filter_map(code).collect();
    json(out, &text);
}

fn write_sequence(out: &mut Vec<u8>, space: &SequenceSpace, cells: &mut Cells<'_, '_>) {
    let width = space.item().elements();
    let items = cells.next(space.maximum() * width);
    let count = counted(cells, space.maximum());
    list(out, [b'[', b']'], 0..count, |out, item| {
        write_plain(out, space.item(), items.slice(item * width, (item + 1) * width));
    });
}

/// Returns the number of items, which is the next column.
fn counted(cells: &mut Cells<'_, '_>, most: usize) -> usize {
    let count = whole(cells.next(1), 0).and_then(|count| usize::try_from(count).ok());
    count.unwrap_or_default().min(most)
}

/// Writes nested lists of that shape.
fn write_array(out: &mut Vec<u8>, dtype: DType, shape: &[usize], row: ColumnRef<'_>) {
    let Some((count, rest)) = shape.split_first() else { return write_element(out, dtype, row, 0) };
    if rest.is_empty() {
        return list(out, [b'[', b']'], 0..*count, |out, at| write_element(out, dtype, row, at));
    }
    let width = rest.iter().product::<usize>();
    list(out, [b'[', b']'], 0..*count, |out, at| {
        write_array(out, dtype, rest, row.slice(at * width, (at + 1) * width));
    });
}

/// Writes an element with as many digits as its type needs; one that is not finite is null.
fn write_element(out: &mut Vec<u8>, dtype: DType, row: ColumnRef<'_>, at: usize) {
    match (dtype, row) {
        (DType::Bool, row) => json(out, &(whole(row, at) == Some(1))),
        (DType::F32, ColumnRef::F32(row)) => json(out, &row[at]),
        (DType::F32, ColumnRef::F64(row)) => json(out, &(row[at] as f32)),
        (DType::F64, ColumnRef::F64(row)) => json(out, &row[at]),
        (_, row) => json(out, &whole(row, at)),
    }
}

/// Returns an element as an integer.
fn whole(row: ColumnRef<'_>, at: usize) -> Option<i64> {
    match row {
        ColumnRef::U8(row) => row.get(at).copied().map(i64::from),
        ColumnRef::I32(row) => row.get(at).copied().map(i64::from),
        ColumnRef::I64(row) => row.get(at).copied(),
        ColumnRef::F32(row) => row.get(at).map(|number| number.round_ties_even() as i64),
        ColumnRef::F64(row) => row.get(at).map(|number| number.round_ties_even() as i64),
    }
}

fn list<T>(
    out: &mut Vec<u8>,
    [open, close]: [u8; 2],
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(open);
    for (place, item) in items.into_iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(close);
}

/// Writes a value of ours, which is always one of JSON.
pub(crate) fn json(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    let before = out.len();
    if serde_json::to_writer(&mut *out, value).is_err() {
        // Memory takes every byte, and no key of ours is anything but a text.
        out.truncate(before);
        out.extend_from_slice(b"null");
    }
}

/// Returns a value of ours as text.
pub(crate) fn text(value: &(impl Serialize + ?Sized)) -> Vec<u8> {
    let mut out = Vec::new();
    json(&mut out, value);
    out
}
