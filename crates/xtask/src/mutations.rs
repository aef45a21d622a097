//! Faults of the product that the simulation has to find: each is put into a copy of the tree, one by one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::outcome::{Outcome, cargo};

/// The list of faults.
pub(crate) const LIST: &str = "crates/simulation/mutations.txt";

/// One fault.
struct Mutation<'a> {
    name: &'a str,
    file: &'a str,
    /// The rule that it breaks.
    breaks: &'a str,
    old: &'a str,
    new: &'a str,
}

/// Builds and plays the simulation with every fault of the list, in a copy of the tree under `target/mutations`; with
/// `ROLLHOUSE_MUTATION`, with those whose names contain that.
pub(crate) fn run(root: &Path) -> Outcome {
    let text = match fs::read_to_string(root.join(LIST)) {
        Ok(text) => text,
        Err(error) => return Outcome::Failed(format!("{LIST}: {error}")),
    };
    let wanted = std::env::var("ROLLHOUSE_MUTATION").unwrap_or_default();
    let found = parse(&text).and_then(|mutations| {
        let tree = root.join("target/mutations/tree");
        copy_tree(root, &tree)?;
        let chosen = mutations.iter().filter(|mutation| mutation.name.contains(&wanted));
        let mut missed = Vec::new();
        let mut count = 0;
        for mutation in chosen {
            count += 1;
            let found = find(&tree, mutation)?;
            eprintln!("{}: {} ({})", mutation.name, if found { "found" } else { "MISSED" }, mutation.breaks);
            if !found {
                missed.push(mutation.name);
            }
        }
        Ok((count, missed))
    });
    match found {
        Err(what) => Outcome::Failed(what),
        Ok((0, _)) => Outcome::Failed(format!("no fault has `{wanted}` in its name")),
        Ok((count, missed)) if missed.is_empty() => Outcome::Passed(format!("{count} faults, each found")),
        Ok((count, missed)) => Outcome::Failed(format!("of {count} faults missed: {}", missed.join(", "))),
    }
}

/// Returns the faults whose text is not in its file exactly once.
pub(crate) fn stale(root: &Path) -> Vec<String> {
    let read =
        |path: PathBuf| fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()));
    let judge = |mutation: &Mutation<'_>| {
        let times = read(root.join(mutation.file)).map(|text| text.matches(mutation.old).count());
        match times {
            Ok(1) => None,
            Ok(times) => {
                Some(format!("{LIST}: {}: its text is in {} {times} times", mutation.name, mutation.file))
            }
            Err(what) => Some(what),
        }
    };
    let text = read(root.join(LIST));
    match text.as_deref().map_err(Clone::clone).and_then(parse) {
        Ok(mutations) => mutations.iter().filter_map(judge).collect(),
        Err(what) => vec![what],
    }
}

fn parse(text: &str) -> Result<Vec<Mutation<'_>>, String> {
    let parse = |section| parse_one(section).ok_or_else(|| format!("{LIST}: not a fault: {section}"));
    text.split("\n== ").skip(1).map(parse).collect()
}

fn parse_one(section: &str) -> Option<Mutation<'_>> {
    let (name, rest) = section.split_once("\nfile: ")?;
    let (file, rest) = rest.split_once("\nbreaks: ")?;
    let (breaks, rest) = rest.split_once("\n---\n")?;
    let (old, new) = rest.split_once("\n+++\n")?;
    Some(Mutation { name, file, breaks, old, new: new.trim_end_matches('\n') })
}

/// Copies what git knows of, but for what is the same there already: what was built of it stays good.
fn copy_tree(root: &Path, tree: &Path) -> Result<(), String> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output();
    let listed = listed.map_err(|error| format!("cannot start git: {error}"))?;
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (root.join(name), tree.join(name));
        // What was removed and not committed yet.
        let Ok(bytes) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        let folder = to.parent().unwrap_or(tree);
        let copied = fs::create_dir_all(folder).and_then(|()| fs::write(&to, bytes));
        copied.map_err(|error| format!("{}: {error}", to.display()))?;
    }
    Ok(())
}

/// Whether the simulation finds the fault. The file is as it was when this returns.
fn find(tree: &Path, mutation: &Mutation<'_>) -> Result<bool, String> {
    let path = tree.join(mutation.file);
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let text = fs::read_to_string(&path).map_err(failed)?;
    if text.matches(mutation.old).count() != 1 {
        return Err(format!("{}: its text is not in {} once", mutation.name, mutation.file));
    }
    fs::write(&path, text.replace(mutation.old, mutation.new)).map_err(failed)?;
    let found = build_and_play(tree);
    fs::write(&path, text).map_err(failed)?;
    found.map_err(|what| format!("{}: {what}", mutation.name))
}

fn build_and_play(tree: &Path) -> Result<bool, String> {
    let test = ["test", "--quiet", "-p", "rollhouse-simulation", "--test", "all"];
    let run = |more: &[&str]| {
        let mut command = cargo(tree, &[&test[..], more].concat());
        command.env("CARGO_TARGET_DIR", tree.with_file_name("target"));
        let output = command.stdout(Stdio::null()).stderr(Stdio::piped()).output();
        output.map_err(|error| format!("cannot start cargo: {error}"))
    };
    let built = run(&["--no-run"])?;
    if !built.status.success() {
        return Err(format!("does not compile: {}", String::from_utf8_lossy(&built.stderr)));
    }
    Ok(!run(&[&["--"], &EVERYTHING[..]].concat())?.status.success())
}

/// The tests that play the 500 seeds, and those with restores.
const EVERYTHING: [&str; 2] = [
    "seeds::whatever_goes_wrong_no_invariant_is_broken",
    "seeds::after_a_restore_of_the_coordinators_folder_no_term_is_obeyed_twice_and_all_goes_on_with_the_term_it_names",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_gives_names_files_and_both_texts() {
        let text = "Words.\n\n== a\nfile: b.rs\nbreaks: c\n---\nold\n  two\n+++\nnew\n\n== d\nfile: e\nbreaks: f\n---\ng\n+++\n\n";
        let read = parse(text).unwrap();
        let of = |m: &Mutation<'_>| [m.name, m.file, m.breaks, m.old, m.new].map(str::to_owned);
        assert_eq!(of(&read[0]), ["a", "b.rs", "c", "old\n  two", "new"]);
        assert_eq!(of(&read[1]), ["d", "e", "f", "g", ""]);
        assert!(parse("\n== a\nfile: b").is_err());
    }

    #[test]
    fn what_is_listed_is_in_the_tree_once() {
        let root = crate::workspace_root();
        assert_eq!(stale(&root), Vec::<String>::new());
        let text = fs::read_to_string(root.join(LIST)).unwrap();
        assert!(parse(&text).unwrap().len() >= 25);
    }
}
