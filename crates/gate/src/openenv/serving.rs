//! The server behind a listener: what runs from the first connection to the end of the gate.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::channel;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::warn;

use super::server::OpenenvServer;
use crate::connection::{Connection, END_WITHIN, MAX_ACCEPTED, accept};

/// Connections beyond those of sessions: short requests, and clients that learn that there is no place.
const SPARE_CONNECTIONS: usize = 64;
/// Time in which the headers of a request come.
const HEADERS_WITHIN: Duration = Duration::from_secs(10);
/// Bytes that a connection keeps of headers, and of what is written.
const BUFFER_BYTES: usize = 16 << 10;
/// How often is looked for sessions that nobody uses.
const LOOK_EVERY: Duration = Duration::from_secs(10);

impl OpenenvServer {
    /// Serves until the gate is stopped.
    pub(crate) fn serve(
        self: Arc<Self>,
        runtime: &Runtime,
        listener: TcpListener,
        stopped: oneshot::Receiver<()>,
    ) {
        runtime.block_on(async {
            // The runtime takes any listening socket.
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            let (accepted, mut connections) = channel(MAX_ACCEPTED);
            let most = self.settings.sessions + SPARE_CONNECTIONS;
            // Task: listener.
            tokio::spawn(accept(listener, accepted, most));
            // Task: reaper of sessions.
            tokio::spawn(reap(Arc::clone(&self)));
            let mut stopped = stopped;
            loop {
                tokio::select! {
                    connection = connections.recv() => match connection {
                        Some(Ok(connection)) => self.begin(connection),
                        Some(Err(_)) => {}
                        None => break,
                    },
                    _ = &mut stopped => break,
                }
            }
            drop(connections);
            let ended = async {
                self.stop().await;
                self.all_gone().await;
            };
            if timeout(END_WITHIN, ended).await.is_err() {
                warn!("requests were still under way as the gate ended");
            }
            self.counts.log();
        });
    }

    /// Serves a connection.
    fn begin(self: &Arc<Self>, connection: Connection) {
        let server = Arc::clone(self);
        let alive = self.alive();
        let mut stopping = self.stopping();
        let answer = service_fn(move |request| {
            let server = Arc::clone(&server);
            async move { Ok::<_, Infallible>(server.respond(request).await) }
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS_WITHIN)
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(TokioIo::new(connection), answer)
            .with_upgrades();
        // Task: connection.
        tokio::spawn(async move {
            let mut serving = std::pin::pin!(serving);
            // A connection that breaks has nobody who would be sent why.
            let is_stopping = tokio::select! {
                _broken = serving.as_mut() => false,
                _ = stopping.wait_for(|stops| *stops) => true,
            };
            if is_stopping {
                serving.as_mut().graceful_shutdown();
                let _broken = serving.as_mut().await;
            }
            drop(alive);
        });
    }
}

/// Ends idle sessions, as long as the gate serves.
async fn reap(server: Arc<OpenenvServer>) {
    let mut clock = interval(LOOK_EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        server.reap().await;
    }
}
