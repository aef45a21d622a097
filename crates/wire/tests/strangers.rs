//! What strangers can cost: bytes, streams and places, and whom they keep out.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests outside of test functions")]

use crate::common;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use common::raw::Raw;
use common::{Cluster, address, connected, dialer, run, turned_away};
use rollhouse_core::{Claimant, ShareBook, SharedBound, messages};
use rollhouse_wire::limits::{MAX_CONTROL_BYTES, MAX_STRANGER_BYTES, MAX_STRANGER_STREAMS};
use rollhouse_wire::{
    Arrival, Attach, Attached, CloseCode, DialError, Dialer, Expected, Incarnation, NewToken, RefusalCode,
    Request, RequestShares, Role, Secret, Settings, TurnedAwayReason, Versions, control,
};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

/// What a future has to say without anything else happening.
fn at_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[derive(Serialize, Deserialize)]
struct PaddedHello {
    r#type: String,
    versions: Versions,
    program: String,
    padding: String,
}

messages!(PaddedHello);

/// A hello of so many bytes, its length word not counted, most of them in a field that this version does not know.
fn hello_of(bytes: usize) -> Vec<u8> {
    let filled = |padding: usize| {
        let mut hello = Vec::new();
        let (r#type, program) = ("hello".to_owned(), "raw/test".to_owned());
        let fields = PaddedHello { r#type, versions: Versions::OURS, program, padding: "x".repeat(padding) };
        control::encode(&fields, &mut hello).unwrap();
        hello
    };
    // Longer padding has the longest length word.
    let overhead = filled(1 << 10).len() - (1 << 10);
    filled(bytes + 4 - overhead)
}

/// Symptom: a stranger's hello of 1 MiB was read and decoded, 79 ms of the thread that serves everybody. Cause: hello had
/// the bound of every control message. Fix: nobody who is not known sends more than 4 KiB.
#[test]
fn a_hello_of_more_than_a_few_kilobytes_is_refused_by_its_length() {
    let cluster = Cluster::new();
    run(async {
        let mut listener = cluster.node("n1", Settings::default());
        let to = listener.effective().address;
        let (raw, away) = tokio::join!(
            async {
                let raw = Raw::connect(to, None).await;
                let _answer = raw.say(&hello_of(MAX_STRANGER_BYTES + 1)).await;
                raw.closed().await
            },
            turned_away(&mut listener)
        );
        assert_eq!(raw.0, CloseCode::TooLong, "{}", raw.1);
        assert!(raw.1.contains("4097 bytes, at most 4096"), "{}", raw.1);
        assert!(matches!(away.reason, TurnedAwayReason::Malformed(_)), "{away}");
        let (_raw, connection) = tokio::join!(
            async {
                let raw = Raw::connect(to, None).await;
                raw.say(&hello_of(MAX_STRANGER_BYTES)).await.read_to_end(1 << 10).await.unwrap();
                raw
            },
            connected(&mut listener)
        );
        assert!(!connection.is_known(), "a node takes everybody for anonymous");
    });
}

/// Symptom: each stranger could have 64 MiB on the way and cost a node 280 kB at rest, before showing anything. Cause:
/// every connection began with the windows and streams of a session's owner. Fix: it begins with a stranger's, and gets
/// the others when its peer shows who it is, or a session's secret.
#[test]
fn a_stranger_has_few_streams_and_bytes_until_he_shows_a_sessions_secret() {
    let cluster = Cluster::new();
    run(async {
        let mut listener = cluster.node("n1", Settings::default());
        let to = listener.effective().address;
        let (raw, node) = tokio::join!(
            async {
                let raw = Raw::connect(to, None).await;
                raw.hello(Versions::OURS).await;
                raw
            },
            connected(&mut listener)
        );
        let mut requests = node.requests();
        let attach = Attach {
            pool: rollhouse_core::RunId::from_u128(7),
            index: 0,
            incarnation: Incarnation { term: 1, counter: 1 },
            secret: Secret::from_bytes([7; 16]),
            log: false,
        };
        let mut request = Vec::new();
        control::encode(&Request::Attach(attach), &mut request).unwrap();
        let (mut owner, mut answer) = raw.connection.open_bi().await.unwrap();
        owner.write_all(&request).await.unwrap();
        let mut strange = Vec::new();
        while let Poll::Ready(opened) = at_once(raw.connection.open_bi()) {
            strange.push(opened.unwrap());
        }
        assert!(strange.len() < MAX_STRANGER_STREAMS, "{}", strange.len());
        let bytes = vec![0; 1 << 20];
        let mut sent = 0;
        for (stream, _) in &mut strange {
            while let Poll::Ready(written) = at_once(stream.write(&bytes)) {
                sent += written.unwrap();
            }
        }
        assert!(sent <= MAX_STRANGER_BYTES * MAX_STRANGER_STREAMS, "{sent}");
        for (stream, _) in &mut strange {
            stream.reset(0u32.into()).unwrap();
        }

        let (asked, responder) = requests.next().await.unwrap();
        assert!(matches!(asked, Request::Attach(_)), "{}", asked.word());
        let attached =
            Attached { lanes: 1, last: 0, logs: false, as_done: false, plays: false, paced: false };
        let shares = ShareBook::new(SharedBound::CONNECTIONS);
        let admitted = node.admit(&shares, Claimant::owner("ada")).unwrap();
        let _session = responder.accept_frames(attached, 1 << 20).await.unwrap();
        assert!(node.is_known());
        let mut told = [0; 8];
        answer.read_exact(&mut told).await.unwrap();
        // Far more than a stranger's.
        for _ in 0..64 {
            strange.push(raw.connection.open_bi().await.unwrap());
        }
        owner.write_all(&bytes).await.unwrap();
        // Symptom: who had once been let in had an owner's bounds for the connection's life, and so had 8,192
        // connections of a viewer. Fix: it is known for as long as it steps or watches something.
        drop(admitted);
        assert!(!node.is_known());
        assert_eq!((node.admissions(), shares.total()), (1, 0));
    });
}

/// Symptom: requests of 1 MiB that were sent but for their last byte were in a coordinator's memory, 256 of them a
/// connection. Cause: they were counted and not weighed. Fix: the bytes of long requests have shares by owner.
#[test]
fn one_who_sends_long_requests_without_end_has_its_share_of_memory() {
    let cluster = Cluster::new();
    run(async {
        let mut listener = cluster.node("n1", Settings::default());
        let to = listener.effective().address;
        let (raw, node) = tokio::join!(
            async {
                let raw = Raw::connect(to, None).await;
                raw.hello(Versions::OURS).await;
                raw
            },
            connected(&mut listener)
        );
        let connections = ShareBook::new(SharedBound::CONNECTIONS);
        let _known = node.admit(&connections, Claimant::owner("eve")).unwrap();
        let mut requests = node.requests().sharing(RequestShares::default());
        let bound = SharedBound::REQUEST_BYTES;
        let share = (bound.limit - bound.reserve).div_ceil(2) as usize / MAX_CONTROL_BYTES;
        let refused = async {
            let (mut answers, mut sending) = (JoinSet::new(), Vec::new());
            for _ in 0..=share {
                let (mut send, mut answer) = raw.connection.open_bi().await.unwrap();
                send.write_all(&u32::try_from(MAX_CONTROL_BYTES).unwrap().to_le_bytes()).await.unwrap();
                sending.push(send);
                answers.spawn(async move { answer.read_to_end(1 << 10).await });
            }
            answers.join_next().await.unwrap().unwrap().unwrap()
        };
        let answer = tokio::select! {
            answer = refused => answer,
            _ = requests.next() => panic!("none is whole"),
        };
        let text = String::from_utf8_lossy(&answer);
        assert!(text.contains("bytes of long requests under way at a coordinator"), "{text}");
    });
}

/// Symptom: one viewer's token held all 8,192 connections of a coordinator, and nodes, trainers and admins were kept out.
/// Cause: connections were counted without regard to whose they are. Fix: shares by owner, and a reserve.
#[test]
fn a_token_with_all_connections_that_it_may_have_leaves_some_to_others_and_to_nodes_and_admins() {
    let cluster = Cluster::new();
    let tokens = cluster.tokens();
    let token = |name: &str| {
        let new = NewToken {
            name: name.into(),
            role: Role::Viewer,
            max_lanes: None,
            reads: None,
            lifetime: None,
            join: None,
        };
        tokens.create(&new, SystemTime::now()).unwrap().1
    };
    let (eve, ada) = (token("eve"), token("ada"));
    run(async {
        let shares = SharedBound { limit: 8, reserve: 2, ..SharedBound::CONNECTIONS };
        let mut listener = cluster.coordinator(Settings { shares, ..Settings::default() });
        let name = address(&listener);
        let (nobody, node) = (dialer(cluster.nobody()), dialer(cluster.identity(Role::Node, "n1")));
        let admin = dialer(cluster.identity(Role::Admin, "root"));
        let mut dial = async |dialer: &Dialer, token: Option<&str>| {
            let expected = Expected::COORDINATOR;
            let dialled = dialer.dial(&name, &expected, token);
            tokio::join!(dialled, listener.accept())
        };
        let mut eves = Vec::new();
        let refused = loop {
            match dial(&nobody, Some(&eve)).await {
                (Ok(connection), Some(arrival)) => eves.push((connection, arrival)),
                (Err(DialError::Refused(refusal)), _) => break refusal,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((eves.len(), refused.code), (3, RefusalCode::Busy), "{refused}");
        assert!(refused.message.contains("has 3 connections"), "{refused}");
        let mut others = Vec::new();
        for (dialer, token) in [(&nobody, Some(ada.as_str())), (&node, None), (&admin, None)] {
            let (connection, arrival) = dial(dialer, token).await;
            others.push((connection.expect("others find room"), arrival));
        }
        drop(eves.pop());
        let (again, _arrival) = dial(&nobody, Some(&eve)).await;
        again.expect("a connection that has ended is given back");
    });
}

/// Symptom: one process that opened connections and said no hello made 16 of 30 calls of others fail. Cause: it held all
/// places for handshakes, each for 5 s, and others were refused. Fix: who comes when the places are taken takes that of
/// the oldest handshake of his address, or of the address that has most.
#[test]
fn strangers_who_never_say_hello_keep_nobody_out() {
    let cluster = Cluster::new();
    run(async {
        // None of them is turned away by itself.
        let settings =
            Settings { max_handshakes: 8, handshake: Duration::from_secs(3600), ..Settings::default() };
        let mut listener = cluster.node("n1", settings);
        let to = listener.effective().address;
        let (name, dialer) = (address(&listener), dialer(cluster.nobody()));
        let mut silent = Vec::new();
        for _ in 0..30 {
            let next = async {
                let raw = Raw::connect(to, None).await;
                let admitted = dialer.dial(&name, &Expected::node("n1"), None).await;
                (raw, admitted.expect("who says hello is admitted"))
            };
            tokio::pin!(next);
            loop {
                tokio::select! {
                    (raw, _admitted) = &mut next => {
                        silent.push(raw);
                        break;
                    }
                    arrival = listener.accept() => {
                        assert!(matches!(arrival, Some(Arrival::Connected(_))), "{arrival:?}");
                    }
                }
            }
        }
        let counts = listener.counts();
        assert_eq!((counts.connected, counts.full, counts.dropped), (30, 0, 0), "{counts:?}");
        assert!(counts.turned_away["given_up"] >= 28, "two places are one address's share: {counts:?}");
    });
}
