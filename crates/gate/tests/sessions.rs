//! Sessions over a socket.

use rollhouse_codec::openra::{ActionKind, Command};

use crate::client::{
    ABORTED, Client, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE, settings, skirmish, with_gate,
};

#[test]
fn a_session_plays_to_the_end_of_its_game_and_is_gone_then() {
    with_gate(skirmish(), settings(4), |address| async move {
        let client = Client::connect(address).await;
        let session = client.create().await.unwrap();
        assert_eq!(session.len(), 12);
        // The gate waits until it is made.
        let seen = client.advance(&session, 0, Vec::new()).await.unwrap();
        assert_eq!((seen.tick, seen.actual_ticks_advanced, seen.episode_id), (1, 1, session.clone()));
        assert_eq!(client.phase(&session).await, "playing");
        let surrender = Command { action: ActionKind::Surrender as i32, ..Command::default() };
        let last = client.advance(&session, 50, vec![surrender]).await.unwrap();
        assert!(last.done && last.result == "lose");
        assert_eq!(client.phase(&session).await, "no_bridge");
        assert_eq!(client.advance(&session, 1, Vec::new()).await, Err(ABORTED));
    });
}

#[test]
fn there_are_as_many_sessions_as_are_set_and_a_destroyed_one_gives_its_place_back() {
    with_gate(skirmish(), settings(2), |address| async move {
        let client = Client::connect(address).await;
        let [first, _second] = [client.create().await.unwrap(), client.create().await.unwrap()];
        assert_eq!(client.create().await, Err(RESOURCE_EXHAUSTED));
        client.destroy(&first).await;
        client.destroy(&first).await;
        assert_eq!(client.advance(&first, 1, Vec::new()).await, Err(ABORTED));
        assert!(client.create().await.is_ok());
    });
}

#[test]
fn names_that_nobody_has_are_refused_and_too_many_commands_are() {
    with_gate(skirmish(), settings(2), |address| async move {
        let client = Client::connect(address).await;
        assert_eq!(client.advance("0123456789ab", 1, Vec::new()).await, Err(UNAVAILABLE));
        assert_eq!(client.advance(&"x".repeat(65), 1, Vec::new()).await, Err(INVALID_ARGUMENT));
        let session = client.create().await.unwrap();
        let commands = vec![Command::default(); 17];
        assert_eq!(client.advance(&session, 1, commands.clone()).await, Err(INVALID_ARGUMENT));
        assert_eq!(client.advance(&session, 2, commands).await.unwrap().tick, 2);
    });
}

#[test]
fn the_single_session_is_that_of_calls_without_a_name_and_takes_no_place_of_others() {
    with_gate(skirmish(), settings(1), |address| async move {
        let client = Client::connect(address).await;
        assert_eq!(client.advance("", 3, Vec::new()).await.unwrap().tick, 3);
        assert_eq!(client.phase("").await, "playing");
        assert!(client.create().await.is_ok());
        let surrender = Command { action: ActionKind::Surrender as i32, ..Command::default() };
        assert!(client.advance("", 1, vec![surrender]).await.unwrap().done);
        assert_eq!(client.phase("").await, "game_over");
        assert_eq!(client.advance("", 1, Vec::new()).await, Err(ABORTED));
    });
}
