//! Checks the table of all threads and background tasks: each crate's in its `lib.rs`, all of them in
//! docs/supervision.md. Each place that starts one names its row.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::source::{Kind, Source};

/// A disagreement, as (path, line, text).
pub(crate) type Disagreement = (String, usize, String);

/// Compares the tables of the crates under `root` with the page, and with the places in `files` that start something.
///
/// # Errors
/// If a file cannot be read.
pub(crate) fn check(root: &Path, files: &[(String, String)]) -> Result<Vec<Disagreement>, String> {
    let page = fs::read_to_string(root.join(PAGE)).map_err(|error| format!("cannot read {PAGE}: {error}"))?;
    Ok(disagreements(&page, files))
}

fn disagreements(page: &str, files: &[(String, String)]) -> Vec<Disagreement> {
    let mut found = Vec::new();
    let mut tables: BTreeMap<&str, Vec<Row>> = BTreeMap::new();
    for (path, text) in files {
        if let Some(name) = path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/src/lib.rs")) {
            tables.insert(name, rows(text, "//! ", CRATE_HEAD));
        }
    }
    let mut on_page: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for mut row in rows(page, "", PAGE_HEAD) {
        let name = row.cells.remove(0);
        on_page.entry(name).or_default().push(row);
    }
    for (name, table) in &tables {
        let shown = on_page.remove(*name).unwrap_or_default();
        let cells = |rows: &[Row]| rows.iter().map(|row| row.cells.clone()).collect::<Vec<_>>();
        if cells(&shown) != cells(table) {
            let line = shown.first().map_or(1, |row| row.line);
            found.push((PAGE.to_owned(), line, format!("the rows of {name} are not those of its lib.rs")));
        }
    }
    for (name, rows) in on_page {
        found.push((PAGE.to_owned(), rows[0].line, format!("there is no crate {name}")));
    }
    let mut named: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in files {
        let Some((name, _)) = path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/")) else {
            continue;
        };
        if EXEMPT.iter().any(|exempt| path.starts_with(exempt)) {
            continue;
        }
        let table = tables.get(name).map_or(&[][..], Vec::as_slice);
        let Started { places, rows } = started(text);
        for line in places {
            let what = format!("what is started here needs a comment `{MARK} ROW`, its row in lib.rs");
            found.push((path.clone(), line, what));
        }
        for (line, task) in rows.into_iter().filter(|(_, task)| task != CALLERS) {
            if table.iter().any(|row| row.cells[0] == task) {
                named.entry(name).or_default().insert(task);
            } else {
                found.push((path.clone(), line, format!("no row `{task}` in the crate's lib.rs")));
            }
        }
    }
    for (name, table) in &tables {
        let named = named.remove(name).unwrap_or_default();
        for row in table.iter().filter(|row| !named.contains(&row.cells[0])) {
            let what = format!("nothing in the crate starts `{}`", row.cells[0]);
            found.push((format!("crates/{name}/src/lib.rs"), row.line, what));
        }
    }
    found
}

/// A row of a table: its cells without links, and its line.
struct Row {
    cells: Vec<String>,
    line: usize,
}

/// Returns the rows of the tables under that head, whose lines begin with `prefix`.
fn rows(text: &str, prefix: &str, head: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        let row = line.strip_prefix(prefix).filter(|row| row.starts_with('|'));
        match row {
            Some(row) if row == head => inside = true,
            Some(row) if inside && !row.starts_with("|--") => {
                let cells = row.trim_matches('|').split(" | ").map(|cell| plain(cell.trim())).collect();
                rows.push(Row { cells, line: index + 1 });
            }
            Some(_) => {}
            None => inside = false,
        }
    }
    rows
}

/// Returns a cell without the brackets and targets of links.
fn plain(cell: &str) -> String {
    let mut out = String::new();
    let mut rest = cell;
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        let Some((name, after)) = after.split_once(']') else { break };
        out.push_str(name);
        rest = match after.strip_prefix('(').and_then(|target| target.split_once(')')) {
            Some((_, after)) => after,
            None => after,
        };
    }
    out.push_str(rest);
    out
}

/// The threads and tasks that a file starts outside its tests.
struct Started {
    /// Lines on which a thread or a task is started and no comment just above names its row.
    places: Vec<usize>,
    /// The rows that comments name, with their lines.
    rows: Vec<(usize, String)>,
}

