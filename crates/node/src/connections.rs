//! The connections of owners: their present figures, and the totals of closed ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rollhouse_wire::{Connection, LinkFigures};

/// The connections that one node serves. The data thread keeps them; exporters of figures read them.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    open: BTreeMap<usize, Connection>,
    gone: Option<LinkFigures>,
}

/// Figures of a node's connections.
#[derive(Debug, Clone, Default)]
pub struct ConnectionFigures {
    /// The open connections of owners.
    pub owners: Vec<LinkFigures>,
    /// The totals of owners' connections that are closed. Only the counters mean something.
    pub gone: Option<LinkFigures>,
    /// The connection to the coordinator, once that knows the node.
    pub coordinator: Option<LinkFigures>,
}

/// A connection that counts as open until this is dropped; made by [`Connections::opened`].
#[derive(Debug)]
pub(crate) struct Open {
    connections: Arc<Connections>,
    connection: Connection,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connections.closed(&self.connection);
    }
}

impl Connections {
    /// Counts a connection as open until the returned value is dropped.
    pub(crate) fn opened(self: &Arc<Self>, connection: &Connection) -> Open {
        self.known().open.insert(connection.id(), connection.clone());
        Open { connections: Arc::clone(self), connection: connection.clone() }
    }

    /// Moves the figures of a connection that is closed to the totals.
    fn closed(&self, connection: &Connection) {
        let mut known = self.known();
        known.open.remove(&connection.id());
        let last = connection.figures();
        known.gone = Some(match known.gone {
            None => last,
            Some(gone) => LinkFigures {
                sent_bytes: gone.sent_bytes + last.sent_bytes,
                received_bytes: gone.received_bytes + last.received_bytes,
                sent_packets: gone.sent_packets + last.sent_packets,
                lost_packets: gone.lost_packets + last.lost_packets,
                congestion_events: gone.congestion_events + last.congestion_events,
                black_holes: gone.black_holes + last.black_holes,
                ..last
            },
        });
    }

    /// Returns the figures of all connections now.
    pub(crate) fn figures(&self) -> ConnectionFigures {
        let known = self.known();
        let owners = known.open.values().map(Connection::figures).collect();
        ConnectionFigures { owners, gone: known.gone, coordinator: None }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock()
    }
}
