//! The identity of a node: the certificate that its operator gave it, else the one that it was given when it joined.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_client::Address;
use rollhouse_config::NodeConfig;
use rollhouse_core::{NODE_NAME_RULE, Pauses, is_node_name, jitter, read_regular_text};
use rollhouse_node::{JoinError, Joining};
use rollhouse_wire::{
    CallError, Certified, DialError, Identity, IdentityFileError, JoinedFolder, KeyRequest, Readers,
    replace_file,
};
use tracing::{info, warn};

use crate::connect::{self, MAX_CONNECTION_BYTES};
use crate::failure::{Failure, Status};
use crate::private_folder::private_folder;
use crate::service::{self, PROGRAM};
use crate::signals::ServiceSignals;

/// The source of a node's certificate.
pub(crate) enum Standing {
    /// The operator gave the node a certificate, and renews it.
    Certified,
    /// The node was given a certificate for a join token, and renews it.
    Joined(JoinedFolder),
    /// The node has no certificate, or one that has expired, and a join token.
    Joins(JoinedFolder, Address),
}

/// The identity of a node, with its coordinator.
pub(crate) struct NodeIdentity {
    pub(crate) identity: Arc<Identity>,
    /// The folder in which it renews its certificate, if it does.
    pub(crate) renew: Option<JoinedFolder>,
    /// Host and port of its coordinator.
    pub(crate) coordinator: String,
}

/// Finds where a node with these settings has its certificate from, as far as its files tell.
pub(crate) fn standing(config: &NodeConfig) -> Result<Standing, Failure> {
    let [_, certificate, ..] = config.tls.files(&config.data);
    let folder = JoinedFolder::new(config.data.join(JOINED));
    let given = config.tls.cert.is_some() || config.tls.key.is_some() || certificate.exists();
    match &config.joining.join {
        _ if given => Ok(Standing::Certified),
        // One that holds needs no token.
        Some(text) if folder.load().is_err() => Ok(Standing::Joins(folder, connect::parse(&text.0)?)),
        _ if folder.is_joined() => Ok(Standing::Joined(folder)),
        _ => Ok(Standing::Certified),
    }
}

/// Returns the node's identity, and joins for it if there is none. Joining is tried again until it succeeds, or until
/// `asked` says that the process is to end; `None` then. Blocks.
pub(crate) fn identity(
    config: &NodeConfig,
    standing: Standing,
    asked: &ServiceSignals,
) -> Result<Option<NodeIdentity>, Failure> {
    let found = match standing {
        Standing::Certified => {
            let identity = service::identity(&config.tls, &config.data, "node").map_err(|failure| {
                failure.hint("or join: --join URL with a token of `rollhouse token create --role join`")
            })?;
            NodeIdentity { identity, renew: None, coordinator: coordinator(config, None) }
        }
        Standing::Joined(folder) => NodeIdentity {
            identity: load(&folder)?,
            coordinator: coordinator(config, Some(&folder)),
            renew: Some(folder),
        },
        Standing::Joins(folder, address) => {
            let place =
                config.joining.coordinator.as_ref().map_or_else(|| host_port(&address), |own| own.0.clone());
            private_folder(&config.data)?;
            if !join(config, &folder, &address, &place, asked)? {
                return Ok(None);
            }
            let kept = folder.path().join(COORDINATOR);
            replace_file(&kept, format!("{place}\n").as_bytes(), Readers::All).map_err(|error| {
                Failure::new(Status::Failed, format_args!("{} cannot be written: {error}", kept.display()))
            })?;
            NodeIdentity { identity: load(&folder)?, renew: Some(folder), coordinator: place }
        }
    };
    check_name(config, found.identity.certified())?;
    Ok(Some(found))
}

