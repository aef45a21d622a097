//! What has become of a session whose node does not answer: the coordinator knows before a connection is given up.

use std::time::Duration;

use rollhouse_core::RunId;
use rollhouse_wire::{Connection, EndCause, GoneSession, Grant, PoolStatus, PoolStatusRequest, Request};
use tokio::time::Instant;

use crate::alarm::Alarm;
use crate::network::Network;
use crate::silence::{INQUIRY_DEADLINE, Silence};

/// Asks the coordinator about a session whenever [`Silence`] says so.
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
    pub(crate) async fn gone(self, alarm: &mut Alarm) -> EndCause {
        let start = Instant::now();
        // Most answers are here before, and nothing is looked at for them.
        alarm.until(start + FIRST_HEARD).await;
        let mut silence = Silence::new(Duration::ZERO, self.heard());
        loop {
            alarm.until(start + silence.look_at()).await;
            // A node that is inside a long step is sent nothing, and its port not asked about otherwise.
            if let Some(connection) = &self.connection {
                connection.doubt();
            }
            if silence.look(start.elapsed(), self.heard()) {
                if let Some(cause) = Box::pin(self.ask()).await {
                    return cause;
                }
                silence.asked(start.elapsed());
            }
        }
    }

    /// Bytes received of the node; `None` without a connection.
    fn heard(&self) -> Option<u64> {
        let connected = self.connection.as_ref().filter(|connection| connection.lost().is_none());
        connected.map(|connection| connection.figures().received_bytes)
    }

    /// Why the session is gone; `None` if it is not, or the coordinator does not say.
    async fn ask(&self) -> Option<EndCause> {
        let request = Request::PoolStatus(PoolStatusRequest { pool: self.pool, keep: false });
        let asked = async {
            let connection = self.network.coordinator().await.ok()?;
            connection.call::<PoolStatus>(&request, INQUIRY_DEADLINE).await.ok()
        };
        let status = tokio::time::timeout(INQUIRY_DEADLINE, asked).await.ok()??;
        let GoneSession { index, incarnation, .. } = self.session;
        let found = status.gone.iter().find(|gone| (gone.index, gone.incarnation) == (index, incarnation));
        found.map(|gone| gone.cause)
    }
}

/// When it is noted at first what has been heard of the node: long before that is compared with anything.
const FIRST_HEARD: Duration = Duration::from_millis(100);
