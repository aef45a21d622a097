//! Python envs that recordings were made of.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use rollhouse_core::EnvSpec;
use rollhouse_env::EnvEntry;

use crate::python::{PythonEnv, PythonError, PythonHost};

/// Python envs that recordings were made of, hosted as any other, so that episodes can be stepped again.
///
/// A recording says which env it was and with which arguments; the host says which interpreter runs it and what it may
/// import.
#[derive(Debug)]
pub struct RecordedEnvs {
    host: PythonHost,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Envs that were asked for last, the oldest first.
    envs: VecDeque<(PythonEnv, Learned)>,
    refusal: Option<Arc<PythonError>>,
}

type Learned = Result<Arc<EnvEntry>, Arc<PythonError>>;

impl RecordedEnvs {
    /// Makes the envs that this host can make. Starts nothing.
    pub fn new(host: PythonHost) -> Self {
        Self { host, known: Mutex::default() }
    }

    /// Returns the entry of the env that a run was recorded of, by its spec and arguments. It is learned when it is asked for
    /// first, for which this blocks as [`PythonHost::learn`] does, other callers with it; [`MAX_KNOWN`] are remembered.
    ///
    /// # Errors
    /// [`PythonError`]; the same again for an env that was refused before and is remembered.
    pub fn entry(&self, spec: &EnvSpec, arguments: &str) -> Result<Arc<EnvEntry>, Arc<PythonError>> {
        let mut known = self.known.lock();
        let env = PythonEnv::recorded(spec, arguments).map_err(|error| known.refuse(error))?;
        if let Some((_, learned)) = known.envs.iter().find(|(other, _)| *other == env) {
            return learned.clone();
        }
        let learned = self.host.entry(&env).map(Arc::new).map_err(|error| known.refuse(error));
        if known.envs.len() == MAX_KNOWN {
            known.envs.pop_front();
        }
        known.envs.push_back((env, learned.clone()));
        learned
    }

    /// Returns the first error of an env that was asked for, if there is one.
    pub fn refusal(&self) -> Option<Arc<PythonError>> {
        self.known.lock().refusal.clone()
    }
}

impl Known {
    fn refuse(&mut self, error: PythonError) -> Arc<PythonError> {
        let error = Arc::new(error);
        self.refusal.get_or_insert_with(|| Arc::clone(&error));
        error
    }
}

/// Maximum number of envs that are remembered.
pub const MAX_KNOWN: usize = 64;

#[cfg(test)]
mod tests {
    use rollhouse_core::limits::MAX_ENV_KWARGS_BYTES;

    use super::*;
    use crate::launcher::Launcher;

    #[test]
    fn arguments_that_are_no_object_are_refused_before_a_process_is_started() {
        let spec = rollhouse_env::Registry::builtin().get("CartPole-v1").unwrap().spec().clone();
        let envs = RecordedEnvs::new(PythonHost {
            interpreter: "/nowhere/python3".into(),
            allow: Vec::new(),
            workers: None,
            launch_deadline: std::time::Duration::from_secs(1),
            lane_deadlines: rollhouse_core::LaneDeadlines::default(),
            connect: crate::Connect::default(),
            launcher: Launcher::new(1),
            memory: None,
            census: None,
            draw: false,
        });
        let long = format!("{{\"a\": \"{}\"}}", "b".repeat(MAX_ENV_KWARGS_BYTES));
        let deep = "[".repeat(MAX_ENV_KWARGS_BYTES);
        for arguments in ["[1]", "{", "null", &long, &deep] {
            let error = envs.entry(&spec, arguments).unwrap_err();
            assert!(
                matches!(*error, PythonError::Arguments { bytes } if bytes == arguments.len()),
                "{error}"
            );
        }
        assert!(matches!(*envs.refusal().unwrap(), PythonError::Arguments { bytes: 3 }));
        // An env that is none of a Python package is not asked of an interpreter either.
        assert!(matches!(*envs.entry(&spec, "").unwrap_err(), PythonError::Id(_)));
    }
}
