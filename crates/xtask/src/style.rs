//! The house rules that a script can check.

use std::fs;
use std::path::{Path, PathBuf};

use crate::outcome::Outcome;
use crate::source::{Kind, Source};
use crate::{circles, mutations, named_tests, secrets, sizes, tasks, test_files, words};

/// Checks every Rust file of the workspace, looks for secrets in all files, and prints each finding with file and line.
pub(crate) fn check(root: &Path) -> Outcome {
    let checked = texts_of(root).and_then(|texts| Ok((texts.len(), findings_of(root, &texts)?)));
    match checked {
        Ok((files, findings)) if findings.is_empty() => {
            Outcome::Passed(format!("{files} files follow the rules a script can check"))
        }
        Ok((_, findings)) => {
            findings.iter().for_each(|finding| eprintln!("{finding}"));
            Outcome::Failed(format!("{} findings", findings.len()))
        }
        Err(error) => Outcome::Failed(error),
    }
}

/// Returns every Rust file, as (path below the root, text).
fn texts_of(root: &Path) -> Result<Vec<(String, String)>, String> {
    let mut files = Vec::new();
    for folder in ["crates", "tests"] {
        rust_files(&root.join(folder), &mut files)
            .map_err(|error| format!("cannot list {folder}: {error}"))?;
    }
    files.sort();
    let text_of = |file: &PathBuf| {
        let text =
            fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        Ok((file.strip_prefix(root).unwrap_or(file).to_string_lossy().replace('\\', "/"), text))
    };
    files.iter().map(text_of).collect()
}

/// Returns what is wrong with the files, each finding as a line to print.
fn findings_of(root: &Path, texts: &[(String, String)]) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for (path, text) in texts {
        let findings = findings_in(path, text).into_iter();
        found.extend(findings.map(|finding| format!("{path}:{}: {}", finding.line, finding.what)));
    }
    let placed = |(path, line, what): (String, usize, String)| format!("{path}:{line}: {what}");
    found.extend(tasks::check(root, texts)?.into_iter().map(placed));
    let missing = named_tests::missing(root, texts)?.into_iter();
    found.extend(
        missing.map(|(line, name)| format!("{}:{line}: there is no test `{name}`", named_tests::PAGE)),
    );
    let unnamed = test_files::unnamed(root, texts)?.into_iter();
    found.extend(unnamed.map(|path| format!("{path}: no program of tests names it, so it never runs")));
    found.extend(words::check(root, texts)?.into_iter().map(placed));
    found.extend(secrets::check(root)?.into_iter().map(placed));
    found.extend(sizes::check(texts).into_iter().map(placed));
    found.extend(circles::check(texts).into_iter().map(|(path, what)| format!("{path}: {what}")));
    found.extend(mutations::stale(root));
    Ok(found)
}

#[derive(Debug, PartialEq)]
struct Finding {
    line: usize,
    what: String,
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            rust_files(&path, found)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

fn findings_in(path: &str, text: &str) -> Vec<Finding> {
    let source = Source::cut(text);
    let mut findings = Vec::new();
    forbids_unsafe(path, &source, &mut findings);
    explains_unsafe(path, &source, &mut findings);
    calls_nothing_banned(&source, &mut findings);
    words_errors_well(&source, &mut findings);
    findings
}

/// Checks that each crate root forbids unsafe code unless the crate may hold some.
fn forbids_unsafe(path: &str, source: &Source, findings: &mut Vec<Finding>) {
    let root = path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
    if !root || UNSAFE_CRATES.iter().any(|c| path.starts_with(c)) {
        return;
    }
    if !source.code_lines().iter().any(|(_, code)| code.contains("#![forbid(unsafe_code)]")) {
        findings.push(Finding { line: 1, what: "the crate root lacks #![forbid(unsafe_code)]".into() });
    }
}

/// Checks that `unsafe` stands in the allowed files only, each time under a comment that says why it is sound.
fn explains_unsafe(path: &str, source: &Source, findings: &mut Vec<Finding>) {
    let allowed = UNSAFE_FILES.iter().any(|f| path.starts_with(f));
    let comments: Vec<(usize, &str)> = source
        .pieces()
        .iter()
        .filter(|p| p.kind == Kind::Comment)
        .map(|p| (p.line, p.text.as_str()))
        .collect();
    for (line, code) in source.code_lines() {
        for (at, _) in code.match_indices("unsafe") {
            if !is_word(&code, at, "unsafe".len()) {
                continue;
            }
            if !allowed {
                findings.push(Finding { line, what: "unsafe outside the files that may hold it".into() });
                continue;
            }
            let after = code[at..].trim_start_matches("unsafe").trim_start();
            let explained = comments.iter().any(|&(l, text)| {
                l <= line
                    && l + SAFETY_REACH >= line
                    && (text.contains("SAFETY:") || text.contains("# Safety"))
            });
            // Signatures and function pointers promise; blocks and impls rely on a promise.
            if (after.starts_with('{') || after.starts_with("impl")) && !explained {
                findings.push(Finding { line, what: "unsafe without a SAFETY: note above it".into() });
            }
        }
    }
}

fn is_word(code: &str, at: usize, length: usize) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    !code[..at].ends_with(part) && !code[at + length..].starts_with(part)
}

