//! `rollhouse doctor`: checks whether a machine has what a service needs, and says what to change.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rollhouse_config::{CoordinatorConfig, HostPort, NodeConfig, Tls};
use rollhouse_wire::limits::MAX_ATTACH_PATH_BYTES;
use rollhouse_wire::{Dialer, Expected, Identity, NodeIssuer, Settings};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use crate::args::{DoctorArgs, DoctorRole};
use crate::failure::{Failure, Status};
use crate::human::{Bytes, Time, counted};
use crate::joining::{self, Standing};
use crate::output::Output;
use crate::service::{self, PROGRAM};
use crate::settings;
use crate::store_room::free_bytes;
use crate::table::{Align, Table};

/// Checks the machine. Ends with [`Status::Found`] if something would keep the service from working.
pub(crate) fn run(args: &DoctorArgs, out: &mut Output) -> Result<Status, Failure> {
    let mut findings = match args.role {
        DoctorRole::Coordinator => of_coordinator(&settings::of_service(&args.service, &[])?.config),
        DoctorRole::Node => of_node(&settings::of_service(&args.service, &[])?.config),
    };
    findings.extend(of_machine());
    let mut table = Table::new(&[("WHAT", Align::Left), ("FOUND", Align::Left), ("", Align::Left)]);
    for finding in &findings {
        if args.json {
            out.json(finding)?;
        } else {
            table.row(vec![finding.what.to_owned(), finding.found.word().to_owned(), finding.words.clone()]);
        }
    }
    if !args.json {
        table.write(out)?;
    }
    let wrong = findings.iter().any(|finding| finding.found == Found::Wrong);
    Ok(if wrong { Status::Found } else { Status::Done })
}

/// The result of one check; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    found: Found,
    words: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Found {
    /// It is as it should be.
    Well,
    /// The service works, and would work better otherwise.
    Better,
    /// The service does not work in this way.
    Wrong,
}

impl Found {
    const fn word(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Better => "could be better",
            Self::Wrong => "wrong",
        }
    }
}

fn well(what: &'static str, words: impl Into<String>) -> Finding {
    Finding { what, found: Found::Well, words: words.into() }
}

fn better(what: &'static str, words: impl Into<String>) -> Finding {
    Finding { what, found: Found::Better, words: words.into() }
}

fn wrong(what: &'static str, words: impl Into<String>) -> Finding {
    Finding { what, found: Found::Wrong, words: words.into() }
}

fn of_coordinator(config: &CoordinatorConfig) -> Vec<Finding> {
    let kept = config.store.budget.0.saturating_add(config.store.quarantine.0);
    let mut findings = vec![folder(&config.data, kept, "store.budget and store.quarantine")];
    findings.extend(certificate(&config.tls, &config.data, "coordinator").1);
    findings.push(issuer(&crate::coordinator::enrolment(&config.enrolment, &config.data).issuer));
    findings.extend(ports(config.listen, config.metrics));
    findings.extend(config.metrics.and_then(running));
    findings
        .extend(config.metrics.map(|listen| nodes(&crate::health::gauges(listen, "rollhouse_unfit_nodes"))));
    findings
}

fn of_node(config: &NodeConfig) -> Vec<Finding> {
    let mut findings = vec![folder(&config.data, config.spool.limit.0, "spool.limit")];
    let (identity, found) = node_certificate(config);
    findings.extend(found);
    findings.extend(ports(config.listen, config.metrics));
    findings.extend(config.metrics.and_then(running));
    findings.extend(identity.map(|(identity, address)| coordinator(identity, &address)));
    findings.push(advertised(config));
    findings
        .extend(config.metrics.and_then(|listen| trouble(&crate::health::gauges(listen, "rollhouse_unfit"))));
    if config.attach.enabled {
        findings.push(attach(config.attach.path.as_deref().unwrap_or(&config.data.join("attach.sock"))));
    }
    findings
}

