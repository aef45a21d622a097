//! The settings, which read and print the value of one key each.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rollhouse_core::is_plain;

/// Value as it was given, before its key decides its type.
#[derive(Debug, Clone, PartialEq)]
pub enum Given {
    /// Text of an environment variable or a flag, whose type the key decides.
    Word(String),
    /// String of a file.
    Text(String),
    /// Whole number of a file.
    Integer(i64),
    /// Number of a file with a fraction.
    Float(f64),
    /// Truth value of a file, `true` or `false`.
    Flag(bool),
    /// Table of a file, in the order of its keys.
    Table(Vec<(String, Given)>),
    /// List of a file, of which `[[NAME]]` is another way to write tables.
    List(Vec<Given>),
    /// Anything else that a file can hold; this is the name of its type.
    Other(&'static str),
}

/// A value as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingValue {
    /// A value that is printed as a string.
    Text(String),
    /// A value that is printed as a whole number.
    Integer(u64),
    /// A value in thousandths that is printed as a number.
    Thousandths(u64),
    /// A value that is printed as `true` or `false`.
    Flag(bool),
    /// A value that is printed as a table.
    Table(BTreeMap<String, String>),
    /// A value that is printed as a list of tables.
    Tables(Vec<BTreeMap<String, SettingValue>>),
    /// A value that is printed as a table of tables.
    Named(BTreeMap<String, BTreeMap<String, SettingValue>>),
}

/// A typed configuration, whose default has the value of every key that nobody sets.
pub trait Config: Default {
    /// Returns every key with the field that holds its value, in the order in which they are shown. Keys have the form
    /// `section.key`, but for `plugin`, a list of tables, and `env`, tables by name.
    fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)>;
}

/// Value of one key.
pub trait Setting {
    /// Returns the values that the setting takes, in words that follow "expected".
    fn wanted(&self) -> String;

    /// Reads a value into the setting.
    ///
    /// # Errors
    /// Says why the setting does not take the value, in a sentence that may be empty when [`Setting::wanted`] says it
    /// all. The setting is as it was then.
    fn set(&mut self, given: &Given) -> Result<(), String>;

    /// Returns the present value.
    fn show(&self) -> SettingValue;

    /// Returns whether the value is a secret, of which nothing may be quoted.
    fn conceals(&self) -> bool {
        false
    }

    /// Notes that the value was given in a file of that folder, from which a relative path starts. Nothing else
    /// changes.
    fn given_in(&mut self, _folder: &Path) {}
}

/// A whole number within the bounds that its type states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounded<const LEAST: u64, const MOST: u64>(pub u64);

impl<const LEAST: u64, const MOST: u64> Setting for Bounded<LEAST, MOST> {
    fn wanted(&self) -> String {
        format!("a whole number from {LEAST} to {MOST}")
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        let number = match given {
            Given::Word(word) => word.trim().parse().ok(),
            Given::Integer(number) => u64::try_from(*number).ok(),
            _ => None,
        };
        self.0 = number.filter(|n| (LEAST..=MOST).contains(n)).ok_or_else(String::new)?;
        Ok(())
    }

    fn show(&self) -> SettingValue {
        SettingValue::Integer(self.0)
    }
}

impl Setting for bool {
    fn wanted(&self) -> String {
        "true or false".to_owned()
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        *self = match given {
            Given::Flag(flag) => *flag,
            Given::Word(word) => word.trim().parse().map_err(|_| String::new())?,
            _ => return Err(String::new()),
        };
        Ok(())
    }

    fn show(&self) -> SettingValue {
        SettingValue::Flag(*self)
    }
}

impl Setting for String {
    fn wanted(&self) -> String {
        format!("a string of at most {MAX_TEXT_BYTES} bytes")
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        text(given)?.clone_into(self);
        Ok(())
    }

    fn show(&self) -> SettingValue {
        SettingValue::Text(self.clone())
    }
}

/// Name of a folder or of something that a URL names, as `s3://BUCKET/PREFIX` does; `None` if it is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place(pub Option<String>);

impl Setting for Place {
    fn wanted(&self) -> String {
        "a folder or s3://BUCKET/PREFIX".to_owned()
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        let place = text(given)?;
        self.0 = (!place.is_empty()).then(|| place.to_owned());
        Ok(())
    }

    fn show(&self) -> SettingValue {
        SettingValue::Text(self.0.clone().unwrap_or_default())
    }

    fn given_in(&mut self, folder: &Path) {
        if let Some(place) = self.0.as_mut().filter(|place| !place.contains("://")) {
            *place = folder.join(&*place).display().to_string();
        }
    }
}

