//! Envs that are learned when one is asked for, and what provides them.
//!
//! A kind of envs is one implementation of [`EnvProvider`]. A node, the command and readers of recordings ask
//! [`EnvProviders`], which checks what a provider says before anything else sees it.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use rollhouse_core::limits::MAX_ENV_KWARGS_BYTES;
use rollhouse_core::{ColumnSpec, Determinism, EnvId, EnvKind, EnvSpec, Role};
use rollhouse_env::{EnvEntry, RegisterError, check_spec};

use crate::census::Holder;
use crate::connect_watch::ConnectWatch;

/// A provider of envs that a machine does not know before one is asked for.
pub trait EnvProvider: fmt::Debug + Send + Sync {
    /// Returns the kinds of its envs, which a node registers.
    fn kinds(&self) -> Vec<EnvKind>;

    /// Returns whether envs of such ids are asked of this provider, which may refuse them.
    fn has(&self, id: &EnvId) -> bool;

    /// Returns the time that learning an env may take. Nobody waits longer for an answer.
    fn learn_within(&self) -> Duration;

    /// Learns what an env is, and shows in `watch` what connects meanwhile. May block; it is called on threads that wait.
    ///
    /// # Errors
    /// [`LearnError`], by whose reason callers say what can be done.
    fn learn(&self, asked: &EnvRequest, watch: &ConnectWatch) -> Result<LearnedEnv, LearnError>;

    /// Returns a watch over the connecting of a session's lanes, counted where the provider counts.
    fn connect_watch(&self) -> ConnectWatch {
        ConnectWatch::default()
    }
}

/// Env that is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct EnvRequest {
    /// Id of the env.
    pub id: EnvId,
    /// Arguments with which it is made.
    pub kwargs: serde_json::Map<String, serde_json::Value>,
    /// Whether it is declared deterministic; `None` leaves that to what the env says of itself.
    pub deterministic: Option<bool>,
    /// What its lanes give of its infos.
    pub infos: InfoRequest,
}

/// What lanes give of an env's infos. They are numbers, and arrays of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct InfoRequest {
    /// Whether a step is tried, to give what the env says in it and in the reset before.
    pub are_learned: bool,
    /// Infos of each step that are part of what the env is, and are recorded with it: info channels.
    pub recorded: Vec<ColumnSpec>,
    /// Of every how many-th step its lanes have a picture for recordings; 0 for none.
    pub frames_every: u64,
}

impl EnvRequest {
    /// Returns the env that a run was recorded of, by its spec and arguments. That it is declared deterministic is believed
    /// as it is of anybody who asks: it is tried out.
    ///
    /// # Errors
    /// If the arguments are no JSON object of at most [`MAX_ENV_KWARGS_BYTES`].
    pub fn recorded(spec: &EnvSpec, arguments: &str) -> Result<Self, LearnError> {
        let fits = arguments.len() <= MAX_ENV_KWARGS_BYTES;
        let kwargs = match arguments {
            "" => Some(serde_json::Map::new()),
            text => fits.then(|| serde_json::from_str(text).ok()).flatten(),
        };
        let bytes = arguments.len();
        let channels = spec.info_channels.iter().filter(|channel| channel.role == Role::Info);
        Ok(Self {
            id: spec.id.as_str().into(),
            kwargs: kwargs
                .ok_or_else(|| LearnError::new(LearnReason::Request, Fault::Arguments { bytes }))?,
            deterministic: Some(spec.determinism == Determinism::Deterministic),
            infos: InfoRequest { recorded: channels.cloned().collect(), ..InfoRequest::default() },
        })
    }
}

/// An env that a provider has described.
pub struct LearnedEnv {
    spec: EnvSpec,
    entry: Box<MakeEntry>,
}

type MakeEntry = dyn Fn(&ConnectWatch, Option<Holder>) -> EnvEntry + Send + Sync;

impl LearnedEnv {
    /// Makes an env of that spec. `entry` gives what makes lanes of it for a session, whose connecting shows in a watch and
    /// whose processes count as the holder's; it does not wait, as making the lanes may.
    pub fn new(
        spec: EnvSpec,
        entry: impl Fn(&ConnectWatch, Option<Holder>) -> EnvEntry + Send + Sync + 'static,
    ) -> Self {
        Self { spec, entry: Box::new(entry) }
    }

    /// Returns what the env is.
    pub const fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    /// Returns what makes lanes of the env for a session.
    ///
    /// # Errors
    /// If its lanes are of another spec than the env was learned with.
    pub fn entry(&self, watch: &ConnectWatch, holder: Option<Holder>) -> Result<EnvEntry, LearnError> {
        let entry = (self.entry)(watch, holder);
        if *entry.spec() == self.spec {
            return Ok(entry);
        }
        let fault = Fault::OtherLanes { env: self.spec.id.clone() };
        Err(LearnError::new(LearnReason::Unsupported, fault))
    }
}

impl fmt::Debug for LearnedEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LearnedEnv").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// The providers of a machine. Clones are the same.
#[derive(Debug, Clone)]
pub struct EnvProviders(Arc<[Arc<dyn EnvProvider>]>);

impl EnvProviders {
    /// Makes them of a list. An env is asked of the first that has it.
    pub fn new(providers: impl IntoIterator<Item = Arc<dyn EnvProvider>>) -> Self {
        Self(providers.into_iter().collect())
    }

