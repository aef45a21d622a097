//! The settings of a node's budget: its CPU and memory for lanes, and the terms of envs there.

use std::collections::BTreeMap;

use rollhouse_core::limits::{MAX_ENV_ID_BYTES, MAX_LANES, MAX_WEIGHED_ENVS};
use rollhouse_core::{EnvKind, EnvTerms, Weight};

use crate::file::inline;
use crate::quantity::{Bytes, Cores};
use crate::setting::{Given, Setting, SettingValue};

/// Settings of what a node has for lanes, and of what they weigh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetSettings {
    /// Number of cores for lanes. 0, the default, is as many as the process may use. Lanes are spread by it and may take
    /// more: too many cost time, not lanes.
    pub cpu: Cores,
    /// Number of bytes of memory for lanes. 0, the default, is nine tenths of the process's cgroup or, without a limit
    /// there, of the machine; then only lanes whose memory is stated are refused for want of it. If it is set, all are that
    /// do not fit.
    pub memory: Bytes,
    /// Terms of envs and of kinds of envs. Default none: what a lane weighs is measured, or estimated until it was.
    pub envs: Envs,
}

/// Terms of envs by id or kind, in a file as tables `[env."ID"]`; in a variable or flag as the inline table of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Envs(pub BTreeMap<String, EnvTerms>);

impl Default for BudgetSettings {
    fn default() -> Self {
        Self { cpu: Cores(0), memory: Bytes(0), envs: Envs::default() }
    }
}

impl BudgetSettings {
    /// Returns what the node has for lanes where it may use so many cores and so many bytes.
    pub const fn total(&self, cores: usize, memory: u64) -> Weight {
        let cpu_milli = if self.cpu.0 > 0 { self.cpu.0 } else { cores as u64 * 1000 };
        let memory = if self.memory.0 > 0 { self.memory.0 } else { memory / 10 * 9 };
        Weight { cpu_milli, memory }
    }

    pub(crate) fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)> {
        vec![("node.cpu", &mut self.cpu), ("node.memory", &mut self.memory), ("env", &mut self.envs)]
    }
}

impl Setting for Envs {
    fn wanted(&self) -> String {
        format!(
            "tables of at most {MAX_WEIGHED_ENVS} envs or kinds of envs with cpu, memory, max_lanes or max_processes, as in \
             {{ \"gymnasium:*\" = {{ cpu = 0.5, memory = \"300 MiB\", max_lanes = 64 }} }}"
        )
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        let parsed = match given {
            Given::Word(word) if word.trim().is_empty() => Given::Table(Vec::new()),
            Given::Word(word) => inline(word)?,
            other => other.clone(),
        };
        let Given::Table(tables) = parsed else { return Err(String::new()) };
        if tables.len() > MAX_WEIGHED_ENVS {
            return Err(format!("there are {}", tables.len()));
        }
        let terms = |(env, given): &(String, Given)| Ok((env.clone(), terms_of(env, given)?));
        self.0 = tables.iter().map(terms).collect::<Result<_, String>>()?;
        Ok(())
    }

    fn show(&self) -> SettingValue {
        let table = |terms: &EnvTerms| {
            let numbers = [("max_lanes", terms.max_lanes), ("max_processes", terms.max_processes)];
            let numbers =
                numbers.into_iter().filter_map(|(name, of)| Some((name, SettingValue::Integer(of?.into()))));
            let cpu = terms.cpu_milli.map(|milli| ("cpu", Cores(milli).show()));
            let memory = terms.memory.map(|bytes| ("memory", Bytes(bytes).show()));
            cpu.into_iter().chain(memory).chain(numbers).map(|(name, of)| (name.to_owned(), of)).collect()
        };
        SettingValue::Named(self.0.iter().map(|(env, terms)| (env.clone(), table(terms))).collect())
    }
}

