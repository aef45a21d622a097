//! The step that runs the tests and counts them.

use std::path::Path;

use crate::outcome::{BUILD_ALL, Outcome, cargo, line, shown};
use crate::watch::{Ended, PATIENCE, watch};

/// Runs every test of the workspace. `soak` multiplies the repetitions of process tests that draw at random.
pub(crate) fn run(root: &Path, soak: u32) -> Outcome {
    // Built once here; without `ROLLHOUSE_BIN` each process test asks cargo for it.
    if let Err(what) = shown(&mut cargo(root, &BUILD_ALL)) {
        return Outcome::Failed(what);
    }
    let binary = std::env::current_exe().map(|here| here.with_file_name(BINARY));
    let arguments = ["test", "--workspace", "--locked", "--no-fail-fast"];
    let mut command = cargo(root, &arguments);
    command.env("ROLLHOUSE_SOAK", soak.to_string());
    // Both are built with the dev profile, so the binary lies beside this one.
    if let Ok(binary) = binary.as_ref()
        && binary.exists()
    {
        command.env("ROLLHOUSE_BIN", binary);
    }
    let mut tally = Tally::default();
    match watch(&mut command, PATIENCE, |text| tally.read(text)) {
        Ok(Ended::Itself(status)) if status.success() && tally.ignored == 0 => Outcome::Passed(tally.found()),
        Ok(Ended::Itself(status)) if status.success() => {
            Outcome::Failed(format!("{}; no test may be ignored", tally.found()))
        }
        Ok(Ended::Itself(_)) => Outcome::Failed(tally.found()),
        Ok(killed @ Ended::Killed(_)) => Outcome::Failed(format!("{}; {killed}", tally.found())),
        Err(error) => Outcome::Failed(format!("{}: {error}", line(&command))),
    }
}

const BINARY: &str = if cfg!(windows) { "rollhouse.exe" } else { "rollhouse" };

/// Sums of the `test result:` lines.
#[derive(Debug, Default, PartialEq)]
struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Tally {
    fn read(&mut self, text: &str) {
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

    fn found(&self) -> String {
        format!("{} passed, {} failed, {} ignored", self.passed, self.failed, self.ignored)
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
}
