//! What peers who do not keep to the protocol get: an end with a stated reason, and nothing for the others.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests outside of test functions")]

use crate::common;

use std::net::SocketAddr;
use std::time::Duration;

use common::raw::{self, Raw};
use common::{Cluster, SOON, address, connected, dialer, run, turned_away};
use rollhouse_wire::limits::MAX_OPEN_REQUESTS;
use rollhouse_wire::{
    Answer, Arrival, Attach, Attached, CallError, CloseCode, Connection, Done, Expected, FrameFault,
    FrameHeader, FrameKind, FrameReader, FrameWriter, HEADER_BYTES, Incarnation, Listener, RefusalCode,
    Request, Responder, Role, Secret, Settings, StatusRequest, StreamLost, TurnedAwayReason, Versions,
    Welcome, control,
};

fn message(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat()
}

fn encoded(request: &Request) -> Vec<u8> {
    let mut bytes = Vec::new();
    control::encode(request, &mut bytes).unwrap();
    bytes
}

fn attach() -> Attach {
    let incarnation = Incarnation { term: 1, counter: 1 };
    Attach {
        pool: rollhouse_core::RunId::from_u128(7),
        index: 0,
        incarnation,
        secret: Secret::from_bytes([7; 16]),
        log: false,
    }
}

/// A raw peer that has said hello, and the other end of its connection.
async fn acquainted(listener: &mut Listener) -> (Raw, Connection) {
    let to = listener.effective().address;
    let greet = async {
        let raw = Raw::connect(to, None).await;
        let answer: Answer<Welcome> = control::decode(&raw.hello(Versions::OURS).await).unwrap();
        answer.into_result().unwrap();
        raw
    };
    tokio::join!(greet, connected(listener))
}

/// One of our own peers and the other end of its connection.
async fn ours(cluster: &Cluster, listener: &mut Listener) -> (Connection, Connection) {
    let dialer = dialer(cluster.nobody());
    let (to, expected) = (address(listener), Expected::node("n1"));
    let (ours, theirs) = tokio::join!(dialer.dial(&to, &expected, None), connected(listener));
    (ours.unwrap(), theirs)
}

/// A session's stream, seen from both of its ends.
async fn session(
    owner: &Connection,
    node: &Connection,
    max_columns: usize,
) -> ((FrameReader, FrameWriter), (FrameReader, FrameWriter)) {
    let mut requests = node.requests();
    let serve = async {
        let (request, responder) = requests.next().await.unwrap();
        assert_eq!(request, Request::Attach(attach()));
        let attached =
            Attached { lanes: 1, last: 0, logs: false, as_done: false, plays: false, paced: false };
        responder.accept_frames(attached, max_columns).await.unwrap()
    };
    let (attached, served) = tokio::join!(owner.attach(attach(), None, max_columns), serve);
    let (_, reader, writer) = attached.unwrap();
    ((reader, writer), served)
}

#[test]
fn what_is_no_hello_closes_the_connection_with_the_reason() {
    let cluster = Cluster::new();
    let deep = [vec![0x91; 4_000], vec![0xc0]].concat();
    let rows: [(&str, Vec<u8>, CloseCode, &str); 7] = [
        ("another request", encoded(&Request::Status(StatusRequest {})), CloseCode::OutOfOrder, "not status"),
        ("an unknown request", message(b"\x81\xa4type\xa4kiss"), CloseCode::OutOfOrder, "not `kiss`"),
        ("rubbish", message(b"\xc1\xc1\xc1"), CloseCode::Malformed, "cannot be read"),
        ("deep nesting", message(&deep), CloseCode::Malformed, "cannot be read"),
        ("a huge length", vec![0xff; 4], CloseCode::TooLong, "at most 4096"),
        ("half a message", vec![9, 0, 0, 0, 0x81], CloseCode::Malformed, "ended within hello"),
        ("nothing", vec![], CloseCode::Malformed, "ended within hello"),
    ];
    run(async {
        let mut listener = cluster.node("n1", Settings::default());
        let to = listener.effective().address;
        for (name, bytes, code, part) in rows {
            let talk = async {
                let raw = Raw::connect(to, None).await;
                let _receive = raw.say(&bytes).await;
                raw.closed().await
            };
            let (told, away) = tokio::join!(talk, turned_away(&mut listener));
            assert_eq!(told.0, code, "{name}: {}", told.1);
            assert!(told.1.contains(part), "{name}: {}", told.1);
            assert!(matches!(away.reason, TurnedAwayReason::Malformed(_)), "{name}: {away}");
        }
    });
}

