//! The ways in which owners step their sessions.

/// The way in which an owner steps its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// A stream.
    Quic,
    /// Memory that both have mapped.
    SharedMemory,
}

impl Transport {
    /// Every transport.
    pub const ALL: [Self; 2] = [Self::Quic, Self::SharedMemory];

    /// Returns the word for it in reports and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Quic => "quic",
            Self::SharedMemory => "shm",
        }
    }
}
