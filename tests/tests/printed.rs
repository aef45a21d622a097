//! Commands that the program prints for people to copy run as they stand.

use std::path::Path;
use std::process::{Command, Stdio};

use rollhouse_tests::{Done, Folder, Service, binary};

/// The commands of a text: lines that begin with one, and what follows a colon or stands between backticks.
fn commands(text: &str) -> Vec<String> {
    let of_line = |line: &str| {
        let after = line.rsplit_once(": rollhouse ").map(|(_, rest)| rest);
        let alone = line.trim_start().strip_prefix("rollhouse ");
        let quoted = || line.split_once("`rollhouse ").and_then(|(_, rest)| rest.split('`').next());
        alone.or(after).or_else(quoted).map(|rest| format!("rollhouse {rest}"))
    };
    text.lines().filter_map(of_line).collect()
}

/// Runs a line in a folder as a shell does, where `rollhouse` is the program under test.
fn shell(folder: &Path, line: &str) -> Done {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("rollhouse() {{ \"$ROLLHOUSE\" \"$@\"; }}; {line}")]).current_dir(folder);
    command.env("ROLLHOUSE", binary()).env_remove("ROLLHOUSE_DATA").env_remove("ROLLHOUSE_CONNECT");
    Done::of(command.stdin(Stdio::null()).output().expect("sh starts"))
}

fn runs(folder: &Path, line: &str) -> Done {
    let done = shell(folder, line);
    assert_eq!(done.code, Some(0), "{line}: {}{}", done.stdout, done.stderr);
    done
}

#[test]
fn every_command_that_up_prints_runs_as_it_stands() {
    let folder = Folder::new();
    let mut up = Service::start(folder.path(), &["up"]);
    up.hear("Ctrl-C ends it");
    // The last is for when this one has ended.
    let printed = commands(&up.said().join("\n"));
    let [now @ .., next] = &printed[..] else { panic!("{:?}", up.said()) };
    assert_eq!((now.len() >= 2, next.as_str()), (true, "rollhouse up"), "{printed:?}");
    for line in now {
        let rollout = runs(folder.path(), line);
        // And those that these print, which name the cluster in the same way.
        for line in commands(&rollout.stdout) {
            runs(folder.path(), &line);
        }
    }
}

#[test]
fn every_command_that_a_rollout_prints_runs_as_it_stands() {
    let folder = Folder::new();
    for data in ["", " --data here"] {
        let done = runs(folder.path(), &format!("rollhouse rollout --env CartPole-v1 --episodes 20{data}"));
        let printed = commands(&done.stdout);
        assert!(!printed.is_empty(), "{}", done.stdout);
        for line in printed {
            assert!(!runs(folder.path(), &line).stdout.is_empty(), "{line}");
        }
    }
}

#[test]
fn every_command_that_certs_and_a_coordinator_print_runs_as_it_stands() {
    let folder = Folder::new();
    let made = runs(folder.path(), "rollhouse certs init");
    let printed = commands(&made.stderr);
    assert_eq!(printed.len(), 2, "{}", made.stderr);
    for line in printed {
        runs(folder.path(), &line);
    }
    let mut coordinator = Service::start(folder.path(), &["coordinator"]);
    coordinator.hear("nobody has a token yet");
    let printed = commands(&coordinator.said().join("\n"));
    assert_eq!(printed.len(), 1, "{:?}", coordinator.said());
    runs(folder.path(), &printed[0]);
    let issuer = runs(folder.path(), "rollhouse certs issuer");
    for line in commands(&issuer.stderr) {
        runs(folder.path(), &line);
    }
    assert!(coordinator.end().success());
}

/// Commands that fail, and name others between backticks that help.
#[test]
fn every_command_that_an_error_names_runs_as_it_stands() {
    let folder = Folder::new();
    runs(folder.path(), "rollhouse rollout --env CartPole-v1 --episodes 2 --data here");
    runs(folder.path(), "rollhouse certs init");
    let damaged = "dd if=/dev/zero of=$(ls here/segments/*) bs=1 seek=200 count=40 conv=notrunc 2>&1";
    for (line, least) in [
        ("rollhouse replay show k3f9q2tz-17-203 --data here", 1),
        ("rollhouse replay quarantine read k3f9q2tz-17-203 --data here", 1),
        ("rollhouse rollout --env Cart --episodes 1", 1),
        ("rollhouse replay verify --data here --json", 1),
    ] {
        if line.contains("verify") {
            assert_eq!(shell(folder.path(), damaged).code, Some(0));
        }
        let done = shell(folder.path(), line);
        assert_ne!(done.code, Some(0), "{line}: {}", done.stdout);
        let printed = all_quoted(&done.stderr);
        assert!(printed.len() >= least, "{line}: {}", done.stderr);
        for named in printed {
            runs(folder.path(), &named);
        }
    }
}

/// All commands between backticks.
fn all_quoted(text: &str) -> Vec<String> {
    let quoted = text.split('`').skip(1).step_by(2).filter(|quoted| quoted.starts_with("rollhouse "));
    quoted.map(str::to_owned).collect()
}

/// Symptom: a second `up` said that an address of metrics is in use, and named a key that it has not.
#[test]
fn a_second_up_says_what_runs_here_and_the_command_that_it_names_starts_one_beside_it() {
    let folder = Folder::new();
    let mut up = Service::start(folder.path(), &["up"]);
    let metrics = up.hear("metrics and health on http://");
    up.read();
    let (code, said) = Service::start(folder.path(), &["up"]).ended();
    let text = said.join("\n");
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains(&format!("a cluster runs here already, as process {}", up.id())), "{text}");
    let printed = commands(&text);
    let [status, beside] = &printed[..] else { panic!("{text}") };
    runs(folder.path(), status);
    let words: Vec<&str> = beside.split(' ').skip(1).collect();
    let mut second = Service::start(folder.path(), &words);
    assert!(second.read().starts_with("rollhouse://127.0.0.1:"));
    assert!(second.end().success());
    // In another folder it is the addresses that are taken.
    let taken = format!("metrics.coordinator={metrics}");
    let (code, said) = Service::start(folder.path(), &["up", "--data", "third", "--set", &taken]).ended();
    let text = said.join("\n");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("--set metrics.coordinator=") && !text.contains("metrics.listen"), "{text}");
    assert!(up.end().success());
}
