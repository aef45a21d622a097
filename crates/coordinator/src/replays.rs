//! Recorded episodes that are opened as sessions: found in the store here, placed by the cluster, fetched by their nodes.

use std::sync::Arc;

use rollhouse_wire::{
    CloseCode, Connection, EpisodeBytes, FetchEpisode, LaneSettings, OpenPool, OpenReplay, Refusal,
    Responder, Spread, StreamLost,
};

use crate::actor::ClusterRequest;
use crate::service::{Reader, Service, asker, blocking};

impl Service {
    /// Turns an [`OpenReplay`] into a request to the cluster: a pool of one lane that shows the episode.
    ///
    /// # Errors
    /// If the store has no such episode, or cannot tell.
    pub(crate) async fn replay_pool(
        &self,
        connection: &Connection,
        reader: &Reader,
        open: OpenReplay,
    ) -> Result<ClusterRequest, Refusal> {
        let OpenReplay { pool, episode } = open;
        let store = self.store.clone();
        let settings: LaneSettings = {
            let _turn = self.places.questions.turn(&reader.claimant).await;
            let reads = connection.peer().reads.clone();
            blocking(move || store.replay_settings(&reads, &episode)).await?
        };
        let (asker, certificate) = asker(connection);
        let (labels, spread) = (Default::default(), Spread::Single);
        let request = Box::new(OpenPool { pool, lanes: 1, settings, labels, spread });
        Ok(ClusterRequest::OpenPool { asker, certificate, request })
    }

    /// Answers with the file of an episode, its bytes after the answer.
    pub(crate) async fn fetch_episode(
        self: &Arc<Self>,
        fetch: FetchEpisode,
        reader: &Reader,
        responder: Responder,
    ) -> Result<(), StreamLost> {
        // Held until all is sent: an episode and its file are in memory meanwhile.
        let _turn = self.places.episodes.turn(&reader.claimant).await;
        let store = self.store.clone();
        let file = match blocking(move || store.episode_file(&fetch.episode)).await {
            Ok(file) => file,
            Err(refusal) => return self.refuse(responder, refusal).await,
        };
        let answer = EpisodeBytes { bytes: file.len() as u64 };
        let (_asker, mut send) = responder.accept(answer).await?;
        for piece in file.chunks(PIECE_BYTES) {
            let written = send.write_all(piece).await;
            if written.is_err() {
                // What was said to follow does not: whoever waits for it is to know.
                send.give_up(CloseCode::Internal);
                return written;
            }
        }
        send.finish()
    }
}

/// Bytes of an episode that are sent at a time.
const PIECE_BYTES: usize = 256 << 10;
