//! Loads a configuration: flags go over the environment, the environment over the file, the file over defaults.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::coordinator::CoordinatorConfig;
use crate::error::ConfigError;
use crate::file::{entries, read};
use crate::local::LocalConfig;
use crate::node::NodeConfig;
use crate::origin::Origin;
use crate::setting::{Config, Given, Setting, SettingValue};

/// Role of the process that is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// A coordinator, with a [`CoordinatorConfig`].
    Coordinator,
    /// A node, with a [`NodeConfig`].
    Node,
    /// Both in one process, with a [`LocalConfig`].
    Local,
}

/// Sources of values other than the defaults.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Path of the file, if there is one.
    pub file: Option<PathBuf>,
    /// Variables of the environment. Only those of the form `ROLLHOUSE_SECTION__KEY` and `ROLLHOUSE_PLUGIN`, with or
    /// without `_FILE` behind, are used.
    pub variables: Vec<(OsString, OsString)>,
    /// Keys that flags set, as the flag's name, the key and the value. Later ones go over earlier ones.
    pub flags: Vec<(String, String, String)>,
}

/// A configuration with the source of each of its values.
#[derive(Debug, Clone)]
pub struct Loaded<C> {
    /// Typed values.
    pub config: C,
    /// All keys in the order of [`Config::settings`].
    pub effective: Vec<Effective>,
}

/// Key with its final value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effective {
    /// Name of the key.
    pub key: &'static str,
    /// Value of the key.
    pub value: SettingValue,
    /// Source of the value.
    pub origin: Origin,
}

/// Loads a configuration from all sources. Blocks while the file is read.
///
/// A relative path in the file starts from the file's folder, one in a variable or flag from the working folder.
///
/// Variables of another role are ignored, because a machine may set those of a coordinator and of a node. Variables
/// without two underscores after the prefix are ignored too, unless a key without a section has that name; they belong to
/// commands. A variable whose name ends in
/// `_FILE` names a file that holds the value, as secrets are given to containers; the end of its last line is no part
/// of it.
///
/// # Errors
/// Returns the first fault, in the order file, environment, flags; see [`ConfigError`].
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

/// Returns the environment variable that sets a key.
pub fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").to_uppercase())
}

/// Returns the key that a variable of this name sets; `None` if the name does not have the form of one.
fn key_of(name: &str) -> Option<String> {
    let name = name.strip_prefix(PREFIX)?;
    if let Some((section, key)) = name.split_once("__") {
        return Some(format!("{}.{}", section.to_lowercase(), key.to_lowercase().replace("__", ".")));
    }
    // A key without a section. Other names of this form are variables of commands.
    let key = name.to_lowercase();
    any_role_knows(key.strip_suffix(OF_FILE).unwrap_or(&key)).then_some(key)
}

/// Returns the contents of the file that a variable names, without the end of its last line.
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

/// Settings of one configuration while values are put in.
struct Layers<'a> {
    settings: Vec<(&'static str, &'a mut dyn Setting)>,
    origins: &'a mut BTreeMap<&'static str, Origin>,
}

impl Layers<'_> {
    fn knows(&self, key: &str) -> bool {
        self.settings.iter().any(|(known, _)| *known == key)
    }

    /// Sets a key by a variable. It is an error if two variables set the same key, one of them by a file, because
    /// nothing says which is meant.
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

    /// Makes the error of an unknown key with the nearest keys. A key is near if it is spelt alike as a whole, or if
    /// its last part equals the last part of the unknown one.
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
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Coordinator, Self::Node, Self::Local];

    /// Returns the word on the command line, which is also the name of the example file.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::Node => "node",
            Self::Local => "local",
        }
    }

    /// Loads the role's configuration and keeps only what is shown of it.
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

const PREFIX: &str = "ROLLHOUSE_";

/// Ending of a key whose value is what the file of that name holds. No key of ours ends so.
const OF_FILE: &str = "_file";

/// Maximum number of edits between two short keys that are still taken for a slip.
const NEAR_ENOUGH: usize = 3;
/// Maximum number of keys that an error names.
const MOST_NEAREST: usize = 3;
