//! A cluster on separate hosts: coordinator, nodes and client in a network namespace each.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Write, stderr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rollhouse_tests::hosts::{Hosted, Network};
use rollhouse_tests::{Done, Folder, run, succeed};
use serde_json::Value;

/// A coordinator, two nodes, and a client with a token, each on a host of its own.
struct Cluster {
    // Ended before their hosts are.
    services: Vec<Hosted>,
    network: Network,
    folder: Folder,
}

const COORDINATOR: u8 = 0;
const NODES: [(&str, u8); 2] = [("one", 1), ("two", 2)];
const CLIENT: u8 = 3;

impl Cluster {
    /// Starts all of it, and waits until the nodes have joined. `None`, said on stderr, if this machine makes no
    /// network namespaces.
    fn start() -> Option<Self> {
        let network = match Network::new(4) {
            Ok(network) => network,
            Err(error) => {
                // Not by a macro whose output the test harness keeps to itself.
                let why = format!("skipped, because there are no separate hosts: {error}\n");
                stderr().write_all(why.as_bytes()).unwrap();
                return None;
            }
        };
        let mut cluster = Self { services: Vec::new(), network, folder: Folder::new() };
        let fingerprint = cluster.certify();
        cluster.serve(COORDINATOR, "coordinator", "coordinator --data coordinator");
        let coordinator = format!("{}:7600", Network::address(COORDINATOR));
        for (name, host) in NODES {
            let advertise = format!("{}:7610", Network::address(host));
            let line = format!(
                "node --data {name} --coordinator {coordinator} --set node.advertise={advertise} --set \
                 spool.seal_after=200ms"
            );
            cluster.serve(host, name, &line);
        }
        let line = "token create --role trainer --name client --data coordinator";
        let token = cluster.succeed(COORDINATOR, line);
        let connection = format!("rollhouse://{coordinator}?token={}&ca={fingerprint}\n", token.trim());
        fs::write(cluster.path("connection"), connection).unwrap();
        cluster
            .until("both nodes are alive", |states| states.values().filter(|s| *s == "alive").count() == 2);
        Some(cluster)
    }

    /// Makes the authority and the services' certificates, and gives the authority's fingerprint.
    fn certify(&self) -> String {
        let ca = self.path("ca");
        let ca = ca.display();
        let made = run(self.folder.path(), &format!("certs init --dir {ca}")).stderr;
        let nodes = NODES.map(|(name, _)| ("node", name, name));
        for (role, name, folder) in nodes.into_iter().chain([("coordinator", "main", "coordinator")]) {
            let tls = self.path(folder).join("tls");
            let line =
                format!("certs issue --dir {ca} --role {role} --name {name} --output {}", tls.display());
            succeed(self.folder.path(), &line);
        }
        made.split_whitespace().find(|word| word.starts_with("sha256:")).expect(&made).to_owned()
    }

    /// Starts a service there, which writes what it says into a file.
    fn serve(&mut self, host: u8, name: &str, line: &str) {
        let said = File::create(self.path(&format!("{name}.log"))).unwrap();
        let mut command = self.network.rollhouse(host, line);
        command.current_dir(self.folder.path()).stdout(said.try_clone().unwrap()).stderr(said);
        self.services.push(Hosted::start(&mut command));
    }

    /// Runs a command there that has to succeed, and gives its stdout.
    fn succeed(&self, host: u8, line: &str) -> String {
        let mut command = self.network.rollhouse(host, line);
        let done = Done::of(command.current_dir(self.folder.path()).output().unwrap());
        assert_eq!(done.code, Some(0), "rollhouse {line}: {}{}{}", done.stdout, done.stderr, self.said());
        done.stdout
    }

    /// Runs a command of the client, and gives its stdout.
    fn ask(&self, line: &str) -> String {
        self.succeed(CLIENT, &format!("{line} --connect connection"))
    }

    /// Plays episodes on the cluster, and gives the report.
    fn rollout(&self, line: &str) -> Value {
        serde_json::from_str(&self.ask(&format!("rollout {line} --json"))).unwrap()
    }

