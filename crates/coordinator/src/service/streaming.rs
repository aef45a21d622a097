//! The store behind requests: blocking work is done on threads of its own.

use std::sync::Arc;
use std::time::Duration;

use rollhouse_wire::{
    CloseCode, ReadGrant, Refusal, RefusalCode, Responder, Role, Ship, Shipped, StoreData, StoreLabel,
    StoreLabels, StoreList, StoreQuery, StoreRead, StoreRepair, StreamLost,
};
use tokio::time::timeout;

use crate::service::{Reader, Service};
use crate::store::{Readable, Receive, Receiving, StoreError, StoreFile};

impl Service {
    /// Receives a segment and answers with the result.
    pub(crate) async fn ship(
        self: &Arc<Self>,
        node: &str,
        ship: Ship,
        mut responder: Responder,
    ) -> Result<(), StreamLost> {
        let _receiving = self.begin_receiving();
        let (store, node) = (self.store.clone(), node.to_owned());
        let begun = blocking(move || store.receive(&node, &ship)).await;
        let shipped = match begun {
            Ok(Receive::Answer(shipped)) => Ok(shipped),
            Ok(Receive::Bytes(receiving)) => match receive(receiving, &mut responder).await {
                Ok(receiving) => blocking(move || receiving.finish()).await,
                Err(Broken::Stream(lost)) => return Err(lost),
                Err(Broken::Store(refusal)) => Err(refusal),
            },
            Err(refusal) => Err(refusal),
        };
        let is_new = matches!(shipped, Ok(Shipped::Durable));
        if is_new && self.store.counts().received.is_multiple_of(GATHER_EVERY) {
            self.gather();
        }
        self.answer(responder, shipped).await
    }

    /// Gathers the catalogue in the background. Nobody waits for it.
    pub(crate) fn gather(&self) {
        let store = self.store.clone();
        // Task: file operation.
        drop(tokio::task::spawn_blocking(move || store.gather()));
    }

    /// Answers with the contents of a folder of the store.
    pub(crate) async fn store_list(
        &self,
        list: StoreList,
        reader: &Reader,
        responder: Responder,
    ) -> Result<(), StreamLost> {
        let (store, reads) = (self.store.clone(), responder.peer().reads.clone());
        let listed = {
            let _turn = self.places.reads.turn(&reader.claimant).await;
            blocking(move || store.list_readable(&reads, &list.path, &list.after)).await
        };
        self.answer(responder, listed).await
    }

    /// Answers with a part of a file of the store, its bytes after the answer, piece by piece.
    pub(crate) async fn store_read(
        &self,
        read: StoreRead,
        reader: &Reader,
        responder: Responder,
    ) -> Result<(), StreamLost> {
        // The connection's first, so that it waits for its owner's with no more than it may have. The semaphore is never
        // closed.
        let _answer = reader.answers.acquire().await;
        let _turn = self.places.answers.turn(&reader.claimant).await;
        let reads = responder.peer().reads.clone();
        let file = match self.open_readable(read, reads, reader).await {
            Ok(file) => Arc::new(file),
            Err(refusal) => return self.refuse(responder, refusal).await,
        };
        let data = StoreData { bytes: file.bytes(), file_bytes: file.file_bytes() };
        let (_asker, mut send) = responder.accept(data).await?;
        let mut at = 0;
        while at < file.bytes() {
            let read = {
                let (file, _turn) = (Arc::clone(&file), self.places.reads.turn(&reader.claimant).await);
                blocking(move || file.piece(at, PIECE_BYTES)).await
            };
            let written = match read {
                Ok(piece) => {
                    at += piece.len() as u32;
                    send.write_all(&piece).await
                }
                Err(_) => Err(StreamLost::ByUs),
            };
            if written.is_err() {
                // What was said to follow does not: whoever waits for it is to know.
                send.give_up(CloseCode::Internal);
                return written;
            }
        }
        send.finish()
    }

    /// Opens the stretch of a file that is asked for, as far as its reader may read it.
    async fn open_readable(
        &self,
        read: StoreRead,
        reads: ReadGrant,
        reader: &Reader,
    ) -> Result<StoreFile, Refusal> {
        let readable = if reads.is_all() {
            Readable::Whole
        } else {
            let (store, path) = (self.store.clone(), read.path.clone());
            blocking(move || store.readable(&reads, &path)).await?
        };
        if self.store.is_to_fetch(&read.path) {
            // Before there is a place at the disk: who waits for the archive holds up nobody who reads what is here.
            let (store, path) = (self.store.clone(), read.path.clone());
            let _turn = self.places.fetches.turn(&reader.claimant).await;
            blocking(move || store.fetch_file(&path)).await?;
        }
        let store = self.store.clone();
        match readable {
            Readable::Whole => {
                let _turn = self.places.reads.turn(&reader.claimant).await;
                blocking(move || store.open_file(&read.path, read.offset, read.bytes)).await
            }
            Readable::Part(of) => {
                // Cutting takes the time of a whole segment, and is done one at a time.
                let _turn = self.places.fetches.turn(&reader.claimant).await;
                blocking(move || store.open_part(&of, &read.path, read.offset, read.bytes)).await
            }
        }
    }
}

