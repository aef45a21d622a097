//! A cluster of processes of this program, a coordinator and nodes, which are started, killed, paused and started
//! again.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rollhouse_cli::certs::{authority_failure, write_identity};
use rollhouse_cli::failure::{Failure, Status};
use rollhouse_cli::private_folder::private_folder;
use rollhouse_cli::token;
use rollhouse_wire::{CertificateAuthority, NewToken, Role};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};

use super::addresses::address_to_keep;
use super::audit::Held;
use super::backups::Backups;
use super::links::Links;
use super::logged::{COORDINATOR, log_of, spawn};
use super::plan::{Link, Target};
use super::sleepers::{PACKAGE, write_package};
use crate::failed::failed;
use crate::itself;

/// The processes of a cluster. Killed when dropped.
pub(super) struct Processes {
    folder: PathBuf,
    pub(super) backups: Backups,
    coordinator: Service,
    nodes: Vec<Service>,
    /// The address at which the coordinator listens.
    address: String,
    /// The rest of the connection string, with a token that allows everything.
    credentials: String,
    /// The rest of the connection strings of trainers, each with a token of its own.
    of_trainers: Vec<String>,
    /// Fingerprint of the authority.
    authority: String,
}

/// One process, which comes back at the same address.
struct Service {
    name: String,
    child: Child,
    arguments: Vec<String>,
    /// Arguments of the next start alone.
    once: Vec<String>,
    /// The folder in which Python packages are found, if it hosts Python envs.
    packages: Option<PathBuf>,
    /// The time at which it is to be started or woken.
    due: Option<(Instant, Away)>,
    /// The time until which its disk is full.
    full: Option<Instant>,
    /// The time at which it was last started.
    started: Instant,
    /// Whether its disk was full while it started; then the start may fail.
    started_full: bool,
    /// Whether its disk was full since it was started: at its end it then reports what was not recorded, which is
    /// counted apart.
    was_full: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Away {
    Killed,
    Paused,
}

impl Processes {
    /// Makes an authority, certificates and tokens, starts all processes, and waits until the nodes have joined. They
    /// and the trainer reach each other by `links`. There is one more token for each of the quotas of lanes.
    /// With an interpreter, nodes host the envs of [`sleepers`](super::sleepers), too.
    pub(super) fn start(
        folder: &Path,
        nodes: usize,
        quotas: &[u32],
        links: &Links,
        python: Option<&Path>,
    ) -> Result<Self, Failure> {
        let authority_folder = folder.join("ca");
        private_folder(&authority_folder)?;
        let authority =
            CertificateAuthority::create(&authority_folder, VALIDITY).map_err(authority_failure)?;
        let identity = |role, name: &str| {
            let data = folder.join(name);
            private_folder(&data)?;
            write_identity(&authority, role, name, VALIDITY, &data.join("tls"))
        };
        identity(Role::Coordinator, COORDINATOR)?;
        let tokens = token::open(&folder.join(COORDINATOR))?;
        let create = |name: String, role, max_lanes| {
            let new = NewToken { name, role, max_lanes, reads: None, lifetime: None, join: None };
            Ok(tokens.create(&new, std::time::SystemTime::now()).map_err(token::failure)?.1)
        };
        let token = create("chaos".to_owned(), Role::Admin, None)?;
        let trainer =
            |(index, &lanes): (usize, &u32)| create(format!("trainer-{index}"), Role::Trainer, Some(lanes));
        let of_trainers = quotas.iter().enumerate().map(trainer).collect::<Result<Vec<_>, Failure>>()?;

        let line = |address: &str| {
            let listen = format!("coordinator.listen={address}");
            arguments(&["coordinator", "--data", COORDINATOR, "--set", &listen])
        };
        let address = address_to_keep().map_err(failed)?.to_string();
        let mut coordinator = Service::start(folder, COORDINATOR, line(&address), None)?;
        coordinator.printed(folder, "listens on ")?;
        lead(links, Link::TrainerCoordinator, &address)?;
        let authority_print = authority.fingerprint().to_string();
        let with = |token| format!("token={token}&ca={authority_print}");
        let (credentials, of_trainers) = (with(token), of_trainers.into_iter().map(with).collect());
        let mut all = Self {
            folder: folder.to_owned(),
            backups: Backups::new(folder),
            coordinator,
            nodes: Vec::new(),
            address: address.clone(),
            credentials,
            of_trainers,
            authority: authority_print,
        };
        let packages = python.map(|_| write_package(folder)).transpose()?;
        for index in 0..nodes {
            let name = format!("node-{index}");
            identity(Role::Node, &name)?;
            lead(links, Link::NodeCoordinator(index), &address)?;
            let python = python.zip(packages.as_deref());
            all.nodes.push(start_node(folder, (&name, index), &address, links, python)?);
        }
        Ok(all)
    }

