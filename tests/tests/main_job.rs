//! The main job: step, record, look, verify.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};

use rollhouse_tests::{Done, Folder, json_lines, rollhouse, run, segments, succeed};
use serde_json::Value;

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_main_job_records_exactly_the_asked_episodes_and_all_of_them_verify() {
    let data = Folder::new();
    succeed(data.path(), "rollout --env CartPole-v1 --lanes 64 --episodes 1000");
    assert_eq!(json_lines(data.path(), "replay ls --json").len(), 1000);
    let verified = json_lines(data.path(), "replay verify --all --json");
    assert_eq!(verified.len(), 1000);
    assert!(verified.iter().all(|v| v["ok"] == true && v["first_divergence"].is_null()));
}

#[test]
fn every_env_is_recorded_and_verifies() {
    for env in json_lines(Folder::new().path(), "envs --all --json") {
        let (data, id) = (Folder::new(), env["env"].as_str().unwrap());
        let report =
            &json_lines(data.path(), &format!("rollout --env {id} --lanes 5 --episodes 12 --json"))[0];
        assert_eq!((&report["episodes"], &report["recorded"]["episodes"]), (&12.into(), &12.into()), "{id}");
        assert_eq!(run(data.path(), "replay verify").code, Some(0), "{id}");
    }
}

#[test]
fn a_rollout_prints_one_object_of_what_it_did() {
    let data = Folder::new();
    let lines = json_lines(data.path(), "rollout --env CartPole-v1 --lanes 8 --episodes 20 --seed 3 --json");
    let [report] = lines.as_slice() else { panic!("{lines:?}") };
    for field in ["episodes", "bytes", "segments"] {
        assert!(report["recorded"][field].as_u64().unwrap() > 0, "{field}");
    }
    assert_eq!(report["outcomes"]["terminated"], 20);
    assert_eq!(
        (&report["seed"], &report["lanes"], &report["env"]),
        (&3.into(), &8.into(), &"CartPole-v1".into())
    );
}

#[test]
fn listings_filter_sort_and_limit() {
    let data = Folder::new();
    succeed(data.path(), "rollout --env CartPole-v1 --lanes 16 --episodes 200");
    succeed(data.path(), "rollout --env MountainCar-v0 --lanes 2 --episodes 4");
    let returns = |line: &str| -> Vec<f64> {
        json_lines(data.path(), line).iter().map(|episode| episode["return"].as_f64().unwrap()).collect()
    };
    let best = returns("replay ls --json --sort -return --limit 7");
    assert_eq!(best.len(), 7);
    assert!(best.is_sorted_by(|a, b| a >= b));
    let all = returns("replay ls --json --sort return");
    assert_eq!(all.len(), 204);
    assert!(all.is_sorted());
    assert_eq!(all[203], best[0]);
    let least = best[3];
    let above = returns(&format!("replay ls --json --min-return {least}"));
    assert_eq!(above.len(), all.iter().filter(|&&total| total >= least).count());
    assert_eq!(returns("replay ls --json --env MountainCar-v0 --outcome truncated"), [-200.0; 4]);
}

/// Symptom: the best episodes of a run of Acrobot were those that its end had cut off after a few steps.
/// Cause: an order by return took the part of an episode for the whole.
/// Fix: such an order has interrupted episodes only where they are asked for.
#[test]
fn the_best_episodes_came_to_their_end_unless_others_are_asked_for() {
    let data = Folder::new();
    succeed(data.path(), "rollout --env Acrobot-v1 --lanes 8 --steps 4100");
    let outcomes = |line: &str| -> Vec<String> {
        let episodes = json_lines(data.path(), &format!("replay ls --json {line}"));
        episodes.iter().map(|episode| episode["outcome"].as_str().unwrap().to_owned()).collect()
    };
    let is_cut = |outcome: &String| outcome == "cancelled";
    for order in ["-return", "return", "-length", "length"] {
        let listed = outcomes(&format!("--sort {order}"));
        assert!(!listed.is_empty() && !listed.iter().any(is_cut), "{order}: {listed:?}");
        let all = outcomes(&format!("--sort {order} --all-outcomes"));
        assert_eq!(all.len(), listed.len() + 8, "{order}: {all:?}");
    }
    assert!(is_cut(&outcomes("--sort -return --all-outcomes --limit 1")[0]));
    assert!(outcomes("--sort -return --outcome cancelled").iter().all(is_cut));
    assert_eq!(outcomes("").iter().filter(|outcome| is_cut(outcome)).count(), 8);
}

