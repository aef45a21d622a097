//! A host and real processes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rollhouse_host::{
    Cause, ConnectWatch, Environment, Host, HostConfig, HostError, INLINE_BYTES, Launcher, Memories, Output,
    Program, Reply, Restart, Until, Waited, WorkerEvent, WorkerSource, WorkerState,
};

const ECHO: u64 = 1;
const EXIT: u64 = 2;
const HANG: u64 = 3;
const SPAWN: u64 = 4;
const SAY: u64 = 5;
const PUBLISH: u64 = 6;
const CONNECT: u64 = 7;
const MAX_ANSWER_BYTES: usize = 4 << 20;
const LONG: Option<Duration> = Some(Duration::from_secs(60));
const SHORT: Option<Duration> = Some(Duration::from_millis(50));

fn start(hellos: &[&str], launch_deadline: Option<Duration>) -> Host {
    start_with(Launcher::new(2), hellos, launch_deadline)
}

fn start_with(launcher: Launcher, hellos: &[&str], launch_deadline: Option<Duration>) -> Host {
    let hellos = hellos.iter().map(|hello| hello.as_bytes().to_vec()).collect();
    let mut host =
        Host::start(config(echo(), hellos, launch_deadline, launcher)).expect("workers can be started");
    assert!((1..host.workers()).all(|worker| host.state(worker) == WorkerState::Dormant));
    assert!((0..host.workers()).filter_map(|worker| host.process_id(worker)).count() <= 1);
    host.launch_all().expect("it has not ended");
    host
}

/// Two or more workers that can be given commands, whose connecting `watch` shows.
fn start_watched(hellos: &[&str], watch: &ConnectWatch) -> Host {
    let hellos = hellos.iter().map(|hello| hello.as_bytes().to_vec()).collect();
    let config = config(echo(), hellos, LONG, Launcher::new(2));
    let mut host =
        Host::start(HostConfig { connect_watch: watch.clone(), ..config }).expect("workers can be started");
    host.launch_all().expect("it has not ended");
    assert!(matches!(host.wait(Until::AllBack, LONG), Ok(Waited::Satisfied)));
    host.share(4096).expect("there is memory");
    host
}

fn echo() -> Program {
    let mut path = std::env::current_exe().expect("a test knows its path");
    path.pop();
    path.pop();
    path.extend(["examples", "echo_worker"]);
    let arguments = vec![std::process::id().to_string().into()];
    Program {
        path: path.into(),
        arguments,
        environment: Environment::Inherited,
        output: Output::Kept,
        memory: None,
    }
}

fn config(
    program: Program,
    hellos: Vec<Vec<u8>>,
    launch_deadline: Option<Duration>,
    launcher: Launcher,
) -> HostConfig {
    let (connect_deadline, connect_watch) = (SHORT, ConnectWatch::default());
    HostConfig {
        source: WorkerSource::Program(program),
        hellos,
        launch_at_start: 1,
        launch_deadline,
        connect_deadline,
        lane_deadlines: rollhouse_core::LaneDeadlines::default(),
        connect_watch,
        launcher,
        max_answer_bytes: MAX_ANSWER_BYTES,
    }
}

fn playing(workers: usize) -> Host {
    let mut host = start(&vec!["x"; workers], LONG);
    assert!(matches!(host.wait(Until::AllBack, LONG), Ok(Waited::Satisfied)));
    assert!(host.share(4096).is_ok());
    while let Some(event) = host.next_event() {
        assert!(matches!(event, WorkerEvent::Ready { .. }), "{event:?}");
    }
    host
}

fn reply(host: &mut Host) -> Reply {
    match host.next_event() {
        Some(WorkerEvent::Replied(reply)) => reply,
        event => panic!("no reply but {event:?}"),
    }
}

fn loss(host: &mut Host) -> (usize, Cause, Restart, String) {
    match host.next_event() {
        Some(WorkerEvent::Lost { worker, cause, restart, detail }) => (worker, cause, restart, detail),
        event => panic!("no loss but {event:?}"),
    }
}

/// A reply and a loss, in whichever order they came.
fn reply_and_loss(host: &mut Host) -> (Reply, (usize, Cause, Restart, String)) {
    let first = host.next_event();
    let second = host.next_event();
    match (first, second) {
        (Some(WorkerEvent::Replied(reply)), Some(WorkerEvent::Lost { worker, cause, restart, detail }))
        | (Some(WorkerEvent::Lost { worker, cause, restart, detail }), Some(WorkerEvent::Replied(reply))) => {
            (reply, (worker, cause, restart, detail))
        }
        events => panic!("no reply and loss but {events:?}"),
    }
}