#[test]
fn versions_without_a_common_one_are_both_named() {
    let cluster = Cluster::new();
    run(async {
        let mut listener = cluster.node("n1", Settings::default());
        let to = listener.effective().address;
        let talk = async {
            let raw = Raw::connect(to, None).await;
            let answer = raw.hello(Versions { oldest: 7, newest: 9 }).await;
            (control::decode::<Answer<Welcome>>(&answer).unwrap(), raw.closed().await)
        };
        let ((answer, (code, _)), away) = tokio::join!(talk, turned_away(&mut listener));
        let refusal = answer.into_result().unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Version);
        assert!(refusal.message.contains("node/test speaks 1 to 1"), "{refusal}");
        assert!(refusal.message.contains("raw/test speaks 7 to 9"), "{refusal}");
        assert_eq!(code, CloseCode::Refused);
        assert_eq!(away.reason.word(), "version");
    });
}

#[test]
fn a_bad_request_ends_its_connection_and_no_other() {
    let cluster = Cluster::new();
    let rows: [(&str, Vec<u8>, CloseCode, &str); 5] = [
        ("rubbish", message(b"\xc1"), CloseCode::Malformed, "cannot be read"),
        ("a missing field", message(b"\x81\xa4type\xa5drain"), CloseCode::Malformed, "node"),
        ("a huge length", (2u32 << 20).to_le_bytes().to_vec(), CloseCode::TooLong, "2097152 bytes"),
        ("half a message", vec![9, 0, 0, 0, 0x81], CloseCode::Malformed, "in the middle of its request"),
        ("a second hello", encoded(&hello()), CloseCode::OutOfOrder, "hello comes once"),
    ];
    run(async {
        let mut listener = cluster.node("n1", Settings::default());
        let (good, good_there) = ours(&cluster, &mut listener).await;
        for (name, bytes, code, part) in rows {
            let (raw, node) = acquainted(&mut listener).await;
            let mut requests = node.requests();
            let talk = async {
                let _receive = raw.say(&bytes).await;
                raw.closed().await
            };
            let (told, ended) = tokio::join!(talk, requests.next());
            assert_eq!(told.0, code, "{name}: {}", told.1);
            assert!(told.1.contains(part), "{name}: {}", told.1);
            assert!(ended.is_err(), "{name}");
        }
        let mut requests = good_there.requests();
        let serve = async {
            let (_, responder) = requests.next().await.unwrap();
            responder.respond(Ok(Done {})).await.unwrap();
            // Until the peer has the answer.
            requests.next().await.unwrap_err()
        };
        let ask = async {
            let mut call = good.open(&Request::Attach(attach())).await.unwrap();
            call.answer::<Done>().await.unwrap();
            good.close(CloseCode::Finished, "");
        };
        tokio::join!(serve, ask);
    });
}

fn hello() -> Request {
    let hello = rollhouse_wire::Hello { versions: Versions::OURS, program: "raw/test".into(), token: None };
    Request::Hello(hello)
}

#[test]
fn a_request_of_a_newer_version_is_refused_and_the_connection_lives_on() {
    let cluster = Cluster::new();
    run(async {
        let mut listener = cluster.node("n1", Settings::default());
        let (raw, node) = acquainted(&mut listener).await;
        let mut requests = node.requests();
        let talk = async {
            let bytes = raw.say(&message(b"\x81\xa4type\xa4kiss")).await.read_to_end(1 << 16).await.unwrap();
            let answer: Answer<Done> = control::decode(&bytes[4..]).unwrap();
            let refusal = answer.into_result().unwrap_err();
            assert_eq!(refusal.code, RefusalCode::Unsupported);
            assert!(refusal.message.contains("`kiss`"), "{refusal}");
            let _receive = raw.say(&encoded(&Request::Attach(attach()))).await;
        };
        let ((), next) = tokio::join!(talk, requests.next());
        assert_eq!(next.unwrap().0, Request::Attach(attach()));
    });
}

#[test]
fn requests_beyond_the_limit_are_told_to_come_back_and_stalled_ones_hold_up_nobody() {
    let cluster = Cluster::new();
    run(async {
        let mut listener = cluster.coordinator(Settings::default());
        let dialer = dialer(cluster.identity(Role::Trainer, "ada"));
        let to = address(&listener);
        let dialled = dialer.dial(&to, &Expected::COORDINATOR, None);
        let (dialled, theirs) = tokio::join!(dialled, connected(&mut listener));
        let owner = dialled.unwrap();
        let mut requests = theirs.requests();
        let asked = async {
            let mut calls = Vec::new();
            for _ in 0..=MAX_OPEN_REQUESTS {
                calls.push(owner.open(&Request::Status(StatusRequest {})).await.unwrap());
            }
            let refused = calls.pop().unwrap().answer::<Done>().await.unwrap_err();
            assert_eq!(refused.refusal(), Some(RefusalCode::Busy), "{refused}");
            assert!(refused.to_string().contains("256 requests"), "{refused}");
            // Every other is still answered.
            for mut call in calls {
                call.answer::<Done>().await.unwrap();
            }
            owner.close(CloseCode::Finished, "");
        };
        let served = async {
            let mut open: Vec<Responder> = Vec::new();
            while open.len() < MAX_OPEN_REQUESTS {
                open.push(requests.next().await.unwrap().1);
            }
            // The one too many is turned away while nothing is answered.
            let next = tokio::time::timeout(Duration::from_millis(50), requests.next()).await;
            assert!(next.is_err(), "{next:?}");
            for responder in open {
                responder.respond(Ok(Done {})).await.unwrap();
            }
            requests.next().await.unwrap_err()
        };
        tokio::join!(asked, served);
    });
}

