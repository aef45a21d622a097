//! Machines become nodes by a join token, keep their certificates renewed, and are turned away when they should be.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use rollhouse_client::{Address, Cluster as Connection, ConnectOptions, PoolRequest, Transport};
use rollhouse_core::ColumnMut;
use rollhouse_engine::Reset;
use rollhouse_tests::{Cluster, Done, Service, json_lines, rollhouse, run, succeed};
use rollhouse_wire::{
    Dialer, Drain, Expected, Identity, JoinTerms, JoinedFolder, NewToken, Role, Settings, TokenStore, Trust,
};

/// A cluster whose coordinator lets nodes in, whose certificates hold so long.
fn cluster(validity: &str) -> (Cluster, Service, String) {
    let cluster = Cluster::new(&[]);
    succeed(
        cluster.folder(),
        &format!(
            "certs issuer --dir {} --output {}",
            cluster.path("ca").display(),
            cluster.path("coordinator/issuer.pem").display()
        ),
    );
    let set = format!("coordinator.node_validity={validity}");
    let line = ["coordinator", "--data", "coordinator", "--listen", "127.0.0.1:0", "--set", &set];
    let mut coordinator = Service::start(cluster.folder(), &line);
    let address = coordinator.hear("listens on ");
    (cluster, coordinator, address)
}

/// A file with a connection string that has a new join token.
fn join_string(cluster: &Cluster, address: &str, terms: &str) -> String {
    let line = format!(
        "token create --role join --address {address} --data {} {terms}",
        cluster.path("coordinator").display()
    );
    kept(cluster, &succeed(cluster.folder(), &line))
}

fn kept(cluster: &Cluster, line: &str) -> String {
    let number = fs::read_dir(cluster.folder()).unwrap().count();
    let file = cluster.path(&format!("join-{number}"));
    fs::write(&file, line).unwrap();
    file.display().to_string()
}

/// A node that joins.
fn joining(cluster: &Cluster, name: &str, join: &str) -> Service {
    Service::start(cluster.folder(), &["node", "--data", name, "--name", name, "--join", join])
}

/// How a machine that is not let in ends.
fn turned_away(cluster: &Cluster, name: &str, join: &str) -> Done {
    let data = cluster.path(name);
    let line = format!("node --data {} --name {name} --join {join} --listen 127.0.0.1:0", data.display());
    let mut command = rollhouse(cluster.folder(), &line);
    command.env("ROLLHOUSE_METRICS__LISTEN", "127.0.0.1:0");
    Done::of(command.output().unwrap())
}

fn connect(file: &str) -> Connection {
    let address: Address = fs::read_to_string(file).unwrap().trim().parse().unwrap();
    Connection::connect(&address, ConnectOptions::default(), None).unwrap()
}

#[test]
fn a_machine_becomes_a_node_by_one_string_and_a_name_and_starts_again_without_them() {
    let (cluster, _coordinator, address) = cluster("1 h");
    let join = join_string(&cluster, &address, "--node one");
    let mut node = joining(&cluster, "one", &join);
    node.hear("joined the coordinator");
    let admin = cluster.connection("admin", &address);
    let rollout = format!("rollout --connect {admin} --env CartPole-v1 --lanes 8 --episodes 16");
    succeed(cluster.folder(), &rollout);
    assert!(node.end().success());
    // It keeps what it was given, and nobody has its key.
    let kept = fs::read_to_string(cluster.path("one/joined/identity.pem")).unwrap();
    assert_eq!(kept.matches("PRIVATE KEY").count(), 2, "one key, from its beginning to its end");
    let mut again = Service::start(cluster.folder(), &["node", "--data", "one"]);
    again.hear("joined the coordinator");
    assert_eq!(json_lines(cluster.folder(), &format!("nodes --connect {admin} --json"))[0]["node"], "one");
    let data = cluster.path("coordinator");
    let listed = json_lines(&data, &format!("token ls --json --data {}", data.display()));
    let token = listed.iter().find(|token| token["role"] == "join").unwrap();
    assert_eq!((&token["state"], &token["join"]["used"]), (&"used up".into(), &1.into()));
    // It needs none of this, and goes by no other name.
    let other = format!("node --data {} --name two", cluster.path("one").display());
    let done = run(cluster.folder(), &other);
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    assert!(done.stderr.contains("the certificate is that of node `one`"), "{}", done.stderr);
}