#[test]
fn every_worker_says_what_it_was_greeted_with() {
    let mut host = start(&["a", "b", "c"], LONG);
    assert_eq!(host.wait(Until::AllBack, LONG).unwrap(), Waited::Satisfied);
    let mut answers: Vec<(usize, Vec<u8>)> = std::iter::from_fn(|| host.next_event())
        .map(|event| match event {
            WorkerEvent::Ready { worker, answer, .. } => (worker, answer),
            event => panic!("{event:?}"),
        })
        .collect();
    answers.sort();
    assert_eq!(answers, [(0, b"a".to_vec()), (1, b"b".to_vec()), (2, b"c".to_vec())]);
}

#[test]
fn an_answer_beyond_its_bound_costs_its_worker_before_it_is_read() {
    // Symptom: an env whose worker answered with 1 GiB cost its node as much memory.
    // Cause: answers were read as a whole before the bound of 16 MiB was looked at.
    // Fix: a host has the bound of its workers' answers, which is looked at before anything is allocated.
    let mut host = playing(1);
    for (len, fits) in [(MAX_ANSWER_BYTES, true), (MAX_ANSWER_BYTES + 1, false)] {
        host.post(0, ECHO, &vec![1; len], LONG).unwrap();
        assert_eq!(host.wait(Until::AllReplied, LONG).unwrap(), Waited::Satisfied);
        if fits {
            assert_eq!(reply(&mut host).payload.len(), len);
        } else {
            let (_, cause, _, detail) = loss(&mut host);
            assert_eq!(cause, Cause::Died);
            assert!(detail.contains("longer than the limit of 4194304 bytes"), "{detail}");
        }
    }
}

#[test]
fn commands_of_any_length_are_answered() {
    let mut host = playing(2);
    for len in [0, 1, 9, INLINE_BYTES, INLINE_BYTES + 1, 3_000_000] {
        let payload: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        let reversed: Vec<u8> = payload.iter().rev().copied().collect();
        for worker in 0..2 {
            host.post(worker, ECHO, &payload, LONG).unwrap();
            assert!(matches!(host.post(worker, ECHO, &[], LONG), Err(HostError::NotIdle(_))));
        }
        assert_eq!(host.wait(Until::AllReplied, LONG).unwrap(), Waited::Satisfied);
        // In the order in which they came. Not printed: they may be long.
        let mut replies = [reply(&mut host), reply(&mut host)];
        replies.sort_by_key(|reply| reply.worker);
        for (worker, reply) in replies.into_iter().enumerate() {
            assert!(
                reply == Reply { worker, code: ECHO, payload: reversed.clone() },
                "worker {worker}, {len} bytes"
            );
        }
    }
}

#[test]
fn thousands_of_batches_are_answered_whoever_sleeps() {
    let mut host = playing(3);
    for batch in 0..3_000_u64 {
        for worker in 0..3 {
            host.post(worker, 100 + batch, &batch.to_le_bytes(), LONG).unwrap();
        }
        let until = if batch % 2 == 0 { Until::AllReplied } else { Until::AnyEvent };
        let mut replies = 0;
        while replies < 3 {
            assert_eq!(host.wait(until, LONG).unwrap(), Waited::Satisfied);
            while let Some(event) = host.next_event() {
                assert!(matches!(event, WorkerEvent::Replied(Reply { code, .. }) if code == 100 + batch));
                replies += 1;
            }
        }
    }
}

#[test]
fn a_worker_that_ends_is_lost_at_once_alone_and_comes_back() {
    let mut host = playing(2);
    host.post(0, ECHO, b"x", LONG).unwrap();
    host.post(1, EXIT, &[7], LONG).unwrap();
    assert_eq!(host.wait(Until::AllReplied, LONG).unwrap(), Waited::Satisfied);
    let (reply_of_other, (worker, cause, restart, detail)) = reply_and_loss(&mut host);
    assert_eq!((reply_of_other.worker, worker, cause), (0, 1, Cause::Died));
    assert!(matches!(restart, Restart::After(_)));
    assert!(detail.contains("exit status: 7"), "{detail}");
    assert!(matches!(host.post(1, ECHO, &[], LONG), Err(HostError::NotIdle(1))));

    assert_eq!(host.wait(Until::AllBack, LONG).unwrap(), Waited::Satisfied);
    assert!(matches!(host.next_event(), Some(WorkerEvent::Ready { worker: 1, .. })));
    host.post(1, ECHO, b"ab", LONG).unwrap();
    assert_eq!(host.wait(Until::AllReplied, LONG).unwrap(), Waited::Satisfied);
    assert_eq!(reply(&mut host), Reply { worker: 1, code: ECHO, payload: b"ba".to_vec() });
}

