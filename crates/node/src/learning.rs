//! Envs that a node learns from its providers when they are asked for, and forgets again.
//!
//! ```text
//! (asked for) -> being learned -> known -> (forgotten)      when MAX_KNOWN others were asked for since
//!                being learned -> (forgotten)               refused; whoever asks next tries anew
//! ```
//!
//! Learning, and making the lanes of a session, wait for processes. They run on threads of their own, a bounded number
//! at a time, and never on those that talk or step.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_core::msgpack::encode;
use rollhouse_core::{Claimant, EnvId, EnvSpec, ShareBook, SharedBound, panic_message};
use rollhouse_host::{
    ConnectWatch, EnvProvider, EnvProviders, EnvRequest, InfoRequest, LearnError, LearnReason, LearnedEnv,
};
use rollhouse_wire::limits::MAX_CONTROL_BYTES;
use rollhouse_wire::{InfoSettings, Refusal, RefusalCode};
use tokio::sync::{OnceCell, oneshot};

use crate::causes::with_causes;

/// The envs that a node learns.
#[derive(Debug)]
pub(crate) struct Learning {
    providers: EnvProviders,
    apart: Apart,
    /// Envs that were asked for, the one asked for longest ago first.
    known: Mutex<Vec<Known>>,
}

/// Threads that wait for processes. Clones have the same room.
#[derive(Debug, Clone)]
pub(crate) struct Apart {
    /// Room for them, by the owners of what they make.
    room: Arc<ShareBook>,
}

impl Default for Apart {
    fn default() -> Self {
        Self { room: Arc::new(ShareBook::new(SharedBound::LEARNING)) }
    }
}

/// An env that was asked for.
#[derive(Debug)]
struct Known {
    env: EnvRequest,
    /// What it is, once it is learned. Those that ask meanwhile wait for the same.
    learned: Arc<OnceCell<Arc<LearnedEnv>>>,
    /// Connecting of the worker that it is learned from.
    connecting: ConnectWatch,
}

/// An env that is being learned, or is known.
#[derive(Debug)]
pub(crate) struct EnvToLearn {
    env: EnvRequest,
    learned: Arc<OnceCell<Arc<LearnedEnv>>>,
    /// Connecting of the worker that it is learned from.
    pub(crate) connecting: ConnectWatch,
}

impl Learning {
    /// Makes the envs of these providers, which are learned on threads of `apart`.
    pub(crate) fn new(providers: EnvProviders, apart: Apart) -> Self {
        Self { providers, apart, known: Mutex::default() }
    }

    /// Returns whether an env is learned here.
    pub(crate) fn has(&self, id: &EnvId) -> bool {
        self.providers.of(id).is_some()
    }

    /// Returns what the env is, learning it for the asker if it is not known. Cancellation-safe. A provider that
    /// does not answer in its time keeps its thread, which counts as the asker's until it ends.
    ///
    /// # Errors
    /// The reason for the refusal, as the provider or the operating system gave it.
    pub(crate) async fn learn(
        &self,
        asked: &EnvToLearn,
        asker: Claimant,
    ) -> Result<Arc<LearnedEnv>, Refusal> {
        let EnvToLearn { env, learned: cell, connecting } = asked;
        let learned = cell.get_or_try_init(|| async {
            let (providers, env, watch) = (self.providers.clone(), env.clone(), connecting.clone());
            let learned = self.apart.run(asker, move || providers.learn(&env, &watch)).await?;
            let learned = learned.map_err(|error| refusal(&error))?;
            fits_into_messages(learned.spec())?;
            Ok(Arc::new(learned))
        });
        let within = self.providers.of(&env.id).map_or(Duration::ZERO, EnvProvider::learn_within);
        let learned = match tokio::time::timeout(within, learned).await {
            Ok(learned) => learned.cloned(),
            Err(_) => Err(refusal(&LearnError::late(&env.id, within))),
        };
        if learned.is_err() {
            self.known.lock().retain(|known| !Arc::ptr_eq(&known.learned, cell) || cell.initialized());
        }
        learned
    }

    /// Returns a watch over the connecting of a session's workers.
    pub(crate) fn connect_watch(&self, id: &EnvId) -> ConnectWatch {
        self.providers.of(id).map_or_else(ConnectWatch::default, EnvProvider::connect_watch)
    }

    /// Takes up an env as the one asked for last.
    pub(crate) fn ask(&self, env: EnvRequest) -> EnvToLearn {
        let mut known = self.known.lock();
        let at = known.iter().position(|known| known.env == env);
        let found = match at {
            Some(at) => known.remove(at),
            None => {
                let connecting = self.connect_watch(&env.id);
                Known { env: env.clone(), learned: Arc::default(), connecting }
            }
        };
        let asked =
            EnvToLearn { env, learned: Arc::clone(&found.learned), connecting: found.connecting.clone() };
        known.push(found);
        if known.len() > MAX_KNOWN {
            known.remove(0);
        }
        asked
    }
}

