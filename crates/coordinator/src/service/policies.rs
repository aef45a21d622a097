//! Policies behind requests: they come from trainers, and go to nodes and to whoever may read them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rollhouse_policy::Builtin;
use rollhouse_wire::limits::MAX_POLICY_BYTES;
use rollhouse_wire::{
    CloseCode, Connection, FetchPolicy, ListAfter, OpenPool, PolicyBytes, PolicyVersion, PutPolicy,
    ReadGrant, Refusal, RefusalCode, RemovePolicy, Responder, Role, StreamLost,
};
use tokio::time::timeout;

use crate::policies::PolicyAsker;
use crate::service::{Reader, Service};

impl Service {
    /// Receives a version of a policy, and answers once it is durable.
    pub(crate) async fn put_policy(
        self: &Arc<Self>,
        put: PutPolicy,
        reader: &Reader,
        mut responder: Responder,
    ) -> Result<(), StreamLost> {
        let asker = asker_of(&responder);
        match self.policies.admit(&put, &asker) {
            Ok(None) => {}
            Ok(Some(known)) => return self.answer(responder, Ok(known)).await,
            Err(refusal) => return self.refuse(responder, refusal).await,
        }
        // Held until it is on the disk: a file is in memory meanwhile.
        let turn = self.places.policies.turn(&reader.claimant).await;
        let file = match received(put.bytes as usize, &mut responder).await? {
            Ok(file) => file,
            Err(refusal) => return self.refuse(responder, refusal).await,
        };
        let policies = Arc::clone(&self.policies);
        let put = off_thread(move || {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            policies.put(&put, &asker, &file, now.as_millis() as u64)
        });
        let put = put.await;
        drop(turn);
        self.answer(responder, put).await
    }

    /// Answers with a page of policies.
    pub(crate) async fn list_policies(
        &self,
        page: ListAfter<PolicyVersion>,
        responder: Responder,
    ) -> Result<(), StreamLost> {
        let list = self.policies.list(&asker_of(&responder), page.after.as_ref());
        self.answer(responder, Ok(list)).await
    }

    /// Answers with the file of a policy, its bytes after the answer.
    pub(crate) async fn fetch_policy(
        self: &Arc<Self>,
        fetch: FetchPolicy,
        reader: &Reader,
        responder: Responder,
    ) -> Result<(), StreamLost> {
        let reads = asker_of(&responder).reads;
        let info = match self.policies.find(&fetch.name, fetch.version, &reads) {
            Ok(info) => info,
            Err(refusal) => return self.refuse(responder, refusal).await,
        };
        // Held until all is sent: a file is in memory meanwhile.
        let _turn = self.places.policies.turn(&reader.claimant).await;
        let (policies, of) = (Arc::clone(&self.policies), info.clone());
        let file = match off_thread(move || policies.read(&of)).await {
            Ok(file) => file,
            Err(refusal) => return self.refuse(responder, refusal).await,
        };
        let (_asker, mut send) = responder.accept(PolicyBytes { info }).await?;
        send.yield_to_others();
        for piece in file.chunks(PIECE_BYTES) {
            let written = match timeout(STALL, send.write_all(piece)).await {
                Ok(written) => written,
                Err(_) => Err(StreamLost::ByUs),
            };
            if written.is_err() {
                // What was announced does not follow: whoever waits for it is to know.
                send.give_up(CloseCode::Internal);
                return written;
            }
        }
        send.finish()
    }

    /// Removes versions of a policy.
    pub(crate) async fn remove_policy(
        self: &Arc<Self>,
        remove: RemovePolicy,
        responder: Responder,
    ) -> Result<(), StreamLost> {
        let (policies, asker) = (Arc::clone(&self.policies), asker_of(&responder));
        let removed = off_thread(move || policies.remove(&remove, &asker)).await;
        self.answer(responder, removed).await
    }

    /// Says in a request for lanes that play by themselves which file they play by, if it is of a policy of the cluster.
    ///
    /// # Errors
    /// There is no such policy that the asker may read, or a built-in one is asked for with a version.
    pub(crate) fn name_policy(&self, connection: &Connection, open: &mut OpenPool) -> Result<(), Refusal> {
        let Some(collect) = &mut open.settings.collect else { return Ok(()) };
        collect.file = None;
        if collect.policy.parse::<Builtin>().is_err() {
            let reads = &connection.peer().reads;
            collect.file = Some(self.policies.file_of(&collect.policy, collect.version, reads)?);
        } else if let Some(version) = collect.version {
            let message = format!("version {version} of `{}`, which is built in", collect.policy);
            return Err(Refusal::new(RefusalCode::BadRequest, message));
        }
        Ok(())
    }
}

/// Returns who asks. Nodes read all: the coordinator has named what they are to play.
fn asker_of(responder: &Responder) -> PolicyAsker {
    let peer = responder.peer();
    let reads = if peer.role == Role::Node { ReadGrant::All } else { peer.reads.clone() };
    PolicyAsker { claimant: peer.claimant(), reads }
}

/// Receives as many bytes as were announced. Refuses more, and an asker that sends none for a while.
async fn received(bytes: usize, responder: &mut Responder) -> Result<Result<Vec<u8>, Refusal>, StreamLost> {
    let mut file = vec![0; bytes.min(MAX_POLICY_BYTES)];
    let mut filled = 0;
    loop {
        // One byte beyond what was announced shows that there are more.
        let mut beyond = [0];
        let room = if filled < file.len() { &mut file[filled..] } else { &mut beyond[..] };
        match timeout(STALL, responder.body().read(room)).await {
            Ok(read) => match read? {
                Some(_) if filled == bytes => {
                    let message = format!("more than the {bytes} bytes that were announced");
                    return Ok(Err(Refusal::new(RefusalCode::BadRequest, message)));
                }
                Some(read) => filled += read,
                None => break,
            },
            Err(_) => {
                let message = format!("no bytes of the policy came for {} s", STALL.as_secs());
                return Ok(Err(Refusal::busy(message, 0)));
            }
        }
    }
    file.truncate(filled);
    Ok(Ok(file))
}

/// Runs what blocks for the disk on a thread on which it may.
async fn off_thread<T: Send + 'static>(
    run: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    // Task: file operation.
    match tokio::task::spawn_blocking(run).await {
        Ok(result) => result,
        Err(_) => Err(Refusal::new(RefusalCode::Internal, "the policies failed in a way they should not")),
    }
}

/// Bytes that are sent at a time.
const PIECE_BYTES: usize = 256 << 10;
/// Time for which a peer may neither send nor take anything in the middle of a file.
const STALL: Duration = Duration::from_secs(30);
