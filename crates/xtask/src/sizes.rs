//! How large a thing may be: fields of a struct, lines of a function, and its parameters. Tests may be larger.

use crate::circles;
use crate::source::Source;

/// A file, the line of it, and what is too large there.
type Finding = (String, usize, String);

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    Fields,
    Lines,
    Parameters,
}

impl Measure {
    const fn most(self) -> usize {
        match self {
            Self::Fields => 15,
            Self::Lines => 60,
            Self::Parameters => 6,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Fields => "fields",
            Self::Lines => "lines",
            Self::Parameters => "parameters",
        }
    }
}

/// Files in which something may be larger: the beginning of their paths, what may be, and why.
const EXEMPT: [(&str, Measure, &str); 4] = [
    ("crates/env/src/classic/", Measure::Parameters, "kernels: what they take is in registers"),
    (
        "crates/codec/src/openra/messages.rs",
        Measure::Fields,
        "each field of a message is a field on the wire",
    ),
    ("crates/plugin/src/abi.rs", Measure::Fields, "the layout is that of the C header"),
    (
        "crates/replay/src/code/run_record.rs",
        Measure::Fields,
        "each field of a run's record is a key in files of recordings",
    ),
];

/// Something whose size is counted.
#[derive(Debug, PartialEq)]
struct Counted {
    name: String,
    line: usize,
    measure: Measure,
    count: usize,
}

/// Returns what is too large in the crates' files outside tests, and exemptions that nothing needs.
pub(crate) fn check(files: &[(String, String)]) -> Vec<Finding> {
    let tests = circles::files_of_tests(files);
    let product = files.iter().filter(|(path, _)| path.contains("/src/") && !tests.contains(&&**path));
    let mut findings = Vec::new();
    let mut needed = [false; EXEMPT.len()];
    for (path, text) in product {
        for Counted { name, line, measure, count } in counted(text) {
            if count <= measure.most() {
                continue;
            }
            let exempt = EXEMPT.iter().position(|(of, what, _)| path.starts_with(of) && *what == measure);
            if let Some(exempt) = exempt {
                needed[exempt] = true;
                continue;
            }
            let (word, most) = (measure.word(), measure.most());
            findings.push((
                path.clone(),
                line,
                format!("`{name}` has {count} {word}, at most {most} are read at a glance"),
            ));
        }
    }
    let stale = EXEMPT
        .iter()
        .zip(needed)
        .filter(|((of, ..), needed)| !needed && files.iter().any(|(path, _)| path.starts_with(of)));
    findings.extend(stale.map(|((of, what, _), _)| {
        ((*of).to_owned(), 1, format!("nothing here needs its exemption from the limit of {}", what.word()))
    }));
    findings
}

/// Returns the sizes of the structs and functions of a file, without those of its tests.
fn counted(text: &str) -> Vec<Counted> {
    let words = words_of(text);
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() {
        if begins(&words[at..], &["#", "[", "cfg", "(", "test", ")", "]"]) {
            at = end_of_item(&words, at + 7);
            continue;
        }
        if words.get(at + 1).is_some_and(|name| name.text.starts_with(is_of_name)) {
            match words[at].text.as_str() {
                "fn" => function(&words, at, &mut found),
                "struct" => fields(&words, at, &mut found),
                _ => {}
            }
        }
        at += 1;
    }
    found
}

fn fields(words: &[Word], at: usize, found: &mut Vec<Counted>) {
    let opens = match find(words, at + 2, &["{", "(", ";", "where"]) {
        // What is bound there may have parentheses.
        bounds if words.get(bounds).is_some_and(|word| word.text == "where") => {
            find(words, bounds, &["{", ";"])
        }
        opens => opens,
    };
    if words.get(opens).is_some_and(|word| word.text != ";") {
        let (name, line, count) = (words[at + 1].text.clone(), words[at].line, parts(words, opens).len());
        found.push(Counted { name, line, measure: Measure::Fields, count });
    }
}

