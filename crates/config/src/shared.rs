//! The sections that several configurations have.

use std::path::PathBuf;
use std::time::Duration;

use rollhouse_core::WhenFull;
use rollhouse_core::limits::{MAX_LANES, MAX_THREADS};

use crate::deadline::{Deadline, LaneDeadline};
use crate::quantity::{Bytes, Time};
use crate::setting::{Bounded, Given, Labels, Place, Setting, SettingValue, Uids, text};

/// Settings of a node's stepping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// Number of lanes that the node takes. 0 is 4,096 per core: a core steps that many CartPoles in under 50 µs, and a
    /// lane needs a few hundred bytes. Too many for the envs in use only makes steps slow; placement goes by it.
    pub capacity: Bounded<0, { MAX_LANES as u64 }>,
    /// Number of threads that step what computes here; what waits, as for other processes, has threads beside them. 0 is
    /// one per core; more than cores makes single steps slower, never faster.
    pub threads: Bounded<0, { MAX_THREADS as u64 }>,
    /// Most threads for what may wait beside them: steps of plug-ins, commands, ends, recordings whose disk is behind. Lanes that
    /// other processes step are waited for without one. Each costs its stack while there is something to do. Default 1,024.
    pub waiting_threads: Bounded<1, 4096>,
    /// Number of batches that may wait for a thread; beyond, owners are told `busy` and when to try again. Each costs
    /// its actions' bytes. Default 1,024.
    pub queue: Bounded<1, 65_536>,
    /// Labels for which pools can ask, e.g. a zone or an accelerator.
    pub labels: Labels,
    /// Time for which a session is kept for an owner that is not heard of. Default 30 s: longer than the 15 s after
    /// which a silent connection counts as lost, so that an owner has time to dial again.
    pub lease: Time,
    /// Time that one step may take before its session is given up as hung. Default 60 s: no step of a built-in env
    /// takes a millisecond. Sessions of Python envs and of plug-ins have five quarters of `step_within` and `reset_within`
    /// together, or of a longer `call_within`, if that is more.
    pub hang_after: Time,
    /// Time that a step of one lane of a Python env or of a plug-in may take before the lane is lost as `hung`, at most
    /// 24 h. Default 0: two fifths of `hang_after`, at most 25 s, so that a step and the reset after it fit into it.
    pub step_within: LaneDeadline,
    /// The same for a reset.
    pub reset_within: LaneDeadline,
    /// Time that a call of a method of a Python env may take, and its picture, before its worker process is ended and the
    /// lanes of that are lost; 1 s to 24 h. Default 20 s.
    pub call_within: Deadline<1000>,
    /// Time from the start of a plug-in's process until its lanes are made, at most 24 h. Default 2 min.
    pub plugin_within: Deadline<1000>,
}

/// Settings of the socket by which trainers of the node's own machine attach to its sessions' memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachSettings {
    /// True if there is an attach socket. Default true: it costs only a file.
    pub enabled: bool,
    /// Path of the socket's file; `None` is `attach.sock` in the data folder. At most 107 bytes, which is what a Unix
    /// socket's address holds; longer ones stop the start.
    pub path: Option<PathBuf>,
    /// Users whose processes may attach, beside the node's own and root. Default none. Users have the numbers that the
    /// node sees: in another user namespace they may have other numbers.
    pub uids: Uids,
    /// Number of sessions attached by memory at a time; beyond, owners are told `busy`. Each has a thread. Default 64.
    pub sessions: Bounded<1, 1024>,
}

/// Settings of the recordings that a node keeps until the store has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spool {
    /// Maximum number of bytes on disk. Default 10 GB.
    pub limit: Bytes,
    /// Behaviour when these bytes are used up.
    pub when_full: WhenFull,
    /// Number of bytes a second that are shipped; 0 is no bound.
    pub bandwidth: Bytes,
    /// Age at which recordings are sealed, so that they can be shipped. Default 5 s, the delay with which an episode
    /// shows in the store. A shorter one makes more and smaller files.
    pub seal_after: Time,
}

