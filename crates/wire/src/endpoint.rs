//! QUIC as the cluster uses it: connections whose ends know each other, requests, bytes and frames on streams.
//!
//! | task | runs on | on cancel | on error |
//! |---|---|---|---|
//! | quinn's endpoint and connection drivers | the runtime the [`Listener`] or [`Dialer`] was first used in | connections are lost, peers see silence | the connections end with the error |
//! | one per handshake, in [`Listener`] | the same | the stranger is refused | it is turned away and counted |
//! | one per dialled connection, which looks whether the peer's port is closed | the same | nothing is lost | it ends with its connection |
//! | one per answer on its way | the same | the room for it is free again | its stream is given up |
//! | one per request being read, in [`Requests`] | the same | its stream is given up | of a request that is late, its stream is given up; of what is none, the connection is closed with the reason |

mod answer;
mod commands;
mod congestion;
mod connection;
mod dialer;
mod eager;
mod frames;
mod gate;
mod incoming;
mod listener;
mod lost;
mod peer;
mod port;
mod reset_key;
mod settings;
mod stream;
mod untaken;

pub use answer::{CallError, UnreadAnswer};
pub use commands::{EnvelopeFault, EnvelopeReader, EnvelopeWriter};
pub use connection::{Admittance, Call, Connection, LinkFigures};
pub use dialer::{DialError, Dialer, port_is_closed};
pub use eager::Eagerness;
pub use frames::{FrameFault, FrameReader, FrameWriter};
pub(crate) use incoming::span_of;
pub use incoming::{REQUEST_DEADLINE, Refused, RequestShares, Requests, Responder};
pub use listener::{Arrival, ArrivalCounts, Authenticate, BindError, Listener, TurnedAway, TurnedAwayReason};
pub use lost::{CloseCode, ConnectionLost, MAX_REASON_BYTES, StreamLost};
pub use peer::{Credential, Peer, Stranger};
pub use reset_key::ResetKey;
pub use settings::{Effective, LARGEST_DATAGRAM, Path, Settings};
pub use stream::{ByteReceiver, ByteSender};
