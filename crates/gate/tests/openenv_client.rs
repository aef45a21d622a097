//! A client of OpenEnv's protocol: HTTP/1 and WebSocket written out byte by byte, and nothing of the server's own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_env::Registry;
use rollhouse_gate::openenv::OpenenvSettings;
use rollhouse_gate::{EmbeddedLanes, Gate, Lanes};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Kinds of frames.
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;

/// Settings of a server of so many sessions.
pub(crate) fn settings(sessions: usize) -> OpenenvSettings {
    OpenenvSettings { sessions, idle: Duration::from_secs(3600) }
}

/// Lanes of a built-in env.
pub(crate) fn lanes(env: &str) -> Arc<dyn Lanes> {
    let entry = Registry::builtin().get(env).expect("it is built in");
    Arc::new(EmbeddedLanes::new(entry, Vec::new(), None).expect("no options are given"))
}

/// Runs a test against a server with those lanes, which has to end in order.
pub(crate) fn with_server<F: Future<Output = ()>>(
    lanes: Arc<dyn Lanes>,
    settings: OpenenvSettings,
    test: impl FnOnce(SocketAddr) -> F,
) {
    let gate = Gate::openenv("127.0.0.1:0".parse().expect("an address"), None, lanes, settings);
    let gate = gate.expect("a port is free");
    run(test(gate.address()));
    assert!(gate.is_serving());
    gate.stop();
}

pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

/// A socket of a client.
pub(crate) struct Socket {
    pub(crate) stream: TcpStream,
}

impl Socket {
    /// Opens a socket at `/ws`.
    pub(crate) async fn open(address: SocketAddr) -> Self {
        Self::at(address, "/ws").await
    }

    pub(crate) async fn at(address: SocketAddr, path: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.expect("the gate listens");
        stream.set_nodelay(true).expect("a socket");
        let asked = format!(
            "GET {path} HTTP/1.1\r\nhost: gate\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(asked.as_bytes()).await.expect("it is sent");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("an answer"));
        }
        let head = String::from_utf8(head).expect("text");
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        Self { stream }
    }

    /// Sends a frame whose bytes are masked with zeros.
    pub(crate) async fn frame(&mut self, kind: u8, bytes: &[u8]) -> std::io::Result<()> {
        let mut frame = vec![0x80 | kind];
        match bytes.len() {
            length @ 0..126 => frame.push(0x80 | length as u8),
            length @ 126..65536 => {
                frame.push(0x80 | 126);
                frame.extend((length as u16).to_be_bytes());
            }
            length => {
                frame.push(0x80 | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(bytes);
        self.stream.write_all(&frame).await
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.frame(TEXT, text.as_bytes()).await.expect("it is sent");
    }

    /// Returns the next frame; `None` if the stream has ended.
    pub(crate) async fn read(&mut self) -> Option<(u8, Vec<u8>)> {
        let kind = self.stream.read_u8().await.ok()?;
        assert_eq!(kind & 0xf0, 0x80, "the whole message is in one frame");
        let length = match self.stream.read_u8().await.ok()? {
            126 => self.stream.read_u16().await.ok()?.into(),
            127 => self.stream.read_u64().await.ok()?,
            length => length.into(),
        };
        let mut bytes = vec![0; length as usize];
        self.stream.read_exact(&mut bytes).await.ok()?;
        Some((kind & 0xf, bytes))
    }

    /// Returns the next answer.
    pub(crate) async fn answer(&mut self) -> Value {
        let (kind, bytes) = self.read().await.expect("an answer");
        assert_eq!(kind, TEXT, "{bytes:?}");
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// Sends a message and returns its answer.
    pub(crate) async fn ask(&mut self, text: &str) -> Value {
        self.send(text).await;
        self.answer().await
    }

    /// Sends a message and returns whether it is answered with that type; a socket that was refused is not.
    pub(crate) async fn is_answered(&mut self, text: &str, wanted: &str) -> bool {
        if self.frame(TEXT, text.as_bytes()).await.is_err() {
            return false;
        }
        let Some((TEXT, bytes)) = self.read().await else { return false };
        let answer: Value = serde_json::from_slice(&bytes).expect("JSON");
        answer["type"] == wanted
    }

    /// Sends a message and returns the code of the error.
    pub(crate) async fn refused(&mut self, text: &str) -> String {
        code(&self.ask(text).await)
    }

    /// Returns the code with which the server closes the socket; 0 if it is cut off.
    pub(crate) async fn closed(&mut self) -> u16 {
        match self.read().await {
            Some((CLOSE, bytes)) => u16::from_be_bytes([bytes[0], bytes[1]]),
            Some(other) => panic!("it goes on with {other:?}"),
            None => 0,
        }
    }
}

/// Returns the code of an error.
pub(crate) fn code(answer: &Value) -> String {
    assert_eq!(answer["type"], "error", "{answer}");
    answer["data"]["code"].as_str().expect("a code").to_owned()
}

/// Sends a request and returns status and body of its answer.
pub(crate) async fn request(address: SocketAddr, head: &str, body: &[u8]) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).await.expect("the gate listens");
    let length = body.len();
    let asked = format!("{head}\r\nhost: gate\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(asked.as_bytes()).await.expect("it is sent");
    // A server that has refused need not take the rest.
    let _sent = stream.write_all(body).await;
    let mut answer = Vec::new();
    let _read = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).expect("text");
    let status = answer.get(9..12).and_then(|status| status.parse().ok()).expect("a status");
    let body = answer.split_once("\r\n\r\n").expect("a head").1;
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> (u16, Value) {
    request(address, &format!("GET {path} HTTP/1.1"), b"").await
}

pub(crate) async fn post(address: SocketAddr, path: &str, body: &str) -> (u16, Value) {
    request(address, &format!("POST {path} HTTP/1.1"), body.as_bytes()).await
}
