//! The HTTP server of metrics, with three paths, read-only, one answer for each connection.
//!
//! ```text
//! accepted -> reading the head -> answering -> closed
//!             any of them -> closed   after `DEADLINE`, or as the oldest of more than `MAX_CONNECTIONS`
//! ```

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::exporter::Exporter;
use crate::head::{RequestHead, RequestKind, parse};
use crate::open_metrics;

/// Health of a process: whether it lives and is ready. It is request on the server's thread: it must not block.
pub trait Health: Send + Sync {
    /// Returns whether the process makes progress. If it does not, the caller, which gets one sentence that says why,
    /// restarts it.
    ///
    /// # Errors
    /// The sentence that says why not.
    fn live(&self) -> Result<(), String>;

    /// Returns whether the process takes new work. If it does not, the caller, which gets one sentence that says why,
    /// only stops sending it work.
    ///
    /// # Errors
    /// The sentence that says why not.
    fn ready(&self) -> Result<(), String>;
}

/// Address on which the process listens and that is not served yet. So it is known to be free before the parts are
/// started whose metrics are shown there.
#[derive(Debug)]
pub struct MetricsListener {
    listener: std::net::TcpListener,
    address: SocketAddr,
}

/// Server that answers `/metrics`, `/healthz` and `/readyz`. Dropping it ends its thread and closes its listener.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Reason for which the server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The server cannot listen on the address.
    #[error("metrics cannot be served on {address}")]
    Listen {
        /// Address on which to listen.
        address: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The system refuses a thread or an event loop.
    #[error("the thread of the metrics cannot be started")]
    Thread(#[source] io::Error),
}

impl MetricsListener {
    /// Listens on `address`. Clients that connect wait to be served.
    ///
    /// # Errors
    /// [`ServeError::Listen`].
    pub fn bind(address: SocketAddr) -> Result<Self, ServeError> {
        let listen = |source| ServeError::Listen { address, source };
        // The standard library sets SO_REUSEADDR, so that connections of a process that was killed do not stand in
        // the way.
        let listener = std::net::TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        Ok(Self { listener, address })
    }

    /// Starts the thread. Requests are answered when this returns.
    ///
    /// # Errors
    /// [`ServeError::Thread`].
    pub fn serve(self, exporter: Exporter, health: Arc<dyn Health>) -> Result<MetricsServer, ServeError> {
        let Self { listener, address } = self;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServeError::Thread)?;
        let (stop, stopped) = oneshot::channel();
        let answers = Arc::new(Answers { exporter, health });
        let run = move || {
            runtime.block_on(async {
                // The runtime takes any listening socket.
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                tokio::select! {
                    () = accept(listener, &answers) => {}
                    _ = stopped => {}
                }
            });
        };
        // Task: metrics.
        let thread = std::thread::Builder::new().name("rollhouse-metrics".to_owned()).spawn(run);
        let thread = thread.map_err(ServeError::Thread)?;
        Ok(MetricsServer { address, stop: Some(stop), thread: Some(thread) })
    }
}

impl MetricsServer {
    /// Listens on `address` and serves there.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn start(
        address: SocketAddr,
        exporter: Exporter,
        health: Arc<dyn Health>,
    ) -> Result<Self, ServeError> {
        MetricsListener::bind(address)?.serve(exporter, health)
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        // Dropping the sender is the message.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

struct Answers {
    exporter: Exporter,
    health: Arc<dyn Health>,
}

/// Accepts connections for ever. If there are too many, the oldest is closed: a request takes milliseconds, so the
/// oldest has said nothing for long, and strangers that hold connections open cannot keep a probe out.
async fn accept(listener: TcpListener, answers: &Arc<Answers>) {
    let mut open: VecDeque<AbortHandle> = VecDeque::with_capacity(MAX_CONNECTIONS + 1);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely.
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let answers = Arc::clone(answers);
        let serve = tokio::time::timeout(DEADLINE, async move { serve(stream, &answers).await });
        open.retain(|connection| !connection.is_finished());
        // A connection that broke needs no words.
        // Task: connection.
        open.push_back(tokio::spawn(async move { drop(serve.await) }).abort_handle());
        if open.len() > MAX_CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
    }
}

async fn serve(mut stream: TcpStream, answers: &Answers) -> io::Result<()> {
    let mut head = Vec::with_capacity(1024);
    let request = loop {
        if let Some(request) = parse(&head) {
            break request;
        }
        if head.len() >= MAX_HEAD_BYTES {
            break RequestHead { kind: RequestKind::Malformed, head_only: false, open_metrics: false };
        }
        let room = (MAX_HEAD_BYTES - head.len()) as u64;
        if (&mut stream).take(room).read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    };
    stream.write_all(&answers.answer(request)).await?;
    stream.shutdown().await
}

