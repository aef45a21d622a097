//! What others chose, in everything that a command prints: names of nodes and envs, notes, causes, arguments.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;

use rollhouse_tests::{Done, Folder, json_lines, rollhouse, succeed};

/// Clears the screen, sets the title, begins a line of its own, colours by C1, turns the direction, hides a character.
pub(crate) const HOSTILE: &str = "x\u{1b}[2J\u{1b}]0;owned\u{7}\r\nall is well\u{9b}31m\u{202e}\u{2066}\u{200f}\u{61c}\u{2028}\u{200b}\u{7f}y";

/// Runs a command line, whose `{}` is the hostile text, and looks at all that it prints.
pub(crate) fn check(data: &Path, line: &str) -> Done {
    let mut words = line.split(' ');
    let mut command = rollhouse(data, words.next().unwrap());
    command.args(words.map(|word| word.replace("{}", HOSTILE)));
    let done = Done::of(command.output().unwrap());
    for (stream, text) in [("stdout", &done.stdout), ("stderr", &done.stderr)] {
        let raw = |char: &char| char.is_control() && *char != '\n' || is_raw(*char);
        assert_eq!(text.chars().find(raw), None, "{line}: {stream}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("all is well")), "{line}: {stream}: {text:?}");
    }
    done
}

/// Whether it is one of the hostile text's characters that no program writes by itself: controls of C1, and those that
/// turn the direction of a text or take no place.
pub(crate) fn is_raw(char: char) -> bool {
    HOSTILE.contains(char) && !char.is_ascii()
}

/// Symptom: a note or an argument cleared the terminal of whoever listed it, set its title, or began a line
/// that the program never printed. Cause: each caller had to clean what it printed, and many did not. Fix: lines, tables,
/// messages, JSON and logs are cleaned where all of them pass.
#[test]
fn no_recording_and_no_argument_controls_the_terminal_of_whoever_prints_it() {
    let data = Folder::new();
    let path = data.path();
    succeed(path, "rollout --env CartPole-v1 --lanes 1 --episodes 2");
    let listed = json_lines(path, "replay ls --json");
    let id = |at: usize| listed[at]["id"].as_str().unwrap();
    let (first, second) = (id(0), id(1));
    assert_eq!(check(path, &format!("replay note {first} {{}}")).code, Some(0));
    for line in [
        "replay ls",
        "replay ls --json",
        "replay stats",
        "replay stats --json",
        "replay stats --plot",
        "replay verify",
        "replay verify --json",
        "replay prune --older-than 1h",
        "replay repair",
        "replay quarantine ls",
        "replay ls --env {}",
        "replay show {}",
        "replay export {}",
        "replay tag {} {}",
        "replay import {}",
        "replay ls --data {}",
        "store verify --from {}",
        "envs {}",
        "envs --json {}",
        "rollout --env {} --lanes 1 --episodes 1",
        "rollout --env {}:{} --lanes 1 --episodes 1",
        "status --connect {}",
        "nodes --connect rollhouse://127.0.0.1:1?token={}&ca={}",
        "config check --role node {}",
        "config show --set node.labels={}",
        "doctor node --data {}",
        "health {}",
        "token create --role trainer --name {} --data {}",
        "certs issue --dir {} --role node --name {} --output {}",
        "{}",
        "replay {}",
        "--{}",
    ] {
        check(path, line);
    }
    for line in [
        "replay show ID",
        "replay show ID --json",
        "replay diff ID OTHER",
        "replay tag ID {}",
        "replay export ID --format jsonl",
        "replay export ID --format html",
        "replay fork ID --at 3",
        "replay fork ID --at 3 --policy {}",
    ] {
        check(path, &line.replace("ID", first).replace("OTHER", second));
    }
}
