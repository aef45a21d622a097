//! The connection to an engine: HTTP/2 without TLS and without asking first, and gRPC over it.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use http::Uri;
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rollhouse_codec::openra::{Message, Readable, SERVICE, decode};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Request, Status};
use tower_service::Service;

use super::call::{Answer, Code, Rpc};

/// A connection. Clones are the same.
#[derive(Clone)]
pub(crate) struct Connection {
    sender: SendRequest<Body>,
    origin: Uri,
    /// Most bytes of an observation.
    most_bytes: usize,
}

/// Reason for which a call has no answer.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The engine refused it, or what it answered is no such answer.
    Refused(Code, String),
    /// The answer was cut off: mostly with the connection.
    CutOff(String),
}

/// What turns a connection, and returns why it has ended.
pub(crate) type Turning = Pin<Box<dyn Future<Output = String> + Send>>;

/// Time within which an engine is connected to.
const DIAL_WITHIN: Duration = Duration::from_secs(5);
/// An engine that says nothing for so long is asked whether it is there, and has this time to answer.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_WITHIN: Duration = Duration::from_secs(5);
/// Maximum number of bytes of an answer's headers.
const MAX_HEADER_BYTES: u32 = 16 << 10;
/// Maximum number of bytes of an answer that is no observation.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Connects to an engine, `HOST:PORT`. The future that is returned turns the connection and has to be run.
pub(crate) async fn dial(engine: &str, most_bytes: usize) -> Result<(Connection, Turning), String> {
    let origin = format!("http://{engine}").parse::<Uri>().map_err(|error| error.to_string())?;
    let stream = timeout(DIAL_WITHIN, TcpStream::connect(engine)).await;
    let stream = stream.map_err(|_| format!("no connection within {} s", DIAL_WITHIN.as_secs()))?;
    let stream = stream.map_err(|error| error.to_string())?;
    // Requests are small, and waited for.
    let _set = stream.set_nodelay(true);
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_WITHIN)
        .keep_alive_while_idle(true)
        .max_header_list_size(MAX_HEADER_BYTES);
    let handshake = timeout(DIAL_WITHIN, builder.handshake(TokioIo::new(stream))).await;
    let handshake = handshake.map_err(|_| "no handshake in time".to_owned())?;
    let (sender, connection) = handshake.map_err(|error| error.to_string())?;
    let turning = async move {
        match connection.await {
            Ok(()) => "it closed the connection".to_owned(),
            Err(error) => error.to_string(),
        }
    };
    Ok((Connection { sender, origin, most_bytes }, Box::pin(turning)))
}

impl Connection {
    /// Makes a call and waits for its answer; there is no deadline here.
    pub(crate) async fn call(self, rpc: Rpc) -> Result<Answer, Failed> {
        let name = rpc.name();
        match rpc {
            Rpc::Create(asked) => self.unary(name, &asked, MAX_ANSWER_BYTES).await.map(
                |answer: rollhouse_codec::openra::CreateSessionResponse| Answer::Created(answer.session_id),
            ),
            Rpc::State(asked) => self.unary(name, &asked, MAX_ANSWER_BYTES).await.map(Answer::State),
            Rpc::Advance(asked) => {
                let most_bytes = self.most_bytes;
                let answer = self.unary(name, &asked, most_bytes).await;
                answer.map(|observation| Answer::Observation(Box::new(observation)))
            }
            Rpc::Destroy(asked) => self
                .unary(name, &asked, MAX_ANSWER_BYTES)
                .await
                .map(|_: rollhouse_codec::openra::DestroySessionResponse| Answer::Destroyed),
        }
    }

    async fn unary<M: Readable + Send + Sync + 'static>(
        self,
        name: &str,
        asked: &impl Message,
        most_bytes: usize,
    ) -> Result<M, Failed> {
        let path = PathAndQuery::try_from(format!("/{SERVICE}/{name}"));
        let path = path.map_err(|error| Failed::Refused(Code::Other, error.to_string()))?;
        let message = Bytes::from(asked.encode_to_vec());
        let mut grpc =
            Grpc::with_origin(Sender(self.sender), self.origin).max_decoding_message_size(most_bytes);
        let ready = grpc.ready().await;
        ready.map_err(|error| Failed::CutOff(error.to_string()))?;
        let answer = grpc.unary(Request::new(message), path, Plain(PhantomData)).await;
        answer.map(tonic::Response::into_inner).map_err(|status| failed(&status))
    }
}

fn failed(status: &Status) -> Failed {
    let said = format!("{}: {}", status.code().description(), status.message());
    let code = match status.code() {
        // What the engine says has no source here.
        _ if std::error::Error::source(status).is_some() => return Failed::CutOff(said),
        tonic::Code::ResourceExhausted => Code::Exhausted,
        tonic::Code::Unavailable => Code::Unavailable,
        tonic::Code::Aborted => Code::Aborted,
        tonic::Code::NotFound => Code::NotFound,
        tonic::Code::Unimplemented => Code::Unimplemented,
        _ => Code::Other,
    };
    Failed::Refused(code, said)
}

/// What sends requests, as gRPC takes it.
struct Sender(SendRequest<Body>);

impl Service<http::Request<Body>> for Sender {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// How messages are written and read: those that are written come as bytes.
struct Plain<M>(PhantomData<fn() -> M>);

impl<M: Readable + Send + 'static> Codec for Plain<M> {
    type Encode = Bytes;
    type Decode = M;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self(PhantomData)
    }

    fn decoder(&mut self) -> Self {
        Self(PhantomData)
    }
}

impl<M> Encoder for Plain<M> {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.reserve(item.len());
        out.put(item);
        Ok(())
    }
}

impl<M: Readable> Decoder for Plain<M> {
    type Item = M;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<M>, Status> {
        let bytes = source.copy_to_bytes(source.remaining());
        let read = decode(&bytes);
        read.map(Some).map_err(|error| Status::data_loss(format!("what it answers is no answer: {error}")))
    }
}
