//! Testing what deploys the program: images, manifests, rules, dashboards, units. Python reads YAML and drives the tools.

use std::path::Path;

use crate::plan::Outcome;
use crate::python::{self, Environment, Stop};

/// What `deploy/` is tested with.
const TESTS: &str = "tests/deploy";

/// Everything that takes a minute or two. A test whose tool is not there says so and is skipped.
pub(crate) fn tests(root: &Path) -> Outcome {
    run(root, false)
}

/// The same, and what takes longer: the image with Python, and a trainer that learns.
pub(crate) fn all_tests(root: &Path) -> Outcome {
    run(root, true)
}

fn run(root: &Path, all: bool) -> Outcome {
    let ran = || -> Result<String, Stop> {
        python::usable_python()?;
        python::program(root)?;
        let environment = Environment {
            path: root.join("target/python/deploy"),
            requirements: Vec::new(),
            files: vec![root.join(TESTS).join("requirements.txt")],
        };
        environment.make()?;
        python::pytest(root, None, &environment.python(), TESTS, all)
    };
    python::outcome(ran())
}
