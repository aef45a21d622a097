//! Secrets that are rotated while pools are open, and who changed what at a coordinator.

use std::fs;
use std::path::Path;

use rollhouse_tests::{Cluster, Service, json_lines, run, succeed};
use serde_json::Value;

/// A cluster with a node, whose coordinator's address is the last.
fn cluster() -> (Cluster, Service, Service, String) {
    let cluster = Cluster::new(&["one"]);
    let (coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let node = cluster.node("one", &address);
    (cluster, coordinator, node, address)
}

/// Runs a command about the coordinator's folder that prints a token, and gives the token's id and a connection string in a
/// file.
fn token(cluster: &Cluster, address: &str, line: &str) -> (String, String) {
    let line = format!("{line} --json --data {}", cluster.path("coordinator").display());
    let made = &json_lines(cluster.folder(), &line)[0];
    let (id, token) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    let file = cluster.path(&format!("with-{}", &token[token.len() - 8..]));
    let ca = cluster.path("ca").join("ca.pem");
    fs::write(&file, format!("rollhouse://{address}?token={token}&ca={}\n", ca.display())).unwrap();
    (id.to_owned(), file.display().to_string())
}

/// The sessions that a holder of a connection string sees.
fn sessions(folder: &Path, connect: &str) -> Vec<Value> {
    json_lines(folder, &format!("sessions --json --connect {connect}"))
}

/// A rollout without an end, once it has played.
fn playing(cluster: &Cluster, connect: &str) -> (Service, String) {
    let line =
        format!("rollout --connect {connect} --env CartPole-v1 --lanes 2 --steps 1000000000000 --json");
    let rollout = Service::start(cluster.folder(), &line.split(' ').collect::<Vec<_>>());
    loop {
        let open = sessions(cluster.folder(), connect);
        if let Some(open) = open.first().filter(|open| open["steps"] != 0) {
            return (rollout, open["run"].as_str().unwrap_or_default().to_owned());
        }
        std::thread::yield_now();
    }
}

/// What the audit has, as action and subject.
fn audit(cluster: &Cluster) -> Vec<(String, String, String)> {
    let line = format!("audit --json --data {}", cluster.path("coordinator").display());
    let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
    let lines = json_lines(cluster.folder(), &line);
    lines.iter().map(|line| (text(line, "action"), text(line, "subject"), text(line, "by"))).collect()
}

/// A token's secret could be replaced by revoking it and making another alone, which ended its holder's pools.
#[test]
fn a_token_is_rotated_without_ending_its_holders_pools_and_the_secret_before_ends_with_the_grace() {
    let (cluster, coordinator, node, address) = cluster();
    let (id, first) = token(&cluster, &address, "token create --role trainer --name ada");
    let (rollout, _) = playing(&cluster, &first);
    let (same, second) = token(&cluster, &address, &format!("token rotate {id} --grace 1h"));
    assert_eq!(same, id);
    let before = sessions(cluster.folder(), &second);
    assert_eq!(before[0]["owner"], format!("ada:{id}"));
    // Both hold, and the rollout goes on.
    while sessions(cluster.folder(), &first)[0]["steps"] == before[0]["steps"] {
        std::thread::yield_now();
    }
    let (_, third) = token(&cluster, &address, &format!("token rotate {id} --grace 0s"));
    for gone in [&first, &second] {
        let refused = run(cluster.folder(), &format!("status --connect {gone}"));
        assert!(refused.code != Some(0) && refused.stderr.contains("token"), "{}", refused.stderr);
    }
    // Nothing has ended it but its own connection, which showed a secret that holds no longer.
    let left = sessions(cluster.folder(), &third);
    assert_eq!(left[0]["session"], before[0]["session"], "{left:?}");
    drop(rollout);
    assert!(coordinator.end().success() && node.end().success());
}

/// Certificates that were issued by hand stood in no audit, and an operator's closing of a pool of its own was to be seen
/// nowhere but in the log.
#[test]
fn certificates_issued_by_hand_and_what_an_admin_closes_of_its_own_are_written_down() {
    let (cluster, coordinator, node, address) = cluster();
    let ca = cluster.path("ca");
    let before = json_lines(cluster.folder(), &format!("audit --json --data {}", ca.display())).len();
    let issue = |name: &str| {
        let output = cluster.path(&format!("{name}-tls"));
        format!("certs issue --dir {} --role node --name {name} --output {}", ca.display(), output.display())
    };
    succeed(cluster.folder(), &issue("spare"));
    let issuer = cluster.path("issuer.pem");
    succeed(cluster.folder(), &format!("certs issuer --dir {} --output {}", ca.display(), issuer.display()));
    let lines = json_lines(cluster.folder(), &format!("audit --json --data {}", ca.display()));
    let written: Vec<_> = lines[before..].iter().map(|line| (&line["action"], &line["subject"])).collect();
    assert_eq!(written[0].0, "certificate_issue");
    assert_eq!((written[0].1.as_str(), written[1].0.as_str()), (Some("node `spare`"), Some("issuer_create")));
    // Where nothing can be written, nothing is issued.
    fs::remove_dir_all(ca.join("audit")).unwrap();
    fs::write(ca.join("audit"), b"").unwrap();
    let refused = run(cluster.folder(), &issue("other"));
    assert!(refused.code == Some(1) && refused.stderr.contains("audit"), "{}", refused.stderr);
    assert!(!cluster.path("other-tls").exists());
    let (_, admin) = token(&cluster, &address, "token create --role admin --name ops");
    let (rollout, pool) = playing(&cluster, &admin);
    succeed(cluster.folder(), &format!("close {pool} --connect {admin}"));
    let last = audit(&cluster).pop().unwrap();
    assert!(last.0 == "close_pool" && last.1 == pool && last.2.contains("ops"), "{last:?}");
    drop(rollout);
    assert!(coordinator.end().success() && node.end().success());
}

/// The log alone said who drained, closed and revoked, among all its other lines and for as long as somebody kept it.
#[test]
fn whoever_changes_something_for_others_is_written_down_before_it_is_done_or_it_is_not_done() {
    let (cluster, coordinator, node, address) = cluster();
    let (trainer, connect) = token(&cluster, &address, "token create --role trainer --name ada");
    let (_, admin) = token(&cluster, &address, "token create --role admin --name ops");
    let (rollout, id) = playing(&cluster, &connect);
    let listed = succeed(cluster.folder(), &format!("sessions --connect {admin}"));
    let pool = listed.lines().nth(1).and_then(|line| line.split('/').next()).unwrap().trim().to_owned();
    succeed(cluster.folder(), &format!("drain one --connect {admin}"));
    succeed(cluster.folder(), &format!("undrain one --connect {admin}"));
    let state =
        || json_lines(cluster.folder(), &format!("nodes --json --connect {admin}"))[0]["state"].clone();
    while state() != "alive" {
        std::thread::yield_now();
    }
    succeed(cluster.folder(), &format!("close {pool} --connect {admin}"));
    let data = cluster.path("coordinator");
    succeed(cluster.folder(), &format!("token revoke {trainer} --data {}", data.display()));
    let written = audit(&cluster);
    let actions: Vec<&str> = written.iter().map(|(action, ..)| action.as_str()).collect();
    assert_eq!(
        actions,
        ["token_create", "token_create", "drain", "undrain", "close_pool", "token_revoke"],
        "{written:?}"
    );
    assert_eq!((written[2].1.as_str(), written[4].1.as_str()), ("one", &*id));
    assert!(written[2].2.contains("ops") && written[0].2.contains("user "), "{written:?}");
    // An admin asks over the network, and nobody else.
    let over = |connect: &str| json_lines(cluster.folder(), &format!("audit --json --connect {connect}"));
    let of_folder = json_lines(cluster.folder(), &format!("audit --json --data {}", data.display()));
    assert_eq!(over(&admin), of_folder);
    let newest = json_lines(cluster.folder(), &format!("audit --json --limit 2 --connect {admin}"));
    assert_eq!(newest, of_folder[of_folder.len() - 2..]);
    let (_, viewer) = token(&cluster, &address, "token create --role viewer --name eve");
    let refused = run(cluster.folder(), &format!("audit --connect {viewer}"));
    assert!(refused.code != Some(0) && refused.stderr.contains("audit"), "{}", refused.stderr);
    // Where nothing can be written, nothing is changed.
    fs::remove_dir_all(data.join("audit")).unwrap();
    fs::write(data.join("audit"), b"").unwrap();
    let refused = run(cluster.folder(), &format!("drain one --connect {admin}"));
    assert!(refused.code != Some(0) && refused.stderr.contains("audit"), "{}", refused.stderr);
    assert_eq!(state(), "alive");
    let line = format!("token create --role trainer --name eve --data {}", data.display());
    let refused = run(cluster.folder(), &line);
    assert!(refused.code == Some(1) && refused.stderr.contains("audit"), "{}", refused.stderr);
    drop(rollout);
    assert!(coordinator.end().success() && node.end().success());
}
