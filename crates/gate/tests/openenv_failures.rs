//! The server outlives the failures of its envs and of those who speak to it.

use std::time::Duration;

use rollhouse_gate::openenv::OpenenvSettings;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::failing_lanes::{FailingLanes, IS_LOST, PANICS};
use crate::openenv_client::{BINARY, Socket, TEXT, code, get, lanes, post, request, settings, with_server};

const RESET: &str = r#"{"type":"reset"}"#;
const STEP: &str = r#"{"type":"step","data":{"action":0}}"#;

/// Returns a step of Skirmish-v0 that gives no order and advances by so many ticks.
fn advance(template: &Value, ticks: i64) -> String {
    let mut action = template.clone();
    action["ticks"] = ticks.into();
    json!({ "type": "step", "data": { "action": action } }).to_string()
}

/// Returns an action of Skirmish-v0 without orders, as its schema has it.
fn nothing(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("object") => {
            let parts = schema["properties"].as_object().expect("an object has properties");
            parts.iter().map(|(name, part)| (name.clone(), nothing(part))).collect()
        }
        Some("array") => match schema["minItems"].as_u64() {
            None => json!([]),
            Some(items) => {
                let item = |place: usize| match schema["prefixItems"].as_array() {
                    Some(parts) => nothing(&parts[place]),
                    None => nothing(&schema["items"]),
                };
                (0..items as usize).map(item).collect()
            }
        },
        Some("boolean") => false.into(),
        _ => schema["minimum"].clone(),
    }
}

