//! Envs that recordings were made of, and that are learned.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use rollhouse_core::EnvSpec;
use rollhouse_env::EnvEntry;

use crate::connect_watch::ConnectWatch;
use crate::provider::{EnvProviders, EnvRequest, LearnError};

/// Envs that recordings were made of, learned as any other, so that episodes can be stepped again.
///
/// A recording has the id of the env and its arguments; the providers decide what makes it, and what may.
#[derive(Debug)]
pub struct RecordedEnvs {
    providers: EnvProviders,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Envs that were asked for last, the oldest first.
    envs: VecDeque<(EnvRequest, Learned)>,
    refusal: Option<Arc<LearnError>>,
}

type Learned = Result<Arc<EnvEntry>, Arc<LearnError>>;

impl RecordedEnvs {
    /// Makes the envs that these can make. Starts nothing.
    pub fn new(providers: EnvProviders) -> Self {
        Self { providers, known: Mutex::default() }
    }

    /// Returns the entry of the env that a run was recorded of, by its spec and arguments. It is learned when it is asked for
    /// first, for which this blocks as [`EnvProviders::learn_in_time`] does, other callers with it; [`MAX_KNOWN`] are remembered.
    ///
    /// # Errors
    /// [`LearnError`]; the same again for an env that was refused before and is remembered.
    pub fn entry(&self, spec: &EnvSpec, arguments: &str) -> Result<Arc<EnvEntry>, Arc<LearnError>> {
        let mut known = self.known.lock();
        let env = EnvRequest::recorded(spec, arguments).map_err(|error| known.refuse(error))?;
        if let Some((_, learned)) = known.envs.iter().find(|(other, _)| *other == env) {
            return learned.clone();
        }
        let watch = ConnectWatch::default();
        let learned = self.providers.learn_in_time(&env, &watch).and_then(|env| env.entry(&watch, None));
        let learned = learned.map(Arc::new).map_err(|error| known.refuse(error));
        if known.envs.len() == MAX_KNOWN {
            known.envs.pop_front();
        }
        known.envs.push_back((env, learned.clone()));
        learned
    }

    /// Returns the first error of an env that was asked for, if there is one.
    pub fn refusal(&self) -> Option<Arc<LearnError>> {
        self.known.lock().refusal.clone()
    }
}

impl Known {
    fn refuse(&mut self, error: LearnError) -> Arc<LearnError> {
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
    use crate::provider::LearnReason;
    use crate::python::PythonHost;

    #[test]
    fn arguments_that_are_no_object_are_refused_before_a_process_is_started() {
        let spec = rollhouse_env::Registry::builtin().get("CartPole-v1").unwrap().spec().clone();
        let envs = RecordedEnvs::new(EnvProviders::from(PythonHost {
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
        }));
        let long = format!("{{\"a\": \"{}\"}}", "b".repeat(MAX_ENV_KWARGS_BYTES));
        let deep = "[".repeat(MAX_ENV_KWARGS_BYTES);
        for arguments in ["[1]", "{", "null", &long, &deep] {
            let error = envs.entry(&spec, arguments).unwrap_err();
            assert_eq!(error.reason(), LearnReason::Request);
            assert!(error.to_string().starts_with(&format!("{} bytes", arguments.len())), "{error}");
        }
        assert!(envs.refusal().unwrap().to_string().starts_with("3 bytes"));
        // An env that is none of a Python package is not asked of an interpreter either.
        assert_eq!(envs.entry(&spec, "").unwrap_err().reason(), LearnReason::NotFound);
    }
}
