//! Panics, hangs and slow handlers, injected into every part of a node that runs for as long as the node: what its
//! coordinator and its owners see of them.

#[path = "../tests/cluster/mod.rs"]
mod cluster;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_core::{Claimant, SharedBound};
use rollhouse_env::Registry;
use rollhouse_wire::{CloseCode, ConnectionLost, Dialer, FrameKind, Role, Settings};
use tokio::sync::mpsc::channel as bounded;

use cluster::{Authority, Coordinator, Heard, Owner, session};

use crate::cluster_node::keep_link;
use crate::deadlines::Deadlines;
use crate::executor::{Crew, Executor};
use crate::fitness::Fitness;
use crate::hosting::{Hosting, HostingSettings};
use crate::link::{Card, LinkParts};
use crate::link_view::LinkTeller;
use crate::{AttachConfig, ClusterNode, Node, NodeFigures, PartExit, PartsHealth};

/// Waits until a node's parts fared so.
fn wait_until(node: &Node, so: impl FnMut(&PartsHealth) -> bool) -> PartsHealth {
    let mut health = node.parts().health();
    cluster::runtime().block_on(async { health.wait_for(so).await.unwrap().clone() })
}

#[test]
fn a_link_that_panics_is_made_anew_and_the_coordinator_hears_of_the_node_again() {
    let authority = Authority::new();
    let coordinator = Coordinator::start(&authority);
    let node = Node::start().unwrap();
    let figures: Arc<NodeFigures> = Arc::default();
    let (lease, deadlines) = (Duration::from_secs(30), Deadlines::of_sessions(Duration::from_secs(60)));
    let settings = HostingSettings {
        capacity: 8,
        lease,
        deadlines,
        program: "node/test".to_owned(),
        watch_patience: Duration::from_secs(15),
        budget: Default::default(),
        folder: None,
        connections: SharedBound::CONNECTIONS,
    };
    let executor = Executor::start((1, 8), 8, deadlines, Arc::clone(&figures)).unwrap();
    let registry = Arc::new(Registry::builtin());
    let hosting = Hosting::new(
        settings,
        (registry, rollhouse_host::EnvProviders::new([])),
        executor,
        Fitness::default(),
        Arc::clone(node.supervision()),
        figures,
    );
    let identity = authority.identity(Role::Node, "n1");
    let panics = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&panics);
    let (teller, _view) = LinkTeller::new();
    let parts = LinkParts {
        hosting: Arc::new(hosting),
        dialer: Arc::new(Dialer::new(identity, Settings::default(), "node/test")),
        coordinator: coordinator.address.to_string(),
        card: Card {
            node: "n1".to_owned(),
            boot: 7,
            advertise: None,
            attach: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 1)),
            capacity: 8,
            threads: 1,
            labels: Default::default(),
            envs: Default::default(),
            kinds: Vec::new(),
            budget: None,
            program: "node/test".to_owned(),
        },
        // Asked with each heartbeat.
        spool_load: Arc::new(move |_| assert!(!asked.swap(false, Ordering::Relaxed), "in a heartbeat")),
        renewing: None,
        teller,
    };
    let (stop, stopped) = bounded(1);
    keep_link(&node, parts, stopped);
    assert_eq!(coordinator.registered().boot, 7);
    panics.store(true, Ordering::Relaxed);
    // It is the same node, and says so.
    assert_eq!(coordinator.registered().boot, 7);
    coordinator.hear(|heard| matches!(heard, Heard::Beat(_)).then_some(()));
    let health = node.health();
    assert_eq!((health.all_restarts(), health.failed), (1, None));
    assert_eq!(health.last.unwrap().exit, PartExit::Panicked("in a heartbeat".to_owned()));
    let (said, heard) = sync_channel(1);
    stop.try_send(said).unwrap();
    heard.recv_timeout(cluster::PATIENCE).unwrap();
}

