//! What commands print with `--json` is what docs/json.md says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use rollhouse_tests::{Done, Folder, Running, Service, run, succeed, workspace};
use serde_json::Value;

use crate::policies::write_net;

/// The keys of an object, by their paths, with the kinds of value that each may have.
type Table = BTreeMap<String, Vec<String>>;

/// The tables of docs/json.md by the words of their headings.
struct Page {
    tables: BTreeMap<String, Table>,
    /// The headings whose objects were seen.
    seen: BTreeSet<String>,
}

impl Page {
    fn read() -> Self {
        let text = fs::read_to_string(workspace().join("docs/json.md")).unwrap();
        let mut tables = BTreeMap::new();
        for section in text.split("\n### ").skip(1) {
            let heading = section.lines().next().unwrap();
            let mut table = Table::new();
            let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
            for row in rows {
                let mut cells = row.split('|').map(str::trim);
                let (key, kinds) = (cells.next().unwrap(), cells.next().unwrap());
                let kinds = kinds.split(" or ").map(str::to_owned).collect();
                table.insert(key.trim_end_matches('`').to_owned(), kinds);
            }
            if let Some(of) = section.lines().find_map(|line| line.strip_prefix("The keys of `")) {
                let base = format!("`rollhouse {}`", of.split('`').next().unwrap());
                let base: &Table = tables
                    .iter()
                    .find(|(heading, _): &(&String, &Table)| heading.split(", ").any(|one| one == base))
                    .map(|(_, table)| table)
                    .unwrap_or_else(|| panic!("{heading}: no {base}"));
                table.extend(base.clone());
            }
            assert!(!table.is_empty(), "{heading} has no keys");
            tables.insert(heading.to_owned(), table);
        }
        Self { tables, seen: BTreeSet::new() }
    }

    /// Holds an object to the table under the heading that has those words.
    fn check(&mut self, words: &str, object: &Value) {
        let is_meant = |heading: &&String| **heading == words || heading.split(", ").any(|one| one == words);
        let heading =
            self.tables.keys().find(is_meant).unwrap_or_else(|| panic!("no table of {words}")).clone();
        let found = differences(&self.tables[&heading], "", object);
        assert!(found.is_empty(), "{words}: {found:?} in {object}");
        self.seen.insert(heading);
    }

    /// Runs a command, whose name is the first `words`, with `--json`, and checks each line of stdout. Gives the objects.
    fn command(&mut self, data: &Path, words: usize, line: &str) -> Vec<Value> {
        let name: Vec<&str> = line.split(' ').take(words).collect();
        self.under(&format!("`rollhouse {}`", name.join(" ")), data, line)
    }

    /// The same, under another heading than the command's name.
    fn under(&mut self, heading: &str, data: &Path, line: &str) -> Vec<Value> {
        let done = run(data, &format!("{line} --json"));
        assert!(matches!(done.code, Some(0 | 3)), "{line}: {}{}", done.stdout, done.stderr);
        let objects = lines(&done.stdout);
        assert!(!objects.is_empty(), "{line} prints nothing: {}", done.stderr);
        objects.iter().for_each(|object| self.check(heading, object));
        self.messages(&done);
        objects
    }

    /// Checks that every line on stderr is a message.
    fn messages(&mut self, done: &Done) {
        for message in lines(&done.stderr) {
            let heading = if message.get("error").is_some() { "Errors" } else { "Notes" };
            self.check(heading, &message);
        }
    }
}

fn lines(text: &str) -> Vec<Value> {
    let object = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(object).collect()
}

/// What an object has that the table does not say, and the other way round.
fn differences(table: &Table, prefix: &str, object: &Value) -> Vec<String> {
    let Some(fields) = object.as_object() else { return vec![format!("{prefix} is no object")] };
    let children: BTreeSet<&str> = table
        .keys()
        .filter_map(|path| path.strip_prefix(prefix))
        .filter(|rest| !rest.contains(['.', '[']))
        .collect();
    let here: BTreeSet<&str> = fields.keys().map(String::as_str).collect();
    let mut found: Vec<String> =
        children.symmetric_difference(&here).map(|key| format!("`{prefix}{key}`")).collect();
    for key in children.intersection(&here) {
        let (path, value) = (format!("{prefix}{key}"), &fields[*key]);
        let kinds = &table[&path];
        if !kinds.iter().any(|kind| is_of(kind, value)) {
            found.push(format!("`{path}` is {value}, no {}", kinds.join(" or ")));
        }
        let below = |below: &str| table.keys().any(|other| other.starts_with(&format!("{path}{below}")));
        match value {
            Value::Object(_) if below(".") => found.extend(differences(table, &format!("{path}."), value)),
            Value::Array(items) if below("[].") => {
                found.extend(items.iter().flat_map(|item| differences(table, &format!("{path}[]."), item)));
            }
            _ => {}
        }
    }
    found
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "any" => true,
        "text" => value.is_string(),
        "number" => value.is_number(),
        "count" => value.is_u64(),
        "flag" => value.is_boolean(),
        "list" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        "counts" => value.as_object().is_some_and(|counts| counts.values().all(Value::is_u64)),
        other => panic!("`{other}` is no kind of value"),
    }
}

