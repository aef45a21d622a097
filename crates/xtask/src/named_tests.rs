//! Checks that each test that docs/faults.md names exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Returns the tests that the page names and no file in `files` has, as (line, name).
///
/// # Errors
/// If the page cannot be read.
pub(crate) fn missing(root: &Path, files: &[(String, String)]) -> Result<Vec<(usize, String)>, String> {
    let page = fs::read_to_string(root.join(PAGE)).map_err(|error| format!("cannot read {PAGE}: {error}"))?;
    Ok(missing_from(&page, files))
}

fn missing_from(page: &str, files: &[(String, String)]) -> Vec<(usize, String)> {
    let mut there = BTreeSet::new();
    for (_, text) in files {
        let names = text.split("fn ").skip(1).filter_map(|after| after.split(['(', '<']).next());
        there.extend(names);
    }
    let mut missing = Vec::new();
    for (index, line) in page.lines().enumerate() {
        let quoted = line.split('`').skip(1).step_by(2);
        let tests = quoted.filter(|name| is_test(name) && !there.contains(name));
        missing.extend(tests.map(|name| (index + 1, name.to_owned())));
    }
    missing
}

/// Returns whether it reads like a test's name: a sentence.
fn is_test(name: &str) -> bool {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.chars().all(word) && name.matches('_').count() >= WORDS - 1
}

/// The path of the page.
pub(crate) const PAGE: &str = "docs/faults.md";

/// Number of words from which a name is a test's: no key, figure or type has so many.
const WORDS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_the_page_names_and_nobody_has_is_found() {
        let page = "| full | `busy` | `when_full` | `a_full_disk_is_told`, `what_is_not_there_is_found` |";
        let files = [("a.rs".to_owned(), "#[test]\nfn a_full_disk_is_told() {}".to_owned())];
        assert_eq!(missing_from(page, &files), [(1, "what_is_not_there_is_found".to_owned())]);
    }
}
