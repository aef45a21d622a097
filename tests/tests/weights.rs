//! Lanes that weigh something, on nodes of real processes.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use rollhouse_client::{Address, Cluster as Client, ConnectOptions, PoolRequest};
use rollhouse_tests::{Cluster, json_lines, run, succeed};

fn data() -> &'static Path {
    Path::new("/nonexistent")
}

/// Lanes of half a core and 100 MiB, of which a node of so many cores takes at most so many.
fn settings(cores: u32, most: u32) -> [String; 3] {
    let terms = format!("cpu = 0.5, memory = \"100 MiB\", max_lanes = {most}");
    let env = format!("env={{ CartPole-v1 = {{ {terms} }} }}");
    [format!("node.cpu={cores}"), "node.memory=4 GiB".to_owned(), env]
}

fn client(connection: &str) -> Client {
    let options = ConnectOptions { timeout: Duration::from_secs(2), ..ConnectOptions::default() };
    let connection = fs::read_to_string(connection).unwrap().trim().parse::<Address>().unwrap();
    Client::connect(&connection, options, None).unwrap()
}

#[test]
fn pools_spread_by_what_nodes_have_and_one_beyond_max_lanes_is_refused_with_what_is_taken() {
    let cluster = Cluster::new(&["big", "small"]);
    let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let start = |name, cores, most| {
        let settings = settings(cores, most);
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        cluster.node_with(name, &address, &settings, &[])
    };
    let (_big, _small) = (start("big", 8, 32), start("small", 2, 8));
    let admin = cluster.connection("admin", &address);
    let client = client(&cluster.connection("trainer", &address));
    let lanes = |node: &str| {
        let sessions = json_lines(data(), &format!("sessions --json --connect {admin}"));
        let here = sessions.iter().filter(|session| session["node"] == node);
        here.map(|session| session["lanes"].as_u64().unwrap()).sum::<u64>()
    };
    let _first = client.open_pool(PoolRequest::new("CartPole-v1", 20)).unwrap();
    assert_eq!((lanes("big"), lanes("small")), (16, 4));
    let _second = client.open_pool(PoolRequest::new("CartPole-v1", 20)).unwrap();
    assert_eq!((lanes("big"), lanes("small")), (32, 8), "CPU refuses none");
    let refused = client.open_pool(PoolRequest::new("CartPole-v1", 1)).unwrap_err().to_string();
    let told = "max_lanes of `CartPole-v1` is 32: 32 in use, 1 more asked for";
    assert!(refused.contains(told), "{refused}");
    let refused = client.open_pool(PoolRequest::new("CartPole-v1", 41)).unwrap_err().to_string();
    assert!(refused.contains("lanes is 41, must be 1 to 40; node `big`: max_lanes"), "{refused}");
    // A heartbeat tells what is taken.
    let taken = |name: &str| {
        let nodes = json_lines(data(), &format!("nodes --json --connect {admin}"));
        let node = nodes.into_iter().find(|node| node["node"] == name).unwrap();
        (node["taken"].clone(), node["budget"].clone())
    };
    while taken("big").0["cpu_milli"] != 16_000 {}
    let weight = |cpu: u64, mib: u64| serde_json::json!({ "cpu_milli": cpu, "memory": mib << 20 });
    assert_eq!(taken("big"), (weight(16_000, 3200), weight(8_000, 4096)));
    let table = succeed(data(), &format!("nodes --connect {admin}"));
    assert!(table.contains("CPU") && table.contains("16.0 of 8.0"), "{table}");
    assert!(table.contains("3.36 GB of 4.29 GB"), "{table}");
}

#[test]
fn terms_of_an_env_that_there_is_not_stop_the_start_of_a_node() {
    let cluster = Cluster::new(&["one"]);
    let line = format!(
        "node --data {} --coordinator 127.0.0.1:1 --set env={{CartPole-v2={{cpu=1}}}}",
        cluster.path("one").display()
    );
    let done = run(data(), &line);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.stderr.contains("unknown env `CartPole-v2`; nearest are CartPole-v1"), "{done:?}");
}