#[test]
fn who_is_not_let_in_is_told_why_and_ends_as_refused() {
    let (cluster, _coordinator, address) = cluster("1 h");
    let data = cluster.path("coordinator");
    let good = fs::read_to_string(join_string(&cluster, &address, "--name-prefix gpu-")).unwrap();
    let tokens = TokenStore::open(data.join("tokens.json")).unwrap();
    let (_, ca) = good.trim().split_once("&ca=").unwrap();
    let with = |token: &str| kept(&cluster, &format!("rollhouse://{address}?token={token}&ca={ca}"));
    let now = SystemTime::now();
    let hour = Duration::from_secs(3600);
    let new = NewToken {
        name: "join".to_owned(),
        role: Role::Join,
        max_lanes: None,
        reads: None,
        lifetime: Some(hour),
        join: Some(JoinTerms::new(1)),
    };
    let (_, expired) = tokens.create(&new, now - 2 * hour).unwrap();
    let (revoked_record, revoked) = tokens.create(&new, now).unwrap();
    tokens.revoke(&revoked_record.id, now).unwrap();
    let (used_record, used) = tokens.create(&new, now).unwrap();
    tokens.join(&used_record.id, "earlier", now).unwrap();
    let trainer = NewToken { role: Role::Trainer, lifetime: None, join: None, ..new };
    let (_, trainer) = tokens.create(&trainer, now).unwrap();
    let rows = [
        (with("rh_0000000000_00"), "the token is not valid"),
        (with(&expired), "the token expired"),
        (with(&revoked), "the token was revoked"),
        (with(&used), "the token was for one node, which has joined"),
        (with(&trainer), "the role trainer may not ask for enroll"),
        (kept(&cluster, &good), "the token is for nodes whose names begin with `gpu-`, not for `cpu-1`"),
    ];
    for (join, why) in rows {
        let done = turned_away(&cluster, "cpu-1", &join);
        assert_eq!(done.code, Some(4), "{why}: {}", done.stderr);
        assert!(done.stderr.contains(why), "{why}: {}", done.stderr);
        assert!(!cluster.path("cpu-1/joined/identity.pem").exists());
    }
    // Whoever is not the cluster's coordinator is not even shown the token.
    let foreign = format!("rollhouse://{address}?token={used}&ca=sha256:{}", "0a".repeat(32));
    let done = turned_away(&cluster, "cpu-1", &kept(&cluster, &foreign));
    assert_eq!(done.code, Some(4), "{}", done.stderr);
    assert!(done.stderr.contains("is not whom it should be"), "{}", done.stderr);
    fs::remove_file(cluster.path("coordinator/issuer.pem")).unwrap();
    let done = turned_away(&cluster, "gpu-1", &kept(&cluster, &good));
    assert_eq!(done.code, Some(4), "{}", done.stderr);
    assert!(done.stderr.contains("rollhouse certs issuer"), "{}", done.stderr);
}

#[test]
fn a_name_is_waited_for_until_the_node_that_has_it_has_ended() {
    let (cluster, _coordinator, address) = cluster("1 h");
    let join = join_string(&cluster, &address, "--uses 2");
    let mut first = joining(&cluster, "one", &join);
    first.hear("joined the coordinator");
    let line = ["node", "--data", "another", "--name", "one", "--join", &join];
    let mut second = Service::start(cluster.folder(), &line);
    let why = second.hear("cannot join yet: ");
    assert!(why.contains("a node `one` is registered and alive"), "{why}");
    first.kill();
    second.hear("joined the coordinator");
    assert!(second.end().success());
}