    /// Returns a connection string, either to the coordinator itself or to the address that is dialled instead.
    pub(super) fn connection(&self, instead: Option<SocketAddr>) -> String {
        let address = instead.map_or_else(|| self.address.clone(), |address| address.to_string());
        format!("rollhouse://{address}?{}", self.credentials)
    }

    /// Returns the connection strings of trainers, by the address that is dialled instead of the coordinator.
    pub(super) fn trainers(&self, instead: Option<SocketAddr>) -> Vec<String> {
        let address = instead.map_or_else(|| self.address.clone(), |address| address.to_string());
        self.of_trainers.iter().map(|credentials| format!("rollhouse://{address}?{credentials}")).collect()
    }

    /// Makes a token, and returns a connection string with it.
    pub(super) fn tenant(&self, name: &str, role: Role, max_lanes: Option<u32>) -> Result<String, Failure> {
        let tokens = token::open(&self.folder.join(COORDINATOR))?;
        let new =
            NewToken { name: name.to_owned(), role, max_lanes, reads: None, lifetime: None, join: None };
        let made = tokens.create(&new, std::time::SystemTime::now()).map_err(token::failure)?.1;
        Ok(format!("rollhouse://{}?token={made}&ca={}", self.address, self.authority))
    }

    /// Kills the coordinator and puts a backup in place of its folder, unless it is not well or its folder is being
    /// copied. Returns whether it did.
    pub(super) fn restore(&mut self) -> io::Result<bool> {
        let coordinator = &mut self.coordinator;
        if coordinator.due.is_some() || coordinator.full.is_some() || !self.backups.can_restore() {
            return Ok(false);
        }
        coordinator.child.kill()?;
        coordinator.child.wait()?;
        // It is started when its folder is there.
        coordinator.due = Some((Instant::now() + RESTORED_WITHIN, Away::Killed));
        self.backups.restore();
        Ok(true)
    }

    /// Starts a restored coordinator once its folder is there, and once more if nodes have seen a later one.
    fn turn_backups(&mut self, now: Instant) -> Result<(), Failure> {
        let Self { folder, backups, coordinator, .. } = self;
        if backups.has_restored()? {
            coordinator.due = Some((now, Away::Killed));
            backups.look_for_refusals(&log_of(folder, COORDINATOR), now)?;
        }
        if coordinator.due.is_none()
            && let Some(term) = backups.least_term(now)?
        {
            coordinator.child.kill().map_err(failed)?;
            coordinator.child.wait().map_err(failed)?;
            coordinator.once = vec!["--least-term".to_owned(), term];
            coordinator.due = Some((now, Away::Killed));
        }
        Ok(())
    }

    /// Returns the node with that name.
    pub(super) fn node(&self, name: &str) -> Option<Target> {
        self.nodes.iter().position(|node| node.name == name).map(Target::Node)
    }

    fn service(&mut self, target: Target) -> &mut Service {
        match target {
            Target::Coordinator => &mut self.coordinator,
            Target::Node(index) => &mut self.nodes[index],
        }
    }

    /// Returns the name of a node in grants.
    pub(super) fn name(&self, target: Target) -> Option<&str> {
        match target {
            Target::Coordinator => None,
            Target::Node(index) => Some(&self.nodes[index].name),
        }
    }

    /// Returns whether it runs.
    pub(super) fn is_up(&mut self, target: Target) -> bool {
        self.service(target).due.is_none()
    }

    /// Returns whether one of them is paused.
    pub(super) fn is_one_paused(&self) -> bool {
        let mut all = std::iter::once(&self.coordinator).chain(&self.nodes);
        all.any(|service| matches!(service.due, Some((_, Away::Paused))))
    }

    /// Returns whether its disk has room.
    pub(super) fn has_room(&mut self, target: Target) -> bool {
        self.service(target).full.is_none()
    }

    /// Keeps all files of a running process from growing until that time.
    pub(super) fn fill(&mut self, target: Target, until: Instant) -> io::Result<()> {
        let service = self.service(target);
        service.limit(Some(0))?;
        service.full = Some(until);
        service.was_full = true;
        service.started_full |= service.started.elapsed() < STARTS_WITHIN;
        Ok(())
    }