/// Checks that nothing is unbounded and no test is ignored.
fn calls_nothing_banned(source: &Source, findings: &mut Vec<Finding>) {
    for (line, code) in source.code_lines() {
        for (call, why) in BANNED {
            if code.contains(call) {
                findings.push(Finding { line, what: format!("`{call}`: {why}") });
            }
        }
    }
}

/// Checks that messages of errors begin in lower case and end without a full stop.
fn words_errors_well(source: &Source, findings: &mut Vec<Finding>) {
    let mut in_error = false;
    for piece in source.pieces() {
        match piece.kind {
            Kind::Code => {
                for text in piece.text.split('\n') {
                    match text.strip_prefix("impl fmt::Display for ") {
                        Some(name) => in_error = ERROR_WORDS.iter().any(|w| name.contains(w)),
                        None if text.starts_with('}') => in_error = false,
                        None => {}
                    }
                }
            }
            Kind::Literal if in_error => {
                let begins_upper = piece.text.starts_with(|c: char| c.is_ascii_uppercase());
                // An all-capital first word is a name such as CRC.
                let second_lower =
                    piece.text.chars().nth(1).is_some_and(|c| c.is_ascii_lowercase() || c == ' ');
                if begins_upper && second_lower {
                    findings.push(Finding {
                        line: piece.line,
                        what: "an error message begins in upper case".into(),
                    });
                }
                if piece.text.ends_with('.') {
                    findings.push(Finding {
                        line: piece.line,
                        what: "an error message ends with a full stop".into(),
                    });
                }
            }
            Kind::Comment | Kind::Literal => {}
        }
    }
}

/// The crates whose roots may allow unsafe code.
const UNSAFE_CRATES: [&str; 4] = ["crates/arena/", "crates/env/", "crates/plugin/", "crates/python/"];

/// The files in which unsafe code may stand: memory shared with peers or with NumPy, the dispatch to instruction sets,
/// and calls to and from C.
const UNSAFE_FILES: [&str; 4] =
    ["crates/arena/", "crates/env/src/dispatch.rs", "crates/plugin/src/", "crates/python/src/"];

/// Number of lines above an unsafe block in which its note may begin.
const SAFETY_REACH: usize = 8;

const ERROR_WORDS: [&str; 4] = ["Error", "Unknown", "Illegal", "Refus"];

const BANNED: [(&str, &str); 5] = [
    ("unbounded_channel(", "give the channel a named limit"),
    ("mpsc::channel(", "give the channel a named limit"),
    ("channel::unbounded(", "give the channel a named limit"),
    ("do_send(", "it ignores the mailbox's bound; use try_send or send"),
    ("#[ignore", "a test runs or does not exist"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(path: &str, text: &str) -> Vec<String> {
        findings_in(path, text).into_iter().map(|f| f.what).collect()
    }

    #[test]
    fn unsafe_is_found_outside_its_files_but_not_in_comments_and_names() {
        let text = "fn f() { unsafe { g() } } // unsafe\n#[allow(unsafe_code)] fn h() {}";
        assert_eq!(whats("crates/core/src/x.rs", text), ["unsafe outside the files that may hold it"]);
    }

    #[test]
    fn an_unsafe_block_needs_its_note() {
        let bare = "fn f() {\n    unsafe { g() }\n}";
        let noted = "fn f() {\n    // SAFETY: g has no precondition.\n    unsafe { g() }\n}";
        assert_eq!(whats("crates/arena/src/x.rs", bare), ["unsafe without a SAFETY: note above it"]);
        assert_eq!(whats("crates/arena/src/x.rs", noted), [""; 0]);
    }

    #[test]
    fn a_crate_root_must_forbid_unsafe_code() {
        assert_eq!(
            whats("crates/core/src/lib.rs", "//! Words."),
            ["the crate root lacks #![forbid(unsafe_code)]"]
        );
        assert_eq!(whats("crates/core/src/lib.rs", "#![forbid(unsafe_code)]"), [""; 0]);
    }

    #[test]
    fn unbounded_channels_are_found() {
        assert_eq!(whats("crates/core/src/x.rs", "let c = mpsc::channel();").len(), 1);
        assert_eq!(whats("crates/core/src/x.rs", "let c = mpsc::sync_channel(LIMIT);"), [""; 0]);
    }

    #[test]
    fn error_messages_are_lower_case_without_a_full_stop() {
        let text = |message: &str| {
            format!("impl fmt::Display for OpenError {{\n    fn fmt() {{ write!(f, \"{message}\") }}\n}}\n")
        };
        assert_eq!(whats("crates/core/src/x.rs", &text("No such file")).len(), 1);
        assert_eq!(whats("crates/core/src/x.rs", &text("no such file.")).len(), 1);
        assert_eq!(whats("crates/core/src/x.rs", &text("CRC-32C is wrong")), [""; 0]);
        assert_eq!(whats("crates/core/src/x.rs", &text("no such file {0}")), [""; 0]);
    }
}
