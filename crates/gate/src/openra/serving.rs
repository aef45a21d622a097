//! The bridge behind a listener: what runs from the first connection to the end of the gate.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::mpsc::channel;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tracing::warn;

use super::bridge::{Bridge, BridgeSettings};
use super::life::LOOK_EVERY;
use super::service::BridgeService;
use super::shape::Shape;
use crate::bearer::Bearer;
use crate::connection::{END_WITHIN, MAX_ACCEPTED, MAX_CONNECTIONS, accept};
use crate::lanes::Lanes;

/// A bridge, and who may call it.
pub(crate) struct BridgeServer {
    bridge: Arc<Bridge>,
    service: BridgeService,
}

/// Longest time of a call, above all that it waits for.
const CALL_WITHIN: Duration = Duration::from_secs(320);
/// Calls of a connection at a time.
const MAX_STREAMS: u32 = 256;
/// Maximum number of bytes of a call's headers.
const MAX_HEADER_BYTES: u32 = 16 << 10;
/// A peer that says nothing for so long is asked whether it is there, and has this time to answer.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_WITHIN: Duration = Duration::from_secs(20);

impl BridgeServer {
    pub(crate) fn new(
        lanes: Arc<dyn Lanes>,
        shape: Shape,
        settings: BridgeSettings,
        cores: usize,
        bearer: Bearer,
    ) -> Self {
        let bridge = Arc::new(Bridge::new(lanes, shape, settings, cores));
        Self { service: BridgeService::new(Arc::clone(&bridge), bearer), bridge }
    }

    /// Serves until the gate is stopped.
    pub(crate) fn serve(self, runtime: &Runtime, listener: TcpListener, stopped: oneshot::Receiver<()>) {
        let Self { bridge, service } = self;
        runtime.block_on(async {
            // The runtime takes any listening socket.
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            let (accepted, connections) = channel(MAX_ACCEPTED);
            // Task: listener.
            tokio::spawn(accept(listener, accepted, MAX_CONNECTIONS));
            // Task: reaper of sessions.
            tokio::spawn(reap(Arc::clone(&bridge)));
            let ending = Arc::clone(&bridge);
            let (begin_end, mut ends) = oneshot::channel();
            let signal = async move {
                let _stopped = stopped.await;
                let _told = begin_end.send(());
                // Streams would go on for ever, and so would the calls that wait for their sessions.
                ending.stop().await;
            };
            let server = Server::builder()
                .timeout(CALL_WITHIN)
                .max_concurrent_streams(MAX_STREAMS)
                .http2_max_header_list_size(MAX_HEADER_BYTES)
                .http2_keepalive_interval(Some(PING_EVERY))
                .http2_keepalive_timeout(Some(PING_WITHIN))
                .serve_with_incoming_shutdown(service, ReceiverStream::new(connections), signal);
            let limited = async {
                let _began = (&mut ends).await;
                tokio::time::sleep(END_WITHIN).await;
            };
            tokio::select! {
                served = server => if let Err(error) = served {
                    warn!(%error, "the gate has failed");
                },
                () = limited => warn!("calls were still under way as the gate ended"),
            }
            drop(timeout(END_WITHIN, bridge.stop()).await);
            bridge.log_counts();
        });
    }
}

/// Ends idle sessions, as long as the gate serves.
async fn reap(bridge: Arc<Bridge>) {
    let mut clock = interval(LOOK_EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        bridge.reap().await;
    }
}