    /// Returns what each of them holds; the coordinator first.
    pub(super) fn held(&self) -> Result<Vec<Held>, Failure> {
        let all = std::iter::once(&self.coordinator).chain(&self.nodes);
        all.map(|service| Held::of(&service.child.id().to_string())).collect()
    }

    /// Returns the resident bytes of each of them; the coordinator first.
    pub(super) fn resident(&self) -> io::Result<Vec<u64>> {
        let all = std::iter::once(&self.coordinator).chain(&self.nodes);
        all.map(|service| resident_of(service.child.id())).collect()
    }

    /// Kills a running process; it is started again at that time.
    pub(super) fn kill(&mut self, target: Target, until: Instant) -> io::Result<()> {
        let service = self.service(target);
        service.child.kill()?;
        service.child.wait()?;
        service.due = Some((until, Away::Killed));
        Ok(())
    }

    /// Pauses a running process; it is woken at that time.
    pub(super) fn pause(&mut self, target: Target, until: Instant) -> io::Result<()> {
        let service = self.service(target);
        service.signal(Signal::STOP)?;
        service.due = Some((until, Away::Paused));
        Ok(())
    }

    /// Brings back the processes that are due, and returns whether all run. Fails if one ended by itself.
    pub(super) fn turn(&mut self, now: Instant) -> Result<bool, Failure> {
        self.turn_backups(now)?;
        let Self { folder, coordinator, nodes, .. } = self;
        let mut all = true;
        for service in std::iter::once(coordinator).chain(nodes) {
            match service.due {
                Some((at, _)) if at > now => all = false,
                Some((_, Away::Paused)) => {
                    service.signal(Signal::CONT).map_err(failed)?;
                    service.due = None;
                }
                Some((_, Away::Killed)) => {
                    let command = service.command()?;
                    service.child = spawn(folder, &service.name, command)?;
                    service.started = Instant::now();
                    service.due = None;
                    service.started_full = service.full.is_some();
                    service.was_full = service.started_full;
                    if service.started_full {
                        service.limit(Some(0)).map_err(failed)?;
                    }
                }
                None => match service.child.try_wait().map_err(failed)? {
                    Some(status) if service.started_full && status.code() == Some(Status::Failed as i32) => {
                        // Refused for its disk, which may have room again by now.
                        service.due = Some((service.full.unwrap_or(now), Away::Killed));
                        all = false;
                    }
                    Some(status) => return Err(service.ended(folder, &status.to_string())),
                    None => {}
                },
            }
            match service.full {
                Some(at) if at > now => all = false,
                Some(_) => {
                    service.full = None;
                    if !matches!(service.due, Some((_, Away::Killed))) {
                        service.limit(None).map_err(failed)?;
                    }
                }
                None => {}
            }
        }
        Ok(all)
    }

    /// Ends all processes in order, the nodes first.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        for node in &mut self.nodes {
            node.signal(Signal::TERM).map_err(failed)?;
        }
        for node in &mut self.nodes {
            let status = node.child.wait().map_err(failed)?;
            let has_lost = node.was_full && status.code() == Some(Status::Failed as i32);
            if !status.success() && !has_lost {
                return Err(node.ended(&self.folder, &status.to_string()));
            }
        }
        self.coordinator.signal(Signal::TERM).map_err(failed)?;
        let status = self.coordinator.child.wait().map_err(failed)?;
        match status.success() {
            true => Ok(()),
            false => Err(self.coordinator.ended(&self.folder, &status.to_string())),
        }
    }
}

/// Lets a link lead to an address.
fn lead(links: &Links, link: Link, to: &str) -> Result<(), Failure> {
    to.parse().map(|to| links.lead(link, to)).map_err(unparsable)
}

/// Starts a node, which has its certificate, and waits until it has joined. `python` is its interpreter and the folder of
/// its packages.
fn start_node(
    folder: &Path,
    (name, index): (&str, usize),
    coordinator: &str,
    links: &Links,
    python: Option<(&Path, &Path)>,
) -> Result<Service, Failure> {
    let dialled = |link| links.address(link).map(|to| to.to_string());
    let coordinator = dialled(Link::NodeCoordinator(index)).unwrap_or_else(|| coordinator.to_owned());
    let line = |listen: &str| {
        let mut sets = vec![format!("node.listen={listen}"), format!("spool.seal_after={SEAL_AFTER}")];
        match dialled(Link::TrainerNode(index)) {
            Some(to) => sets.push(format!("node.advertise={to}")),
            // Tenants have it compute without end: each has a part of the one machine.
            None => sets.push("node.threads=1".to_owned()),
        }
        if let Some((interpreter, _)) = python {
            sets.push(format!("python.interpreter={}", interpreter.display()));
            sets.push(format!("python.allow=gymnasium,{PACKAGE}"));
        }
        let mut line = vec!["node", "--data", name, "--coordinator", &coordinator];
        sets.iter().for_each(|set| line.extend(["--set", set]));
        arguments(&line)
    };
    let packages = python.map(|(_, packages)| packages);
    let listens = address_to_keep().map_err(failed)?.to_string();
    let mut node = Service::start(folder, name, line(&listens), packages)?;
    node.printed(folder, "joined the coordinator")?;
    lead(links, Link::TrainerNode(index), &listens)?;
    Ok(node)
}

