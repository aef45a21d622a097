//! Tests of what deploys the program: images, manifests, rules, dashboards, units. Python reads YAML and drives the
//! tools.

use std::path::Path;
use std::process::Command;

use crate::outcome::{Outcome, shown};
use crate::python::{self, Environment, Stop};

/// The folder of the tests of `deploy/`.
const TESTS: &str = "tests/deploy";

/// Runs all tests that take a minute or two. A test whose tool is missing says so and is skipped.
pub(crate) fn tests(root: &Path) -> Outcome {
    python::outcome(run(root, false))
}

/// Runs these tests and the longer ones, with the images of the release build: trainers on clusters of containers that
/// are disturbed.
pub(crate) fn all_tests(root: &Path) -> Outcome {
    python::outcome(run(root, true))
}

/// Makes the virtual environment of [`tests`], which says what is wrong with it.
pub(crate) fn environment_ahead(root: &Path) {
    let _made = python::usable_python().and_then(|()| environment(root, false).make());
}

fn environment(root: &Path, all: bool) -> Environment {
    let folder = root.join(TESTS);
    let mut files = vec![folder.join("requirements.txt")];
    let mut path = root.join("target/python/deploy");
    if all {
        files.push(folder.join("requirements-all.txt"));
        path.set_file_name("deploy-all");
    }
    Environment { path, requirements: Vec::new(), files }
}

fn run(root: &Path, all: bool) -> Result<String, Stop> {
    python::usable_python()?;
    python::program(root)?;
    let environment = environment(root, all);
    environment.make()?;
    if all {
        python::release(root)?;
        python::traced(root)?;
        // Some tests step from outside of containers.
        environment.with(&python::wheel(root)?)?;
        python::image_wheels(root, &environment)?;
    }
    python::pytest(root, None, &environment.python(), &[TESTS], all)
}

/// Compiles the parts of a release, puts them together in `target/dist`, and tries each.
pub(crate) fn dist(root: &Path) -> Outcome {
    python::outcome(make_dist(root))
}

fn make_dist(root: &Path) -> Result<String, Stop> {
    python::usable_python()?;
    tools_of_dist()?;
    let binary = python::release(root)?;
    let wheel = python::release_wheel(root)?;
    let mut make = Command::new("python3");
    make.arg(root.join("deploy/dist.py")).arg("--binary").arg(binary).arg("--wheel").arg(wheel);
    shown(make.current_dir(root)).map_err(Stop::Failed)?;
    Ok("target/dist has it; what could not be tried stands above".to_owned())
}

/// Looks for what `deploy/dist.py` calls, before anything is compiled for it.
fn tools_of_dist() -> Result<(), Stop> {
    let answers = |tool: &str, word: &str| {
        Command::new(tool).arg(word).output().is_ok_and(|done| done.status.success())
    };
    let mut wanted = vec![("strip", "binutils"), ("objdump", "binutils")];
    // Without an engine images are skipped, and so is the base that debootstrap makes.
    if answers("docker", "version") {
        wanted.push(("debootstrap", "debootstrap"));
    }
    for (tool, package) in wanted {
        if !answers(tool, "--version") {
            return Err(Stop::Failed(format!("there is no {tool} here: Debian's package {package} has it")));
        }
    }
    Ok(())
}
