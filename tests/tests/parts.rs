//! Panics in the tasks of a node that run for as long as it does, in real processes: the part is made anew, and nobody
//! but the log notices. The places (`ROLLHOUSE_FAILPOINT`) are looked at in builds with debug assertions only.

use std::os::unix::net::UnixStream;

use rollhouse_client::{Address, Cluster as Connected, ConnectOptions, PoolRequest, Transport};
use rollhouse_core::{ColumnMut, RecordRule};
use rollhouse_engine::Reset;
use rollhouse_tests::{Cluster, Folder, json_lines, succeed};

#[test]
#[cfg_attr(not(debug_assertions), ignore = "needs places to die at, which release builds do not have")]
fn what_ships_is_made_anew_when_it_panics_and_every_episode_reaches_the_store() {
    let cluster = Cluster::new(&["one"]);
    let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let place = [("ROLLHOUSE_FAILPOINT", "panic:node.shipping.spooled")];
    let mut node = cluster.node_with("one", &address, &[], &place);
    let connect = cluster.connection("trainer", &address);
    let folder = Folder::new();
    let line = format!("rollout --env CartPole-v1 --lanes 8 --episodes 40 --seed 1 --connect {connect}");
    succeed(folder.path(), &line);
    node.hear("shipping panicked: told to at node.shipping.spooled; it is made anew");
    let listed = json_lines(folder.path(), &format!("replay ls --json --connect {connect}"));
    assert_eq!(listed.len(), 40);
    node.signal("TERM");
    assert_eq!(node.code(), Some(0));
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "needs places to die at, which release builds do not have")]
fn the_attach_socket_is_made_anew_when_it_panics_and_owners_attach_there() {
    let cluster = Cluster::new(&["one"]);
    let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let socket = cluster.path("attach.sock");
    let setting = format!("attach.path={}", socket.display());
    let place = [("ROLLHOUSE_FAILPOINT", "panic:node.attach.accepted")];
    let mut node = cluster.node_with("one", &address, &[&setting], &place);
    let _first = UnixStream::connect(&socket).unwrap();
    node.hear("the attach socket panicked: told to at node.attach.accepted; it is made anew");
    while UnixStream::connect(&socket).is_err() {
        std::thread::yield_now();
    }
    let connect = std::fs::read_to_string(cluster.connection("trainer", &address)).unwrap();
    let connect: Address = connect.trim().parse().unwrap();
    let connected = Connected::connect(&connect, ConnectOptions::default(), None).unwrap();
    let mut request = PoolRequest::new("CartPole-v1", 8);
    request.settings.record = RecordRule::None;
    request.transport = Some(Transport::Shm);
    let mut pool = connected.open_pool(request).unwrap();
    pool.reset(&Reset::all()).unwrap();
    if let ColumnMut::I64(actions) = pool.actions() {
        actions.fill(1);
    }
    assert_eq!(pool.step().unwrap().rewards(), [1.0; 8]);
    drop(pool);
    node.signal("TERM");
    assert_eq!(node.code(), Some(0));
}
