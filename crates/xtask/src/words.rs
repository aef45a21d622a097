//! The words of docs/architecture.md, held against the code.
//!
//! The page's glossary names a public type for each word; no type has one of the names that were given up; a
//! paragraph of the page is short; and the places that CONTRIBUTING.md sends a reader to are there.

use std::fs;
use std::path::Path;

/// A page, the line of it, and what is wrong there.
pub(crate) type Finding = (String, usize, String);

/// Checks both pages against the Rust files, each with its path from the root.
pub(crate) fn check(root: &Path, files: &[(String, String)]) -> Result<Vec<Finding>, String> {
    let read = |page: &str| fs::read_to_string(root.join(page)).map_err(|error| format!("{page}: {error}"));
    let (design, contributing) = (read(DESIGN)?, read(CONTRIBUTING)?);
    let types = declared_types(files);
    let mut findings = glossary(&design, &types);
    findings.extend(long_paragraphs(&design));
    findings.extend(missing_places(&contributing, &design, |path| root.join(path).exists()));
    findings.extend(types.iter().filter(|of| GIVEN_UP.contains(&of.name.as_str())).map(|of| {
        (of.path.clone(), of.line, format!("`{}` says nothing to a newcomer; name what it is", of.name))
    }));
    Ok(findings)
}

const DESIGN: &str = "docs/architecture.md";
const CONTRIBUTING: &str = "CONTRIBUTING.md";

/// Most words of a paragraph of the design.
const PARAGRAPH: usize = 120;

/// Names of types that were given up because readers had to translate them.
const GIVEN_UP: [&str; 8] = ["Seat", "Lent", "Desk", "Hall", "Told", "Shown", "Asked", "State"];

/// A type and where it is declared.
struct DeclaredType {
    name: String,
    is_public: bool,
    path: String,
    line: usize,
}

fn declared_types(files: &[(String, String)]) -> Vec<DeclaredType> {
    let mut types = Vec::new();
    for (path, text) in files {
        for (line, code) in (1..).zip(text.lines()) {
            let words = code.split([' ', '<', '(', ')', '{', ';', ':']);
            let mut words = words.filter(|word| !word.is_empty()).peekable();
            let is_public = words.next_if_eq(&"pub").is_some();
            let is_restricted = words.next_if(|word| matches!(*word, "crate" | "super")).is_some();
            // A `type` that is indented belongs to an implementation of a trait, which named it.
            let declares = match words.next() {
                Some("struct" | "enum" | "trait") => true,
                Some("type") => !code.starts_with(' '),
                _ => false,
            };
            if declares && let Some(name) = words.next() {
                let is_public = is_public && !is_restricted;
                types.push(DeclaredType { name: name.to_owned(), is_public, path: path.clone(), line });
            }
        }
    }
    types
}

/// Words of the glossary whose type is not declared.
fn glossary(design: &str, types: &[DeclaredType]) -> Vec<Finding> {
    let rows = (1..).zip(design.lines()).skip_while(|(_, line)| !line.starts_with("| word "));
    let rows = rows.take_while(|(_, line)| line.starts_with('|')).skip(2);
    let named = rows.map(|(line, row)| (line, row.split('|').nth(3).unwrap_or("").trim().trim_matches('`')));
    let missing = named.filter(|(_, name)| !types.iter().any(|of| of.is_public && of.name == *name));
    missing
        .map(|(line, name)| (DESIGN.to_owned(), line, format!("there is no public type `{name}`")))
        .collect()
}

fn long_paragraphs(design: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut words, mut began) = (0, 1);
    for (line, text) in (1..).zip(design.lines().chain([""])) {
        let is_prose = !text.is_empty() && !text.starts_with("    ") && !text.starts_with('|');
        if is_prose && words > 0 && !text.starts_with("- ") {
            words += text.split_whitespace().count();
            continue;
        }
        if words > PARAGRAPH {
            let what = format!("a paragraph of {words} words; at most {PARAGRAPH} can be followed");
            findings.push((DESIGN.to_owned(), began, what));
        }
        (words, began) = (if is_prose { text.split_whitespace().count() } else { 0 }, line);
    }
    findings
}

/// Sections and files of the table of questions that are not there.
fn missing_places(contributing: &str, design: &str, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let rows = (1..).zip(contributing.lines()).skip_while(|(_, line)| !line.starts_with("| question "));
    let mut findings = Vec::new();
    for (line, row) in rows.take_while(|(_, line)| line.starts_with('|')).skip(2) {
        let mut cells = row.split('|').skip(2).map(str::trim);
        let section = cells.next().unwrap_or("");
        let has_section = design.lines().any(|line| {
            line.starts_with('#') && line.trim_start_matches('#').trim() == section && !section.is_empty()
        });
        if !has_section {
            findings.push((CONTRIBUTING.to_owned(), line, format!("{DESIGN} has no section `{section}`")));
        }
        let place = cells.next().unwrap_or("");
        for path in place.split('`').skip(1).step_by(2).filter(|path| !exists(path)) {
            findings.push((CONTRIBUTING.to_owned(), line, format!("there is no `{path}`")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_without_a_public_type_is_found() {
        let design = "| word | meaning | type |\n|---|---|---|\n| env | a world | `EnvSpec` |\n| lane | a row | `Lane` |\n\n";
        let files = [("crates/core/src/a.rs".to_owned(), "pub struct EnvSpec<T> {\nstruct Lane;".to_owned())];
        let found = glossary(design, &declared_types(&files));
        assert_eq!(found, [(DESIGN.to_owned(), 4, "there is no public type `Lane`".to_owned())]);
    }

    #[test]
    fn types_are_found_with_their_visibility_and_associated_types_stay_out() {
        let text =
            "pub(super) struct Told<'a> {\n    type State = usize;\npub type Row = (u8, u8);\nenum Asked {";
        let files = [("tests/a.rs".to_owned(), text.to_owned())];
        let found: Vec<_> =
            declared_types(&files).into_iter().map(|of| (of.name, of.is_public, of.line)).collect();
        let expected = [("Told", false, 1), ("Row", true, 3), ("Asked", false, 4)];
        assert_eq!(found, expected.map(|(name, is_public, line)| (name.to_owned(), is_public, line)));
    }

    #[test]
    fn a_long_paragraph_is_found_and_a_long_table_or_list_is_not() {
        let long = "word ".repeat(121);
        let short = "word ".repeat(100);
        assert_eq!(long_paragraphs(&format!("# A\n\n{long}\n")).len(), 1);
        assert_eq!(long_paragraphs(&format!("- {short}\n- {short}\n\n| {long} |\n")), []);
    }

    #[test]
    fn a_question_that_leads_nowhere_is_found() {
        let page =
            "| question | section | place |\n|---|---|---|\n| why? | 2. Crates | crate core, `a.rs` |\n";
        let found = |design, exists| missing_places(page, design, |_| exists).len();
        assert_eq!(
            (found("## 2. Crates", true), found("## 2. Crates", false), found("## 3. Others", false)),
            (0, 1, 2)
        );
    }
}