#[test]
fn an_export_tells_the_episode_step_by_step() {
    let data = Folder::new();
    succeed(data.path(), "rollout --env CartPole-v1 --lanes 4 --episodes 4");
    for episode in json_lines(data.path(), "replay ls --json") {
        let id = episode["id"].as_str().unwrap();
        let lines = json_lines(data.path(), &format!("replay export {id} --format jsonl"));
        assert_eq!(keys(&lines[0]), ["obs", "t"]);
        assert_eq!(lines.len() as u64, episode["length"].as_u64().unwrap() + 1);
        let mut total = 0.0;
        for (t, line) in lines.iter().enumerate().skip(1) {
            assert_eq!(keys(line), ["action", "obs", "reward", "t", "terminated", "truncated"]);
            assert_eq!(line["t"], t);
            assert_eq!(line["obs"].as_array().unwrap().len(), 4);
            assert_eq!(line["terminated"].as_bool().unwrap(), t + 1 == lines.len());
            total += line["reward"].as_f64().unwrap();
        }
        assert_eq!(total, episode["return"].as_f64().unwrap());
        let file = data.path().join("episode.jsonl");
        succeed(data.path(), &format!("replay export {id} -o {}", file.display()));
        let written = std::fs::read_to_string(file).unwrap();
        assert_eq!(written, succeed(data.path(), &format!("replay export {id}")));
    }
}

/// Everything about an episode that a seed decides, by lane and number.
#[test]
fn episodes_are_compared_step_by_step_and_where_they_part_is_named() {
    let data = Folder::new();
    for seed in [3, 3, 4] {
        succeed(data.path(), &format!("rollout --env CartPole-v1 --lanes 1 --episodes 1 --seed {seed}"));
    }
    let listed = json_lines(data.path(), "replay ls --json --sort started");
    let names: Vec<&str> = listed.iter().map(|episode| episode["id"].as_str().unwrap()).collect();
    let [a, b, other] = names[..] else { panic!("{listed:?}") };
    let done = run(data.path(), &format!("replay diff {a} {b}"));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.starts_with("they are the same: "), "{}", done.stdout);

    let done = run(data.path(), &format!("replay diff {a} {other}"));
    assert_eq!(done.code, Some(3), "{}", done.stderr);
    assert!(done.stdout.starts_with("they differ from the reset on:") && done.stdout.contains("position"));
    let done = run(data.path(), &format!("replay diff {a} {other} --json"));
    let compared: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(keys(&compared), ["a", "b", "first_difference", "same_steps"]);
    assert_eq!(compared["first_difference"]["step"], 0);
    assert_eq!(keys(&compared["first_difference"]["fields"][0]), ["a", "b", "field"]);

    succeed(data.path(), "rollout --env Pendulum-v1 --lanes 1 --episodes 1");
    let pendulum = json_lines(data.path(), "replay ls --json --env Pendulum-v1");
    let done = run(data.path(), &format!("replay diff {a} {}", pendulum[0]["id"].as_str().unwrap()));
    assert_eq!((done.code, &*done.stdout), (Some(1), ""));
    assert!(done.stderr.contains("one is of CartPole-v1, the other of Pendulum-v1"), "{}", done.stderr);
}

#[test]
fn the_viewers_screen_is_written_as_a_picture_where_there_is_no_terminal() {
    let data = Folder::new();
    succeed(data.path(), "rollout --env CartPole-v1 --lanes 1 --episodes 1 --seed 3");
    let listed = json_lines(data.path(), "replay ls --json");
    let (name, length) = (listed[0]["id"].as_str().unwrap(), &listed[0]["length"]);
    let path = data.path().join("screen.svg");
    let line = format!("replay play {name} --at 5 --size 90x26 --svg {}", path.display());
    assert_eq!(succeed(data.path(), &line), "");
    let svg = std::fs::read_to_string(&path).unwrap();
    assert!(
        svg.starts_with("<svg ") && svg.contains(name) && svg.contains(&format!("5 of {length}")),
        "{svg}"
    );
    let done = run(data.path(), &format!("replay play {name} --svg /nowhere/screen.svg"));
    assert_eq!(done.code, Some(1));
    assert!(done.stderr.contains("writing /nowhere/screen.svg failed"), "{}", done.stderr);
}

#[test]
fn statistics_are_drawn_as_text_where_there_is_no_terminal_and_as_a_picture() {
    let data = Folder::new();
    succeed(data.path(), "rollout --env CartPole-v1 --lanes 8 --episodes 300 --seed 3");
    succeed(data.path(), "rollout --env Pendulum-v1 --lanes 2 --episodes 2 --seed 3");
    let drawn = succeed(data.path(), "replay stats --plot");
    assert!(drawn.contains("CartPole-v1: 300 episodes; a column is the mean of up to "), "{drawn}");
    assert!(drawn.contains("\nPendulum-v1: 2 episodes\n") && drawn.contains("█"), "{drawn}");
    assert!(drawn.contains("terminated     100.0 %  300 episodes") && !drawn.contains('\x1b'), "{drawn}");
    let path = data.path().join("plot.svg");
    assert_eq!(succeed(data.path(), &format!("replay stats --plot --svg {}", path.display())), "");
    assert!(std::fs::read_to_string(path).unwrap().contains(">Pendulum-v1</text>"));
    let empty = run(Folder::new().path(), "replay stats --plot");
    assert_eq!((empty.code, &*empty.stdout), (Some(0), ""));
    assert!(empty.stderr.contains("no episodes to draw in "), "{}", empty.stderr);
}

