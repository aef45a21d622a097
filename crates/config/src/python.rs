//! The section of Python envs.

use rollhouse_core::EnvKind;
use rollhouse_core::limits::{CONNECT_DEADLINE, CONNECT_RETRIES, MAX_CONNECT_RETRIES, MAX_ENV_KINDS};

use crate::deadline::Deadline;
use crate::quantity::Bytes;
use crate::setting::{Bounded, Given, Setting, SettingValue, text};

/// Settings by which a node hosts Python envs, in worker processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Python {
    /// Interpreter, a path or a name that is looked up in `PATH`; it needs the package rollhouse. `None` hosts no Python
    /// envs, which is the default: a node runs no code that its operator has not asked for. The default of `up` that a
    /// Python environment starts is its interpreter.
    pub interpreter: Option<String>,
    /// Packages that may be imported. Default `gymnasium` alone. Whoever may open pools makes any env of these.
    pub allow: Packages,
    /// Number of processes of a session, at most one for each lane. 0 is one per core.
    pub workers: Bounded<0, 1024>,
    /// Number of processes that start at a time, those of all sessions together. 0 is one per core, at least 2: more
    /// make all of them slow, and each misses its deadline.
    pub launches: Bounded<0, 1024>,
    /// Time from the start of a process until its envs are made. Default 25 s, for large packages on cold disks, at most 24 h; learning
    /// an env and starting a session's processes each may take as long, and so may each part of what is tried before
    /// ([`LAUNCHES_OF_OPENING`](rollhouse_core::limits::LAUNCHES_OF_OPENING) in all).
    pub launch_within: Deadline<1000>,
    /// Number of times that an env which is a client of a game or simulator tries again to connect, when its constructor or
    /// `reset` raises `ConnectionError` or `TimeoutError`. Default 120, of which the pauses grow to 1 s; 0 tells the first
    /// failure.
    pub connect_retries: Bounded<0, 10_000>,
    /// Time from the first failure to connect until it has connected. Default 2 min, at most 24 h. It comes on top of `launch_within`.
    pub connect_within: Deadline<1000>,
    /// Number of bytes of private writable memory that each process may have; 0 is no limit. Default no limit. A process
    /// that needs more fails in its allocation, which costs its lanes.
    pub memory: Bytes,
}

/// Packages that may be imported, as text written with commas between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packages(pub Vec<String>);

impl Default for Python {
    fn default() -> Self {
        Self {
            interpreter: None,
            allow: Packages(vec!["gymnasium".to_owned()]),
            workers: Bounded(0),
            launches: Bounded(0),
            launch_within: Deadline::seconds(25),
            connect_retries: Bounded(CONNECT_RETRIES.into()),
            connect_within: Deadline::seconds(CONNECT_DEADLINE.as_secs()),
            memory: Bytes(0),
        }
    }
}

impl Python {
    /// Returns the number of processes that start at a time on a machine of so many cores.
    pub fn launches_on(&self, cores: usize) -> usize {
        match self.launches.0 {
            0 => cores.max(2),
            // Bounded by the type of the setting.
            launches => launches as usize,
        }
    }

    pub(crate) fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)> {
        vec![
            ("python.interpreter", &mut self.interpreter),
            ("python.allow", &mut self.allow),
            ("python.workers", &mut self.workers),
            ("python.launches", &mut self.launches),
            ("python.launch_within", &mut self.launch_within),
            ("python.connect_retries", &mut self.connect_retries),
            ("python.connect_within", &mut self.connect_within),
            ("python.memory", &mut self.memory),
        ]
    }
}

impl Setting for Packages {
    fn wanted(&self) -> String {
        format!("at most {MAX_ENV_KINDS} names of packages separated by commas, as in \"gymnasium,my_envs\"")
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        let mut packages: Vec<String> = Vec::new();
        for name in text(given)?.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if EnvKind::of_package(name).is_none() {
                return Err(format!("`{name}` is not the name of a package"));
            }
            if !packages.iter().any(|known| known == name) {
                packages.push(name.to_owned());
            }
        }
        if packages.len() > MAX_ENV_KINDS {
            return Err(format!("there are {}", packages.len()));
        }
        self.0 = packages;
        Ok(())
    }

    fn show(&self) -> SettingValue {
        SettingValue::Text(self.0.join(","))
    }
}

const _: () = assert!(MAX_CONNECT_RETRIES == 10_000, "the bound of connect_retries");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_names_and_named_once() {
        let mut packages = Python::default().allow;
        packages.set(&Given::Word("gymnasium, ale_py,,gymnasium".to_owned())).unwrap();
        assert_eq!(packages.show(), SettingValue::Text("gymnasium,ale_py".to_owned()));
        for wrong in ["a.b", "a b", "1a", "../a", "a:b", "*"] {
            let refused = packages.set(&Given::Word(wrong.to_owned())).unwrap_err();
            assert!(refused.contains(wrong), "{refused}");
        }
        let many: Vec<String> = (0..=MAX_ENV_KINDS).map(|number| format!("p{number}")).collect();
        assert_eq!(packages.set(&Given::Word(many.join(","))), Err(format!("there are {}", many.len())));
        assert_eq!(packages.0.len(), 2, "what is refused changes nothing");
    }
}