fn started(text: &str) -> Started {
    let source = Source::cut(text);
    let code = source.code_lines();
    let tests = code.iter().find(|(_, code)| code.contains("#[cfg(test)]"));
    let end = tests.map_or(usize::MAX, |(line, _)| *line);
    let comments = source.pieces().iter().filter(|piece| piece.kind == Kind::Comment && piece.line < end);
    let rows: Vec<(usize, String)> = comments
        .filter_map(|piece| {
            let task = piece.text.split_once(MARK)?.1.trim().trim_end_matches('.');
            Some((piece.line, task.to_owned()))
        })
        .collect();
    let starts = |code: &str| {
        STARTS.iter().any(|start| code.contains(start)) && !PROCESSES.iter().any(|start| code.contains(start))
    };
    let starting = code.iter().filter(|(line, code)| *line < end && starts(code)).map(|(line, _)| *line);
    let named = |line: &usize| rows.iter().any(|(at, _)| at <= line && at + REACH >= *line);
    Started { places: starting.filter(|line| !named(line)).collect(), rows }
}

const PAGE: &str = "docs/supervision.md";
const CRATE_HEAD: &str = "| thread or task | runs on | on cancel | on error |";
const PAGE_HEAD: &str = "| crate | thread or task | runs on | on cancel | on error |";

/// The beginning of the comment that names the row.
const MARK: &str = "// Task:";

/// The row for starts on behalf of callers, who name their own.
const CALLERS: &str = "of whoever calls";

/// Number of lines above a start in which its comment stands.
const REACH: usize = 3;

/// The calls that start a thread or a task.
const STARTS: [&str; 4] = [".spawn(", "::spawn(", "spawn_blocking(", "spawn_local("];

/// Calls that look like them and start a process.
const PROCESSES: [&str; 2] = [".spawn()", "Process::spawn("];

/// Files whose threads run for a bench or a test and end with it.
const EXEMPT: [&str; 5] = [
    "crates/arena/src/model.rs",
    "crates/bench",
    "crates/node/src/injected.rs",
    "crates/simulation/",
    "crates/xtask/",
];

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: &str = "//! What it does.\n//!\n//! | thread or task | runs on | on cancel | on error |\n\
        //! |---|---|---|---|\n//! | writer | own thread | ends with [`Owner`] | latches |\n//!\n//! More.\n";
    const PAGE_TEXT: &str = "# Supervision\n\n| crate | thread or task | runs on | on cancel | on error |\n\
        |---|---|---|---|---|\n| a | writer | own thread | ends with `Owner` | latches |\n";

    fn whats(page: &str, lib: &str, code: &str) -> Vec<String> {
        let files =
            [("crates/a/src/lib.rs", lib), ("crates/a/src/code.rs", code)].map(|(p, t)| (p.into(), t.into()));
        disagreements(page, &files)
            .into_iter()
            .map(|(path, line, what)| format!("{path}:{line}: {what}"))
            .collect()
    }

    #[test]
    fn a_page_that_says_what_the_crates_say_and_starts_that_name_their_rows_agree() {
        let code = "fn f() {\n    // Task: writer.\n    thread.spawn(run);\n}\n\
            #[cfg(test)]\nmod tests { fn g() { spawn::spawn(h); } }\n";
        assert_eq!(whats(PAGE_TEXT, LIB, code), [""; 0]);
        let process = "// Task: writer.\n\n\n\n\nlet child = command.spawn();";
        assert_eq!(whats(PAGE_TEXT, LIB, process), [""; 0]);
    }

    #[test]
    fn a_start_without_a_row_a_row_without_a_start_and_a_page_that_differs_are_found() {
        let nameless = "let task = tokio::spawn(run);";
        let found = whats(PAGE_TEXT, LIB, nameless);
        assert!(found[0].starts_with("crates/a/src/code.rs:1: what is started here"), "{found:?}");
        assert_eq!(found[1], "crates/a/src/lib.rs:5: nothing in the crate starts `writer`");
        let unknown = "// Task: writer.\n// Task: reader.\nthread.spawn(run);";
        assert_eq!(
            whats(PAGE_TEXT, LIB, unknown),
            ["crates/a/src/code.rs:2: no row `reader` in the crate's lib.rs"]
        );
        let code = "// Task: writer.\nthread.spawn(run);";
        let differs = PAGE_TEXT.replace("latches", "ends");
        assert_eq!(
            whats(&differs, LIB, code),
            ["docs/supervision.md:5: the rows of a are not those of its lib.rs"]
        );
        let more = format!("{PAGE_TEXT}| b | reader | - | - | - |\n");
        assert_eq!(whats(&more, LIB, code), ["docs/supervision.md:6: there is no crate b"]);
    }
}