fn episodes(data: &Folder) -> BTreeMap<(u64, u64), (Value, Value, Value, String)> {
    let found = json_lines(data.path(), "replay ls --json");
    let of = |episode: &Value| {
        let id = episode["id"].as_str().unwrap();
        let mut parts = id.split('-').skip(1).map(|part| part.parse::<u64>().unwrap());
        let key = (parts.next().unwrap(), parts.next().unwrap());
        // Exports are compared for one lane in 64, since each starts a process.
        let steps = if key.0.is_multiple_of(64) {
            succeed(data.path(), &format!("replay export {id}"))
        } else {
            String::new()
        };
        (key, (episode["seed"].clone(), episode["return"].clone(), episode["length"].clone(), steps))
    };
    found.iter().map(of).collect()
}

#[test]
fn equal_seeds_give_equal_episodes_whatever_the_threads() {
    let play = |threads: u32, seed: u32| {
        let data = Folder::new();
        let line = format!(
            "rollout --env CartPole-v1 --lanes 512 --episodes 1100 --seed {seed} --threads {threads}"
        );
        succeed(data.path(), &line);
        episodes(&data)
    };
    let (one, two) = (play(1, 9), play(2, 9));
    assert_eq!(one.len(), 1100);
    assert_eq!(one, two);
    assert_ne!(one, play(1, 10));
}

#[test]
fn steps_round_up_to_whole_batches_and_what_is_open_then_is_cancelled() {
    let data = Folder::new();
    let report = &json_lines(data.path(), "rollout --env MountainCar-v0 --lanes 10 --steps 995 --json")[0];
    assert_eq!(report["steps"], 1000);
    assert_eq!(report["outcomes"], serde_json::json!({ "cancelled": 10 }));
    assert!(report["return"]["mean"].is_null());
    assert_eq!(json_lines(data.path(), "replay ls --json --outcome cancelled").len(), 10);
    assert_eq!(run(data.path(), "replay verify --all").code, Some(0));
}

#[test]
fn what_is_recorded_is_what_was_asked_for() {
    let (none, sample, trace) = (Folder::new(), Folder::new(), Folder::new());
    let line = "rollout --env CartPole-v1 --lanes 64 --episodes 2000 --json --record";
    assert!(json_lines(none.path(), &format!("{line} none"))[0]["recorded"].is_null());
    assert!(segments(none.path()).is_empty());
    json_lines(sample.path(), &format!("{line} sample:0.25"));
    let sampled = json_lines(sample.path(), "replay ls --json").len();
    // 2,000 draws: six standard deviations are 116.
    assert!((384..616).contains(&sampled), "{sampled} of 2000");
    assert_eq!(run(sample.path(), "replay verify --all").code, Some(0));
    json_lines(trace.path(), &format!("{line} trace"));
    assert_eq!(json_lines(trace.path(), "replay ls --json").len(), 2000);
    assert_eq!(run(trace.path(), "replay verify --all").code, Some(0));
}

#[test]
fn a_reader_that_has_seen_enough_ends_a_listing_quietly() {
    let data = Folder::new();
    succeed(data.path(), "rollout --env CartPole-v1 --lanes 64 --episodes 3000");
    let mut child = rollhouse(data.path(), "replay ls --json").spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("{\"id\":"));
    let done = Done::of(child.wait_with_output().unwrap());
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
}

#[test]
fn the_default_folder_is_the_environment_variable_and_a_flag_goes_over_it() {
    let (variable, flag) = (Folder::new(), Folder::new());
    let line = "rollout --env CartPole-v1 --lanes 1 --episodes 1";
    succeed(variable.path(), line);
    succeed(variable.path(), &format!("{line} --data {}", flag.path().display()));
    assert_eq!((segments(variable.path()).len(), segments(flag.path()).len()), (1, 1));
}

#[test]
fn every_command_answers_an_unknown_name_with_the_nearest_ones() {
    let data = Folder::new();
    succeed(data.path(), "rollout --env CartPole-v1 --lanes 1 --episodes 2");
    let known =
        json_lines(data.path(), "replay ls --json")[0]["id"].as_str().expect("it has a name").to_owned();
    let (run_of, _) = known.split_once('-').expect("a name has three parts");
    let unknown = format!("{run_of}-0-77");
    for line in [
        format!("replay show {unknown}"),
        format!("replay verify {unknown}"),
        format!("replay export {unknown}"),
        format!("replay diff {known} {unknown}"),
        format!("replay play {unknown} --svg {}", data.path().join("never.svg").display()),
        format!("replay fork {unknown} --at 1 --policy noop"),
    ] {
        let done = run(data.path(), &line);
        assert_eq!(done.code, Some(2), "{line}: {}", done.stderr);
        assert!(
            done.stderr.contains("nearest are ") && done.stderr.contains(&known),
            "{line}: {}",
            done.stderr
        );
    }
}
