//! What is too heavy, or needs too much of a machine, to run for every change.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::plan::{Outcome, cargo, shown};

/// Makes the golden data anew with the real Gymnasium in a virtual environment under `target/` and compares
/// it byte by byte with what is committed.
pub(crate) fn golden_data(root: &Path) -> Outcome {
    let golden = root.join("crates/env/golden");
    let environment = root.join("target/golden-venv");
    let fresh = root.join("target/golden");
    let python = environment.join("bin/python");
    if !python.exists() {
        let made = shown(Command::new("python3").args(["-m", "venv"]).arg(&environment));
        if let Err(why) = made {
            return Outcome::Skipped(format!("no virtual environment: {why}"));
        }
    }
    let requirements = golden.join("requirements.txt");
    let install =
        shown(Command::new(&python).args(["-m", "pip", "install", "--quiet", "-r"]).arg(&requirements));
    if let Err(why) = install {
        return Outcome::Skipped(format!("Gymnasium cannot be installed here: {why}"));
    }
    let written = fs::create_dir_all(&fresh).map_err(|e| format!("cannot make {}: {e}", fresh.display()));
    let script = golden.join("generate.py");
    let made = written.and_then(|()| shown(Command::new(&python).arg(&script).arg("--out").arg(&fresh)));
    match made.and_then(|()| differing_files(&golden, &fresh)) {
        Ok((files, differing)) if differing.is_empty() => {
            Outcome::Passed(format!("{files} files made anew, all equal"))
        }
        Ok((_, differing)) => Outcome::Failed(format!("differ from Gymnasium's: {}", differing.join(", "))),
        Err(what) => Outcome::Failed(what),
    }
}

/// How many files were made, and the names of those that are not committed with the same bytes.
fn differing_files(committed: &Path, fresh: &Path) -> Result<(usize, Vec<String>), String> {
    let entries = fs::read_dir(fresh).map_err(|e| format!("cannot list {}: {e}", fresh.display()))?;
    let (mut files, mut differing) = (0, Vec::new());
    for entry in entries {
        let path = entry.map_err(|e| format!("cannot list {}: {e}", fresh.display()))?.path();
        let Some(name) = path.file_name() else { continue };
        files += 1;
        let new = fs::read(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        if fs::read(committed.join(name)).ok().as_ref() != Some(&new) {
            differing.push(name.to_string_lossy().into_owned());
        }
    }
    if files == 0 { Err("the script made no file".to_owned()) } else { Ok((files, differing)) }
}

/// Licences, advisories, bans and sources of every dependency, by cargo-deny under `target/tools`.
pub(crate) fn dependencies(root: &Path) -> Outcome {
    let tools = root.join("target/tools");
    let deny = tools.join("bin/cargo-deny");
    if !deny.exists() {
        let mut install = cargo(root, &["install", "--locked", "cargo-deny", "--root"]);
        if let Err(why) = shown(install.arg(&tools)) {
            return Outcome::Skipped(format!("cargo-deny cannot be installed here: {why}"));
        }
    }
    let check = |what: &[&str]| shown(Command::new(&deny).arg("check").args(what).current_dir(root));
    if let Err(what) = check(&["licenses", "bans", "sources"]) {
        return Outcome::Failed(what);
    }
    let fetched = shown(Command::new(&deny).args(["fetch", "db"]).current_dir(root));
    if let Err(why) = fetched {
        return Outcome::Skipped(format!("licences, bans, sources ok; advisories cannot be fetched: {why}"));
    }
    match check(&["advisories"]) {
        Ok(()) => Outcome::Passed("licences, bans, sources, advisories".to_owned()),
        Err(what) => Outcome::Failed(what),
    }
}
