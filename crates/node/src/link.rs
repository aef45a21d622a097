//! The node's one connection to the coordinator: kept, and served in both directions.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rollhouse_core::Budget;
use rollhouse_wire::limits::MAX_HEARTBEAT_REPORTS;
use rollhouse_wire::{
    CallError, CloseCode, CloseSession, Connection, ConnectionLost, DialError, Dialer, EndCause, Expected,
    Heartbeat, HeartbeatTaken, OpenSession, Refusal, RefusalCode, Register, Registered, ReportLog, Request,
    Requests, Responder, Role, SeenTerm, SessionEnd, Validity,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{Instrument, info, warn};

use crate::Gone;
use crate::NodeFigures;
use crate::hosting::{Hosting, ReportsVersion};
use crate::joining::{JoinError, Renewing};
use crate::link_view::LinkTeller;
use crate::registration::{ANSWER_DEADLINE, LinkAction, LinkEvent, Registration};
use crate::renewal::{Renewal, RenewalAction, RenewalEvent};

/// The description that a node gives of itself whenever it registers.
#[derive(Debug, Clone)]
pub(crate) struct Card {
    pub(crate) node: String,
    pub(crate) boot: u64,
    /// The address at which owners reach it; `None` for the address from which the coordinator is reached.
    pub(crate) advertise: Option<String>,
    /// Path of the attach socket, if there is one.
    pub(crate) attach: Option<String>,
    pub(crate) listen: SocketAddr,
    pub(crate) capacity: u32,
    pub(crate) threads: u32,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) envs: BTreeMap<String, u64>,
    /// Kinds of envs that it learns.
    pub(crate) kinds: Vec<String>,
    /// What it has for lanes, if it says so.
    pub(crate) budget: Option<Budget>,
    pub(crate) program: String,
}

/// Adds the spool's figures to a report of a node's load.
pub(crate) type SpoolLoad = Arc<dyn Fn(&mut rollhouse_wire::NodeLoad) + Send + Sync>;

/// Keeps the connection to the coordinator, as one task on the control thread.
pub(crate) struct Link {
    hosting: Arc<Hosting>,
    dialer: Arc<Dialer>,
    coordinator: String,
    card: Card,
    spool_load: SpoolLoad,
    registration: Registration,
    /// The reports of sessions that the coordinator has to be told.
    reports: ReportLog,
    /// The version of the reports that the log has.
    reported: ReportsVersion,
    last: LastReport,
    began: Instant,
    connection: Option<(Connection, Requests)>,
    /// The schedule and the means of the certificate's renewal; `None` if somebody else sees to that.
    renewing: Option<(Renewal, Renewing)>,
    teller: LinkTeller,
    asking: JoinSet<CallResult>,
    answering: JoinSet<()>,
}

/// What the coordinator was sent last.
#[derive(Debug, Default)]
struct LastReport {
    /// The number of the beat.
    beat: u64,
    /// The address at which owners reach the node.
    address: String,
}

/// The result of a request to the coordinator.
enum CallResult {
    Dialled(Result<Connection, DialError>),
    Registered(usize, Result<Registered, CallError>),
    Beat { connection: usize, told: Beat, taken: Result<HeartbeatTaken, CallError> },
    Renewed(Result<Validity, JoinError>),
}

/// The content of a heartbeat, kept until it is answered.
struct Beat {
    ends: Vec<SessionEnd>,
    /// The version from which its changes start.
    since: u64,
    /// Whether there was more than fits one heartbeat.
    more: bool,
}

/// The parts that a link is made of.
#[derive(Clone)]
pub(crate) struct LinkParts {
    pub(crate) hosting: Arc<Hosting>,
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) coordinator: String,
    pub(crate) card: Card,
    pub(crate) spool_load: SpoolLoad,
    pub(crate) renewing: Option<Renewing>,
    pub(crate) teller: LinkTeller,
}

impl Link {
    pub(crate) fn new(parts: LinkParts) -> Self {
        let LinkParts { hosting, dialer, coordinator, card, spool_load, renewing, teller } = parts;
        let renewing = renewing.and_then(|by| Some((Renewal::new(card.boot, by.identity.validity()?), by)));
        Self {
            renewing,
            teller,
            hosting,
            dialer,
            coordinator,
            registration: Registration::new(card.boot),
            reports: ReportLog::default(),
            reported: ReportsVersion::default(),
            last: LastReport::default(),
            card,
            spool_load,
            began: Instant::now(),
            connection: None,
            asking: JoinSet::new(),
            answering: JoinSet::new(),
        }
    }

