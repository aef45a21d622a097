//! The columns of a Parquet file, and the code that writes rows to them.

use std::io::Write;
use std::sync::Arc;

use ::parquet::basic::{LogicalType, Repetition, Type as Physical};
use ::parquet::data_type::{
    BoolType, DataType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, FloatType, Int32Type, Int64Type,
};
use ::parquet::errors::Result;
use ::parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use ::parquet::schema::types::{Type, TypePtr};
use rollhouse_core::{ColumnData, ColumnSpec, DType};
use rollhouse_replay::Episode;

use super::runs::RunsChunk;
use crate::names::{MAX_NAMED_ELEMENTS, column_name, element_names};

const EPISODE: &str = "episode";
pub(super) const T: &str = "t";

/// The columns of a file in their order.
pub(super) struct Columns(Vec<Column>);

struct Column {
    name: String,
    what: ColumnContent,
}

/// The content of a column.
#[derive(Debug, Clone, Copy)]
enum ColumnContent {
    Episode,
    T,
    Reward,
    Terminated,
    Truncated,
    /// An element of a column of which each step has a row.
    Step(StepColumn, Element),
    /// An element of an observation column.
    Obs(usize, Element),
    /// All elements of an observation column, as a list.
    List(usize, Element),
    /// All bytes of an observation column.
    Bytes(usize, Element),
}

/// A column of which each step has a row.
#[derive(Debug, Clone, Copy)]
enum StepColumn {
    /// A column of the action.
    Action(usize),
    /// What whoever chose the actions noted.
    Noted(usize),
}

impl StepColumn {
    fn of<'a>(self, span: &Span<'a>) -> &'a ColumnData {
        match self {
            Self::Action(index) => &span.actions[index],
            Self::Noted(index) => &span.episode.step_columns[index],
        }
    }
}

/// One of the `of` elements of a row.
#[derive(Debug, Clone, Copy)]
struct Element {
    at: usize,
    of: usize,
    dtype: DType,
}

/// Rows that are to be written.
pub(super) struct Rows<'a> {
    pub(super) spans: &'a [Span<'a>],
    pub(super) obs: &'a [ColumnData],
    pub(super) rewards: &'a [f64],
}

/// Rows of one episode that follow each other.
pub(super) struct Span<'a> {
    pub(super) episode: &'a Episode,
    /// Columns of all of its actions.
    pub(super) actions: &'a [ColumnData],
    /// The step of the first row; 0 is the reset.
    pub(super) t: usize,
    /// Index of the first row among all rows.
    pub(super) first: usize,
    pub(super) rows: usize,
}

impl Columns {
    /// Makes a column for each element of the action, and for each element of observations that do not have too many.
    pub(super) fn of(obs: &[ColumnSpec], actions: &[ColumnSpec], noted: &[ColumnSpec]) -> Self {
        let plain = |name: &str, what| Column { name: name.to_owned(), what };
        let mut columns = vec![plain(EPISODE, ColumnContent::Episode), plain(T, ColumnContent::T)];
        let elements =
            |spec: &ColumnSpec, root: &str, what: &dyn Fn(Element) -> ColumnContent| -> Vec<Column> {
                let names = element_names(root, spec).into_iter().enumerate();
                let of = spec.elements();
                names
                    .map(|(at, name)| Column { name, what: what(Element { at, of, dtype: spec.dtype }) })
                    .collect()
            };
        for (index, spec) in actions.iter().enumerate() {
            columns.extend(elements(spec, "action", &|element| {
                ColumnContent::Step(StepColumn::Action(index), element)
            }));
        }
        columns.push(plain("reward", ColumnContent::Reward));
        for (index, spec) in obs.iter().enumerate() {
            let (of, dtype) = (spec.elements(), spec.dtype);
            let all = Element { at: 0, of, dtype };
            match dtype {
                _ if of <= MAX_NAMED_ELEMENTS => {
                    columns.extend(elements(spec, "obs", &|element| ColumnContent::Obs(index, element)));
                }
                DType::U8 => columns.push(plain(&column_name("obs", spec), ColumnContent::Bytes(index, all))),
                _ => columns.push(plain(&column_name("obs", spec), ColumnContent::List(index, all))),
            }
        }
        for (index, spec) in noted.iter().enumerate() {
            columns.extend(elements(spec, "step", &|element| {
                ColumnContent::Step(StepColumn::Noted(index), element)
            }));
        }
        columns.push(plain("terminated", ColumnContent::Terminated));
        columns.push(plain("truncated", ColumnContent::Truncated));
        Self(columns)
    }

