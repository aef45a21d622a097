//! Envs of plug-ins are rolled out, recorded, verified, forked and exported through the binary, here and on nodes.

use std::path::{Path, PathBuf};
use std::process::Command;

use rollhouse_tests::{Cluster, Folder, json_lines, run, succeed, workspace};

const ENV: &str = "c/CartPole-v0";

/// Compiles the example in C; None, said by name, where there is no compiler.
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn compiled(folder: &Path) -> Option<PathBuf> {
    let (crate_folder, out) = (workspace().join("crates/plugin"), folder.join("cartpole.so"));
    let mut command = Command::new("cc");
    command.args(["-std=c99", "-O3", "-ffp-contract=off", "-fPIC", "-shared", "-I"]);
    command.arg(crate_folder.join("include")).arg(crate_folder.join("examples/cartpole.c"));
    match command.arg("-o").arg(&out).status() {
        Ok(status) => {
            assert!(status.success());
            Some(out)
        }
        Err(_) => {
            println!("skipped: there is no C compiler");
            None
        }
    }
}

#[test]
fn an_env_of_a_plugin_is_played_recorded_verified_forked_compared_and_exported() {
    let (data, plugins) = (Folder::new(), Folder::new());
    let Some(path) = compiled(plugins.path()) else { return };
    let (data, plugin) = (data.path(), format!("--plugin {} --trust-plugins", path.display()));
    let played = format!("rollout --env {ENV} --lanes 4 --episodes 12 --seed 5");
    succeed(data, &format!("{played} {plugin}"));
    assert!(succeed(data, &format!("envs {plugin}")).contains(ENV));
    assert_eq!(json_lines(data, &format!("envs {ENV} --json {plugin}"))[0]["max_episode_steps"], 500);

    let verified = run(data, &format!("replay verify {plugin}"));
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
    assert!(verified.stdout.contains("12 episodes verified"), "{}", verified.stdout);
    let longest = &json_lines(data, "replay ls --sort -length --limit 1 --json")[0];
    let (name, length) = (longest["id"].as_str().unwrap(), longest["length"].as_u64().unwrap());
    let steps = json_lines(data, &format!("replay export {name} {plugin}"));
    assert!(steps.len() as u64 > length, "{} lines of {length} steps", steps.len());
    let fork =
        &json_lines(data, &format!("replay fork {name} --at 3 --policy random --seed 1 --json {plugin}"))[0];
    let fork = fork["id"].as_str().unwrap();
    assert_eq!(run(data, &format!("replay diff {name} {fork} {plugin}")).code, Some(3));
    assert_eq!(run(data, &format!("replay verify {plugin}")).code, Some(0));

    // The same seed gives the same episodes.
    let again = Folder::new();
    succeed(again.path(), &format!("{played} {plugin}"));
    let returns = |data: &Path| -> Vec<_> {
        let listed = json_lines(data, "replay ls --json --sort length");
        listed.iter().map(|one| (one["length"].clone(), one["seed"].clone())).collect()
    };
    let (first, second) = (returns(data), returns(again.path()));
    assert!(second.iter().all(|one| first.contains(one)), "{first:?} {second:?}");
}

#[test]
fn without_the_plugin_a_recording_says_what_is_missing_and_loads_nothing() {
    let (data, plugins) = (Folder::new(), Folder::new());
    let Some(path) = compiled(plugins.path()) else { return };
    let data = data.path();
    let (at, trusted) = (path.display(), "--trust-plugins");
    succeed(data, &format!("rollout --env {ENV} --lanes 2 --episodes 2 --seed 5 --plugin {at} {trusted}"));
    for (line, code, words) in [
        ("replay verify".to_owned(), 3, "an env of a plug-in needs the plug-in: --plugin PATH"),
        (format!("rollout --env {ENV} --lanes 2 --episodes 2"), 2, "needs --plugin PATH"),
        (format!("replay verify --plugin {at}"), 2, "--plugin PATH needs --trust-plugins"),
        (format!("replay verify {trusted}"), 2, "--plugin"),
        (format!("envs --plugin {at}.gone {trusted}"), 2, "No such file"),
        (format!("envs --plugin /etc/hostname {trusted}"), 2, "it cannot be loaded"),
        (format!("envs --plugin {at} --plugin {at} {trusted}"), 2, "is taken"),
        (
            format!(
                "rollout --env {ENV} --lanes 2 --episodes 2 --connect rollhouse://127.0.0.1:1 --plugin {at}"
            ),
            2,
            "a node loads the plug-ins that [[plugin]] in its config names",
        ),
    ] {
        let done = run(data, &line);
        let said = format!("{}{}", done.stdout, done.stderr);
        assert_eq!(done.code, Some(code), "{line}: {said}");
        assert!(said.contains(words), "{line}: {said}");
    }
}

#[test]
fn a_node_plays_and_records_envs_of_the_plugins_that_its_config_names() {
    let plugins = Folder::new();
    let Some(path) = compiled(plugins.path()) else { return };
    let cluster = Cluster::new(&["one"]);
    let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let _node = cluster.node_with("one", &address, &[&format!("plugin=trusted:{}", path.display())], &[]);
    let admin = cluster.connection("admin", &address);
    let rollout =
        |env: &str| format!("rollout --env {env} --lanes 4 --episodes 8 --seed 5 --connect {admin}");
    succeed(workspace(), &rollout(ENV));
    let listed = json_lines(workspace(), &format!("replay ls --json --connect {admin}"));
    assert_eq!(listed.len(), 8);
    assert!(listed.iter().all(|one| one["env"] == ENV));
    let plugin = format!("--plugin {} --trust-plugins", path.display());
    let verified = run(workspace(), &format!("replay verify --connect {admin} {plugin}"));
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
    // As it is here.
    let here = Folder::new();
    succeed(here.path(), &format!("rollout --env {ENV} --lanes 4 --episodes 8 --seed 5 {plugin}"));
    let lengths = |mut listed: Vec<serde_json::Value>| -> Vec<_> {
        listed.sort_by_key(|one| one["seed"].as_u64());
        listed.iter().map(|one| (one["seed"].clone(), one["length"].clone())).collect()
    };
    assert_eq!(lengths(listed), lengths(json_lines(here.path(), "replay ls --json")));
}

#[test]
fn a_node_does_not_start_with_a_plugin_that_is_not_trusted() {
    let plugins = Folder::new();
    let Some(path) = compiled(plugins.path()) else { return };
    let config = plugins.path().join("up.toml");
    // What is relative in a file is meant in its folder.
    let text = format!("[[plugin]]\npath = \"{}\"\n[local]\ndata = \"./cluster\"\n", path.display());
    std::fs::write(&config, text).unwrap();
    let done = run(plugins.path(), &format!("up --config {}", config.display()));
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    assert!(done.stderr.contains("is not declared trusted"), "{}", done.stderr);
    assert!(done.stderr.contains("`trusted = true` beside its path"), "{}", done.stderr);
}