    /// Returns the kinds of all.
    pub fn kinds(&self) -> BTreeSet<EnvKind> {
        self.0.iter().flat_map(|provider| provider.kinds()).collect()
    }

    /// Returns the provider of an env; `None` if none has such envs.
    pub fn of(&self, id: &EnvId) -> Option<&dyn EnvProvider> {
        self.0
            .iter()
            .map(|provider| &**provider)
            .find(|provider| id.source().is_learned() && provider.has(id))
    }

    /// Learns an env, and checks what its provider says. Blocks for as long as the provider does: whoever calls it waits on
    /// another thread, for [`EnvProvider::learn_within`].
    ///
    /// # Errors
    /// The provider's, and those of an env that is another one than was asked for or such as none may be.
    pub fn learn(&self, asked: &EnvRequest, watch: &ConnectWatch) -> Result<LearnedEnv, LearnError> {
        let env = || asked.id.to_string();
        let provider = self.of(&asked.id);
        let provider = provider
            .ok_or_else(|| LearnError::new(LearnReason::NotFound, Fault::NoProvider { env: env() }))?;
        let learned = provider.learn(asked, watch)?;
        let EnvSpec { id, source, .. } = &learned.spec;
        if **id != *asked.id || source != asked.id.source() {
            let fault = Fault::Another { env: env(), learned: id.clone() };
            return Err(LearnError::new(LearnReason::Unsupported, fault));
        }
        let checked = check_spec(&learned.spec);
        checked.map_err(|error| LearnError::new(LearnReason::Unsupported, Fault::Spec(error)))?;
        Ok(learned)
    }

    /// Learns an env as [`EnvProviders::learn`] does, on a thread that is left alone when its time is over.
    ///
    /// # Errors
    /// As [`EnvProviders::learn`], [`LearnError::late`], and if there is no thread.
    pub fn learn_in_time(&self, asked: &EnvRequest, watch: &ConnectWatch) -> Result<LearnedEnv, LearnError> {
        let within = self.of(&asked.id).map_or(Duration::MAX, EnvProvider::learn_within);
        let (done, answer) = sync_channel(1);
        let (providers, watch) = (self.clone(), watch.clone());
        let request = asked.clone();
        // Task: learning.
        let thread = std::thread::Builder::new().name("rollhouse-learn".to_owned());
        let started = thread.spawn(move || {
            // Nobody may wait for it any more.
            let _told = done.send(providers.learn(&request, &watch));
        });
        started.map_err(|error| LearnError::new(LearnReason::Internal, error))?;
        match answer.recv_timeout(within) {
            Ok(learned) => learned,
            Err(RecvTimeoutError::Timeout) => Err(LearnError::late(&asked.id, within)),
            Err(RecvTimeoutError::Disconnected) => {
                Err(LearnError::new(LearnReason::Internal, Fault::NoAnswer { env: asked.id.to_string() }))
            }
        }
    }
}

impl<P: EnvProvider + 'static> From<P> for EnvProviders {
    fn from(provider: P) -> Self {
        Self::new([Arc::new(provider) as Arc<dyn EnvProvider>])
    }
}

/// Error of an env that cannot be learned: a reason by which it is handled, and the cause, as which it is printed.
#[derive(Debug)]
pub struct LearnError {
    reason: LearnReason,
    cause: Box<dyn Error + Send + Sync>,
}

/// Reason for which an env cannot be learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LearnReason {
    /// There is no such env here, or its code cannot be loaded.
    NotFound,
    /// The machine's operator does not let its code run.
    NotAllowed,
    /// The env does not take its arguments.
    Arguments,
    /// The request is wrong in another part.
    Request,
    /// What the env connects to was not reached.
    NotConnected,
    /// The process that made it has ended.
    Lost,
    /// The provider has not answered in its time.
    Late,
    /// The env is such as cannot be hosted, or the provider contradicts itself.
    Unsupported,
    /// The provider lacks what it needs on this machine.
    NotInstalled,
    /// Something else failed on this machine.
    Internal,
}

impl LearnError {
    /// Makes an error.
    pub fn new(reason: LearnReason, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { reason, cause: cause.into() }
    }

    /// Makes the error of an env whose provider has not answered in its time.
    pub fn late(env: &EnvId, within: Duration) -> Self {
        Self::new(LearnReason::Late, Fault::Late { env: env.to_string(), within })
    }

    /// Returns the reason.
    pub const fn reason(&self) -> LearnReason {
        self.reason
    }
}

impl fmt::Display for LearnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl Error for LearnError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.source()
    }
}

/// What is wrong with a request or with a provider's answer.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("nothing here provides `{env}`: it is of a kind that this program does not know")]
    NoProvider { env: String },
    #[error("`{env}` was not learned within {within:?}")]
    Late { env: String, within: Duration },
    #[error("`{env}` was not learned: its provider ended without an answer")]
    NoAnswer { env: String },
    #[error("`{env}` was asked for, and its provider describes `{learned}`")]
    Another { env: String, learned: String },
    #[error("the lanes of `{env}` are of another spec than it was learned with")]
    OtherLanes { env: String },
    #[error("its provider describes what no env may be")]
    Spec(#[source] RegisterError),
    #[error(
        "{bytes} bytes of arguments were recorded, which are no JSON object of at most {MAX_ENV_KWARGS_BYTES} bytes"
    )]
    Arguments { bytes: usize },
}