    /// Returns the names of all columns.
    pub(super) fn all_names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|column| &*column.name)
    }

    pub(super) fn schema(&self) -> Result<TypePtr> {
        let fields = self.0.iter().map(Column::field).collect::<Result<_>>()?;
        Ok(Arc::new(Type::group_type_builder("step").with_fields(fields).build()?))
    }

    /// Returns the columns of numbers that are not lists, each with whether its values often repeat.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, bool)> {
        let is_list = |column: &&Column| matches!(column.what, ColumnContent::List(..));
        self.0.iter().filter(move |column| !is_list(column)).filter_map(|column| {
            let repeats = match column.what {
                ColumnContent::Reward => true,
                ColumnContent::Step(StepColumn::Noted(_), _) => true,
                ColumnContent::Step(StepColumn::Action(_), element) | ColumnContent::Obs(_, element) => {
                    matches!(element.dtype, DType::U8 | DType::I32 | DType::I64)
                }
                ColumnContent::Episode
                | ColumnContent::T
                | ColumnContent::Terminated
                | ColumnContent::Truncated => return None,
                ColumnContent::List(..) | ColumnContent::Bytes(..) => false,
            };
            let is_bool = match column.what {
                ColumnContent::Step(_, element) | ColumnContent::Obs(_, element) => {
                    element.dtype == DType::Bool
                }
                _ => false,
            };
            // Of booleans the writer knows the best way itself.
            (!is_bool).then_some((&*column.name, repeats))
        })
    }

    /// Writes rows as a row group.
    pub(super) fn write<W: Write + Send>(
        &self,
        rows: &Rows<'_>,
        file: &mut SerializedFileWriter<W>,
    ) -> Result<()> {
        if rows.spans.is_empty() {
            return Ok(());
        }
        let (levels, count) = rows.levels();
        let descriptions = file.schema_descr().columns().to_vec();
        let mut group = file.next_row_group()?;
        for (column, description) in self.0.iter().zip(descriptions) {
            if let Some(chunk) = column.runs(rows) {
                chunk.append(description, &mut group)?;
                continue;
            }
            let Some(mut writer) = group.next_column()? else { break };
            column.write(rows, &levels, count, &mut writer)?;
            writer.close()?;
        }
        group.close()?;
        Ok(())
    }
}

impl Rows<'_> {
    /// Returns, for columns without a value in the rows of resets, whether each row has one, and how many have.
    fn levels(&self) -> (Vec<i16>, usize) {
        let mut levels = Vec::with_capacity(self.count());
        for span in self.spans {
            levels.extend((span.t..span.t + span.rows).map(|t| i16::from(t > 0)));
        }
        let count = levels.iter().filter(|&&level| level > 0).count();
        (levels, count)
    }

    fn count(&self) -> usize {
        self.spans.iter().map(|span| span.rows).sum()
    }

    /// Gathers one value of each row.
    fn each<V>(&self, value: impl Fn(&Span<'_>, usize) -> V) -> Vec<V> {
        let mut values = Vec::with_capacity(self.count());
        for span in self.spans {
            values.extend((0..span.rows).map(|row| value(span, row)));
        }
        values
    }

    /// Gathers one element of each row of `from`.
    fn gather<V: Copy, O>(&self, from: &[V], element: Element, into: impl Fn(V) -> O) -> Vec<O> {
        let mut values = Vec::with_capacity(self.count());
        for span in self.spans {
            let rows = &from[span.first * element.of..][..span.rows * element.of];
            values.extend(rows.chunks_exact(element.of).map(|row| into(row[element.at])));
        }
        values
    }

    /// Gathers all elements of each row of `from`.
    fn all<V: Copy, O>(&self, from: &[V], element: Element, into: impl Fn(V) -> O) -> Vec<O> {
        let mut values = Vec::with_capacity(self.count() * element.of);
        for span in self.spans {
            let rows = &from[span.first * element.of..][..span.rows * element.of];
            values.extend(rows.iter().map(|&value| into(value)));
        }
        values
    }

    /// Gathers one element of each row of a column of steps: rows of resets have none.
    fn of_steps<V: Copy, O>(
        &self,
        of: impl for<'a> Fn(&Span<'a>) -> &'a [V],
        element: Element,
        into: impl Fn(V) -> O,
    ) -> Vec<O> {
        let mut values = Vec::with_capacity(self.count());
        for span in self.spans {
            // What led to step t stands in row t - 1.
            let (from, to) = (span.t.saturating_sub(1), span.t + span.rows - 1);
            let rows = &of(span)[from * element.of..to * element.of];
            values.extend(rows.chunks_exact(element.of).map(|row| into(row[element.at])));
        }
        values
    }
}

