//! The gate outlives the failures of its sessions and of those who call it.

use rollhouse_codec::openra::{CreateSessionRequest, Message};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::client::{
    ABORTED, Client, INTERNAL, INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED, settings, skirmish, with_gate,
};
use crate::failing_lanes::{FailingLanes, IS_LOST, PANICS};

#[test]
fn a_world_that_panics_or_is_lost_costs_its_session_alone() {
    with_gate(FailingLanes::make(), settings(4), |address| async move {
        let client = Client::connect(address).await;
        let other = client.create().await.unwrap();
        for ticks in [PANICS, IS_LOST] {
            let session = client.create().await.unwrap();
            assert_eq!(client.advance(&session, 1, Vec::new()).await.unwrap().tick, 1);
            assert_eq!(client.advance(&session, ticks as i32, Vec::new()).await, Err(INTERNAL));
            assert_eq!(client.advance(&session, 1, Vec::new()).await, Err(ABORTED));
            assert_eq!(client.phase(&session).await, "no_bridge");
        }
        assert_eq!(client.advance(&other, 5, Vec::new()).await.unwrap().tick, 5);
    });
}

#[test]
fn a_world_that_panics_as_it_is_made_is_a_session_that_never_plays() {
    with_gate(FailingLanes::make(), settings(1), |address| async move {
        let client = Client::connect(address).await;
        let bots = "Multi1:rl-agent,Multi0:hard".to_owned();
        let request = CreateSessionRequest { bots, ..CreateSessionRequest::default() };
        for _ in 0..3 {
            // One place is enough: what was not made takes none.
            let answer = client.raw("CreateSession", &request.encode_to_vec()).await.unwrap();
            let name = String::from_utf8(answer[2..].to_vec()).unwrap();
            assert_eq!(client.advance(&name, 1, Vec::new()).await, Err(NOT_FOUND));
        }
        let session = client.create().await.unwrap();
        assert_eq!(client.advance(&session, 1, Vec::new()).await.unwrap().tick, 1);
    });
}

#[test]
fn what_is_no_message_no_call_and_no_protocol_is_refused_and_the_next_call_answered() {
    with_gate(skirmish(), settings(4), |address| async move {
        let client = Client::connect(address).await;
        let session = client.create().await.unwrap();
        for garbage in [&[0xff; 9][..], &[0x0a, 5, b'a'], &[0x1a, 2, 0xff, 0xfe]] {
            assert_eq!(client.raw("FastAdvance", garbage).await, Err(INVALID_ARGUMENT));
        }
        assert_eq!(client.raw("FastAdvance", &[0x12, 0].repeat(1 << 20)).await, Err(INVALID_ARGUMENT));
        assert_eq!(client.raw("NoSuchCall", &[]).await, Err(UNIMPLEMENTED));
        for garbage in
            [&b""[..], b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff"]
        {
            let mut stranger = TcpStream::connect(address).await.unwrap();
            stranger.write_all(garbage).await.unwrap();
        }
        assert_eq!(client.advance(&session, 1, Vec::new()).await.unwrap().tick, 1);
    });
}

#[test]
fn a_call_whose_client_is_gone_ends_all_the_same_and_frees_its_session() {
    with_gate(skirmish(), settings(4), |address| async move {
        let client = Client::connect(address).await;
        let session = client.create().await.unwrap();
        client.advance(&session, 1, Vec::new()).await.unwrap();
        for _ in 0..20 {
            let gone = Client::connect(address).await;
            // Polled once: it is sent, and nobody waits for its answer.
            let mut call = Box::pin(gone.advance(&session, 10, Vec::new()));
            let once = std::future::poll_fn(|context| {
                let _begun = call.as_mut().poll(context);
                std::task::Poll::Ready(())
            });
            once.await;
        }
        let mut answered = client.advance(&session, 1, Vec::new()).await;
        while answered == Err(crate::client::RESOURCE_EXHAUSTED) {
            answered = client.advance(&session, 1, Vec::new()).await;
        }
        assert!(answered.unwrap().tick >= 2);
    });
}
