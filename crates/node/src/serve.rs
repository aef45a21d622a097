//! The data thread: a runtime of its own with the QUIC endpoint, all sessions' streams, and short batches.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rollhouse_wire::{
    Arrival, ArrivalCounts, AttachBindError, AttachListener, BindError, CloseCode, Connection, Credential,
    Effective, Listener, Peer, Settings, Stranger,
};
use rollhouse_wire::{Hello, Identity, Refusal, RefusalCode, Request, Role};
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::ConnectionFigures;
use crate::attach::{self, AttachConfig};
use crate::connections::Connections;
use crate::hosting::Hosting;
use crate::{command_stream, stream};

/// Serves owners. Dropping it closes all connections and waits for the thread.
#[derive(Debug)]
pub(crate) struct Serving {
    effective: Effective,
    arrivals: Arc<Mutex<ArrivalCounts>>,
    connections: Arc<Connections>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// Why owners cannot be served.
#[derive(Debug)]
pub enum ServeError {
    /// The thread or its event loop could not be started.
    Thread(io::Error),
    /// The address could not be taken, or the identity is of no use.
    Bind(BindError),
    /// There is no attach socket.
    Attach(AttachBindError),
    /// The thread ended before it served.
    Ended,
}

impl Serving {
    /// Binds `listen` and serves the sessions of `hosting` from a thread of its own.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub(crate) fn start(
        listen: SocketAddr,
        identity: Arc<Identity>,
        quic: Settings,
        program: String,
        hosting: Arc<Hosting>,
        attach: Option<AttachConfig>,
    ) -> Result<Self, ServeError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(ServeError::Thread)?;
        let (stop, stopped) = watch::channel(false);
        let (ready, bound) = sync_channel(1);
        let arrivals: Arc<Mutex<ArrivalCounts>> = Arc::default();
        let shown = Arc::clone(&arrivals);
        let connections: Arc<Connections> = Arc::default();
        let known = Arc::clone(&connections);
        let serve = move || {
            runtime.block_on(async move {
                let listener = Listener::bind(listen, identity, quic, program, Box::new(authenticate));
                let both = listener.map_err(ServeError::Bind).and_then(|listener| {
                    let bound = attach.map(|attach| {
                        let bound = AttachListener::bind(&attach.path, &attach.uids)?;
                        Ok((bound, attach.sessions))
                    });
                    Ok((listener, bound.transpose().map_err(ServeError::Attach)?))
                });
                match both {
                    Ok((listener, local)) => {
                        // Nobody waits for the answer only if the starter is gone, and then it is dropped too.
                        if ready.send(Ok(listener.effective())).is_ok() {
                            let mut attaching = JoinSet::new();
                            if let Some((local, sessions)) = local {
                                attaching.spawn(attach::accept(local, Arc::clone(&hosting), sessions));
                            }
                            accept(listener, hosting, stopped, &shown, known).await;
                            attaching.shutdown().await;
                        }
                    }
                    Err(error) => drop(ready.send(Err(error))),
                }
            });
        };
        let thread = std::thread::Builder::new().name("rollhouse-data".to_owned()).spawn(serve);
        let thread = thread.map_err(ServeError::Thread)?;
        let effective = bound.recv().map_err(|_| ServeError::Ended)??;
        Ok(Self { effective, arrivals, connections, stop, thread: Some(thread) })
    }

    /// Where it listens, and what came of its settings.
    pub(crate) const fn effective(&self) -> Effective {
        self.effective
    }

    /// How the connections of owners are.
    pub(crate) fn connections(&self) -> ConnectionFigures {
        self.connections.figures()
    }

    /// How strangers fared, as of the last second.
    pub(crate) fn arrivals(&self) -> ArrivalCounts {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

/// Anyone may connect to a node: what counts is each session's secret.
fn authenticate(hello: &Hello, stranger: &Stranger) -> Result<Peer, Refusal> {
    if hello.token.is_some() {
        let message = "a node takes no tokens; the coordinator does";
        return Err(Refusal::new(RefusalCode::BadRequest, message));
    }
    Ok(Peer {
        role: Role::Anonymous,
        name: String::new(),
        credential: Credential::None,
        max_lanes: None,
        address: stranger.address,
    })
}

/// Accepts connections and looks after the sessions once a second, until it is told to stop.
async fn accept(
    mut listener: Listener,
    hosting: Arc<Hosting>,
    mut stopped: watch::Receiver<bool>,
    shown: &Mutex<ArrivalCounts>,
    known: Arc<Connections>,
) {
    let mut connections = JoinSet::new();
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            arrival = listener.accept() => match arrival {
                Some(Arrival::Connected(connection)) => {
                    let (hosting, known) = (Arc::clone(&hosting), Arc::clone(&known));
                    connections.spawn(async move {
                        known.opened(&connection);
                        serve_connection(&connection, hosting).await;
                        known.closed(&connection);
                    });
                }
                // Counted by the listener.
                Some(Arrival::TurnedAway(_)) => {}
                None => break,
            },
            Some(_) = connections.join_next() => {}
            _ = look.tick() => {
                hosting.look();
                shown.lock().unwrap_or_else(PoisonError::into_inner).clone_from(listener.counts());
            }
            _ = stopped.wait_for(|&stopped| stopped) => break,
        }
    }
    listener.close(CloseCode::ShuttingDown, "the node is going away");
    let _told = tokio::time::timeout(LINGER, listener.closed()).await;
}

/// Serves what one peer asks. Its sessions' streams end with it.
async fn serve_connection(connection: &Connection, hosting: Arc<Hosting>) {
    let figures = Arc::clone(&hosting.figures);
    let mut requests = connection.requests().telling(Arc::new(move |word, _| figures.refusals.add(word)));
    let mut streams = JoinSet::new();
    loop {
        tokio::select! {
            asked = requests.next() => match asked {
                Ok((Request::Attach(attach), responder)) => {
                    streams.spawn(stream::serve(Arc::clone(&hosting), connection.clone(), attach, responder));
                }
                Ok((Request::Commands(open), responder)) => {
                    let (hosting, connection) = (Arc::clone(&hosting), connection.clone());
                    streams.spawn(command_stream::serve(hosting, connection, open, responder));
                }
                Ok((other, responder)) => {
                    let message = format!("a node does not answer {}", other.word());
                    let refusal = Refusal::new(RefusalCode::Unsupported, message);
                    hosting.figures.refusals.add(refusal.code.word());
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

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(_) => f.write_str("the data thread could not be started"),
            Self::Bind(error) => error.fmt(f),
            Self::Attach(error) => error.fmt(f),
            Self::Ended => f.write_str("the data thread ended before it was ready"),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Thread(error) => Some(error),
            Self::Bind(error) => error.source(),
            Self::Attach(error) => error.source(),
            Self::Ended => None,
        }
    }
}

/// How fresh reported counts are, and how late a lease or a hang is noticed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long peers are given to hear that the node goes away.
const LINGER: Duration = Duration::from_secs(1);
