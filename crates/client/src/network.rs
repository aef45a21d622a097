//! Connections to the coordinator and to nodes, one each, shared by all pools.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rollhouse_wire::{CloseCode, Connection, DialError, Dialer, Expected, Grant};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use crate::transport::AttachPlaces;

/// The dialer, and the connections it has made.
pub(crate) struct Network {
    dialer: Dialer,
    host_port: String,
    token: Option<String>,
    /// The connection; `None` after it was lost.
    coordinator: AsyncMutex<Option<Connection>>,
    attach: AttachPlaces,
    nodes: Mutex<HashMap<String, Arc<Node>>>,
    began: Instant,
    /// Milliseconds from the beginning at which nodes' certificates were last looked at.
    looked_ms: AtomicU64,
}

/// A node with what is known of its connection.
#[derive(Default)]
struct Node {
    /// The connection; locked while the node is dialled, so that all who need the node wait for one attempt.
    link: AsyncMutex<Link>,
}

#[derive(Default)]
struct Link {
    connection: Option<Connection>,
    /// The time and the error of the last attempt that failed.
    failed: Option<(Instant, Arc<DialError>)>,
}

impl Network {
    /// Makes the network of a coordinator at `host_port`, to which `token` is shown.
    pub(crate) fn new(
        dialer: Dialer,
        host_port: String,
        token: Option<String>,
        attach: AttachPlaces,
    ) -> Self {
        let (coordinator, nodes) = (AsyncMutex::default(), Mutex::default());
        let (began, looked_ms) = (Instant::now(), AtomicU64::default());
        Self { dialer, host_port, token, coordinator, attach, nodes, began, looked_ms }
    }

    /// Returns where attach sockets are looked for.
    pub(crate) const fn attach(&self) -> &AttachPlaces {
        &self.attach
    }

    /// Returns the address at which the coordinator is dialled.
    pub(crate) fn host_port(&self) -> &str {
        &self.host_port
    }

    /// Returns the connection to the coordinator, dialling if there is none. Cancellation-safe.
    pub(crate) async fn coordinator(&self) -> Result<Connection, DialError> {
        let mut slot = self.coordinator.lock().await;
        if let Some(connection) = slot.as_ref().filter(|connection| is_good(connection)) {
            return Ok(connection.clone());
        }
        *slot = None;
        let dialled = self.dialer.dial(&self.host_port, &Expected::COORDINATOR, self.token.as_deref()).await;
        Ok(slot.insert(dialled?).clone())
    }

    pub(crate) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// Returns the connection to the node of a grant, dialling if there is none. If another caller's attempt, begun
    /// meanwhile, fails, it has failed for all that waited for it. Cancellation-safe.
    pub(crate) async fn node(&self, grant: &Grant) -> Result<Connection, Arc<DialError>> {
        self.node_at(&grant.node, &grant.address).await
    }

    /// Returns the connection to the node of that name at that address, as [`Network::node`] does.
    pub(crate) async fn node_at(&self, name: &str, address: &str) -> Result<Connection, Arc<DialError>> {
        let asked = Instant::now();
        let node = {
            let mut nodes = self.nodes.lock();
            Arc::clone(nodes.entry(address.to_owned()).or_default())
        };
        let mut link = node.link.lock().await;
        // Another node may have been there before, whose end is not known yet.
        let is_its = |connection: &&Connection| connection.peer().name == name && is_good(connection);
        if let Some(connection) = link.connection.as_ref().filter(is_its) {
            return Ok(connection.clone());
        }
        link.connection = None;
        if let Some((at, error)) = &link.failed
            && *at >= asked
        {
            return Err(Arc::clone(error));
        }
        match self.dialer.dial(address, &Expected::node(name), None).await {
            Ok(connection) => {
                link.failed = None;
                Ok(link.connection.insert(connection).clone())
            }
            Err(error) => {
                let error = Arc::new(error);
                link.failed = Some((Instant::now(), Arc::clone(&error)));
                Err(error)
            }
        }
    }

    /// Ends connections to nodes whose certificates do not hold any more, at most every [`LOOK_EVERY`]: sessions find
    /// that their streams are gone, and go on elsewhere.
    pub(crate) fn look_at_nodes(&self) {
        let now = self.began.elapsed();
        let looked = Duration::from_millis(self.looked_ms.load(Ordering::Relaxed));
        if now.saturating_sub(looked) < LOOK_EVERY {
            return;
        }
        // 584 million years of milliseconds.
        self.looked_ms.store(now.as_millis() as u64, Ordering::Relaxed);
        let nodes = self.nodes.lock();
        for link in nodes.values().filter_map(|node| node.link.try_lock().ok()) {
            let _good = link.connection.as_ref().is_none_or(is_good);
        }
    }

    /// Forgets nodes that are not connected any more; called when pools are opened, so that the list stays as
    /// long as the cluster is large.
    pub(crate) fn tidy(&self) {
        let mut nodes = self.nodes.lock();
        nodes.retain(|_, node| match node.link.try_lock() {
            Ok(link) => link.connection.as_ref().is_some_and(|connection| connection.lost().is_none()),
            Err(_) => true,
        });
    }
}

/// Returns whether a connection is there and its peer's certificate still valid. If the certificate is not, the
/// connection is closed.
fn is_good(connection: &Connection) -> bool {
    if connection.lost().is_some() {
        return false;
    }
    let checked = connection.certificate().map_or(Ok(()), |shown| shown.certify(SystemTime::now()).map(drop));
    checked.inspect_err(|why| connection.close(CloseCode::Refused, &why.to_string())).is_ok()
}

/// Interval at which nodes' certificates are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AsyncCluster;
    use crate::test_nodes::Nodes;

    /// Symptom: an owner whose grant named a node at the address of another that he was connected to attached to that one.
    /// Cause: connections were found by address alone. Fix: the name has to be that of the grant, as when it is dialled.
    #[tokio::test]
    async fn a_connection_to_another_node_at_the_same_address_is_not_taken_for_the_nodes() {
        let nodes = Nodes::start(1);
        let cluster = AsyncCluster::connect(&nodes.address(), nodes.options()).await.unwrap();
        let address = &cluster.nodes().await.unwrap().nodes[0].address;
        let network = cluster.network();
        network.node_at("node-0", address).await.unwrap();
        let other = network.node_at("node-7", address).await.map(|found| found.peer().name.clone());
        assert!(
            matches!(other.as_ref().map_err(|error| &**error), Err(DialError::Identity { .. })),
            "{other:?}"
        );
        assert_eq!(network.node_at("node-0", address).await.unwrap().peer().name, "node-0");
    }
}
