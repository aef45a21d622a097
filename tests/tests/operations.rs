//! docs/operations.md does what it says, where it gives commands that need one machine alone.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use rollhouse_tests::{Folder, Service, binary, console_commands, succeed, workspace};

/// The commands run as they stand, one after another, in a folder with a checkout's `config` and the cluster of a
/// `rollhouse up` that has played; `rollhouse` is the binary under test.
#[test]
fn every_command_of_the_page_for_operators_runs_and_succeeds() {
    let page = fs::read_to_string(workspace().join("docs/operations.md")).unwrap();
    let commands = console_commands(&page);
    assert!(commands.len() >= 8, "{commands:?}");
    let folder = Folder::new();
    let programs = folder.path().join("programs");
    fs::create_dir(&programs).unwrap();
    symlink(binary(), programs.join("rollhouse")).unwrap();
    symlink(workspace().join("config"), folder.path().join("config")).unwrap();
    let mut up = Service::start_with(folder.path(), &["up"], &[("ROLLHOUSE_SPOOL__SEAL_AFTER", "200 ms")]);
    let connection = up.read();
    let line = "rollout --env CartPole-v1 --lanes 8 --episodes 100 --connect";
    succeed(folder.path(), &format!("{line} {connection}"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([programs].into_iter().chain(std::env::split_paths(&path))).unwrap();
    for command in commands {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).env("PATH", &path).current_dir(folder.path());
        let output = shell.env_remove("ROLLHOUSE_DATA").env_remove("ROLLHOUSE_CONNECT").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{command}: {said}");
    }
    assert!(up.end().success());
}
