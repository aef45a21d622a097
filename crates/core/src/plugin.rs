//! Names of plug-ins, from which envs are loaded.

use std::path::PathBuf;

/// A plug-in that is to be loaded: a shared object with envs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugin {
    /// File of the shared object. A relative path is one from the working folder; no other folder is searched.
    pub path: PathBuf,
    /// Whether the plug-in may run inside of this process, where its faults are the process's.
    pub trusted: bool,
}