/// Settings by which a coordinator lets machines in as nodes, by join tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolment {
    /// Path of the file of the issuer of nodes' certificates; `None` is `issuer.pem` in the data folder. While there is
    /// none, nobody joins by a token, and nobody's certificate is renewed.
    pub issuer: Option<PathBuf>,
    /// Time for which certificates of nodes hold that join or renew theirs; nodes ask for the next one after two thirds
    /// of it. Default 720 h: a coordinator may be away for a week.
    pub node_validity: Time,
}

/// Settings of the recordings that a coordinator is sent and keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// Number of bytes on disk at which the oldest whole segments are dropped, counted. Default 100 GB.
    pub budget: Bytes,
    /// Number of bytes on disk of policies, beyond which no more are taken in. Default 4 GB.
    pub policies: Bytes,
    /// Number of bytes on disk of segments that contradict others and were set aside for the operator, at which the
    /// oldest of them are dropped. Default 1 GB.
    pub quarantine: Bytes,
    /// Settings of the archive in which all recordings are kept too.
    pub archive: Archive,
}

/// Settings of a coordinator's archive, in which recordings are kept beside its store. Recordings in the archive leave
/// the store's disk to keep its budget, and are listed and read as before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    /// Folder, or `s3://BUCKET/PREFIX` in object storage. Default nowhere: recordings that the store's budget does not
    /// hold are dropped. An archive belongs to one store alone.
    pub target: Place,
    /// Number of bytes on disk for segments that were fetched from the archive to be read; the segment read longest ago
    /// goes first. Default 10 GB.
    pub cache: Bytes,
}

/// Files with the certificates of this process, in PEM; read again when they change. A file that is not set is the one
/// of that name in the folder `tls` of the data folder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// Path of the authorities that are trusted (`ca.pem`); several while one is being replaced.
    pub ca: Option<PathBuf>,
    /// Path of this process's certificate (`cert.pem`).
    pub cert: Option<PathBuf>,
    /// Path of this process's key (`key.pem`); readable for nobody else.
    pub key: Option<PathBuf>,
    /// Path of the list of certificates that are not believed although they hold (`revoked`); need not be there.
    /// `rollhouse certs revoke` writes it.
    pub revoked: Option<PathBuf>,
}

/// Settings of how datagrams travel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// True if every path takes datagrams of up to 65,527 bytes. Default false: paths to other machines are taken to
    /// carry 1,452, and only those inside this machine more. A wrong value is slow, not broken: the size is probed.
    pub jumbo: bool,
    /// Number of bytes of the socket's buffers, each way, that the system is asked for. Default 8 MiB: with the usual
    /// 208 KiB bursts are lost. The system may grant less.
    pub socket_buffer: Bytes,
}

impl Worker {
    /// Returns the number of lanes that the node takes on a machine of so many cores.
    pub fn lanes(&self, cores: usize) -> u32 {
        let lanes = match self.capacity.0 {
            0 => (cores * LANES_PER_CORE).min(MAX_LANES) as u64,
            lanes => lanes,
        };
        // Bounded by MAX_LANES.
        lanes as u32
    }

    /// Returns the number of threads that step on a machine of so many cores.
    pub fn stepping_threads(&self, cores: usize) -> usize {
        match self.threads.0 {
            0 => cores.clamp(1, MAX_THREADS),
            threads => threads as usize,
        }
    }

    pub(crate) fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)> {
        vec![
            ("node.capacity", &mut self.capacity),
            ("node.threads", &mut self.threads),
            ("node.waiting_threads", &mut self.waiting_threads),
            ("node.queue", &mut self.queue),
            ("node.labels", &mut self.labels),
            ("node.lease", &mut self.lease),
            ("node.hang_after", &mut self.hang_after),
            ("node.step_within", &mut self.step_within),
            ("node.reset_within", &mut self.reset_within),
            ("node.call_within", &mut self.call_within),
            ("node.plugin_within", &mut self.plugin_within),
        ]
    }
}

