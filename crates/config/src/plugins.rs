//! The setting of plug-ins.

use std::collections::BTreeMap;
use std::path::Path;

use rollhouse_core::Plugin;
use rollhouse_core::limits::MAX_PLUGINS;

use crate::setting::{Given, Setting, SettingValue, text};

/// Plug-ins that a node loads when it starts, in a file as tables `[[plugin]]`; in a variable or flag as paths with
/// commas between them, where `trusted:` stands before those that are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plugins(pub Vec<Plugin>);

impl Setting for Plugins {
    fn wanted(&self) -> String {
        format!(
            "at most {MAX_PLUGINS} tables with a path and perhaps trusted, as in [{{ path = \"maze.so\", trusted = \
             true }}] or trusted:maze.so,other.so"
        )
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        let plugins: Vec<Plugin> = match given {
            Given::Word(word) => {
                let paths = word.split(',').map(str::trim).filter(|path| !path.is_empty());
                let plugins = paths.map(|path| match path.strip_prefix("trusted:") {
                    Some(path) => plugin(path, true),
                    None => plugin(path, false),
                });
                plugins.collect::<Result<_, _>>()?
            }
            Given::List(tables) => tables.iter().map(of_table).collect::<Result<_, _>>()?,
            _ => return Err(String::new()),
        };
        if plugins.len() > MAX_PLUGINS {
            return Err(format!("there are {}", plugins.len()));
        }
        self.0 = plugins;
        Ok(())
    }

    fn show(&self) -> SettingValue {
        let table = |plugin: &Plugin| {
            let path = SettingValue::Text(plugin.path.display().to_string());
            let entries = [("path", path), ("trusted", SettingValue::Flag(plugin.trusted))];
            BTreeMap::from(entries.map(|(name, value)| (name.to_owned(), value)))
        };
        SettingValue::Tables(self.0.iter().map(table).collect())
    }

    fn given_in(&mut self, folder: &Path) {
        for plugin in &mut self.0 {
            plugin.path.given_in(folder);
        }
    }
}

fn of_table(given: &Given) -> Result<Plugin, String> {
    let Given::Table(entries) = given else { return Err("it has something else than tables".to_owned()) };
    let (mut path, mut trusted) = (None, false);
    for (name, value) in entries {
        match (name.as_str(), value) {
            ("path", Given::Text(_)) => path = Some(text(value)?),
            ("trusted", Given::Flag(flag)) => trusted = *flag,
            ("path", _) => return Err("`path` is not a string".to_owned()),
            ("trusted", _) => return Err("`trusted` is neither true nor false".to_owned()),
            (other, _) => return Err(format!("a plug-in has no `{other}`")),
        }
    }
    plugin(path.ok_or("a table has no `path`")?, trusted)
}

fn plugin(path: &str, trusted: bool) -> Result<Plugin, String> {
    match path.trim() {
        "" => Err("a path is empty".to_owned()),
        path => Ok(Plugin { path: path.into(), trusted }),
    }
}
