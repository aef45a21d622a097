//! Plans: steps that run one after another, and the line that closes them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::outcome::{Outcome, cargo, shown};
use crate::{deploy, heavy, mutations, python, style, tests_step};

/// Steps in the order in which they run. The first that fails ends the plan.
pub(crate) struct Plan {
    root: PathBuf,
    name: &'static str,
    steps: Vec<Step>,
}

/// One step: its name and what it does at the workspace's root.
struct Step {
    name: &'static str,
    run: fn(&Path) -> Outcome,
}

impl Plan {
    pub(crate) fn ci(root: PathBuf) -> Self {
        Self { root, name: "ci", steps: vec![FORMAT, STYLE, CLIPPY, DOCS, TESTS, PYTHON, DEPLOY] }
    }

    pub(crate) fn style(root: PathBuf) -> Self {
        Self { root, name: "style", steps: vec![STYLE] }
    }

    pub(crate) fn test(root: PathBuf) -> Self {
        Self { root, name: "test", steps: vec![TESTS, PYTHON, DEPLOY] }
    }

    pub(crate) fn deploy(root: PathBuf) -> Self {
        Self { root, name: "deploy", steps: vec![DEPLOY] }
    }

    pub(crate) fn all_deploy(root: PathBuf) -> Self {
        Self { root, name: "deploy --all", steps: vec![ALL_DEPLOY] }
    }

    pub(crate) fn dist(root: PathBuf) -> Self {
        Self { root, name: "dist", steps: vec![DIST] }
    }

    pub(crate) fn python(root: PathBuf) -> Self {
        Self { root, name: "python", steps: vec![PYTHON] }
    }

    pub(crate) fn all_python(root: PathBuf) -> Self {
        Self { root, name: "python --all", steps: vec![PYTHON, ALL_PYTHON] }
    }

    pub(crate) fn mutations(root: PathBuf) -> Self {
        Self { root, name: "mutations", steps: vec![MUTATIONS] }
    }

    pub(crate) fn golden(root: PathBuf) -> Self {
        Self { root, name: "golden", steps: vec![GOLDEN] }
    }

    pub(crate) fn deny(root: PathBuf) -> Self {
        Self { root, name: "deny", steps: vec![DEPENDENCIES] }
    }

    pub(crate) fn everything(root: PathBuf) -> Self {
        let steps = vec![
            LONG_TESTS,
            RELEASE,
            DECODERS,
            OBJECTS,
            PYTHON,
            ALL_PYTHON,
            ALL_DEPLOY,
            GOLDEN,
            AARCH64,
            DEPENDENCIES,
        ];
        Self { root, name: "test --all", steps }
    }

    /// Returns the plan from the step with that name on; `None` if there is none.
    pub(crate) fn from(self, name: &str) -> Option<Self> {
        let first = self.steps.iter().position(|step| step.name == name)?;
        Some(Self { steps: self.steps.into_iter().skip(first).collect(), ..self })
    }

    /// Runs every step and says how each ended. Returns whether none failed.
    pub(crate) fn run(self) -> bool {
        let began = Instant::now();
        let mut ended = Vec::new();
        let mut passed = true;
        for step in &self.steps {
            eprintln!("\n== {}", step.name);
            let step_began = Instant::now();
            let outcome = (step.run)(&self.root);
            passed = !matches!(outcome, Outcome::Failed(_));
            ended.push((step.name, outcome, step_began.elapsed()));
            if !passed {
                break;
            }
        }
        eprintln!();
        for (name, outcome, took) in &ended {
            eprintln!("{name:<14} {:>9}  {outcome}", Seconds(*took).to_string());
        }
        let verdict = match ended.iter().filter(|e| matches!(e.1, Outcome::Skipped(_))).count() {
            _ if !passed => "FAILED".to_owned(),
            0 => "passed".to_owned(),
            skipped => format!("passed, {skipped} skipped"),
        };
        let (ran, all) = (ended.len(), self.steps.len());
        eprintln!("{}: {verdict} ({ran} of {all} steps in {})", self.name, Seconds(began.elapsed()));
        passed
    }
}

fn passes(mut command: Command, found: &str) -> Outcome {
    match shown(&mut command) {
        Ok(()) => Outcome::Passed(found.to_owned()),
        Err(what) => Outcome::Failed(what),
    }
}

const FORMAT: Step = Step {
    name: "format",
    run: |root| passes(cargo(root, &["fmt", "--all", "--check"]), "rustfmt would change nothing"),
};

const STYLE: Step = Step { name: "style", run: style::check };

const CLIPPY: Step = Step {
    name: "clippy",
    run: |root| {
        let arguments = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
        passes(cargo(root, &arguments), "no warning")
    },
};

const DOCS: Step = Step {
    name: "docs",
    run: |root| {
        let mut command = cargo(root, &["doc", "--workspace", "--no-deps", "--locked"]);
        command.env("RUSTDOCFLAGS", "-D warnings");
        passes(command, "no warning")
    },
};

const TESTS: Step = Step { name: "tests", run: |root| tests_step::run(root, 1) };

const LONG_TESTS: Step = Step { name: "long tests", run: |root| tests_step::run(root, SOAK_FACTOR) };

const RELEASE: Step = Step { name: "release build", run: heavy::release };

const DECODERS: Step = Step { name: "decoders", run: heavy::decoders };

const OBJECTS: Step = Step { name: "object storage", run: heavy::objects };

const PYTHON: Step = Step { name: "python", run: python::tests };

const ALL_PYTHON: Step = Step { name: "all of python", run: python::all_tests };

const DEPLOY: Step = Step { name: "deploy", run: deploy::tests };

const ALL_DEPLOY: Step = Step { name: "all of deploy", run: deploy::all_tests };

const DIST: Step = Step { name: "dist", run: deploy::dist };

const MUTATIONS: Step = Step { name: "mutations", run: mutations::run };

const GOLDEN: Step = Step { name: "golden data", run: heavy::golden_data };

const AARCH64: Step = Step { name: "aarch64", run: heavy::aarch64 };

const DEPENDENCIES: Step = Step { name: "dependencies", run: heavy::dependencies };

/// Factor by which the long tests repeat more of everything that is drawn at random.
const SOAK_FACTOR: u32 = 10;

/// A duration as people write it: `7.3 s`, `4 min 12 s`.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        if seconds < 60 {
            write!(f, "{:.1} s", self.0.as_secs_f64())
        } else {
            write!(f, "{} min {} s", seconds / 60, seconds % 60)
        }
    }
}
