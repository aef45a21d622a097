//! An engine that answers what a test says, over gRPC.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::marker::PhantomData;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes};
use rollhouse_codec::openra::{CreateSessionResponse, GameObservation, GameState, MapInfo, Message};
use tokio::sync::oneshot;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};
use tower_service::Service;

use crate::stage::RIVER;

/// What the engine answers to a call.
pub(crate) enum Reply {
    Bytes(Vec<u8>),
    Refuse(Status),
    Never,
}

type Answer = dyn Fn(&str) -> Reply + Send + Sync;

/// An engine; its drop ends it.
pub(crate) struct Stand {
    pub(crate) address: String,
    _stop: oneshot::Sender<()>,
}

impl Stand {
    /// Starts an engine that answers calls, which it is told by their names.
    pub(crate) fn start(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::on(([127, 0, 0, 1], 0).into(), answer)
    }

    /// Starts it on an address.
    pub(crate) fn on(address: SocketAddr, answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (stop, stopped) = oneshot::channel();
        let service = Answers(Arc::new(answer));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListenerStream::new(tokio::net::TcpListener::from_std(listener).unwrap());
                let server = tonic::transport::Server::builder().serve_with_incoming(service, listener);
                tokio::select! {
                    _ = server => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, _stop: stop }
    }
}

/// Answers as an engine does whose games never end.
pub(crate) fn right(call: &str) -> Reply {
    Reply::Bytes(match call {
        "CreateSession" => CreateSessionResponse { session_id: "abc".into() }.encode_to_vec(),
        "GetState" => GameState { phase: "playing".into(), ..GameState::default() }.encode_to_vec(),
        "FastAdvance" => shown(RIVER).encode_to_vec(),
        _ => Vec::new(),
    })
}

/// Returns what a game on a map of that size shows.
pub(crate) fn shown([width, height]: [usize; 2]) -> GameObservation {
    let map_name = "river".to_owned();
    GameObservation {
        tick: 1,
        map_info: Some(MapInfo { width: width as i32, height: height as i32, map_name }),
        spatial_map: vec![0; width * height * 9 * 4],
        ..GameObservation::default()
    }
}

#[derive(Clone)]
struct Answers(Arc<Answer>);

type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Service<http::Request<Body>> for Answers {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Later<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let call = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let unary = Unary(Arc::clone(&self.0), call);
        Box::pin(async move { Ok(Grpc::new(Plain(PhantomData)).unary(unary, request).await) })
    }
}

struct Unary(Arc<Answer>, String);

impl UnaryService<Bytes> for Unary {
    type Response = Bytes;
    type Future = Later<Result<Response<Bytes>, Status>>;

    fn call(&mut self, _: Request<Bytes>) -> Self::Future {
        let reply = self.0(&self.1);
        Box::pin(async move {
            match reply {
                Reply::Bytes(bytes) => Ok(Response::new(bytes.into())),
                Reply::Refuse(status) => Err(status),
                Reply::Never => pending().await,
            }
        })
    }
}

struct Plain(PhantomData<()>);

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self(PhantomData)
    }

    fn decoder(&mut self) -> Self {
        Self(PhantomData)
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.reserve(item.len());
        out.put(item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(source.copy_to_bytes(source.remaining())))
    }
}
