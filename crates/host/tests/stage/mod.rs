//! Compiles plug-ins, and loads them into this process or into workers.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "test code"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::{LaneDeadlines, Plugin};
use rollhouse_env::{EnvEntry, Registry};
use rollhouse_host::{Launcher, PluginHost};
use tempfile::TempDir;

/// A folder for a test's plug-ins, removed at its end.
pub struct Folder(pub TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Compiles a plug-in; None, said by name, where there is no compiler.
    pub fn compiled(&self, source: &str, flag: &str) -> Option<PathBuf> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let name = flag.split('=').next().unwrap_or_default();
        let out = self.0.path().join(format!("{}.so", name.trim_start_matches("-D")));
        let mut command = Command::new("cc");
        command.args(["-std=gnu99", "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-I"]);
        command.arg(crates.join("plugin/include")).arg(flag).arg(crates.join(source)).arg("-o").arg(&out);
        match command.output() {
            Ok(done) => {
                assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
                Some(out)
            }
            Err(_) => {
                println!("skipped: there is no `cc`");
                None
            }
        }
    }

    /// File that the plug-in makes when it breaks, so that it breaks once.
    pub fn mark(&self) -> PathBuf {
        self.0.path().join("broken")
    }

    pub fn breaking(&self) -> Option<PathBuf> {
        self.compiled("host/tests/stage/breaking.c", &format!("-DMARK=\"{}\"", self.mark().display()))
    }
}

pub fn host(launch_deadline: Duration) -> PluginHost {
    let mut worker = std::env::current_exe().unwrap();
    worker.pop();
    worker.pop();
    worker.extend(["examples", "plugin_worker"]);
    let command = vec![worker.into_os_string()];
    let (lane_deadlines, launcher) = (LaneDeadlines::default(), Launcher::new(3));
    PluginHost { command, workers: Some(3), launch_deadline, lane_deadlines, launcher, census: None }
}

/// Loads a plug-in, isolated or trusted, and returns the ids of its envs.
pub fn registry(path: &Path, trusted: bool) -> (Registry, Vec<String>) {
    let registry = Registry::empty();
    let plugin = Plugin { path: path.to_owned(), trusted };
    let ids = host(Duration::from_secs(60)).register(&registry, &[plugin]).unwrap();
    (registry, ids)
}

/// Returns the first env of a plug-in, isolated or trusted.
pub fn entry(path: &Path, trusted: bool) -> Arc<EnvEntry> {
    let (registry, ids) = registry(path, trusted);
    registry.get(&ids[0]).unwrap()
}
