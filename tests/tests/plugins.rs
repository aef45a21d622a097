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
    let (data, plugin) = (data.path(), format!("--plugin {}", path.display()));
    let played = format!("rollout --env {ENV} --lanes 4 --episodes 12 --seed 5");
    succeed(data, &format!("{played} {plugin}"));
    assert!(succeed(data, &format!("envs {plugin}")).contains(ENV));
    assert_eq!(json_lines(data, &format!("envs {ENV} --json {plugin}"))[0]["max_episode_steps"], 500);

    let verified = run(data, &format!("replay verify {plugin}"));
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
    assert!(verified.stdout.contains("12 episodes recomputed"), "{}", verified.stdout);
    let longest = &json_lines(data, "replay ls --sort -length --limit 1 --json")[0];
    let (name, length) = (longest["id"].as_str().unwrap(), longest["length"].as_u64().unwrap());
    let steps = json_lines(data, &format!("replay export {name} {plugin}"));
    assert!(steps.len() as u64 > length, "{} lines of {length} steps", steps.len());
    let fork =
        &json_lines(data, &format!("replay fork {name} --at 3 --policy random --seed 1 --json {plugin}"))[0];
    let fork = fork["id"].as_str().unwrap();
    assert_eq!(run(data, &format!("replay diff {name} {fork} {plugin}")).code, Some(3));
    assert_eq!(run(data, &format!("replay verify {plugin}")).code, Some(0));

    // A process that trusts it finds the same, and plays the same.
    let (again, plugin) = (Folder::new(), format!("{plugin} --trust-plugins"));
    assert_eq!(run(data, &format!("replay verify {plugin}")).code, Some(0));
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
        (format!("replay verify --plugin {at}.gone"), 2, "No such file"),
        (format!("replay verify {trusted}"), 2, "--plugin"),
        (format!("envs --plugin {at}.gone {trusted}"), 2, "No such file"),
        (format!("envs --plugin /etc/hostname {trusted}"), 2, "it cannot be loaded"),
        (format!("envs --plugin {at} --plugin {at} {trusted}"), 2, "is registered already"),
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
fn nodes_play_and_record_envs_of_the_plugins_that_their_configs_name() {
    let plugins = Folder::new();
    let Some(path) = compiled(plugins.path()) else { return };
    // As they are here.
    let (here, plugin) = (Folder::new(), format!("--plugin {}", path.display()));
    succeed(here.path(), &format!("rollout --env {ENV} --lanes 4 --episodes 8 --seed 5 {plugin}"));
    let lengths = |mut listed: Vec<serde_json::Value>| -> Vec<_> {
        listed.sort_by_key(|one| one["seed"].as_u64());
        listed.iter().map(|one| (one["seed"].clone(), one["length"].clone())).collect()
    };
    let here = lengths(json_lines(here.path(), "replay ls --json"));
    for trusted in ["", "trusted:"] {
        let cluster = Cluster::new(&["one"]);
        let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
        let setting = format!("plugin={trusted}{}", path.display());
        let _node = cluster.node_with("one", &address, &[&setting], &[]);
        let admin = cluster.connection("admin", &address);
        let rollout = format!("rollout --env {ENV} --lanes 4 --episodes 8 --seed 5 --connect {admin}");
        succeed(workspace(), &rollout);
        let listed = json_lines(workspace(), &format!("replay ls --json --connect {admin}"));
        assert!(listed.iter().all(|one| one["env"] == ENV));
        let verified = run(workspace(), &format!("replay verify --connect {admin} {plugin}"));
        assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
        assert_eq!(lengths(listed), here, "{setting}");
    }
}

#[test]
fn lanes_of_a_plug_in_whose_node_is_killed_play_on_elsewhere_what_one_machine_plays() {
    let plugins = Folder::new();
    let Some(path) = compiled(plugins.path()) else { return };
    let cluster = Cluster::new(&["one", "two"]);
    let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let setting = format!("plugin={}", path.display());
    let [one, _two] = ["one", "two"].map(|name| cluster.node_with(name, &address, &[&setting], &[]));
    let connect = cluster.connection("trainer", &address);
    let line = format!("--env {ENV} --lanes 6 --episodes 3000 --seed 7");
    crate::cluster::kill_under(one, &connect, &line, &format!("--plugin {}", path.display()));
}
