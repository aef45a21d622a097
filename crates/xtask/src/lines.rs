//! Counts the project's lines of Rust without tests, comments and blanks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::source::{Kind, Source};

/// Prints the number of lines of each crate as they are here, and beside them those of `commit` if one is named.
pub(crate) fn run(root: &Path, commit: Option<&str>) -> Result<(), String> {
    let now = count_folder(root)?;
    let before = commit.map(|commit| count_commit(root, commit)).transpose()?.unwrap_or_default();
    let names: BTreeSet<&String> = now.keys().chain(before.keys()).collect();
    let of = |counts: &Counts, name: &str| counts.get(name).copied().unwrap_or(0);
    let row = |name: &str, now: usize, before: usize| match commit {
        Some(_) => eprintln!("{name:<14} {before:>7} {now:>7} {:>+7}", now as i64 - before as i64),
        None => eprintln!("{name:<14} {now:>7}"),
    };
    for name in names {
        row(name, of(&now, name), of(&before, name));
    }
    row("all", now.values().sum(), before.values().sum());
    Ok(())
}

/// Number of lines by crate.
type Counts = BTreeMap<String, usize>;

fn count_folder(root: &Path) -> Result<Counts, String> {
    let listed = git(root, &["ls-files", "crates"])?;
    let read =
        |path: &str| std::fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"));
    // A file that was removed and not committed yet is no longer there.
    count(listed.lines().filter(|path| root.join(path).exists()), read)
}

fn count_commit(root: &Path, commit: &str) -> Result<Counts, String> {
    let listed = git(root, &["ls-tree", "-r", "--name-only", commit, "crates"])?;
    count(listed.lines(), |path| git(root, &["show", &format!("{commit}:{path}")]))
}

fn count<'a>(
    paths: impl Iterator<Item = &'a str>,
    read: impl Fn(&str) -> Result<String, String>,
) -> Result<Counts, String> {
    let mut counts = Counts::new();
    for path in paths.filter(|path| path.ends_with(".rs")) {
        let mut parts = path.split('/').skip(1);
        if let (Some(name), Some("src")) = (parts.next(), parts.next()) {
            *counts.entry(name.to_owned()).or_default() += lines_of(&read(path)?);
        }
    }
    Ok(counts)
}

/// Returns the number of lines with code or a part of a literal, outside modules of tests.
fn lines_of(text: &str) -> usize {
    let source = Source::cut(text);
    let code = source.code_lines();
    let tests = code.iter().position(|(_, code)| code.trim() == "#[cfg(test)]");
    // Modules of tests stand at the end of their file.
    let inline =
        |at: &usize| code.get(at + 1).is_some_and(|(_, code)| code.contains("mod ") && code.contains('{'));
    let end = tests.filter(inline).map_or(usize::MAX, |at| code[at].0);
    let mut lines = BTreeSet::new();
    for piece in source.pieces().iter().filter(|piece| piece.kind != Kind::Comment) {
        let written = piece.text.split('\n').enumerate().filter(|(_, text)| !text.trim().is_empty());
        lines.extend(written.map(|(offset, _)| piece.line + offset).filter(|&line| line < end));
    }
    lines.len()
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(arguments).current_dir(root).output();
    let output = output.map_err(|error| format!("cannot start git: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    output
        .status
        .success()
        .then_some(said)
        .ok_or_else(|| format!("git {}: {}", arguments.join(" "), output.status))
}

#[cfg(test)]
mod tests {
    use super::lines_of;

    #[test]
    fn code_and_literals_count_and_comments_blanks_and_tests_do_not() {
        let text = "//! A page.\n\nfn f() {\n    // Why.\n    let text = \"one\n two\";\n}\n\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
        assert_eq!(lines_of(text), 4);
    }

    #[test]
    fn a_module_of_tests_in_a_file_of_its_own_ends_nothing() {
        assert_eq!(lines_of("#[cfg(test)]\nmod model;\nfn f() {}\n"), 3);
    }
}
