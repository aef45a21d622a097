//! Trainers and nodes that share memory, as processes of their own: what one leaves behind when it is killed at any
//! place of the handshake, who may attach, and that nobody else notices.
//!
//! A trainer is this very test program, run again with a variable that says what to do; the places at which to die
//! (`ROLLHOUSE_FAILPOINT`) are looked at in builds with debug assertions only.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rollhouse_client::{
    Address, Cluster, ConnectOptions, OnLoss, OpenError, Pool, PoolRequest, StepError, Transport,
};
use rollhouse_core::{ColumnMut, RecordRule};
use rollhouse_engine::Reset;
use rollhouse_tests::{Folder, Service, succeed};

const LANES: u32 = 8;
/// What a trainer of its own is to do: the connection string, and how many steps.
const TRAINER: &str = "ROLLHOUSE_TEST_TRAINER";

/// A coordinator, and a node that is told where to die.
struct Machines {
    folder: Folder,
    address: String,
    coordinator: Service,
}

impl Machines {
    fn start() -> Self {
        let folder = Folder::new();
        // Processes of other users are to reach the socket and the authority's certificate.
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let ca = folder.path().join("ca");
        succeed(&ca, &format!("certs init --dir {}", ca.display()));
        for (role, name, place) in [("coordinator", "main", "coordinator"), ("node", "n1", "n1")] {
            let tls = folder.path().join(place).join("tls");
            let line = format!(
                "certs issue --dir {} --role {role} --name {name} --output {}",
                ca.display(),
                tls.display()
            );
            succeed(&ca, &line);
        }
        fs::copy(ca.join("ca.pem"), folder.path().join("ca.pem")).unwrap();
        let line = ["coordinator", "--data", "coordinator", "--listen", "127.0.0.1:0"];
        let mut coordinator = Service::start(folder.path(), &line);
        let address = coordinator.hear("listens on ");
        Self { folder, address, coordinator }
    }

    fn node(&self, failpoint: &str) -> Service {
        let socket = format!("attach.path={}", self.socket().display());
        let line = ["node", "--data", "n1", "--coordinator", &self.address, "--set", &socket];
        let mut node = Service::start_with(self.folder.path(), &line, &[("ROLLHOUSE_FAILPOINT", failpoint)]);
        node.hear("joined the coordinator");
        node
    }

    fn socket(&self) -> PathBuf {
        let folder = self.folder.path().join("socket");
        fs::create_dir_all(&folder).unwrap();
        folder.join("attach.sock")
    }

    fn connection(&self) -> String {
        let data = self.folder.path().join("coordinator");
        let token =
            succeed(&data, &format!("token create --role trainer --name t --data {}", data.display()));
        let ca = self.folder.path().join("ca.pem");
        format!("rollhouse://{}?token={}&ca={}", self.address, token.trim(), ca.display())
    }

    fn trainer(&self, steps: u64, failpoint: &str) -> Command {
        self.trainer_of(&std::env::current_exe().unwrap(), steps, failpoint)
    }

