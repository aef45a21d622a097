//! `rollhouse config`, and how services come by their settings.

use std::collections::BTreeMap;

use rollhouse_config::{Config, ConfigError, Effective, Loaded, Origin, Shown, Sources, load, variable};
use serde::Serialize;

use crate::args::{ConfigCheckArgs, ConfigShowArgs, ConfigWhat, ServiceArgs};
use crate::failure::{Failure, Status};
use crate::human::counted;
use crate::output::{Output, say};
use crate::table::{Align, Table};

pub(crate) fn run(what: &ConfigWhat, out: &mut Output) -> Result<Status, Failure> {
    match what {
        ConfigWhat::Check(args) => check(args),
        ConfigWhat::Show(args) => show(args, out),
    }
}

/// The settings of a service: its own flags, given as flag, key and value, go over `--set`.
pub(crate) fn of_service<C: Config>(
    args: &ServiceArgs,
    flags: &[(&str, &str, &Option<String>)],
) -> Result<Loaded<C>, Failure> {
    let mut sources = sources(args);
    for (flag, key, value) in flags {
        if let Some(value) = value {
            sources.flags.push(((*flag).to_owned(), (*key).to_owned(), value.clone()));
        }
    }
    load(&sources).map_err(failure)
}

/// A file alone: the environment of whoever checks it is not that of whoever will use it.
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

/// What `--json` prints of a setting; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct ShownSetting<'a> {
    key: &'a str,
    value: ShownValue<'a>,
    from: &'static str,
    /// File and line, variable or flag; null for a default.
    place: Option<String>,
    variable: String,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ShownValue<'a> {
    Text(&'a str),
    Integer(u64),
    Flag(bool),
    Table(&'a BTreeMap<String, String>),
}

impl<'a> ShownSetting<'a> {
    fn of(setting: &'a Effective) -> Self {
        let value = match &setting.value {
            Shown::Text(text) => ShownValue::Text(text),
            Shown::Integer(number) => ShownValue::Integer(*number),
            Shown::Flag(flag) => ShownValue::Flag(*flag),
            Shown::Table(table) => ShownValue::Table(table),
        };
        let place = (setting.origin != Origin::Default).then(|| setting.origin.to_string());
        let (key, from) = (setting.key, setting.origin.word());
        Self { key, value, from, place, variable: variable(setting.key) }
    }
}

fn sources(args: &ServiceArgs) -> Sources {
    Sources {
        file: args.config.clone(),
        variables: std::env::vars_os().collect(),
        flags: args.set.iter().map(|set| ("--set".to_owned(), set.key.clone(), set.value.clone())).collect(),
    }
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
