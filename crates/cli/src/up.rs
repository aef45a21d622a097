//! `rollhouse up`: runs a coordinator and a node in one process, and makes all files that they need.
//!
//! ```text
//! DATA/ca/           the authority, which signs further nodes, too
//! DATA/coordinator/  term, tokens, store; tls/; what further nodes are let in by
//! DATA/node/         spool; tls/
//! DATA/connection    the connection string; with its token (0600)
//! DATA/held          locked while a cluster runs here, by the process whose id is in it
//! ```

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rollhouse_client::Address;
use rollhouse_config::{LocalConfig, Tls};
use rollhouse_coordinator::Coordinator;
use rollhouse_core::{lock_refused, open_regular_with, read_regular_text};
use rollhouse_node::{ClusterNode, ClusterNodeConfig};
use rollhouse_wire::{CertificateAuthority, Identity, NewToken, NodeIssuer, Role, TokenStore};

use crate::args::UpArgs;
use crate::certs::{authority_failure, write_identity, write_private};
use crate::connect::{CONNECTION, MAX_CONNECTION_BYTES};
use crate::coordinator::{self, Again, CoordinatorWatch};
use crate::failure::{Failure, Status};
use crate::human::{Count, counted};
use crate::logging::Logging;
use crate::node::{self, NodeWatch};
use crate::output::{Output, say};
use crate::private_folder::{cannot_write, private_folder};
use crate::python_envs;
use crate::service::{self, PROGRAM, listen_for_metrics, serve_metrics, until_ended};
use crate::settings::{self, Live};
use crate::{signals, token};

pub(crate) fn run(args: &UpArgs, out: &mut Output) -> Result<Status, Failure> {
    let flags = [("--data", "local.data", &args.data)];
    let settings = settings::live::<LocalConfig>(&args.service, &flags)?;
    let logging = Logging::begin("rollhouse-up", &settings.config.log, &settings.config.traces)?;
    let done = serve(settings, args.python.as_ref(), &logging, out);
    logging.end(done)
}

fn serve(
    mut settings: Live<LocalConfig>,
    python: Option<&OsString>,
    logging: &Logging,
    out: &mut Output,
) -> Result<Status, Failure> {
    let mut config = settings.config.clone();
    if config.hosting.python.interpreter.is_none() {
        let own = python.and_then(|python| python.to_str()).map(str::to_owned);
        config.hosting.python.interpreter = own.or_else(python_envs::of_path);
    }
    let asked = signals::of_service()?;
    let _held = hold(&config.data)?;
    // Until the node has ended.
    let _engine = python_envs::engine_of_node(&config.hosting.openra)?;
    let listeners = [
        listen_for_metrics(config.metrics.coordinator, "metrics.coordinator"),
        listen_for_metrics(config.metrics.node, "metrics.node"),
    ];
    let [ours, of_node] =
        listeners.map(|listener| listener.map_err(|failure| failure.hint(beside(&config.data))));
    let listeners = [ours?, of_node?];
    let Local { coordinator, again, node, connection, lanes, threads, joined, folders } =
        Local::start(&config)?;
    if !joined {
        say("note: the node has not joined its coordinator yet; it goes on trying");
    }
    let served = Arc::new(CoordinatorWatch::new(coordinator, again));
    let hosting = Arc::new(NodeWatch::new(node, lanes).passing_over_the_present());
    let [ours, of_node] = listeners;
    let metrics = [
        serve_metrics(ours, vec![served.clone()], served.clone())?,
        serve_metrics(of_node, vec![hosting.clone()], hosting.clone())?,
    ];

    writeln!(out, "{connection}")?;
    out.flush()?;
    greet(&config, &folders, lanes, threads);
    until_ended(&asked, logging, &[&*served, &*hosting], || {
        if asked.wants_reread() {
            settings.reread(logging);
            served.reread();
            hosting.reread();
        }
        served.look() || hosting.look()
    });
    let stopped = hosting.stop();
    let ended = served.stop();
    drop(metrics);
    stopped.and(ended)
}