/// Checks what every service needs of a machine.
fn of_machine() -> Vec<Finding> {
    let buffers = ["rmem_max", "wmem_max"].map(|name| buffer(&format!("net.core.{name}"), name));
    buffers.into_iter().flatten().chain([descriptors(), clock()]).collect()
}

/// Checks for a folder that can be written, on a disk with room for what is kept there.
fn folder(data: &Path, kept: u64, keys: &str) -> Finding {
    let what = "data folder";
    let shown = data.display();
    // One that is not there yet is made in the nearest one that is.
    let mut above =
        data.ancestors().map(|path| if path.as_os_str().is_empty() { Path::new(".") } else { path });
    let Some(there) = above.find(|path| path.is_dir()) else {
        return wrong(what, format!("{shown} cannot be made"));
    };
    let probe = there.join(format!(".rollhouse-doctor-{}", std::process::id()));
    if let Err(error) = fs::write(&probe, b"") {
        return wrong(what, format!("{} cannot be written: {error}", there.display()));
    }
    // It was there a moment ago.
    let _removed = fs::remove_file(&probe);
    let free = match free_bytes(there) {
        Ok(free) => free,
        Err(error) => return wrong(what, format!("{}: {error}", there.display())),
    };
    let used = folder_bytes(data);
    if free.saturating_add(used) < kept {
        let words = format!(
            "{shown} has {} free for {} of {keys}: set them lower, or the disk is full before the oldest goes",
            Bytes(free),
            Bytes(kept)
        );
        return better(what, words);
    }
    well(what, format!("{shown} can be written, {} free", Bytes(free)))
}

/// Returns the bytes of the files in a folder and below; files that cannot be read count as nothing.
fn folder_bytes(folder: &Path) -> u64 {
    let mut bytes = 0;
    let mut waiting = vec![folder.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(of) if of.is_dir() => waiting.push(entry.path()),
                Ok(of) => bytes += of.len(),
                Err(_) => {}
            }
        }
    }
    bytes
}

/// Returns the identity of a node, which may have joined, with its coordinator, and the findings about it.
fn node_certificate(config: &NodeConfig) -> (Option<(Arc<Identity>, String)>, Vec<Finding>) {
    let what = "certificate";
    let (identity, joined) = match joining::standing(config) {
        Ok(Standing::Certified) => (service::identity(&config.tls, &config.data, "node"), None),
        Ok(Standing::Joined(folder)) => {
            let loaded = folder.load().map_err(|error| Failure::of(Status::Usage, &error));
            (loaded, Some(folder))
        }
        Ok(Standing::Joins(folder, _)) => {
            return match joining::will_join(config, folder.path()) {
                Ok(words) => (None, vec![well(what, words)]),
                Err(failure) => (None, vec![wrong(what, failure.message())]),
            };
        }
        Err(failure) => return (None, vec![wrong(what, failure.message())]),
    };
    let (identity, findings) = certificate_of(identity, "node");
    (identity.map(|identity| (identity, joining::coordinator(config, joined.as_ref()))), findings)
}

/// Checks the issuer with which a coordinator lets nodes in.
fn issuer(path: &Path) -> Finding {
    let what = "issuer of nodes";
    if !path.exists() {
        return well(what, "none: join tokens let nobody in, `rollhouse certs issuer` changes that");
    }
    match NodeIssuer::load(path) {
        Ok(issuer) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            match issuer.validity().left(now).as_secs() / DAY {
                0 => {
                    wrong(what, "it has expired or does within a day: `rollhouse certs issuer` makes another")
                }
                left if left < SOON_DAYS => {
                    better(what, format!("it, and what it signs, expires in {}", counted(left, "day")))
                }
                left => well(what, format!("{}, holds {}", path.display(), counted(left, "day"))),
            }
        }
        Err(error) => wrong(what, Failure::of(Status::Usage, &error).message()),
    }
}

fn certificate(tls: &Tls, data: &Path, role: &str) -> (Option<Arc<Identity>>, Vec<Finding>) {
    certificate_of(service::identity(tls, data, role), role)
}

