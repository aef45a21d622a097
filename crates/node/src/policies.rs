//! The policies of the cluster by which lanes of this node play: fetched once from the coordinator, and kept while there is
//! room.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_policy::{Model, model_of};
use rollhouse_wire::limits::MAX_POLICY_BYTES;
use rollhouse_wire::{
    CallError, Collect, Connection, FetchPolicy, PolicyBytes, PolicyFile, PolicyHash, Refusal, RefusalCode,
    Request,
};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::NodeFigures;
use crate::plan::bad_policy;

/// The files of policies that were fetched, by their hashes.
#[derive(Debug)]
pub(crate) struct Policies {
    /// The one that was used last comes last.
    kept: Mutex<Vec<(PolicyHash, Arc<Vec<u8>>)>>,
    /// Permits for files that are fetched at a time.
    fetches: Semaphore,
    figures: Arc<NodeFigures>,
}

impl Policies {
    pub(crate) fn new(figures: Arc<NodeFigures>) -> Self {
        Self { kept: Mutex::default(), fetches: Semaphore::new(MAX_FETCHES), figures }
    }

    /// Returns the file of the policy by which lanes are to play; `None` for a built-in one. Fetches it, if it is not here yet; one
    /// that comes late is given up.
    ///
    /// # Errors
    /// The coordinator's refusal, or `Busy` if it does not come in time: another node may have more luck.
    pub(crate) async fn file_of(
        &self,
        collect: &Collect,
        coordinator: Option<&Connection>,
    ) -> Result<Option<Arc<Vec<u8>>>, Refusal> {
        match &collect.file {
            None => Ok(None),
            Some(file) => self.file(&collect.policy, file, coordinator).await.map(Some),
        }
    }

    async fn file(
        &self,
        name: &str,
        file: &PolicyFile,
        coordinator: Option<&Connection>,
    ) -> Result<Arc<Vec<u8>>, Refusal> {
        if let Some(kept) = self.kept(file.hash) {
            return Ok(kept);
        }
        let busy = |why: String| {
            let message = format!("policy {name}@{} cannot be fetched: {why}", file.version);
            Refusal::busy(message, FETCH_RETRY_MS)
        };
        let Some(coordinator) = coordinator else {
            return Err(busy("there is no coordinator".to_owned()));
        };
        let fetched = timeout(FETCH_DEADLINE, async {
            // Never closed.
            let _permit = self.fetches.acquire().await;
            match self.kept(file.hash) {
                Some(kept) => Ok(kept),
                None => fetch(name, file, coordinator).await.map(|bytes| self.keep(file.hash, bytes)),
            }
        });
        match fetched.await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(CallError::Refused(refusal))) => Err(refusal),
            Ok(Err(error)) => Err(busy(error.to_string())),
            Err(_) => Err(busy(format!("it has not come within {} s", FETCH_DEADLINE.as_secs()))),
        }
    }

    fn kept(&self, hash: PolicyHash) -> Option<Arc<Vec<u8>>> {
        let mut kept = self.kept.lock();
        let at = kept.iter().position(|(of, _)| *of == hash)?;
        let last = kept.remove(at);
        let bytes = Arc::clone(&last.1);
        kept.push(last);
        Some(bytes)
    }

    /// Keeps a file in the place of those that were not used for the longest time.
    fn keep(&self, hash: PolicyHash, bytes: Vec<u8>) -> Arc<Vec<u8>> {
        let figures = &self.figures.envs.policies;
        figures.fetched.add(1);
        figures.fetched_bytes.add(bytes.len() as u64);
        let bytes = Arc::new(bytes);
        let mut kept = self.kept.lock();
        kept.push((hash, Arc::clone(&bytes)));
        let mut sum = kept.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        let mut dropped = 0;
        while sum > MAX_KEPT_BYTES {
            sum -= kept[dropped].1.len();
            dropped += 1;
        }
        kept.drain(..dropped);
        bytes
    }
}

/// Returns the model by which lanes are to play, of its policy's file, which is empty for a built-in one. Reading a net takes
/// long.
///
/// # Errors
/// What the file has is no policy.
pub(crate) fn model(collect: &Collect, file: &[u8]) -> Result<Arc<dyn Model>, Refusal> {
    let version = collect.file.as_ref().map_or(0, |file| file.version);
    let model = model_of(&collect.policy, version, collect.sampling, file);
    model.map_err(|error| bad_policy(&collect.policy, &error))
}

/// Fetches a file, and checks that it is the one that was named.
async fn fetch(name: &str, file: &PolicyFile, coordinator: &Connection) -> Result<Vec<u8>, CallError> {
    let asked = FetchPolicy { name: name.to_owned(), version: Some(file.version) };
    let refused = |message: String| CallError::Refused(Refusal::new(RefusalCode::Internal, message));
    let mut call = coordinator.open(&Request::FetchPolicy(asked)).await?;
    call.finish()?;
    let PolicyBytes { info } = call.answer().await?;
    if (info.bytes, info.hash) != (file.bytes, file.hash) || info.bytes > MAX_POLICY_BYTES as u64 {
        return Err(refused(format!("policy {} is another one than was named", info.policy)));
    }
    let mut bytes = vec![0; info.bytes as usize];
    call.receive.read_exact(&mut bytes).await?;
    if PolicyHash::of(&bytes) != info.hash {
        return Err(refused(format!("policy {} came with another hash", info.policy)));
    }
    Ok(bytes)
}

/// Files that are fetched at a time; each is in memory as a whole.
const MAX_FETCHES: usize = 2;

/// Bytes of the files that are kept.
const MAX_KEPT_BYTES: usize = 256 << 20;

const _: () = assert!(MAX_KEPT_BYTES >= MAX_POLICY_BYTES);

/// Shorter than a coordinator waits for a session to be opened.
const FETCH_DEADLINE: Duration = Duration::from_secs(25);

/// Pause after which a coordinator may try again.
const FETCH_RETRY_MS: u64 = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_the_longest_time_makes_room() {
        let policies = Policies::new(Arc::default());
        let hash = |of: u8| PolicyHash::of(&[of]);
        for of in 0..4 {
            policies.keep(hash(of), vec![of; 64 << 20]);
        }
        assert!(policies.kept(hash(0)).is_some(), "all have room");
        policies.keep(hash(4), vec![4; 1]);
        let here: Vec<u8> = (0..5).filter(|&of| policies.kept(hash(of)).is_some()).collect();
        assert_eq!(here, [0, 2, 3, 4], "0 was used since");
    }
}
