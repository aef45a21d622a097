//! Eight sessions of CartPole lanes, 512 each unless said otherwise, over a link that is slow and loses packets:
//! as QUIC streams of one connection, and multiplexed over one TCP stream (without TLS, which favours it).
//!
//! `cargo bench -p rollhouse-tests --bench link -- [--delay-ms D] [--loss P] [--lanes L] [--seconds S]
//! [--repeats R] [--json]`
//!
//! Client and server run in network namespaces of their own, joined by the emulator; both transports carry the
//! same frames to the same engines. Prints medians of interleaved repeats.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "it is a program for measuring, not for users")]

#[cfg(target_os = "linux")]
mod linux;

fn main() {
    #[cfg(target_os = "linux")]
    linux::main();
    #[cfg(not(target_os = "linux"))]
    println!("skipped: network namespaces and TUN devices are Linux's");
}
