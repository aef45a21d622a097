//! Two network namespaces joined by a link that is slow and loses packets: for UDP and TCP alike, because it
//! carries IP packets between two TUN devices. Needs Linux, the right to make namespaces and devices, and the
//! programs `unshare`, `nsenter` and `ip`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tun_rs::{DeviceBuilder, SyncDevice};

use crate::link::{Fate, LinkModel, LinkProfile};

/// The address at each end.
pub const ENDS: [&str; 2] = ["10.99.0.1", "10.99.0.2"];

/// A link under emulation. Its threads live until the process ends.
#[derive(Debug)]
pub struct Emulator {
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    carried: AtomicU64,
    lost: AtomicU64,
    dropped: AtomicU64,
}

/// What became of the packets of both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    /// Delivered.
    pub carried: u64,
    /// Lost, as the profile says.
    pub lost: u64,
    /// Dropped because a queue was full.
    pub dropped: u64,
}

impl Emulator {
    /// Joins the network namespaces of two processes, which have [`ENDS`] as their addresses afterwards. Both
    /// directions have that profile, each with chances of its own.
    ///
    /// # Errors
    /// If devices cannot be made or moved.
    pub fn join(processes: [&Child; 2], profile: LinkProfile, seed: u64) -> io::Result<Self> {
        let devices = [device(0)?, device(1)?];
        for (end, process) in processes.iter().enumerate() {
            let (name, id) = (name(end), process.id().to_string());
            run("ip", &["link", "set", &name, "netns", &id])?;
            let inside = |line: &str| {
                let mut arguments = vec!["--net", "--target", &id, "ip"];
                arguments.extend(line.split(' '));
                run("nsenter", &arguments)
            };
            inside(&format!("addr add {}/24 dev {name}", ENDS[end]))?;
            inside(&format!("link set {name} mtu 1500 up"))?;
            inside("link set lo up")?;
        }
        let counts = Arc::new(Counts::default());
        let [one, two] = devices.map(Arc::new);
        let zero = Instant::now();
        for (from, to, chances) in [(&one, &two, seed), (&two, &one, !seed)] {
            let (packets, due) = sync_channel(PACKETS_UNDER_WAY);
            let model = LinkModel::new(profile, chances);
            let (from, to, counts) = (from.clone(), to.clone(), (counts.clone(), counts.clone()));
            std::thread::spawn(move || take_in(&from, model, zero, &packets, &counts.0));
            std::thread::spawn(move || give_out(&to, zero, &due, &counts.1));
        }
        Ok(Self { counts })
    }

    /// What became of the packets so far.
    pub fn carried(&self) -> Carried {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { carried, lost, dropped } = &*self.counts;
        Carried { carried: read(carried), lost: read(lost), dropped: read(dropped) }
    }
}

/// A packet under way: when it arrives, which it is, and its bytes.
type Packet = Reverse<(Duration, u64, Vec<u8>)>;

fn take_in(
    from: &SyncDevice,
    mut model: LinkModel,
    zero: Instant,
    packets: &SyncSender<Packet>,
    counts: &Counts,
) {
    let mut buffer = vec![0; 65_536];
    for number in 0.. {
        // The device ends with the process at its other end.
        let Ok(bytes) = from.recv(&mut buffer) else { return };
        match model.offer(zero.elapsed(), bytes as u64) {
            Fate::Arrives(at) => {
                if packets.send(Reverse((at, number, buffer[..bytes].to_vec()))).is_err() {
                    return;
                }
            }
            Fate::Lost => _ = counts.lost.fetch_add(1, Ordering::Relaxed),
            Fate::Dropped => _ = counts.dropped.fetch_add(1, Ordering::Relaxed),
        }
    }
}

fn give_out(to: &SyncDevice, zero: Instant, packets: &Receiver<Packet>, counts: &Counts) {
    let mut waiting: BinaryHeap<Packet> = BinaryHeap::new();
    loop {
        let next = waiting.peek().map(|Reverse((at, ..))| at.saturating_sub(zero.elapsed()));
        let came = match next {
            Some(left) => packets.recv_timeout(left),
            None => packets.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match came {
            Ok(packet) => waiting.push(packet),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        while waiting.peek().is_some_and(|Reverse((at, ..))| *at <= zero.elapsed()) {
            let Some(Reverse((_, _, packet))) = waiting.pop() else { break };
            // A packet that the device does not take any more is lost with it.
            if to.send(&packet).is_ok() {
                counts.carried.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn device(end: usize) -> io::Result<SyncDevice> {
    DeviceBuilder::new().name(name(end)).enable(false).build_sync()
}

fn name(end: usize) -> String {
    format!("rh-link{end}")
}

fn run(program: &str, arguments: &[&str]) -> io::Result<()> {
    let output = Command::new(program).args(arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program} {}: {}", arguments.join(" "), said.trim())))
}

/// Packets that one direction holds; what comes faster waits in the device's own queue.
const PACKETS_UNDER_WAY: usize = 16_384;
