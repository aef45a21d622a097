//! The lines of a test program: counts, and how long each test took.
//!
//! A program gives no times of tests on stable Rust. It begins its tests in the order in which it lists them, as many at a
//! time as it has threads, and begins the next when one ends. So a test began when an earlier one ended.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What the lines of one run have shown so far.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Tests that have not begun, in their order.
    waiting: VecDeque<String>,
    running: Vec<(String, Instant)>,
    /// Tests that have ended, with the time that each took.
    pub(crate) took: Vec<(Duration, String)>,
    /// Names of the tests that have failed.
    pub(crate) failed: Vec<String>,
    pub(crate) tally: Tally,
    threads: usize,
    listed: u64,
}

impl Progress {
    /// A run of these tests, in the order in which the program lists them, on so many threads.
    pub(crate) fn new(listed: Vec<String>, threads: usize) -> Self {
        let all = listed.len() as u64;
        let waiting = listed.into();
        let (running, took, failed) = (Vec::new(), Vec::new(), Vec::new());
        Self { waiting, running, took, failed, tally: Tally::default(), threads, listed: all }
    }

    /// Takes in a line of the program's that came now. Returns whether it is about one test.
    pub(crate) fn read(&mut self, line: &str, now: Instant) -> bool {
        if line.starts_with("running ") {
            self.begin(now);
        }
        self.tally.read(line);
        let Some(rest) = line.strip_prefix("test ").filter(|rest| !rest.starts_with("result: ")) else {
            return false;
        };
        // What runs for long is named, too.
        let (test, result) = rest.rsplit_once(" ... ").unwrap_or_default();
        let test = test.strip_suffix(" - should panic").unwrap_or(test);
        if result == "FAILED" {
            self.failed.push(test.to_owned());
        }
        if let Some(at) = self.running.iter().position(|(name, _)| name == test) {
            let (name, began) = self.running.swap_remove(at);
            self.took.push((now.saturating_duration_since(began), name));
            self.begin(now);
        }
        true
    }

    fn begin(&mut self, now: Instant) {
        while self.running.len() < self.threads {
            let Some(next) = self.waiting.pop_front() else { return };
            self.running.push((next, now));
        }
    }

    /// Returns how many of the listed tests have no result.
    pub(crate) fn lost(&self) -> u64 {
        self.listed.saturating_sub(self.tally.all())
    }

    /// Returns the names of the tests that run.
    pub(crate) fn running(&self) -> Vec<&str> {
        self.running.iter().map(|(name, _)| name.as_str()).collect()
    }
}

/// Returns the names in a program's answer to `--list --format terse`, in their order.
pub(crate) fn listed(answer: &str) -> Vec<String> {
    answer.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// Sums of the `test result:` lines.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl Tally {
    pub(crate) fn read(&mut self, text: &str) {
        let Some(counts) = text.strip_prefix("test result: ").and_then(|t| t.split_once(". ")) else {
            return;
        };
        for part in counts.1.split("; ") {
            let Some((number, word)) = part.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match word {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }

    pub(crate) fn add(&mut self, more: Self) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.ignored += more.ignored;
    }

    fn all(self) -> u64 {
        self.passed + self.failed + self.ignored
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} ignored", self.passed, self.failed, self.ignored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_summed_and_others_passed_over() {
        let mut tally = Tally::default();
        tally.read(
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s",
        );
        tally.read("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out");
        tally.read("test result matters in this test's name ... ok");
        assert_eq!(tally, Tally { passed: 15, failed: 2, ignored: 1 });
    }

    #[test]
    fn a_test_began_when_the_one_before_it_ended() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let listed = listed("a: test\nb: test\nc: test\nd: test\n\n4 tests, 0 benchmarks\n");
        let mut progress = Progress::new(listed, 2);
        let lines = [
            (0, "running 4 tests", false),
            (3, "test b ... ok", true),
            (4, "test c - should panic ... ok", true),
            (5, "test nothing of the list ... ok", true),
            (6, "test a has been running for over 60 seconds", true),
            (7, "test a ... FAILED", true),
            (8, "thread 'a' panicked at crates/x.rs", false),
            (9, "test d ... ignored, no network", true),
            (9, "test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured", false),
        ];
        for (at, line, shown) in lines {
            assert_eq!(progress.read(line, after(at)), shown, "{line}");
        }
        let took = |seconds, name: &str| (Duration::from_secs(seconds), name.to_owned());
        assert_eq!(progress.took, [took(3, "b"), took(1, "c"), took(7, "a"), took(5, "d")]);
        assert_eq!((progress.lost(), progress.running().len()), (0, 0));
        assert_eq!(progress.failed, ["a"]);
    }

    #[test]
    fn a_program_that_ends_early_has_lost_tests() {
        let mut progress = Progress::new(listed("a: test\nb: test\n"), 1);
        progress.read("running 2 tests", Instant::now());
        assert_eq!((progress.lost(), progress.running()), (2, vec!["a"]));
    }
}