impl Answers {
    fn answer(&self, request: RequestHead) -> Vec<u8> {
        let health = |health: Result<(), String>| match health {
            Ok(()) => ("200 OK", "ok\n".to_owned()),
            Err(why) => ("503 Service Unavailable", format!("{why}\n")),
        };
        let open = request.open_metrics && request.kind == RequestKind::Metrics;
        let content = if open { open_metrics::CONTENT_TYPE } else { CONTENT_TYPE };
        let (status, body) = match request.kind {
            RequestKind::Metrics if open => ("200 OK", self.exporter.print_open()),
            RequestKind::Metrics => match self.exporter.print() {
                Ok(page) => ("200 OK", page),
                Err(error) => ("500 Internal Server Error", format!("{error}\n")),
            },
            RequestKind::Health => health(self.health.live()),
            RequestKind::Readiness => health(self.health.ready()),
            RequestKind::UnknownPath => {
                ("404 Not Found", "the paths are /metrics, /healthz and /readyz\n".to_owned())
            }
            RequestKind::OtherMethod => {
                ("405 Method Not Allowed", "only GET and HEAD are allowed\n".to_owned())
            }
            RequestKind::Malformed => {
                ("400 Bad Request", "not an HTTP request, or too long a head\n".to_owned())
            }
        };
        let allow = if request.kind == RequestKind::OtherMethod { "Allow: GET, HEAD\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
            body.len()
        );
        let mut out = head.into_bytes();
        if !request.head_only {
            out.extend_from_slice(body.as_bytes());
        }
        out
    }
}

/// Content type of the text format of Prometheus; it is plain text for the other paths too.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Maximum number of connections at a time.
const MAX_CONNECTIONS: usize = 64;
/// Maximum number of bytes in a request's head.
const MAX_HEAD_BYTES: usize = 8 << 10;
/// Time from accepting a connection to closing it.
const DEADLINE: Duration = Duration::from_secs(5);
/// Pause after a failed accept.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exporter::{ExporterError, Figures};
    use crate::family::{Family, Kind, Page};
    use std::io::{Read, Write};

    struct Sick;

    impl Health for Sick {
        fn live(&self) -> Result<(), String> {
            Ok(())
        }

        fn ready(&self) -> Result<(), String> {
            Err("draining".to_owned())
        }
    }

    struct Beans;

    static BEANS: [Family; 1] =
        [Family { name: "beans_total", help: "Beans.", kind: Kind::Counter, labels: &["colour"] }];

    impl Figures for Beans {
        fn families(&self) -> Vec<&'static Family> {
            BEANS.iter().collect()
        }

        fn put(&self, page: &mut Page) {
            page.labelled(&BEANS[0], &["white"], 3.0);
            page.labelled(&BEANS[0], &["black"], 4.0);
        }
    }

    fn start() -> MetricsServer {
        let mut exporter = Exporter::new();
        exporter.add(Arc::new(Beans)).unwrap();
        MetricsServer::start(SocketAddr::from(([127, 0, 0, 1], 0)), exporter, Arc::new(Sick)).unwrap()
    }

    fn ask(server: &MetricsServer, bytes: &[u8]) -> String {
        let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
        // The server may have seen enough before all of it is sent.
        let _sent = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _broken = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn metrics_health_and_readiness_are_answered() {
        let server = start();
        let metrics = ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
        for line in ["# TYPE beans_total counter", "beans_total{colour=\"white\"} 3"] {
            assert!(metrics.lines().any(|l| l == line), "{metrics}");
        }
        let open = b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n";
        let open = ask(&server, open);
        assert!(open.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0;"), "{open}");
        assert!(open.ends_with("beans_total{colour=\"white\"} 3\n# EOF\n"), "{open}");
        assert!(ask(&server, b"GET /healthz HTTP/1.1\r\n\r\n").ends_with("\r\n\r\nok\n"));
        let ready = ask(&server, b"GET /readyz HTTP/1.1\r\n\r\n");
        assert!(ready.starts_with("HTTP/1.1 503 ") && ready.ends_with("draining\n"), "{ready}");
        assert!(ask(&server, b"HEAD /healthz HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
    }

    #[test]
    fn what_is_no_request_is_refused_within_bounds() {
        let server = start();
        assert!(ask(&server, b"PUT /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert!(ask(&server, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(ask(&server, &[0x16, 0x03, 0x01, 0x02, 0x00]).starts_with("HTTP/1.1 400 "));
        let mut long = b"GET /metrics HTTP/1.1\r\nX: ".to_vec();
        long.resize(MAX_HEAD_BYTES, b'x');
        assert!(ask(&server, &long).starts_with("HTTP/1.1 400 "));
    }

    #[test]
    fn silent_connections_do_not_keep_a_probe_out() {
        let server = start();
        let held: Vec<_> = (0..MAX_CONNECTIONS + 8)
            .map(|_| std::net::TcpStream::connect(server.address()).unwrap())
            .collect();
        assert!(ask(&server, b"GET /healthz HTTP/1.1\r\n\r\n").ends_with("ok\n"));
        // The oldest were closed to make room.
        let mut first = &held[0];
        assert!(matches!(first.read(&mut [0; 1]), Ok(0) | Err(_)));
    }

    #[test]
    fn the_address_is_free_again_when_the_server_is_gone() {
        let server = start();
        let address = server.address();
        assert!(ask(&server, b"GET /healthz HTTP/1.1\r\n\r\n").ends_with("ok\n"));
        drop(server);
        let again = MetricsServer::start(address, Exporter::new(), Arc::new(Sick)).unwrap();
        assert_eq!(again.address(), address);
    }

    #[test]
    fn an_address_in_use_is_named() {
        let server = start();
        let error = MetricsServer::start(server.address(), Exporter::new(), Arc::new(Sick)).unwrap_err();
        assert!(error.to_string().contains(&server.address().to_string()));
    }

    #[test]
    fn two_metrics_of_one_name_are_refused() {
        let mut exporter = Exporter::new();
        exporter.add(Arc::new(Beans)).unwrap();
        assert!(matches!(exporter.add(Arc::new(Beans)), Err(ExporterError::Register(_))));
    }
}