#[test]
fn certificates_are_renewed_under_running_sessions_which_go_on_where_they_are() {
    let (cluster, _coordinator, address) = cluster("6 s");
    let mut node = joining(&cluster, "one", &join_string(&cluster, &address, ""));
    node.hear("joined the coordinator");
    let admin = connect(&cluster.connection("admin", &address));
    let mut pools = [Transport::Quic, Transport::Shm].map(|transport| {
        let mut request = PoolRequest::new("CartPole-v1", 8);
        request.transport = Some(transport);
        let mut pool = admin.open_pool(request).unwrap();
        pool.reset(&Reset::all()).unwrap();
        pool
    });
    let places = || {
        let mut found: Vec<_> = admin
            .sessions()
            .unwrap()
            .sessions
            .iter()
            .map(|s| (s.report.session, s.report.incarnation))
            .collect();
        found.sort();
        found
    };
    let before = loop {
        let found = places();
        if found.len() == pools.len() {
            break found;
        }
    };
    let renewed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The certificate of the beginning is over for long when the fourth has come.
        scope.spawn(|| {
            (0..4).for_each(|_| drop(node.hear("the certificate was renewed")));
            renewed.store(true, Ordering::Relaxed);
        });
        while !renewed.load(Ordering::Relaxed) {
            for pool in &mut pools {
                if let ColumnMut::I64(actions) = pool.actions() {
                    actions.fill(1);
                }
                pool.step().unwrap();
            }
        }
    });
    assert_eq!(places(), before, "no session got another place");
    pools.into_iter().for_each(|pool| drop(pool.close().unwrap()));
    assert!(node.end().success());
}

#[test]
fn a_node_that_was_away_until_its_certificates_end_joins_again_by_a_token() {
    let (cluster, _coordinator, address) = cluster("5 s");
    let mut node = joining(&cluster, "one", &join_string(&cluster, &address, ""));
    node.hear("joined the coordinator");
    assert!(node.end().success());
    let folder = JoinedFolder::new(cluster.path("one/joined"));
    while folder.load().is_ok() {
        std::thread::yield_now();
    }
    let line = format!("node --data {}", cluster.path("one").display());
    let done = run(cluster.folder(), &line);
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    assert!(
        done.stderr.contains("expired") && done.stderr.contains("joins again: --join"),
        "{}",
        done.stderr
    );
    let mut again = joining(&cluster, "one", &join_string(&cluster, &address, ""));
    again.hear("joined the coordinator");
    assert!(again.end().success());
}

#[test]
fn a_node_whose_certificates_are_revoked_is_sent_away_at_once_and_comes_back_by_a_new_token_alone() {
    let (cluster, _coordinator, address) = cluster("1 h");
    let mut one = joining(&cluster, "one", &join_string(&cluster, &address, ""));
    let mut two = joining(&cluster, "two", &join_string(&cluster, &address, ""));
    one.hear("joined the coordinator");
    two.hear("joined the coordinator");
    let data = cluster.path("coordinator").display().to_string();
    succeed(cluster.folder(), &format!("certs revoke --role node --name one --data {data}"));
    let why = one.hear("without coordinator: ");
    assert!(why.contains("the certificate of node `one` was revoked"), "{why}");
    let admin = cluster.connection("admin", &address);
    let listed = json_lines(cluster.folder(), &format!("nodes --connect {admin} --json"));
    let alive: Vec<_> =
        listed.iter().filter(|node| node["state"] == "alive").map(|node| &node["node"]).collect();
    assert_eq!(alive, ["two"], "{listed:?}");
    assert!(one.end().success());
    // What it has is of no use to whoever has it, in a folder of his own neither.
    let mut thief = Service::start(cluster.folder(), &["node", "--data", "one"]);
    let why = thief.hear("without coordinator: ");
    assert!(why.contains("was revoked"), "{why}");
    assert!(thief.end().success());
    let join = join_string(&cluster, &address, "--node one");
    let mut new =
        Service::start(cluster.folder(), &["node", "--data", "new", "--name", "one", "--join", &join]);
    new.hear("joined the coordinator");
    let shown = json_lines(cluster.folder(), &format!("certs revoked --json --data {data}"));
    assert_eq!((shown.len(), &shown[0]["name"]), (1, &"one".into()));
    // A file that makes no sense changes nothing, and the log says so.
    fs::write(cluster.path("coordinator/tls/revoked"), "node two\n").unwrap();
    assert!(run(cluster.folder(), &format!("certs revoked --data {data}")).stderr.contains("line 1 of"));
    assert!(new.end().success() && two.end().success());
}

