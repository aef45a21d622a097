//! Keeps a service's secrets from other processes of its user: the workers of a node run code of envs.
//!
//! A process is dumpable unless it says otherwise, and whoever has its user id then reads its environment, memory and
//! descriptors through /proc. Root reads them in any case, so that a secret does not stay in the environment either.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::failure::{Failure, Status};

/// Makes this process unreadable for others of its user, and has it executed again without secrets in its environment
/// if there are any. `python` is the interpreter in whose process this runs. Returns when there is nothing to hide.
///
/// # Errors
/// If the system refuses: the service does not run with secrets that its workers can read.
pub(crate) fn seclude(python: Option<&OsStr>) -> Result<(), Failure> {
    let failed = |what: &str, error: &io::Error| {
        Failure::new(Status::Failed, format_args!("cannot hide secrets from workers: {what}: {error}"))
    };
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| failed("prctl", &error.into()))?;
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let kept =
        std::env::var_os(KEPT).filter(|value| has_token(value) && std::env::var_os(KEPT_FILE).is_none());
    if kept.is_none() && !DROPPED.iter().any(is_set) {
        return Ok(());
    }
    let mut line = std::env::args_os();
    let name = line.next().unwrap_or_default();
    let program = python.map_or_else(|| OsString::from(SELF), OsStr::to_owned);
    let mut command = Command::new(program);
    command.arg0(python.unwrap_or(name.as_os_str())).args(line);
    if let Some(value) = kept {
        let secret = in_memory(value.as_encoded_bytes()).map_err(|error| failed("memfd", &error))?;
        // A worker has a standard input of its own.
        command.stdin(Stdio::from(secret)).env_remove(KEPT).env(KEPT_FILE, STDIN);
    }
    for name in DROPPED {
        command.env_remove(name);
    }
    // It returns only if it has failed.
    Err(failed("exec", &command.exec()))
}

/// Returns whether a connection string has a token; it may be the path of a file with one.
fn has_token(value: &OsStr) -> bool {
    value.to_str().is_some_and(|value| value.contains("token="))
}

fn in_memory(secret: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("rollhouse-secret", MemfdFlags::CLOEXEC)?);
    file.write_all(secret)?;
    Ok(file)
}

/// The variable of the one setting of a service that is a secret, and the one that names a file with it instead.
const KEPT: &str = "ROLLHOUSE_NODE__JOIN";
const KEPT_FILE: &str = "ROLLHOUSE_NODE__JOIN_FILE";
/// Variables with secrets of other commands, for which a service has no use.
const DROPPED: [&str; 2] = ["ROLLHOUSE_TOKEN", "ROLLHOUSE_CONNECT"];
/// This program.
const SELF: &str = "/proc/self/exe";
/// The standard input, opened anew by whoever reads it.
const STDIN: &str = "/proc/self/fd/0";