    /// Keeps the connection until `stop` comes; then tells the ends that have not been told, says good-bye, and answers
    /// that it has. If the sender's end goes away, that is a stop without good-bye.
    pub(crate) async fn run(mut self, stop: &mut mpsc::Receiver<SyncSender<()>>) {
        loop {
            self.look_at_certificate();
            let wake = self.registration.wake_at().map(|at| self.began + at);
            let wake = wake.into_iter().chain(self.renewal_due()).min();
            let event = tokio::select! {
                Some(told) = self.asking.join_next() => match told {
                    Ok(told) => self.told(told),
                    // Asking tasks do not panic.
                    Err(_) => Some(LinkEvent::Lost),
                },
                asked = next_request(&mut self.connection) => match asked {
                    Ok((request, responder)) => {
                        self.answer(request, responder);
                        None
                    }
                    Err(reason) => {
                        self.teller.away(&reason);
                        Some(self.lost())
                    }
                },
                Some(_) = self.answering.join_next() => None,
                () = sleep_until(wake) => Some(LinkEvent::Tick),
                stopped = stop.recv() => {
                    self.say_good_bye(stopped).await;
                    return;
                }
            };
            if let Some(event) = event
                && let Some(action) = self.registration.handle(self.began.elapsed(), event)
            {
                self.act(action);
            }
        }
    }

    fn act(&mut self, action: LinkAction) {
        match action {
            LinkAction::Dial => self.dial(),
            LinkAction::Redial => {
                self.teller.leave();
                if let Some((connection, _)) = self.connection.take() {
                    connection.close(CloseCode::Finished, "the node dials anew with its new certificate");
                }
                self.dial();
            }
            LinkAction::Register => {
                let Some((connection, _)) = &self.connection else { return };
                let (connection, register) = (connection.clone(), self.register(connection));
                self.last.address.clone_from(&register.address);
                // Task: call of the link.
                self.asking.spawn(async move {
                    let answer = connection.call(register, ANSWER_DEADLINE).await;
                    CallResult::Registered(connection.id(), answer)
                });
            }
            LinkAction::Beat { number } => {
                if self.has_moved()
                    && let Some(action) = self.registration.handle(self.began.elapsed(), LinkEvent::Moved)
                {
                    return self.act(action);
                }
                self.beat(number);
            }
            LinkAction::Drop => {
                self.teller.leave();
                if let Some((connection, _)) = self.connection.take() {
                    connection.close(CloseCode::Finished, "the node dials anew");
                    self.hosting.figures.coordinator_lost.add(1);
                }
            }
        }
    }

    fn dial(&mut self) {
        let (dialer, coordinator) = (Arc::clone(&self.dialer), self.coordinator.clone());
        // Task: call of the link.
        self.asking.spawn(async move {
            CallResult::Dialled(dialer.dial(&coordinator, &Expected::COORDINATOR, None).await)
        });
    }

    /// Asks for the next certificate when that is due, and notices a certificate that somebody has put there.
    fn look_at_certificate(&mut self) {
        let Some((renewal, by)) = &mut self.renewing else { return };
        let now = since_1970();
        let held = by.identity.validity().filter(|held| *held != renewal.validity());
        if let Some(held) = held {
            renewal.handle(now, RenewalEvent::Given(held));
        }
        let Some(connection) = self.teller.joined() else { return };
        if renewal.handle(now, RenewalEvent::Tick) == Some(RenewalAction::Ask) {
            let by = by.clone();
            // Task: call of the link.
            self.asking.spawn(async move { CallResult::Renewed(by.renew(connection).await) });
        }
    }

    /// Returns the time at which the next certificate is due, if the node renews it itself.
    fn renewal_due(&self) -> Option<Instant> {
        let due = self.renewing.as_ref()?.0.wake_at()?;
        self.teller.joined()?;
        Some(Instant::now() + due.saturating_sub(since_1970()))
    }

    fn renewed(&mut self, given: Result<Validity, JoinError>) -> Option<LinkEvent> {
        let (renewal, _) = self.renewing.as_mut()?;
        match given {
            Ok(validity) => {
                renewal.handle(since_1970(), RenewalEvent::Given(validity));
                self.teller.renewed();
                Some(LinkEvent::Renewed)
            }
            Err(error) => {
                renewal.handle(since_1970(), RenewalEvent::Failed);
                self.teller.renewal_failed(&crate::causes::with_causes(&error));
                None
            }
        }
    }

    fn beat(&mut self, number: u64) {
        let Some(connection) = self.connection.as_ref().map(|(connection, _)| connection.clone()) else {
            return;
        };
        let believed =
            connection.certificate().map_or(Ok(()), |shown| shown.certify(SystemTime::now()).map(drop));
        if let Err(why) = believed {
            // The next look at what is asked finds it gone.
            return connection.close(CloseCode::Refused, &why.to_string());
        }
        self.last.beat = number;
        let (heartbeat, more) = self.heartbeat(number);
        // Task: call of the link.
        self.asking.spawn(async move {
            let told = Beat { ends: heartbeat.ended.clone(), since: heartbeat.changes.since, more };
            let taken = connection.call(heartbeat, ANSWER_DEADLINE).await;
            CallResult::Beat { connection: connection.id(), told, taken }
        });
    }

