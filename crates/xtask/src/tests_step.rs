//! The step that runs the Rust tests: two programs at a time, of which one at most waits for clocks and processes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::libtest::{Progress, Tally, listed};
use crate::outcome::{Outcome, behind, cargo, line};
use crate::programs::{self, Program};
use crate::python;
use crate::watch::{Ended, PATIENCE, watch};

/// Packages whose tests start processes, hold clusters or wait for deadlines, by their folders: no two of their programs
/// run at a time, those that take long first. What the others do is to compute, and they get the time that these leave.
const WAITING: [&str; 10] =
    ["tests", "node", "coordinator", "client", "host", "wire", "metrics", "viewer", "engine", "arena"];

/// Runs every test of the workspace. `soak` multiplies the repetitions of process tests that draw at random.
pub(crate) fn run(root: &Path, soak: u32) -> Outcome {
    // The binaries that process tests start are among what is built.
    let programs = match programs::build(root) {
        Ok(programs) => programs,
        Err(what) => return Outcome::Failed(what),
    };
    let (mut waiting, computing): (Vec<Program>, Vec<Program>) =
        programs.into_iter().partition(|program| place(program).is_some());
    waiting.sort_by_key(place);
    let run = Run { root, soak, binary: binary(), sum: Mutex::default() };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Compiled while others wait, for the step that tests it, which says what is wrong with it.
            let _made = python::wheel_ahead(root);
            computing.iter().for_each(|program| run.program(program, processors, behind));
            run.docs();
        });
        for program in &waiting {
            // Tests that start processes wait for half of their time. The others share a process, of which some count what
            // it holds.
            let more = if program.is_of("tests") { processors.div_ceil(2) } else { 0 };
            run.program(program, processors + more, |command| command);
        }
    });
    run.sum.into_inner().unwrap_or_else(PoisonError::into_inner).outcome()
}

/// Returns the place of a program among those that wait; `None` if it computes.
fn place(program: &Program) -> Option<usize> {
    WAITING.iter().position(|folder| program.is_of(folder))
}

/// Returns the binary that process tests start. Both are built with the dev profile, so it lies beside this one.
fn binary() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok()?.with_file_name("rollhouse");
    beside.exists().then_some(beside)
}

/// A run of all programs.
struct Run<'a> {
    root: &'a Path,
    soak: u32,
    binary: Option<PathBuf>,
    sum: Mutex<Sum>,
}

/// What all programs have shown so far.
#[derive(Debug, Default)]
struct Sum {
    tally: Tally,
    took: Vec<(Duration, String)>,
    /// Tests that failed, and what their programs printed of it: shown last, where it is looked for.
    failed: Vec<String>,
    failures: Vec<String>,
    /// What went wrong, beside tests that failed.
    wrong: Vec<String>,
}

