//! The README does what it says.

use std::fs;
use std::process::Command;

use rollhouse_tests::{Folder, Service, bench_binary, binary, console_commands, json_lines, run, workspace};

/// Every command runs as it stands, one after another in one folder, but for three things: what cargo would build
/// and start is the binary under test; `up` runs in the background from where it stands, on free ports; and the
/// commands that start these very tests, that install the Python package and that want a terminal are only looked up: the
/// Python tests install it, and run what the README shows of it, and the tests of terminals watch the samples.
#[test]
fn every_command_of_the_readme_runs_and_succeeds() {
    let readme = fs::read_to_string(workspace().join("README.md")).unwrap();
    let commands = console_commands(&readme);
    assert!(commands.len() >= 8, "{commands:?}");
    let folder = Folder::new();
    let mut up = None;
    for command in commands {
        if command == "cargo run --release -- up" {
            let mut service = Service::start(folder.path(), &["up"]);
            assert!(service.read().starts_with("rollhouse://127.0.0.1:"));
            up = Some(service);
            continue;
        }
        if command == "cargo xtask test" {
            let ci = fs::read_to_string(workspace().join("crates/xtask/src/main.rs")).unwrap();
            assert!(ci.contains("[\"test\"] =>"), "cargo xtask has no command `test`");
            continue;
        }
        if let Some(samples) = command.strip_prefix("cargo run --release -- replay play --data ") {
            assert!(workspace().join(samples).is_dir(), "{command}");
            continue;
        }
        if let Some(package) = command.strip_prefix("pip install ./") {
            assert!(workspace().join(package).join("pyproject.toml").is_file(), "{command}");
            continue;
        }
        let line = command.replace("cargo run --release --", "\"$ROLLHOUSE\"");
        let line = line.replace("cargo run --release -p rollhouse-bench --", "\"$BENCH\"");
        assert_ne!(line, command, "a command this test does not know: {command}");
        let output = Command::new("sh")
            .args(["-c", &line])
            .env("ROLLHOUSE", binary())
            .env("BENCH", bench_binary())
            .env_remove("ROLLHOUSE_DATA")
            .env_remove("ROLLHOUSE_CONNECT")
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{command}: {said}");
        assert!(!output.stdout.is_empty(), "{command} prints nothing");
    }
    let exported: Vec<_> = fs::read_dir(folder.path().join("best")).unwrap().map(Result::unwrap).collect();
    assert_eq!(exported.len(), 10);
    for file in exported {
        assert!(fs::read_to_string(file.path()).unwrap().lines().count() > 8, "{file:?}");
    }
    assert!(up.expect("the README shows how to start a cluster").end().success());
}

#[test]
fn the_sample_replays_are_as_recorded_and_their_page_names_each_with_its_env() {
    let samples = workspace().join("replays/samples");
    let listed = json_lines(&samples, "replay ls --json --all-outcomes");
    let page = fs::read_to_string(workspace().join("replays/README.md")).unwrap();
    let named = page.lines().filter(|line| line.contains("-0-0 |")).count();
    assert_eq!((named, run(&samples, "replay verify --all").code), (listed.len(), Some(0)));
    for episode in listed {
        let (name, env) = (episode["id"].as_str().unwrap(), episode["env"].as_str().unwrap());
        assert!(page.contains(&format!("| {name} | {env} |")), "{name}");
    }
}

#[test]
fn the_exit_codes_of_the_readme_are_those_of_the_program() {
    let readme = fs::read_to_string(workspace().join("README.md")).unwrap();
    let source = fs::read_to_string(workspace().join("crates/cli/src/failure.rs")).unwrap();
    let table: Vec<&str> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| "))
        .filter_map(|line| line.split(" | ").next())
        .filter(|code| code.parse::<u8>().is_ok())
        .collect();
    let program: Vec<&str> = source
        .lines()
        .filter_map(|line| line.trim().strip_suffix(',')?.split_once(" = ").map(|(_, code)| code))
        .filter(|code| code.parse::<u8>().is_ok())
        .collect();
    assert_eq!(table, program);
    assert!(!table.is_empty());
}