/// The secret of a join token could be replaced by revoking it and making another alone.
#[test]
fn a_join_secret_is_rotated_under_open_pools_and_lets_machines_in_by_the_new_one_alone() {
    let (cluster, _coordinator, address) = cluster("1 h");
    let data = cluster.path("coordinator");
    let made =
        format!("token create --role join --uses 2 --address {address} --data {} --json", data.display());
    let made = json_lines(cluster.folder(), &made).remove(0);
    let first = kept(&cluster, made["connect"].as_str().unwrap());
    let mut node = joining(&cluster, "one", &first);
    node.hear("joined the coordinator");
    let admin = connect(&cluster.connection("admin", &address));
    let mut pool = admin.open_pool(PoolRequest::new("CartPole-v1", 8)).unwrap();
    pool.reset(&Reset::all()).unwrap();
    let before = admin.sessions().unwrap().sessions[0].report.incarnation;
    let id = made["id"].as_str().unwrap();
    let rotate = format!("token rotate {id} --grace 0s --address {address} --data {}", data.display());
    let second = kept(&cluster, &succeed(cluster.folder(), &rotate));
    let refused = turned_away(&cluster, "late", &first);
    assert!(refused.code != Some(0) && refused.stderr.contains("token"), "{}", refused.stderr);
    let mut other = joining(&cluster, "two", &second);
    other.hear("joined the coordinator");
    // The node that the first secret let in has a certificate of its own, and steps on.
    if let ColumnMut::I64(actions) = pool.actions() {
        actions.fill(1);
    }
    pool.step().unwrap();
    assert_eq!(admin.sessions().unwrap().sessions[0].report.incarnation, before);
    drop(pool.close().unwrap());
    assert!(node.end().success() && other.end().success());
}

#[test]
fn a_cluster_of_one_machine_lets_further_machines_in() {
    let cluster = Cluster::new(&[]);
    let mut up = Service::start(cluster.folder(), &["up", "--data", "up"]);
    let admin: Address = up.read().trim().parse().unwrap();
    let line = format!(
        "token create --role join --data {} --address {}:{}",
        cluster.path("up/coordinator").display(),
        admin.host,
        admin.port
    );
    let join = kept(&cluster, &succeed(cluster.folder(), &line));
    let mut node = joining(&cluster, "further", &join);
    node.hear("joined the coordinator");
    assert!(node.end().success());
    assert!(up.end().success());
}

#[test]
fn who_has_a_join_token_looks_at_nothing_opens_nothing_and_drains_nobody() {
    let (cluster, _coordinator, address) = cluster("1 h");
    let file = join_string(&cluster, &address, "");
    for line in [
        format!("status --connect {file}"),
        format!("nodes --connect {file}"),
        format!("replay ls --connect {file}"),
        format!("drain one --connect {file}"),
        format!("rollout --connect {file} --env CartPole-v1 --lanes 1 --episodes 1"),
    ] {
        let done = run(cluster.folder(), &line);
        assert_eq!(done.code, Some(4), "{line}: {}", done.stderr);
        assert!(done.stderr.contains("the role join may not ask for"), "{line}: {}", done.stderr);
    }
    let address: Address = fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    let identity = Identity::load(Trust::File(cluster.path("ca/ca.pem")), None).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let dialer = Dialer::new(identity, Settings::default(), "join");
        let at = format!("{}:{}", address.host, address.port);
        let link = dialer.dial(&at, &Expected::COORDINATOR, address.token.as_deref()).await.unwrap();
        let asked = Drain { node: "one".to_owned() };
        let refused = link.call(asked, Duration::from_secs(20)).await.unwrap_err();
        assert!(refused.to_string().contains("may not ask for"), "{refused}");
    });
}
