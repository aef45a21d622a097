//! A cluster of processes of this program: a coordinator and nodes, started, killed, paused, started again.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rollhouse_wire::{CertificateAuthority, NewToken, Role};
use rustix::process::{Pid, Signal, kill_process};

use super::plan::Target;
use crate::certs::{authority_failure, private_folder, write_identity};
use crate::failure::{Failure, Status};
use crate::token;

/// The processes of a cluster. Killed when dropped.
pub(super) struct Processes {
    folder: PathBuf,
    coordinator: Service,
    nodes: Vec<Service>,
    /// The connection string, with a token that lets do anything.
    pub(super) connection: String,
}

/// One process, which comes back at the same address.
struct Service {
    name: String,
    child: Child,
    arguments: Vec<String>,
    /// When it is to be started or woken.
    due: Option<(Instant, Away)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Away {
    Killed,
    Paused,
}

impl Processes {
    /// Makes an authority, certificates and a token, starts all processes, and waits until the nodes have joined.
    pub(super) fn start(folder: &Path, nodes: usize) -> Result<Self, Failure> {
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
        let new = NewToken { name: "chaos".to_owned(), role: Role::Admin, max_lanes: None, lifetime: None };
        let tokens = token::open(&folder.join(COORDINATOR))?;
        let (_, token) = tokens.create(&new, std::time::SystemTime::now()).map_err(token::failure)?;

        let line = |address: &str| {
            let listen = format!("coordinator.listen={address}");
            arguments(&["coordinator", "--data", COORDINATOR, "--set", &listen])
        };
        let mut coordinator = Service::start(folder, COORDINATOR, line(ANY))?;
        let address = coordinator.heard(folder, "listens on ")?;
        coordinator.arguments = line(&address);
        let connection = format!("rollhouse://{address}?token={token}&ca={}", authority.fingerprint());
        let mut all = Self { folder: folder.to_owned(), coordinator, nodes: Vec::new(), connection };
        for index in 0..nodes {
            let name = format!("node-{index}");
            identity(Role::Node, &name)?;
            let line = |listen: &str| {
                let listen = format!("node.listen={listen}");
                let seal = format!("spool.seal_after={SEAL_AFTER}");
                arguments(&[
                    "node",
                    "--data",
                    &name,
                    "--coordinator",
                    &address,
                    "--set",
                    &listen,
                    "--set",
                    &seal,
                ])
            };
            let mut node = Service::start(folder, &name, line(ANY))?;
            let listens = node.heard(folder, "listens on ")?;
            node.heard(folder, "joined the coordinator")?;
            let listens = listens.split(' ').next().unwrap_or_default();
            node.arguments = line(listens);
            all.nodes.push(node);
        }
        Ok(all)
    }

    fn service(&mut self, target: Target) -> &mut Service {
        match target {
            Target::Coordinator => &mut self.coordinator,
            Target::Node(index) => &mut self.nodes[index],
        }
    }

    /// The name that a node has in grants.
    pub(super) fn name(&self, target: Target) -> Option<&str> {
        match target {
            Target::Coordinator => None,
            Target::Node(index) => Some(&self.nodes[index].name),
        }
    }

    /// Whether it runs.
    pub(super) fn is_up(&mut self, target: Target) -> bool {
        self.service(target).due.is_none()
    }

    /// Kills a process that runs; it is started again when that time has come.
    pub(super) fn kill(&mut self, target: Target, until: Instant) -> io::Result<()> {
        let service = self.service(target);
        service.child.kill()?;
        service.child.wait()?;
        service.due = Some((until, Away::Killed));
        Ok(())
    }

    /// Pauses a process that runs; it is woken when that time has come.
    pub(super) fn pause(&mut self, target: Target, until: Instant) -> io::Result<()> {
        let service = self.service(target);
        service.signal(Signal::STOP)?;
        service.due = Some((until, Away::Paused));
        Ok(())
    }

    /// Brings back what is due; whether all run. Fails if one ended by itself.
    pub(super) fn turn(&mut self, now: Instant) -> Result<bool, Failure> {
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
                    service.child = spawn(folder, &service.name, &service.arguments)?;
                    service.due = None;
                }
                None => {
                    if let Some(status) = service.child.try_wait().map_err(failed)? {
                        return Err(service.ended(folder, &status.to_string()));
                    }
                }
            }
        }
        Ok(all)
    }

    /// Ends all in order, the nodes first.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        for node in &mut self.nodes {
            node.signal(Signal::TERM).map_err(failed)?;
        }
        for node in &mut self.nodes {
            let status = node.child.wait().map_err(failed)?;
            if !status.success() {
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

impl Service {
    fn start(folder: &Path, name: &str, arguments: Vec<String>) -> Result<Self, Failure> {
        let child = spawn(folder, name, &arguments)?;
        Ok(Self { name: name.to_owned(), child, arguments, due: None })
    }

    /// What it says after those words, as soon as it says them.
    fn heard(&mut self, folder: &Path, words: &str) -> Result<String, Failure> {
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

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("a process id that is none"))?;
        Ok(kill_process(pid, signal)?)
    }

    /// With the last it said.
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

fn spawn(folder: &Path, name: &str, arguments: &[String]) -> Result<Child, Failure> {
    let program = std::env::current_exe().map_err(failed)?;
    let log = File::options().create(true).append(true).open(log_of(folder, name)).map_err(failed)?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command.stdout(log.try_clone().map_err(failed)?).stderr(log);
    command.spawn().map_err(failed)
}

fn arguments(line: &[&str]) -> Vec<String> {
    let rest = ["--set", "metrics.listen="];
    line.iter().chain(&rest).map(|&argument| argument.to_owned()).collect()
}

fn log_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}

fn failed(error: io::Error) -> Failure {
    Failure::of(Status::Failed, &error)
}

/// Of the coordinator's process and data folder.
pub(super) const COORDINATOR: &str = "coordinator";
/// Reachable from here only, at any free port.
const ANY: &str = "127.0.0.1:0";
const VALIDITY: Duration = Duration::from_secs(30 * 86_400);
const START_WITHIN: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// So that a segment that a killed node left is shipped soon after its next start.
const SEAL_AFTER: &str = "1 s";
const LAST_LINES: usize = 10;
