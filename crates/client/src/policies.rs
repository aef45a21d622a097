//! Policies of a cluster: files of weights that its coordinator keeps.

use bytes::Bytes;
use rollhouse_wire::limits::MAX_POLICY_BYTES;
use rollhouse_wire::{
    CallError, CallId, Connection, FetchPolicy, ListAfter, PolicyBytes, PolicyHash, PolicyInfo, PolicyList,
    PolicyPut, PolicyRemoved, PutPolicy, Refusal, RefusalCode, RemovePolicy, Request,
};
use tokio::time::{Instant, timeout, timeout_at};

use crate::blocking::Cluster;
use crate::cluster::{AsyncCluster, ask_again};
use crate::error::RequestError;

/// A version of a policy, with its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedPolicy {
    /// What there is of it.
    pub info: PolicyInfo,
    /// Its file.
    pub file: Bytes,
}

impl AsyncCluster {
    /// Stores a file as a version of a policy: as `version`, which is above all that there are, or as the next one. A file that
    /// the policy has already stays the version that it is. Durable on return. Asks again while the coordinator is busy and
    /// when the connection was lost, up to the timeout.
    ///
    /// # Errors
    /// See [`RequestError`]. The name may be another owner's, and there may be no room.
    pub async fn put_policy(
        &self,
        name: &str,
        version: Option<u64>,
        file: Bytes,
    ) -> Result<PolicyPut, RequestError> {
        let (bytes, hash) = (file.len() as u64, PolicyHash::of(&file));
        let put = Request::PutPolicy(PutPolicy { name: name.to_owned(), version, bytes, hash });
        self.with_coordinator(&put, async |connection, call| send(connection, call, &put, &file).await).await
    }

    /// Returns the versions of all policies that may be read, in the order of names and versions.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn policies(&self) -> Result<Vec<PolicyInfo>, RequestError> {
        let mut all: Vec<PolicyInfo> = Vec::new();
        loop {
            let after = all.last().map(|last| last.policy.clone());
            let PolicyList { policies, more } = self.request(ListAfter { after }).await?;
            // A page that does not go on would be asked for without end.
            let goes_on = policies
                .first()
                .is_some_and(|first| all.last().is_none_or(|last| first.policy > last.policy));
            if goes_on {
                all.extend(policies);
            }
            if !more || !goes_on {
                return Ok(all);
            }
        }
    }

    /// Fetches a version of a policy, or the newest. Asks again while the coordinator is busy and when the connection was
    /// lost, up to the timeout.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn fetch_policy(
        &self,
        name: &str,
        version: Option<u64>,
    ) -> Result<FetchedPolicy, RequestError> {
        let fetch = Request::FetchPolicy(FetchPolicy { name: name.to_owned(), version });
        self.with_coordinator(&fetch, async |connection, call| receive(connection, call, &fetch).await).await
    }

    /// Removes a version of a policy, or all. Lanes that play by it go on.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn remove_policy(
        &self,
        name: &str,
        version: Option<u64>,
    ) -> Result<PolicyRemoved, RequestError> {
        self.request(RemovePolicy { name: name.to_owned(), version }).await
    }

    /// Has something done on a connection to the coordinator, again while it is busy and when the connection was lost.
    async fn with_coordinator<T>(
        &self,
        request: &Request,
        ask: impl AsyncFn(&Connection, CallId) -> Result<T, CallError>,
    ) -> Result<T, RequestError> {
        let (call, deadline) = (CallId::generate(), Instant::now() + self.timeout());
        let mut attempt = 0;
        loop {
            let connection = self.coordinator_until(deadline, call, request.word()).await?;
            let timed_out = CallError::TimedOut { request: request.word(), after: self.timeout() };
            let error = match timeout_at(deadline, ask(&connection, call)).await.unwrap_or(Err(timed_out)) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            match ask_again(&error, attempt, deadline.saturating_duration_since(Instant::now())) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(RequestError::Call { call, error }),
            }
            attempt += 1;
        }
    }
}

/// Stores a policy, as [`AsyncCluster`] does; each blocks until the coordinator has answered.
impl Cluster {
    /// As [`AsyncCluster::put_policy`].
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn put_policy(
        &self,
        name: &str,
        version: Option<u64>,
        file: Bytes,
    ) -> Result<PolicyPut, RequestError> {
        self.run(self.inner().put_policy(name, version, file))
    }

    /// As [`AsyncCluster::policies`].
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn policies(&self) -> Result<Vec<PolicyInfo>, RequestError> {
        self.run(self.inner().policies())
    }

    /// As [`AsyncCluster::fetch_policy`].
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn fetch_policy(&self, name: &str, version: Option<u64>) -> Result<FetchedPolicy, RequestError> {
        self.run(self.inner().fetch_policy(name, version))
    }

    /// As [`AsyncCluster::remove_policy`].
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn remove_policy(&self, name: &str, version: Option<u64>) -> Result<PolicyRemoved, RequestError> {
        self.run(self.inner().remove_policy(name, version))
    }
}

/// Sends a policy's file behind the request.
async fn send(
    connection: &Connection,
    of: CallId,
    put: &Request,
    file: &[u8],
) -> Result<PolicyPut, CallError> {
    let mut call = connection.open_for(put, Some(of)).await?;
    let sent = match call.send.write_all(file).await {
        Ok(()) => call.finish(),
        Err(lost) => Err(lost.into()),
    };
    match sent {
        Ok(()) => call.answer().await,
        // The coordinator may have answered without reading on, because it has the file or does not want it.
        Err(error) => match timeout(EARLY_ANSWER, call.answer()).await {
            Ok(answer @ (Ok(_) | Err(CallError::Refused(_)))) => answer,
            _ => Err(error),
        },
    }
}

/// Receives a policy's file, and checks that it is the one that was announced.
async fn receive(connection: &Connection, of: CallId, fetch: &Request) -> Result<FetchedPolicy, CallError> {
    let mut call = connection.open_for(fetch, Some(of)).await?;
    call.finish()?;
    let PolicyBytes { info } = call.answer().await?;
    let wrong = |message: String| CallError::Refused(Refusal::new(RefusalCode::Internal, message));
    if info.bytes > MAX_POLICY_BYTES as u64 {
        return Err(wrong(format!(
            "policy {} has {} bytes, at most {MAX_POLICY_BYTES} allowed",
            info.policy, info.bytes
        )));
    }
    let mut file = vec![0; info.bytes as usize];
    call.receive.read_exact(&mut file).await?;
    if PolicyHash::of(&file) != info.hash {
        return Err(wrong(format!("policy {} came with another hash", info.policy)));
    }
    Ok(FetchedPolicy { info, file: file.into() })
}

/// Time to wait for an answer that came before all was sent.
const EARLY_ANSWER: std::time::Duration = std::time::Duration::from_secs(1);