#[test]
fn a_worker_that_hangs_is_killed_at_its_deadline() {
    let mut host = playing(2);
    host.post(0, HANG, &[], SHORT).unwrap();
    host.post(1, ECHO, &[], LONG).unwrap();
    assert_eq!(host.wait(Until::AllReplied, LONG).unwrap(), Waited::Satisfied);
    let (reply_of_other, (worker, cause, ..)) = reply_and_loss(&mut host);
    assert_eq!((reply_of_other.worker, worker, cause), (1, 0, Cause::Hung));
    assert_eq!((host.state(0), host.state(1)), (WorkerState::BackOff, WorkerState::Idle));
}

#[test]
fn a_wait_ends_at_its_timeout_and_the_command_goes_on() {
    let mut host = playing(1);
    host.post(0, HANG, &[], LONG).unwrap();
    assert_eq!(host.wait(Until::AllReplied, SHORT).unwrap(), Waited::TimedOut);
    assert_eq!(host.state(0), WorkerState::Busy);
}

#[test]
fn a_worker_that_is_never_ready_and_one_that_ends_are_lost() {
    let mut host = start(&["never"], SHORT);
    assert_eq!(host.wait(Until::AnyEvent, LONG).unwrap(), Waited::Satisfied);
    assert!(matches!(loss(&mut host), (0, Cause::LaunchTimedOut, ..)));
    let mut host = start(&["refuse"], LONG);
    assert_eq!(host.wait(Until::AnyEvent, LONG).unwrap(), Waited::Satisfied);
    let (_, cause, _, detail) = loss(&mut host);
    assert_eq!(cause, Cause::Died);
    assert!(detail.contains("exit status: 9"), "{detail}");
}

#[test]
fn what_a_lost_worker_said_last_is_told() {
    let mut host = start(&["refuse"], LONG);
    assert_eq!(host.wait(Until::AnyEvent, LONG).unwrap(), Waited::Satisfied);
    let (.., detail) = loss(&mut host);
    assert!(detail.ends_with("its last output: refused"), "{detail}");
}

#[test]
fn a_worker_that_says_more_than_a_pipe_holds_is_not_held_up() {
    let mut host = playing(1);
    host.post(0, SAY, &(4_u64 << 20).to_le_bytes(), LONG).unwrap();
    assert_eq!(host.wait(Until::AllReplied, LONG).unwrap(), Waited::Satisfied);
    assert_eq!(reply(&mut host).code, SAY);
}

#[test]
fn hosts_with_one_launcher_launch_no_more_at_a_time_than_it_allows_and_all_get_their_turn() {
    let launcher = Launcher::new(1);
    let mut first = start_with(launcher.clone(), &["a", "b"], LONG);
    let mut second = start_with(launcher.clone(), &["c", "d"], LONG);
    let started = |host: &Host| (0..2).filter_map(|worker| host.process_id(worker)).count();
    assert_eq!((started(&first), started(&second), launcher.launching()), (1, 0, 1));
    assert_eq!(first.wait(Until::AllBack, LONG).unwrap(), Waited::Satisfied);
    assert_eq!(second.wait(Until::AllBack, LONG).unwrap(), Waited::Satisfied);
    assert_eq!((started(&first), started(&second), launcher.launching()), (2, 2, 0));
}

#[test]
fn workers_that_connect_are_not_launching_and_are_lost_at_a_deadline_of_their_own() {
    let mut host = start(&["connect"], LONG);
    assert_eq!(host.wait(Until::AnyEvent, LONG).unwrap(), Waited::Satisfied);
    assert!(matches!(host.next_event(), Some(WorkerEvent::Ready { .. })));
    let mut host = start(&["connect for ever"], Some(Duration::from_secs(3)));
    assert_eq!(host.wait(Until::AnyEvent, LONG).unwrap(), Waited::Satisfied);
    let (_, cause, _, detail) = loss(&mut host);
    assert_eq!(cause, Cause::ConnectTimedOut);
    assert!(detail.contains("after 3 retries"), "{detail}");
}

