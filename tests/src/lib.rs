//! What the process tests share: the binary, folders of their own, and chance that can be repeated.
//!
//! The tests stand in `tests/tests/` and start the real `rollhouse`. Not a goal: what a crate can show by
//! itself. Start reading at [`rollhouse`].
#![forbid(unsafe_code)]
#![expect(clippy::expect_used, clippy::missing_panics_doc, reason = "all of it is test code")]

mod cluster;
#[cfg(target_os = "linux")]
pub mod emulator;
#[cfg(target_os = "linux")]
pub mod hosts;
pub mod link;
mod service;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;

use parking_lot::{Mutex, MutexGuard};
use rollhouse_core::split_mix64;
use serde_json::Value;
use tempfile::TempDir;

pub use cluster::Cluster;
pub use service::Service;

/// The binary: `$ROLLHOUSE_BIN`, or built from this workspace with the profile of the tests.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("ROLLHOUSE_BIN") {
        // A relative path is one from the root.
        Some(path) => workspace().join(path),
        None => build(),
    })
}

fn build() -> PathBuf {
    // A test runs as target/<profile>/deps/<name>.
    let test = std::env::current_exe().expect("a running test has a path");
    let folder = test.ancestors().nth(2).expect("target/<profile>").to_path_buf();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--package", "rollhouse-cli", "--package", "rollhouse-bench"])
        .args(["--features", "rollhouse-cli/gate,rollhouse-cli/onnx,rollhouse-cli/openra"])
        .current_dir(workspace());
    if folder.ends_with("release") {
        command.arg("--release");
    }
    let target = folder.parent().expect("target");
    let status = command.arg("--target-dir").arg(target).status().expect("cargo starts");
    assert!(status.success(), "the binary does not build");
    folder.join(format!("rollhouse{}", std::env::consts::EXE_SUFFIX))
}

/// The workspace's root.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace")
}

/// The command of the binary. Where util-linux is there, its process is killed when the thread that started it ends,
/// which is that of a test: nothing is left of a test that is killed itself.
pub fn program() -> Command {
    static TIED: OnceLock<bool> = OnceLock::new();
    let tied = |program: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program);
        command
    };
    let try_it = || tied(Path::new("true")).output().is_ok_and(|done| done.status.success());
    if *TIED.get_or_init(try_it) { tied(binary()) } else { Command::new(binary()) }
}

/// A command line of the binary that records into `data`, split at spaces. One that would write where it is started
/// fails instead of leaving keys among the sources.
pub fn rollhouse(data: &Path, line: &str) -> Command {
    let mut command = program();
    command.args(line.split_whitespace()).env("ROLLHOUSE_DATA", data).current_dir(READ_ONLY);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A folder in which nobody makes a file, root included.
const READ_ONLY: &str = "/proc";

/// The commands of all `console` blocks of a page, in their order.
pub fn console_commands(page: &str) -> Vec<&str> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in page.lines() {
        match line.strip_prefix("```") {
            Some(language) => inside = language == "console",
            None if inside => found.extend(line.strip_prefix("$ ")),
            None => {}
        }
    }
    found
}

/// What a command did.
#[derive(Debug)]
pub struct Done {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// What it printed as data.
    pub stdout: String,
    /// What it said.
    pub stderr: String,
}

/// Runs a command line to its end. Fails the test if it panicked.
pub fn run(data: &Path, line: &str) -> Done {
    Done::of(rollhouse(data, line).output().expect("the binary starts"))
}

/// Runs a command line that has to succeed, and gives its stdout.
pub fn succeed(data: &Path, line: &str) -> String {
    let done = run(data, line);
    assert_eq!(done.code, Some(0), "rollhouse {line}: {}{}", done.stdout, done.stderr);
    done.stdout
}

/// The program that measures; it lies beside the binary.
pub fn bench_binary() -> PathBuf {
    binary().with_file_name(format!("rollhouse-bench{}", std::env::consts::EXE_SUFFIX))
}

/// Runs a bench that prints one JSON object, and succeeds.
pub fn bench(data: &Path, line: &str) -> Value {
    let mut command = Command::new(bench_binary());
    command.args(line.split_whitespace()).current_dir(data).stdin(Stdio::null());
    let done = Done::of(command.output().expect("the program starts"));
    assert_eq!(done.code, Some(0), "rollhouse-bench {line}: {}{}", done.stdout, done.stderr);
    serde_json::from_str(&done.stdout).expect("one JSON object")
}

