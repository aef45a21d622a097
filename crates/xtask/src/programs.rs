//! The test programs of the workspace: built by one call of cargo, and found in the messages that it gives.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::outcome::{BUILD_ALL, cargo, forget_own_package, line};

/// A program that holds tests, as cargo built it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    /// Folder of its package.
    folder: PathBuf,
    /// Name and version of its package.
    package: (String, String),
    /// Name of its target: `lib` or `bin` for what stands beside the code of a library or binary.
    target: String,
    path: PathBuf,
}

impl Program {
    /// Returns the names of its package's folder and of its target, such as `node all`.
    pub(crate) fn name(&self) -> String {
        let folder = self.folder.file_name().unwrap_or_default();
        format!("{} {}", folder.to_string_lossy(), self.target)
    }

    /// Returns whether its package lies in a folder of that name.
    pub(crate) fn is_of(&self, folder: &str) -> bool {
        self.folder.ends_with(folder)
    }

    /// Returns the command that runs it as cargo would.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        forget_own_package(&mut command);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command.env("CARGO_PKG_NAME", &self.package.0).env("CARGO_PKG_VERSION", &self.package.1);
        command
    }

    /// Reads one of cargo's messages; `None` if it is about anything but a test program.
    fn read(message: &str) -> Option<Self> {
        let profile = message.split_once("\"profile\":{")?.1.split_once('}')?.0;
        if !profile.contains("\"test\":true") {
            return None;
        }
        let target = message.split_once("\"target\":{")?.1;
        let target = match target.split('"').nth(3)? {
            "test" => text(target, "name")?,
            kind @ "bin" => kind,
            _ => "lib",
        };
        let folder = Path::new(text(message, "manifest_path")?).parent()?.to_path_buf();
        let (_, id) = text(message, "package_id")?.rsplit_once('#')?;
        // The name is left out where the folder has the same.
        let (name, version) = id.split_once('@').unwrap_or((folder.file_name()?.to_str()?, id));
        Some(Self {
            package: (name.to_owned(), version.to_owned()),
            folder,
            target: target.to_owned(),
            path: text(message, "executable")?.into(),
        })
    }
}

/// Returns the text that a JSON object has under a key. Paths with escapes in them are not understood.
fn text<'a>(object: &'a str, key: &str) -> Option<&'a str> {
    let value = object.split_once(&format!("\"{key}\":\""))?.1;
    Some(value.split_once('"')?.0).filter(|value| !value.contains('\\'))
}

/// Builds every binary, example and test, and returns the programs of the tests.
///
/// # Errors
/// If something does not compile, or if cargo names no program.
pub(crate) fn build(root: &Path) -> Result<Vec<Program>, String> {
    let mut command = cargo(root, &BUILD_ALL);
    command.arg("--message-format=json-render-diagnostics").stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", line(&command)))?;
    let messages = child.stdout.take().map(BufReader::new);
    let lines = messages.into_iter().flat_map(|messages| messages.lines().map_while(Result::ok));
    let programs: Vec<Program> = lines.filter_map(|message| Program::read(&message)).collect();
    match child.wait() {
        Ok(status) if !status.success() => Err(format!("{}: {status}", line(&command))),
        Ok(_) if programs.is_empty() => Err(format!("{}: it names no test program", line(&command))),
        Ok(_) => Ok(programs),
        Err(error) => Err(format!("{}: {error}", line(&command))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/node#rollhouse-node@0.1.0","manifest_path":"/w/crates/node/Cargo.toml","target":{"kind":["KIND"],"crate_types":["bin"],"name":"all","src_path":"/w/crates/node/tests/all.rs","edition":"2024","doc":false,"doctest":false,"test":true},"profile":{"opt_level":"1","debuginfo":0,"debug_assertions":true,"overflow_checks":true,"test":TEST},"features":[],"filenames":["/w/target/debug/deps/all-1"],"executable":"/w/target/debug/deps/all-1","fresh":true}"#;

    #[test]
    fn programs_of_tests_are_told_from_other_artefacts() {
        let of = |kind: &str, test: &str| {
            Program::read(&MESSAGE.replace("KIND", kind).replace("TEST", test)).map(|program| program.name())
        };
        assert_eq!(of("test", "true").as_deref(), Some("node all"));
        assert_eq!(of("lib", "true").as_deref(), Some("node lib"));
        assert_eq!(of("bin", "true").as_deref(), Some("node bin"));
        assert_eq!(of("bin", "false"), None);
        assert_eq!(Program::read(r#"{"reason":"build-finished","success":true}"#), None);
    }

    #[test]
    fn a_program_runs_in_the_folder_of_its_package_and_with_its_name() {
        let program = Program::read(&MESSAGE.replace("KIND", "test").replace("TEST", "true")).unwrap();
        assert_eq!(program.package, ("rollhouse-node".to_owned(), "0.1.0".to_owned()));
        let short = MESSAGE.replace("#rollhouse-node@0.1.0", "#0.2.0").replace("TEST", "true");
        assert_eq!(Program::read(&short).unwrap().package, ("node".to_owned(), "0.2.0".to_owned()));
        let command = program.command();
        assert_eq!(command.get_program(), "/w/target/debug/deps/all-1");
        assert_eq!(command.get_current_dir(), Some(Path::new("/w/crates/node")));
    }
}