impl Setting for PathBuf {
    fn wanted(&self) -> String {
        "a path".to_owned()
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        match text(given)? {
            "" => Err("the path is empty".to_owned()),
            path => {
                *self = path.into();
                Ok(())
            }
        }
    }

    fn show(&self) -> SettingValue {
        SettingValue::Text(self.display().to_string())
    }

    fn given_in(&mut self, folder: &Path) {
        // `./data` there is `folder/data`.
        *self = folder.join(self.strip_prefix(".").unwrap_or(self));
    }
}

impl Setting for SocketAddr {
    fn wanted(&self) -> String {
        "an IP address and a port, as in 0.0.0.0:7600 or [::]:7600".to_owned()
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        *self = text(given)?.parse().map_err(|_| String::new())?;
        Ok(())
    }

    fn show(&self) -> SettingValue {
        SettingValue::Text(self.to_string())
    }
}

/// Reads a value or nothing, for which an empty string stands.
impl<T: Setting + FromEmpty> Setting for Option<T> {
    fn wanted(&self) -> String {
        format!("{}, or an empty string for none", T::empty().wanted())
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        if let Given::Text(word) | Given::Word(word) = given
            && word.is_empty()
        {
            *self = None;
            return Ok(());
        }
        let mut value = T::empty();
        value.set(given)?;
        *self = Some(value);
        Ok(())
    }

    fn show(&self) -> SettingValue {
        self.as_ref().map_or_else(|| SettingValue::Text(String::new()), Setting::show)
    }

    fn conceals(&self) -> bool {
        T::empty().conceals()
    }

    fn given_in(&mut self, folder: &Path) {
        if let Some(value) = self {
            value.given_in(folder);
        }
    }
}

/// Type with a value into which another can be read.
pub trait FromEmpty {
    /// Returns that value, which is never seen.
    fn empty() -> Self;
}

impl FromEmpty for String {
    fn empty() -> Self {
        Self::new()
    }
}

impl FromEmpty for Concealed {
    fn empty() -> Self {
        Self(String::new())
    }
}

impl FromEmpty for PathBuf {
    fn empty() -> Self {
        Self::new()
    }
}

impl FromEmpty for SocketAddr {
    fn empty() -> Self {
        Self::from(([0, 0, 0, 0], 0))
    }
}

/// A string that carries a secret: it is neither shown nor quoted.
#[derive(Clone, PartialEq, Eq)]
pub struct Concealed(pub String);

impl std::fmt::Debug for Concealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Concealed(..)")
    }
}

impl Setting for Concealed {
    fn wanted(&self) -> String {
        self.0.wanted()
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        self.0.set(given)
    }

    fn show(&self) -> SettingValue {
        SettingValue::Text("(not shown)".to_owned())
    }

    fn conceals(&self) -> bool {
        true
    }
}

/// A host, by name or address, and a port. The process that connects looks the name up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort(pub String);

impl Setting for HostPort {
    fn wanted(&self) -> String {
        "a host and a port, as in rollhouse.example:7600".to_owned()
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        let text = text(given)?;
        let (host, port) = text.rsplit_once(':').ok_or_else(|| "there is no port".to_owned())?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() || host.chars().any(|c| c.is_whitespace() || "/@?#".contains(c)) {
            return Err("the host is empty or has characters that hosts do not have".to_owned());
        }
        if !port.parse::<u16>().is_ok_and(|port| port > 0) {
            return Err(format!("`{port}` is not a port from 1 to 65535"));
        }
        text.clone_into(&mut self.0);
        Ok(())
    }

    fn show(&self) -> SettingValue {
        SettingValue::Text(self.0.clone())
    }
}

impl FromEmpty for HostPort {
    fn empty() -> Self {
        Self(String::new())
    }
}

/// Labels with their values, in a variable or flag written as `zone=a,gpu=none`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Labels(pub BTreeMap<String, String>);

