//! Tests of the Python package: a wheel of it in fresh virtual environments, one per pinned Gymnasium.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::outcome::{BUILD_ALL, Outcome, behind, cargo, forget_own_package, line, shown};
use crate::programs;
use crate::watch::{Ended, PATIENCE, watch};

/// The oldest Gymnasium that the package promises to work with.
const OLDEST_GYMNASIUM: &str = "1.2.2";
/// The newest.
const NEWEST_GYMNASIUM: &str = "1.4.0";

/// The target folder of [`traced`], below the root.
const TRACED: &str = "target/otlp";

/// The program that builds the wheel.
const MATURIN: &str = "maturin==1.16.0";

/// Features of crate python with which its dependencies have the features that the workspace's tests give them. They stay
/// until cargo unifies features of a workspace whatever is built of it, which is unstable in 1.95.
const FEATURES_AS_TESTED: &str = "extension-module,as-tested";

/// The oldest Python that the package promises to work with, minor version.
const OLDEST_PYTHON: u32 = 10;

/// The package's tests, the file of those that train with other libraries, that of those that LeRobot opens, and those of gates.
const TESTS: &str = "crates/python/tests";
const TRAINERS: &str = "crates/python/tests/test_trainers.py";
const LEROBOT: &str = "crates/python/tests/test_lerobot.py";
const OPENRA: [&str; 2] =
    ["crates/python/tests/test_openra_bridge.py", "crates/python/tests/test_openra_rl.py"];

const OPENENV: &str = "crates/python/tests/test_openenv.py";

/// Runs the package's own tests on each Gymnasium: on the oldest those that use its API. Tests that need PyTorch skip
/// themselves without it.
pub(crate) fn tests(root: &Path) -> Outcome {
    with_wheel(root, |root, wheel| {
        let oldest = on_gymnasium(root, wheel, OLDEST_GYMNASIUM, &[("ROLLHOUSE_TEST_API", "1")])?;
        let newest = on_gymnasium(root, wheel, NEWEST_GYMNASIUM, &[])?;
        let lanes = lanes(root, &gymnasium(root, NEWEST_GYMNASIUM).python())?;
        Ok(format!("{oldest}; {newest}; {lanes}"))
    })
}

/// Runs the rows of the suite of lanes that need an interpreter with the package.
fn lanes(root: &Path, python: &Path) -> Result<String, Stop> {
    let programs = programs::build(root).map_err(Stop::Failed)?;
    let of_tests = programs.iter().find(|program| program.name() == "tests all");
    let program = of_tests.ok_or_else(|| Stop::Failed("the suite of lanes was not built".to_owned()))?;
    let mut suite = program.command();
    suite.arg("lanes::python_").env("ROLLHOUSE_TEST_PYTHON", python);
    suite.env("PYTHONPATH", root.join(TESTS).join("packages"));
    shown(&mut suite).map_err(Stop::Failed)?;
    Ok("lanes of Python keep the rules of all lanes".to_owned())
}

/// Returns an interpreter with the newest Gymnasium and the package.
pub(crate) fn interpreter(root: &Path) -> Result<PathBuf, Stop> {
    usable_python()?;
    gymnasium(root, NEWEST_GYMNASIUM).with(&wheel(root)?)
}

/// Makes the virtual environments of [`tests`], which says what is wrong with them.
pub(crate) fn environments(root: &Path) {
    let versions = [OLDEST_GYMNASIUM, NEWEST_GYMNASIUM].map(|version| gymnasium(root, version));
    let mut all = std::iter::once(maturin(root)).chain(versions);
    let _made = usable_python().and_then(|()| all.try_for_each(|environment| environment.make()));
}

fn gymnasium(root: &Path, version: &str) -> Environment {
    Environment {
        path: root.join(format!("target/python/gymnasium-{version}")),
        requirements: vec![format!("gymnasium=={version}")],
        files: vec![root.join("crates/python/tests/requirements.txt")],
    }
}

fn maturin(root: &Path) -> Environment {
    Environment {
        path: root.join("target/python/build"),
        requirements: vec![MATURIN.to_owned()],
        files: Vec::new(),
    }
}

