//! Connections: how many there may be, and how long one may say nothing before its first byte.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;
use tracing::warn;

/// Time that a gate takes to end: calls that are under way may end, then worlds are closed.
pub const END_WITHIN: Duration = Duration::from_secs(10);
/// Maximum number of connections of a bridge at a time; more wait to be accepted.
pub(crate) const MAX_CONNECTIONS: usize = 256;
/// Time within which a connection says its first byte.
const FIRST_BYTE_WITHIN: Duration = Duration::from_secs(10);
/// Pause after a failed accept.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Connections that are accepted and not served yet.
pub(crate) const MAX_ACCEPTED: usize = 1;

/// A connection.
pub(crate) struct Connection {
    stream: TcpStream,
    /// Runs until its first byte has come.
    patience: Option<Pin<Box<Sleep>>>,
    _place: OwnedSemaphorePermit,
}

/// Accepts connections until nobody takes them any more, `most` at a time. A failure is tried again.
pub(crate) async fn accept(
    listener: TcpListener,
    accepted: mpsc::Sender<io::Result<Connection>>,
    most: usize,
) {
    let places = Arc::new(Semaphore::new(most));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            () = accepted.closed() => return,
        };
        match stream {
            Ok((stream, _)) => {
                // Answers are small, and waited for.
                let _set = stream.set_nodelay(true);
                let patience = Some(Box::pin(sleep(FIRST_BYTE_WITHIN)));
                let connection = Connection { stream, patience, _place: place };
                if accepted.send(Ok(connection)).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                // Out of descriptors, most likely.
                warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Option<SocketAddr>;

    fn connect_info(&self) -> Option<SocketAddr> {
        self.stream.peer_addr().ok()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            self.patience = None;
        } else if let Some(patience) = &mut self.patience {
            ready!(patience.as_mut().poll(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
