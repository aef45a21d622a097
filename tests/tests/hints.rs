//! Every command that the program may print for people to copy has a row here, and runs as it is printed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rollhouse_tests::{Done, Folder, Service, binary, workspace};

/// What is done with a command whose placeholders are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It runs to its end without an error.
    Runs,
    /// It serves, or takes a terminal: its line is read, with `--help` behind it.
    Parses,
}
use Way::{Parses, Runs};

/// The commands in the sources as they stand there, and each with its placeholders filled. `EPISODE` and `POOL` are those of
/// the stage.
const ROWS: &[(&str, Way, &str)] = &[
    ("certs init", Runs, "certs init --dir another-ca"),
    ("certs issue", Runs, "certs issue --role node --name a --output a/tls"),
    (
        "certs issue --dir {dir} --role coordinator --name main --output rollhouse-coordinator/tls",
        Runs,
        "certs issue --dir rollhouse-ca --role coordinator --name main --output rollhouse-coordinator/tls",
    ),
    (
        "certs issue --dir {dir} --role node --name node-1 --output rollhouse-node/tls",
        Runs,
        "certs issue --dir rollhouse-ca --role node --name node-1 --output rollhouse-node/tls",
    ),
    ("certs issue --from-now", Runs, "certs issue --from-now --role node --name b --output b/tls"),
    (
        "certs issue --role {role} --name NAME --output {}",
        Runs,
        "certs issue --role node --name c --output c/tls",
    ),
    ("certs issuer", Runs, "certs issuer --output issuer-1"),
    ("certs issuer --output {path}", Runs, "certs issuer --output issuer-2"),
    ("certs issuer --output {}", Runs, "certs issuer --output issuer-3"),
    ("close {pool}{place}", Runs, "close POOL"),
    ("config show --for ROLE", Runs, "config show --for node"),
    ("envs", Runs, "envs"),
    ("envs ID", Runs, "envs CartPole-v1"),
    ("envs Skirmish-v0", Runs, "envs Skirmish-v0"),
    ("node", Parses, "node"),
    ("nodes", Runs, "nodes"),
    ("nodes --json", Runs, "nodes --json"),
    ("nodes{}", Runs, "nodes"),
    ("policy ls", Runs, "policy ls --connect rollhouse-cluster/connection"),
    ("policy put NAME FILE", Parses, "policy put cart cart.safetensors"),
    ("policy rm", Parses, "policy rm cart@0"),
    ("replay export NAME", Runs, "replay export EPISODE"),
    ("replay import FILE.orarep", Parses, "replay import FILE.orarep"),
    ("replay ls", Runs, "replay ls"),
    (
        "replay ls --sort -return --limit 5{connect}",
        Runs,
        "replay ls --sort -return --limit 5 --connect rollhouse-cluster/connection",
    ),
    ("replay ls --sort -return --limit 5{}", Runs, "replay ls --sort -return --limit 5"),
    ("replay play", Parses, "replay play"),
    ("replay play {id} --at {}{}", Parses, "replay play EPISODE --at 3"),
    ("replay play {}{}", Parses, "replay play EPISODE"),
    ("replay quarantine ls", Runs, "replay quarantine ls --connect rollhouse-cluster/connection"),
    ("replay quarantine ls{place}", Runs, "replay quarantine ls --connect rollhouse-cluster/connection"),
    ("replay repair", Runs, "replay repair"),
    ("replay show NAME", Runs, "replay show EPISODE"),
    ("replay stats", Runs, "replay stats"),
    ("replay stats{place}", Runs, "replay stats"),
    ("sessions", Runs, "sessions"),
    ("sessions --json", Runs, "sessions --json"),
    ("sessions --json{place}", Runs, "sessions --json"),
    ("sessions{place}", Runs, "sessions"),
    ("status", Runs, "status"),
    ("status --connect {}", Runs, "status --connect rollhouse-cluster/connection"),
    ("status --json", Runs, "status --json"),
    (
        "rollout --connect {connection} --env CartPole-v1 --lanes 64 --episodes 1000",
        Runs,
        "rollout --connect rollhouse-cluster/connection --env CartPole-v1 --lanes 64 --episodes 1000",
    ),
    (
        "rollout --connect {connection} --env gymnasium:CartPole-v1 --episodes 1000",
        Parses,
        "rollout --connect rollhouse-cluster/connection --env gymnasium:CartPole-v1 --episodes 1000",
    ),
    ("status --connect {connection}", Runs, "status --connect rollhouse-cluster/connection"),
    ("store export", Parses, "store export"),
    ("store import", Parses, "store import"),
    ("store import --from {target} --data {}", Parses, "store import --from archive --data away"),
    ("up", Parses, "up"),
    ("up --data {}-2 {}", Parses, "up --data beside-2"),
    ("token create --reads OWNER", Runs, "token create --reads all --role viewer --name v"),
    ("token create --role join", Runs, "token create --role join --address localhost:7600"),
    (
        "token create --role join --address HOST:7600",
        Runs,
        "token create --role join --address localhost:7600",
    ),
    (
        "token create --role join --address HOST:PORT",
        Runs,
        "token create --role join --address localhost:7600",
    ),
    (
        "token create --role trainer --name NAME --data {}",
        Runs,
        "token create --role trainer --name t --data rollhouse-coordinator",
    ),
    ("token ls", Runs, "token ls"),
];