/// Takes the folder for this process, until the file is dropped.
///
/// # Errors
/// If another process has it: the failure says which, how to look at its cluster, and how to start one beside it.
fn hold(data: &Path) -> Result<File, Failure> {
    private_folder(data)?;
    let path = data.join(HELD);
    let failure = |error: io::Error| cannot_write(&path, &error);
    let mut open = OpenOptions::new();
    open.create(true).truncate(false).write(true).mode(0o600);
    let mut file = open_regular_with(&mut open, &path).map_err(failure)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = read_regular_text(&path, MAX_CONNECTION_BYTES).unwrap_or_default();
            let (data_shown, connection) = (data.display(), data.join(CONNECTION));
            let message =
                format_args!("a cluster runs here already, as process {}, in {data_shown}", holder.trim());
            return Err(Failure::new(Status::Refused, message)
                .hint(format_args!("it is shown by: rollhouse status --connect {}", connection.display()))
                .hint("Ctrl-C where it was started ends it")
                .hint(beside(data)));
        }
        Err(TryLockError::Error(error)) => return Err(failure(lock_refused(error))),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failure)?;
    Ok(file)
}

/// Returns the sentence that says how a second cluster is started on this machine.
fn beside(data: &Path) -> String {
    let free = ["coordinator.listen", "node.listen", "metrics.coordinator", "metrics.node"];
    let free: Vec<String> = free.iter().map(|key| format!("--set {key}=127.0.0.1:0")).collect();
    format!("one beside it is started by: rollhouse up --data {}-2 {}", data.display(), free.join(" "))
}

/// A coordinator and a node that were started together, with the string that connects to them.
pub struct Local {
    // Dropped in this order.
    /// The node.
    pub node: ClusterNode,
    /// Its coordinator.
    pub coordinator: Coordinator,
    /// Starts another coordinator in its place.
    again: Again,
    /// The connection string, with a token that allows everything.
    pub connection: String,
    /// Number of lanes that the node takes.
    pub lanes: u32,
    /// Number of threads on which it steps.
    pub threads: usize,
    /// Whether the node has reached its coordinator; if not, it goes on trying.
    pub joined: bool,
    folders: Folders,
}

impl Local {
    /// Makes the missing files in the data folder and starts both. Waits at most 10 s for the node to join.
    pub fn start(config: &LocalConfig) -> Result<Self, Failure> {
        let folders = Folders::of(&config.data);
        private_folder(&config.data)?;
        let authority = folders.authority()?;
        let again = coordinator_in(config, &folders, &authority)?;
        let coordinator = again(config.listen.coordinator, config.least_term.0)?;
        let reached = reachable(coordinator.address());
        let started = node_config(config, &folders, &authority, reached)?;
        let (lanes, threads) = (started.stepping.capacity, started.stepping.threads.get());
        let node = node::start(started)?;
        let joined = node.wait_joined(JOIN_DEADLINE);
        let connection = folders.connection(reached, &authority)?;
        Ok(Self { node, coordinator, again, connection, lanes, threads, joined, folders })
    }
}

/// Returns the function that starts the coordinator, as often as it has to be started.
fn coordinator_in(
    config: &LocalConfig,
    folders: &Folders,
    authority: &CertificateAuthority,
) -> Result<Again, Failure> {
    let identity = folders.identity(authority, Role::Coordinator, &folders.coordinator)?;
    let quic = service::quic(&config.network, &folders.coordinator)?;
    let (data, store) = (folders.coordinator.clone(), config.store.clone());
    let enrolment = coordinator::enrolment(&config.enrolment, &data);
    folders.issuer(authority, &enrolment.issuer)?;
    Ok(Box::new(move |listen, least| {
        coordinator::start((listen, least), &data, Arc::clone(&identity), enrolment.clone(), &store, quic)
    }))
}

fn node_config(
    config: &LocalConfig,
    folders: &Folders,
    authority: &CertificateAuthority,
    coordinator: SocketAddr,
) -> Result<ClusterNodeConfig, Failure> {
    let identity = folders.identity(authority, Role::Node, &folders.node)?;
    let mut started = ClusterNodeConfig::new(identity, coordinator.to_string(), PROGRAM);
    started.serving.listen = config.listen.node;
    node::configure(
        &mut started,
        &config.worker,
        &config.spool,
        service::quic(&config.network, &folders.node)?,
        &folders.node,
    )?;
    started.serving.attach = node::attach_socket(&config.attach, &folders.node)?;
    node::host_envs(&mut started, &config.worker, &config.hosting, &config.budget)?;
    Ok(started)
}

