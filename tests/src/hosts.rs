//! Hosts with a network of their own: a network namespace each, joined by veth pairs to a bridge in one more.
//! Needs Linux, the right to make namespaces (of users too: then nobody has to be root), and the programs
//! `unshare`, `nsenter` and `ip`. The namespaces and all that is in them vanish with their processes, and those
//! end with the test's: nothing is left on the machine.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use crate::binary;

/// Hosts that reach each other at [`Network::address`], and nobody else.
#[derive(Debug)]
pub struct Network {
    // The hosts' ends of the links vanish with theirs.
    hosts: Vec<Namespace>,
    switch: Namespace,
}

impl Network {
    /// A network of that many hosts, at most [`MOST_HOSTS`], with all links up.
    ///
    /// # Errors
    /// If this machine does not make namespaces, bridges or links, in the words of the program that tried.
    pub fn new(hosts: u8) -> io::Result<Self> {
        assert!(hosts <= MOST_HOSTS, "{hosts} hosts, more than {MOST_HOSTS}");
        let mut unshare = Command::new("unshare");
        let switch = Namespace::hold(unshare.args(["--map-root-user", "--net"]))?;
        switch.ip("link add bridge type bridge")?;
        switch.ip("link set bridge up")?;
        let mut network = Self { hosts: Vec::new(), switch };
        for host in 0..hosts {
            let namespace = network.plug_in(host)?;
            network.hosts.push(namespace);
        }
        Ok(network)
    }

    /// A host's address.
    pub fn address(host: u8) -> String {
        format!("10.98.0.{}", host + 1)
    }

    /// A command line of the binary on that host, split at spaces.
    pub fn rollhouse(&self, host: u8, line: &str) -> Command {
        let mut command = self.hosts[usize::from(host)].enter();
        command.arg(binary()).args(line.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Pulls a host's cable out of the switch, or plugs it in again.
    pub fn set_link(&self, host: u8, up: bool) {
        let state = if up { "up" } else { "down" };
        self.switch.ip(&format!("link set {} {state}", port(host))).expect("the link is there");
    }

    fn plug_in(&self, host: u8) -> io::Result<Namespace> {
        let namespace = Namespace::hold(self.switch.enter().args(["unshare", "--net"]))?;
        let (port, id) = (port(host), namespace.process.id());
        self.switch.ip(&format!("link add {port} type veth peer name eth0 netns {id}"))?;
        self.switch.ip(&format!("link set {port} master bridge up"))?;
        namespace.ip(&format!("addr add {}/24 dev eth0", Self::address(host)))?;
        namespace.ip("link set eth0 up")?;
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }
}

/// A network namespace, held by a process that ends when this does.
#[derive(Debug)]
struct Namespace {
    process: Child,
}

impl Namespace {
    /// The namespace that a command makes for what follows on its command line.
    fn hold(command: &mut Command) -> io::Result<Self> {
        // `cat` ends when nobody holds its stdin any more, however this process ends.
        command.args(["sh", "-c", "echo made && exec cat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut namespace = Self { process: command.spawn()? };
        let stdout = namespace.process.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        if line.is_empty() {
            let mut stderr = namespace.process.stderr.take().expect("it is piped");
            stderr.read_to_string(&mut line)?;
            return Err(io::Error::other(line.trim().to_owned()));
        }
        Ok(namespace)
    }

    /// A command that runs, inside, what follows on its command line.
    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        let target = self.process.id().to_string();
        command.args(["--target", &target, "--user", "--net", "--preserve-credentials", "--"]);
        command
    }

    fn ip(&self, line: &str) -> io::Result<()> {
        let output = self.enter().arg("ip").args(line.split(' ')).output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("ip {line}: {}", said.trim())))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _killed = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// The switch's end of a host's link.
fn port(host: u8) -> String {
    format!("port{host}")
}

/// A service on a host; killed at the end of the test.
#[derive(Debug)]
pub struct Hosted(Child);

impl Hosted {
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("nsenter starts"))
    }

    /// Whether it has not ended.
    pub fn runs(&mut self) -> bool {
        self.0.try_wait().expect("a child can be waited for").is_none()
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _killed = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// As many addresses as there are in the network, without its own and broadcast.
pub const MOST_HOSTS: u8 = 254;