/// Runs the package's own tests on a Gymnasium, with these variables: a file on each processor, and then those that measure
/// or interrupt, with nothing beside them.
fn on_gymnasium(
    root: &Path,
    wheel: &Path,
    version: &str,
    variables: &[(&str, &str)],
) -> Result<String, Stop> {
    let python = gymnasium(root, version).with(wheel)?;
    let workers = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let beside = ["-m", "not alone", "--numprocesses", &workers, "--dist", "loadfile"];
    let run = |of_pytest: &[&str]| {
        let mut tests = pytest_command(root, Some(wheel), &python, &[TESTS]);
        tests.args(of_pytest).envs(variables.iter().copied());
        run_pytest(tests)
    };
    let (beside, alone) = (run(&beside)?, run(&["-m", "alone"])?);
    Ok(format!("gymnasium {version}: {beside}, alone: {alone}"))
}

/// Runs all of the package's tests, including those that need heavy packages, checks its types, and installs it from
/// source.
pub(crate) fn all_tests(root: &Path) -> Outcome {
    with_wheel(root, |root, wheel| {
        let oldest = on_gymnasium(root, wheel, OLDEST_GYMNASIUM, &[])?;
        let tests = root.join("crates/python/tests");
        let environment = Environment {
            path: root.join("target/python/all"),
            requirements: Vec::new(),
            files: vec![tests.join("requirements.txt"), tests.join("requirements-all.txt")],
        };
        let python = environment.with(wheel)?;
        // What asks for another Gymnasium than it works with.
        let apart = tests.join("requirements-apart.txt");
        environment.pip(&["--no-deps".as_ref(), "-r".as_ref(), &apart])?;
        let found = pytest(root, Some(wheel), &python, &[TESTS], true)?;
        // Not at the root, where the sources lie in the way of the installed package.
        let mut mypy = Command::new(&python);
        let config = root.join("crates/python/pyproject.toml");
        mypy.args(["-m", "mypy", "--package", "rollhouse", "--config-file"]).arg(config);
        mypy.current_dir(&environment.path);
        shown(&mut mypy).map_err(Stop::Failed)?;
        // Some trainers want a Gymnasium of their own.
        let environment = Environment {
            path: root.join("target/python/trainers"),
            requirements: Vec::new(),
            files: vec![tests.join("requirements.txt"), tests.join("requirements-trainers.txt")],
        };
        let learned = pytest(root, Some(wheel), &environment.with(wheel)?, &[TRAINERS], true)?;
        // LeRobot wants a PyTorch, an OpenCV and a Rerun that are older than the others' are.
        let environment = Environment {
            path: root.join("target/python/lerobot"),
            requirements: Vec::new(),
            files: vec![tests.join("requirements.txt"), tests.join("requirements-lerobot.txt")],
        };
        let opened = pytest(root, Some(wheel), &environment.with(wheel)?, &[LEROBOT], true)?;
        // What OpenRA-RL brings nobody else needs.
        let environment = Environment {
            path: root.join("target/python/openra"),
            requirements: Vec::new(),
            files: vec![tests.join("requirements.txt"), tests.join("requirements-openra.txt")],
        };
        let gated = pytest(root, Some(wheel), &environment.with(wheel)?, &OPENRA, true)?;
        // OpenRA-RL wants an older OpenEnv.
        let environment = Environment {
            path: root.join("target/python/openenv"),
            requirements: Vec::new(),
            files: vec![tests.join("requirements.txt"), tests.join("requirements-openenv.txt")],
        };
        let opened_env = pytest(root, Some(wheel), &environment.with(wheel)?, &[OPENENV], true)?;
        from_source(root)?;
        Ok(format!(
            "{oldest}; {found}; trainers: {learned}; LeRobot: {opened}; gates: {gated}, {opened_env}; types checked; installed from source"
        ))
    })
}

/// The reason why a step ends early.
pub(crate) enum Stop {
    Skipped(String),
    Failed(String),
}

fn with_wheel(root: &Path, run: impl FnOnce(&Path, &Path) -> Result<String, Stop>) -> Outcome {
    let built = usable_python().and_then(|()| program(root)).and_then(|()| wheel(root));
    outcome(built.and_then(|wheel| run(root, &wheel)))
}

