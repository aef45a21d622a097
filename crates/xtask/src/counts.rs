//! Numbers of tests in the lines with which runs of tests close.

use std::fmt;
use std::iter::Sum;

/// How many tests ended how.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Counts {
    /// Sums the numbers before the words that libtest and pytest use, wherever they stand.
    pub(crate) fn of(text: &str) -> Self {
        let words: Vec<&str> = text.split([' ', ',', ';', ':']).filter(|word| !word.is_empty()).collect();
        let mut counts = Self::default();
        for pair in words.windows(2) {
            let Ok(number) = pair[0].parse::<u64>() else { continue };
            match pair[1] {
                "passed" => counts.passed += number,
                "failed" | "error" | "errors" => counts.failed += number,
                "skipped" | "ignored" => counts.skipped += number,
                _ => {}
            }
        }
        counts
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, each| Self {
            passed: sum.passed + each.passed,
            failed: sum.failed + each.failed,
            skipped: sum.skipped + each.skipped,
        })
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_kinds_of_tests_are_summed() {
        let lines = [
            "ok       1913 passed, 0 failed, 0 ignored",
            "ok       gymnasium 1.2.2: 2 failed, 300 passed, 4 skipped in 61.02s (0:01:01); 20 passed, 1 error in 3.1s",
            "ok       rustfmt would change nothing",
        ];
        let sum: Counts = lines.into_iter().map(Counts::of).sum();
        assert_eq!(sum.to_string(), "2233 passed, 3 failed, 4 skipped");
        assert!(Counts::of(lines[2]).is_empty());
    }
}
