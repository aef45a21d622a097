//! What has become of a session whose node does not answer: the coordinator knows before a connection is given up.

use std::time::Duration;

use rollhouse_core::RunId;
use rollhouse_wire::{Connection, EndCause, GoneSession, Grant, PoolStatus, PoolStatusRequest, Request};

use crate::network::Network;

/// Asks the coordinator about a session for as long as its node is silent.
///
/// A coordinator takes a silent node for lost after 5 s. A node that is heard of here is believed in whatever the
/// coordinator says: it may be cut off from that one only, or be inside a long step. So a lost node holds up its
/// owner for [`SILENT_AFTER`] and [`ASK_EVERY`], about 7 s, and not until the connection is given up (15 s) and a
/// lease has passed (30 s).
pub(crate) struct Inquiry<'a> {
    network: &'a Network,
    pool: RunId,
    session: GoneSession,
    /// On which the node is heard, if there is a connection.
    connection: Option<Connection>,
}

impl<'a> Inquiry<'a> {
    /// About the session of that grant.
    pub(crate) fn new(
        network: &'a Network,
        pool: RunId,
        grant: &Grant,
        connection: Option<&Connection>,
    ) -> Self {
        let Grant { index, incarnation, .. } = *grant;
        // The cause is what is asked for.
        let session = GoneSession { index, incarnation, cause: EndCause::NodeLost };
        Self { network, pool, session, connection: connection.cloned() }
    }

    /// Resolves with the reason when the node is silent and the session is gone; never otherwise. Cancellation-safe.
    pub(crate) async fn gone(self) -> EndCause {
        let mut heard = self.heard();
        let mut silent = Duration::ZERO;
        let mut pause = if self.is_connected() { ASK_EVERY } else { FIRST_ASK };
        loop {
            tokio::time::sleep(pause).await;
            silent += pause;
            pause = ASK_EVERY;
            let now = self.heard();
            if now != heard {
                (heard, silent) = (now, Duration::ZERO);
            }
            if (silent >= SILENT_AFTER || !self.is_connected())
                && let Some(cause) = self.ask().await
            {
                return cause;
            }
        }
    }

    /// Bytes received of the node.
    fn heard(&self) -> Option<u64> {
        self.connection.as_ref().map(|connection| connection.figures().received_bytes)
    }

    fn is_connected(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.lost().is_none())
    }

    /// Why the session is gone; `None` if it is not, or the coordinator does not say.
    async fn ask(&self) -> Option<EndCause> {
        let request = Request::PoolStatus(PoolStatusRequest { pool: self.pool });
        let asked = async {
            let connection = self.network.coordinator().await.ok()?;
            connection.call::<PoolStatus>(&request, ANSWER_WITHIN).await.ok()
        };
        let status = tokio::time::timeout(ANSWER_WITHIN, asked).await.ok()??;
        let GoneSession { index, incarnation, .. } = self.session;
        let found = status.gone.iter().find(|gone| (gone.index, gone.incarnation) == (index, incarnation));
        found.map(|gone| gone.cause)
    }
}

/// Longer than a keep-alive and its acknowledgement take: a node that is there is heard of in that time.
pub(crate) const SILENT_AFTER: Duration = Duration::from_secs(6);
/// How often the coordinator is asked.
pub(crate) const ASK_EVERY: Duration = Duration::from_secs(1);
/// How long it may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How soon it is asked at first when there is no connection to the node.
const FIRST_ASK: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use rollhouse_wire::Settings;

    #[test]
    fn a_node_that_is_there_is_heard_of_before_anybody_asks_about_it() {
        let Settings { keep_alive, idle, .. } = Settings::default();
        assert!(keep_alive < SILENT_AFTER && SILENT_AFTER + ASK_EVERY < idle);
    }
}