#[test]
fn bad_frames_are_refused_before_memory_is_taken_for_them() {
    let good = FrameHeader { kind: FrameKind::Step, flags: 0, number: 1, columns: 64, sidecar: 0 };
    let bytes = |change: &dyn Fn(&mut [u8; HEADER_BYTES])| {
        let mut bytes = good.encode();
        change(&mut bytes);
        bytes.to_vec()
    };
    let rows: Vec<(&str, Vec<u8>, CloseCode, &str)> = vec![
        ("an unknown kind", bytes(&|b| b[0] = 99), CloseCode::Malformed, "unknown kind 99"),
        ("unknown flags", bytes(&|b| b[1] = 0x80), CloseCode::Malformed, "unknown flags 0x80"),
        ("reserved bytes", bytes(&|b| b[3] = 1), CloseCode::Malformed, "reserved"),
        ("columns of another session", bytes(&|b| b[9] = 1), CloseCode::TooLong, "at most 64"),
        ("endless columns", bytes(&|b| b[11] = 0xff), CloseCode::TooLong, "268435456"),
        ("an endless sidecar", bytes(&|b| b[15] = 0xff), CloseCode::TooLong, "1048576"),
        ("half a header", good.encode()[..9].to_vec(), CloseCode::Malformed, "in the middle"),
        ("half a frame", good.encode().to_vec(), CloseCode::Malformed, "in the middle"),
    ];
    let cluster = Cluster::new();
    run(async {
        let mut listener = cluster.node("n1", Settings::default());
        let (owner, node) = ours(&cluster, &mut listener).await;
        for (name, bytes, code, part) in rows {
            let (mut ours, mut theirs) = session(&owner, &node, 64).await;
            ours.1.stream().write_all(&bytes).await.unwrap();
            ours.1.stream().finish().unwrap();
            let fault = theirs.0.read().await.unwrap_err();
            assert_eq!(fault.code(), Some(code), "{name}: {fault}");
            assert!(fault.to_string().contains(part), "{name}: {fault}");
        }
        let (mut ours, mut theirs) = session(&owner, &node, 64).await;
        ours.1.stream().give_up(CloseCode::SessionEnded);
        let fault = theirs.0.read().await.unwrap_err();
        assert_eq!(fault, FrameFault::Lost(StreamLost::ByPeer(CloseCode::SessionEnded)));
        assert_eq!(fault.code(), None, "a stream that was given up is no fault of its connection");
    });
}

#[test]
fn frames_arrive_as_they_were_sent_whatever_their_size() {
    let cluster = Cluster::new();
    run(async {
        let mut listener = cluster.node("n1", Settings::default());
        let (owner, node) = ours(&cluster, &mut listener).await;
        let (mut ours, mut theirs) = session(&owner, &node, 1 << 20).await;
        for (number, (columns, sidecar)) in
            [(0, 0), (1, 0), (64 << 10, 3), (256 << 10, 0), ((256 << 10) - 16, 9), (1 << 20, 1 << 20)]
                .into_iter()
                .enumerate()
        {
            let bytes: Vec<u8> = (0..columns).map(|i: usize| (i * 31 + number) as u8).collect();
            let side = vec![number as u8; sidecar];
            let header = FrameHeader {
                kind: FrameKind::Batch,
                flags: 0,
                number: number as u32 + 1,
                columns: columns as u32,
                sidecar: sidecar as u32,
            };
            let (first, second) = bytes.split_at(columns / 3);
            theirs.1.put(header, &[first, second], &side);
            let (read, flushed) = tokio::join!(ours.0.read(), theirs.1.flush());
            flushed.unwrap();
            assert_eq!(read.unwrap(), Some(header));
            assert!(ours.0.columns().bytes() == bytes && ours.0.sidecar() == side, "{columns} {sidecar}");
        }
        theirs.1.stream().finish().unwrap();
        assert_eq!(ours.0.read().await.unwrap(), None, "the stream ended between two frames");
    });
}

