//! Addresses that a process finds free again each time it comes back.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

/// Returns an address of this machine at a port that nobody has and that the system gives to nobody by itself: a
/// process that was killed and is started again there finds it free, however many sockets others opened meanwhile.
pub(super) fn address_to_keep() -> io::Result<SocketAddr> {
    let span = u32::from(BELOW - FROM);
    // Several of these benches may run at once: each begins at a place of its own.
    let begin = std::process::id().wrapping_mul(SPREAD) % span;
    let at = |index| {
        // Below the span, which is that of 16 bits.
        let port = FROM + ((begin + index) % span) as u16;
        let bound = UdpSocket::bind((Ipv4Addr::LOCALHOST, port))?;
        bound.local_addr()
    };
    (0..TRIES).map(at).find(Result::is_ok).unwrap_or_else(|| Err(io::ErrorKind::AddrInUse.into()))
}

/// Ports of users that Linux gives to nobody who asks for any (`ip_local_port_range` begins at 32768).
const FROM: u16 = 16_384;
const BELOW: u16 = 32_768;
/// A prime, so that processes whose ids follow each other begin far from each other.
const SPREAD: u32 = 6_151;
const TRIES: u32 = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_to_keep_is_not_one_that_others_are_given() {
        let taken = address_to_keep().unwrap();
        let held = UdpSocket::bind(taken).unwrap();
        let next = address_to_keep().unwrap();
        assert_ne!(taken, next);
        let any = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for address in [taken, next] {
            assert!((FROM..BELOW).contains(&address.port()) && address != any.local_addr().unwrap());
        }
        drop(held);
    }
}
