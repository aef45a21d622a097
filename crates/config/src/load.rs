//! Flags over environment over file over default.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::ConfigError;
use crate::file::{entries, read};
use crate::setting::{Given, Setting, Shown};
use crate::{CoordinatorConfig, LocalConfig, NodeConfig};

/// A typed configuration: its default is the value of every key that nobody sets.
pub trait Config: Default {
    /// Every key with the field that holds its value, in the order in which they are shown. Keys have the form
    /// `section.key`.
    fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)>;
}

/// Whose configuration it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// [`CoordinatorConfig`].
    Coordinator,
    /// [`NodeConfig`].
    Node,
    /// [`LocalConfig`]: both in one process.
    Local,
}

/// Where values come from, beside the defaults.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// The environment; only variables of the form `ROLLHOUSE_SECTION__KEY` are looked at, and those with `_FILE` behind.
    pub variables: Vec<(OsString, OsString)>,
    /// Keys that flags set: the flag's name, the key, the value. Later ones go over earlier ones.
    pub flags: Vec<(String, String, String)>,
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// A line of the file.
    File {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// An environment variable of this name.
    Variable(String),
    /// A flag of this name.
    Flag(String),
}

/// A configuration and where each of its values came from.
#[derive(Debug, Clone)]
pub struct Loaded<C> {
    /// The typed values.
    pub config: C,
    /// Every key in the order of [`Config::settings`].
    pub effective: Vec<Effective>,
}

/// A key and the value it has in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effective {
    /// The key.
    pub key: &'static str,
    /// Its value.
    pub value: Shown,
    /// Where that came from.
    pub origin: Origin,
}

/// Puts a configuration together. Blocks while the file is read.
///
/// A path in the file that is not absolute is meant in the file's folder, one in a variable or flag in the working folder.
///
/// Variables that belong to another role are passed over: a machine may set those of a coordinator and of a node.
/// So are variables without two underscores after the prefix, which belong to commands. A variable whose name ends in
/// `_FILE` names a file that holds the value, as secrets are given to containers; the end of its last line is no part
/// of it.
///
/// # Errors
/// The first fault there is, in the order file, environment, flags; see [`ConfigError`].
pub fn load<C: Config>(sources: &Sources) -> Result<Loaded<C>, ConfigError> {
    let mut config = C::default();
    let mut origins = BTreeMap::new();
    let mut put = Layers { settings: config.settings(), origins: &mut origins };
    if let Some(path) = &sources.file {
        let text = read(path)?;
        for entry in entries(path, &text, |key| put.knows(key))? {
            put.set(&entry.key, &entry.value, Origin::File { path: path.clone(), line: entry.line })?;
        }
    }
    for (name, value) in &sources.variables {
        let Some((name, key)) = name.to_str().and_then(|name| Some((name, key_of(name)?))) else { continue };
        let (key, of_file) = match key.strip_suffix(OF_FILE).filter(|key| any_role_knows(key)) {
            Some(key) => (key.to_owned(), true),
            None => (key, false),
        };
        if !put.knows(&key) && any_role_knows(&key) {
            continue;
        }
        let given = if of_file { contents(name, value)? } else { value.to_string_lossy().into_owned() };
        put.set_once(&key, &Given::Word(given), name)?;
    }
    for (flag, key, value) in &sources.flags {
        put.set(key, &Given::Word(value.clone()), Origin::Flag(flag.clone()))?;
    }
    let shown = config.settings().into_iter().map(|(key, setting)| Effective {
        key,
        value: setting.show(),
        origin: origins.remove(key).unwrap_or(Origin::Default),
    });
    let effective = shown.collect();
    Ok(Loaded { config, effective })
}

/// The environment variable that sets a key.
pub fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").to_uppercase())
}

/// The key that a variable of this name sets; `None` if it is not one of ours.
fn key_of(name: &str) -> Option<String> {
    let (section, key) = name.strip_prefix(PREFIX)?.split_once("__")?;
    Some(format!("{}.{}", section.to_lowercase(), key.to_lowercase().replace("__", ".")))
}

