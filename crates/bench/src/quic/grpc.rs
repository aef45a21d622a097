//! gRPC over TLS for comparison: tonic with the settings that suit it best here (large windows, no Nagle).
//!
//! Messages are plain bytes, so that the transport is compared and not the encoding. Its server runs on a thread with a
//! runtime of its own, as ours does.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use rollhouse_cli::failure::{Failure, Status};

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, channel};
use tokio::sync::oneshot;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::NamedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status as Refused, Streaming};

use super::{BULK_BYTES, Measured, PIECE_BYTES, median, runtime};

use crate::failed::failed;

/// A stream of messages there and back over one connection.
pub(super) struct Peer {
    send: mpsc::Sender<Bytes>,
    receive: Streaming<Bytes>,
    payload: Bytes,
    piece: Bytes,
    /// Ends the server when it is dropped.
    _stop: oneshot::Sender<()>,
}

impl Peer {
    pub(super) async fn start(bytes: usize) -> Result<Self, Failure> {
        let (identity, authority) = identity()?;
        let (bound, address) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        std::thread::Builder::new()
            .name("bench-grpc".to_owned())
            .spawn(move || runtime()?.block_on(serve(identity, bound, stopped)))
            .map_err(failed)?;
        let address = address.await.map_err(failed)?;
        let tls = ClientTlsConfig::new().ca_certificate(authority).domain_name(DOMAIN);
        let connection: Channel = Endpoint::from_shared(format!("https://{address}"))
            .and_then(|endpoint| endpoint.tls_config(tls))
            .map_err(failed)?
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .tcp_nodelay(true)
            .connect()
            .await
            .map_err(failed)?;
        let (send, requests) = channel(QUEUE);
        let mut grpc = Grpc::new(connection).max_decoding_message_size(MAX_MESSAGE_BYTES);
        grpc.ready().await.map_err(failed)?;
        let path = PathAndQuery::from_static("/bench.Echo/Echo");
        let answers =
            grpc.streaming(Request::new(ReceiverStream::new(requests)), path, Plain).await.map_err(failed)?;
        Ok(Self {
            send,
            receive: answers.into_inner(),
            payload: vec![7; bytes].into(),
            piece: vec![7; PIECE_BYTES].into(),
            _stop: stop,
        })
    }

    pub(super) async fn measure(&mut self, round_trips: u32, measured: &mut Measured) -> Result<(), Failure> {
        let began = Instant::now();
        for _ in 0..BULK_BYTES / PIECE_BYTES as u64 {
            self.send.send(marked(&self.piece, SWALLOW)).await.map_err(failed)?;
        }
        self.echo(Bytes::from_static(&[ECHO])).await?;
        measured.bulk = BULK_BYTES as f64 / began.elapsed().as_secs_f64();
        let mut times = Vec::with_capacity(round_trips as usize);
        for _ in 0..round_trips {
            let began = Instant::now();
            self.echo(marked(&self.payload, ECHO)).await?;
            times.push(began.elapsed());
        }
        measured.round_trip = median(&mut times);
        Ok(())
    }

    async fn echo(&mut self, message: Bytes) -> Result<(), Failure> {
        let bytes = message.len();
        self.send.send(message).await.map_err(failed)?;
        match self.receive.message().await.map_err(failed)? {
            Some(answer) if answer.len() == bytes => Ok(()),
            answer => {
                let got = answer.map(|answer| answer.len());
                Err(Failure::new(Status::Failed, format_args!("expected {bytes} bytes, got {got:?}")))
            }
        }
    }
}

/// Returns the bytes with a first one that tells the server what to do. Copied, as a frame is.
fn marked(bytes: &Bytes, mark: u8) -> Bytes {
    let mut copy = bytes.to_vec();
    if let Some(first) = copy.first_mut() {
        *first = mark;
    }
    copy.into()
}

async fn serve(
    identity: Identity,
    bound: oneshot::Sender<SocketAddr>,
    stopped: oneshot::Receiver<()>,
) -> Result<(), Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(failed)?;
    // The other side waits for it, or has gone, which `stopped` tells.
    let _told = bound.send(listener.local_addr().map_err(failed)?);
    Server::builder()
        .tls_config(ServerTlsConfig::new().identity(identity))
        .map_err(failed)?
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(MAX_FRAME_BYTES)
        .add_service(Echo)
        // The server's own setting of the same name has no say over a listener that is handed to it.
        .serve_with_incoming_shutdown(TcpIncoming::from(listener).with_nodelay(Some(true)), async {
            let _stopped = stopped.await;
        })
        .await
        .map_err(failed)
}

/// Answers every message with itself, except those that are marked to be swallowed.
#[derive(Clone)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "bench.Echo";
}

type Answering<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl tower_service::Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(Plain).max_decoding_message_size(MAX_MESSAGE_BYTES);
            Ok(grpc.streaming(Answers, request).await)
        })
    }
}

struct Answers;

impl tonic::server::StreamingService<Bytes> for Answers {
    type Response = Bytes;
    type ResponseStream = ReceiverStream<Result<Bytes, Refused>>;
    type Future = Answering<Response<Self::ResponseStream>, Refused>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let (send, answers) = channel(QUEUE);
        let mut messages = request.into_inner();
        // Ends with the connection.
        tokio::spawn(async move {
            while let Ok(Some(message)) = messages.message().await {
                if message.first() != Some(&SWALLOW) && send.send(Ok(message)).await.is_err() {
                    break;
                }
            }
        });
        Box::pin(async { Ok(Response::new(ReceiverStream::new(answers))) })
    }
}

/// A codec that passes messages on unchanged.
#[derive(Clone, Copy)]
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Refused;

    fn encode(&mut self, message: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Refused> {
        out.put(message);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Refused;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Refused> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}

/// Makes a certificate for a host name, which gRPC wants, and returns it with the authority that signed it.
fn identity() -> Result<(Identity, Certificate), Failure> {
    let signed = rcgen::generate_simple_self_signed([DOMAIN.to_owned()]).map_err(failed)?;
    let pem = signed.cert.pem();
    Ok((Identity::from_pem(&pem, signed.signing_key.serialize_pem()), Certificate::from_pem(&pem)))
}

const DOMAIN: &str = "bench.localhost";
/// Bytes of a stream's window: as ours.
const WINDOW: u32 = 16 << 20;
const MAX_FRAME_BYTES: u32 = 1 << 20;
const MAX_MESSAGE_BYTES: usize = 32 << 20;
/// Number of messages between a stream and its task.
const QUEUE: usize = 4;
const SWALLOW: u8 = 0;
const ECHO: u8 = 1;