    /// Makes the next heartbeat. Returns it, and whether there is more to say than fits.
    fn heartbeat(&mut self, number: u64) -> (Heartbeat, bool) {
        let measured = self.hosting.weigh();
        // Before the load, which counts what they had recorded.
        let standings = self.hosting.standings();
        let mut load = self.hosting.load();
        (self.spool_load)(&mut load);
        // Reports before ends: a session that ends in between is told as over, which is taken in last.
        if let Some(reports) = self.hosting.reports_since(&mut self.reported) {
            self.reports.update(reports);
        }
        let changes = self.reports.changes(MAX_HEARTBEAT_REPORTS);
        let (ended, all_ends) = self.hosting.ends();
        let more = changes.more || !all_ends;
        let (unfit, draining) = (self.hosting.unfit(), self.hosting.is_draining());
        let connecting = self.hosting.connecting();
        (Heartbeat { number, load, changes, ended, unfit, draining, measured, connecting, standings }, more)
    }

    fn register(&self, connection: &Connection) -> Register {
        let card = self.card.clone();
        Register {
            node: card.node,
            boot: card.boot,
            address: self.address(connection),
            attach: card.attach,
            capacity: card.capacity,
            threads: card.threads,
            labels: card.labels,
            envs: card.envs,
            kinds: card.kinds,
            budget: card.budget,
            term: self.hosting.newest_term(),
            seen: self.hosting.seen(),
            program: card.program,
        }
    }

    /// Returns the address at which owners reach the node now.
    fn address(&self, connection: &Connection) -> String {
        let Card { advertise, listen, .. } = &self.card;
        advertise.clone().unwrap_or_else(|| reached_at(*listen, connection.peer().address).to_string())
    }

    /// Returns whether owners reach the node at another address than the coordinator was told. The connection to it
    /// survives that, as QUIC does.
    fn has_moved(&self) -> bool {
        let Some((connection, _)) = &self.connection else { return false };
        let address = self.address(connection);
        let moved = address != self.last.address;
        if moved {
            info!("reached at {address} from now on, it was {}", self.last.address);
        }
        moved
    }

    fn told(&mut self, told: CallResult) -> Option<LinkEvent> {
        let current = self.connection.as_ref().map(|(connection, _)| connection.id());
        match told {
            CallResult::Dialled(Ok(connection)) => {
                let figures = Arc::clone(&self.hosting.figures);
                let requests = connection.requests();
                let requests =
                    requests.telling(Arc::new(move |word, _| figures.refusals.add(word, Role::Coordinator)));
                self.connection = Some((connection, requests));
                Some(LinkEvent::Connected)
            }
            CallResult::Dialled(Err(error)) => {
                self.teller.away(&crate::causes::with_causes(&error));
                Some(match error {
                    DialError::PortClosed { .. } => LinkEvent::PortClosed,
                    _ => LinkEvent::Lost,
                })
            }
            CallResult::Renewed(given) => self.renewed(given),
            // Of a connection that was given up meanwhile.
            CallResult::Registered(of, _) | CallResult::Beat { connection: of, .. }
                if current != Some(of) =>
            {
                None
            }
            CallResult::Registered(_, Ok(registered)) => {
                let coordinator = SeenTerm { term: registered.term, boot: registered.boot };
                match self.hosting.joined(coordinator) {
                    Ok(true) => self.hosting.keep_seen(),
                    Ok(false) => {}
                    Err(outdated) => {
                        self.teller.away(&outdated.to_string());
                        return Some(LinkEvent::Lost);
                    }
                }
                let connection = self.connection.as_ref().map(|(connection, _)| connection.clone());
                self.teller.join(registered.term, connection);
                self.reports.begin(registered.known);
                Some(LinkEvent::Registered { heartbeat: Duration::from_millis(registered.heartbeat_ms) })
            }
            CallResult::Beat { told, taken: Ok(taken), .. } => {
                self.reports.acknowledge(told.since, taken.known);
                self.hosting.acknowledge(&told.ends);
                self.close(taken.close);
                if taken.drain {
                    self.hosting.drain();
                } else if taken.undrain {
                    self.hosting.undrain();
                }
                Some(LinkEvent::Taken { number: taken.number, more: told.more })
            }
            CallResult::Registered(_, Err(error)) | CallResult::Beat { taken: Err(error), .. } => {
                self.teller.away(&error.to_string());
                Some(self.lost())
            }
        }
    }