#[test]
fn every_command_in_the_sources_has_a_row_and_every_row_a_command() {
    let rows: BTreeSet<String> = ROWS.iter().map(|(template, ..)| (*template).to_owned()).collect();
    let mut found = BTreeMap::new();
    for crate_name in PRINTING {
        sources(&workspace().join("crates").join(crate_name).join("src"), &mut |path, text| {
            // Examples of `--help` name what their reader has: no command is filled in.
            if path.ends_with("args/help.rs") {
                return;
            }
            for template in templates(text) {
                found.entry(template).or_insert_with(|| path.display().to_string());
            }
        });
    }
    let printed: BTreeSet<String> = found.keys().cloned().collect();
    let without: Vec<_> = found.iter().filter(|(template, _)| !rows.contains(*template)).collect();
    assert!(without.is_empty(), "they have no row in this test: {without:?}");
    let unprinted: Vec<_> = rows.difference(&printed).collect();
    assert!(unprinted.is_empty(), "nothing prints them any more: {unprinted:?}");
    for (template, _, line) in ROWS {
        let mut rest = *line;
        for word in template.split(' ').filter(|word| !is_placeholder(word)) {
            let word = word.split('{').next().unwrap_or_default();
            let at = rest.find(word).unwrap_or_else(|| panic!("`{line}` is not `{template}`"));
            rest = &rest[at + word.len()..];
        }
    }
}

#[test]
fn every_command_that_is_printed_runs_with_its_placeholders_filled() {
    let folder = Folder::new();
    let data = folder.path();
    succeeds(data, "rollout --env CartPole-v1 --episodes 5");
    let listed = succeeds(data, "replay ls --limit 1 --json");
    let episode: serde_json::Value = serde_json::from_str(listed.lines().next().unwrap_or_default()).unwrap();
    let episode = episode["id"].as_str().expect("it has one").to_owned();
    succeeds(data, "certs init");
    let mut pool = String::new();
    let fill = |template: &str, way: Way, line: &str, pool: &str| {
        let line = line.replace("EPISODE", &episode).replace("POOL", pool);
        let done = run_in(data, &if way == Parses { format!("{line} --help") } else { line.clone() });
        assert_eq!(done.code, Some(0), "{template}, as {line}: {}{}", done.stdout, done.stderr);
    };
    let of = |begin: &'static str| ROWS.iter().filter(move |(template, ..)| template.starts_with(begin));
    // A coordinator has a certificate before it begins, and what closes the pool comes last.
    of("certs").for_each(|(template, way, line)| fill(template, *way, line, &pool));
    let mut coordinator = Service::start(data, &["coordinator"]);
    coordinator.hear("nobody has a token yet");
    let mut up = Service::start(data, &["up"]);
    up.hear("Ctrl-C ends it");
    let connect = "--connect rollhouse-cluster/connection";
    let endless = "rollout --env CartPole-v1 --lanes 2 --steps 1000000000000 --detach";
    pool.push_str(succeeds(data, &format!("{endless} {connect}")).trim());
    let others =
        of("").filter(|(template, ..)| !template.starts_with("certs") && !template.starts_with("close"));
    others.chain(of("close")).for_each(|(template, way, line)| fill(template, *way, line, &pool));
    assert!(up.end().success());
    assert!(coordinator.end().success());
}

/// Runs a command line in a folder, as somebody does who copies it.
fn run_in(folder: &Path, line: &str) -> Done {
    let mut command = Command::new(binary());
    command.args(line.split(' ')).current_dir(folder).stdin(Stdio::null());
    command.env_remove("ROLLHOUSE_DATA").env_remove("ROLLHOUSE_CONNECT");
    Done::of(command.output().expect("the binary starts"))
}

fn succeeds(folder: &Path, line: &str) -> String {
    let done = run_in(folder, line);
    assert_eq!(done.code, Some(0), "{line}: {}{}", done.stdout, done.stderr);
    done.stdout
}

/// The crates that print to people.
const PRINTING: [&str; 12] = [
    "archive",
    "cli",
    "client",
    "config",
    "coordinator",
    "host",
    "node",
    "plugin",
    "python",
    "replay",
    "viewer",
    "wire",
];

/// Calls `take` with each source of a folder.
fn sources(folder: &Path, take: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).expect("the sources are there").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, take);
        } else if path.extension().is_some_and(|end| end == "rs") {
            take(&path, &fs::read_to_string(&path).expect("it is text"));
        }
    }
}

/// The commands in the texts of a source: between backticks, behind a colon, and alone in a line.
fn templates(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code =
        code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    // Texts that go on in the next line are one.
    let mut parts = code.split("\\\n");
    let mut joined = parts.next().unwrap_or_default().to_owned();
    parts.for_each(|part| joined.push_str(part.trim_start()));
    let mut found = Vec::new();
    for (before, close) in BESIDE {
        for part in joined.split(before).skip(1) {
            let Some((command, _)) = part.split_once(close) else { continue };
            let is_one = command.starts_with(char::is_lowercase) && !command.contains(['\n', '"', ')', '`']);
            found.extend(is_one.then(|| command.trim().to_owned()));
        }
    }
    found
}

/// What stands before a command in a text, and behind it.
const BESIDE: [(&str, char); 4] =
    [("`rollhouse ", '`'), (": rollhouse ", '"'), ("\"  rollhouse ", '"'), ("(\"rollhouse ", '"')];

fn is_placeholder(word: &str) -> bool {
    word.starts_with('{') || !word.chars().any(|letter| letter.is_lowercase())
}
