//! The data thread: a runtime of its own with the QUIC endpoint, all sessions' streams, and short batches.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_core::contained;
use rollhouse_wire::{
    Arrival, ArrivalCounts, AttachBindError, AttachListener, BindError, CloseCode, Connection, Effective,
    Listener, Peer, Settings, Stranger,
};
use rollhouse_wire::{Hello, Identity, Refusal, RefusalCode, Request};
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::ConnectionFigures;
use crate::attach_socket::{self, AttachConfig};
use crate::connections::Connections;
use crate::hosting::Hosting;
use crate::parts::{Part, PartExit, Parts};
use crate::pulse::Pulse;
use crate::{command_stream, stream, watch_stream};

/// Serves owners. Dropping it closes all connections and waits for the thread.
#[derive(Debug)]
pub(crate) struct Serving {
    effective: Effective,
    arrivals: Arc<Mutex<ArrivalCounts>>,
    connections: Arc<Connections>,
    pulse: Pulse,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// The settings and the shared state of the data thread.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) listen: SocketAddr,
    pub(crate) identity: Arc<Identity>,
    pub(crate) quic: Settings,
    pub(crate) program: String,
    pub(crate) hosting: Arc<Hosting>,
    pub(crate) attach: Option<AttachConfig>,
}

/// The state of the data thread that others see.
#[derive(Clone, Default)]
struct DataStatus {
    arrivals: Arc<Mutex<ArrivalCounts>>,
    connections: Arc<Connections>,
    pulse: Pulse,
    /// The bound address, once there is one: a port that was drawn is kept.
    address: Arc<OnceLock<SocketAddr>>,
}

/// Tells the starter the settings that took effect, or why nothing could be bound.
type Ready = SyncSender<Result<Effective, ServeError>>;

/// Why owners cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The thread or its event loop could not be started.
    #[error("the data thread could not be started")]
    Thread(#[source] io::Error),
    /// The address could not be taken, or the identity is of no use.
    #[error(transparent)]
    Bind(BindError),
    /// The attach socket could not be made.
    #[error(transparent)]
    Attach(AttachBindError),
    /// The thread ended before it served.
    #[error("the data thread ended before it was ready")]
    Ended,
}

impl Serving {
    /// Binds the address and serves owners from a thread of its own. If serving panics, it is made anew on the same
    /// address, as one of `parts`: sessions stay as they are, and their owners dial again.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub(crate) fn start(served: Served, parts: &Parts) -> Result<Self, ServeError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(ServeError::Thread)?;
        let (stop, stopped) = watch::channel(false);
        let (ready, bound) = sync_channel(1);
        let shown = DataStatus::default();
        let DataStatus { arrivals, connections, pulse, .. } = shown.clone();
        let parts = parts.clone();
        let run = move || {
            let mut ready = Some(ready);
            let keeping = parts.clone().keep(Part::Data, || {
                let (served, shown, stopped) = (served.clone(), shown.clone(), stopped.clone());
                serve(served, shown, stopped, ready.take(), parts.clone())
            });
            let mut stopped = stopped.clone();
            // Serving ends by itself when it is told to, but not while it waits to be made anew.
            let late = async {
                let _told = stopped.wait_for(|&stopped| stopped).await;
                tokio::time::sleep(2 * LINGER).await;
            };
            runtime.block_on(async {
                tokio::select! {
                    () = keeping => {}
                    () = late => {}
                }
            });
        };
        // Task: data.
        let thread = std::thread::Builder::new().name("rollhouse-data".to_owned()).spawn(run);
        let thread = thread.map_err(ServeError::Thread)?;
        let effective = bound.recv().map_err(|_| ServeError::Ended)??;
        Ok(Self { effective, arrivals, connections, pulse, stop, thread: Some(thread) })
    }

    /// Returns how long ago the thread last marked that it turns, which it does each second.
    pub(crate) fn silent(&self) -> Duration {
        self.pulse.silent()
    }

    /// Returns the address on which it listens, and the settings that took effect.
    pub(crate) const fn effective(&self) -> Effective {
        self.effective
    }

    /// Returns the figures of the owners' connections.
    pub(crate) fn connections(&self) -> ConnectionFigures {
        self.connections.figures()
    }

    /// Returns how connections by strangers fared, as of the last second.
    pub(crate) fn arrivals(&self) -> ArrivalCounts {
        self.arrivals.lock().clone()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A data thread that panicked has said so by itself.
            let _ended = thread.join();
        }
    }
}

/// Lets anyone connect to the node: what counts is each session's secret.
fn authenticate(hello: &Hello, stranger: &Stranger) -> Result<Peer, Refusal> {
    if hello.token.is_some() {
        let message = "a node takes no tokens; the coordinator does";
        return Err(Refusal::new(RefusalCode::BadRequest, message));
    }
    Ok(Peer::anonymous(stranger))
}

