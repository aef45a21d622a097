//! A cluster of real processes: coordinator, nodes, and commands that ask it.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use rollhouse_tests::{Cluster, Folder, Service, json_lines, run, succeed};
use serde_json::Value;

fn data() -> &'static Path {
    Path::new("/nonexistent")
}

/// What identifies episodes beside their run: lane and number, with what came of them.
fn played(line: &str, data: &Path) -> Vec<(String, Value, Value, Value)> {
    let episodes = json_lines(data, line);
    let mut found: Vec<_> = episodes
        .into_iter()
        .map(|episode| {
            let id = episode["id"].as_str().unwrap().split_once('-').unwrap().1.to_owned();
            (id, episode["seed"].clone(), episode["return"].clone(), episode["outcome"].clone())
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

fn get(address: &str, path: &str) -> String {
    let address = address.strip_prefix("http://").unwrap_or(address);
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn three_nodes_play_the_episodes_of_one_machine_and_any_process_can_be_killed_and_started_again() {
    let names = ["one", "two", "three"];
    let cluster = Cluster::new(&names);
    let (coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let mut nodes: Vec<Service> = names.iter().map(|name| cluster.node(name, &address)).collect();
    let connect = cluster.connection("trainer", &address);

    let offered = json_lines(data(), &format!("envs --connect {connect} --json"));
    let own = json_lines(data(), "envs --json");
    let told = |envs: &[Value], id: &str| {
        envs.iter().map(|e| (e[id].clone(), e["dynamics"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(told(&offered, "env"), told(&own, "env"));
    assert!(offered.iter().all(|env| env["nodes"] == 3), "{offered:?}");

    let line = "--env CartPole-v1 --lanes 96 --episodes 300 --seed 7 --json";
    let report = succeed(data(), &format!("rollout --connect {connect} {line}"));
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(
        (&report["episodes"], &report["nodes"], &report["stored"]),
        (&300.into(), &3.into(), &true.into())
    );
    let local = Folder::new();
    let here = succeed(local.path(), &format!("rollout {line}"));
    let here: Value = serde_json::from_str(&here).unwrap();
    // Symptom: they were null on a cluster. Cause: nodes told how many episodes there were. Fix: and how they ended.
    for figure in ["outcomes", "results"] {
        assert!(here[figure].is_object() && report[figure] == here[figure], "{figure}: {report} {here}");
    }
    for figure in ["return", "length"] {
        let of = |report: &Value, key: &str| report[figure][key].as_f64().expect("episodes have finished");
        assert_eq!(
            (of(&report, "min"), of(&report, "max")),
            (of(&here, "min"), of(&here, "max")),
            "{figure}"
        );
        assert!((of(&report, "mean") - of(&here, "mean")).abs() < 1e-9, "{figure}");
    }
    let ls = format!("replay ls --json --connect {connect}");
    assert_eq!(played(&ls, data()), played("replay ls --json", local.path()));

    for (index, name) in names.iter().enumerate() {
        nodes.remove(index).kill();
        nodes.insert(index, cluster.node(name, &address));
    }
    coordinator.kill();
    let (coordinator, _) = cluster.coordinator(&address);
    for node in &mut nodes {
        node.hear("joined the coordinator, term 2");
    }
    succeed(data(), &format!("rollout --connect {connect} --env Acrobot-v1 --lanes 8 --episodes 8 --json"));
    assert_eq!(json_lines(data(), &ls).len(), 308);
    let verified = run(data(), &format!("replay verify --all --connect {connect}"));
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);

    let ours: BTreeSet<u32> = nodes.iter().map(Service::id).chain([coordinator.id()]).collect();
    assert_eq!(cluster.processes(), ours, "somebody was left behind");
    for service in nodes.into_iter().chain([coordinator]) {
        assert!(service.end().success());
    }
    assert_eq!(cluster.processes(), BTreeSet::new());
}

#[test]
fn episodes_are_listed_by_the_result_that_their_env_gave_them_and_the_scores_are_counted() {
    let (cluster, local) = (Cluster::new(&["one"]), Folder::new());
    let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let line = ["node", "--data", "one", "--coordinator", &address];
    let mut node = Service::start(cluster.folder(), &line);
    let page = node.hear("metrics and health on ");
    node.hear("joined the coordinator");
    let connect = cluster.connection("trainer", &address);
    let line = "rollout --env test/Faulty-v0 --lanes 8 --episodes 60 --seed 7";
    succeed(data(), &format!("{line} --connect {connect}"));
    succeed(local.path(), line);
    for (folder, place) in [(data(), format!("--connect {connect}")), (local.path(), String::new())] {
        let all = json_lines(folder, &format!("replay ls --json {place}"));
        for word in ["win", "lose", "draw"] {
            let listed = json_lines(folder, &format!("replay ls --json --result {word} {place}"));
            let wanted: Vec<_> = all.iter().filter(|one| one["result"] == word).cloned().collect();
            assert!(!wanted.is_empty() && wanted.iter().all(|one| one["score"].is_f64()), "{word}: {all:?}");
            assert_eq!(listed, wanted, "{word}");
        }
        let won = succeed(folder, &format!("replay ls --result win --limit 1 {place}"));
        assert!(won.contains("terminated, win"), "{won}");
        let verified = run(folder, &format!("replay verify {place}"));
        assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
    }
    let all = json_lines(data(), &format!("replay ls --json --connect {connect}"));
    let scores: Vec<f64> = all.iter().filter_map(|one| one["score"].as_f64()).collect();
    let metrics = get(&page, "/metrics");
    let figure = |name: &str| {
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap().parse::<f64>().unwrap()
    };
    assert_eq!(figure("rollhouse_episode_scores_total"), scores.len() as f64);
    let sum: f64 = scores.iter().sum();
    assert!((figure("rollhouse_episode_score_points") - sum).abs() < 1e-6 * sum, "{sum} in {metrics}");
}

#[test]
fn a_drained_node_ends_and_the_others_go_on() {
    let cluster = Cluster::new(&["one", "two"]);
    let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let (mut one, _two) = (cluster.node("one", &address), cluster.node("two", &address));
    let admin = cluster.connection("admin", &address);
    succeed(data(), &format!("drain one --connect {admin}"));
    one.hear("drained");
    let nodes = json_lines(data(), &format!("nodes --json --connect {admin}"));
    let alive: Vec<&str> =
        nodes.iter().filter(|n| n["state"] == "alive").filter_map(|n| n["node"].as_str()).collect();
    assert_eq!(alive, ["two"]);
    let line =
        format!("rollout --connect {admin} --env CartPole-v1 --lanes 4 --episodes 4 --record none --json");
    let report: Value = serde_json::from_str(&succeed(data(), &line)).unwrap();
    assert_eq!((&report["nodes"], &report["stored"]), (&1.into(), &Value::Null));
}

#[test]
fn who_is_not_known_or_may_not_is_refused_with_exit_code_4() {
    let cluster = Cluster::new(&[]);
    let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let viewer = cluster.connection("viewer", &address);
    assert_eq!(run(data(), &format!("status --json --connect {viewer}")).code, Some(0));
    let other = Cluster::new(&[]);
    let ca = |cluster: &Cluster| cluster.path("ca").join("ca.pem").display().to_string();
    let cases = [
        (format!("drain one --connect {viewer}"), "viewer"),
        (format!("rollout --connect {viewer} --env CartPole-v1 --lanes 1 --episodes 1"), "viewer"),
        (format!("status --connect rollhouse://{address}?ca={}", ca(&cluster)), "token"),
        (format!("status --connect rollhouse://{address}?ca={}&token=rh_a_b", ca(&cluster)), "token"),
        (format!("status --connect {viewer} --ca {}", ca(&other)), "certificate"),
    ];
    for (line, word) in cases {
        let done = run(data(), &line);
        assert_eq!(done.code, Some(4), "{line}: {}", done.stderr);
        assert!(done.stderr.contains(word), "{line}: {}", done.stderr);
    }
    let tokens = cluster.path("coordinator");
    let listed = json_lines(&tokens, &format!("token ls --json --data {}", tokens.display()));
    let id = listed[0]["id"].as_str().unwrap();
    succeed(&tokens, &format!("token revoke {id} --data {}", tokens.display()));
    let done = run(data(), &format!("status --connect {viewer}"));
    assert_eq!(done.code, Some(4), "{}", done.stderr);
    assert!(done.stderr.contains("revoked"), "{}", done.stderr);
}

#[test]
fn what_a_service_cannot_start_with_is_said_with_key_or_file_and_exit_code_2() {
    let folder = Folder::new();
    let file = folder.path().join("node.toml");
    fs::write(&file, "[node]\nthreadz = 4\n").unwrap();
    let path = file.display();
    for (line, words) in [
        (format!("node --config {path}"), "line 2: unknown key `node.threadz`; nearest is node.threads"),
        (format!("config check {path} --for node"), "unknown key `node.threadz`"),
        ("coordinator --set store.budget=many".to_owned(), "--set: store.budget = `many`"),
        (format!("node --data {}/none", folder.path().display()), "tls"),
        ("config show --for nobody".to_owned(), "coordinator, node and local"),
        ("status --connect http://x".to_owned(), "rollhouse://"),
        (format!("replay ls --data {} --connect {path}", folder.path().display()), "--connect"),
    ] {
        let done = run(folder.path(), &line);
        assert_eq!(done.code, Some(2), "{line}: {}", done.stderr);
        assert!(done.stderr.contains(words), "{line}: {}", done.stderr);
    }
}

#[test]
fn metrics_and_health_answer_over_http() {
    let cluster = Cluster::new(&["one"]);
    let listen = ["coordinator", "--data", "coordinator"];
    let mut coordinator = Service::start(cluster.folder(), &listen);
    let address = coordinator.hear("listens on ");
    let page = coordinator.hear("metrics and health on ");
    let line = ["node", "--data", "one", "--coordinator", &address];
    let mut node = Service::start(cluster.folder(), &line);
    let node_page = node.hear("metrics and health on ");
    node.hear("joined the coordinator");
    for page in [&page, &node_page] {
        assert!(get(page, "/healthz").starts_with("HTTP/1.1 200 "));
        assert!(get(page, "/readyz").starts_with("HTTP/1.1 200 "), "{}", get(page, "/readyz"));
    }
    let trainer = cluster.connection("trainer", &address);
    let line =
        format!("rollout --connect {trainer} --env CartPole-v1 --lanes 4 --episodes 8 --record none --json");
    let report: Value = serde_json::from_str(&succeed(data(), &line)).unwrap();
    let metrics = get(&node_page, "/metrics");
    for line in [
        "rollhouse_registered 1".to_owned(),
        "rollhouse_episodes_total{outcome=\"terminated\"} 8".to_owned(),
        format!("rollhouse_steps_total {}", report["steps"]),
        "rollhouse_quic_connections{peer=\"coordinator\"} 1".to_owned(),
    ] {
        assert!(metrics.lines().any(|l| l == line), "no `{line}` in {metrics}");
    }
    // What decides reports its figures from time to time.
    while !get(&page, "/metrics").contains("rollhouse_pools_opened_total 1\n") {
        std::thread::yield_now();
    }
    coordinator.kill();
    node.hear("without coordinator");
    assert!(get(&node_page, "/healthz").starts_with("HTTP/1.1 200 "));
    assert!(get(&node_page, "/readyz").starts_with("HTTP/1.1 503 "));
}

#[test]
fn ctrl_c_closes_the_pool_of_a_rollout_and_keeps_what_was_played() {
    let cluster = Cluster::new(&["one"]);
    let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let _node = cluster.node("one", &address);
    let connect = cluster.connection("trainer", &address);
    let sessions = format!("sessions --json --connect {connect}");
    let line =
        format!("rollout --connect {connect} --env CartPole-v1 --lanes 8 --steps 1000000000000 --json");
    let line: Vec<&str> = line.split(' ').collect();
    let mut rollout = Service::start(cluster.folder(), &line);
    while json_lines(data(), &sessions).iter().all(|s| s["episodes"] == 0) {
        std::thread::yield_now();
    }
    rollout.signal("INT");
    let report: Value = serde_json::from_str(&rollout.read()).unwrap();
    assert!(report["episodes"].as_u64() > Some(0), "{report}");
    assert_eq!(report["interrupted"], 8);
    rollout.hear("ended early, as asked");
    assert_eq!(json_lines(data(), &sessions), Vec::<Value>::new());
}

/// A rollout whose command was gone could not be ended by anybody: no command closed a pool. `--detach` says how to end it,
/// and its owner and admins can.
#[test]
fn a_detached_rollout_goes_on_without_its_command_until_its_owner_or_an_admin_closes_it() {
    let cluster = Cluster::new(&["one"]);
    let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let _node = cluster.node("one", &address);
    // The next token of a role is kept in the same file.
    let connect = fs::read_to_string(cluster.connection("trainer", &address)).unwrap().trim().to_owned();
    let sessions = format!("sessions --json --connect {connect}");
    let begin = || {
        let line =
            format!("rollout --connect {connect} --env CartPole-v1 --lanes 8 --steps 1000000000000 --detach");
        let done = run(data(), &line);
        let pool = done.stdout.trim().to_owned();
        assert!(
            done.stderr.contains(&format!("`rollhouse close {pool} --connect URL` ends them")),
            "{}",
            done.stderr
        );
        while json_lines(data(), &sessions).iter().all(|s| s["episodes"] == 0) {
            std::thread::yield_now();
        }
        pool
    };
    let pool = begin();
    let other = cluster.connection("trainer", &address);
    let refused = run(data(), &format!("close {pool} --connect {other}"));
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert_eq!(run(data(), &format!("close nobody --connect {connect}")).code, Some(2));
    let closed = succeed(data(), &format!("close {pool} --json --connect {connect}"));
    let closed: Value = serde_json::from_str(&closed).unwrap();
    assert!(closed["open"] == 0 && closed["episodes"].as_u64() > Some(0), "{closed}");
    assert_eq!(json_lines(data(), &sessions), Vec::<Value>::new());

    let pool = begin();
    let table = succeed(data(), &format!("sessions --connect {connect}"));
    let short = table.lines().find_map(|line| line.split('/').next().filter(|name| !name.contains(' ')));
    let admin = cluster.connection("admin", &address);
    let closed = run(data(), &format!("close {} --connect {admin}", short.unwrap()));
    assert!(closed.stderr.contains(&format!("pool {pool} is closed")), "{}", closed.stderr);
    assert_eq!(json_lines(data(), &sessions), Vec::<Value>::new());
}

/// Symptom: a rollout failed when one of its nodes died, and what its lanes had not shipped was lost. Cause: nobody knew where they
/// stood. Fix: nodes report it, and the lanes go on elsewhere.
#[test]
fn a_rollout_whose_node_is_killed_plays_on_elsewhere_what_one_machine_plays() {
    // The first has so few lanes that steps take no time, the second long episodes.
    for line in
        ["--env CartPole-v1 --lanes 6 --episodes 100000", "--env Acrobot-v1 --lanes 80 --episodes 20000"]
    {
        let cluster = Cluster::new(&["one", "two"]);
        let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
        let (one, _two) = (cluster.node("one", &address), cluster.node("two", &address));
        let connect = cluster.connection("trainer", &address);
        kill_under(one, &connect, &format!("{line} --seed 7"), "");
    }
}

/// Kills a node, one of two, in the middle of a rollout that was begun by that line, and compares what the store has then with
/// what one machine plays.
pub(crate) fn kill_under(node: Service, connect: &str, line: &str, plugin: &str) {
    let (begin, here) = (format!("rollout --connect {connect} {line} --json"), Folder::new());
    let mut rollout = Service::start(here.path(), &begin.split(' ').collect::<Vec<_>>());
    let sessions = format!("sessions --json --connect {connect}");
    let ls = format!("replay ls --json --connect {connect}");
    let plays = |session: &&Value| session["episodes"] != 0;
    // Something of it is in the store, and something is not.
    while json_lines(data(), &sessions).iter().filter(plays).count() < 2
        || json_lines(data(), &format!("{ls} --limit 1")).is_empty()
    {
        std::thread::yield_now();
    }
    assert_eq!(json_lines(data(), &sessions).len(), 2, "it is over before a node is killed: {line}");
    node.kill();
    let report: Value = serde_json::from_str(&rollout.read()).unwrap();
    assert_eq!((rollout.code(), &report["stored"]), (Some(0), &true.into()), "{report}");

    let local = succeed(here.path(), format!("rollout {line} --json {plugin}").trim_end());
    let local: Value = serde_json::from_str(&local).unwrap();
    for figure in ["steps", "episodes", "outcomes", "results"] {
        assert_eq!(report[figure], local[figure], "{figure}: {report} {local}");
    }
    for (figure, of) in [("return", "min"), ("return", "max"), ("length", "min"), ("length", "max")] {
        assert_eq!(report[figure][of], local[figure][of], "{figure}: {report} {local}");
    }
    assert_eq!(played(&ls, data()), played("replay ls --json", here.path()));
    let verified = run(data(), format!("replay verify --connect {connect} {plugin}").trim_end());
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
}
