//! Checks that every file of tests runs: where the tests of a package are one program, a file that it does not name would
//! be passed over without a word.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Returns the files of tests that no program has, by their paths.
///
/// # Errors
/// If the manifest of a package cannot be read.
pub(crate) fn unnamed(root: &Path, files: &[(String, String)]) -> Result<Vec<String>, String> {
    let mut packages: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (path, text) in files {
        let Some((package, file)) = path.rsplit_once("/tests/") else { continue };
        if let Some(name) = file.strip_suffix(".rs").filter(|name| !name.contains('/')) {
            packages.entry(package).or_default().push((name, text));
        }
    }
    let mut found = Vec::new();
    for (package, files) in packages {
        let Some((_, all)) = files.iter().find(|(name, _)| *name == ALL) else { continue };
        let manifest = root.join(package).join("Cargo.toml");
        let manifest = fs::read_to_string(&manifest)
            .map_err(|error| format!("cannot read {}: {error}", manifest.display()))?;
        let missing = files.iter().filter(|(name, _)| !is_named(name, all, &manifest));
        found.extend(missing.map(|(name, _)| format!("{package}/tests/{name}.rs")));
    }
    Ok(found)
}

fn is_named(name: &str, all: &str, manifest: &str) -> bool {
    let (module, test) = (format!("mod {name};"), format!("[[test]]\nname = \"{name}\""));
    all.lines().any(|line| line == module) || manifest.contains(&test)
}

/// Name of the program that has the tests of a package, and of its file.
const ALL: &str = "all";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_by_its_module_or_its_program() {
        let (all, manifest) = ("mod one;\n", "[[test]]\nname = \"all\"\n\n[[test]]\nname = \"two\"\n");
        let named = ["all", "one", "two", "three", "on"].map(|name| is_named(name, all, manifest));
        assert_eq!(named, [true, true, true, false, false]);
    }
}
