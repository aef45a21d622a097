//! Steps that are too heavy, or need too much of a machine, to run for every change.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::outcome::{Outcome, cargo, shown};
use crate::python::{self, Stop};

/// Makes the golden data anew with the real Gymnasium in a virtual environment under `target/` and compares
/// it with what is committed. NumPy's sines differ in the last bit between CPUs; data that is not the same byte
/// by byte therefore has to pass the tests that the committed data passes.
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
    // The script writes beside itself.
    let script = fresh.join("generate.py");
    let placed = fs::create_dir_all(&fresh).and_then(|()| fs::copy(golden.join("generate.py"), &script));
    let placed = placed.map(drop).map_err(|error| format!("cannot make {}: {error}", script.display()));
    let made = placed.and_then(|()| shown(Command::new(&python).arg(&script)));
    let differing = match made.and_then(|()| differing_files(&golden, &fresh)) {
        Ok((files, differing)) if differing.is_empty() => {
            return Outcome::Passed(format!("{files} files made anew, all the same bytes"));
        }
        Ok((_, differing)) => differing.join(", "),
        Err(what) => return Outcome::Failed(what),
    };
    let mut tests =
        cargo(root, &["test", "--quiet", "--package", "rollhouse-env", "--test", "all", "golden::"]);
    match shown(tests.env("ROLLHOUSE_GOLDEN", &fresh)) {
        Ok(()) => Outcome::Passed(format!("made anew; {differing} have other bytes and pass the same tests")),
        Err(what) => Outcome::Failed(format!("made anew, {differing} have other bytes: {what}")),
    }
}

/// Runs the process tests that compare a cluster's frames with an engine's, with the binary that users get.
pub(crate) fn release(root: &Path) -> Outcome {
    if let Err(what) =
        shown(&mut cargo(root, &["build", "--quiet", "--release", "--locked", "-p", "rollhouse-cli"]))
    {
        return Outcome::Failed(what);
    }
    let arguments = [
        "test",
        "--quiet",
        "-p",
        "rollhouse-tests",
        "--locked",
        "--test",
        "all",
        "--",
        "cluster::",
        "resume::",
    ];
    let binary = root.join("target/release/rollhouse");
    match shown(cargo(root, &arguments).env("ROLLHOUSE_BIN", binary)) {
        Ok(()) => Outcome::Passed("a cluster of the release build plays what an engine plays".to_owned()),
        Err(what) => Outcome::Failed(what),
    }
}

/// Has tenants flood a cluster of the release build whose processes die, whose disks fill and whose backups are restored,
/// for [`CHAOS_MINUTES`], or as many as `ROLLHOUSE_CHAOS_MINUTES` says, with Python envs that sleep where there is Python.
pub(crate) fn chaos(root: &Path) -> Outcome {
    let build = ["build", "--quiet", "--release", "--locked", "-p", "rollhouse-bench"];
    if let Err(what) = shown(&mut cargo(root, &build)) {
        return Outcome::Failed(what);
    }
    let minutes = std::env::var("ROLLHOUSE_CHAOS_MINUTES").unwrap_or_else(|_| CHAOS_MINUTES.to_owned());
    let mut chaos = Command::new(root.join("target/release/rollhouse-bench"));
    chaos.args(["chaos", "--tenants", "--seed", "2026", "--minutes", &minutes]).current_dir(root);
    let sleeps = match python::interpreter(root) {
        Ok(interpreter) => {
            chaos.arg("--python").arg(interpreter);
            "envs that sleep among them".to_owned()
        }
        Err(Stop::Skipped(why)) => format!("without envs that sleep: {why}"),
        Err(Stop::Failed(what)) => return Outcome::Failed(what),
    };
    match shown(&mut chaos) {
        Ok(()) => {
            Outcome::Passed(format!("{minutes} min beside tenants who flood, {sleeps}: nothing is lost"))
        }
        Err(what) => Outcome::Failed(what),
    }
}

