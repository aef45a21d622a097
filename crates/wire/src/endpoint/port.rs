//! Checks whether anybody listens at a peer's port.
//!
//! A process that ends gives up its port, and its host answers packets to that port with "port unreachable". QUIC's
//! sockets are not told of such answers; a connected socket is. A host that is silent, paused or cut off answers
//! nothing, and neither does one whose way back is filtered: those are waited for as before.
//!
//! Anybody who sees the question or guesses its ports can forge an answer. So the question is asked from two sockets,
//! and what follows from the answer is fenced like any other loss: a living peer that is believed dead costs a slow
//! step.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::UdpSocket;

/// Asks twice whether the port is closed, and returns false if nothing is answered in time.
pub(super) async fn is_closed(address: SocketAddr) -> bool {
    let ask = async { is_refused(address).await && is_refused(address).await };
    tokio::time::timeout(ANSWER_WITHIN, ask).await.unwrap_or(false)
}

/// Waits until the port is known to be closed; otherwise never returns. Asks at once at first, then less and less
/// often. Cancellation-safe.
pub(crate) async fn port_closed(address: SocketAddr) {
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        if is_closed(address).await {
            return;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Asks from a socket of its own and returns whether the port is closed. Waits for an answer without a limit.
async fn is_refused(address: SocketAddr) -> bool {
    let asked = async {
        let socket = UdpSocket::bind(SocketAddr::new(any_of(address), 0)).await?;
        socket.connect(address).await?;
        let mut pause = FIRST_PAUSE;
        loop {
            // Too short for any packet of QUIC: whoever listens drops it.
            socket.send(&[0]).await?;
            // Either may have been lost.
            if let Ok(heard) = tokio::time::timeout(pause, socket.recv(&mut [0])).await {
                return heard;
            }
            pause *= 2;
        }
    };
    asked.await.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Returns the unspecified address of the peer's family, to which sockets towards that peer are bound.
pub(crate) const fn any_of(peer: SocketAddr) -> IpAddr {
    match peer {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// Decides when a connected peer's port is checked.
///
/// ```text
/// something heard ──▶ look after 50 ms ── nothing sent since: look again
///                                      └─ something sent, nothing heard: ask, look after 100 ms, 200 ms, ... 1 s
/// ```
///
/// Pure: it counts looks, not time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PortSilence {
    /// Number of datagrams sent when something was heard last.
    sent: u64,
    heard: u64,
    pause: Duration,
}

impl Default for PortSilence {
    fn default() -> Self {
        Self { sent: 0, heard: 0, pause: LOOK_EVERY }
    }
}

impl PortSilence {
    /// Returns the time until the next look.
    pub(super) const fn pause(&self) -> Duration {
        self.pause
    }

    /// Compares how many datagrams have been sent and heard, and returns whether to check the port. With `doubt` the
    /// port is also checked when nothing was sent: somebody waits.
    pub(super) fn look(&mut self, sent: u64, heard: u64, doubt: bool) -> bool {
        if heard != self.heard {
            *self = Self { sent, heard, pause: LOOK_EVERY };
            return false;
        }
        let asks = doubt || sent != self.sent;
        if asks {
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
        asks
    }
}

/// Time within which a host must answer. Longer than most round trips; a later answer is asked for again.
const ANSWER_WITHIN: Duration = Duration::from_millis(300);
/// Interval at which a connected peer is checked for silence.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// First pause, before a peer that is being dialled is doubted and before it is asked again: most networks are faster.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Longest pause between questions: hosts answer only a limited number of datagrams to closed ports a second.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port_is_closed;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn a_port_is_closed_from_the_moment_its_socket_is() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = std::net::UdpSocket::bind(any) else { continue };
            let address = socket.local_addr().unwrap();
            assert!(!block_on(port_is_closed(&address.to_string())), "nobody answers, but somebody is there");
            drop(socket);
            assert!(block_on(port_is_closed(&address.to_string())));
            block_on(port_closed(address));
        }
    }

    #[test]
    fn a_peer_is_doubted_when_it_was_sent_something_and_says_nothing() {
        let mut silence = PortSilence::default();
        assert!(!silence.look(3, 2, false), "heard of");
        assert!(!silence.look(3, 2, false), "nothing was sent");
        assert_eq!(silence.pause(), LOOK_EVERY);
        let mut pauses = Vec::new();
        for sent in 4..10 {
            assert!(silence.look(sent, 2, false));
            pauses.push(silence.pause().as_millis());
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000]);
        assert!(silence.look(9, 2, false), "what was sent has still no answer");
        assert!(!silence.look(10, 3, false));
        assert_eq!(silence.pause(), LOOK_EVERY);
    }

    #[test]
    fn a_peer_that_somebody_waits_for_is_doubted_although_nothing_was_sent() {
        let mut silence = PortSilence::default();
        silence.look(3, 2, false);
        assert!(silence.look(3, 2, true));
        assert!(!silence.look(3, 2, false));
    }
}
