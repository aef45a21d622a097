//! The links between the processes: relays of datagrams in this process, which can be made deaf.
//!
//! One thread serves all of them. It ends when [`Links`] is dropped; a datagram that cannot be passed on is lost, as on
//! any network. If nobody listens at the other end, the relay's own port is closed as well. So the system tells a
//! sender the same as a host tells about a process that has ended; but not while the link is cut, because a cut link
//! lets no such message through. Each dialling socket has a socket of its own towards the process that is dialled, so
//! that answers find their way; the least recently used one is given up when there are too many.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rollhouse_core::{RunId, split_mix64};
use tokio::net::UdpSocket;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};

use super::plan::{Cut, Link};

/// All relays. Their sockets are closed on drop.
pub(super) struct Links {
    relays: BTreeMap<Link, Relay>,
    /// The times at which cut links are mended.
    due: BTreeMap<Link, Instant>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A relay as the other threads see it.
struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The address of the dialled process, once it is known.
    upstream: OnceLock<SocketAddr>,
    deaf_there: AtomicBool,
    deaf_back: AtomicBool,
    /// Number of datagrams that did not pass because the link was cut.
    lost: AtomicU64,
}

impl Links {
    /// Opens a socket for each link.
    pub(super) fn open(links: &[Link]) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut relays = BTreeMap::new();
        let mut sockets = Vec::new();
        for &link in links {
            let front = bind_front()?;
            let (address, shared) = (front.local_addr()?, Arc::new(Shared::default()));
            relays.insert(link, Relay { address, shared: shared.clone() });
            let front = runtime.block_on(async { UdpSocket::from_std(front) })?;
            sockets.push((front, address, shared));
        }
        let (end, ended) = oneshot::channel();
        let serve = move || {
            runtime.block_on(async {
                for (front, address, shared) in sockets {
                    tokio::spawn(relay(front, address, shared));
                }
                // Dropped or told, it is over.
                let _told = ended.await;
            });
        };
        let thread = thread::Builder::new().name("chaos-relay".into()).spawn(serve)?;
        Ok(Self { relays, due: BTreeMap::new(), end: Some(end), thread: Some(thread) })
    }

    /// Returns the address to dial instead of the process.
    pub(super) fn address(&self, link: Link) -> Option<SocketAddr> {
        self.relays.get(&link).map(|relay| relay.address)
    }

    /// Sets the address to which a link leads; may be called once.
    pub(super) fn lead(&self, link: Link, to: SocketAddr) {
        if let Some(relay) = self.relays.get(&link) {
            let _before = relay.shared.upstream.set(to);
        }
    }

    /// Returns whether datagrams pass.
    pub(super) fn is_whole(&self, link: Link) -> bool {
        !self.due.contains_key(&link)
    }

    /// Stops all datagrams in the directions of `cut` until that time.
    pub(super) fn cut(&mut self, link: Link, cut: Cut, until: Instant) {
        self.set(link, cut != Cut::Back, cut != Cut::There);
        self.due.insert(link, until);
    }

    /// Mends the links that are due, and returns whether all are whole.
    pub(super) fn turn(&mut self, now: Instant) -> bool {
        let due: Vec<Link> = self.due.iter().filter(|(_, at)| **at <= now).map(|(&link, _)| link).collect();
        for link in due {
            self.set(link, false, false);
            self.due.remove(&link);
        }
        self.due.is_empty()
    }

    /// Returns how many datagrams did not pass so far because their link was cut.
    pub(super) fn lost(&self) -> u64 {
        self.relays.values().map(|relay| relay.shared.lost.load(Ordering::Relaxed)).sum()
    }

    fn set(&self, link: Link, there: bool, back: bool) {
        if let Some(Relay { shared, .. }) = self.relays.get(&link) {
            shared.deaf_there.store(there, Ordering::Relaxed);
            shared.deaf_back.store(back, Ordering::Relaxed);
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, its sockets are closed all the same.
            let _joined = thread.join();
        }
    }
}

/// The path of one dialling socket.
struct Flow {
    back: Arc<UdpSocket>,
    task: AbortHandle,
    used: Instant,
}

