//! Carries out sessions' actions over the network and at this machine's attach sockets.

use std::time::Duration;

use rollhouse_core::RunId;
use rollhouse_wire::{
    Asks, Attach, AttachCallError, AttachMemory, Attached, CallError, CallId, CloseCode, Connection,
    ConnectionLost, DialError, Grant, OwnerSocket, PoolStatus, PoolStatusRequest, ReplaceSession,
    SessionReplaced, VERSION, failpoint,
};
use tokio::time::Instant;

use crate::alarm::Alarm;
use crate::carrier::{Carrier, Line, NoMemory, OfferedMemory};
use crate::cluster::AsyncCluster;
use crate::link::StreamLink;
use crate::network::Network;
use crate::session::{NoPlace, PLACE_WITHIN, SessionEvent};
use crate::silence::INQUIRY_DEADLINE;

/// The network of a cluster, with the clock of one pool.
#[derive(Debug)]
pub struct Wire {
    pub(crate) cluster: AsyncCluster,
    /// Zero of the clock that sessions decide by.
    pub(crate) start: Instant,
}

impl Wire {
    pub(crate) fn network(&self) -> &Network {
        self.cluster.network()
    }

    /// Returns a time of the runtime's clock on that of sessions.
    pub(crate) fn at(&self, time: Instant) -> Duration {
        time - self.start
    }
}

impl Carrier for Wire {
    type Stream = StreamLink;
    type Alarm = Alarm;

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    async fn sleep_until(&self, until: Duration) {
        tokio::time::sleep_until(self.start + until).await;
    }

    async fn alarm(&self, alarm: &mut Alarm, until: Duration) {
        alarm.until(self.start + until).await;
    }

    async fn attach_stream(
        &self,
        pool: RunId,
        grant: &Grant,
        max_columns: usize,
    ) -> Result<(StreamLink, Attached), SessionEvent> {
        let connection = self.network().node(grant).await.map_err(|error| match &*error {
            DialError::PortClosed { .. } => SessionEvent::PortClosed(Some(error.to_string())),
            _ => SessionEvent::Unreachable(Some(error.to_string())),
        })?;
        let Grant { index, incarnation, secret, .. } = *grant;
        let attach = Attach { pool, index, incarnation, secret, log: true };
        let call = CallId::generate();
        let attached = call.traced(Attach::WORD, connection.attach(attach, Some(call), max_columns));
        let lost = |why: String| match connection.lost() {
            Some(ConnectionLost::PortClosed) => SessionEvent::PortClosed(Some(why)),
            _ => SessionEvent::Unreachable(Some(why)),
        };
        match tokio::time::timeout(ATTACH_DEADLINE, attached).await {
            Ok(Ok((attached, reader, writer))) if attached.lanes == grant.lanes => {
                Ok((StreamLink::new(connection, (reader, writer), attached.as_done), attached))
            }
            Ok(Ok(_)) => {
                connection.close(CloseCode::Malformed, "the session has another number of lanes");
                Err(SessionEvent::Unreachable(None))
            }
            Ok(Err(CallError::Refused(refusal))) => Err(SessionEvent::AttachRefused(refusal.of_call(call))),
            Ok(Err(error)) => Err(lost(error.to_string())),
            Err(_) => Err(lost(format!("nothing within {} s", ATTACH_DEADLINE.as_secs()))),
        }
    }

    async fn attach_memory(&self, pool: RunId, grant: &Grant) -> Result<OfferedMemory, NoMemory> {
        let attach = self.network().attach();
        let Some(socket) = attach.socket(grant) else { return Err(NoMemory::NoSocket) };
        let Grant { index, incarnation, secret, .. } = *grant;
        let asked = AttachMemory { version: VERSION, pool, index, incarnation, secret, log: true };
        let call = CallId::generate();
        failpoint("client.attach.asking");
        let attached = OwnerSocket::attach(&socket, attach.anybody(), asked, Some(call));
        let attached = tokio::time::timeout(ATTACH_DEADLINE, call.traced(AttachMemory::WORD, attached)).await;
        let attached = attached.map_err(|_| NoMemory::TimedOut)?;
        let (socket, attached, files) = attached.map_err(|error| match error {
            AttachCallError::Refused(refusal) => {
                NoMemory::Call(AttachCallError::Refused(refusal.of_call(call)))
            }
            error => NoMemory::Call(error),
        })?;
        failpoint("client.attach.answered");
        Ok(OfferedMemory { attached, files, is_open: Box::new(move || socket.is_open()) })
    }

    async fn replace(&self, request: ReplaceSession) -> Result<SessionReplaced, NoPlace> {
        let connection = self.network().coordinator().await.map_err(|error| NoPlace::of_dial(&error))?;
        let call = CallId::generate();
        let asked = connection.call_for(request, Some(call), PLACE_WITHIN);
        call.traced(ReplaceSession::WORD, asked).await.map_err(|error| match error {
            CallError::Refused(refusal) => NoPlace::of_call(CallError::Refused(refusal.of_call(call))),
            error => NoPlace::of_call(error),
        })
    }

    async fn pool_status(&self, request: PoolStatusRequest) -> Option<PoolStatus> {
        let asked = async {
            let connection = self.network().coordinator().await.ok()?;
            connection.call(request, INQUIRY_DEADLINE).await.ok()
        };
        tokio::time::timeout(INQUIRY_DEADLINE, asked).await.ok()?
    }
}

impl Line for Connection {
    fn received(&self) -> Option<u64> {
        self.lost().is_none().then(|| self.figures().received_bytes)
    }

    fn doubt(&self) {
        Self::doubt(self);
    }
}

/// Time that a node may take to answer `Attach`. It is longer than a step may be expected to take, as the node answers
/// when the session is at rest.
const ATTACH_DEADLINE: Duration = Duration::from_secs(10);
