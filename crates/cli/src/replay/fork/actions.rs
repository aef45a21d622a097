//! Actions that are read from a file.

use std::fmt;
use std::io::{self, BufRead, Read};

use rollhouse_core::{ColumnData, ColumnMut, ColumnSpec, DType, Space};
use serde_json::Value;

/// Reads the actions after step `at`: rows of the action column, and how many they are, which rows without an element do not
/// say.
pub(super) fn read_actions(
    mut lines: impl BufRead,
    space: &Space,
    column: &ColumnSpec,
    at: u64,
) -> Result<(ColumnData, u64), ActionsError> {
    let mut reader = Reader { space, column, rows: ColumnData::zeros(column.dtype, 0), next: at + 1 };
    let mut line = Vec::new();
    let mut number = 0;
    loop {
        number += 1;
        line.clear();
        let read = lines.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut line);
        match read.map_err(ActionsError::Read)? {
            0 => return Ok((reader.rows, reader.next - at - 1)),
            read if read as u64 > MAX_LINE => return Err(ActionsError::Long { line: number }),
            _ => reader.take(&line).map_err(|why| ActionsError::Line { line: number, why })?,
        }
    }
}

/// The reason why a file has no actions that can be taken.
#[derive(Debug)]
pub(super) enum ActionsError {
    Read(io::Error),
    Long { line: u64 },
    Line { line: u64, why: BadLine },
}

/// The fault of a line.
#[derive(Debug)]
pub(super) enum BadLine {
    NotJson(serde_json::Error),
    NoAction,
    /// The step of a line does not follow the one before: lines that name their steps must have all of them.
    Step {
        found: u64,
        wanted: u64,
    },
    NotAStep(String),
    Elements {
        found: usize,
        wanted: usize,
    },
    Value {
        found: String,
        wanted: String,
    },
    Many,
}

struct Reader<'a> {
    space: &'a Space,
    column: &'a ColumnSpec,
    rows: ColumnData,
    /// The step to which the next action leads.
    next: u64,
}

impl Reader<'_> {
    fn take(&mut self, line: &[u8]) -> Result<(), BadLine> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let value = serde_json::from_slice::<Value>(line).map_err(BadLine::NotJson)?;
        let action = match &value {
            Value::Object(fields) => {
                let step = fields.get("t").map(|t| t.as_u64().ok_or_else(|| BadLine::NotAStep(cut(t))));
                match step.transpose()? {
                    Some(step) if step < self.next => return Ok(()),
                    Some(found) if found > self.next => {
                        return Err(BadLine::Step { found, wanted: self.next });
                    }
                    _ => fields.get("action").ok_or(BadLine::NoAction)?,
                }
            }
            action => action,
        };
        let elements: Vec<&Value> = match action {
            Value::Array(_) => flattened(action),
            one => vec![one],
        };
        let wanted = self.column.elements();
        if elements.len() != wanted {
            return Err(BadLine::Elements { found: elements.len(), wanted });
        }
        if self.rows.len() + wanted > MAX_ELEMENTS {
            return Err(BadLine::Many);
        }
        let mut row = ColumnData::zeros(self.column.dtype, wanted);
        for (index, element) in elements.into_iter().enumerate() {
            let bad = || BadLine::Value { found: cut(element), wanted: wanted_of(self.space) };
            set(&mut row.as_mut(), index, element, self.space).ok_or_else(bad)?;
        }
        let _same_type = self.rows.extend(row.as_ref());
        self.next += 1;
        Ok(())
    }
}

/// Returns the elements of nested arrays in row-major order.
fn flattened(value: &Value) -> Vec<&Value> {
    let mut found = Vec::new();
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        match value {
            Value::Array(values) => left.extend(values.iter().rev()),
            one => found.push(one),
        }
    }
    found
}

/// Writes an element; `None` if it does not have the space's type.
fn set(row: &mut ColumnMut<'_>, index: usize, element: &Value, space: &Space) -> Option<()> {
    let whole = || element.as_i64();
    match (row, space) {
        (ColumnMut::I64(row), Space::Discrete(space)) => {
            let value = whole()?;
            let place = i128::from(value) - i128::from(space.start);
            row[index] = (0..i128::from(space.n)).contains(&place).then_some(value)?;
        }
        (ColumnMut::U8(row), _) => {
            let most = if space.dtype() == DType::Bool { 1 } else { u8::MAX };
            row[index] = match element {
                Value::Bool(flag) => u8::from(*flag),
                _ => u8::try_from(whole()?).ok().filter(|&value| value <= most)?,
            };
        }
        (ColumnMut::I32(row), _) => row[index] = i32::try_from(whole()?).ok()?,
        (ColumnMut::I64(row), _) => row[index] = whole()?,
        // The nearest float32, as its digits stand in an export.
        (ColumnMut::F32(row), _) => {
            row[index] = Some(element.as_f64()? as f32).filter(|value| value.is_finite())?;
        }
        (ColumnMut::F64(row), _) => row[index] = element.as_f64()?,
    }
    Some(())
}

fn wanted_of(space: &Space) -> String {
    match space {
        Space::Discrete(space) => {
            let last = i128::from(space.start) + i128::from(space.n) - 1;
            format!("an integer from {} to {last}", space.start)
        }
        Space::Box(space) => format!("a number of type {}", space.dtype),
    }
}

/// Returns the beginning of a value, for a message.
fn cut(value: &Value) -> String {
    value.to_string().chars().take(40).collect()
}

/// Bytes of the longest line.
const MAX_LINE: u64 = 1 << 20;
/// Number of elements of all actions together: 2 GiB of the widest.
const MAX_ELEMENTS: usize = 1 << 28;

