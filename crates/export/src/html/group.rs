//! Groups of steps that stand together in a page.

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use rollhouse_core::{ColumnSpec, DType, EnvSpec, Space};
use rollhouse_replay::PlayedStep;
use serde::Serialize;

use crate::film::Change;

/// The values that a page shows of each step.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) shown: Vec<Column>,
    /// The source of each column's values.
    from: Vec<From>,
}

/// A column of values as the page's script needs it; the script knows its field names.
#[derive(Debug, Serialize)]
pub(super) struct Column {
    /// The heading under which it stands.
    of: &'static str,
    name: String,
    /// Bytes of each value: 4 for a single, 8 for a double.
    bytes: u8,
    /// Names of its values, the first of them `start`.
    #[serde(skip_serializing_if = "Option::is_none")]
    names: Option<Vec<String>>,
    start: i64,
    /// The first step that has a value.
    from: u64,
}

#[derive(Debug, Clone, Copy)]
enum From {
    Reward,
    Return,
    Action(usize),
    Obs(usize, usize),
}

/// Number of elements of observations, and of actions, that a page shows.
const MAX_ELEMENTS: usize = 256;

impl Columns {
    /// Returns the columns for episodes of an env; images among the observations are left out.
    pub(super) fn of(spec: &EnvSpec) -> Self {
        let mut columns = Self { shown: Vec::new(), from: Vec::new() };
        let bytes = |column: &ColumnSpec| if column.dtype == DType::F32 { 4 } else { 8 };
        let step = |name: &str, from| Column {
            of: "step",
            name: name.to_owned(),
            bytes: 8,
            names: None,
            start: 0,
            from,
        };
        columns.add(step("reward", 1), From::Reward);
        columns.add(step("return", 0), From::Return);
        let action = spec.action_column();
        for index in 0..action.elements().min(MAX_ELEMENTS) {
            let (name, names, start) = match &spec.action_space {
                Space::Discrete(space) => ("action".to_owned(), Some(spec.action_names.clone()), space.start),
                Space::Box(_) => (action.element_name(index), None, 0),
            };
            let names = names.filter(|names| !names.is_empty());
            let column = Column { of: "action", name, bytes: bytes(&action), names, start, from: 1 };
            columns.add(column, From::Action(index));
        }
        let obs = spec.obs_columns();
        let elements = obs.iter().enumerate().filter(|(_, column)| column.shape.len() < 2);
        let elements =
            elements.flat_map(|(at, column)| (0..column.elements()).map(move |index| (at, column, index)));
        for (at, column, index) in elements.take(MAX_ELEMENTS) {
            let path = if column.names.is_empty() || column.path.is_empty() {
                String::new()
            } else {
                format!("{}.", column.path)
            };
            let name = format!("{path}{}", column.element_name(index));
            let shown =
                Column { of: "observation", name, bytes: bytes(column), names: None, start: 0, from: 0 };
            columns.add(shown, From::Obs(at, index));
        }
        columns
    }

    fn add(&mut self, column: Column, from: From) {
        self.shown.push(column);
        self.from.push(from);
    }
}

/// Steps that are unpacked together.
#[derive(Debug)]
pub(super) struct Group {
    steps: u64,
    /// The bytes of each column's values.
    values: Vec<Vec<u8>>,
    pictures: ZlibEncoder<Vec<u8>>,
    /// Bytes of pictures before they are packed.
    picture_bytes: usize,
}

impl Group {
    pub(super) fn new(columns: &Columns) -> Self {
        let values = vec![Vec::new(); columns.shown.len()];
        Self { steps: 0, values, pictures: ZlibEncoder::new(Vec::new(), LEVEL), picture_bytes: 0 }
    }

    /// Returns the number of its steps.
    pub(super) const fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns whether the next step belongs to another group.
    pub(super) const fn is_full(&self) -> bool {
        self.steps >= GROUP_STEPS || self.picture_bytes >= GROUP_BYTES
    }

    pub(super) fn add_values(&mut self, columns: &Columns, step: &PlayedStep) {
        self.steps += 1;
        for ((column, from), values) in columns.shown.iter().zip(&columns.from).zip(&mut self.values) {
            let value = match *from {
                From::Reward => step.reward.unwrap_or(0.0),
                From::Return => step.total_reward,
                From::Action(index) => step.action.as_ref().map_or(0.0, |action| action.number(index)),
                From::Obs(at, index) => step.obs.get(at).map_or(f64::NAN, |obs| obs.number(index)),
            };
            match column.bytes {
                4 => values.extend((value as f32).to_le_bytes()),
                _ => values.extend(value.to_le_bytes()),
            }
        }
    }

    pub(super) fn add_picture(&mut self, change: Option<Change>) -> io::Result<()> {
        let change = change.unwrap_or(Change { left: 0, top: 0, width: 0, height: 0, pixels: Vec::new() });
        let Change { left, top, width, height, pixels } = change;
        for side in [left, top, width, height] {
            self.pictures.write_all(&(side as u16).to_le_bytes())?;
        }
        self.picture_bytes += pixels.len();
        self.pictures.write_all(&pixels)
    }

    /// Writes the group under that number, and begins an empty one.
    pub(super) fn write(&mut self, number: usize, has_pictures: bool, out: &mut dyn Write) -> io::Result<()> {
        let mut values = ZlibEncoder::new(Vec::new(), LEVEL);
        for column in &mut self.values {
            values.write_all(column)?;
            column.clear();
        }
        write_packed('v', number, &values.finish()?, out)?;
        if has_pictures {
            write_packed('p', number, &self.pictures.reset(Vec::new())?, out)?;
        }
        (self.steps, self.picture_bytes) = (0, 0);
        Ok(())
    }
}

fn write_packed(kind: char, number: usize, packed: &[u8], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<script type=\"text/plain\" id=\"{kind}{number}\">{}</script>", STANDARD.encode(packed))
}

/// Number of steps of a group: a step back costs unpacking one group.
const GROUP_STEPS: u64 = 64;

/// Bytes of pictures after which a group ends: large pictures of which much changes.
const GROUP_BYTES: usize = 8 << 20;

const LEVEL: Compression = Compression::new(9);