/// Turns the end of a step, which found something or ended early, into its outcome.
pub(crate) fn outcome(ended: Result<String, Stop>) -> Outcome {
    match ended {
        Ok(found) => Outcome::Passed(found),
        Err(Stop::Skipped(why)) => Outcome::Skipped(why),
        Err(Stop::Failed(what)) => Outcome::Failed(what),
    }
}

/// Checks that `python3` is new enough and can make virtual environments.
pub(crate) fn usable_python() -> Result<(), Stop> {
    let program = "import sys, venv, ensurepip; print(sys.version_info[0] * 1000 + sys.version_info[1])";
    let output = Command::new("python3")
        .args(["-c", program])
        .output()
        .map_err(|error| Stop::Skipped(format!("python3 cannot be started: {error}")))?;
    if !output.status.success() {
        let last = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned();
        return Err(Stop::Skipped(format!("python3 cannot make virtual environments: {last}")));
    }
    let version: u32 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(0);
    if version < 3000 + OLDEST_PYTHON {
        let (major, minor) = (version / 1000, version % 1000);
        return Err(Stop::Skipped(format!("python3 is {major}.{minor}, 3.{OLDEST_PYTHON} is wanted")));
    }
    Ok(())
}

/// Builds the binary from which the tests start clusters: with all others and the Rust tests, as their step does. Alone
/// it would have other features of its dependencies, and half of the workspace would be compiled a second time.
pub(crate) fn program(root: &Path) -> Result<(), Stop> {
    shown(&mut cargo(root, &BUILD_ALL)).map_err(Stop::Failed)
}

/// Builds the binary that users get.
pub(crate) fn release(root: &Path) -> Result<PathBuf, Stop> {
    let arguments = [
        "build",
        "--quiet",
        "--release",
        "--locked",
        "--package",
        "rollhouse-cli",
        "--features",
        "gate,onnx,openra",
    ];
    shown(&mut cargo(root, &arguments)).map_err(Stop::Failed)?;
    Ok(release_path(root))
}

/// Tests and builds the binary that sends spans of its calls to a collector, in a folder of its own: the one beside the
/// other tests does not.
pub(crate) fn traced(root: &Path) -> Result<(), Stop> {
    let of = ["--quiet", "--locked", "--package", "rollhouse-cli", "--features", "otlp", "--target-dir"];
    for command in [&["build"][..], &["test", "--lib"]] {
        let mut cargo = cargo(root, command);
        cargo.args(of).arg(root.join(TRACED));
        // Names of tests stand last.
        if command.len() > 1 {
            cargo.arg("traces::");
        }
        shown(&mut cargo).map_err(Stop::Failed)?;
    }
    Ok(())
}

/// Returns the path at which [`program`] puts the binary.
fn program_path(root: &Path) -> PathBuf {
    target(root).join("debug/rollhouse")
}

/// Returns the path at which [`release`] puts the binary.
fn release_path(root: &Path) -> PathBuf {
    target(root).join("release/rollhouse")
}

fn target(root: &Path) -> PathBuf {
    root.join(std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from))
}

/// Builds the wheel with the profile of the other tests, in the same target directory, out of what was compiled for them.
pub(crate) fn wheel(root: &Path) -> Result<PathBuf, Stop> {
    wheel_of(root, "dev", &["--features", FEATURES_AS_TESTED], "target/python/wheels", |command| command)
}

/// Compiles what [`wheel`] needs while other programs run, which have the processors first.
pub(crate) fn wheel_ahead(root: &Path) -> Result<PathBuf, Stop> {
    usable_python()?;
    wheel_of(root, "dev", &["--features", FEATURES_AS_TESTED], "target/python/wheels", behind)
}

/// Builds the wheel that users get.
pub(crate) fn release_wheel(root: &Path) -> Result<PathBuf, Stop> {
    wheel_of(root, "release", &[], "target/python/release-wheels", |command| command)
}