#[test]
fn when_serving_owners_panics_they_dial_the_same_address_again_and_step_on() {
    let authority = Authority::new();
    let coordinator = Coordinator::start(&authority);
    let mut config = authority.node("n1", &coordinator);
    config.stepping.threads = NonZeroUsize::MIN;
    let path = authority.path().join("attach.sock");
    config.serving.attach = Some(AttachConfig { path: path.clone(), uids: Vec::new(), sessions: 1 });
    let node = ClusterNode::start(config).unwrap();
    coordinator.registered();
    let open = session(1, "CartPole-v1", 2);
    coordinator.open(&open).unwrap();
    let owner = Owner::dial(&authority, &node);
    owner.attach(&open).reset(1);
    let address = node.address();
    panic_in_the_look(&node);
    let lost = owner.block_on(owner.connection.closed());
    assert!(matches!(lost, ConnectionLost::ByPeer { code: CloseCode::Internal, .. }), "{lost:?}");
    wait_until(&node.node, |health| health.all_restarts() == 1);
    assert_eq!(node.health().last.unwrap().to_string(), "the data thread panicked: in a look");
    assert_eq!(node.address(), address);
    // It is bound again after its back-off.
    let owner = loop {
        match Owner::try_dial(&authority, &node) {
            Ok(owner) => break owner,
            Err(_) => std::thread::yield_now(),
        }
    };
    let mut stepper = owner.attach(&open);
    assert_eq!(stepper.attached.last, 1);
    assert_eq!(stepper.step(2, &[0, 1]).header.kind, FrameKind::Batch);
    std::os::unix::net::UnixStream::connect(path).unwrap();
    // Nothing of the old connections is left in the books.
    assert_eq!(node.connections().owners.len(), 1);
}

/// Has the next look at the workers panic, on the data thread.
fn panic_in_the_look(node: &ClusterNode) {
    let (let_go, go) = sync_channel::<()>(1);
    let thrown = AtomicBool::new(false);
    let waits = move || {
        if !thrown.swap(true, Ordering::Relaxed) {
            let_go.send(()).unwrap();
            panic!("in a look");
        }
        false
    };
    drop(
        node.hosting
            .executor
            .submit(
                (Crew::Computing, &Claimant::owner("trainer")),
                move || go.recv().unwrap(),
                Box::new(waits),
            )
            .unwrap(),
    );
}

/// Waits until the node has been silent for longer than its threads ever are.
fn wait_until_silent(node: &ClusterNode) {
    while node.silent() < Duration::from_secs(2) {
        std::thread::yield_now();
    }
}

#[test]
fn while_the_control_thread_is_stuck_owners_step_on_and_the_node_shows_it() {
    let authority = Authority::new();
    let coordinator = Coordinator::start(&authority);
    let node = ClusterNode::start(authority.node("n1", &coordinator)).unwrap();
    coordinator.registered();
    let open = session(1, "CartPole-v1", 2);
    coordinator.open(&open).unwrap();
    let owner = Owner::dial(&authority, &node);
    let mut stepper = owner.attach(&open);
    stepper.reset(1);
    let (let_go, go) = sync_channel::<()>(1);
    node.node.spawn(async move { go.recv().unwrap() });
    for number in 2..100 {
        assert_eq!(stepper.step(number, &[0, 1]).header.kind, FrameKind::Batch);
    }
    wait_until_silent(&node);
    let_go.send(()).unwrap();
    let steps = |heard| match heard {
        Heard::Beat(beat) => (beat.load.steps > 0).then_some(()),
        _ => None,
    };
    coordinator.hear(steps);
    assert_eq!(node.health(), PartsHealth::default());
}

#[test]
fn while_the_data_thread_is_stuck_the_node_beats_on_and_shows_it_and_owners_are_answered_afterwards() {
    let authority = Authority::new();
    let coordinator = Coordinator::start(&authority);
    let node = ClusterNode::start(authority.node("n1", &coordinator)).unwrap();
    coordinator.registered();
    let open = session(1, "CartPole-v1", 2);
    coordinator.open(&open).unwrap();
    let owner = Owner::dial(&authority, &node);
    let mut stepper = owner.attach(&open);
    stepper.reset(1);
    let (let_go, go) = sync_channel::<()>(1);
    let (ended, end) = sync_channel::<()>(1);
    let stuck = Mutex::new(Some(go));
    let waits = move || {
        if let Some(go) = stuck.lock().take() {
            go.recv().unwrap();
            ended.send(()).unwrap();
        }
        false
    };
    drop(
        node.hosting
            .executor
            .submit(
                (Crew::Computing, &Claimant::owner("trainer")),
                move || end.recv().unwrap(),
                Box::new(waits),
            )
            .unwrap(),
    );
    wait_until_silent(&node);
    stepper.ask(FrameKind::Step, 2, &[0; 16]);
    let beats = |heard| matches!(heard, Heard::Beat(_)).then_some(());
    (0..3).for_each(|_| coordinator.hear(beats));
    let_go.send(()).unwrap();
    assert_eq!(stepper.hear().unwrap().header.number, 2);
}
