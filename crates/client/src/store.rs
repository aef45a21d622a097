//! Reads a cluster's store through its coordinator.

use std::io;
use std::time::Duration;

use rollhouse_core::RunId;
use rollhouse_replay::{EpisodeKey, Label, LabelChange, Labels};
use rollhouse_wire::control::ControlError;
use rollhouse_wire::{
    CallError, CallId, Connection, RefusalCode, Request, StoreData, StoreEpisodes, StoreLabel,
    StoreLabelChange, StoreLabelPage, StoreLabelPlace, StoreLabelled, StoreLabels, StoreList, StoreListing,
    StoreQuery, StoreRead, StoreRepair, StoreRepaired, StoreStats, StoreStatsRequest,
};
use tokio::time::{Instant, timeout_at};

use crate::blocking::Cluster;
use crate::cluster::{AsyncCluster, ask_again};
use crate::error::RequestError;
use crate::remote_disk::StoreReader;

/// Reads the store; blocks as every call of a [`Cluster`] does.
impl StoreReader for Cluster {
    fn list(&self, path: &str, after: &str) -> io::Result<StoreListing> {
        let list = StoreList { path: path.to_owned(), after: after.to_owned() };
        self.request(list).map_err(as_io)
    }

    fn read(&self, path: &str, offset: u64, bytes: u32) -> io::Result<(Vec<u8>, u64)> {
        let read = StoreRead { path: path.to_owned(), offset, bytes };
        self.run(self.inner().read_store(read)).map_err(as_io)
    }
}

impl Cluster {
    /// Returns a page of the episodes of the store that a query selects; the coordinator searches for them. Blocks
    /// until it has answered.
    ///
    /// # Errors
    /// See [`RequestError`]. A coordinator that is older than this request refuses it as unsupported.
    pub fn query_store(&self, query: &StoreQuery) -> Result<StoreEpisodes, RequestError> {
        self.request(query.clone())
    }

    /// Sets or removes a part of an episode's label, and returns the label as it is then. Durable on return. Blocks
    /// until the coordinator has answered.
    ///
    /// # Errors
    /// See [`RequestError`]. It takes role admin, but for pins of episodes of the caller's own runs, which a trainer may set and
    /// remove. A coordinator that is older than this request refuses it as unsupported.
    pub fn label(&self, key: &EpisodeKey, change: &LabelChange) -> Result<Label, RequestError> {
        let run = RunId::from_u128(key.run);
        let words = |tags: &[rollhouse_replay::Tag]| tags.iter().map(ToString::to_string).collect();
        let change = match change {
            LabelChange::Pin(pinned) => StoreLabelChange::Pin { pinned: *pinned },
            LabelChange::Tag(tags) => StoreLabelChange::Tag { tags: words(tags) },
            LabelChange::Untag(tags) => StoreLabelChange::Untag { tags: words(tags) },
            LabelChange::Note(note) => {
                StoreLabelChange::Note { note: note.as_ref().map(|note| note.as_str().to_owned()) }
            }
        };
        let label = StoreLabel { run, lane: key.lane, number: key.number, change };
        let labelled: StoreLabelled = self.request(label)?;
        Ok(label_of(&labelled))
    }

    /// Returns the labels of the episodes of the store; none from a coordinator that is older than such requests.
    /// Blocks until the coordinator has answered, for each thousand of them or so.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn labels(&self) -> Result<Labels, RequestError> {
        let (mut said, mut after) = (Vec::new(), None);
        loop {
            let page: StoreLabelPage = match self.request(StoreLabels { after }) {
                Err(error) if error.refusal() == Some(RefusalCode::Unsupported) => break,
                page => page?,
            };
            said.extend(page.labels.iter().map(|one| {
                let key = EpisodeKey { run: one.run.as_u128(), lane: one.lane, number: one.number };
                (key, label_of(one))
            }));
            match page.labels.last() {
                Some(last) if page.more => {
                    after = Some(StoreLabelPlace { run: last.run, lane: last.lane, number: last.number });
                }
                _ => break,
            }
        }
        Ok(Labels::of_elsewhere(said))
    }

    /// Returns the totals of the store, added up by the coordinator. Blocks until it has answered.
    ///
    /// # Errors
    /// The errors of [`Cluster::query_store`].
    pub fn store_stats(&self) -> Result<StoreStats, RequestError> {
        self.request(StoreStatsRequest {})
    }
}

impl AsyncCluster {
    /// Has the coordinator read a segment of the store again and make anew what it keeps beside it. Takes a second or
    /// so for the largest segment.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn repair_store(&self, path: impl Into<String>) -> Result<StoreRepaired, RequestError> {
        self.request(StoreRepair { path: path.into() }).await
    }

    /// Returns a part of a file of the store, and the length of the whole file. Asks again while the coordinator is
    /// busy and when the connection was lost, up to the timeout.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn read_store(&self, read: StoreRead) -> Result<(Vec<u8>, u64), RequestError> {
        let (call, most) = (CallId::generate(), read.bytes);
        let request = Request::StoreRead(read);
        call.traced(request.word(), self.read_for(call, &request, most)).await
    }

    async fn read_for(
        &self,
        call: CallId,
        request: &Request,
        most: u32,
    ) -> Result<(Vec<u8>, u64), RequestError> {
        let deadline = Instant::now() + self.timeout();
        let mut attempt = 0;
        loop {
            let connection = self.coordinator_until(deadline, call, request.word()).await?;
            let timed_out = CallError::TimedOut { request: request.word(), after: self.timeout() };
            let fetched = timeout_at(deadline, fetch(&connection, request, call, most)).await;
            let error = match fetched.unwrap_or(Err(timed_out)) {
                Ok(fetched) => return Ok(fetched),
                Err(error) => error,
            };
            let left: Duration = deadline.saturating_duration_since(Instant::now());
            match ask_again(&error, attempt, left) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(RequestError::Call { call, error }),
            }
            attempt += 1;
        }
    }
}

async fn fetch(
    connection: &Connection,
    request: &Request,
    of: CallId,
    most: u32,
) -> Result<(Vec<u8>, u64), CallError> {
    let mut call = connection.open_for(request, Some(of)).await?;
    call.finish()?;
    let StoreData { bytes, file_bytes } = call.answer().await?;
    if bytes > most {
        // Nothing is allocated for more than was asked for.
        return Err(CallError::Malformed(ControlError::TooLong {
            bytes: bytes as usize,
            most: most as usize,
        }));
    }
    let mut data = vec![0; bytes as usize];
    call.receive.read_exact(&mut data).await?;
    Ok((data, file_bytes))
}

/// Returns an episode's label from a coordinator's answer; malformed tags and notes are left out.
fn label_of(labelled: &StoreLabelled) -> Label {
    Label {
        pinned: labelled.pinned,
        tags: labelled.tags.iter().filter_map(|tag| tag.parse().ok()).collect(),
        note: labelled.note.as_ref().and_then(|note| note.parse().ok()),
    }
}

fn as_io(error: RequestError) -> io::Error {
    let kind = match error.refusal() {
        Some(RefusalCode::NotFound) => io::ErrorKind::NotFound,
        Some(RefusalCode::Forbidden) => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