fn terms_of(env: &str, given: &Given) -> Result<EnvTerms, String> {
    let Given::Table(entries) = given else { return Err(format!("`{env}` is not a table")) };
    let kind = env.ends_with(":*");
    if env.is_empty() || env.len() > MAX_ENV_ID_BYTES || kind && env.parse::<EnvKind>().is_err() {
        return Err(format!("`{env}` is neither the id of an env nor a kind as \"gymnasium:*\""));
    }
    let mut terms = EnvTerms::default();
    for (name, value) in entries {
        let wrong = |wanted: String, why: String| {
            let why = if why.is_empty() { why } else { format!(": {why}") };
            format!("`{name}` of `{env}` is {}, which is not {wanted}{why}", value.quoted())
        };
        match name.as_str() {
            "cpu" => {
                let mut cores = Cores(0);
                cores.set(value).map_err(|why| wrong(cores.wanted(), why))?;
                terms.cpu_milli = Some(cores.0);
            }
            "memory" => {
                let mut bytes = Bytes(0);
                bytes.set(value).map_err(|why| wrong(bytes.wanted(), why))?;
                terms.memory = Some(bytes.0);
            }
            "max_lanes" | "max_processes" => {
                let number = match value {
                    Given::Integer(number) => u32::try_from(*number).ok(),
                    _ => None,
                };
                let number = number.filter(|number| *number as usize <= MAX_LANES);
                let number = number
                    .ok_or_else(|| wrong(format!("a whole number from 0 to {MAX_LANES}"), String::new()))?;
                let limit = if name == "max_lanes" { &mut terms.max_lanes } else { &mut terms.max_processes };
                *limit = Some(number);
            }
            other => return Err(format!("`{env}` has no `{other}`")),
        }
    }
    Ok(terms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(word: &str) -> Result<Envs, String> {
        let mut envs = Envs::default();
        envs.set(&Given::Word(word.to_owned())).map(|()| envs)
    }

    #[test]
    fn terms_are_read_as_they_are_shown() {
        let word = r#"{ "gymnasium:*" = { cpu = 0.5, memory = "300 MiB", max_lanes = 64 }, X-v0 = { max_processes = 0 } }"#;
        let envs = set(word).unwrap();
        let kind = EnvTerms {
            cpu_milli: Some(500),
            memory: Some(300 << 20),
            max_lanes: Some(64),
            ..EnvTerms::default()
        };
        let of = EnvTerms { max_processes: Some(0), ..EnvTerms::default() };
        assert_eq!(envs.0, [("gymnasium:*".to_owned(), kind), ("X-v0".to_owned(), of)].into());
        assert_eq!(set(&envs.show().toml()), Ok(envs));
        assert_eq!(set(""), Ok(Envs::default()));
    }

    #[test]
    fn what_is_wrong_is_named_with_the_env() {
        for (word, told) in [
            ("{ X = 1 }", "`X` is not a table"),
            ("{ X = { cpus = 1 } }", "`X` has no `cpus`"),
            ("{ X = { cpu = -1 } }", "`cpu` of `X` is -1, which is not"),
            ("{ X = { cpu = 5000 } }", "which is not a number of cores from 0 to 4096"),
            ("{ X = { memory = 5 } }", "`memory` of `X` is 5, which is not bytes with a unit"),
            ("{ X = { memory = \"5 Gb\" } }", "`Gb` is not a unit"),
            (
                "{ X = { max_lanes = 70000 } }",
                "`max_lanes` of `X` is 70000, which is not a whole number from 0",
            ),
            ("{ \"a.b:*\" = {} }", "neither the id of an env nor a kind"),
            ("X", "is no table of a file"),
        ] {
            let refused = set(word).unwrap_err();
            assert!(refused.contains(told), "{word}: {refused}");
        }
    }

    #[test]
    fn what_is_not_set_is_what_the_process_may_use() {
        let mut budget = BudgetSettings::default();
        assert_eq!(budget.total(2, 1000), Weight { cpu_milli: 2000, memory: 900 });
        (budget.cpu, budget.memory) = (Cores(8500), Bytes(7));
        assert_eq!(budget.total(2, 1000), Weight { cpu_milli: 8500, memory: 7 });
    }
}