/// Returns the identity, if it can be loaded, and the findings about it.
fn certificate_of(
    identity: Result<Arc<Identity>, Failure>,
    role: &str,
) -> (Option<Arc<Identity>>, Vec<Finding>) {
    let what = "certificate";
    let identity = match identity {
        Ok(identity) => identity,
        Err(failure) => return (None, vec![wrong(what, failure.message())]),
    };
    let Some((of, validity)) = identity.certified().zip(identity.validity()) else {
        return (None, vec![wrong(what, "it has neither role nor name")]);
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let left = validity.left(now).as_secs() / DAY;
    let whose = format!("of the {} `{}`", of.role.word(), of.name);
    let finding = if of.role.word() != role {
        wrong(what, format!("{whose}; a {role} needs one of its own role"))
    } else if i64::try_from(now.as_secs()).is_ok_and(|now| now < validity.not_before) {
        wrong(what, format!("{whose}, which does not hold yet: is the clock right?"))
    } else if left == 0 {
        wrong(
            what,
            format!("{whose}, which has expired or does within a day: `rollhouse certs issue` makes another"),
        )
    } else if left < SOON_DAYS {
        better(what, format!("{whose}, which expires in {}", counted(left, "day")))
    } else {
        well(what, format!("{whose}, holds {}", counted(left, "day")))
    };
    (Some(identity), vec![finding])
}

/// Checks whether the ports are free, or taken by a service that answers as ours do.
fn ports(listen: SocketAddr, metrics: Option<SocketAddr>) -> Vec<Finding> {
    let runs = metrics.is_some_and(crate::health::lives);
    let of = |what, address: SocketAddr, bound: io::Result<()>| match bound {
        Ok(()) => well(what, format!("{address} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && runs => {
            well(what, format!("{address} is a running service's"))
        }
        Err(error) => wrong(what, format!("{address}: {error}")),
    };
    let udp = of("port for QUIC", listen, UdpSocket::bind(listen).map(drop));
    let tcp = metrics.map(|address| of("port for metrics", address, TcpListener::bind(address).map(drop)));
    std::iter::once(udp).chain(tcp).collect()
}

/// Asks the service that runs here already whether it takes work; `None` if none runs.
fn running(metrics: SocketAddr) -> Option<Finding> {
    let what = "running service";
    Some(match crate::health::readiness(metrics)? {
        Ok(()) => well(what, "it takes work"),
        Err(why) => wrong(what, why),
    })
}

/// Measures how long a coordinator takes to answer `Hello`.
fn coordinator(identity: Arc<Identity>, address: &str) -> Finding {
    let what = "coordinator";
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return wrong(what, format!("no event loop: {error}")),
    };
    let dialer = Dialer::new(identity, Settings::default(), PROGRAM);
    let began = Instant::now();
    let dialled = runtime.block_on(async {
        let dialled = dialer.dial(address, &Expected::COORDINATOR, None).await;
        let took = began.elapsed();
        dialled.map(|connection| (connection.figures().round_trip, took))
    });
    match dialled {
        Ok((round_trip, took)) => {
            let words = format!("{address} greets within {}, round trip {}", Time(took), Time(round_trip));
            if round_trip > FAR {
                better(what, format!("{words}: steps wait so long"))
            } else {
                well(what, words)
            }
        }
        Err(error) => {
            let failure = Failure::of(Status::Unavailable, &error);
            wrong(what, format!("{}; a node goes on dialling", failure.message()))
        }
    }
}

/// Tells what a running coordinator knows of the troubles of its nodes.
fn nodes(unfit: &[(String, f64)]) -> Finding {
    let what = "nodes";
    let troubles: Vec<String> = unfit
        .iter()
        .filter(|(_, count)| *count > 0.0)
        .map(|(reason, count)| format!("{} ({reason})", counted(*count as u64, "node")))
        .collect();
    match troubles.as_slice() {
        [] if unfit.is_empty() => well(what, "no coordinator runs here that knows of them"),
        [] => well(what, "none has a trouble"),
        _ => {
            let troubles = troubles.join(", ");
            better(
                what,
                format!("{troubles} come last or are left out: `rollhouse nodes` says which and why"),
            )
        }
    }
}

/// Tells what a running node says of a trouble of its own; no finding if it has none or does not run.
fn trouble(unfit: &[(String, f64)]) -> Option<Finding> {
    let (reason, _) = unfit.iter().find(|(_, value)| *value > 0.0)?;
    let words = format!("the running node has a trouble ({reason}): its log and `rollhouse nodes` say which");
    Some(better("node", words))
}

/// Checks the address at which owners are told to reach a node, as far as that can be known here.
fn advertised(config: &NodeConfig) -> Finding {
    let what = "address";
    let Some(HostPort(address)) = &config.advertise else {
        return well(what, "the one from which the coordinator is reached, node.advertise sets another");
    };
    match address.to_socket_addrs().map(|mut found| found.next()) {
        Ok(Some(found)) if found.ip().is_unspecified() => {
            wrong(what, format!("node.advertise is {address}, which nobody can dial"))
        }
        Ok(Some(found)) if found.ip().is_loopback() => {
            better(what, format!("node.advertise is {address}: only this machine reaches that"))
        }
        Ok(Some(_)) => well(what, format!("{address}, by node.advertise")),
        Ok(None) => wrong(what, format!("node.advertise is {address}, which has no address")),
        Err(error) => better(what, format!("node.advertise is {address}, which is not found here: {error}")),
    }
}

fn attach(path: &Path) -> Finding {
    let what = "attach socket";
    let bytes = std::path::absolute(path).map_or(0, |path| path.as_os_str().len());
    if bytes > MAX_ATTACH_PATH_BYTES {
        let most = MAX_ATTACH_PATH_BYTES;
        return better(
            what,
            format!("its path has {bytes} bytes, at most {most} are possible: set attach.path"),
        );
    }
    well(what, path.display().to_string())
}

/// Checks the buffer that the system grants a socket; no finding where it does not tell.
fn buffer(key: &str, name: &str) -> Option<Finding> {
    let what = "socket buffers";
    let text = fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?;
    let most: u64 = text.trim().parse().ok()?;
    Some(if most < WANTED_BUFFER {
        better(what, format!("{key} is {most}, and bursts are lost: `sysctl -w {key}={WANTED_BUFFER}`"))
    } else {
        well(what, format!("{key} is {most}"))
    })
}

fn descriptors() -> Finding {
    let what = "descriptors";
    match getrlimit(Resource::Nofile).current {
        Some(most) if most < WANTED_DESCRIPTORS => better(
            what,
            format!("{most} may be open, a busy service wants {WANTED_DESCRIPTORS}: `ulimit -n`"),
        ),
        Some(most) => well(what, format!("{most} may be open")),
        None => well(what, "any number may be open"),
    }
}

/// Checks the clock: one before this program was written makes certificates look as if they did not hold yet.
fn clock() -> Finding {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if now < WRITTEN {
        wrong("clock", "it is set before this program was written")
    } else {
        well("clock", "is set")
    }
}

const DAY: u64 = 86_400;
/// Days before a certificate's end at which it is reported; the log warns first at the same time.
const SOON_DAYS: u64 = 30;
/// Bytes of a socket's buffer: what `network.socket_buffer` asks for.
const WANTED_BUFFER: u64 = 8 << 20;
/// Number of descriptors: a session costs none, a connection by shared memory a few; segments that are read cost one
/// each.
const WANTED_DESCRIPTORS: u64 = 4096;
/// Round trip above which a coordinator is far away: further than another machine room of the same region.
const FAR: Duration = Duration::from_millis(20);
/// The start of 2026, in seconds since 1970.
const WRITTEN: u64 = 1_767_225_600;