/// Serves a link for ever.
async fn relay(mut front: UdpSocket, address: SocketAddr, shared: Arc<Shared>) {
    loop {
        pass(front, &shared).await;
        // The port is closed now.
        front = loop {
            shared.listened().await;
            match UdpSocket::bind(address).await {
                Ok(socket) => break socket,
                Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
            }
        };
    }
}

/// Passes on datagrams until nobody listens at the other end.
async fn pass(front: UdpSocket, shared: &Arc<Shared>) {
    let front = Arc::new(front);
    let mut flows: BTreeMap<SocketAddr, Flow> = BTreeMap::new();
    let mut answering = JoinSet::new();
    let mut datagram = vec![0; MOST_BYTES];
    loop {
        let received = tokio::select! {
            received = front.recv_from(&mut datagram) => received,
            Some(ended) = answering.join_next() => match ended {
                Ok(Refused) => break,
                // Given up.
                Err(_) => continue,
            },
        };
        // On loopback an error tells of an earlier datagram that nobody took.
        let Ok((bytes, from)) = received else { continue };
        let Some(&to) = shared.upstream.get() else { continue };
        if shared.deaf_there.load(Ordering::Relaxed) {
            shared.lost.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        if !flows.contains_key(&from) {
            if flows.len() == MOST_FLOWS
                && let Some(oldest) = flows.iter().min_by_key(|(_, flow)| flow.used).map(|(&from, _)| from)
                && let Some(flow) = flows.remove(&oldest)
            {
                flow.task.abort();
            }
            let Ok(back) = UdpSocket::bind(ANY).await else { continue };
            if back.connect(to).await.is_err() {
                continue;
            }
            let back = Arc::new(back);
            let task = answering.spawn(answers(back.clone(), front.clone(), from, shared.clone()));
            flows.insert(from, Flow { back, task, used: Instant::now() });
        }
        if let Some(flow) = flows.get_mut(&from) {
            flow.used = Instant::now();
            if let Err(error) = flow.back.send(&datagram[..bytes]).await
                && shared.tells_refusal(&error)
            {
                break;
            }
        }
    }
    // They hold the socket.
    answering.shutdown().await;
}

/// Says that nobody listens at the other end.
struct Refused;

/// Passes on the answers to one dialling socket, until it is refused.
async fn answers(
    back: Arc<UdpSocket>,
    front: Arc<UdpSocket>,
    to: SocketAddr,
    shared: Arc<Shared>,
) -> Refused {
    let mut datagram = vec![0; MOST_BYTES];
    loop {
        let bytes = match back.recv(&mut datagram).await {
            Ok(bytes) => bytes,
            Err(error) if shared.tells_refusal(&error) => return Refused,
            Err(_) => continue,
        };
        if shared.deaf_back.load(Ordering::Relaxed) {
            shared.lost.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let _passed = front.send_to(&datagram[..bytes], to).await;
    }
}

impl Shared {
    /// Returns whether the error is a refusal that reaches the dialling side.
    fn tells_refusal(&self, error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::ConnectionRefused && !self.is_cut()
    }

    fn is_cut(&self) -> bool {
        self.deaf_there.load(Ordering::Relaxed) || self.deaf_back.load(Ordering::Relaxed)
    }

    /// Waits until somebody listens at the other end, or the link is cut so that nobody could be told.
    async fn listened(&self) {
        while !self.is_cut() && self.is_refused().await {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn is_refused(&self) -> bool {
        let Some(&to) = self.upstream.get() else { return false };
        let asked = async {
            let socket = UdpSocket::bind(ANY).await?;
            socket.connect(to).await?;
            socket.send(&[0]).await?;
            socket.recv(&mut [0]).await
        };
        matches!(tokio::time::timeout(LOOK_AGAIN, asked).await, Ok(Err(_)))
    }
}

/// Binds a socket at a port that the system assigns to nobody by itself: it is to be bound again later.
fn bind_front() -> io::Result<std::net::UdpSocket> {
    let draw = RunId::generate().as_u128() as u64;
    let port = |attempt| FIRST_PORT + (split_mix64(draw ^ attempt) % u64::from(PORTS)) as u16;
    let bound = (0..ATTEMPTS).find_map(|attempt| std::net::UdpSocket::bind((LOCAL, port(attempt))).ok());
    let socket = bound.ok_or_else(|| io::Error::other("no port is free for a relay"))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

const ANY: &str = "127.0.0.1:0";
/// Bytes of a datagram, as on Ethernet; a larger one is cut off and rejected by its receiver.
const MOST_BYTES: usize = 1500;
/// Number of dialling sockets of a link; a process that is started again has a new one, and so has each question about
/// the port.
const MOST_FLOWS: usize = 16;
const LOCAL: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// The first port to try: below those that are drawn for sockets without a port.
const FIRST_PORT: u16 = 16_384;
const PORTS: u16 = 16_384;
const ATTEMPTS: u64 = 64;
/// Interval at which it is checked whether somebody listens at the other end of a link again.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use rollhouse_wire::port_is_closed;

    use super::*;

    #[test]
    fn who_dials_a_process_that_has_ended_is_told_so_and_not_while_the_link_is_cut() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let link = Link::TrainerNode(0);
        let mut links = Links::open(&[link]).unwrap();
        let free = bind_front().unwrap().local_addr().unwrap().port();
        let node = UdpSocket::bind((LOCAL, free)).unwrap();
        let (listens, relay) = (node.local_addr().unwrap(), links.address(link).unwrap().to_string());
        links.lead(link, listens);
        let is_closed = || runtime.block_on(port_is_closed(&relay));
        assert!(!is_closed());
        drop(node);
        // The relay learns it by the first question.
        while !is_closed() {}
        let until = Instant::now() + Duration::from_secs(1);
        for cut in [Cut::Both, Cut::There, Cut::Back] {
            links.cut(link, cut, until);
            // Its port is opened again, which takes a moment.
            while is_closed() {}
            assert!(!is_closed(), "{cut:?}");
            links.turn(until);
            while !is_closed() {}
        }
        let node = UdpSocket::bind(listens).unwrap();
        let trainer = UdpSocket::bind(ANY).unwrap();
        trainer.connect(&*relay).unwrap();
        while is_closed() {}
        // A refusal of before may still be told.
        while trainer.send(b"again").is_err() {}
        let mut heard = [0; 5];
        while node.recv_from(&mut heard).unwrap().0 < heard.len() {}
        assert_eq!(&heard, b"again");
    }

    #[test]
    fn a_link_passes_both_ways_and_only_the_other_way_while_one_is_cut() {
        let link = Link::TrainerNode(0);
        let mut links = Links::open(&[link]).unwrap();
        let (trainer, node) = (UdpSocket::bind(ANY).unwrap(), UdpSocket::bind(ANY).unwrap());
        links.lead(link, node.local_addr().unwrap());
        trainer.connect(links.address(link).unwrap()).unwrap();
        let mut heard = [0; 9];
        let there = |heard: &mut [u8]| node.recv_from(heard).unwrap();
        trainer.send(b"one").unwrap();
        let (_, way_back) = there(&mut heard);
        assert_eq!(&heard[..3], b"one");
        node.send_to(b"two", way_back).unwrap();
        trainer.recv(&mut heard).unwrap();
        assert_eq!(&heard[..3], b"two");

        let begun = Instant::now();
        let until = begun + Duration::from_secs(1);
        let lose = |links: &Links| {
            let before = links.lost();
            move |links: &Links| while links.lost() == before {}
        };
        links.cut(link, Cut::Back, until);
        let lost = lose(&links);
        node.send_to(b"lost", way_back).unwrap();
        lost(&links);
        trainer.send(b"three").unwrap();
        there(&mut heard);
        assert_eq!(&heard[..5], b"three");
        assert!(!links.is_whole(link) && !links.turn(begun));

        links.cut(link, Cut::There, until);
        let lost = lose(&links);
        trainer.send(b"lost").unwrap();
        lost(&links);
        node.send_to(b"four", way_back).unwrap();
        trainer.recv(&mut heard).unwrap();
        assert_eq!(&heard[..4], b"four");

        assert!(links.turn(until) && links.is_whole(link));
        trainer.send(b"five").unwrap();
        there(&mut heard);
        assert_eq!(&heard[..4], b"five");
        assert_eq!(links.lost(), 2);
    }
}