impl Service {
    fn start(
        folder: &Path,
        name: &str,
        arguments: Vec<String>,
        packages: Option<&Path>,
    ) -> Result<Self, Failure> {
        let child = spawn(folder, name, rollhouse(&arguments, packages)?)?;
        let name = name.to_owned();
        let started = Instant::now();
        Ok(Self {
            name,
            child,
            arguments,
            once: Vec::new(),
            packages: packages.map(Path::to_owned),
            due: None,
            full: None,
            started,
            started_full: false,
            was_full: false,
        })
    }

    /// Returns what it prints after those words, as soon as it prints them.
    fn printed(&mut self, folder: &Path, words: &str) -> Result<String, Failure> {
        let until = Instant::now() + START_WITHIN;
        loop {
            let said = fs::read_to_string(log_of(folder, &self.name)).map_err(failed)?;
            let found = said.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            if let Some((_, rest)) = found.filter_map(|line| line.trim_end().split_once(words)).next() {
                return Ok(rest.to_owned());
            }
            let ended = self.child.try_wait().map_err(failed)?;
            if ended.is_some() || Instant::now() >= until {
                return Err(self.ended(folder, "it did not start"));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Returns the command that starts it again.
    fn command(&mut self) -> Result<Command, Failure> {
        let mut command = rollhouse(&self.arguments, self.packages.as_deref())?;
        command.args(self.once.drain(..));
        Ok(command)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(self.pid()?, signal)?)
    }

    /// Sets how large its files may become; a write beyond that fails.
    fn limit(&self, bytes: Option<u64>) -> io::Result<()> {
        // The hard limit stays as it is inherited from here: only it could not be taken back.
        let maximum = getrlimit(Resource::Fsize).maximum;
        prlimit(Some(self.pid()?), Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum })?;
        Ok(())
    }

    fn pid(&self) -> io::Result<Pid> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        pid.ok_or_else(|| io::Error::other("not a process id"))
    }

    /// Makes the failure for its end, with the last lines it printed.
    fn ended(&self, folder: &Path, how: &str) -> Failure {
        let said = fs::read_to_string(log_of(folder, &self.name)).unwrap_or_default();
        let last: Vec<&str> = said.lines().rev().take(LAST_LINES).collect();
        let mut failure = Failure::new(Status::Failed, format_args!("{} ended by itself: {how}", self.name));
        for line in last.into_iter().rev() {
            failure = failure.hint(line);
        }
        failure
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended already; one that is paused ends too.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn rollhouse(arguments: &[String], packages: Option<&Path>) -> Result<Command, Failure> {
    let mut command = itself::command().map_err(failed)?;
    command.args(arguments);
    if let Some(packages) = packages {
        command.env("PYTHONPATH", packages);
    }
    Ok(command)
}

fn arguments(line: &[&str]) -> Vec<String> {
    let rest = ["--set", "metrics.listen=", "--log-format", "text"];
    line.iter().chain(&rest).map(|&argument| argument.to_owned()).collect()
}

fn resident_of(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    // A process that has just ended has none.
    Ok(kib.unwrap_or(0) << 10)
}

fn unparsable(error: std::net::AddrParseError) -> Failure {
    Failure::of(Status::Failed, &error)
}

const VALIDITY: Duration = Duration::from_secs(30 * 86_400);
/// Longest time for which a backup is put in place of the coordinator's folder.
const RESTORED_WITHIN: Duration = Duration::from_secs(3_600);
const START_WITHIN: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Time within which a process has read and written the files for its start, also on a busy machine.
const STARTS_WITHIN: Duration = Duration::from_secs(3);
/// Age at which a segment is sealed: short, so that a segment that a killed node left is shipped soon after its next
/// start.
const SEAL_AFTER: &str = "1 s";
const LAST_LINES: usize = 10;
