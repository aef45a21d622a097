//! Plans: steps that run one after another, and the lines that close them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::counts::Counts;
use crate::outcome::{FEATURES_OF_TESTS, Outcome, cargo, shown};
use crate::processor::processor_time;
use crate::{deploy, heavy, mutations, python, style, tests_step};

/// Steps in the order in which they run. The first that fails ends the plan.
pub(crate) struct Plan {
    root: PathBuf,
    name: &'static str,
    steps: Vec<Step>,
}

/// One step: its name and what it does at the workspace's root.
#[derive(Clone, Copy)]
struct Step {
    name: &'static str,
    run: fn(&Path) -> Outcome,
    /// What it needs of the network, which is fetched while the steps before it run. It makes up for what fails here.
    ahead: Option<fn(&Path)>,
    /// Whether it runs beside the step before it, if both are in a plan.
    beside: bool,
}

/// The end of steps that ran side by side.
struct Ended {
    steps: Vec<(&'static str, Outcome, Duration)>,
    /// Time of the processors that all of them took, with what was made ahead of later ones meanwhile.
    processors: Option<Duration>,
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
            MUTATIONS,
            RELEASE,
            CHAOS,
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
        for ahead in self.steps.iter().skip(1).filter_map(|step| step.ahead) {
            let root = self.root.clone();
            std::thread::spawn(move || ahead(&root));
        }
        let (mut ended, mut passed, mut rest) = (Vec::new(), true, self.steps.as_slice());
        while passed && !rest.is_empty() {
            let more = rest.iter().skip(1).take_while(|step| step.beside).count();
            let (group, later) = rest.split_at(1 + more);
            let done = self.run_group(group);
            passed = !done.steps.iter().any(|(_, outcome, _)| matches!(outcome, Outcome::Failed(_)));
            ended.push(done);
            rest = later;
        }
        eprintln!();
        ended.iter().for_each(Ended::show);
        let outcomes: Vec<&Outcome> =
            ended.iter().flat_map(|done| done.steps.iter().map(|(_, outcome, _)| outcome)).collect();
        let counts: Counts = outcomes.iter().map(|outcome| Counts::of(&outcome.to_string())).sum();
        let verdict = match outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Skipped(_))).count() {
            _ if !passed => "FAILED".to_owned(),
            0 => "passed".to_owned(),
            skipped => format!("passed, {skipped} skipped"),
        };
        let (ran, all) = (outcomes.len(), self.steps.len());
        eprintln!("{}: {verdict} ({ran} of {all} steps in {})", self.name, Seconds(began.elapsed()));
        if !counts.is_empty() {
            eprintln!("{counts}");
        }
        passed
    }

    /// Runs steps side by side. Lines of tests name their files.
    fn run_group(&self, group: &[Step]) -> Ended {
        let names: Vec<&str> = group.iter().map(|step| step.name).collect();
        eprintln!("\n== {}", names.join(", "));
        let before = processor_time();
        let timed = |step: &Step| {
            let began = Instant::now();
            let outcome = (step.run)(&self.root);
            (step.name, outcome, began.elapsed())
        };
        let steps = std::thread::scope(|scope| {
            let running: Vec<_> = group.iter().map(|step| scope.spawn(|| timed(step))).collect();
            let ended = running.into_iter().zip(group).map(|(thread, step)| {
                let panicked = |_| (step.name, Outcome::Failed("it panicked".to_owned()), Duration::ZERO);
                thread.join().unwrap_or_else(panicked)
            });
            ended.collect()
        });
        let processors = before.zip(processor_time()).map(|(before, after)| after.saturating_sub(before));
        Ended { steps, processors }
    }
}

impl Ended {
    fn show(&self) {
        let mut processors = self.processors.map(|time| format!("{} of CPU", Seconds(time)));
        for (name, outcome, took) in &self.steps {
            let of_group = processors.take().unwrap_or_default();
            eprintln!("{name:<14} {:>12} {of_group:>20}  {outcome}", Seconds(*took).to_string());
        }
    }
}

impl Step {
    const fn new(name: &'static str, run: fn(&Path) -> Outcome) -> Self {
        Self { name, run, ahead: None, beside: false }
    }
}

fn passes(mut command: Command, found: &str) -> Outcome {
    match shown(&mut command) {
        Ok(()) => Outcome::Passed(found.to_owned()),
        Err(what) => Outcome::Failed(what),
    }
}

const FORMAT: Step = Step::new("format", |root| {
    passes(cargo(root, &["fmt", "--all", "--check"]), "rustfmt would change nothing")
});

const STYLE: Step = Step::new("style", style::check);

const CLIPPY: Step = Step::new("clippy", |root| {
    let arguments = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    passes(cargo(root, &arguments), "no warning")
});

const DOCS: Step = Step::new("docs", |root| {
    // With the features of the tests, dependencies are those that clippy has checked.
    let features = ["--features", FEATURES_OF_TESTS];
    let mut command = cargo(root, &["doc", "--workspace", "--no-deps", "--locked"]);
    command.args(features);
    command.env("RUSTDOCFLAGS", "-D warnings");
    passes(command, "no warning")
});

const TESTS: Step = Step::new("tests", |root| tests_step::run(root, 1));

const LONG_TESTS: Step = Step::new("long tests", |root| tests_step::run(root, SOAK_FACTOR));

const RELEASE: Step = Step::new("release build", heavy::release);

const CHAOS: Step = Step::new("chaos", heavy::chaos);

const DECODERS: Step = Step::new("decoders", heavy::decoders);

const OBJECTS: Step = Step::new("object storage", heavy::objects);

const PYTHON: Step = Step { ahead: Some(python::environments), ..Step::new("python", python::tests) };

const ALL_PYTHON: Step = Step::new("all of python", python::all_tests);

/// Its tests wait for other programs most of the time.
const DEPLOY: Step =
    Step { ahead: Some(deploy::environment_ahead), beside: true, ..Step::new("deploy", deploy::tests) };

const ALL_DEPLOY: Step = Step::new("all of deploy", deploy::all_tests);

const DIST: Step = Step::new("dist", deploy::dist);

const MUTATIONS: Step = Step::new("mutations", mutations::run);

const GOLDEN: Step = Step::new("golden data", heavy::golden_data);

const AARCH64: Step = Step::new("aarch64", heavy::aarch64);

const DEPENDENCIES: Step = Step::new("dependencies", heavy::dependencies);

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
