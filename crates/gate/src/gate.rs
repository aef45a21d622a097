//! A gate: a listener on a thread of its own, with a bridge behind it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::channel;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tracing::warn;

use crate::bearer::Bearer;
use crate::connection::{MAX_ACCEPTED, accept};
use crate::openra::{
    Bridge, BridgeService, BridgeSettings, LOOK_EVERY, Lanes, MAX_MAKERS, Shape, WrongShape,
};

/// A gate that serves. Dropping it ends it within [`END_WITHIN`].
#[derive(Debug)]
pub struct Gate {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    /// Nothing comes here; its other end goes with the thread.
    running: mpsc::Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// Reason for which a gate cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// The env has not what the protocol shows.
    #[error(transparent)]
    Shape(#[from] WrongShape),
    /// The address cannot be listened on.
    #[error("{address} cannot be listened on")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Others than this machine could reach it without a token.
    #[error("{0} can be reached by other machines: a token is wanted for it")]
    Open(SocketAddr),
    /// The system refuses a thread or an event loop.
    #[error("the thread of the gate cannot be started")]
    Thread(#[source] io::Error),
}

/// Time that a gate takes to end: calls that are under way may end, then worlds are closed.
pub const END_WITHIN: Duration = Duration::from_secs(10);
/// Longest time of a call, above all that it waits for.
const CALL_WITHIN: Duration = Duration::from_secs(320);
/// Calls of a connection at a time.
const MAX_STREAMS: u32 = 256;
/// Maximum number of bytes of a call's headers.
const MAX_HEADER_BYTES: u32 = 16 << 10;
/// A peer that says nothing for so long is asked whether it is there, and has this time to answer.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_WITHIN: Duration = Duration::from_secs(20);

impl Gate {
    /// Listens on `address` and serves OpenRA's bridge there, with lanes of an env of Skirmish's shape. Without a token
    /// only addresses of the loopback are taken.
    ///
    /// # Errors
    /// See [`GateError`]; nothing is left then.
    pub fn openra(
        address: SocketAddr,
        token: Option<&str>,
        lanes: Arc<dyn Lanes>,
        settings: BridgeSettings,
    ) -> Result<Self, GateError> {
        if token.is_none() && !address.ip().is_loopback() {
            return Err(GateError::Open(address));
        }
        let shape = Shape::of(lanes.spec())?;
        let listen = |source| GateError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let bound = listener.local_addr().map_err(listen)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut builder = Builder::new_current_thread();
        builder.max_blocking_threads(cores + MAX_MAKERS).thread_name("rollhouse-gate-work").enable_all();
        let runtime = builder.build().map_err(GateError::Thread)?;
        let bridge = Arc::new(Bridge::new(lanes, shape, settings, cores));
        let service = BridgeService::new(Arc::clone(&bridge), Bearer::of(token));
        let (stop, stopped) = oneshot::channel();
        let (runs, running) = mpsc::sync_channel(0);
        let run = move || {
            serve(&runtime, listener, &bridge, service, stopped);
            // A world that hangs is left behind.
            runtime.shutdown_timeout(Duration::ZERO);
            drop::<mpsc::SyncSender<()>>(runs);
        };
        // Task: gate.
        let thread = std::thread::Builder::new().name("rollhouse-gate".to_owned()).spawn(run);
        let thread = thread.map_err(GateError::Thread)?;
        Ok(Self { address: bound, stop: Some(stop), running, thread: Some(thread) })
    }

    /// Returns the address on which it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns whether it serves: it does until it is stopped, unless it has failed.
    pub fn is_serving(&self) -> bool {
        self.running.try_recv() == Err(mpsc::TryRecvError::Empty)
    }

    /// Ends it in order: nothing new is taken, streams end, calls that are under way are answered, worlds are closed.
    /// Blocks for at most [`END_WITHIN`].
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // Dropping the sender is the message.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// Serves until the gate is stopped.
fn serve(
    runtime: &Runtime,
    listener: TcpListener,
    bridge: &Arc<Bridge>,
    service: BridgeService,
    stopped: oneshot::Receiver<()>,
) {
    runtime.block_on(async {
        // The runtime takes any listening socket.
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
        let (accepted, connections) = channel(MAX_ACCEPTED);
        // Task: listener.
        tokio::spawn(accept(listener, accepted));
        // Task: reaper of sessions.
        tokio::spawn(reap(Arc::clone(bridge)));
        let ending = Arc::clone(bridge);
        let (begin_end, mut ends) = oneshot::channel();
        let signal = async move {
            let _stopped = stopped.await;
            let _told = begin_end.send(());
            // Streams would go on for ever, and so would the calls that wait for their sessions.
            ending.stop().await;
        };
        let server = Server::builder()
            .timeout(CALL_WITHIN)
            .max_concurrent_streams(MAX_STREAMS)
            .http2_max_header_list_size(MAX_HEADER_BYTES)
            .http2_keepalive_interval(Some(PING_EVERY))
            .http2_keepalive_timeout(Some(PING_WITHIN))
            .serve_with_incoming_shutdown(service, ReceiverStream::new(connections), signal);
        let limited = async {
            let _began = (&mut ends).await;
            tokio::time::sleep(END_WITHIN).await;
        };
        tokio::select! {
            served = server => if let Err(error) = served {
                warn!(%error, "the gate has failed");
            },
            () = limited => warn!("calls were still under way as the gate ended"),
        }
        drop(timeout(END_WITHIN, bridge.stop()).await);
        bridge.log_counts();
    });
}

/// Ends idle sessions, as long as the gate serves.
async fn reap(bridge: Arc<Bridge>) {
    let mut clock = interval(LOOK_EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        bridge.reap().await;
    }
}
