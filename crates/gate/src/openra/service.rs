//! The service: five calls over gRPC. It is written by hand, as its description is not compiled.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes};
use rollhouse_codec::openra::{
    AgentAction, CreateSessionRequest, CreateSessionResponse, DestroySessionRequest, DestroySessionResponse,
    FastAdvanceRequest, MAX_OBSERVATION_BYTES, MAX_REQUEST_BYTES, Message, Readable, SERVICE, SessionName,
    StateRequest, decode,
};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, StreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};
use tower_service::Service;

use super::bridge::{Bridge, Refused};
use super::stream::LiveGame;
use crate::bearer::Bearer;

/// The service of a bridge.
#[derive(Clone)]
pub(crate) struct BridgeService {
    bridge: Arc<Bridge>,
    bearer: Arc<Bearer>,
    /// Number of the newest stream.
    streams: watch::Sender<u64>,
}

type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl BridgeService {
    pub(crate) fn new(bridge: Arc<Bridge>, bearer: Bearer) -> Self {
        Self { bridge, bearer: Arc::new(bearer), streams: watch::Sender::new(0) }
    }

    fn answer(self, request: http::Request<Body>) -> Later<http::Response<Body>> {
        if !self.bearer.admits(request.headers()) {
            let refused = Status::unauthenticated("`authorization: Bearer TOKEN` is wanted");
            return Box::pin(ready(refused.into_http()));
        }
        let path = request.uri().path().to_owned();
        let call = path.strip_prefix('/').and_then(|path| path.strip_prefix(SERVICE));
        let bridge = self.bridge;
        match call.and_then(|call| call.strip_prefix('/')) {
            Some("CreateSession") => unary(request, move |asked: CreateSessionRequest| async move {
                Ok(encoded(&CreateSessionResponse { session_id: bridge.create(asked)? }))
            }),
            Some("GetState") => unary(request, move |asked: StateRequest| async move {
                // A name that can be none's is no session's: this call never fails.
                let name = SessionName::of(asked.session_id);
                Ok(encoded(&bridge.state(name.unwrap_or_else(|_| SessionName::Created(String::new())))))
            }),
            Some("FastAdvance") => unary(request, move |asked: FastAdvanceRequest| async move {
                Ok(bridge.fast_advance(asked).await?)
            }),
            Some("DestroySession") => unary(request, move |asked: DestroySessionRequest| async move {
                if let Ok(name @ SessionName::Created(_)) = SessionName::of(asked.session_id) {
                    bridge.destroy(name).await;
                }
                Ok(encoded(&DestroySessionResponse {}))
            }),
            Some("GameSession") => {
                let call = GameSession { bridge, streams: self.streams };
                Box::pin(async move { grpc::<AgentAction>().streaming(call, request).await })
            }
            _ => Box::pin(ready(Status::unimplemented("there is no such call").into_http())),
        }
    }
}

impl Service<http::Request<Body>> for BridgeService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Later<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let answer = self.clone().answer(request);
        Box::pin(async move { Ok(answer.await) })
    }
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        let text = refused.to_string();
        match refused {
            Refused::Unknown | Refused::Stopping => Self::unavailable(text),
            Refused::Done => Self::aborted(text),
            Refused::NotMade => Self::not_found(text),
            Refused::Exhausted { .. } => Self::resource_exhausted(text),
            Refused::Request(_) => Self::invalid_argument(text),
            Refused::Lost => Self::internal(text),
        }
    }
}

/// The stream of observations.
struct GameSession {
    bridge: Arc<Bridge>,
    streams: watch::Sender<u64>,
}

impl StreamingService<AgentAction> for GameSession {
    type Response = Bytes;
    type ResponseStream = WatchStream<Result<Bytes, Status>>;
    type Future = Later<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<AgentAction>>) -> Self::Future {
        let (bridge, streams) = (Arc::clone(&self.bridge), self.streams.clone());
        Box::pin(async move {
            streams.send_modify(|newest| *newest += 1);
            let replaced = streams.subscribe();
            let (shown, game) = LiveGame::open(bridge, request.into_inner()).await?;
            // Task: stream.
            tokio::spawn(game.play(replaced));
            Ok(Response::new(WatchStream::new(shown)))
        })
    }
}

/// A call with one message each way.
struct Unary<F>(Option<F>);

impl<M, F, A> UnaryService<M> for Unary<F>
where
    F: FnOnce(M) -> A,
    A: Future<Output = Result<Bytes, Status>> + Send + 'static,
{
    type Response = Bytes;
    type Future = Later<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<M>) -> Self::Future {
        let answer = self.0.take().map(|call| call(request.into_inner()));
        Box::pin(async move {
            match answer {
                Some(answer) => answer.await.map(Response::new),
                None => Err(Status::internal("a call is answered once")),
            }
        })
    }
}

fn unary<M, F, A>(request: http::Request<Body>, call: F) -> Later<http::Response<Body>>
where
    M: Readable + Send + 'static,
    F: FnOnce(M) -> A + Send + 'static,
    A: Future<Output = Result<Bytes, Status>> + Send + 'static,
{
    Box::pin(async move { grpc::<M>().unary(Unary(Some(call)), request).await })
}

fn grpc<M: Readable + Send + 'static>() -> Grpc<Plain<M>> {
    let codec = Plain(std::marker::PhantomData);
    Grpc::new(codec).apply_max_message_size_config(Some(MAX_REQUEST_BYTES), Some(MAX_OBSERVATION_BYTES))
}

fn encoded(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

/// How messages are read and written: those that are written come as bytes.
struct Plain<M>(std::marker::PhantomData<fn() -> M>);

impl<M: Readable + Send + 'static> Codec for Plain<M> {
    type Encode = Bytes;
    type Decode = M;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self(std::marker::PhantomData)
    }

    fn decoder(&mut self) -> Self {
        Self(std::marker::PhantomData)
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
        decode(&bytes).map(Some).map_err(|error| Status::invalid_argument(error.to_string()))
    }
}