impl Column {
    fn field(&self) -> Result<TypePtr> {
        let of = |dtype, repetition| primitive(&self.name, dtype, repetition);
        let required = Repetition::REQUIRED;
        match self.what {
            ColumnContent::Episode => {
                let text = Type::primitive_type_builder(&self.name, Physical::BYTE_ARRAY);
                let text = text.with_repetition(required).with_logical_type(Some(LogicalType::String));
                text.build().map(Arc::new)
            }
            ColumnContent::T => of(DType::I64, required),
            ColumnContent::Reward => of(DType::F64, Repetition::OPTIONAL),
            ColumnContent::Terminated | ColumnContent::Truncated => of(DType::Bool, required),
            ColumnContent::Step(_, element) => of(element.dtype, Repetition::OPTIONAL),
            ColumnContent::Obs(_, element) => of(element.dtype, required),
            ColumnContent::Bytes(_, element) => {
                let bytes = Type::primitive_type_builder(&self.name, Physical::FIXED_LEN_BYTE_ARRAY);
                bytes.with_repetition(required).with_length(element.of as i32).build().map(Arc::new)
            }
            ColumnContent::List(_, element) => {
                let item = primitive("element", element.dtype, required)?;
                let list = Type::group_type_builder("list").with_repetition(Repetition::REPEATED);
                let list = Arc::new(list.with_fields(vec![item]).build()?);
                let outer = Type::group_type_builder(&self.name).with_repetition(required);
                outer.with_logical_type(Some(LogicalType::List)).with_fields(vec![list]).build().map(Arc::new)
            }
        }
    }

    /// Returns a column that stays the same over many rows as its runs; `None` of another.
    fn runs(&self, rows: &Rows<'_>) -> Option<RunsChunk> {
        let flag = match self.what {
            ColumnContent::Episode => {
                let names = rows.spans.iter().map(|span| (span.episode.info.name.to_string(), span.rows));
                return Some(RunsChunk::of_texts(&names.collect::<Vec<_>>()));
            }
            ColumnContent::Terminated => |flags: (bool, bool)| flags.0,
            ColumnContent::Truncated => |flags: (bool, bool)| flags.1,
            _ => return None,
        };
        let flags = rows.spans.iter().flat_map(|span| {
            let info = &span.episode.info;
            let has_end = (span.t + span.rows) as u64 == info.length + 1;
            let last = usize::from(has_end);
            [(false, span.rows - last), (has_end && flag(info.outcome.flags()), last)]
        });
        Some(RunsChunk::of_flags(flags))
    }

    fn write(
        &self,
        rows: &Rows<'_>,
        levels: &[i16],
        count: usize,
        writer: &mut SerializedColumnWriter<'_>,
    ) -> Result<()> {
        match self.what {
            // What is the same in many rows is written as runs.
            ColumnContent::Episode | ColumnContent::Terminated | ColumnContent::Truncated => Ok(()),
            ColumnContent::T => put::<Int64Type>(writer, &rows.each(|span, row| (span.t + row) as i64)),
            ColumnContent::Reward => {
                let mut rewards = Vec::with_capacity(count);
                for span in rows.spans {
                    let skipped = usize::from(span.t == 0);
                    rewards.extend_from_slice(&rows.rewards[span.first + skipped..span.first + span.rows]);
                }
                put_some::<DoubleType>(writer, &rewards, levels)
            }
            ColumnContent::Step(column, element) => put_steps(rows, column, element, levels, writer),
            ColumnContent::Obs(column, element) => put_element(rows, &rows.obs[column], element, writer),
            ColumnContent::List(column, element) => put_list(rows, &rows.obs[column], element, writer),
            ColumnContent::Bytes(column, element) => {
                let ColumnData::U8(bytes) = &rows.obs[column] else { return Ok(()) };
                let of = element.of;
                let row = |span: &Span<'_>, row: usize| {
                    FixedLenByteArray::from(bytes[(span.first + row) * of..][..of].to_vec())
                };
                put::<FixedLenByteArrayType>(writer, &rows.each(row))
            }
        }
    }
}