impl AttachSettings {
    pub(crate) fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)> {
        vec![
            ("attach.enabled", &mut self.enabled),
            ("attach.path", &mut self.path),
            ("attach.uids", &mut self.uids),
            ("attach.sessions", &mut self.sessions),
        ]
    }
}

impl Spool {
    pub(crate) fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)> {
        vec![
            ("spool.limit", &mut self.limit),
            ("spool.when_full", &mut self.when_full),
            ("spool.bandwidth", &mut self.bandwidth),
            ("spool.seal_after", &mut self.seal_after),
        ]
    }
}

impl Enrolment {
    pub(crate) fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)> {
        vec![("coordinator.issuer", &mut self.issuer), ("coordinator.node_validity", &mut self.node_validity)]
    }
}

impl Store {
    pub(crate) fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)> {
        vec![
            ("store.budget", &mut self.budget),
            ("store.policies", &mut self.policies),
            ("store.quarantine", &mut self.quarantine),
            ("archive.target", &mut self.archive.target),
            ("archive.cache", &mut self.archive.cache),
        ]
    }
}

impl Tls {
    pub(crate) fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)> {
        vec![
            ("tls.ca", &mut self.ca),
            ("tls.cert", &mut self.cert),
            ("tls.key", &mut self.key),
            ("tls.revoked", &mut self.revoked),
        ]
    }

    /// Returns the paths of the four files, for a process whose data folder is `data`.
    pub fn files(&self, data: &std::path::Path) -> [PathBuf; 4] {
        let or = |given: &Option<PathBuf>, name: &str| {
            given.clone().unwrap_or_else(|| data.join("tls").join(name))
        };
        [
            or(&self.ca, "ca.pem"),
            or(&self.cert, "cert.pem"),
            or(&self.key, "key.pem"),
            or(&self.revoked, "revoked"),
        ]
    }
}

impl Network {
    pub(crate) fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)> {
        vec![("network.jumbo", &mut self.jumbo), ("network.socket_buffer", &mut self.socket_buffer)]
    }
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            capacity: Bounded(0),
            threads: Bounded(0),
            waiting_threads: Bounded(1024),
            queue: Bounded(1024),
            labels: Labels::default(),
            lease: Time(Duration::from_secs(30)),
            hang_after: Time(Duration::from_secs(60)),
            step_within: LaneDeadline::default(),
            reset_within: LaneDeadline::default(),
            call_within: Deadline::seconds(20),
            plugin_within: Deadline::seconds(120),
        }
    }
}

impl Default for AttachSettings {
    fn default() -> Self {
        Self { enabled: true, path: None, uids: Uids::default(), sessions: Bounded(64) }
    }
}

impl Default for Spool {
    fn default() -> Self {
        Self {
            limit: Bytes(10_000_000_000),
            when_full: WhenFull::BackPressure,
            bandwidth: Bytes(0),
            seal_after: Time(Duration::from_secs(5)),
        }
    }
}

impl Default for Enrolment {
    fn default() -> Self {
        Self { issuer: None, node_validity: Time(Duration::from_secs(720 * 3600)) }
    }
}

impl Default for Store {
    fn default() -> Self {
        let archive = Archive { target: Place::default(), cache: Bytes(10_000_000_000) };
        let (budget, policies) = (Bytes(100_000_000_000), Bytes(4_000_000_000));
        Self { budget, policies, quarantine: Bytes(1_000_000_000), archive }
    }
}

impl Default for Network {
    fn default() -> Self {
        Self { jumbo: false, socket_buffer: Bytes(8 << 20) }
    }
}

impl Setting for WhenFull {
    fn wanted(&self) -> String {
        "\"back_pressure\" or \"drop\"".to_owned()
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        *self = match text(given)? {
            "back_pressure" => Self::BackPressure,
            "drop" => Self::Drop,
            _ => return Err(String::new()),
        };
        Ok(())
    }

    fn show(&self) -> SettingValue {
        SettingValue::Text(match self {
            Self::BackPressure => "back_pressure".to_owned(),
            Self::Drop => "drop".to_owned(),
        })
    }
}

const LANES_PER_CORE: usize = 4096;