#[test]
fn reading_goes_on_where_it_was_dropped() {
    let cluster = Cluster::new();
    run(async {
        let mut listener = cluster.node("n1", Settings::default());
        let (owner, node) = ours(&cluster, &mut listener).await;
        let (mut ours, mut theirs) = session(&owner, &node, 64).await;
        let header = FrameHeader { kind: FrameKind::Batch, flags: 0, number: 1, columns: 8, sidecar: 2 };
        let frame = [&header.encode()[..], &[1, 2, 3, 4, 5, 6, 7, 8], &[9, 9]].concat();
        for byte in frame.chunks(1) {
            theirs.1.stream().write_all(byte).await.unwrap();
            // Most of these are dropped in the middle of the frame.
            tokio::select! {
                biased;
                read = ours.0.read() => {
                    assert_eq!(read.unwrap(), Some(header));
                    assert_eq!(ours.0.columns().bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
                    return;
                }
                () = tokio::task::yield_now() => {}
            }
        }
        assert_eq!(ours.0.read().await.unwrap(), Some(header));
        assert_eq!(ours.0.sidecar(), [9, 9]);
    });
}

#[test]
fn who_says_nothing_after_the_handshake_is_turned_away() {
    let cluster = Cluster::new();
    run(async {
        let settings = Settings { handshake: Duration::from_millis(100), ..Settings::default() };
        let mut listener = cluster.node("n1", settings);
        let to = listener.effective().address;
        let (raw, away) = tokio::join!(Raw::connect(to, None), turned_away(&mut listener));
        assert!(matches!(away.reason, TurnedAwayReason::TooSlow), "{away}");
        raw.connection.closed().await;
    });
}

/// Keeps begun handshakes coming, a hundred at a time, without ever finishing hello.
async fn flood(to: SocketAddr) {
    let endpoint = quinn::Endpoint::client(common::localhost()).unwrap();
    let config = raw::config(None);
    loop {
        let begun: Vec<_> =
            (0..100).map(|_| endpoint.connect_with(config.clone(), to, "rollhouse").unwrap()).collect();
        tokio::task::yield_now().await;
        drop(begun);
    }
}

#[test]
fn a_flood_of_handshakes_leaves_live_sessions_stepping() {
    let cluster = Cluster::new();
    // The flood runs on a thread of its own, as strangers do.
    let (address_of, to) = std::sync::mpsc::sync_channel(1);
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let strangers = std::thread::spawn(move || {
        let to = to.recv().unwrap();
        run(async move {
            tokio::select! {
                () = flood(to) => {}
                _ = ended => {}
            }
        });
    });
    run(async {
        let settings = Settings { max_handshakes: 32, handshakes_per_second: 100, ..Settings::default() };
        let mut listener = cluster.node("n1", settings);
        let (owner, node) = ours(&cluster, &mut listener).await;
        let (mut ours, mut theirs) = session(&owner, &node, 64).await;
        address_of.send(listener.effective().address).unwrap();
        let accept = async {
            loop {
                if let Some(Arrival::Connected(connection)) = listener.accept().await {
                    panic!("a stranger got in: {connection:?}");
                }
                let counts = listener.counts();
                if counts.proof_asked + counts.dropped + counts.full > 2_000 {
                    break listener;
                }
            }
        };
        let step = async {
            let header = |kind, number| FrameHeader { kind, flags: 0, number, columns: 8, sidecar: 0 };
            for number in 1.. {
                ours.1.put(header(FrameKind::Step, number), &[&[1; 8]], &[]);
                ours.1.flush().await.unwrap();
                let asked = theirs.0.read().await.unwrap().unwrap();
                theirs.1.put(header(FrameKind::Batch, asked.number), &[&[2; 8]], &[]);
                theirs.1.flush().await.unwrap();
                assert_eq!(ours.0.read().await.unwrap().unwrap().number, number);
            }
        };
        tokio::pin!(accept);
        // Steps go on until enough strangers have been kept out; had they stopped, this would not end.
        let listener = tokio::select! {
            listener = &mut accept => listener,
            () = step => unreachable!("numbers do not run out"),
        };
        let begun = listener.counts().begun;
        assert!(begun > 0, "some get as far as a handshake");
        assert!(node.lost().is_none() && owner.lost().is_none());
        let _ended = end.send(());
    });
    strangers.join().unwrap();
}

#[test]
fn a_peer_that_goes_away_is_told_from_one_that_refuses() {
    let cluster = Cluster::new();
    run(async {
        let mut listener = cluster.node("n1", Settings::default());
        let (owner, node) = ours(&cluster, &mut listener).await;
        node.close(CloseCode::ShuttingDown, "the node goes away");
        let lost = owner.closed().await;
        assert!(lost.to_string().contains("(shutting_down): the node goes away"), "{lost}");
        let asked = owner.call(StatusRequest {}, SOON).await;
        assert!(matches!(asked, Err(CallError::Lost(StreamLost::Connection(_)))), "{asked:?}");
    });
}