fn put_element(
    rows: &Rows<'_>,
    from: &ColumnData,
    element: Element,
    writer: &mut SerializedColumnWriter<'_>,
) -> Result<()> {
    match from {
        ColumnData::U8(from) if element.dtype == DType::Bool => {
            put::<BoolType>(writer, &rows.gather(from, element, |v| v != 0))
        }
        ColumnData::U8(from) => put::<Int32Type>(writer, &rows.gather(from, element, i32::from)),
        ColumnData::I32(from) => put::<Int32Type>(writer, &rows.gather(from, element, |v| v)),
        ColumnData::I64(from) => put::<Int64Type>(writer, &rows.gather(from, element, |v| v)),
        ColumnData::F32(from) => put::<FloatType>(writer, &rows.gather(from, element, |v| v)),
        ColumnData::F64(from) => put::<DoubleType>(writer, &rows.gather(from, element, |v| v)),
    }
}

/// Writes an element of a column of which each step has a row.
fn put_steps(
    rows: &Rows<'_>,
    column: StepColumn,
    element: Element,
    levels: &[i16],
    writer: &mut SerializedColumnWriter<'_>,
) -> Result<()> {
    macro_rules! put {
        ($type:ty, $variant:ident, $native:ty, $into:expr) => {{
            fn of<'a>(span: &Span<'a>, column: StepColumn) -> &'a [$native] {
                match column.of(span) {
                    ColumnData::$variant(values) => values,
                    _ => &[],
                }
            }
            put_some::<$type>(writer, &rows.of_steps(|span| of(span, column), element, $into), levels)
        }};
    }
    match element.dtype {
        DType::Bool => put!(BoolType, U8, u8, |v| v != 0),
        DType::U8 => put!(Int32Type, U8, u8, i32::from),
        DType::I32 => put!(Int32Type, I32, i32, |v| v),
        DType::I64 => put!(Int64Type, I64, i64, |v| v),
        DType::F32 => put!(FloatType, F32, f32, |v| v),
        DType::F64 => put!(DoubleType, F64, f64, |v| v),
    }
}

fn put_list(
    rows: &Rows<'_>,
    from: &ColumnData,
    element: Element,
    writer: &mut SerializedColumnWriter<'_>,
) -> Result<()> {
    let elements = rows.count() * element.of;
    let defined = vec![1; elements];
    // 0 begins a row.
    let repeated: Vec<i16> = (0..elements).map(|at| i16::from(at % element.of != 0)).collect();
    macro_rules! put {
        ($type:ty, $from:expr, $into:expr) => {{
            let values = rows.all($from, element, $into);
            writer.typed::<$type>().write_batch(&values, Some(&defined), Some(&repeated))
        }};
    }
    let written = match from {
        ColumnData::U8(from) if element.dtype == DType::Bool => put!(BoolType, from, |v| v != 0),
        ColumnData::U8(from) => put!(Int32Type, from, i32::from),
        ColumnData::I32(from) => put!(Int32Type, from, |v| v),
        ColumnData::I64(from) => put!(Int64Type, from, |v| v),
        ColumnData::F32(from) => put!(FloatType, from, |v| v),
        ColumnData::F64(from) => put!(DoubleType, from, |v| v),
    };
    written.map(|_| ())
}

fn put<D: DataType>(writer: &mut SerializedColumnWriter<'_>, values: &[D::T]) -> Result<()> {
    writer.typed::<D>().write_batch(values, None, None).map(|_| ())
}

/// Writes the values of the rows that have one.
fn put_some<D: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    values: &[D::T],
    levels: &[i16],
) -> Result<()> {
    writer.typed::<D>().write_batch(values, Some(levels), None).map(|_| ())
}

fn primitive(name: &str, dtype: DType, repetition: Repetition) -> Result<TypePtr> {
    let physical = match dtype {
        DType::Bool => Physical::BOOLEAN,
        DType::U8 | DType::I32 => Physical::INT32,
        DType::I64 => Physical::INT64,
        DType::F32 => Physical::FLOAT,
        DType::F64 => Physical::DOUBLE,
    };
    let byte = LogicalType::integer(8, false);
    Type::primitive_type_builder(name, physical)
        .with_repetition(repetition)
        .with_logical_type((dtype == DType::U8).then_some(byte))
        .build()
        .map(Arc::new)
}