/// Symptom: `rollout` had other names with `--connect` than without, spaces said `f32`, sessions were named as no command
/// takes them, and errors were text. Cause: each command wrote its own objects, and nothing held them to a page.
#[test]
fn every_object_has_the_keys_of_the_page_and_no_others() {
    let (mut page, folder) = (Page::read(), Folder::new());
    let at = |name: &str| folder.path().join(name).display().to_string();
    let data = folder.path().join("data");
    recordings(&mut page, &data, &at);
    services(&mut page, &data, &at);
    cluster(&mut page, folder.path(), &data, &at);
    // Who has contradicting recordings shows these two; the test of hostile owners does.
    let aside =
        ["`rollhouse replay quarantine ls`, of a segment", "`rollhouse replay quarantine ls`, of an episode"];
    let unseen: Vec<&String> = page.tables.keys().filter(|heading| !page.seen.contains(*heading)).collect();
    assert_eq!(unseen, aside);
}

/// Commands about recordings of this machine.
fn recordings(page: &mut Page, data: &Path, at: &dyn Fn(&str) -> String) {
    let played = page.command(data, 1, "rollout --env CartPole-v1 --lanes 4 --episodes 8").remove(0);
    page.command(data, 1, "rollout --env CartPole-v1 --lanes 2 --steps 10 --record none");
    let listed = page.command(data, 2, "replay ls");
    let id = |index: usize| listed[index]["id"].as_str().unwrap().to_owned();
    let run_id = played["run"].as_str().unwrap();
    assert_eq!(
        page.command(data, 2, &format!("replay ls --run {run_id}")).len(),
        8,
        "it takes what it prints"
    );
    page.command(data, 2, &format!("replay show {}", id(0)));
    page.command(data, 2, "replay stats");
    page.command(data, 2, "replay verify");
    page.command(data, 2, &format!("replay diff {} {}", id(0), id(1)));
    page.command(data, 2, &format!("replay fork {} --at 3 --policy noop", id(0)));
    for line in ["pin ID", "unpin ID", "tag ID odd", "untag ID odd", "note ID odd"] {
        page.command(data, 2, &format!("replay {}", line.replace("ID", &id(0))));
    }
    let file = at("one.rhr");
    assert_eq!(run(data, &format!("replay export {} -o {file}", id(0))).code, Some(0));
    page.command(data, 2, &format!("replay import {file} --data {}", at("imported")));
    let foreign = at("game.orarep");
    fs::write(&foreign, replay_of_openra()).unwrap();
    page.under("`rollhouse replay import`, of a replay of OpenRA", data, &format!("replay import {foreign}"));
    page.command(data, 2, "replay prune --older-than 0s");
    page.command(data, 2, &format!("store export --run {run_id} --to {}", at("target")));
    page.command(data, 2, &format!("store verify {}", at("target")));
    page.command(data, 2, &format!("store import --from {} --data {}", at("target"), at("store")));
    let specs = page.command(data, 1, "envs --all");
    assert!(specs.iter().any(|spec| spec["observation_space"]["dtype"] == "float32"), "{specs:?}");
}

/// Commands about services that do not run.
fn services(page: &mut Page, data: &Path, at: &dyn Fn(&str) -> String) {
    let line = ["gate", "openra", "--listen", "127.0.0.1:0", "--json"];
    let mut gate = Service::start(Path::new(&at(".")), &line);
    page.check("`rollhouse gate openra`", &serde_json::from_str(&gate.read()).unwrap());
    let line = ["gate", "openenv", "--env", "CartPole-v1", "--listen", "127.0.0.1:0", "--json"];
    let mut gate = Service::start(Path::new(&at(".")), &line);
    page.check("`rollhouse gate openenv`", &serde_json::from_str(&gate.read()).unwrap());
    page.command(data, 2, "config show --for node");
    page.command(data, 1, "doctor --for node");
    let (ca, coordinator) = (at("ca"), at("coordinator"));
    page.command(data, 2, &format!("certs init --dir {ca}"));
    page.command(data, 2, &format!("certs show {ca}"));
    page.command(
        data,
        2,
        &format!("certs issue --dir {ca} --role coordinator --name main --output {coordinator}/tls"),
    );
    page.command(data, 2, &format!("certs issuer --dir {ca} --output {coordinator}/issuer.pem"));
    page.command(data, 2, &format!("certs revoke --role node --name lost --data {coordinator}"));
    page.command(data, 2, &format!("certs revoked --data {coordinator}"));
    let create = "token create --role trainer --name ada --data";
    let made = page.command(data, 2, &format!("{create} {coordinator}")).remove(0);
    let id = made["id"].as_str().unwrap();
    page.command(data, 2, &format!("token rotate {id} --data {coordinator}"));
    page.command(data, 2, &format!("token ls --data {coordinator}"));
    page.command(data, 2, &format!("token revoke {id} --data {coordinator}"));
    page.command(data, 1, &format!("audit --data {coordinator}"));
    for line in ["replay show k3f9q2tz-17-203", "replay ls --limit x", "envs Cart", "nonsense"] {
        let done = run(data, &format!("{line} --json"));
        assert!(done.code.is_some_and(|code| code > 0) && done.stdout.is_empty(), "{line}: {done:?}");
        let errors = lines(&done.stderr);
        assert_eq!(errors.last().unwrap()["code"], done.code.unwrap(), "{line}: {done:?}");
        page.messages(&done);
    }
}