/// Prints what a newcomer can do next, to stderr, beside the one line of data.
fn greet(config: &LocalConfig, folders: &Folders, lanes: u32, threads: usize) {
    let connection = folders.connection.display();
    let (lanes, threads) = (Count(lanes.into()), counted(threads as u64, "thread"));
    say(&format!(
        "\na coordinator and a node run here: {lanes} lanes on {threads}, everything in {}",
        config.data.display()
    ));
    say(&format!("the line above connects to it and allows everything; it is kept in {connection}\n"));
    say("try in another terminal:");
    say(&format!("  rollhouse rollout --connect {connection} --env CartPole-v1 --lanes 64 --episodes 1000"));
    if config.hosting.python.interpreter.is_some()
        && config.hosting.python.allow.0.iter().any(|name| name == "gymnasium")
    {
        say(&format!(
            "  rollhouse rollout --connect {connection} --env gymnasium:CartPole-v1 --episodes 1000"
        ));
    } else if config.hosting.python.interpreter.is_none() {
        say(
            "  Python envs: python3 here has no rollhouse and Gymnasium; python.interpreter names one that has",
        );
    }
    say(&format!("  rollhouse status --connect {connection}"));
    say("\nCtrl-C ends it; recordings are kept, and the next `rollhouse up` here goes on with them");
}

/// The paths below the data folder.
struct Folders {
    authority: PathBuf,
    coordinator: PathBuf,
    node: PathBuf,
    connection: PathBuf,
}

impl Folders {
    fn of(data: &Path) -> Self {
        Self {
            authority: data.join("ca"),
            coordinator: data.join("coordinator"),
            node: data.join("node"),
            connection: data.join(CONNECTION),
        }
    }

    /// Returns the authority, which is made if there is none.
    fn authority(&self) -> Result<CertificateAuthority, Failure> {
        private_folder(&self.authority)?;
        let made = self.authority.join(rollhouse_wire::CA_CERTIFICATE).exists();
        let authority = match made {
            true => CertificateAuthority::load(&self.authority),
            false => CertificateAuthority::create(&self.authority, AUTHORITY_VALIDITY),
        };
        authority.map_err(authority_failure)
    }

    /// Returns the identity of one of the two, which is made if there is none that holds for long enough.
    fn identity(
        &self,
        authority: &CertificateAuthority,
        role: Role,
        folder: &Path,
    ) -> Result<Arc<Identity>, Failure> {
        let load = || service::identity(&Tls::default(), folder, role.word());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if let Ok(identity) = load()
            && identity.validity().is_some_and(|validity| validity.left(now) > RENEW_BEFORE)
        {
            return Ok(identity);
        }
        write_identity(authority, role, NAME, VALIDITY, &folder.join("tls"))?;
        load()
    }

    /// Makes the issuer that lets further nodes in, if there is none that holds for long enough.
    fn issuer(&self, authority: &CertificateAuthority, path: &Path) -> Result<(), Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let holds = NodeIssuer::load(path).is_ok_and(|issuer| issuer.validity().left(now) > RENEW_BEFORE);
        if !holds {
            if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                private_folder(folder)?;
            }
            NodeIssuer::create(authority, AUTHORITY_VALIDITY, path).map_err(authority_failure)?;
        }
        Ok(())
    }

    /// Returns the connection string, which is also kept in its file. The token in the file is used again as long as it
    /// holds: a string that was copied from an earlier run stays valid.
    fn connection(&self, address: SocketAddr, authority: &CertificateAuthority) -> Result<String, Failure> {
        let tokens = token::open(&self.coordinator)?;
        let kept = read_regular_text(&self.connection, MAX_CONNECTION_BYTES).ok();
        let kept = kept.and_then(|line| line.trim().parse::<Address>().ok()?.token);
        let token = match kept.filter(|token| tokens.authenticate(token, SystemTime::now()).is_ok()) {
            Some(token) => token,
            None => make_token(&tokens)?,
        };
        let line = format!("rollhouse://{address}?token={token}&ca={}", authority.fingerprint());
        write_private(&self.connection, &format!("{line}\n"))?;
        Ok(line)
    }
}

fn make_token(tokens: &TokenStore) -> Result<String, Failure> {
    let new = NewToken {
        name: NAME.to_owned(),
        role: Role::Admin,
        max_lanes: None,
        reads: None,
        lifetime: None,
        join: None,
    };
    Ok(tokens.create(&new, SystemTime::now()).map_err(token::failure)?.1)
}

/// Returns the address at which this machine reaches a listener at that address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// The file that a process holds locked while its cluster runs in the folder, with the process's id in it.
const HELD: &str = "held";

/// The name of the node, the coordinator and the token.
const NAME: &str = "local";

const AUTHORITY_VALIDITY: Duration = Duration::from_secs(3650 * 86_400);
const VALIDITY: Duration = Duration::from_secs(365 * 86_400);
/// Remaining time below which certificates are made anew at a start.
const RENEW_BEFORE: Duration = Duration::from_secs(90 * 86_400);
/// Time to wait for the node before saying that it has not joined.
const JOIN_DEADLINE: Duration = Duration::from_secs(10);
