//! The connections of owners: how they are, and what those that are no more have done.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rollhouse_wire::{Connection, LinkFigures};

/// The connections one node serves; kept by the data thread, read by whoever exports figures.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    open: BTreeMap<usize, Connection>,
    gone: Option<LinkFigures>,
}

/// How a node's connections are.
#[derive(Debug, Clone, Default)]
pub struct ConnectionFigures {
    /// Those of owners that are open.
    pub owners: Vec<LinkFigures>,
    /// What those of owners that are no more have done, added up: only its counters mean something.
    pub gone: Option<LinkFigures>,
    /// The one to the coordinator, once it knows the node.
    pub coordinator: Option<LinkFigures>,
}

/// See [`Connections::opened`].
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
    /// A connection is open for as long as what is returned lives.
    pub(crate) fn opened(self: &Arc<Self>, connection: &Connection) -> Open {
        self.known().open.insert(connection.id(), connection.clone());
        Open { connections: Arc::clone(self), connection: connection.clone() }
    }

    /// A connection is no more.
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

    /// How they are now.
    pub(crate) fn figures(&self) -> ConnectionFigures {
        let known = self.known();
        let owners = known.open.values().map(Connection::figures).collect();
        ConnectionFigures { owners, gone: known.gone, coordinator: None }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock()
    }
}
