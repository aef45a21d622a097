//! Policies in files: a net plays, what it notes is recorded, and a file that is none is refused.

use std::fs;
use std::path::{Path, PathBuf};

use rollhouse_tests::{Cluster, Folder, json_lines, run, succeed};
use serde_json::{Value, json};

use crate::cluster::kill_under;

/// Writes a file of safetensors with tensors of singles.
pub(crate) fn write_net(path: &Path, tensors: &[(&str, &[usize], &[f32])]) {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape, numbers) in tensors {
        let begin = data.len();
        data.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        let tensor = json!({"dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()]});
        header.insert((*name).to_owned(), tensor);
    }
    let header = serde_json::to_vec(&header).unwrap();
    let length = (header.len() as u64).to_le_bytes();
    fs::write(path, [&length[..], &header, &data].concat()).unwrap();
}

/// A net that balances: it pushes the cart to where the pole falls.
fn balances(folder: &Folder) -> PathBuf {
    let path = folder.path().join("balance.safetensors");
    let weights = [0.0, 0.0, 0.0, 0.0, 0.4, 1.2, 12.0, 4.0];
    write_net(&path, &[("policy.0.weight", &[2, 4], &weights), ("value.0.weight", &[1, 4], &[0.5; 4])]);
    path
}

/// What the episodes of a folder have as returns.
fn returns(data: &Folder) -> Vec<f64> {
    let episodes = json_lines(data.path(), "replay ls --json");
    episodes.iter().map(|episode| episode["return"].as_f64().unwrap()).collect()
}

#[test]
fn a_net_of_a_file_plays_and_what_it_notes_is_recorded_and_verified() {
    let (files, data) = (Folder::new(), Folder::new());
    let net = balances(&files);
    let line =
        format!("rollout --env CartPole-v1 --lanes 8 --episodes 16 --seed 5 --policy {}", net.display());
    let report = &json_lines(data.path(), &format!("{line} --json"))[0];
    assert_eq!(report["policy"], "balance");
    let mean = |returns: &[f64]| returns.iter().sum::<f64>() / returns.len() as f64;
    assert!(mean(&returns(&data)) > 150.0, "{:?}", returns(&data));
    succeed(data.path(), "replay verify --all");
    let episode = &json_lines(data.path(), "replay ls --json --limit 1")[0];
    assert_eq!(episode["policy"], "balance");
    let id = episode["id"].as_str().unwrap();
    for step in json_lines(data.path(), &format!("replay export {id} --format jsonl")).iter().skip(1) {
        let Some(noted) = step.get("step_columns") else { continue };
        assert!(noted["log_prob"].as_f64().unwrap() <= 0.0 && noted["value"].is_number(), "{step}");
    }
}

#[test]
fn the_same_net_and_seed_play_the_same_episodes_on_any_number_of_threads() {
    let files = Folder::new();
    let net = balances(&files);
    let play = |threads: u32| {
        let data = Folder::new();
        let line =
            format!("rollout --env CartPole-v1 --lanes 600 --episodes 600 --seed 9 --threads {threads}");
        succeed(data.path(), &format!("{line} --temperature 5 --policy {}", net.display()));
        returns(&data)
    };
    assert_eq!(play(1), play(2));
}

#[test]
fn an_episode_goes_on_by_a_net_from_any_of_its_steps() {
    let (files, data) = (Folder::new(), Folder::new());
    let net = balances(&files);
    succeed(data.path(), "rollout --env CartPole-v1 --lanes 1 --episodes 1 --seed 3");
    let episode = &json_lines(data.path(), "replay ls --json")[0];
    let (id, before) = (episode["id"].as_str().unwrap(), episode["return"].as_f64().unwrap());
    succeed(data.path(), &format!("replay fork {id} --at 3 --policy {}", net.display()));
    let most = returns(&data).into_iter().fold(0.0, f64::max);
    assert!(most > 2.0 * before, "{most} after {before}");
}

#[test]
fn what_is_no_net_for_the_env_is_refused_before_anything_is_written() {
    let (files, data) = (Folder::new(), Folder::new());
    let net = balances(&files);
    let broken = files.path().join("broken.safetensors");
    fs::write(&broken, b"no net").unwrap();
    let refused = |line: &str| -> Value {
        let done = run(data.path(), &format!("rollout --lanes 2 --episodes 2 --json {line}"));
        assert_eq!(done.code, Some(2), "{line}: {}", done.stderr);
        assert!(!data.path().join("replays").exists());
        serde_json::from_str(done.stderr.lines().last().unwrap()).unwrap()
    };
    let named = |line: &str, words: &str| {
        let said = refused(line).to_string();
        assert!(said.contains(words), "{line}: {said}");
    };
    named(&format!("--env CartPole-v1 --policy {}", broken.display()), "the file is none of safetensors");
    named(
        &format!("--env CartPole-v1 --policy {}/none.safetensors", files.path().display()),
        "cannot be read",
    );
    named(
        &format!("--env Acrobot-v1 --policy {}", net.display()),
        "the net gives 2 outputs, the env's actions need 3",
    );
    named(
        &format!("--env CartPole-v1 --temperature 0 --policy {}", net.display()),
        "temperature 0; it is above 0",
    );
    named("--env CartPole-v1 --epsilon 0.5", "are for nets");
    named("--env CartPole-v1 --policy greedy", "`greedy` is neither a built-in policy nor a file");
    named("--env CartPole-v1 --policy pong@latest", "is NAME or NAME@VERSION");
}

#[test]
fn a_policy_of_a_cluster_plays_there_what_its_file_plays_here_also_when_a_node_is_killed() {
    let files = Folder::new();
    let net = balances(&files);
    let cluster = Cluster::new(&["one", "two"]);
    let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let (one, _two) = (cluster.node("one", &address), cluster.node("two", &address));
    let connect = cluster.connection("trainer", &address);
    let line = format!("--env CartPole-v1 --lanes 6 --episodes 60000 --policy {}", net.display());
    kill_under(one, &connect, &format!("{line} --seed 7 --temperature 30"), "");
    let stored = json_lines(files.path(), &format!("policy ls --json --connect {connect}"));
    assert_eq!((stored.len(), &stored[0]["name"], &stored[0]["version"]), (1, &json!("balance"), &json!(0)));
}

#[test]
fn policies_of_a_cluster_have_versions_that_survive_its_coordinator() {
    let files = Folder::new();
    let net = balances(&files);
    let cluster = Cluster::new(&["one"]);
    let (coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let node = cluster.node("one", &address);
    let connect = cluster.connection("trainer", &address);
    let at = |line: &str| format!("{line} --connect {connect}");
    let put =
        |name: &str| json_lines(files.path(), &at(&format!("policy put {name} {} --json", net.display())));
    assert_eq!(put("cart")[0], json!({"name": "cart", "version": 0, "known": false}));
    write_net(&net, &[("policy.0.weight", &[2, 4], &[0.1; 8])]);
    assert_eq!(put("cart")[0], json!({"name": "cart", "version": 1, "known": false}));
    assert_eq!(put("cart")[0]["known"], true);
    coordinator.kill();
    let (_coordinator, _) = cluster.coordinator(&address);
    let listed = json_lines(files.path(), &at("policy ls cart --json"));
    let versions: Vec<_> = listed.iter().map(|policy| policy["version"].as_u64().unwrap()).collect();
    assert_eq!(versions, [0, 1]);
    let shown = succeed(files.path(), &at("policy show cart"));
    assert!(shown.contains("cart@1") && shown.contains("dense layers 4-2 to the actions"), "{shown}");
    let copy = files.path().join("copy.safetensors");
    succeed(files.path(), &at(&format!("policy export cart -o {}", copy.display())));
    assert_eq!(fs::read(&copy).unwrap(), fs::read(&net).unwrap());
    let play = |policy: &str| {
        let line =
            format!("rollout --env CartPole-v1 --lanes 2 --episodes 4 --seed 1 --policy {policy} --json");
        json_lines(files.path(), &at(&line)).remove(0)
    };
    assert!(play("cart@0")["return"]["mean"].as_f64() > play("cart")["return"]["mean"].as_f64());
    let refused = |line: &str, code: i32, words: &str| {
        let done = run(files.path(), &at(line));
        assert_eq!(done.code, Some(code), "{line}: {}", done.stderr);
        assert!(done.stderr.contains(words), "{line}: {}", done.stderr);
    };
    refused("policy rm cart", 2, "name one, as cart@0, or give --all");
    succeed(files.path(), &at("policy rm cart@0"));
    refused("policy show cart@0", 2, "there is no policy `cart@0`");
    refused("rollout --env CartPole-v1 --steps 10 --policy cart@0", 2, "there is no policy `cart@0`");
    refused("rollout --env Acrobot-v1 --steps 10 --policy cart", 2, "policy `cart` cannot play here");
    refused("policy compare random cart --env CartPole-v1 --workers 2", 2, "--workers is for this machine");
    refused("policy put random balance.safetensors", 2, "cannot be read");
    refused(&format!("policy put noop {}", net.display()), 2, "`noop` is a built-in policy");
    drop(node);
}

#[test]
fn two_policies_are_compared_on_the_same_episodes_and_the_better_one_is_named() {
    let files = Folder::new();
    let net = balances(&files);
    let line = |episodes: u32| {
        format!("policy compare random {} --env CartPole-v1 --episodes {episodes} --seed 3", net.display())
    };
    let compared = &json_lines(files.path(), &format!("{} --json", line(40)))[0];
    assert_eq!((&compared["pairs"], &compared["policies"][0]["lost"]), (&json!(40), &json!(0)));
    assert!(compared["low"].as_f64().unwrap() > 50.0, "{compared}");
    assert_eq!(compared, &json_lines(files.path(), &format!("{} --json", line(40)))[0], "the same seed");
    let shown = succeed(files.path(), &line(40));
    assert!(shown.contains("is better than random"), "{shown}");
    assert!(!files.path().join("replays").exists(), "nothing is recorded");
    let alike = succeed(files.path(), "policy compare noop noop --env CartPole-v1 --episodes 5 --seed 3");
    assert!(alike.contains("noop is not clearly other than noop"), "{alike}");
    let done = run(files.path(), "policy compare random pong@3 --env CartPole-v1");
    assert!(done.code == Some(2) && done.stderr.contains("no cluster is named"), "{}", done.stderr);
}

/// A file of crate policy's tests.
fn onnx(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/policy/tests/onnx").join(name);
    path.display().to_string()
}

#[test]
fn a_file_of_onnx_plays_with_its_value_and_log_probability_recorded_and_verified() {
    let data = Folder::new();
    let line = format!(
        "rollout --env CartPole-v1 --lanes 8 --episodes 16 --seed 5 --policy {}",
        onnx("sb3_ppo.onnx")
    );
    let report = &json_lines(data.path(), &format!("{line} --json"))[0];
    assert_eq!(report["policy"], "sb3_ppo");
    succeed(data.path(), "replay verify --all");
    let episode = &json_lines(data.path(), "replay ls --json --limit 1")[0];
    let id = episode["id"].as_str().unwrap();
    let steps = json_lines(data.path(), &format!("replay export {id} --format jsonl"));
    let noted: Vec<&Value> = steps.iter().filter_map(|step| step.get("step_columns")).collect();
    assert!(noted.len() > 5, "{steps:?}");
    for noted in noted {
        assert!(noted["log_prob"].as_f64().unwrap() < 0.0 && noted["value"].is_number(), "{noted}");
    }
    let other = Folder::new();
    succeed(other.path(), &format!("{line} --threads 2"));
    assert_eq!(returns(&data), returns(&other));
}

#[test]
fn a_file_of_onnx_that_cannot_play_is_refused_before_anything_is_written() {
    let data = Folder::new();
    for (line, words) in [
        ("--env CartPole-v1 --policy refused/operator.onnx", "operator `Gamm`"),
        (
            "--env CartPole-v1 --policy unreal.onnx",
            "input `obs` of shape [1, 6] is nothing that the env gives",
        ),
        ("--env CartPole-v1 --temperature 2 --policy sb3_ppo.onnx", "taken as they are"),
    ] {
        let (before, name) = line.rsplit_once(' ').unwrap();
        let done = run(data.path(), &format!("rollout --lanes 2 --episodes 2 {before} {}", onnx(name)));
        assert_eq!(done.code, Some(2), "{line}: {}", done.stderr);
        assert!(done.stderr.contains(words), "{line}: {}", done.stderr);
        assert!(!data.path().join("replays").exists());
    }
}