/// Binds and serves until it is told to stop. `ready` tells the starter of the node whether binding succeeded.
async fn serve(
    served: Served,
    shown: DataStatus,
    stopped: watch::Receiver<bool>,
    ready: Option<Ready>,
    parts: Parts,
) -> Result<(), PartExit> {
    let (mut listener, local) = match (bind(&served, &shown), ready) {
        (Ok(bound), Some(ready)) => {
            // Nobody waits for the answer only if the starter is gone, and then it is dropped too.
            if ready.send(Ok(bound.0.effective())).is_err() {
                return Ok(());
            }
            bound
        }
        (Ok(bound), None) => bound,
        (Err(error), Some(ready)) => {
            drop(ready.send(Err(error)));
            return Ok(());
        }
        (Err(error), None) => return Err(PartExit::Failed(error.to_string())),
    };
    let mut attaching = JoinSet::new();
    if let (Some(local), Some(config)) = (local, served.attach.clone()) {
        // Task: attach.
        attaching.spawn(attach_socket::keep(local, config, Arc::clone(&served.hosting), parts));
    }
    // Outlives what accepts, so that peers hear why they go.
    let mut connections = JoinSet::new();
    let accepting = accept(&mut listener, &mut connections, served.hosting, stopped, &shown);
    let ended = contained(accepting).await;
    let (code, reason) = match &ended {
        Ok(()) => (CloseCode::ShuttingDown, "the node is going away"),
        Err(_) => (CloseCode::Internal, "what serves connections has failed and is made anew"),
    };
    listener.close(code, reason);
    let _told = tokio::time::timeout(LINGER, listener.closed()).await;
    attaching.shutdown().await;
    ended.map_err(PartExit::Panicked)
}

fn bind(served: &Served, shown: &DataStatus) -> Result<(Listener, Option<AttachListener>), ServeError> {
    let listen = shown.address.get().copied().unwrap_or(served.listen);
    let Served { identity, quic, program, attach, .. } = served.clone();
    let listener =
        Listener::bind(listen, identity, quic, program, Box::new(authenticate)).map_err(ServeError::Bind)?;
    let local = attach.map(|attach| AttachListener::bind(&attach.path, &attach.uids)).transpose();
    let local = local.map_err(ServeError::Attach)?;
    let _first = shown.address.set(listener.effective().address);
    Ok((listener, local))
}

/// Accepts connections and looks after the sessions and the threads that step them, until it is told to stop.
async fn accept(
    listener: &mut Listener,
    connections: &mut JoinSet<()>,
    hosting: Arc<Hosting>,
    mut stopped: watch::Receiver<bool>,
    shown: &DataStatus,
) {
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut hangs = pin!(tokio::time::sleep(Duration::ZERO));
    loop {
        tokio::select! {
            arrival = listener.accept() => match arrival {
                Some(Arrival::Connected(connection)) => {
                    let (hosting, known) = (Arc::clone(&hosting), Arc::clone(&shown.connections));
                    // Task: connection.
                    connections.spawn(async move {
                        let _open = known.opened(&connection);
                        if contained(serve_connection(&connection, hosting)).await.is_err() {
                            connection.close(CloseCode::Internal, "what serves the connection has failed");
                        }
                    });
                }
                // Counted by the listener.
                Some(Arrival::TurnedAway(_)) => {}
                None => break,
            },
            Some(_) = connections.join_next() => {}
            _ = look.tick() => {
                shown.pulse.mark();
                shown.arrivals.lock().clone_from(listener.counts());
            }
            () = &mut hangs => {
                let again = hosting.executor.look();
                hangs.as_mut().reset(tokio::time::Instant::now() + again);
            }
            _ = stopped.wait_for(|&stopped| stopped) => break,
        }
    }
}

/// Serves the requests of one peer. Its sessions' streams end with it.
async fn serve_connection(connection: &Connection, hosting: Arc<Hosting>) {
    let figures = Arc::clone(&hosting.figures);
    let mut requests =
        connection.requests().telling(Arc::new(move |word, _| figures.refusals.add_owner(word)));
    let mut streams = JoinSet::new();
    let mut patience = tokio::time::interval(STRANGER_PATIENCE);
    patience.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first tick is at once.
    patience.tick().await;
    let (mut strange, mut admissions) = (true, 0);
    loop {
        tokio::select! {
            _ = patience.tick() => {
                let before = std::mem::replace(&mut admissions, connection.admissions());
                if connection.is_known() || before != admissions {
                    strange = false;
                } else if std::mem::replace(&mut strange, true) {
                    connection.close(CloseCode::TooSlow, "no session was stepped or watched for too long");
                }
            }
            asked = requests.next() => match asked {
                Ok((Request::Attach(attach), responder)) => {
                    // Task: attached session.
                    streams.spawn(stream::serve(Arc::clone(&hosting), connection.clone(), attach, responder));
                }
                Ok((Request::Commands(open), responder)) => {
                    let (hosting, connection) = (Arc::clone(&hosting), connection.clone());
                    // Task: command stream.
                    streams.spawn(command_stream::serve(hosting, connection, open, responder));
                }
                Ok((Request::OpenWatch(open), responder)) => {
                    let (hosting, connection) = (Arc::clone(&hosting), connection.clone());
                    // Task: watcher.
                    streams.spawn(watch_stream::serve(hosting, connection, open, responder));
                }
                Ok((other, responder)) => {
                    let message = format!("a node does not answer {}", other.word());
                    let refusal = Refusal::new(RefusalCode::Unsupported, message);
                    hosting.figures.refusals.add_owner(refusal.code.word());
                    // Whether he still wants to hear it is his affair.
                    let _told = responder.refuse(refusal).await;
                }
                Err(_) => break,
            },
            Some(_) = streams.join_next() => {}
        }
    }
    // Streams see by themselves that the connection is gone; none is cut off while a worker has its session.
    while streams.join_next().await.is_some() {}
}

/// Time for which a peer may stay connected that has not been let in to a session, or twice that since the end of the
/// last one: it takes memory meanwhile.
const STRANGER_PATIENCE: Duration = Duration::from_secs(10);

/// Greatest age of reported counts, and the longest delay until the end of a lease is noticed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Time for peers to hear that the node goes away.
const LINGER: Duration = Duration::from_secs(1);