/// Builds the wheel with that profile and these arguments of maturin's, alone in that folder.
fn wheel_of(
    root: &Path,
    profile: &str,
    more: &[&str],
    folder: &str,
    rank: fn(Command) -> Command,
) -> Result<PathBuf, Stop> {
    let environment = maturin(root);
    environment.make()?;
    let wheels = root.join(folder);
    // The newest is not told from older ones by its name.
    let _absent = fs::remove_dir_all(&wheels);
    let mut build = Command::new(environment.path.join("bin/maturin"));
    forget_own_package(&mut build);
    build
        .args(["build", "--quiet", "--profile", profile, "--locked"])
        .args(more)
        .arg("--out")
        .arg(&wheels)
        .current_dir(root.join("crates/python"));
    shown(&mut rank(build)).map_err(Stop::Failed)?;
    let wheel = fs::read_dir(&wheels).ok().and_then(|mut entries| entries.find_map(Result::ok));
    wheel.map(|entry| entry.path()).ok_or_else(|| Stop::Failed(format!("no wheel in {}", wheels.display())))
}

/// Builds the wheels that the image of Python nodes consists of, by pip of that environment: the package's, in release, and
/// those of what it needs. A test that makes the image would otherwise compile for minutes.
pub(crate) fn image_wheels(root: &Path, environment: &Environment) -> Result<(), Stop> {
    let wheels = root.join(IMAGE_WHEELS);
    let _absent = fs::remove_dir_all(&wheels);
    let mut build = Command::new(environment.python());
    forget_own_package(&mut build);
    build.args(["-m", "pip", "wheel", "--quiet", "--wheel-dir"]).arg(&wheels).arg(root.join("crates/python"));
    shown(&mut build).map_err(Stop::Failed)
}

/// The folder of the wheels of which an image is made.
const IMAGE_WHEELS: &str = "target/python/image-wheels";

/// A virtual environment and the packages installed in it.
pub(crate) struct Environment {
    pub(crate) path: PathBuf,
    pub(crate) requirements: Vec<String>,
    pub(crate) files: Vec<PathBuf>,
}

impl Environment {
    /// Returns the path of its interpreter.
    pub(crate) fn python(&self) -> PathBuf {
        self.path.join("bin/python")
    }

    /// Installs the wheel into it and returns the path of its interpreter.
    pub(crate) fn with(&self, wheel: &Path) -> Result<PathBuf, Stop> {
        self.make()?;
        self.pip(&["--force-reinstall".as_ref(), "--no-deps".as_ref(), wheel])?;
        // Of what the wheel requires, only what is not there yet.
        self.pip(&[wheel])?;
        Ok(self.python())
    }

    /// Makes it, unless it was made before from the same requirements. One is made at a time: that of a step may be under
    /// way ahead of it.
    pub(crate) fn make(&self) -> Result<(), Stop> {
        static MAKING: Mutex<()> = Mutex::new(());
        let _one = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = self.path.join("made-from.txt");
        let wanted = self.wanted()?;
        if fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == wanted) {
            return Ok(());
        }
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv", "--clear"]).arg(&self.path);
        shown(&mut venv).map_err(Stop::Skipped)?;
        let mut arguments: Vec<&Path> = self.requirements.iter().map(Path::new).collect();
        for file in &self.files {
            arguments.extend(["-r".as_ref(), file.as_path()]);
        }
        self.pip(&arguments)?;
        fs::write(&stamp, wanted).map_err(|error| Stop::Failed(format!("{}: {error}", stamp.display())))
    }

    /// Returns everything that decides which packages are in it.
    fn wanted(&self) -> Result<String, Stop> {
        let mut wanted = self.requirements.join("\n");
        for file in &self.files {
            let text = fs::read_to_string(file);
            let text =
                text.map_err(|error| Stop::Failed(format!("cannot read {}: {error}", file.display())))?;
            wanted.push('\n');
            wanted.push_str(&text);
        }
        Ok(wanted)
    }

    fn pip(&self, arguments: &[&Path]) -> Result<(), Stop> {
        let mut install = Command::new(self.python());
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(arguments);
        shown(&mut install).map_err(|why| Stop::Skipped(format!("packages cannot be installed here: {why}")))
    }
}