    /// Returns how the connection was lost.
    fn lost(&self) -> LinkEvent {
        match self.connection.as_ref().and_then(|(connection, _)| connection.lost()) {
            Some(ConnectionLost::PortClosed) => LinkEvent::PortClosed,
            _ => LinkEvent::Lost,
        }
    }

    /// Ends sessions that the coordinator wants ended; their ends are told with the next beats.
    fn close(&mut self, sessions: Vec<CloseSession>) {
        for CloseSession { session, incarnation } in sessions {
            let hosting = Arc::clone(&self.hosting);
            // Task: call of the link.
            self.answering.spawn(async move {
                let detail = "the coordinator does not want it any more".to_owned();
                hosting.end(session, incarnation, Gone { cause: EndCause::Closed, detail }).await;
            });
        }
    }

    /// Does what the coordinator asks. At most as many requests run at a time as the connection lets be unanswered.
    fn answer(&mut self, request: Request, responder: Responder) {
        let hosting = Arc::clone(&self.hosting);
        let coordinator = self.connection.as_ref().map(|(connection, _)| connection.clone());
        let span = responder.span(&request);
        let (began, word, call) = (Instant::now(), request.word(), responder.call());
        let answered = async move {
            // Whether the coordinator still wants to hear it is its affair.
            let _told = match request {
                Request::OpenSession(open) => {
                    let opened = hosting.open(&open, coordinator.as_ref()).await;
                    if opened.is_ok() {
                        let OpenSession { session, lanes, owner, .. } = &open;
                        info!("session {session} of {lanes} lanes is open for `{owner}`");
                    }
                    responder.respond(counted(&hosting.figures, opened)).await
                }
                Request::CloseSession(close) => {
                    let closed = hosting.close(&close).await;
                    responder.respond(counted(&hosting.figures, closed)).await
                }
                Request::AdmitWatcher(admit) => {
                    let admitted = hosting.admit_watcher(&admit);
                    responder.respond(counted(&hosting.figures, admitted)).await
                }
                other => {
                    let message = format!("a node does not answer {} of its coordinator", other.word());
                    let refused: Result<(), _> = Err(Refusal::new(RefusalCode::Unsupported, message));
                    responder.respond(counted(&hosting.figures, refused)).await
                }
            };
            hosting.figures.calls.note(word, call, began.elapsed(), SystemTime::now());
        };
        // Task: call of the link.
        self.answering.spawn(answered.instrument(span));
    }

    async fn say_good_bye(&mut self, said: Option<SyncSender<()>>) {
        let connection = self.connection.as_ref().map(|(connection, _)| connection.clone());
        if let (Some(said), Some(connection)) = (said, connection) {
            let (heartbeat, _) = self.heartbeat(self.last.beat + 1);
            // Ends that are not told now are told by the sessions' absence.
            let _told = connection.call(heartbeat, GOOD_BYE).await;
            connection.close(CloseCode::ShuttingDown, "the node is going away");
            let _delivered = tokio::time::timeout(GOOD_BYE, self.dialer.closed()).await;
            // Whoever stops the node may have lost patience.
            let _said = said.try_send(());
        }
    }
}

fn counted<T>(figures: &NodeFigures, answer: Result<T, Refusal>) -> Result<T, Refusal> {
    answer.inspect_err(|refusal| {
        figures.refusals.add(refusal.code.word(), Role::Coordinator);
        warn!(code = refusal.code.word(), "refused a request of the coordinator: {refusal}");
    })
}

/// Waits for the coordinator's next request, for ever while there is no connection. Cancellation-safe.
async fn next_request(
    connection: &mut Option<(Connection, Requests)>,
) -> Result<(Request, Responder), String> {
    match connection {
        Some((_, requests)) => requests.next().await.map_err(|lost| lost.to_string()),
        None => std::future::pending().await,
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Returns the address at which a node that listens on `listen` is reached from near the coordinator: that address, or
/// if it listens on all, the one from which the coordinator is reached.
fn reached_at(listen: SocketAddr, coordinator: SocketAddr) -> SocketAddr {
    if !listen.ip().is_unspecified() {
        return listen;
    }
    let any = match coordinator {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    // The kernel knows without a packet being sent.
    let ours = UdpSocket::bind(SocketAddr::new(any, 0)).and_then(|socket| {
        socket.connect(coordinator)?;
        socket.local_addr()
    });
    SocketAddr::new(ours.map_or(listen.ip(), |ours| ours.ip()), listen.port())
}

/// Time for a coordinator to hear that the node goes away.
const GOOD_BYE: Duration = Duration::from_secs(1);