impl Service {
    /// Answers with a page of the episodes of the store.
    pub(crate) async fn store_query(
        &self,
        query: StoreQuery,
        reader: &Reader,
        responder: Responder,
    ) -> Result<(), StreamLost> {
        let store = self.store.clone();
        let answer = {
            // Not held while the answer is sent.
            let _turn = self.places.questions.turn(&reader.claimant).await;
            let reads = responder.peer().reads.clone();
            blocking(move || store.episodes_of(&reads, &query)).await
        };
        self.answer(responder, answer).await
    }

    /// Answers with the totals of the store.
    pub(crate) async fn store_stats(&self, reader: &Reader, responder: Responder) -> Result<(), StreamLost> {
        let store = self.store.clone();
        let answer = {
            let _turn = self.places.questions.turn(&reader.claimant).await;
            let reads = responder.peer().reads.clone();
            blocking(move || store.stats_of(&reads)).await
        };
        self.answer(responder, answer).await
    }

    /// Changes the label of an episode of the store, and answers with the new label.
    pub(crate) async fn store_label(
        &self,
        label: StoreLabel,
        reader: &Reader,
        responder: Responder,
    ) -> Result<(), StreamLost> {
        // Labelling looks for the episode as a question does.
        let turn = self.places.questions.turn(&reader.claimant).await;
        let store = self.store.clone();
        let peer = responder.peer();
        let owner = (peer.role != Role::Admin).then(|| peer.owner());
        let labelled = blocking(move || match owner {
            Some(owner) => store.pin_own(&owner, &label),
            None => store.label(&label),
        })
        .await;
        drop(turn);
        self.answer(responder, labelled).await
    }

    /// Answers what is said of episodes of the store.
    pub(crate) async fn store_labels(
        &self,
        asked: StoreLabels,
        reader: &Reader,
        responder: Responder,
    ) -> Result<(), StreamLost> {
        let store = self.store.clone();
        let page = {
            // Whoever changes a label has it for as long as the disk takes.
            let _turn = self.places.questions.turn(&reader.claimant).await;
            let reads = responder.peer().reads.clone();
            blocking(move || Ok(store.labels_of(&reads, asked))).await
        };
        self.answer(responder, page).await
    }

    /// Reads a segment of the store again and answers whether it is intact.
    pub(crate) async fn store_repair(
        &self,
        repair: StoreRepair,
        responder: Responder,
    ) -> Result<(), StreamLost> {
        // One at a time: a segment is in memory as a whole meanwhile. Neither semaphore is ever closed.
        let alone = self.repairs.acquire().await;
        let store = self.store.clone();
        let repaired = blocking(move || store.repair(&repair.path)).await;
        drop(alone);
        self.answer(responder, repaired).await
    }
}

/// The reason why a segment was not received completely.
enum Broken {
    Stream(StreamLost),
    Store(Refusal),
}

/// Hands on the bytes of a segment as they arrive.
async fn receive(mut receiving: Receiving, responder: &mut Responder) -> Result<Receiving, Broken> {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let mut filled = 0;
        let mut ended = false;
        while filled < buffer.len() && !ended {
            let read = timeout(STALL, responder.body().read(&mut buffer[filled..])).await;
            match read {
                Ok(Ok(Some(bytes))) => filled += bytes,
                Ok(Ok(None)) => ended = true,
                Ok(Err(lost)) => return Err(Broken::Stream(lost)),
                Err(_) => {
                    let message = format!("no bytes of the segment came for {} s", STALL.as_secs());
                    return Err(Broken::Store(Refusal::busy(message, 0)));
                }
            }
        }
        let written = blocking(move || {
            receiving.write(&buffer[..filled])?;
            Ok::<_, StoreError>((receiving, buffer))
        });
        (receiving, buffer) = written.await.map_err(Broken::Store)?;
        if ended {
            return Ok(receiving);
        }
    }
}

/// Runs a function on a thread on which it may block.
pub(crate) async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Refusal> {
    // Task: file operation.
    match tokio::task::spawn_blocking(run).await {
        Ok(result) => result.map_err(|error| error.refusal()),
        Err(_) => Err(Refusal::new(RefusalCode::Internal, "the store failed in a way it should not")),
    }
}

/// Number of segments that come before the catalogue gathers them.
const GATHER_EVERY: u64 = 64;
/// Bytes of the store that are read and sent at a time.
const PIECE_BYTES: u32 = 256 << 10;
/// Bytes that are handed to the disk at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// Time for which a node may send nothing in the middle of a segment.
const STALL: Duration = Duration::from_secs(30);