impl Setting for Labels {
    fn wanted(&self) -> String {
        format!(
            "at most {MAX_LABELS} labels with strings of 1 to {MAX_NAME_BYTES} bytes as values, as in \
             {{ zone = \"a\" }} or zone=a,gpu=none"
        )
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        let mut labels = BTreeMap::new();
        let mut put = |name: &str, value: &str| {
            let (name, value) = (name.trim(), value.trim());
            for part in [name, value] {
                if part.is_empty() || part.len() > MAX_NAME_BYTES {
                    return Err(format!("`{name}={value}` has an empty part or one that is too long"));
                }
            }
            match labels.insert(name.to_owned(), value.to_owned()) {
                Some(_) => Err(format!("`{name}` is given twice")),
                None => Ok(()),
            }
        };
        match given {
            Given::Word(word) => {
                for label in word.split(',').filter(|label| !label.trim().is_empty()) {
                    let (name, value) = label.split_once('=').ok_or_else(|| format!("`{label}` has no ="))?;
                    put(name, value)?;
                }
            }
            Given::Table(table) => {
                for (name, value) in table {
                    let Given::Text(value) = value else {
                        return Err(format!("the value of `{name}` is not a string"));
                    };
                    put(name, value)?;
                }
            }
            _ => return Err(String::new()),
        }
        if labels.len() > MAX_LABELS {
            return Err(format!("there are {}", labels.len()));
        }
        self.0 = labels;
        Ok(())
    }

    fn show(&self) -> SettingValue {
        SettingValue::Table(self.0.clone())
    }
}

/// Numbers of users, as text written with commas between them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Uids(pub Vec<u32>);

impl Setting for Uids {
    fn wanted(&self) -> String {
        format!("at most {MAX_UIDS} user numbers (uids) separated by commas, as in \"1000,1001\"")
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        let mut uids = Vec::new();
        for part in text(given)?.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            uids.push(part.parse().map_err(|_| format!("`{part}` is not a user number (uid)"))?);
        }
        if uids.len() > MAX_UIDS {
            return Err(format!("there are {}", uids.len()));
        }
        self.0 = uids;
        Ok(())
    }

    fn show(&self) -> SettingValue {
        let numbers: Vec<String> = self.0.iter().map(u32::to_string).collect();
        SettingValue::Text(numbers.join(","))
    }
}

/// Returns the string that was given.
pub(crate) fn text(given: &Given) -> Result<&str, String> {
    match given {
        Given::Word(text) | Given::Text(text) if text.len() <= MAX_TEXT_BYTES => Ok(text.trim()),
        _ => Err(String::new()),
    }
}

impl Given {
    /// Returns the value for a message, cut to what fits a line.
    pub fn quoted(&self) -> String {
        let mut text = match self {
            Self::Word(text) | Self::Text(text) => text.clone(),
            Self::Integer(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Table(_) => "a table".to_owned(),
            Self::List(_) => "a list".to_owned(),
            Self::Other(what) => (*what).to_owned(),
        };
        if text.len() > MOST_QUOTED {
            text.truncate(text.floor_char_boundary(MOST_QUOTED));
            text.push_str("...");
        }
        text.replace(|c| !is_plain(c), "?")
    }
}

impl SettingValue {
    /// Returns the value as it stands in a file.
    pub fn toml(&self) -> String {
        match self {
            Self::Text(text) => quoted(text),
            Self::Integer(number) => number.to_string(),
            Self::Thousandths(number) => (*number as f64 / 1000.0).to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Table(table) if table.is_empty() => "{}".to_owned(),
            Self::Table(table) => {
                let entries =
                    table.iter().map(|(name, value)| format!("{} = {}", quoted(name), quoted(value)));
                format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
            }
            Self::Tables(tables) => {
                format!("[{}]", tables.iter().map(inline_table).collect::<Vec<_>>().join(", "))
            }
            Self::Named(tables) if tables.is_empty() => "{}".to_owned(),
            Self::Named(tables) => {
                let entry =
                    |(name, table): (&String, _)| format!("{} = {}", quoted(name), inline_table(table));
                format!("{{ {} }}", tables.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Writes a table of TOML in one line.
fn inline_table(table: &BTreeMap<String, SettingValue>) -> String {
    let entries = table.iter().map(|(name, value)| format!("{name} = {}", value.toml()));
    format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
}

/// Writes a basic string of TOML.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if is_plain(c) => out.push(c),
            c => {
                // Writing to a string cannot fail.
                let _written = write!(out, "\\U{:08X}", c as u32);
            }
        }
    }
    out.push('"');
    out
}

/// Maximum number of bytes in any string.
pub const MAX_TEXT_BYTES: usize = 4096;
/// Maximum number of bytes in a label's name and in its value; the protocol's own bound.
pub const MAX_NAME_BYTES: usize = 128;
/// Maximum number of users that are named.
pub const MAX_UIDS: usize = 64;
/// Maximum number of labels of a node; the protocol's own bound.
pub const MAX_LABELS: usize = 32;

/// Maximum number of bytes of a value that a message quotes.
const MOST_QUOTED: usize = 60;