/// Runs fuzz and property tests of everything that reads bytes from outside, compiled as users get it: there, sums
/// wrap, assertions are gone and code is moved.
pub(crate) fn decoders(root: &Path) -> Outcome {
    let targets = [
        "-p rollhouse-core --lib",
        "-p rollhouse-codec --features messages,openenv --lib --test all",
        "-p rollhouse-wire --lib --test all",
        "-p rollhouse-replay --lib --test hostile --test all",
        "-p rollhouse-arena --lib --test all",
        "-p rollhouse-node --lib owned::",
    ];
    for target in targets {
        let arguments: Vec<&str> =
            ["test", "--quiet", "--release", "--locked"].into_iter().chain(target.split(' ')).collect();
        if let Err(what) = shown(&mut cargo(root, &arguments)) {
            return Outcome::Failed(what);
        }
    }
    Outcome::Passed("what reads bytes from outside passes its tests as users get it".to_owned())
}

/// Carries recordings to a real server of S3-compatible object storage and back: the program `s3s-fs`, under
/// `target/tools`.
pub(crate) fn objects(root: &Path) -> Outcome {
    let tools = root.join("target/tools");
    let server = tools.join("bin/s3s-fs");
    if !server.exists() {
        let package = ["install", "--locked", "s3s-fs@0.14.1", "--features", "binary", "--root"];
        if let Err(why) = shown(cargo(root, &package).arg(&tools)) {
            return Outcome::Skipped(format!("s3s-fs cannot be installed here: {why}"));
        }
    }
    // A folder of its own: the binary beside the other tests has no object storage.
    let target = root.join("target/s3");
    let build = ["build", "--quiet", "--locked", "-p", "rollhouse-cli", "--features", "s3", "--target-dir"];
    if let Err(what) = shown(cargo(root, &build).arg(&target)) {
        return Outcome::Failed(what);
    }
    let test =
        ["test", "--quiet", "--locked", "-p", "rollhouse-tests", "--features", "s3", "--test", "objects"];
    let mut tests = cargo(root, &test);
    tests.env("ROLLHOUSE_S3_SERVER", &server).env("ROLLHOUSE_BIN", target.join("debug/rollhouse"));
    match shown(&mut tests) {
        Ok(()) => Outcome::Passed("recordings go to object storage and come back as they were".to_owned()),
        Err(what) => Outcome::Failed(what),
    }
}

/// Returns how many files were made, and the names of those that are not committed with the same bytes.
fn differing_files(committed: &Path, fresh: &Path) -> Result<(usize, Vec<String>), String> {
    let entries = fs::read_dir(fresh).map_err(|e| format!("cannot list {}: {e}", fresh.display()))?;
    let (mut files, mut differing) = (0, Vec::new());
    for entry in entries {
        let path = entry.map_err(|e| format!("cannot list {}: {e}", fresh.display()))?.path();
        let Some(name) = path.file_name().filter(|&name| name != "generate.py") else { continue };
        files += 1;
        let new = fs::read(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        if fs::read(committed.join(name)).ok().as_ref() != Some(&new) {
            differing.push(name.to_string_lossy().into_owned());
        }
    }
    if files == 0 { Err("the script made no file".to_owned()) } else { Ok((files, differing)) }
}

/// Checks licences, advisories, bans and sources of every dependency, with cargo-deny under `target/tools`.
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

/// Runs the env tests under emulation of another architecture: the dynamics hashes must be the same there.
pub(crate) fn aarch64(root: &Path) -> Outcome {
    const TARGET: &str = "aarch64-unknown-linux-gnu";
    let needed = [
        (
            "rustc",
            ["--print", "target-libdir", "--target", TARGET].as_slice(),
            "rustup target add aarch64-unknown-linux-gnu",
        ),
        ("aarch64-linux-gnu-gcc", &["--version"], "Debian's gcc-aarch64-linux-gnu"),
        ("qemu-aarch64", &["--version"], "Debian's qemu-user"),
    ];
    for (program, arguments, remedy) in needed {
        let found = Command::new(program).args(arguments).output().is_ok_and(|output| {
            let folder = String::from_utf8_lossy(&output.stdout);
            output.status.success() && (program != "rustc" || Path::new(folder.trim()).is_dir())
        });
        if !found {
            return Outcome::Skipped(format!("emulation of aarch64 wants {remedy}"));
        }
    }
    let mut tests = cargo(root, &["test", "--locked", "-p", "rollhouse-env", "--target", TARGET]);
    tests
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", "qemu-aarch64 -L /usr/aarch64-linux-gnu");
    match shown(&mut tests) {
        Ok(()) => Outcome::Passed("the env tests, dynamics hashes included, pass under emulation".to_owned()),
        Err(what) => Outcome::Failed(what),
    }
}

/// Minutes for which tenants flood.
const CHAOS_MINUTES: &str = "30";
