//! What was done, and what was refused and why.

use std::sync::atomic::{AtomicU64, Ordering};

use tracing::info;

/// Reason for which a client did not get what it asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It does not have the token.
    Token,
    /// It is a page of the web.
    WebPage,
    /// There is no such route, or not by this method.
    Route,
    /// A body did not come in time, or came broken.
    Body,
    /// A message or a body was too long.
    Long,
    /// What came is no JSON.
    Json,
    /// There are no messages of that type.
    Type,
    /// Fields are not as they have to be, or an action lies outside the space.
    Fields,
    /// A request of JSON-RPC cannot be answered.
    Rpc,
    /// The env refused, or has failed.
    Execution,
    /// There were as many sessions as may be.
    Capacity,
    /// A lane could not be made.
    Factory,
    /// A session was not there, or in use.
    Session,
    /// A socket broke WebSocket's rules.
    Frames,
    /// A client did not take its answer.
    NotTaken,
    /// A client did not answer pings.
    Silent,
    /// A session was idle for too long.
    Idle,
}

/// What was done and refused since the server began.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sockets: AtomicU64,
    pub(crate) episodes: AtomicU64,
    pub(crate) steps: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
}

impl Refusal {
    const ALL: [Self; 17] = [
        Self::Token,
        Self::WebPage,
        Self::Route,
        Self::Body,
        Self::Long,
        Self::Json,
        Self::Type,
        Self::Fields,
        Self::Rpc,
        Self::Execution,
        Self::Capacity,
        Self::Factory,
        Self::Session,
        Self::Frames,
        Self::NotTaken,
        Self::Silent,
        Self::Idle,
    ];

    const fn word(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::WebPage => "web_page",
            Self::Route => "route",
            Self::Body => "body",
            Self::Long => "long",
            Self::Json => "json",
            Self::Type => "type",
            Self::Fields => "fields",
            Self::Rpc => "rpc",
            Self::Execution => "execution",
            Self::Capacity => "capacity",
            Self::Factory => "factory",
            Self::Session => "session",
            Self::Frames => "frames",
            Self::NotTaken => "not_taken",
            Self::Silent => "silent",
            Self::Idle => "idle",
        }
    }
}

impl Counts {
    pub(crate) fn refuse(&self, refusal: Refusal) {
        self.refused[refusal as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Logs what was done and refused.
    pub(crate) fn log(&self) {
        let [sockets, episodes, steps] =
            [&self.sockets, &self.episodes, &self.steps].map(|count| count.load(Ordering::Relaxed));
        let refused = self.refused();
        info!(sockets, episodes, steps, refused, "the gate has ended");
    }

    /// Returns how often was refused for each reason that there was.
    fn refused(&self) -> String {
        let counted = Refusal::ALL
            .into_iter()
            .map(|reason| (reason, self.refused[reason as usize].load(Ordering::Relaxed)));
        let there = counted.filter(|(_, count)| *count > 0);
        there.map(|(reason, count)| format!("{}={count}", reason.word())).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_counted_for_itself() {
        let counts = Counts::default();
        assert_eq!(counts.refused(), "");
        for (times, reason) in Refusal::ALL.into_iter().enumerate() {
            (0..=times).for_each(|_| counts.refuse(reason));
        }
        let refused = counts.refused();
        assert!(
            refused.starts_with("token=1 web_page=2 ") && refused.ends_with(" silent=16 idle=17"),
            "{refused}"
        );
    }
}