/// What the file holds that a variable names, without the end of its last line.
fn contents(variable: &str, path: &OsStr) -> Result<String, ConfigError> {
    let text = read(Path::new(path)).map_err(|source| ConfigError::VariableFile {
        variable: variable.to_owned(),
        source: Box::new(source),
    })?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn any_role_knows(key: &str) -> bool {
    fn knows<C: Config>(key: &str) -> bool {
        C::default().settings().iter().any(|(known, _)| *known == key)
    }
    knows::<CoordinatorConfig>(key) || knows::<NodeConfig>(key) || knows::<LocalConfig>(key)
}

/// The settings of one configuration while values are put in.
struct Layers<'a> {
    settings: Vec<(&'static str, &'a mut dyn Setting)>,
    origins: &'a mut BTreeMap<&'static str, Origin>,
}

impl Layers<'_> {
    fn knows(&self, key: &str) -> bool {
        self.settings.iter().any(|(known, _)| *known == key)
    }

    /// Sets a key by a variable. Two that set the same key, one of them by a file, leave open which is meant.
    fn set_once(&mut self, key: &str, given: &Given, variable: &str) -> Result<(), ConfigError> {
        if let Some(Origin::Variable(other)) = self.origins.get(key) {
            let [first, second] =
                if other.as_str() < variable { [other, variable] } else { [variable, other] };
            return Err(ConfigError::TwoVariables { first: first.to_owned(), second: second.to_owned() });
        }
        self.set(key, given, Origin::Variable(variable.to_owned()))
    }

    fn set(&mut self, key: &str, given: &Given, origin: Origin) -> Result<(), ConfigError> {
        let Some((known, setting)) = self.settings.iter_mut().find(|(known, _)| *known == key) else {
            return Err(self.unknown(key, origin));
        };
        match setting.set(given) {
            Ok(()) => {
                if let Origin::File { path, .. } = &origin {
                    setting.given_in(path.parent().unwrap_or(Path::new("")));
                }
                self.origins.insert(known, origin);
                Ok(())
            }
            Err(detail) => Err(ConfigError::Value {
                key: known,
                value: if setting.conceals() { "(not shown)".to_owned() } else { given.quoted() },
                wanted: setting.wanted(),
                detail,
                origin,
            }),
        }
    }

    /// Near is a key that is spelt alike as a whole, or whose last part is what was given as the last part.
    fn unknown(&self, key: &str, origin: Origin) -> ConfigError {
        let key = Given::Word(key.to_owned()).quoted();
        let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
        let mut near: Vec<(usize, &'static str)> = Vec::new();
        for &(known, _) in &self.settings {
            let distance = strsim::levenshtein(&key, known);
            let moved = last(known) == last(&key);
            if distance <= NEAR_ENOUGH.max(known.len() / 3) || moved {
                near.push((if moved { distance.min(1) } else { distance }, known));
            }
        }
        near.sort_unstable();
        let nearest = near.into_iter().take(MOST_NEAREST).map(|(_, known)| known).collect();
        ConfigError::UnknownKey { key, origin, nearest }
    }
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 3] = [Self::Coordinator, Self::Node, Self::Local];

    /// The word on the command line, and the name of its example file.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::Node => "node",
            Self::Local => "local",
        }
    }

    /// Loads its configuration and keeps only what is shown of it.
    ///
    /// # Errors
    /// As [`load`].
    pub fn effective(self, sources: &Sources) -> Result<Vec<Effective>, ConfigError> {
        Ok(match self {
            Self::Coordinator => load::<CoordinatorConfig>(sources)?.effective,
            Self::Node => load::<NodeConfig>(sources)?.effective,
            Self::Local => load::<LocalConfig>(sources)?.effective,
        })
    }
}

impl Origin {
    /// The word in listings.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File { .. } => "file",
            Self::Variable(_) => "environment",
            Self::Flag(_) => "flag",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}, line {line}", path.display()),
            Self::Variable(name) => write!(f, "${name}"),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

const PREFIX: &str = "ROLLHOUSE_";

/// Behind a key: the value is what the file of that name holds. No key of ours ends so.
const OF_FILE: &str = "_file";

/// Edits between two short keys that are still taken for a slip.
const NEAR_ENOUGH: usize = 3;
/// Keys that an error names.
const MOST_NEAREST: usize = 3;
