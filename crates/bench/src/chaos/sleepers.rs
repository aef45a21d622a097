//! Python envs that sleep: the package of them, and the requests for them.

use std::fs;
use std::path::{Path, PathBuf};

use rollhouse_cli::failure::Failure;
use rollhouse_client::PoolRequest;

use crate::failed::failed;

/// Writes the package into the folder, and returns the folder in which it is found.
pub(super) fn write_package(folder: &Path) -> Result<PathBuf, Failure> {
    let packages = folder.join("packages");
    fs::create_dir_all(&packages).map_err(failed)?;
    fs::write(packages.join(format!("{PACKAGE}.py")), SOURCE).map_err(failed)?;
    Ok(packages)
}

/// Asks for an env whose constructor sleeps, and which is another one for each number.
pub(super) fn sleeping_constructor(number: usize) -> PoolRequest {
    asleep(&format!(r#"{{"made_after": {ASLEEP}, "number": {number}}}"#), 1)
}

/// Asks for an env whose steps sleep.
pub(super) fn sleeping_step() -> PoolRequest {
    asleep(&format!(r#"{{"stepped_after": {ASLEEP}}}"#), 4)
}

fn asleep(kwargs: &str, lanes: u32) -> PoolRequest {
    let mut request = PoolRequest::new(format!("{PACKAGE}:Sleeper"), lanes);
    request.settings.env_kwargs = kwargs.to_owned();
    request
}

/// The package's name.
pub(super) const PACKAGE: &str = "sleepers";
/// Seconds for which an env sleeps: less than the time after which a worker is given up.
const ASLEEP: u32 = 20;

const SOURCE: &str = r#""""Envs that sleep."""

import time

import gymnasium
import numpy as np


class Sleeper(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, made_after: float = 0, stepped_after: float = 0, number: int = 0) -> None:
        time.sleep(made_after)
        self.stepped_after = stepped_after

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        time.sleep(self.stepped_after)
        return np.zeros(2, np.float32), 0.0, False, False, {}
"#;
