//! What bad input gets: a plain message, the promised exit code, and nothing written.

use std::process::{Command, Stdio};

use rollhouse_tests::{Done, Folder, Running, binary, json_lines, run, segments, succeed};

/// A command line, its exit code, and what its message has to say.
const REFUSED: [(&str, i32, &str); 17] = [
    (
        "rollout --env CartPole-v2 --lanes 4 --steps 9",
        2,
        "unknown env `CartPole-v2`; nearest are CartPole-v1",
    ),
    ("rollout --env CartPole-v1 --lanes 0 --steps 9", 2, "1 to 65536 lanes"),
    ("rollout --env CartPole-v1 --lanes 99999999 --steps 9", 2, "1 to 65536 lanes"),
    ("rollout --env CartPole-v1 --lanes -3 --steps 9", 2, "1 to 65536 lanes"),
    ("rollout --env CartPole-v1 --lanes 4 --threads 0 --steps 9", 2, "1 to 256 threads"),
    ("rollout --env CartPole-v1 --lanes 4", 2, "<--steps <S>|--episodes <E>>"),
    ("rollout --env CartPole-v1 --lanes 4 --steps 9 --episodes 9", 2, "cannot be used with"),
    ("rollout --env CartPole-v1 --lanes 4 --episodes 0", 2, "a whole number of at least 1 is wanted"),
    ("rollout --env CartPole-v1 --lanes 4 --steps 9 --record sample:1.5", 2, "not a number between 0 and 1"),
    ("rollout --env CartPole-v1 --lanes 4 --steps 9 --record most", 2, "all, none, sample:P and trace"),
    ("rollout --env CartPole-v1 --lanes 4 --steps 9 --policy greedy", 2, "built in are random and noop"),
    ("envs CartPole", 2, "nearest are CartPole-v1"),
    ("replay show nonsense", 2, "one looks like k3f9q2tz-17-203"),
    ("replay ls --outcome won", 2, "known are terminated"),
    ("replay ls --sort price", 2, "known are return"),
    ("replay ls --min-return nan", 2, "a number is wanted"),
    ("replay verify --all k3f9q2tz-1-2", 2, "cannot be used with"),
];

#[test]
fn nonsense_is_refused_with_a_plain_message_and_nothing_is_written() {
    let data = Folder::new();
    for (line, code, says) in REFUSED {
        let done = run(data.path(), line);
        assert_eq!(done.code, Some(code), "{line}: {}", done.stderr);
        assert!(done.stderr.contains(says), "{line}: {}", done.stderr);
        assert_eq!(done.stdout, "", "{line}");
    }
    assert!(std::fs::read_dir(data.path()).unwrap().next().is_none());
}

#[test]
fn a_folder_without_recordings_is_named() {
    let data = Folder::new();
    let missing = data.path().join("not-there");
    for line in ["replay ls", "replay stats", "replay verify", "replay repair", "replay show k3f9q2tz-1-2"] {
        let done = run(&missing, line);
        assert_eq!(done.code, Some(2), "{line}: {}", done.stderr);
        assert!(done.stderr.contains("not-there"), "{line}: {}", done.stderr);
        assert!(!missing.exists(), "{line} made the folder");
    }
}

#[test]
fn an_episode_that_is_not_there_is_named() {
    let data = Folder::new();
    succeed(data.path(), "rollout --env CartPole-v1 --lanes 1 --episodes 1");
    for line in ["replay show 00000000-1-2", "replay verify 00000000-1-2", "replay export 00000000-1-2"] {
        let done = run(data.path(), line);
        assert_eq!(done.code, Some(2), "{line}: {}", done.stderr);
        assert!(done.stderr.contains("00000000-1-2"), "{line}: {}", done.stderr);
    }
}

#[test]
fn a_second_writer_is_refused_and_told_who_has_the_folder() {
    let data = Folder::new();
    let mut first = Running::start(data.path(), "rollout --env Acrobot-v1 --lanes 2 --steps 1000000000000");
    first.until_written(data.path(), 1);
    for line in ["rollout --env CartPole-v1 --lanes 1 --steps 1", "replay repair"] {
        let done = run(data.path(), line);
        assert_eq!(done.code, Some(4), "{line}: {}", done.stderr);
        assert!(done.stderr.contains(&format!("process {}", first.id())), "{line}: {}", done.stderr);
    }
    first.signal("INT");
    assert_eq!(first.wait().code, Some(130));
}

#[test]
fn a_disk_that_takes_no_more_is_an_error_that_says_what_is_safe() {
    let data = Folder::new();
    // The shell lets no file grow over 64 blocks of 512 or 1,024 bytes; writing beyond fails.
    let limited = "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\"";
    let line = "rollout --env Acrobot-v1 --lanes 8 --steps 1000000 --json";
    let output = Command::new("sh")
        .args(["-c", limited])
        .arg(binary())
        .args(line.split(' '))
        .env("ROLLHOUSE_DATA", data.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let done = Done::of(output);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("episodes are written"), "{}", done.stderr);
    // What it says is safe is there, and intact.
    let report: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    let safe = report["recorded"]["episodes"].as_u64().unwrap();
    let kept = json_lines(data.path(), "replay ls --json");
    // Where the recording broke off, episodes look crashed; those were not called safe. How much was depends on whether
    // something had been synced before there was no more room.
    let finished = kept.iter().filter(|episode| episode["outcome"] != "crashed").count() as u64;
    assert!(finished > 0 && finished >= safe, "{finished} of {safe} safe episodes are there");
    assert_eq!(run(data.path(), "replay verify --all").code, Some(0));
    assert!(!segments(data.path()).is_empty());
}

#[test]
fn a_pipe_in_place_of_a_file_is_named_and_waited_for_by_nobody() {
    // Symptom: commands hung when a named pipe stood in place of a recording, a config or a token.
    // Cause: files were opened and read whatever they were.
    // Fix: they are opened without waiting, and what is no regular file is refused by what it is.
    const NAMED: &str = "a pipe, where a regular file has to be";
    let data = Folder::new();
    succeed(data.path(), "rollout --env CartPole-v1 --lanes 1 --episodes 1");
    let pipe = data.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for line in ["coordinator --config", "node --config", "replay import"] {
        let done = run(data.path(), &format!("{line} {}", pipe.display()));
        assert!(done.code != Some(0) && done.stderr.contains(NAMED), "{line}: {}", done.stderr);
    }
    let done = Done::of(
        rollhouse_tests::rollhouse(data.path(), "status --connect rollhouse://127.0.0.1:1")
            .env("ROLLHOUSE_TOKEN_FILE", &pipe)
            .output()
            .unwrap(),
    );
    assert!(done.code == Some(2) && done.stderr.contains(NAMED), "{}", done.stderr);
    let segment = segments(data.path()).remove(0);
    std::fs::remove_file(&segment).unwrap();
    std::fs::rename(&pipe, &segment).unwrap();
    for line in ["replay ls", "replay stats", "replay verify"] {
        let done = run(data.path(), line);
        assert!(done.code != Some(0) && done.stderr.contains(NAMED), "{line}: {}", done.stderr);
    }
}
