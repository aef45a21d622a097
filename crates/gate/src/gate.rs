//! A gate: a listener on a thread of its own, with a bridge behind it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::bearer::Bearer;
use crate::lanes::Lanes;
use crate::openenv::{MAX_CLOSERS, OpenenvServer, OpenenvSettings};
use crate::openra::{BridgeServer, BridgeSettings, MAX_MAKERS, Shape, WrongShape};

/// A gate that serves. Dropping it ends it within [`crate::END_WITHIN`].
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
        check_open(address, token)?;
        let shape = Shape::of(lanes.spec())?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let server = BridgeServer::new(lanes, shape, settings, cores, Bearer::of(token));
        let serve = move |runtime: &Runtime, listener, stopped| server.serve(runtime, listener, stopped);
        Self::begin(address, cores + MAX_MAKERS, serve)
    }

    /// Listens on `address` and serves OpenEnv's protocol there, with lanes of any env. Without a token only addresses of
    /// the loopback are taken.
    ///
    /// # Errors
    /// See [`GateError`]; nothing is left then.
    pub fn openenv(
        address: SocketAddr,
        token: Option<&str>,
        lanes: Arc<dyn Lanes>,
        settings: OpenenvSettings,
    ) -> Result<Self, GateError> {
        check_open(address, token)?;
        let threads = settings.sessions + MAX_CLOSERS;
        let server = Arc::new(OpenenvServer::new(lanes, settings, Bearer::of(token)));
        Self::begin(address, threads, move |runtime, listener, stopped| {
            server.serve(runtime, listener, stopped)
        })
    }

    /// Listens, and has `serve` run on a thread of its own until it is stopped, with an event loop that has so many threads for
    /// what blocks.
    fn begin(
        address: SocketAddr,
        threads: usize,
        serve: impl FnOnce(&Runtime, TcpListener, oneshot::Receiver<()>) + Send + 'static,
    ) -> Result<Self, GateError> {
        let listen = |source| GateError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let bound = listener.local_addr().map_err(listen)?;
        let mut builder = Builder::new_current_thread();
        builder.max_blocking_threads(threads).thread_name("rollhouse-gate-work").enable_all();
        let runtime = builder.build().map_err(GateError::Thread)?;
        let (stop, stopped) = oneshot::channel();
        let (runs, running) = mpsc::sync_channel(0);
        let run = move || {
            serve(&runtime, listener, stopped);
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
    /// Blocks for at most [`crate::END_WITHIN`].
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

/// Refuses an address that others than this machine reach without a token.
fn check_open(address: SocketAddr, token: Option<&str>) -> Result<(), GateError> {
    if token.is_none() && !address.ip().is_loopback() { Err(GateError::Open(address)) } else { Ok(()) }
}
