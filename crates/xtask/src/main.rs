//! The project's chores, so that nothing but cargo has to be installed or remembered.
//!
//! `cargo xtask ci` is the pipeline, `cargo xtask test` the tests. Start reading at [`Plan`]. Not a goal:
//! anything a user of Rollhouse needs.
#![forbid(unsafe_code)]
#![expect(clippy::print_stderr, reason = "talking to the developer is all it does")]

mod circles;
mod counts;
mod deploy;
mod heavy;
mod libtest;
mod lines;
mod mutations;
mod named_tests;
mod outcome;
mod plan;
mod processor;
mod programs;
mod python;
mod secrets;
mod sizes;
mod source;
mod style;
mod tasks;
mod test_files;
mod tests_step;
mod watch;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use plan::Plan;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = workspace_root();
    let plan = match words.as_slice() {
        ["ci"] => Plan::ci(root),
        ["style"] => Plan::style(root),
        ["test"] => Plan::test(root),
        ["test", "--all"] => Plan::everything(root),
        ["test", "--all", "--from", step] => match Plan::everything(root).from(step) {
            Some(plan) => plan,
            None => {
                eprintln!("test --all has no step `{step}`");
                return ExitCode::from(2);
            }
        },
        ["python"] => Plan::python(root),
        ["python", "--all"] => Plan::all_python(root),
        ["deploy"] => Plan::deploy(root),
        ["deploy", "--all"] => Plan::all_deploy(root),
        ["dist"] => Plan::dist(root),
        ["mutations"] => Plan::mutations(root),
        ["golden"] => Plan::golden(root),
        ["deny"] => Plan::deny(root),
        ["lines"] => return counted(lines::run(&root, None)),
        ["lines", commit] => return counted(lines::run(&root, Some(commit))),
        ["help" | "--help" | "-h"] => {
            eprint!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if plan.run() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn counted(done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

fn workspace_root() -> PathBuf {
    // crates/xtask is two levels below the root.
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

const USAGE: &str = "\
usage: cargo xtask <command>

  ci           format, style, clippy, docs, tests: what a change must pass
  test         the tests, those of the Python package and of deploy/ included
  test --all   the tests, longer, and what is too heavy for every change: process tests of the release
               build, half an hour of chaos beside tenants who flood (ROLLHOUSE_CHAOS_MINUTES), the Python tests that
               need PyTorch and adapters, golden data made anew and compared, object storage (a server that crates.io brings),
               other architectures, licences and advisories of all dependencies; with --from STEP, from that one on
  python       of the tests, those of the Python package alone; with --all, the heavy ones too
  deploy       of the tests, those of images, manifests, rules and dashboards alone; with --all, the heavy ones too
  dist         what a release consists of, in target/dist: each part tried where nothing else is installed
  mutations    whether the simulation finds each fault of crates/simulation/mutations.txt, put into a copy of the tree
  golden       of these, the golden data alone
  deny         of these, licences and advisories alone
  style        the house rules a script can check
  lines        lines of Rust by crate, without tests, comments and blanks; with COMMIT, beside those of that commit
";
