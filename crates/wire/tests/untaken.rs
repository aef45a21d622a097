//! Answers that their asker does not take: for how long they stay, and how many bytes of them.

use std::time::Duration;

use crate::common::{Cluster, address, connected, run};
use rollhouse_core::messages;
use rollhouse_wire::limits::{MAX_CONTROL_BYTES, MAX_UNTAKEN_BYTES};
use rollhouse_wire::{
    CallError, Connection, Dialer, Done, Expected, Listener, RefusalCode, Request, Role, Settings,
    StatusRequest, StreamLost,
};
use serde::{Deserialize, Serialize};

/// An answer of any length.
#[derive(Debug, Serialize, Deserialize)]
struct Long {
    text: String,
}

messages!(Long);

impl Long {
    fn of(bytes: usize) -> Self {
        Self { text: "x".repeat(bytes) }
    }
}

/// A coordinator, its side of a connection, and that of a client that takes only a few bytes of each answer by itself.
async fn apart(cluster: &Cluster, answer_stall: Duration) -> (Listener, Connection, Connection) {
    let mut listener = cluster.coordinator(Settings { answer_stall, ..Settings::default() });
    let narrow = Settings { stream_window: 16 << 10, ..Settings::default() };
    let dialer = Dialer::new(cluster.identity(Role::Admin, "ada"), narrow, "client/test");
    let to = address(&listener);
    let dialled = dialer.dial(&to, &Expected::COORDINATOR, None);
    let (theirs, ours) = tokio::join!(dialled, connected(&mut listener));
    (listener, ours, theirs.unwrap())
}

/// Symptom: answers that nobody took stayed in a coordinator's memory for the connection's life, 115 MB of each of them.
/// Cause: only two kinds of answers had a deadline. Fix: each has, whoever sends it.
#[test]
fn an_answer_that_nobody_takes_is_given_up_after_its_time() {
    let cluster = Cluster::new();
    run(async {
        let (_listener, ours, theirs) = apart(&cluster, Duration::from_millis(100)).await;
        let mut requests = ours.requests();
        for accepted in [false, true] {
            let mut call = theirs.open(&Request::Status(StatusRequest {})).await.unwrap();
            let (_, responder) = requests.next().await.unwrap();
            let lost = if accepted {
                let (_asker, mut send) = responder.accept(Done {}).await.unwrap();
                send.write_all(&[7; 100_000]).await
            } else {
                responder.respond(Ok(Long::of(100_000))).await
            };
            assert_eq!(lost, Err(StreamLost::TooSlow));
            let answer = async {
                loop {
                    call.receive.read_exact(&mut [0; 100]).await?;
                }
            };
            let read: Result<(), StreamLost> = answer.await;
            assert!(matches!(read, Err(StreamLost::ByPeer(code)) if code.word() == "too_slow"), "{read:?}");
        }
    });
}

/// Symptom, cause: as above, and nothing bounded the bytes of answers on one connection. Fix: there is room for so many,
/// and what has none is refused as busy.
#[test]
fn answers_beyond_the_bytes_of_a_connection_are_refused_until_the_others_are_taken() {
    let cluster = Cluster::new();
    run(async {
        let (_listener, ours, theirs) = apart(&cluster, Duration::from_secs(3600)).await;
        let mut requests = ours.requests();
        let long = || Ok(Long::of(MAX_CONTROL_BYTES - 100));
        let mut calls = Vec::new();
        let mut answering = tokio::task::JoinSet::new();
        for _ in 0..MAX_UNTAKEN_BYTES / MAX_CONTROL_BYTES {
            calls.push(theirs.open(&Request::Status(StatusRequest {})).await.unwrap());
            let (_, responder) = requests.next().await.unwrap();
            answering.spawn(responder.respond(long()));
        }
        // Each begins to be sent.
        tokio::task::yield_now().await;
        let mut refused = theirs.open(&Request::Status(StatusRequest {})).await.unwrap();
        let (_, responder) = requests.next().await.unwrap();
        responder.respond(long()).await.unwrap();
        let refusal = refused.answer::<Long>().await;
        assert_eq!(
            refusal.as_ref().err().and_then(CallError::refusal),
            Some(RefusalCode::Busy),
            "{refusal:?}"
        );
        for mut call in calls {
            assert_eq!(call.answer::<Long>().await.unwrap().text.len(), MAX_CONTROL_BYTES - 100);
        }
        while let Some(sent) = answering.join_next().await {
            assert_eq!(sent.unwrap(), Ok(()));
        }
        let mut again = theirs.open(&Request::Status(StatusRequest {})).await.unwrap();
        let (_, responder) = requests.next().await.unwrap();
        answering.spawn(responder.respond(long()));
        again.answer::<Long>().await.unwrap();
    });
}