fn function(words: &[Word], at: usize, found: &mut Vec<Counted>) {
    let (name, line) = (&words[at + 1].text, words[at].line);
    let opens = find(words, at + 2, &["("]);
    let parameters = parts(words, opens);
    let has_receiver = parameters.first().is_some_and(|first| {
        first.iter().take_while(|word| word.text != ":").any(|word| word.text == "self")
    });
    let mut note = |measure, count| found.push(Counted { name: name.clone(), line, measure, count });
    note(Measure::Parameters, parameters.len() - usize::from(has_receiver));
    let body = find(words, closing(words, opens) + 1, &["{", ";"]);
    if words.get(body).is_some_and(|word| word.text == "{")
        && let Some(end) = words.get(closing(words, body))
    {
        note(Measure::Lines, end.line - line + 1);
    }
}

/// A name or a sign of the code.
#[derive(Debug)]
struct Word {
    text: String,
    line: usize,
}

/// Cuts code into names and signs, without comments, literals, characters and lifetimes. An arrow is one sign.
fn words_of(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    for (line, code) in Source::cut(text).code_lines() {
        let mut rest = code.as_str();
        while let Some(first) = rest.chars().next() {
            let length = match first {
                '\'' => quoted(rest),
                '-' | '=' if rest[1..].starts_with('>') => 2,
                _ if is_of_name(first) => rest.find(|c| !is_of_name(c)).unwrap_or(rest.len()),
                _ => first.len_utf8(),
            };
            let (word, after) = rest.split_at(length);
            if first != '\'' && !first.is_whitespace() {
                words.push(Word { text: word.to_owned(), line });
            }
            rest = after;
        }
    }
    words
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the length of the character or lifetime that begins here.
fn quoted(text: &str) -> usize {
    let inner = &text[1..];
    let is_escape = inner.starts_with('\\');
    let after = inner.char_indices().nth(if is_escape { 2 } else { 1 }).map_or(inner.len(), |(at, _)| at);
    match inner[after..].find('\'') {
        Some(0) => 1 + after + 1,
        Some(more) if is_escape => 1 + after + more + 1,
        _ => 1 + inner.find(|c| !is_of_name(c)).unwrap_or(inner.len()),
    }
}

fn begins(words: &[Word], with: &[&str]) -> bool {
    words.len() >= with.len() && words.iter().zip(with).all(|(word, with)| word.text == *with)
}

/// Returns how much deeper the code is nested behind a word.
fn deeper(word: &Word) -> isize {
    match word.text.as_str() {
        "(" | "[" | "{" | "<" => 1,
        ")" | "]" | "}" | ">" => -1,
        _ => 0,
    }
}

/// Returns the place of the first of the signs from `from` on that is not nested in anything.
fn find(words: &[Word], from: usize, signs: &[&str]) -> usize {
    let mut depth = 0;
    for (at, word) in words.iter().enumerate().skip(from) {
        if depth == 0 && signs.contains(&word.text.as_str()) {
            return at;
        }
        depth += deeper(word);
    }
    words.len()
}

/// Returns the place of the sign that closes the one at `opens`.
fn closing(words: &[Word], opens: usize) -> usize {
    let Some(open) = words.get(opens) else { return words.len() };
    let close = match open.text.as_str() {
        "(" => ")",
        "[" => "]",
        _ => "}",
    };
    let mut depth = 0;
    for (at, word) in words.iter().enumerate().skip(opens) {
        depth += isize::from(word.text == open.text) - isize::from(word.text == close);
        if depth == 0 {
            return at;
        }
    }
    words.len()
}

/// Returns the parts between commas of what stands between the sign at `opens` and the one that closes it.
fn parts(words: &[Word], opens: usize) -> Vec<&[Word]> {
    let inner = words.get(opens + 1..closing(words, opens)).unwrap_or_default();
    let mut parts = Vec::new();
    let mut from = 0;
    while from < inner.len() {
        let end = find(inner, from, &[","]);
        parts.push(&inner[from..end]);
        from = end + 1;
    }
    parts
}

/// Returns the place behind an item and the attributes before it.
fn end_of_item(words: &[Word], mut at: usize) -> usize {
    while begins(&words[at..], &["#", "["]) {
        at = closing(words, at + 1) + 1;
    }
    let end = find(words, at, &["{", ";"]);
    let closed = if words.get(end).is_some_and(|word| word.text == "{") { closing(words, end) } else { end };
    (closed + 1).min(words.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Vec<(String, Measure, usize)> {
        counted(text).into_iter().map(|found| (found.name, found.measure, found.count)).collect()
    }

    fn told(path: &str, text: &str) -> Vec<String> {
        let findings = check(&[(path.to_owned(), text.to_owned())]).into_iter();
        findings.map(|(path, line, what)| format!("{path}:{line}: {what}")).collect()
    }

    #[test]
    fn fields_are_counted_whatever_stands_between_their_commas() {
        let text = "/// Of `a, b`.\n#[derive(Debug, Clone)]\npub(crate) struct Rows<'a, T: Fn(u8, u8) -> u8> {\n\
                    /// One, two.\n#[serde(rename = \"a, b\")]\nof: BTreeMap<&'a str, [(u8, u8); 2]>,\n\
                    call: fn(u8, T) -> Result<u8, ','>,\nlast: u8 }\nstruct Nothing;\nstruct Pair(u8, pub u8);";
        let fields = |name: &str, count| (name.to_owned(), Measure::Fields, count);
        assert_eq!(sizes(text), [fields("Rows", 3), fields("Pair", 2)]);
    }

    #[test]
    fn a_receiver_is_no_parameter_and_lines_are_counted_from_the_name_to_the_last_brace() {
        let text = "impl A {\n    fn of<F: Fn(u8, u8)>(&'a mut self, f: F, (a, b): (u8, u8)) -> [u8; 2]\n    where\n\
                    F: Copy,\n    {\n        '{'; \"}\";\n    }\n    fn none() {}\n    fn told(self: Arc<Self>, a: u8);\n}";
        let found = [
            ("of".to_owned(), Measure::Parameters, 2),
            ("of".to_owned(), Measure::Lines, 6),
            ("none".to_owned(), Measure::Parameters, 0),
            ("none".to_owned(), Measure::Lines, 1),
            ("told".to_owned(), Measure::Parameters, 1),
        ];
        assert_eq!(sizes(text), found);
    }

    #[test]
    fn tests_and_what_only_they_use_may_be_larger() {
        let many: String = (0..20).map(|field| format!("f{field}: u8,\n")).collect();
        let tests = format!(
            "#[cfg(test)]\n#[derive(Debug)]\nstruct A {{ {many} }}\n#[cfg(test)]\nmod tests {{ struct B {{ {many} }} }}"
        );
        assert_eq!(sizes(&tests), []);
        let files = [
            ("crates/a/src/lib.rs".to_owned(), "#[cfg(test)]\nmod rig;\n".to_owned()),
            ("crates/a/src/rig.rs".to_owned(), format!("struct A {{ {many} }}")),
            ("crates/a/tests/all.rs".to_owned(), format!("struct A {{ {many} }}")),
        ];
        assert_eq!(check(&files), []);
    }

    #[test]
    fn what_is_too_large_is_told_with_file_name_and_count() {
        let fields: String = (0..16).map(|field| format!("f{field}: u8, ")).collect();
        let (most, lines) = ("\n".repeat(59), "\n".repeat(60));
        let text = format!(
            "struct Wide {{ {fields} }}\nfn fits() {{{most}}}\nfn long() {{{lines}}}\nfn f(a: A, b: B, c: C, d: D, e: E, f: F, g: G);"
        );
        let expected = [
            "crates/a/src/a.rs:1: `Wide` has 16 fields, at most 15 are read at a glance",
            "crates/a/src/a.rs:62: `long` has 61 lines, at most 60 are read at a glance",
            "crates/a/src/a.rs:123: `f` has 7 parameters, at most 6 are read at a glance",
        ];
        assert_eq!(told("crates/a/src/a.rs", &text), expected);
    }

    #[test]
    fn an_exemption_that_nothing_needs_is_told() {
        let (path, measure, _) = EXEMPT[1];
        assert_eq!(measure, Measure::Fields);
        let fields: String = (0..16).map(|field| format!("f{field}: u8, ")).collect();
        assert_eq!(told(path, &format!("struct Table {{ {fields} }}")), [""; 0]);
        let stale = format!("{path}:1: nothing here needs its exemption from the limit of fields");
        assert_eq!(told(path, "struct Table { a: u8 }"), [stale]);
    }
}