impl fmt::Display for ActionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(_) => f.write_str("the actions cannot be read"),
            Self::Long { line } => write!(f, "line {line} of the actions has more than {MAX_LINE} bytes"),
            Self::Line { line, why } => write!(f, "line {line} of the actions: {why}"),
        }
    }
}

impl std::error::Error for ActionsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson(error) => write!(f, "it is not a JSON value: {error}"),
            Self::NoAction => f.write_str("it has no `action`"),
            Self::Step { found, wanted } => write!(f, "it is step {found}, step {wanted} comes next"),
            Self::NotAStep(found) => write!(f, "its `t` is {found}, a step is wanted"),
            Self::Elements { found, wanted } => write!(f, "{found} elements, an action has {wanted}"),
            Self::Value { found, wanted } => write!(f, "{found} is not {wanted}"),
            Self::Many => write!(f, "with it there are more than {MAX_ELEMENTS} elements of actions"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rollhouse_core::{BoxSpace, Role};

    use super::*;

    fn column(space: &Space) -> ColumnSpec {
        ColumnSpec {
            path: String::new(),
            dtype: space.dtype(),
            shape: space.shape().to_vec(),
            names: Vec::new(),
            role: Role::Action,
        }
    }

    fn read(text: &str, space: &Space, at: u64) -> Result<ColumnData, String> {
        let read = read_actions(text.as_bytes(), space, &column(space), at);
        let (rows, count) = read.map_err(|error| error.to_string())?;
        assert_eq!(rows.len(), count as usize * space.elements());
        Ok(rows)
    }

    #[test]
    fn a_line_is_an_action_or_has_one() {
        let two = Space::discrete(2);
        assert_eq!(read("1\n\n{\"action\":0,\"why\":[]}\n1", &two, 5), Ok(ColumnData::I64(vec![1, 0, 1])));
        let arm = Space::Box(BoxSpace {
            low: vec![-1.0; 4].into(),
            high: vec![1.0; 4].into(),
            shape: vec![2, 2],
            dtype: DType::F32,
            choices: false,
            parts: None,
            own: None,
        });
        let wanted = Ok(ColumnData::F32(vec![0.5, -1.0, 0.1, 7.0]));
        assert_eq!(read("[[0.5,-1],[0.1,7]]", &arm, 0), wanted);
        assert_eq!(read("{\"action\":[0.5,-1,0.1,7]}", &arm, 0), wanted);
        assert_eq!(read("0.25", &Space::f32_box(&[-1.0], &[1.0]), 0), Ok(ColumnData::F32(vec![0.25])));
    }

    #[test]
    fn actions_without_an_element_are_counted_by_their_lines() {
        let none = Space::f32_box(&[], &[]);
        let read = read_actions(&b"[]\n{\"action\":[]}\n\n[]"[..], &none, &column(&none), 4).unwrap();
        assert_eq!(read, (ColumnData::F32(vec![]), 3));
    }

    #[test]
    fn of_an_export_the_steps_after_the_fork_are_taken() {
        let text =
            "{\"t\":0,\"obs\":[1]}\n{\"t\":1,\"action\":1}\n{\"t\":2,\"action\":0}\n{\"t\":3,\"action\":1}\n";
        let two = Space::discrete(2);
        assert_eq!(read(text, &two, 0), Ok(ColumnData::I64(vec![1, 0, 1])));
        assert_eq!(read(text, &two, 2), Ok(ColumnData::I64(vec![1])));
        assert_eq!(read(text, &two, 3), Ok(ColumnData::I64(vec![])));
        let gap = "{\"t\":1,\"action\":1}\n{\"t\":3,\"action\":1}\n";
        assert_eq!(read(gap, &two, 0).unwrap_err(), "line 2 of the actions: it is step 3, step 2 comes next");
    }

    #[test]
    fn what_is_no_action_is_named_with_its_line() {
        let two = Space::discrete(2);
        let cases = [
            ("1\n2", "line 2 of the actions: 2 is not an integer from 0 to 1"),
            ("0.5", "line 1 of the actions: 0.5 is not an integer from 0 to 1"),
            ("null", "line 1 of the actions: null is not an integer from 0 to 1"),
            ("[0,1]", "line 1 of the actions: 2 elements, an action has 1"),
            ("{}", "line 1 of the actions: it has no `action`"),
            ("{\"t\":-1}", "line 1 of the actions: its `t` is -1, a step is wanted"),
        ];
        for (text, wanted) in cases {
            assert_eq!(read(text, &two, 0).unwrap_err(), wanted);
        }
        assert!(read("left", &two, 0).unwrap_err().contains("not a JSON value"));
        let float = Space::f32_box(&[-1.0], &[1.0]);
        assert!(read("1e39", &float, 0).unwrap_err().contains("is not a number of type float32"));
        let long = format!("\"{}\"", "x".repeat(MAX_LINE as usize));
        assert!(read(&long, &two, 0).unwrap_err().contains("has more than"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in any::<Vec<u8>>(), at in 0u64..3) {
            let space = Space::discrete(3);
            if let Ok((rows, _)) = read_actions(&text[..], &space, &column(&space), at) {
                prop_assert!((0..rows.len()).all(|row| (0.0..3.0).contains(&rows.number(row))));
            }
        }

        #[test]
        fn numbers_of_an_export_are_read_back_to_the_bit(values in prop::collection::vec(any::<f32>(), 1..20)) {
            let values: Vec<f32> = values.into_iter().filter(|value| value.is_finite()).collect();
            let text: String = values.iter().map(|value| format!("{{\"action\":[{}]}}\n", serde_json::to_string(value).unwrap())).collect();
            let read = read(&text, &Space::f32_box(&[-1.0], &[1.0]), 0).unwrap();
            let ColumnData::F32(read) = read else { panic!("of that type") };
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&read), bits(&values));
        }
    }
}
