//! A host and programs that it has not started.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rollhouse_core::LaneDeadlines;
use rollhouse_host::{
    Cause, ConnectWatch, Host, HostConfig, JoinRefusal, Launcher, Link, LinkError, Restart, Until,
    WorkerEvent, WorkerSocket, WorkerSource, WorkerState,
};

const ECHO: u64 = 1;
const HANG: u64 = 3;
const LONG: Option<Duration> = Some(Duration::from_secs(60));

/// A host of two places, at a socket in a folder of its own.
fn host(folder: &std::path::Path) -> Host {
    let config = HostConfig {
        source: WorkerSource::Socket(WorkerSocket::bind(folder).expect("a folder of its own")),
        hellos: vec![b"one".to_vec(), b"two".to_vec()],
        launch_at_start: 2,
        launch_deadline: LONG,
        connect_deadline: None,
        lane_deadlines: LaneDeadlines::default(),
        connect_watch: ConnectWatch::default(),
        launcher: Launcher::new(1),
        max_answer_bytes: 4096,
    };
    let mut host = Host::start(config).expect("workers can come");
    host.share(4096).expect("there is memory");
    host
}

/// A program that wants a place, or any.
fn program(folder: &std::path::Path, place: Option<usize>) -> Child {
    let mut path = std::env::current_exe().expect("a test knows its path");
    path.pop();
    path.pop();
    path.extend(["examples", "echo_worker"]);
    let mut command = Command::new(path);
    command.arg(folder).args(place.map(|place| place.to_string())).stderr(Stdio::piped());
    command.spawn().expect("it can be started")
}

fn next(host: &mut Host) -> WorkerEvent {
    loop {
        if let Some(event) = host.next_event() {
            return event;
        }
        host.wait(Until::AnyEvent, LONG).expect("it can wait");
    }
}

fn joins(host: &mut Host, wanted: usize, hello: &[u8]) {
    match next(host) {
        WorkerEvent::Ready { worker, answer, .. } if worker == wanted => assert_eq!(answer, hello),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_program_of_others_is_a_worker_like_any_other_and_is_not_killed_when_it_is_given_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("workers");
    let mut host = host(&folder);
    let mut first = program(&folder, Some(1));
    joins(&mut host, 1, b"two");
    assert_eq!((host.process_id(1), host.process_id(0)), (Some(first.id()), None));
    let mut second = program(&folder, None);
    joins(&mut host, 0, b"one");
    for worker in [0, 1] {
        host.post(worker, ECHO, b"abc", LONG).expect("it is idle");
        assert!(matches!(next(&mut host), WorkerEvent::Replied(reply) if reply.payload == b"cba"));
    }
    // One that does not answer in time is disconnected, with its lanes alone.
    host.post(1, HANG, &[], Some(Duration::from_millis(20))).expect("it is idle");
    let WorkerEvent::Lost { worker: 1, cause: Cause::Hung, restart: Restart::After(_), detail } =
        next(&mut host)
    else {
        panic!("it answered");
    };
    assert_eq!((detail.as_str(), host.state(0)), ("disconnected at its deadline", WorkerState::Idle));
    assert!(first.try_wait().expect("it is a child").is_none(), "it was killed");
    first.kill().and_then(|()| first.wait()).expect("it is a child");
    // Its place is free again after its back-off.
    let mut third = program(&folder, None);
    joins(&mut host, 1, b"two");
    // One that ends costs its lanes at once.
    third.kill().and_then(|()| third.wait()).expect("it is a child");
    host.post(1, ECHO, b"abc", LONG).expect("it is not known to have ended");
    assert!(matches!(next(&mut host), WorkerEvent::Lost { worker: 1, cause: Cause::Died, .. }));
    host.post(0, ECHO, b"abc", LONG).expect("it is idle");
    assert!(matches!(next(&mut host), WorkerEvent::Replied(reply) if reply.payload == b"cba"));
    // The host's end ends no program; it sees that the host is gone.
    drop(host);
    let ended = second.wait().expect("it is a child");
    assert_eq!(ended.code(), Some(101), "it was killed, or did not see that its host is gone");
    assert!(!folder.join("workers.sock").exists());
}

#[test]
fn a_program_that_connects_twice_or_for_a_place_that_is_taken_is_refused_and_no_lane_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("workers");
    let mut host = host(&folder);
    let mut first = program(&folder, Some(0));
    joins(&mut host, 0, b"one");
    // This process becomes the other worker.
    let asks = |place: Option<usize>| {
        let folder = folder.clone();
        std::thread::spawn(move || Link::connect(&folder, place))
    };
    let refused = |host: &mut Host, place| {
        let asking = asks(place);
        while !asking.is_finished() {
            host.wait(Until::AllBack, Some(Duration::from_millis(1))).expect("it can wait");
        }
        match asking.join().expect("it does not panic") {
            Err(LinkError::Refused(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(&mut host, Some(0)), JoinRefusal::Taken);
    assert_eq!(refused(&mut host, Some(2)), JoinRefusal::NoPlace);
    let asking = asks(None);
    while !asking.is_finished() {
        host.wait(Until::AllBack, Some(Duration::from_millis(1))).expect("it can wait");
    }
    let link = asking.join().expect("it does not panic").expect("a place is free");
    assert_eq!(link.hello(), b"two");
    assert_eq!(refused(&mut host, None), JoinRefusal::Twice);
    host.post(0, ECHO, b"abc", LONG).expect("it is idle");
    assert!(matches!(next(&mut host), WorkerEvent::Replied(reply) if reply.payload == b"cba"));
    first.kill().and_then(|()| first.wait()).expect("it is a child");
}
