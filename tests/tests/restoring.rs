//! What docs/operations.md says of a coordinator's backup that is restored under nodes which went on meanwhile.

use std::process::Command;

use rollhouse_tests::{Cluster, Done, Service, json_lines, rollhouse, run, succeed};

/// Starts the coordinator with that term at that address, with these arguments and variables. Returns its address, and where
/// its health is asked.
fn start(
    cluster: &Cluster,
    (term, listen): (u64, &str),
    more: &[&str],
    variables: &[(&str, &str)],
) -> (Service, String, String) {
    let line = [&["coordinator", "--data", "coordinator", "--listen", listen], more].concat();
    let mut coordinator = Service::start_with(cluster.folder(), &line, variables);
    let address = coordinator.hear(&format!("coordinator, term {term}, listens on "));
    let page = coordinator.hear("metrics and health on http://");
    (coordinator, address, page)
}

fn copy(cluster: &Cluster, from: &str, to: &str) {
    let copied = Command::new("cp").args(["-a", from, to]).current_dir(cluster.folder()).status();
    assert!(copied.unwrap().success(), "cp -a {from} {to}");
}

fn rollout(cluster: &Cluster, connect: &str) -> Done {
    let line = format!("rollout --connect {connect} --env CartPole-v1 --lanes 2 --episodes 2");
    run(cluster.folder(), &line)
}

/// Plays a backup back under a node without sessions, after the coordinator was started so often since the backup.
fn restore_after(starts: u64) {
    let cluster = Cluster::new(&["one"]);
    let (first, address, _) = start(&cluster, (41, "127.0.0.1:0"), &["--least-term", "41"], &[]);
    let mut node = cluster.node("one", &address);
    let connect = cluster.connection("admin", &address);
    copy(&cluster, "coordinator", "backup");
    assert!(first.end().success());
    for term in 42..42 + starts {
        let (mut next, ..) = start(&cluster, (term, &address), &[], &[]);
        node.hear(&format!("joined the coordinator, term {term}"));
        let played = rollout(&cluster, &connect);
        assert_eq!(played.code, Some(0), "{}", played.stderr);
        next.hear("is open for");
        assert!(next.end().success());
    }
    // A node that is started again remembers too.
    assert!(node.end().success());
    std::fs::remove_dir_all(cluster.path("coordinator")).unwrap();
    copy(&cluster, "backup", "coordinator");
    let (mut restored, _, page) = start(&cluster, (42, &address), &[], &[]);
    let named = format!("--least-term {}", 42 + starts);
    let line = ["node", "--data", "one", "--coordinator", &address];
    let mut node = Service::start(cluster.folder(), &line);
    let refused = restored.hear("node one has seen term ");
    assert!(refused.contains(&named), "{refused}");
    node.hear(&named);
    // Shown within a second.
    let health = || run(cluster.folder(), &format!("health --at {page}"));
    let health = std::iter::repeat_with(health).find(|health| health.code != Some(0)).unwrap();
    assert!(health.code == Some(5) && health.stderr.contains(&named), "{}", health.stderr);
    let alive = run(cluster.folder(), &format!("health --live --at {page}"));
    assert_eq!(alive.code, Some(0), "{}", alive.stderr);
    let status = &json_lines(cluster.folder(), &format!("status --json --connect {connect}"))[0];
    assert_eq!(status["behind"]["term"], 41 + starts, "{status}");
    assert_eq!(status["behind"]["nodes"], 1, "{status}");
    let status = succeed(cluster.folder(), &format!("status --connect {connect}"));
    assert!(status.contains(&named), "{status}");
    let doctor =
        format!("doctor --for coordinator --set coordinator.data=coordinator --set metrics.listen={page}");
    let mut doctor = rollhouse(cluster.folder(), &doctor);
    let doctor = Done::of(doctor.current_dir(cluster.folder()).output().unwrap());
    assert!(doctor.code == Some(3) && doctor.stdout.contains(&named), "{}", doctor.stdout);
    let pool = rollout(&cluster, &connect);
    assert!(pool.code != Some(0) && pool.stderr.contains(&named), "{}", pool.stderr);
    assert!(restored.end().success());
    let (least, text) = (42 + starts, (42 + starts).to_string());
    let variable = ("ROLLHOUSE_COORDINATOR__LEAST_TERM", text.as_str());
    let (mut again, _, page) = start(&cluster, (least, &address), &[], &[variable]);
    node.hear(&format!("joined the coordinator, term {least}"));
    let played = rollout(&cluster, &connect);
    assert_eq!(played.code, Some(0), "{}", played.stderr);
    succeed(cluster.folder(), &format!("health --at {page}"));
    again.hear("is open for");
    assert!(again.end().success() && node.end().success());
}

/// Symptom: after the documented restore of a coordinator's folder under nodes without sessions no pool opened again,
/// while health, readiness and status said that all was well. Cause: a node registered the newest term of its sessions,
/// which is 0 without any, and refused to open by the greatest that it had seen. Fix: a node registers what it has seen,
/// which it keeps on its disk; the coordinator refuses it by name, says with which term it has to be started, and is not
/// ready until then.
#[test]
fn a_backup_that_is_restored_under_idle_nodes_is_refused_by_the_term_that_it_needs_and_then_opens_pools() {
    restore_after(2);
}

/// The same where the restored coordinator takes the very term that its lost successor had: a term alone does not tell
/// the two apart.
#[test]
fn a_restored_coordinator_is_not_taken_for_its_successor_that_had_the_same_term() {
    restore_after(1);
}