    fn trainer_of(&self, program: &Path, steps: u64, failpoint: &str) -> Command {
        let mut command = Command::new(program);
        command.args(["a_trainer_of_its_own", "--exact", "--nocapture"]);
        command.env(TRAINER, format!("{steps} {}", self.connection())).env("ROLLHOUSE_FAILPOINT", failpoint);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn end(self) {
        assert!(self.coordinator.end().success());
    }
}

fn connect(url: &str) -> Cluster {
    let address: Address = url.parse().unwrap();
    Cluster::connect(&address, ConnectOptions::default(), None).unwrap()
}

fn open(cluster: &Cluster) -> Result<Pool, OpenError> {
    let mut request = PoolRequest::new("CartPole-v1", LANES);
    request.settings.record = RecordRule::None;
    (request.transport, request.on_loss) = (Some(Transport::Shm), Some(OnLoss::Report));
    cluster.open_pool(request)
}

fn step(pool: &mut Pool) -> Result<(), StepError> {
    if let ColumnMut::I64(actions) = pool.actions() {
        actions.fill(1);
    }
    pool.step().map(drop)
}

/// Not a test by itself: what [`Machines::trainer`] runs.
#[test]
fn a_trainer_of_its_own() {
    let Ok(task) = std::env::var(TRAINER) else { return };
    let (steps, url) = task.split_once(' ').unwrap();
    let mut pool = match open(&connect(url)) {
        Ok(pool) => pool,
        Err(error) => panic!("no pool: {error}"),
    };
    pool.reset(&Reset::all()).unwrap();
    for _ in 0..steps.parse().unwrap() {
        step(&mut pool).unwrap();
    }
}

fn ended(child: Child) -> (ExitStatus, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    (status, String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

/// Descriptors of a process that are memory of ours, its mappings of such, and its threads that serve it.
fn held(process: u32) -> usize {
    let named = |target: &Path| {
        target.to_string_lossy().contains("rollhouse-outputs")
            || target.to_string_lossy().contains("rollhouse-inputs")
    };
    let root = PathBuf::from(format!("/proc/{process}"));
    let descriptors = fs::read_dir(root.join("fd")).into_iter().flatten().flatten();
    let descriptors =
        descriptors.filter(|entry| fs::read_link(entry.path()).is_ok_and(|target| named(&target)));
    let maps = fs::read_to_string(root.join("maps")).unwrap_or_default();
    let maps = maps.lines().filter(|line| named(Path::new(line))).count();
    let threads = fs::read_dir(root.join("task")).into_iter().flatten().flatten();
    let threads = threads.filter(|entry| {
        fs::read_to_string(entry.path().join("comm")).is_ok_and(|name| name.starts_with("rollhouse-shm"))
    });
    descriptors.count() + maps + threads.count()
}

/// Tests that attach in this process take turns, because one looks at what the process holds.
fn alone() -> MutexGuard<'static, ()> {
    static ATTACHING: Mutex<()> = Mutex::new(());
    ATTACHING.lock()
}

/// Looks until it is so. A test for which it never is ends when `cargo xtask test` kills what hangs.
fn until(so: impl Fn() -> bool) {
    while !so() {
        std::thread::yield_now();
    }
}

fn names_in_dev_shm() -> Vec<String> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("rollhouse")).collect()
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "needs places to die at, which release builds do not have")]
fn a_trainer_that_is_killed_anywhere_in_the_handshake_leaves_its_node_free_and_others_stepping() {
    let _alone = alone();
    let machines = Machines::start();
    let node = machines.node("");
    let cluster = connect(&machines.connection());
    let mut other = open(&cluster).unwrap();
    other.reset(&Reset::all()).unwrap();
    let resting = held(node.id());
    assert!(resting > 0, "the other trainer's memory shows");
    for place in ["asking", "answered", "mapped", "posted"] {
        let failpoint = format!("client.attach.{place}");
        let child = machines.trainer(1_000, &failpoint).spawn().unwrap();
        let (status, said) = ended(child);
        assert!(!status.success(), "{place}: {said}");
        assert!(!said.contains("panicked"), "{place}: {said}");
        step(&mut other).unwrap();
        // Its thread goes at once; memory is kept for the lease, with the session.
        until(|| attached(&cluster) == 1);
        step(&mut other).unwrap();
        assert_eq!(names_in_dev_shm(), Vec::<String>::new());
    }
    // Another one can attach as before.
    let (status, said) = ended(machines.trainer(50, "").spawn().unwrap());
    assert!(status.success(), "{said}");
    other.close().unwrap();
    assert!(node.end().success());
    machines.end();
}

/// Sessions that are attached, as the cluster tells it.
fn attached(cluster: &Cluster) -> usize {
    let sessions = cluster.sessions().unwrap().sessions;
    sessions.iter().filter(|session| session.report.attached == Some(true)).count()
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "needs places to die at, which release builds do not have")]
fn a_node_that_is_killed_anywhere_in_the_handshake_leaves_its_trainer_free() {
    let _alone = alone();
    let machines = Machines::start();
    let own = std::process::id();
    for place in ["accepted", "asked", "made", "answered", "request", "answer"] {
        let node = machines.node(&format!("node.attach.{place}"));
        let cluster = connect(&machines.connection());
        let before = held(own);
        match open(&cluster) {
            // Dead before there was memory.
            Err(OpenError::NoMemory { .. }) => {}
            Err(error) => panic!("{place}: {error}"),
            Ok(mut pool) => {
                // Its socket ends with it, and nobody listens at its path any more; a lease would be 30 s.
                pool.set_timeout(Duration::from_secs(5));
                let mut lost = pool.reset(&Reset::all()).map(drop);
                while lost.is_ok() {
                    // Shown as lost first, and no other node has room for them.
                    lost = step(&mut pool);
                }
                let Err(StepError::AllLost { reason }) = lost else { panic!("{place}: {lost:?}") };
                assert!(reason.contains("n1"), "{place}: {reason}");
            }
        }
        assert_eq!(node.code(), None, "{place}: it was killed");
        assert_eq!(held(own), before, "{place}");
        assert_eq!(names_in_dev_shm(), Vec::<String>::new());
    }
    machines.end();
}

#[test]
fn a_user_who_may_not_attach_is_refused_by_name() {
    const STRANGER: u32 = 12_345;
    let machines = Machines::start();
    let node = machines.node("");
    // The file lets anybody connect: who may attach is the node's to say.
    fs::set_permissions(machines.socket().parent().unwrap(), PermissionsExt::from_mode(0o755)).unwrap();
    fs::set_permissions(machines.socket(), PermissionsExt::from_mode(0o666)).unwrap();
    // Another user can run only a program in folders that are open to him.
    let program = machines.folder.path().join("trainer");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    match machines.trainer_of(&program, 1, "").uid(STRANGER).spawn() {
        Ok(child) => {
            let (status, said) = ended(child);
            assert!(!status.success(), "{said}");
            assert!(said.contains("transport=shm: node n1: user 12345 may not attach"), "{said}");
        }
        Err(error) => {
            assert!(!rustix::process::geteuid().is_root(), "{error}");
            let what = "skipped, as only root may run it: a_user_who_may_not_attach_is_refused_by_name";
            // Not by a macro, whose output is shown of failed tests only.
            writeln!(std::io::stderr(), "{what}").unwrap();
        }
    }
    assert!(node.end().success());
    machines.end();
}