/// Runs the tests, some of which look at the wheel, and returns the line with which pytest closes. Tests that take long
/// run only if all are wanted.
pub(crate) fn pytest(
    root: &Path,
    wheel: Option<&Path>,
    python: &Path,
    which: &[&str],
    all: bool,
) -> Result<String, Stop> {
    let mut tests = pytest_command(root, wheel, python, which);
    if all {
        tests.env("ROLLHOUSE_TEST_ALL", "1");
        tests.env("ROLLHOUSE_RELEASE", release_path(root));
        tests.env("ROLLHOUSE_WHEELS", root.join(IMAGE_WHEELS));
        tests.env("ROLLHOUSE_TRACED", root.join(TRACED).join("debug/rollhouse"));
    }
    run_pytest(tests)
}

fn pytest_command(root: &Path, wheel: Option<&Path>, python: &Path, which: &[&str]) -> Command {
    let mut tests = Command::new(python);
    tests
        // Each test has a line: one that takes long is told from one that hangs, and which one hangs is the one after
        // the last line; its threads say where.
        .args(["-m", "pytest", "-rsfE", "--verbose", "-p", "no:cacheprovider"])
        .args(which)
        .args(["-o", "faulthandler_timeout=300", "--durations=20"])
        .current_dir(root)
        .env("ROLLHOUSE_PROGRAM", program_path(root))
        .env_remove("ROLLHOUSE_TEST_ALL")
        .env_remove("ROLLHOUSE_TEST_API");
    if let Some(wheel) = wheel {
        tests.env("ROLLHOUSE_WHEEL", wheel);
    }
    tests
}

fn run_pytest(mut tests: Command) -> Result<String, Stop> {
    let mut last = String::new();
    let ended = watch(&mut tests, PATIENCE, |text| {
        eprintln!("{text}");
        if !text.trim().is_empty() {
            text.clone_into(&mut last);
        }
    });
    let closing = last.trim_matches(|c: char| c == '=' || c == ' ').to_owned();
    match ended {
        Ok(Ended::Itself(status)) if status.success() => Ok(closing),
        Ok(Ended::Itself(_)) => Err(Stop::Failed(format!("{}: {closing}", line(&tests)))),
        Ok(killed @ Ended::Killed(_)) => Err(Stop::Failed(format!("{}: {killed}: {closing}", line(&tests)))),
        Err(error) => Err(Stop::Failed(format!("pytest: {error}"))),
    }
}

/// Installs the package as a user with Rust and nothing else would, and steps once.
fn from_source(root: &Path) -> Result<(), Stop> {
    let environment =
        Environment { path: root.join("target/python/source"), requirements: Vec::new(), files: Vec::new() };
    let mut venv = Command::new("python3");
    shown(venv.args(["-m", "venv", "--clear"]).arg(&environment.path)).map_err(Stop::Failed)?;
    environment.pip(&[&root.join("crates/python")])?;
    let program = "import rollhouse; envs = rollhouse.make_vec('CartPole-v1', 2); envs.reset(seed=0); \
                   envs.step([0, 1]); print('installed from source:', envs)";
    let mut smoke = Command::new(environment.python());
    shown(smoke.args(["-c", program]).current_dir(&environment.path)).map_err(Stop::Failed)?;
    let mut command = Command::new(environment.path.join("bin/rollhouse"));
    shown(command.arg("--version")).map_err(Stop::Failed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the packages that cargo would build, each with its features.
    fn packages(arguments: &[&str]) -> BTreeSet<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut tree =
            cargo(&root, &["tree", "--locked", "--prefix", "none", "--format", "{p}, features: {f}"]);
        let output = tree.args(arguments).output().expect("cargo is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
    }

    #[test]
    fn the_wheel_of_the_tests_needs_nothing_compiled_that_the_rust_tests_did_not_but_its_bindings() {
        // Both are built with `as-tested`, which adds this one; the others are to be there without it.
        let compiled = packages(&[
            "--workspace",
            "--features",
            "rollhouse-python/gate,rollhouse-python/onnx,rollhouse-python/openra",
        ]);
        let wanted = packages(&[
            "--package",
            "rollhouse-python",
            "--features",
            FEATURES_AS_TESTED,
            "--edges",
            "normal,build",
        ]);
        let more: Vec<&String> = wanted
            .difference(&compiled)
            .filter(|package| !package.starts_with("pyo3") && !package.starts_with("rollhouse-python"))
            .collect();
        assert!(
            more.is_empty(),
            "`as-tested` of crates/python/Cargo.toml lacks features of these: {more:#?}"
        );
    }
}
