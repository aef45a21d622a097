//! The attach socket: processes of this machine come in, each is served by a task of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::{ShareBook, SharedBound};
use rollhouse_wire::{AttachListener, LocalArrival, RefusalCode, failpoint};
use tokio::task::JoinSet;

use crate::attaching::{Attaching, MAX_ATTACHING};
use crate::hosting::Hosting;
use crate::memory_owner;
use crate::parts::{Part, PartExit, Parts};

/// The settings of the attach socket, at which owners on this machine ask for the memory of their sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachConfig {
    /// The socket's path; at most [`MAX_ATTACH_PATH_BYTES`](rollhouse_wire::limits::MAX_ATTACH_PATH_BYTES) bytes.
    pub path: PathBuf,
    /// Users whose processes may attach, beside the user of this process and root.
    pub uids: Vec<u32>,
    /// Owners that may be attached by memory at one time; each has a thread.
    pub sessions: usize,
}

/// Serves the attach socket `listener` as one of `parts` until the future is dropped.
pub(crate) async fn keep(
    listener: AttachListener,
    config: AttachConfig,
    hosting: Arc<Hosting>,
    parts: Parts,
) {
    let mut first = Some(listener);
    let accept = move || {
        let (listener, config, hosting) = (first.take(), config.clone(), Arc::clone(&hosting));
        async move {
            let listener = match listener {
                Some(listener) => listener,
                None => AttachListener::bind(&config.path, &config.uids)
                    .map_err(|error| PartExit::Failed(error.to_string()))?,
            };
            accept(listener, hosting, config.sessions).await
        }
    };
    parts.keep(Part::Attach, accept).await;
}

/// Accepts processes until the future is dropped, and with it the tasks that serve them.
async fn accept(listener: AttachListener, hosting: Arc<Hosting>, sessions: usize) -> Result<(), PartExit> {
    let places = ShareBook::new(SharedBound::ATTACHED.with_limit(sessions as u64));
    let attaching = Attaching::default();
    let mut serving = JoinSet::new();
    loop {
        // Those that were given up, and those that are refused, are about to end.
        let room = serving.len() < sessions + 2 * MAX_ATTACHING;
        tokio::select! {
            arrival = listener.accept(), if room => match arrival {
                Ok(LocalArrival::Admitted(socket)) => {
                    failpoint("node.attach.accepted");
                    let (place, hosting) = (attaching.begin(socket.uid()), Arc::clone(&hosting));
                    // Task: process at the attach socket.
                    serving.spawn(memory_owner::serve(hosting, socket, place, places.clone()));
                }
                Ok(LocalArrival::TurnedAway { .. }) => {
                    hosting.figures.refusals.add_owner(RefusalCode::Forbidden.word());
                }
                // Descriptors come when others are given back.
                Err(_) => tokio::time::sleep(RETRY_AFTER).await,
            },
            Some(_) = serving.join_next() => {}
        }
    }
}

const RETRY_AFTER: Duration = Duration::from_millis(100);