/// The end of a replay of OpenRA, which says what it is of.
fn replay_of_openra() -> Vec<u8> {
    let text = b"Root:\n\tMod: ra\nPlayer@0:\n\tName: ada\n\tOutcome: Won\n";
    let length = text.len() as i32;
    let (head, tail) = ([-1, 1, length], [length + 4, -2]);
    [&head.map(i32::to_le_bytes).concat()[..], text, &tail.map(i32::to_le_bytes).concat()].concat()
}

/// Commands about a cluster.
fn cluster(page: &mut Page, folder: &Path, data: &Path, at: &dyn Fn(&str) -> String) {
    let mut up = Service::start(folder, &["up"]);
    let metrics = up.hear("metrics and health on http://");
    up.read();
    let connect = format!("--connect {}", at("rollhouse-cluster/connection"));
    page.command(data, 1, &format!("health --at {metrics}"));
    page.command(data, 1, &format!("status {connect}"));
    let nodes = page.command(data, 1, &format!("nodes {connect}"));
    page.under("`rollhouse envs --connect`", data, &format!("envs {connect}"));
    let played =
        page.command(data, 1, &format!("rollout {connect} --env CartPole-v1 --lanes 4 --episodes 8"));
    assert_eq!((&played[0]["episodes"], &played[0]["stored"]), (&8.into(), &true.into()));
    page.command(data, 2, &format!("replay ls {connect}"));
    page.command(data, 2, &format!("replay stats {connect}"));
    let net = at("net.safetensors");
    write_net(Path::new(&net), &[("policy.0.weight", &[2, 4], &[0.5; 8])]);
    page.command(data, 2, &format!("policy put cart {net} {connect}"));
    page.command(data, 2, &format!("policy ls {connect}"));
    page.command(data, 2, &format!("policy show cart {connect}"));
    let line = "policy compare random cart --env CartPole-v1 --episodes 4";
    page.command(data, 2, &format!("{line} {connect}"));
    let line = format!("rollout {connect} --env CartPole-v1 --lanes 2 --steps 1000000000000 --detach");
    let going = page.command(data, 1, &line).remove(0);
    let line = format!("sessions {connect}");
    while succeed(data, &format!("{line} --json")).is_empty() {
        std::thread::yield_now();
    }
    let sessions = page.command(data, 1, &line);
    assert_eq!(sessions[0]["run"], going["run"]);
    let session = sessions[0]["session"].as_str().unwrap();
    page.command(data, 1, &format!("watch {session} --frames 1 {connect}"));
    let node = nodes[0]["node"].as_str().unwrap();
    page.command(data, 1, &format!("drain {node} {connect}"));
    page.command(data, 1, &format!("undrain {node} {connect}"));
    page.command(data, 1, &format!("close {} {connect}", going["run"].as_str().unwrap()));
    assert!(up.end().success());
    // Nobody listens there any more.
    let done = run(data, &format!("status {connect} --json"));
    assert_eq!(done.code, Some(5), "{done:?}");
    page.messages(&done);
}

#[test]
fn a_rollout_that_is_ended_early_says_so_in_an_object() {
    let (mut page, folder) = (Page::read(), Folder::new());
    let line = "rollout --env CartPole-v1 --lanes 2 --steps 1000000000000 --json";
    let mut rollout = Running::start(folder.path(), line);
    rollout.until_written(folder.path(), 1);
    rollout.signal("INT");
    let done = rollout.wait();
    assert_eq!(done.code, Some(130), "{done:?}");
    lines(&done.stdout).iter().for_each(|object| page.check("`rollhouse rollout`", object));
    page.messages(&done);
    assert!(page.seen.contains("Notes"), "{done:?}");
}