/// Returns host and port of the coordinator to dial: the configured one, else the one where the node joined, else this
/// machine.
pub(crate) fn coordinator(config: &NodeConfig, joined: Option<&JoinedFolder>) -> String {
    let kept = || {
        let text = read_regular_text(joined?.path().join(COORDINATOR), MAX_CONNECTION_BYTES).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    config
        .joining
        .coordinator
        .as_ref()
        .map(|own| own.0.clone())
        .or_else(kept)
        .unwrap_or_else(|| DEFAULT_COORDINATOR.to_owned())
}

/// Returns the name under which a node joins: the configured one, else the host's.
pub(crate) fn name(config: &NodeConfig) -> Result<String, Failure> {
    let (name, from) = match &config.joining.name {
        Some(name) => (name.clone(), "node.name"),
        None => (host_name(), "the host's name"),
    };
    if is_node_name(&name) {
        return Ok(name);
    }
    let what = format_args!(
        "{from}, `{}`, is not a node's name; a node's name has {NODE_NAME_RULE}",
        name.escape_debug()
    );
    Err(Failure::new(Status::Usage, what).hint("--name NAME sets one"))
}

/// Joins, however often it takes; false if the process is to end first.
fn join(
    config: &NodeConfig,
    folder: &JoinedFolder,
    address: &Address,
    coordinator: &str,
    asked: &ServiceSignals,
) -> Result<bool, Failure> {
    let usage = |what: &str| Err(Failure::new(Status::Usage, what).hint(FORM));
    let Some(token) = &address.token else { return usage("the connection string to join by has no token") };
    let Some(trust) = &address.ca else {
        return usage(
            "the connection string to join by does not name the authority of the coordinator: it has no ca=",
        );
    };
    let joining = Joining {
        coordinator: coordinator.to_owned(),
        trust: trust.clone(),
        node: name(config)?,
        folder: folder.clone(),
        quic: service::quic(&config.network, &config.data)?,
        program: PROGRAM.to_owned(),
    };
    info!("joins {coordinator} as the node {}", joining.node);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::new(Status::Failed, format_args!("no event loop: {error}")))?;
    // The same one each time: the token counts it once.
    let request = KeyRequest::make().map_err(|error| Failure::of(Status::Failed, &error))?;
    let (mut failures, mut said) = (0u32, None);
    while !asked.wants_end() {
        let joined = runtime.block_on(async {
            tokio::select! {
                joined = joining.join(token, &request) => Some(joined),
                () = until_asked(asked) => None,
            }
        });
        let error = match joined {
            Some(Ok(_)) => return Ok(true),
            Some(Err(error)) if error.is_transient() => error,
            Some(Err(error)) => return Err(failure(&error)),
            None => break,
        };
        let why = Failure::of(Status::Unavailable, &error).message().to_owned();
        if said.as_ref() != Some(&why) {
            warn!("cannot join yet: {why}; still trying");
            said = Some(why);
        }
        let pause = pause(&error, failures);
        failures = failures.saturating_add(1);
        runtime.block_on(async {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = until_asked(asked) => {}
            }
        });
    }
    Ok(false)
}

/// Returns the time to wait before another attempt: the time that the coordinator names, else longer each time, less a
/// part that differs from machine to machine.
fn pause(error: &JoinError, failures: u32) -> Duration {
    let told = match error {
        JoinError::Dial(DialError::Refused(refusal)) | JoinError::Call(CallError::Refused(refusal)) => {
            refusal.retry_after_ms.map(Duration::from_millis)
        }
        _ => None,
    };
    let pause = told.unwrap_or(PAUSES.after(failures)).clamp(PAUSES.first, PAUSES.longest);
    pause + jitter(pause / 4, u64::from(std::process::id()) << 32 | u64::from(failures))
}

async fn until_asked(asked: &ServiceSignals) {
    while !asked.wants_end() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn failure(error: &JoinError) -> Failure {
    let status = match error {
        JoinError::Trust(_) => Status::Usage,
        JoinError::Dial(DialError::Refused(_) | DialError::Identity { .. })
        | JoinError::Call(CallError::Refused(_)) => Status::Refused,
        _ => Status::Failed,
    };
    let failure = Failure::of(status, error);
    match error {
        JoinError::Dial(DialError::Refused(_)) | JoinError::Call(CallError::Refused(_)) => failure
            .hint("`rollhouse token create --role join` on the coordinator's machine makes a join token"),
        _ => failure,
    }
}

fn load(folder: &JoinedFolder) -> Result<Arc<Identity>, Failure> {
    folder.load().map_err(|error| {
        let failure = Failure::of(Status::Usage, &error);
        match error {
            IdentityFileError::Refused { .. } => {
                failure.hint("a node that was away until its certificate's end joins again: --join URL")
            }
            _ => failure,
        }
    })
}

/// Checks that a node that is started with another node's folder does not take its name.
fn check_name(config: &NodeConfig, certified: Option<Certified>) -> Result<(), Failure> {
    match (&config.joining.name, certified) {
        (Some(wanted), Some(found)) if *wanted != found.name => Err(Failure::new(
            Status::Usage,
            format_args!("node.name is `{wanted}`, the certificate is that of {found}"),
        )),
        _ => Ok(()),
    }
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

fn host_port(address: &Address) -> String {
    let (open, close) = if address.host.contains(':') { ("[", "]") } else { ("", "") };
    format!("{open}{}{close}:{}", address.host, address.port)
}

/// Returns the sentence of `doctor` about a node that has not joined.
pub(crate) fn will_join(config: &NodeConfig, folder: &Path) -> Result<String, Failure> {
    let name = name(config)?;
    Ok(format!("none yet: it joins as `{name}`, and keeps what it is given in {}", folder.display()))
}

/// The folder in a node's data folder.
const JOINED: &str = "joined";
/// The file in it that names the coordinator at which it joined.
const COORDINATOR: &str = "coordinator";
const DEFAULT_COORDINATOR: &str = "127.0.0.1:7600";
const FORM: &str = "rollhouse://HOST:PORT?token=TOKEN&ca=sha256:HEX is wanted: `rollhouse token create --role join \
                    --address HOST:PORT` prints it";
/// Pauses between attempts: a coordinator that comes up finds its nodes within the longest and a quarter more.
const PAUSES: Pauses = Pauses { first: Duration::from_millis(200), longest: Duration::from_secs(5) };
const LOOK_EVERY: Duration = Duration::from_millis(100);
