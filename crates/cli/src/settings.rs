//! `rollhouse config`, and the settings of services, also when they are read again.

use std::collections::BTreeMap;

use rollhouse_config::{
    Config, ConfigError, CoordinatorConfig, Effective, Loaded, LocalConfig, Log, NodeConfig, Origin,
    SettingValue, Sources, load, variable,
};
use serde::Serialize;
use tracing::{error, info, warn};

use crate::args::{ConfigCheckArgs, ConfigShowArgs, ConfigWhat, ServiceArgs};
use crate::failure::{Failure, Status};
use crate::human::counted;
use crate::logging::Logging;
use crate::output::{Output, say};
use crate::table::{Align, Table};

pub(crate) fn run(what: &ConfigWhat, out: &mut Output) -> Result<Status, Failure> {
    match what {
        ConfigWhat::Check(args) => check(args),
        ConfigWhat::Show(args) => show(args, out),
    }
}

/// Reads the settings of a service: its own flags, given as flag, key and value, take precedence over `--set`.
pub(crate) fn of_service<C: Config>(args: &ServiceArgs, flags: &[Flag<'_>]) -> Result<Loaded<C>, Failure> {
    load(&with_flags(sources(args), flags)).map_err(failure)
}

/// Reads the settings as [`of_service`] does, so that they can be read again while the service runs.
pub(crate) fn live<C: Service>(args: &ServiceArgs, flags: &[Flag<'_>]) -> Result<Live<C>, Failure> {
    let sources = with_flags(sources(args), flags);
    let Loaded { config, effective } = load(&sources).map_err(failure)?;
    Ok(Live { config, effective, sources })
}

/// A flag of a command, the key that it sets, and its value if it was given.
pub(crate) type Flag<'a> = (&'a str, &'a str, &'a Option<String>);

/// The settings of a running service.
#[derive(Debug)]
pub(crate) struct Live<C> {
    /// The settings at its start, except for those that change while it runs.
    pub(crate) config: C,
    /// The settings in force, key by key.
    effective: Vec<Effective>,
    sources: Sources,
}

/// The configuration of a service that may run for long.
pub(crate) trait Service: Config {
    /// Returns the settings that take effect as soon as they are read again.
    fn log(&mut self) -> &mut Log;
}

impl Service for CoordinatorConfig {
    fn log(&mut self) -> &mut Log {
        &mut self.log
    }
}

impl Service for NodeConfig {
    fn log(&mut self) -> &mut Log {
        &mut self.log
    }
}

impl Service for LocalConfig {
    fn log(&mut self) -> &mut Log {
        &mut self.log
    }
}

impl<C: Service> Live<C> {
    /// Reads all sources again. Applies settings that can change while the service runs, and logs the others, key by
    /// key. Blocks for the files.
    pub(crate) fn reread(&mut self, logging: &Logging) {
        let mut loaded = match load::<C>(&self.sources) {
            Ok(loaded) => loaded,
            Err(error) => {
                let why = Failure::of(Status::Usage, &error);
                error!("the settings cannot be read again, those before stay in force: {}", why.message());
                return;
            }
        };
        let (mut counts, mut waits) = (Vec::new(), Vec::new());
        for (running, read) in self.effective.iter_mut().zip(loaded.effective) {
            if running.value == read.value {
                continue;
            }
            let (key, value) = (read.key, read.value.toml());
            let what = format!("{key} is {value} by {}, it was {}", read.origin, running.value.toml());
            if key.starts_with(RELOADED) {
                counts.push(what);
                *running = read;
            } else {
                waits.push(what);
            }
        }
        std::mem::swap(self.config.log(), loaded.config.log());
        logging.change(self.config.log());
        if counts.is_empty() && waits.is_empty() {
            info!("settings read again: none has changed");
        }
        counts.iter().for_each(|what| info!("settings read again: {what}"));
        waits.iter().for_each(|what| warn!("settings read again: {what}; that needs a restart"));
    }
}

/// The prefix of the keys that may change while a service runs.
const RELOADED: &str = "log.";

fn with_flags(mut sources: Sources, flags: &[Flag<'_>]) -> Sources {
    for (flag, key, value) in flags {
        if let Some(value) = value {
            sources.flags.push(((*flag).to_owned(), (*key).to_owned(), value.clone()));
        }
    }
    sources
}

/// Checks a file alone: the environment of the person who checks it is not that of the service.
fn check(args: &ConfigCheckArgs) -> Result<Status, Failure> {
    let sources = Sources { file: Some(args.file.clone()), ..Sources::default() };
    let effective = args.role.effective(&sources).map_err(failure)?;
    let set = effective.iter().filter(|setting| setting.origin != Origin::Default).count();
    let (file, role) = (args.file.display(), args.role.word());
    say(&format!(
        "{file} is right for a {role}: it sets {} of {}",
        set,
        counted(effective.len() as u64, "key")
    ));
    Ok(Status::Done)
}

fn show(args: &ConfigShowArgs, out: &mut Output) -> Result<Status, Failure> {
    let effective = args.role.effective(&sources(&args.service)).map_err(failure)?;
    if args.json {
        for setting in &effective {
            out.json(&ShownSetting::of(setting))?;
        }
        return Ok(Status::Done);
    }
    let mut table = Table::new(&[("KEY", Align::Left), ("VALUE", Align::Left), ("FROM", Align::Left)]);
    for setting in &effective {
        table.row(vec![setting.key.to_owned(), setting.value.toml(), setting.origin.to_string()]);
    }
    table.write(out)?;
    Ok(Status::Done)
}

/// The output of `--json` for a setting; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct ShownSetting<'a> {
    key: &'a str,
    value: ShownValue<'a>,
    from: &'static str,
    /// The file and line, variable or flag that set it; null for a default.
    place: Option<String>,
    variable: String,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ShownValue<'a> {
    Text(&'a str),
    Integer(u64),
    Number(f64),
    Flag(bool),
    Table(&'a BTreeMap<String, String>),
    Tables(Vec<BTreeMap<&'a str, ShownValue<'a>>>),
    Named(BTreeMap<&'a str, BTreeMap<&'a str, ShownValue<'a>>>),
}

impl<'a> ShownSetting<'a> {
    fn of(setting: &'a Effective) -> Self {
        let place = (setting.origin != Origin::Default).then(|| setting.origin.to_string());
        let (key, from) = (setting.key, setting.origin.word());
        Self { key, value: ShownValue::of(&setting.value), from, place, variable: variable(setting.key) }
    }
}

impl<'a> ShownValue<'a> {
    fn table(table: &'a BTreeMap<String, SettingValue>) -> BTreeMap<&'a str, Self> {
        table.iter().map(|(name, value)| (name.as_str(), Self::of(value))).collect()
    }

    fn of(value: &'a SettingValue) -> Self {
        match value {
            SettingValue::Text(text) => Self::Text(text),
            SettingValue::Integer(number) => Self::Integer(*number),
            SettingValue::Thousandths(number) => Self::Number(*number as f64 / 1000.0),
            SettingValue::Flag(flag) => Self::Flag(*flag),
            SettingValue::Table(table) => Self::Table(table),
            SettingValue::Tables(tables) => Self::Tables(tables.iter().map(Self::table).collect()),
            SettingValue::Named(tables) => {
                let named = tables.iter().map(|(name, table)| (name.as_str(), Self::table(table)));
                Self::Named(named.collect())
            }
        }
    }
}

fn sources(args: &ServiceArgs) -> Sources {
    let set = args.set.iter().map(|set| ("--set".to_owned(), set.key.clone(), set.value.clone()));
    let (file, variables) = (args.config.clone(), std::env::vars_os().collect());
    let sources = Sources { file, variables, flags: set.collect() };
    let of_log = [("--log", "log.level", &args.log), ("--log-format", "log.format", &args.log_format)];
    with_flags(sources, &of_log)
}

fn failure(error: ConfigError) -> Failure {
    let failure = Failure::of(Status::Usage, &error);
    match error {
        ConfigError::UnknownKey { .. } | ConfigError::Value { .. } => {
            failure.hint("`rollhouse config show --for ROLE` lists every key with its value")
        }
        ConfigError::Read { .. }
        | ConfigError::NoText { .. }
        | ConfigError::VariableFile { .. }
        | ConfigError::TwoVariables { .. }
        | ConfigError::Syntax { .. } => failure,
    }
}