#[test]
fn whoever_watches_sees_how_often_a_worker_has_tried_to_connect_in_a_command() {
    let watch = ConnectWatch::default();
    let mut host = start_watched(&["x", "y"], &watch);
    host.post(1, CONNECT, &7_u64.to_le_bytes(), None).unwrap();
    while watch.retries() != Some(7) {
        host.wait(Until::AllReplied, SHORT).unwrap();
    }
    host.give_up(1).unwrap();
    assert_eq!(watch.retries(), None);
}

#[test]
fn a_program_that_does_not_exist_is_a_loss_that_says_so() {
    let program = Program {
        path: "/nowhere/python".into(),
        arguments: vec![],
        environment: Environment::Inherited,
        output: Output::Inherited,
        memory: None,
    };
    let hellos = vec![vec![]];
    let launcher = Launcher::new(1);
    let mut host = Host::start(config(program, hellos, LONG, launcher)).unwrap();
    assert_eq!(host.wait(Until::AnyEvent, LONG).unwrap(), Waited::Satisfied);
    assert!(loss(&mut host).3.contains("could not be started"));
}

#[test]
fn what_a_worker_started_ends_with_the_host() {
    let mut host = playing(1);
    host.post(0, SPAWN, &[], LONG).unwrap();
    assert_eq!(host.wait(Until::AllReplied, LONG).unwrap(), Waited::Satisfied);
    let child = String::from_utf8(reply(&mut host).payload).unwrap();
    let stat = format!("/proc/{child}/stat");
    assert!(std::fs::exists(&stat).unwrap());
    drop(host);
    // Killed; a zombie until its new parent reaps it.
    let ended = (0..100_000).any(|_| {
        std::thread::yield_now();
        std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
    });
    assert!(ended, "{child} is still there");
}

#[test]
fn an_ended_host_takes_no_commands() {
    let mut host = playing(1);
    host.end(Duration::ZERO);
    assert!(matches!(host.post(0, ECHO, &[], LONG), Err(HostError::Ended)));
    assert!(matches!(host.wait(Until::AllReplied, LONG), Err(HostError::Ended)));
}

#[test]
fn a_number_that_a_busy_worker_publishes_ends_a_wait_and_the_worker_can_be_given_up() {
    let mut host = playing(2);
    let word = |memories: Memories<'_>, worker| {
        memories.of(worker).map(|(memory, at)| memory.word(at).load(Ordering::SeqCst))
    };
    let published = |memories: Memories<'_>| word(memories, 0) == Some(77);
    host.post(0, PUBLISH, &77_u64.to_le_bytes(), None).unwrap();
    host.post(1, HANG, &[], None).unwrap();
    assert!(matches!(host.wait_or(Until::AllReplied, &published, LONG), Ok(Waited::Satisfied)));
    assert_eq!((host.state(0), host.state(1)), (WorkerState::Busy, WorkerState::Busy));
    assert_eq!(word(host.memories(), 1), Some(0), "the other one has a memory of its own");
    host.give_up(0).unwrap();
    let (worker, cause, restart, _) = loss(&mut host);
    assert!(
        worker == 0 && cause == Cause::Hung && matches!(restart, Restart::After(_)),
        "{cause:?}, {restart:?}"
    );
    assert_eq!((host.state(0), host.state(1)), (WorkerState::BackOff, WorkerState::Busy));
    // There is no process to kill any more.
    host.give_up(0).unwrap();
    assert!(host.next_event().is_none());
    // What it wrote can be read until it is there again, and is then handed out.
    assert_eq!(word(host.memories(), 0), Some(77));
    host.give_up(1).unwrap();
    assert_eq!(loss(&mut host).0, 1);
    assert_eq!(host.wait(Until::AllBack, LONG).unwrap(), Waited::Satisfied);
    let mut left = [None, None];
    while let Some(WorkerEvent::Ready { worker, left: memory, .. }) = host.next_event() {
        left[worker] = memory.map(|(memory, at)| memory.word(at).load(Ordering::SeqCst));
    }
    assert_eq!(left, [Some(77), Some(0)]);
    assert_eq!(word(host.memories(), 0), Some(0));
    host.post(0, ECHO, b"ab", LONG).unwrap();
    assert_eq!(host.wait(Until::AllReplied, LONG).unwrap(), Waited::Satisfied);
    assert_eq!(reply(&mut host).payload, b"ba");
}