impl Apart {
    /// Runs what waits for processes on a thread of its own, which counts as the asker's until it ends. If the future is
    /// dropped, the thread goes on to its end.
    ///
    /// # Errors
    /// `Busy` if the asker has its share of such threads, `Internal` if the operating system refuses a thread or `work` panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        asker: Claimant,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let place = self.room.take(asker, 1);
        let place = place.map_err(|over| Refusal::busy(over.to_string(), RETRY_MS))?;
        let (done, result) = oneshot::channel();
        let started = on_thread(move || {
            let result = catch_unwind(AssertUnwindSafe(work));
            // Whoever is told finds the room free again.
            drop(place);
            // Nobody may wait for it any more.
            let _told = done.send(result);
        });
        let internal = |message: String| Refusal::new(RefusalCode::Internal, message);
        started.map_err(|error| internal(format!("no thread to start processes: {error}")))?;
        match result.await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(panic)) => Err(internal(format!("starting processes: {}", panic_message(&*panic)))),
            Err(_) => Err(internal("starting processes: its thread is gone".to_owned())),
        }
    }
}

fn on_thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // Task: learning.
    std::thread::Builder::new().name("rollhouse-learn".to_owned()).spawn(work).map(drop)
}

/// Returns the env that is asked for by its id, with its arguments and what is to be had of its infos.
///
/// # Errors
/// If the arguments are no JSON object.
pub(crate) fn asked_for(
    id: &EnvId,
    kwargs: &str,
    deterministic: Option<bool>,
    infos: &InfoSettings,
) -> Result<EnvRequest, Refusal> {
    let kwargs = if kwargs.is_empty() { Ok(Default::default()) } else { serde_json::from_str(kwargs) };
    let kwargs = kwargs.map_err(|error| {
        Refusal::new(RefusalCode::BadRequest, format!("env_kwargs: no JSON object: {error}"))
    })?;
    let infos = InfoRequest {
        are_learned: infos.numbers,
        recorded: infos.record.clone(),
        frames_every: infos.frames_every,
    };
    Ok(EnvRequest { id: id.clone(), kwargs, deterministic, infos })
}

/// Returns the refusal that trainers receive of an env that cannot be learned. What would be refused by every node is not tried
/// on others.
pub(crate) fn refusal(error: &LearnError) -> Refusal {
    let code = match error.reason() {
        LearnReason::NotFound => RefusalCode::NotFound,
        LearnReason::NotAllowed => RefusalCode::Forbidden,
        LearnReason::Arguments | LearnReason::Request => RefusalCode::BadRequest,
        LearnReason::NotConnected | LearnReason::Lost | LearnReason::Late | LearnReason::Unsupported => {
            RefusalCode::Unsupported
        }
        LearnReason::NotInstalled | LearnReason::Internal => RefusalCode::Internal,
    };
    let mut message = with_causes(error);
    message.truncate(message.floor_char_boundary(MAX_REASON_BYTES));
    Refusal::new(code, message)
}

/// Refuses an env whose description cannot be sent to whoever asks for its lanes.
fn fits_into_messages(spec: &EnvSpec) -> Result<(), Refusal> {
    let mut bytes = Vec::new();
    let encoded = encode(spec, &mut bytes);
    if encoded.is_ok() && bytes.len() <= MAX_SPEC_BYTES {
        return Ok(());
    }
    let message = format!(
        "`{}`: the description of its spaces has {} bytes, at most {MAX_SPEC_BYTES} fit into a message; give spaces of \
         many elements one bound for all of them, and element names to none",
        spec.id.escape_debug(),
        bytes.len()
    );
    Err(Refusal::new(RefusalCode::Unsupported, message))
}

/// Most bytes of a description: what is sent beside it takes far less than the rest of a message.
const MAX_SPEC_BYTES: usize = MAX_CONTROL_BYTES - (64 << 10);

/// Most envs that are known at a time.
const MAX_KNOWN: usize = 64;

/// Pause after which a coordinator may ask again.
const RETRY_MS: u64 = 1_000;

