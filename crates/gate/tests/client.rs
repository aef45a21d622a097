//! A client of a gate: a call is a stream of HTTP/2, its answer a message and a code.

use std::net::SocketAddr;
use std::sync::Arc;

use h2::client::SendRequest;
use http::{HeaderMap, Request};
use rollhouse_codec::openra::{
    Command, CreateSessionRequest, CreateSessionResponse, DestroySessionRequest, FastAdvanceRequest,
    GameObservation, GameState, Message, SERVICE, StateRequest,
};
use rollhouse_env::Registry;
use rollhouse_gate::openra::BridgeSettings;
use rollhouse_gate::{EmbeddedLanes, Gate, Lanes};
use tokio::net::TcpStream;

pub(crate) const OK: i32 = 0;
pub(crate) const INVALID_ARGUMENT: i32 = 3;
pub(crate) const NOT_FOUND: i32 = 5;
pub(crate) const RESOURCE_EXHAUSTED: i32 = 8;
pub(crate) const ABORTED: i32 = 10;
pub(crate) const UNIMPLEMENTED: i32 = 12;
pub(crate) const INTERNAL: i32 = 13;
pub(crate) const UNAVAILABLE: i32 = 14;

/// Settings of a gate of so many sessions.
pub(crate) fn settings(sessions: usize) -> BridgeSettings {
    BridgeSettings { sessions, ticks_per_second: 500.0, any_map: false, seed: Some(7) }
}

/// Lanes of Skirmish-v0.
pub(crate) fn skirmish() -> Arc<dyn Lanes> {
    let entry = Registry::builtin().get("Skirmish-v0").expect("it is built in");
    Arc::new(EmbeddedLanes::new(entry, Vec::new(), None).expect("no options are given"))
}

/// Runs a test against a gate with those lanes.
pub(crate) fn with_gate<F: Future<Output = ()>>(
    lanes: Arc<dyn Lanes>,
    settings: BridgeSettings,
    test: impl FnOnce(SocketAddr) -> F,
) {
    let gate = Gate::openra("127.0.0.1:0".parse().expect("an address"), None, lanes, settings);
    let gate = gate.expect("a port is free");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test(gate.address()));
    assert!(gate.is_serving());
    gate.stop();
}

/// A connection to a gate.
#[derive(Clone)]
pub(crate) struct Client(SendRequest<Bytes>);

type Bytes = std::io::Cursor<Vec<u8>>;

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("the gate listens");
        stream.set_nodelay(true).expect("a socket");
        let (requests, connection) = h2::client::Builder::new().handshake(stream).await.expect("HTTP/2");
        tokio::spawn(connection);
        Self(requests)
    }

    /// Sends bytes as the message of a call, and returns those of the answer, or the code.
    pub(crate) async fn raw(&self, call: &str, message: &[u8]) -> Result<Vec<u8>, i32> {
        let uri = format!("http://gate/{SERVICE}/{call}");
        let request = Request::post(uri).header("content-type", "application/grpc").header("te", "trailers");
        let mut requests = self.0.clone().ready().await.expect("the connection lives");
        let (answer, mut body) =
            requests.send_request(request.body(()).expect("a request"), false).expect("a stream");
        let mut framed = vec![0];
        framed.extend((message.len() as u32).to_be_bytes());
        framed.extend(message);
        body.send_data(Bytes::new(framed), true).expect("a body");
        let (head, mut body) = answer.await.expect("an answer").into_parts();
        let code = |headers: &HeaderMap| headers.get("grpc-status")?.to_str().ok()?.parse::<i32>().ok();
        if let Some(code) = code(&head.headers) {
            return Err(code);
        }
        let mut bytes = Vec::new();
        while let Some(data) = body.data().await {
            let data = data.expect("data");
            body.flow_control().release_capacity(data.len()).expect("capacity");
            bytes.extend_from_slice(&data);
        }
        let trailers = body.trailers().await.expect("trailers").expect("trailers");
        match code(&trailers) {
            Some(OK) => Ok(bytes.split_off(5)),
            other => Err(other.expect("a code")),
        }
    }

    pub(crate) async fn create(&self) -> Result<String, i32> {
        let bots = "Multi1:rl-agent,Multi0:beginner".to_owned();
        let request = CreateSessionRequest { bots, seed: 1, map_name: String::new() };
        let answer = self.raw("CreateSession", &request.encode_to_vec()).await?;
        Ok(CreateSessionResponse::decode(&answer[..]).expect("an answer").session_id)
    }

    pub(crate) async fn phase(&self, session_id: &str) -> String {
        let request = StateRequest { session_id: session_id.to_owned() };
        let answer = self.raw("GetState", &request.encode_to_vec()).await.expect("it never fails");
        GameState::decode(&answer[..]).expect("a state").phase
    }

    /// Advances; a session that is still made is waited for by the gate.
    pub(crate) async fn advance(
        &self,
        session_id: &str,
        ticks: i32,
        commands: Vec<Command>,
    ) -> Result<GameObservation, i32> {
        let session_id = session_id.to_owned();
        let request = FastAdvanceRequest { ticks, commands, session_id, ..FastAdvanceRequest::default() };
        let answer = self.raw("FastAdvance", &request.encode_to_vec()).await?;
        Ok(GameObservation::decode(&answer[..]).expect("an observation"))
    }

    pub(crate) async fn destroy(&self, session_id: &str) {
        let request = DestroySessionRequest { session_id: session_id.to_owned() };
        self.raw("DestroySession", &request.encode_to_vec()).await.expect("it never fails");
    }
}