/// Runs a command line that prints one JSON object a line, and succeeds.
pub fn json_lines(data: &Path, line: &str) -> Vec<Value> {
    succeed(data, line).lines().map(|text| serde_json::from_str(text).expect("a line of JSON")).collect()
}

impl Done {
    /// What a finished process left. Fails the test if it panicked.
    pub fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("what it prints is UTF-8");
        let done =
            Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) };
        assert!(!done.stderr.contains("panicked at"), "{}", done.stderr);
        done
    }
}

/// A folder that is gone at the end of the test.
#[derive(Debug)]
pub struct Folder(TempDir);

impl Folder {
    /// A new empty folder.
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("the temporary folder can be written"))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

/// A folder's segment files, oldest first; none if nothing was recorded yet.
pub fn segments(data: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(data.join("segments")).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    files
}

/// Bytes of all segments.
pub fn segment_bytes(data: &Path) -> u64 {
    segments(data).iter().filter_map(|file| Some(fs::metadata(file).ok()?.len())).sum()
}

/// A run in the background; killed if the test ends before it. There is one at a time: several that never end
/// would outrun, on few cores, the readers that look at what they write.
#[derive(Debug)]
pub struct Running {
    child: Option<Child>,
    _only: MutexGuard<'static, ()>,
}

static ONE_RUNNING: Mutex<()> = Mutex::new(());

impl Running {
    /// Starts a command line, after the last one has ended. A test must not hold two.
    pub fn start(data: &Path, line: &str) -> Self {
        // A test that failed has killed its run.
        let only = ONE_RUNNING.lock();
        let child = rollhouse(data, line).spawn().expect("the binary starts");
        Self { child: Some(child), _only: only }
    }

    /// Returns when its segments hold at least `bytes` bytes, or when it has ended.
    pub fn until_written(&mut self, data: &Path, bytes: u64) {
        while segment_bytes(data) < bytes && self.ended().is_none() {
            std::thread::yield_now();
        }
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child().try_wait().expect("a child can be waited for")
    }

    /// Its process id.
    pub fn id(&mut self) -> u32 {
        self.child().id()
    }

    /// Sends a signal by its name, such as `INT`.
    pub fn signal(&mut self, name: &str) {
        let id = self.id().to_string();
        let status = Command::new("kill").args([&format!("-{name}"), &id]).status().expect("kill starts");
        assert!(status.success(), "kill -{name} {id}");
    }

    /// Ends it with SIGKILL and waits for that.
    pub fn kill(mut self) {
        self.child().kill().expect("a child can be killed");
        self.child().wait().expect("a child can be waited for");
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Done {
        let child = self.child.take().expect("not waited for yet");
        Done::of(child.wait_with_output().expect("a child can be waited for"))
    }

    fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("not waited for yet")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself.
            let _killed = child.kill();
            let _reaped = child.wait();
        }
    }
}

/// Chance that can be repeated: prints how when it is made, which a failing test shows.
#[derive(Debug)]
pub struct Chance(u64);

impl Chance {
    /// Seeded from `$ROLLHOUSE_TEST_SEED`, else with a number of the test's own.
    #[expect(clippy::print_stderr, reason = "shown if the test fails")]
    pub fn new(own: u64) -> Self {
        let seed =
            std::env::var("ROLLHOUSE_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(own);
        eprintln!("repeat with ROLLHOUSE_TEST_SEED={seed}");
        Self(seed)
    }

    /// The next number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        split_mix64(self.0) % n
    }
}

/// How many times more than usual to repeat what is done at random: `$ROLLHOUSE_SOAK`, else once.
pub fn soak() -> u64 {
    std::env::var("ROLLHOUSE_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: the keys of a cluster stood among the sources, and were committed.
    /// Cause: a command line that named no folder wrote where it was started, which was the folder of these tests.
    /// Fix: command lines are started where nothing can be written.
    #[test]
    fn a_command_line_that_names_no_folder_writes_nothing_among_the_sources() {
        let left = Path::new(env!("CARGO_MANIFEST_DIR")).join("rollhouse-cluster");
        let data = Folder::new();
        // A port that cannot be had ends it in case it can write.
        let line = "up --set coordinator.listen=192.0.2.1:1";
        let done = run(data.path(), line);
        assert!(done.stderr.contains("rollhouse-cluster"), "{}", done.stderr);
        assert_ne!(done.code, Some(0));
        assert!(!left.exists(), "{}", left.display());
    }
}