#[test]
fn an_env_that_panics_or_is_lost_costs_its_episode_alone_and_the_next_reset_makes_another() {
    with_server(FailingLanes::make(), settings(2), |address| async move {
        let (_, schema) = get(address, "/schema").await;
        let template = nothing(&schema["action"]["properties"]["action"]);
        let [mut socket, mut other] = [Socket::open(address).await, Socket::open(address).await];
        other.ask(RESET).await;
        for ticks in [PANICS, IS_LOST] {
            socket.ask(RESET).await;
            assert_eq!(socket.ask(&advance(&template, 1)).await["type"], "observation");
            assert_eq!(socket.refused(&advance(&template, ticks)).await, "EXECUTION_ERROR");
            assert_eq!(socket.refused(&advance(&template, 1)).await, "EXECUTION_ERROR");
            assert_eq!(socket.ask(r#"{"type":"state"}"#).await["data"]["done"], true);
        }
        assert_eq!(other.ask(&advance(&template, 5)).await["type"], "observation");
    });
}

#[test]
fn what_is_no_message_is_refused_by_its_code_and_the_next_one_answered() {
    with_server(lanes("CartPole-v1"), settings(1), |address| async move {
        let mut socket = Socket::open(address).await;
        assert_eq!(socket.refused(STEP).await, "EXECUTION_ERROR");
        socket.ask(RESET).await;
        let deep = |text: &str| format!(r#"{{"type":"step","data":{{"action":{text}}}}}"#);
        for (text, wanted) in [
            ("nope".to_owned(), "INVALID_JSON"),
            (format!("{{\"a\":{}", "[".repeat(100_000)), "INVALID_JSON"),
            (deep(&"[".repeat(100_000)), "INVALID_JSON"),
            (deep(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))), "VALIDATION_ERROR"),
            (deep("2"), "VALIDATION_ERROR"),
            (deep("1e999"), "VALIDATION_ERROR"),
            (deep("NaN"), "INVALID_JSON"),
            (r#"{"type":"step"}"#.to_owned(), "VALIDATION_ERROR"),
            (r#"{"type":"fly"}"#.to_owned(), "UNKNOWN_TYPE"),
            ("{}".to_owned(), "UNKNOWN_TYPE"),
        ] {
            assert_eq!(socket.refused(&text).await, wanted, "{}", text.chars().take(60).collect::<String>());
        }
        assert_eq!(socket.ask(STEP).await["data"]["reward"], 1.0);
        socket.frame(BINARY, STEP.as_bytes()).await.unwrap();
        assert_eq!(code(&socket.answer().await), "SESSION_ERROR");
        assert_eq!(socket.closed().await, 1000);
        drop(socket);
        for none in ["[]", &"[".repeat(100_000)] {
            let mut socket = Socket::open(address).await;
            while !socket.is_answered(r#"{"type":"state"}"#, "state").await {
                socket = Socket::open(address).await;
            }
            assert_eq!(socket.refused(none).await, "SESSION_ERROR");
            assert_eq!(socket.closed().await, 1000);
        }
    });
}

#[test]
fn bodies_that_are_none_too_long_or_of_no_route_are_refused() {
    with_server(lanes("CartPole-v1"), settings(1), |address| async move {
        for (path, body, status) in [
            ("/reset", "{", 422),
            ("/reset", r#"{"seed":-1}"#, 422),
            ("/step", "", 422),
            ("/step", "{}", 422),
            ("/step", r#"{"action":3}"#, 422),
            ("/step", r#"{"action":{"action":2}}"#, 422),
            ("/health", "", 405),
            ("/nothing", "", 404),
        ] {
            assert_eq!(post(address, path, body).await.0, status, "{path} {body}");
        }
        let (_, faults) = post(address, "/step", "{}").await;
        assert_eq!(faults["detail"][0]["loc"], json!(["body", "action"]));
        assert_eq!(get(address, "/ws").await.0, 404);
        assert_eq!(get(address, "/mcp").await.0, 405);
        // The head alone says that it is too long.
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head =
            "POST /reset HTTP/1.1\r\nhost: gate\r\nconnection: close\r\ncontent-length: 100000000\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = vec![0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, b"HTTP/1.1 413");
        let long = format!("GET /{} HTTP/1.1", "x".repeat(100_000));
        assert!(matches!(request(address, &long, b"").await.0, 414 | 431));
        assert_eq!(get(address, "/health").await.0, 200);
    });
}

#[test]
fn a_message_of_a_hundred_megabytes_closes_its_socket_before_it_has_come() {
    with_server(lanes("CartPole-v1"), settings(2), |address| async move {
        let [mut socket, mut other] = [Socket::open(address).await, Socket::open(address).await];
        let mut head = vec![0x80 | TEXT, 0x80 | 127];
        head.extend(100_000_000_u64.to_be_bytes());
        head.extend([0; 4]);
        socket.stream.write_all(&head).await.unwrap();
        assert_eq!(socket.closed().await, 1009);
        assert_eq!(other.ask(RESET).await["type"], "observation");
    });
}

#[test]
fn a_socket_too_many_learns_so_and_a_place_is_free_once_another_has_gone() {
    with_server(lanes("CartPole-v1"), settings(2), |address| async move {
        let [mut first, mut second] = [Socket::open(address).await, Socket::open(address).await];
        first.ask(RESET).await;
        second.ask(RESET).await;
        let mut third = Socket::open(address).await;
        let answer = third.answer().await;
        assert_eq!(third.closed().await, 1000);
        assert_eq!(code(&answer), "CAPACITY_REACHED");
        assert_eq!(
            (&answer["data"]["active_sessions"], &answer["data"]["max_sessions"]),
            (&2.into(), &2.into())
        );
        assert_eq!(post(address, "/reset", "{}").await.0, 503);
        drop(second);
        while !Socket::open(address).await.is_answered(RESET, "observation").await {}
        assert_eq!(first.ask(STEP).await["type"], "observation");
    });
}

#[test]
fn clients_that_go_away_in_the_middle_of_a_step_leave_nothing_behind() {
    with_server(lanes("CartPole-v1"), settings(1), |address| async move {
        for _ in 0..20 {
            let mut socket = Socket::open(address).await;
            socket.send(RESET).await;
            socket.send(STEP).await;
            drop(socket);
        }
        while !Socket::open(address).await.is_answered(RESET, "observation").await {}
    });
}

#[test]
fn a_flood_of_messages_is_answered_in_order_by_whoever_takes_the_answers() {
    with_server(lanes("CartPole-v1"), settings(2), |address| async move {
        let [mut flood, mut other] = [Socket::open(address).await, Socket::open(address).await];
        flood.send(RESET).await;
        for _ in 0..500 {
            flood.send(r#"{"type":"state"}"#).await;
        }
        assert_eq!(other.ask(RESET).await["type"], "observation");
        assert_eq!(flood.answer().await["type"], "observation");
        for _ in 0..500 {
            assert_eq!(flood.answer().await["type"], "state");
        }
    });
}

#[test]
fn a_socket_that_says_nothing_is_ended_and_strangers_are() {
    let settings = OpenenvSettings { sessions: 1, idle: Duration::from_millis(50) };
    with_server(lanes("CartPole-v1"), settings, |address| async move {
        let mut socket = Socket::open(address).await;
        let (mut kind, mut bytes) = socket.read().await.unwrap();
        while kind != TEXT {
            (kind, bytes) = socket.read().await.unwrap();
        }
        assert_eq!(code(&serde_json::from_slice(&bytes).unwrap()), "SESSION_ERROR");
        assert_eq!(socket.closed().await, 1000);
        for garbage in [
            &b"\x16\x03\x01\x02\x00"[..],
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET / HTTP/1.1\r\n\xff\r\n\r\n",
        ] {
            let mut stranger = TcpStream::connect(address).await.unwrap();
            stranger.write_all(garbage).await.unwrap();
            stranger.shutdown().await.unwrap();
            let mut answer = Vec::new();
            let _ended = stranger.read_to_end(&mut answer).await;
        }
        let mut socket = Socket::open(address).await;
        // Frames of clients are masked.
        socket.stream.write_all(&[0x81, 1, b'x']).await.unwrap();
        assert!(matches!(socket.closed().await, 1002 | 0));
        assert_eq!(get(address, "/health").await.0, 200);
    });
}
