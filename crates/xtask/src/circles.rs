//! Checks that no modules of a crate import each other, directly or by way of others.
//!
//! Two modules are compared where their paths part: below one parent, what `a::b` takes from `c::d` makes `a` depend on
//! `c`. A module's own parts and its parents do not count, and neither does what only tests take.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::Source;

/// A module's path in its crate, which is empty for the crate's root.
type Module = Vec<String>;

/// Modules below one parent, by the modules on which each depends, each time with the file that says so.
type Graph = BTreeMap<Module, BTreeMap<Module, String>>;

/// Returns the imports that close a circle, as (path of the file, what is wrong).
pub(crate) fn check(files: &[(String, String)]) -> Vec<(String, String)> {
    let mut crates: BTreeMap<&str, Vec<(Module, &str, &str)>> = BTreeMap::new();
    for (path, text) in files {
        let Some((of, module)) = path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"))
        else {
            continue;
        };
        crates.entry(of).or_default().push((module_of(module), path, text));
    }
    crates.values().flat_map(|modules| circles(&graph_of(modules))).collect()
}

/// Returns the paths of the files below `src/` that are for tests only.
pub(crate) fn files_of_tests(files: &[(String, String)]) -> BTreeSet<&str> {
    let placed =
        |path: &'_ str| path.split_once("/src/").map(|(of, module)| (of.to_owned(), module_of(module)));
    let mut tests: BTreeSet<(String, Module)> = BTreeSet::new();
    for (path, text) in files {
        let Some((of, module)) = placed(path) else { continue };
        tests.extend(modules_of_tests(&module, text).into_iter().map(|tests| (of.clone(), tests)));
    }
    let is_of_tests = |path: &str| {
        placed(path).is_some_and(|(of, module)| {
            tests.iter().any(|(in_crate, tests)| *in_crate == of && module.starts_with(tests))
        })
    };
    files.iter().map(|(path, _)| path.as_str()).filter(|path| is_of_tests(path)).collect()
}

/// Returns the module of a file below `src/`.
fn module_of(path: &str) -> Module {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let parts = path.split('/').map(str::to_owned);
    let mut module: Module = parts.collect();
    if module.last().is_some_and(|last| matches!(last.as_str(), "lib" | "main" | "mod")) {
        module.pop();
    }
    module
}

fn graph_of(files: &[(Module, &str, &str)]) -> Graph {
    let known: BTreeSet<&Module> = files.iter().map(|(module, ..)| module).collect();
    let tests: BTreeSet<Module> =
        files.iter().flat_map(|(module, _, text)| modules_of_tests(module, text)).collect();
    let mut graph = Graph::new();
    for (module, path, text) in files {
        if tests.iter().any(|tests| module.starts_with(tests)) {
            continue;
        }
        for mut to in imports(module, text) {
            while !known.contains(&to) && to.pop().is_some() {}
            let part = module.iter().zip(&to).take_while(|(here, there)| here == there).count();
            if part < module.len() && part < to.len() {
                let edges = graph.entry(module[..=part].to_vec()).or_default();
                edges.insert(to[..=part].to_vec(), (*path).to_owned());
            }
        }
    }
    graph
}

/// Returns the modules that a file declares for tests only.
fn modules_of_tests(module: &Module, text: &str) -> Vec<Module> {
    let declared = text.split("#[cfg(test)]\n").skip(1).filter_map(|after| {
        let after = after.trim_start_matches("pub(crate) ").strip_prefix("mod ")?;
        after.split_once(';').map(|(name, _)| name.to_owned())
    });
    declared.map(|name| [&module[..], &[name]].concat()).collect()
}

/// Returns the paths that a file names, from `crate` or `super` on, without those of its tests.
fn imports(module: &Module, text: &str) -> Vec<Module> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut found = Vec::new();
    for (_, code) in Source::cut(text).code_lines() {
        for (root, from) in [("crate::", Some(Module::new())), ("super::", parent(module))] {
            let Some(from) = from else { continue };
            for (at, _) in code.match_indices(root) {
                if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                    continue;
                }
                found.push(path_from(from.clone(), &code[at + root.len()..]));
            }
        }
    }
    found
}

fn parent(module: &Module) -> Option<Module> {
    module.split_last().map(|(_, parent)| parent.to_vec())
}

/// Returns the path that a text begins with, below `from`.
fn path_from(mut from: Module, text: &str) -> Module {
    let path =
        text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).next().unwrap_or_default();
    for part in path.split("::").filter(|part| !part.is_empty()) {
        if part == "super" {
            from.pop();
        } else {
            from.push(part.to_owned());
        }
    }
    from
}

/// Returns what is left of the imports when modules that lead to no circle are taken away, again and again.
fn circles(graph: &Graph) -> Vec<(String, String)> {
    let mut left = graph.clone();
    loop {
        let before = left.len();
        let (from, to): (BTreeSet<Module>, BTreeSet<Module>) =
            (left.keys().cloned().collect(), left.values().flat_map(|to| to.keys().cloned()).collect());
        left.retain(|module, _| to.contains(module));
        left.values_mut().for_each(|edges| edges.retain(|module, _| from.contains(module)));
        left.retain(|_, edges| !edges.is_empty());
        if left.len() == before {
            break;
        }
    }
    let said = |(from, edges): (&Module, &BTreeMap<Module, String>)| {
        let said = |(to, path): (&Module, &String)| {
            (
                path.clone(),
                format!("`{}` and `{}` are in a circle of imports", from.join("::"), to.join("::")),
            )
        };
        edges.iter().map(said).collect::<Vec<_>>()
    };
    left.iter().flat_map(said).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> =
            files.iter().map(|(path, text)| (format!("crates/x/src/{path}"), (*text).to_owned())).collect();
        check(&files).into_iter().map(|(_, what)| what).collect()
    }

    #[test]
    fn modules_that_import_each_other_by_way_of_a_third_are_found() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::B;\nuse crate::d::D;"),
            ("b/part.rs", "use crate::c::{C, E};"),
            ("b.rs", "mod part;"),
            ("c.rs", "fn f() { super::a::g() }"),
            ("d.rs", "pub struct D;"),
        ];
        let said = |from: &str, to: &str| format!("`{from}` and `{to}` are in a circle of imports");
        assert_eq!(found(&files), [said("a", "b"), said("b", "c"), said("c", "a")]);
    }

    #[test]
    fn what_comments_tests_and_parts_of_a_module_name_is_no_import() {
        let files = [
            ("lib.rs", "mod a;\n#[cfg(test)]\nmod check;\nmod b;"),
            ("a.rs", "mod part;\nuse crate::b::B;\nuse crate::a::part::P;"),
            ("a/part.rs", "use super::A;"),
            ("b.rs", "// crate::a\npub struct B;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}"),
            ("check.rs", "use crate::a::A;"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }
}
