//! Reads a TOML file as a flat list of keys.

use std::io;
use std::path::Path;

use rollhouse_core::read_regular_text;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{ConfigError, MAX_FILE_BYTES};
use crate::setting::Given;

/// Key of a file with its value.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Parts of the key, joined by dots.
    pub(crate) key: String,
    pub(crate) value: Given,
    /// Number of the line, from 1.
    pub(crate) line: usize,
}

/// Reads a whole file of at most [`MAX_FILE_BYTES`]; may block.
pub(crate) fn read(path: &Path) -> Result<String, ConfigError> {
    read_regular_text(path, MAX_FILE_BYTES).map_err(|source| match source.kind() {
        io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidData => {
            ConfigError::NoText { path: path.to_owned() }
        }
        _ => ConfigError::Read { path: path.to_owned(), source },
    })
}

/// Returns the keys of a file's text. A table whose name is a known key is that key's value; the keys of every other
/// table are listed one by one, so that each unknown key is named in full.
pub(crate) fn entries(
    path: &Path,
    text: &str,
    is_known: impl Fn(&str) -> bool,
) -> Result<Vec<Entry>, ConfigError> {
    let line_at = |offset: usize| 1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count();
    let table = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
        path: path.to_owned(),
        line: line_at(error.span().map_or(0, |span| span.start)),
        message: error.message().lines().collect::<Vec<_>>().join(", "),
    })?;
    let mut found = Vec::new();
    // The parser bounds how deep tables are nested.
    let mut waiting = vec![(String::new(), table.into_inner())];
    while let Some((prefix, table)) = waiting.pop() {
        for (name, value) in table {
            let line = line_at(name.span().start);
            let name = name.into_inner();
            let key = if prefix.is_empty() { name.into_owned() } else { format!("{prefix}.{name}") };
            match value.into_inner() {
                DeValue::Table(inner) if !is_known(&key) && !inner.is_empty() => waiting.push((key, inner)),
                value => found.push(Entry { key, value: given(value), line }),
            }
        }
    }
    found.sort_by_key(|entry| entry.line);
    Ok(found)
}

/// Reads a value as it would stand in a file.
///
/// # Errors
/// Says that it is none that a file can hold.
pub(crate) fn inline(word: &str) -> Result<Given, String> {
    let text = format!("value = {word}");
    let parsed = DeTable::parse(&text).ok().filter(|_| !word.contains(['\n', '\r']));
    let value = parsed.and_then(|table| table.into_inner().into_iter().next());
    value.map(|(_, value)| given(value.into_inner())).ok_or_else(|| format!("`{word}` is no table of a file"))
}

fn given(value: DeValue<'_>) -> Given {
    match value {
        DeValue::String(text) => Given::Text(text.into_owned()),
        DeValue::Boolean(flag) => Given::Flag(flag),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(Given::Other("a number that is too large"), Given::Integer),
        DeValue::Float(number) => {
            number.as_str().parse().map_or(Given::Other("a number that is too large"), Given::Float)
        }
        DeValue::Table(table) => {
            let entry = |(name, value): (Spanned<_>, Spanned<_>)| -> (String, Given) {
                let name: std::borrow::Cow<'_, str> = name.into_inner();
                (name.into_owned(), given(value.into_inner()))
            };
            Given::Table(table.into_iter().map(entry).collect())
        }
        DeValue::Array(values) => {
            Given::List(values.into_iter().map(|value| given(value.into_inner())).collect())
        }
        DeValue::Datetime(_) => Given::Other("a date"),
    }
}