/// Most bytes of a reason that is told: the last lines of a worker's output.
const MAX_REASON_BYTES: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use rollhouse_core::{LaneDeadlines, Space};
    use rollhouse_host::{Connect, Launcher, PythonHost};

    use super::*;

    fn learning(interpreter: &str) -> Learning {
        let host = PythonHost {
            interpreter: interpreter.into(),
            allow: vec!["gymnasium".to_owned()],
            workers: None,
            launch_deadline: Duration::from_secs(60),
            lane_deadlines: LaneDeadlines::default(),
            connect: Connect::default(),
            launcher: Launcher::new(1),
            memory: None,
            census: None,
            draw: false,
        };
        Learning::new(host.into(), Apart::default())
    }

    fn numbered(number: usize) -> EnvRequest {
        asked_for(&"gymnasium:X-v0".into(), &format!("{{\"n\": {number}}}"), None, &InfoSettings::default())
            .unwrap()
    }

    #[test]
    fn arguments_are_a_json_object_and_their_order_does_not_matter() {
        let one = asked_for(&"a:B".into(), r#"{"x": 1, "y": [2]}"#, None, &InfoSettings::default()).unwrap();
        assert_eq!(
            one,
            asked_for(&"a:B".into(), r#"{"y":[2],"x":1}"#, None, &InfoSettings::default()).unwrap()
        );
        assert_eq!(asked_for(&"a:B".into(), "", None, &InfoSettings::default()).unwrap().kwargs.len(), 0);
        for wrong in ["[]", "1", "{", "null", "{\"x\": NaN}"] {
            assert_eq!(
                asked_for(&"a:B".into(), wrong, None, &InfoSettings::default()).unwrap_err().code,
                RefusalCode::BadRequest,
                "{wrong}"
            );
        }
    }

    /// Symptom: a pool of an env with a bound of its own for each of many elements was refused with `internal: a control
    /// message of 7257942 bytes`. Cause: the node learned of it only as it answered. Fix: it looks as it learns the env.
    #[test]
    fn an_env_whose_bounds_fit_into_no_message_is_refused_with_what_to_do() {
        let mut spec = rollhouse_env::Registry::builtin().get("CartPole-v1").unwrap().spec().clone();
        assert!(fits_into_messages(&spec).is_ok());
        let bounds: Vec<f32> = (0..200_000).map(|element| element as f32).collect();
        spec.observation_space = Space::f32_box(&vec![-1.0; bounds.len()], &bounds).into();
        let refusal = fits_into_messages(&spec).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Unsupported);
        assert!(refusal.message.contains("one bound for all of them"), "{refusal}");
    }

    #[test]
    fn a_bounded_number_of_envs_is_known_and_the_one_asked_for_longest_ago_is_forgotten() {
        let learning = learning("/bin/false");
        let cell = |number| learning.ask(numbered(number)).learned;
        let first = cell(0);
        for number in 1..MAX_KNOWN {
            cell(number);
        }
        assert!(Arc::ptr_eq(&first, &cell(0)), "it is known, and now the newest");
        let second = cell(1);
        (0..MAX_KNOWN - 1).for_each(|number| drop(cell(100 + number)));
        assert_eq!(learning.known.lock().len(), MAX_KNOWN);
        assert!(Arc::ptr_eq(&second, &cell(1)));
        assert!(!Arc::ptr_eq(&first, &cell(0)), "it was forgotten");
    }

    #[tokio::test]
    async fn a_worker_that_ends_at_once_is_a_refusal_and_nothing_of_it_is_kept() {
        let learning = learning("/bin/false");
        let refused = learning.learn(&learning.ask(numbered(1)), ada()).await.unwrap_err();
        assert_eq!(refused.code, RefusalCode::Unsupported);
        assert!(refused.message.contains("/bin/false"), "{refused}");
        assert!(learning.known.lock().is_empty());
    }

    fn ada() -> Claimant {
        Claimant::owner("ada")
    }

    /// Holds as many threads as the asker is let have, until the sender is dropped.
    async fn hold_all(
        learning: &Arc<Learning>,
        asker: &Claimant,
    ) -> (usize, std::sync::mpsc::SyncSender<()>) {
        let (let_go, gone) = std::sync::mpsc::sync_channel(1);
        let gone = Arc::new(Mutex::new(gone));
        let mut held = 0;
        loop {
            let (gone, learning, asker) = (Arc::clone(&gone), Arc::clone(learning), asker.clone());
            let mut apart =
                Box::pin(async move { learning.apart.run(asker, move || gone.lock().recv()).await });
            match std::future::poll_fn(|context| std::task::Poll::Ready(apart.as_mut().poll(context))).await {
                std::task::Poll::Ready(refused) => {
                    assert_eq!(refused.unwrap_err().code, RefusalCode::Busy);
                    return (held, let_go);
                }
                std::task::Poll::Pending => held += 1,
            }
        }
    }

    /// Symptom: one trainer's Python envs took all 16 places at which a node starts them, and everybody else was refused
    /// for as long as they took to start. Cause: the places were counted without regard to whose they are. Fix: shares by
    /// owner.
    #[tokio::test]
    async fn one_owner_whose_envs_take_long_to_start_leaves_places_to_another_and_to_an_admin() {
        let learning = Arc::new(learning("/bin/false"));
        let (held, _let_go) = hold_all(&learning, &ada()).await;
        assert!(held < SharedBound::LEARNING.limit as usize);
        assert_eq!(learning.apart.run(Claimant::owner("bob"), || 7).await, Ok(7));
        let (of_bob, _let_go) = hold_all(&learning, &Claimant::owner("bob")).await;
        assert!(of_bob >= 1);
        assert_eq!(learning.apart.run(Claimant::operator("root"), || 8).await, Ok(8));
    }

    #[tokio::test]
    async fn a_panic_apart_is_a_refusal_and_its_place_is_free_again() {
        let learning = learning("/bin/false");
        let panicked = learning.apart.run(ada(), || panic!("broken")).await.unwrap_err();
        assert!(panicked.message.contains("broken"), "{panicked}");
        assert_eq!(learning.apart.room.total(), 0);
        assert_eq!(learning.apart.run(ada(), || 7).await, Ok(7));
    }
}