impl Run<'_> {
    /// Runs a program to its end, that many of its tests at a time, and shows each test as it ends and the rest in one
    /// piece.
    fn program(&self, program: &Program, threads: usize, rank: fn(Command) -> Command) {
        let name = program.name();
        let answer = program.command().args(["--list", "--format", "terse"]).output();
        let names = match answer {
            Ok(answer) => listed(&String::from_utf8_lossy(&answer.stdout)),
            Err(error) => return self.add(&name, Progress::new(Vec::new(), 1), Some(error.to_string())),
        };
        let mut command = rank(program.command());
        command.env("ROLLHOUSE_SOAK", self.soak.to_string()).env("RUST_TEST_THREADS", threads.to_string());
        if let Some(binary) = &self.binary {
            command.env("ROLLHOUSE_BIN", binary);
        }
        self.watch(&name, command, Progress::new(names, threads));
    }

    /// Runs the examples in doc comments, which cargo compiles as it runs them.
    fn docs(&self) {
        let arguments = ["test", "--workspace", "--doc", "--locked", "--no-fail-fast", "--quiet"];
        // In short form they have a line a package.
        let command = behind(cargo(self.root, &arguments));
        self.watch("examples of docs", command, Progress::new(Vec::new(), 1));
    }

    fn watch(&self, name: &str, mut command: Command, mut progress: Progress) {
        let mut rest = Vec::new();
        let ended = watch(&mut command, PATIENCE, |text| {
            if progress.read(text, Instant::now()) {
                show(&format!("{name}: {text}"));
            } else if !text.is_empty() {
                rest.push(text.to_owned());
            }
        });
        show(&format!("{name}:\n    {}", rest.join("\n    ")));
        let wrong = match ended {
            // Tests that failed are counted.
            Ok(Ended::Itself(status)) if status.success() || progress.tally.failed > 0 => None,
            Ok(Ended::Itself(status)) => Some(status.to_string()),
            Ok(killed @ Ended::Killed(_)) => Some(killed.to_string()),
            Err(error) => Some(format!("{}: {error}", line(&command))),
        };
        if !progress.failed.is_empty() {
            let begin = rest.iter().position(|line| line == "failures:").unwrap_or(0);
            let mut failures = rest.split_off(begin);
            failures.truncate(MAX_LINES_OF_FAILURES);
            let failures = format!("{name}:\n    {}", failures.join("\n    "));
            self.sum.lock().unwrap_or_else(PoisonError::into_inner).failures.push(failures);
        }
        self.add(name, progress, wrong);
    }

    fn add(&self, name: &str, progress: Progress, wrong: Option<String>) {
        let mut sum = self.sum.lock().unwrap_or_else(PoisonError::into_inner);
        sum.tally.add(progress.tally);
        if let Some(wrong) = wrong {
            sum.wrong.push(format!("{name}: {wrong}, while it ran {}", progress.running().join(", ")));
        } else if progress.lost() > 0 {
            sum.wrong.push(format!("{name}: {} of its tests have no result", progress.lost()));
        }
        sum.failed.extend(progress.failed.iter().map(|test| format!("{name}: {test} failed")));
        sum.took.extend(progress.took.into_iter().map(|(took, test)| (took, format!("{name}: {test}"))));
    }
}

impl Sum {
    fn outcome(mut self) -> Outcome {
        self.took.sort_by(|one, other| other.cmp(one));
        let slowest = self.took.iter().take(SLOWEST);
        let slowest = slowest.map(|(took, test)| format!("{:>7.1} s  {test}", took.as_secs_f64()));
        show(&format!("\nthe slowest tests:\n{}", slowest.collect::<Vec<_>>().join("\n")));
        self.failures.iter().for_each(|failures| show(&format!("\n{failures}")));
        let mut found = self.tally.to_string();
        for wrong in self.failed.iter().chain(&self.wrong) {
            found = format!("{found}; {wrong}");
        }
        if self.tally.failed > 0 || !self.wrong.is_empty() {
            return Outcome::Failed(found);
        }
        match self.tally.ignored {
            0 => Outcome::Passed(found),
            _ => Outcome::Failed(format!("{found}; no test may be ignored")),
        }
    }
}

/// Number of tests that are shown as the slowest.
const SLOWEST: usize = 20;

/// Number of lines of a program about its failed tests that are shown again at the end.
const MAX_LINES_OF_FAILURES: usize = 120;

/// Shows lines in one piece, whatever else is shown at the time.
fn show(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(tally: Tally, wrong: &[&str]) -> Outcome {
        let wrong = wrong.iter().map(|&wrong| wrong.to_owned()).collect();
        Sum { tally, wrong, ..Sum::default() }.outcome()
    }

    #[test]
    fn a_run_passes_only_if_every_listed_test_did() {
        let good = Tally { passed: 3, failed: 0, ignored: 0 };
        assert!(matches!(sum(good, &[]), Outcome::Passed(found) if found == "3 passed, 0 failed, 0 ignored"));
        assert!(matches!(sum(good, &["node all: 1 of its tests have no result"]), Outcome::Failed(_)));
        assert!(matches!(sum(Tally { failed: 1, ..good }, &[]), Outcome::Failed(_)));
        assert!(matches!(sum(Tally { ignored: 1, ..good }, &[]), Outcome::Failed(_)));
    }
}