    /// Each node's state, as the client is told.
    fn states(&self) -> BTreeMap<String, String> {
        let listed = json_lines(&self.ask("nodes --json"));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        listed.iter().map(|node| (text(&node["node"]), text(&node["state"]))).collect()
    }

    /// Asks for the nodes' states until they are as they should, and gives all that was told before.
    fn until(
        &mut self,
        what: &str,
        reached: impl Fn(&BTreeMap<String, String>) -> bool,
    ) -> Vec<BTreeMap<String, String>> {
        let start = Instant::now();
        let mut told = Vec::new();
        loop {
            let states = self.states();
            if reached(&states) {
                return told;
            }
            let failed = start.elapsed() > PATIENCE || !self.services.iter_mut().all(Hosted::runs);
            assert!(!failed, "never: {what}, last {states:?}{}", self.said());
            told.push(states);
        }
    }

    /// What the services said, for a test that fails.
    fn said(&self) -> String {
        let names = NODES.iter().map(|(name, _)| *name).chain(["coordinator"]);
        let said = names.filter_map(|name| fs::read_to_string(self.path(&format!("{name}.log"))).ok());
        said.map(|said| format!("\n{said}")).collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Every episode by lane and number: its row without what names this recording of it, and all of its steps.
fn episodes(mut command: impl FnMut(&str) -> String) -> BTreeMap<String, (Value, String)> {
    let rows = json_lines(&command("replay ls --json"));
    let episodes = rows.into_iter().map(|mut row| {
        let row_fields = row.as_object_mut().unwrap();
        let id = row_fields.remove("id").unwrap();
        for of_this_recording in ["started", "bytes"] {
            row_fields.remove(of_this_recording).unwrap();
        }
        let id = id.as_str().unwrap();
        let steps = command(&format!("replay export {id}"));
        let (_run, place) = id.split_once('-').unwrap();
        (place.to_owned(), (row, steps))
    });
    episodes.collect()
}

#[test]
fn nodes_on_hosts_of_their_own_play_the_episodes_of_one_machine() {
    let Some(cluster) = Cluster::start() else { return };
    let line = "--env CartPole-v1 --lanes 12 --episodes 24 --seed 7";
    let report = cluster.rollout(line);
    assert_eq!(
        (&report["episodes"], &report["nodes"], &report["stored"]),
        (&24.into(), &2.into(), &true.into()),
        "{report}"
    );
    let verified = json_lines(&cluster.ask("replay verify --all --json"));
    assert_eq!(verified.iter().filter(|episode| episode["ok"] == true).count(), 24, "{verified:?}");

    let local = Folder::new();
    let here = |line: &str| succeed(local.path(), line);
    here(&format!("rollout {line}"));
    let (remote, local) = (episodes(|line| cluster.ask(line)), episodes(here));
    assert_eq!(remote.len(), 24);
    for (row, steps) in remote.values() {
        let actions = json_lines(steps).iter().filter(|step| step["action"].is_i64()).count();
        assert_eq!(row["length"], actions, "{row}");
    }
    assert_eq!(remote, local);
}

#[test]
fn a_node_whose_link_is_cut_is_lost_and_alive_again_when_the_link_is_back() {
    let Some(mut cluster) = Cluster::start() else { return };
    let (name, host) = NODES[1];
    let line = "--env Acrobot-v1 --lanes 4 --episodes 4 --record none";

    cluster.network.set_link(host, false);
    let told = cluster.until("the node is lost", |states| states[name] == "lost");
    let mut states: Vec<&str> = told.iter().map(|states| states[name].as_str()).collect();
    states.dedup();
    // Suspect for two seconds, which the tests of membership show: a busy machine may not see it here.
    let order = ["alive", "suspect"].into_iter().filter(|state| states.contains(state));
    assert!(states.iter().copied().eq(order), "{states:?}");
    assert!(told.iter().all(|states| states["one"] == "alive"), "{told:?}");
    assert_eq!(cluster.rollout(line)["nodes"], 1);

    cluster.network.set_link(host, true);
    cluster.until("the node is alive again", |states| states[name] == "alive");
    assert_eq!(cluster.rollout(line)["nodes"], 2);
}

/// Longer than anything takes on a machine that does nothing else for a while.
const PATIENCE: Duration = Duration::from_secs(120);
