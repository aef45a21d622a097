//! Recording of lanes that are stepped in this process into a folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rollhouse_core::{Options, Parent, RecordRule, RunId};
use rollhouse_engine::EngineConfig;
use rollhouse_env::EnvEntry;
use rollhouse_replay::{
    OpenError, PolicyInfo, RealDisk, RecordError, Recorder, RecorderConfig, RunHeader, STORE_LOCK,
};

use crate::failure::{Failure, Status};
use crate::service::PROGRAM;

/// Opens a folder to record into, which `option` names. `way_out` tells the user what to do if it cannot be written.
pub(crate) fn open_recorder(dir: &Path, option: &str, way_out: &str) -> Result<Recorder, Failure> {
    Recorder::open(Arc::new(RealDisk), dir, RecorderConfig::default()).map_err(|error| match error {
        OpenError::Locked { .. } => Failure::of(Status::Refused, &error)
            .hint(format_args!("wait for it to end, or record into another {option} folder")),
        _ => Failure::of(Status::Failed, &error).hint(way_out),
    })
}

/// Refuses a folder that is a cluster's store or lies in one: it belongs to its coordinator.
pub(crate) fn refuse_store(dir: &Path, way_out: &str) -> Result<(), Failure> {
    let has_lock = |dir: &Path| dir.join(STORE_LOCK).exists();
    let above = dir.canonicalize().ok().and_then(|dir| dir.parent().map(PathBuf::from));
    if !has_lock(dir) && !above.is_some_and(|above| has_lock(&above)) {
        return Ok(());
    }
    let message = format!("{} is a cluster's store, which only its coordinator writes to", dir.display());
    Err(Failure::new(Status::Refused, message).hint(way_out))
}

/// Makes the header of a run of one lane that begins now.
pub(crate) fn header_of(
    entry: &EnvEntry,
    config: EngineConfig,
    policy: &str,
    parent: Option<Parent>,
) -> RunHeader {
    let spec = entry.spec().clone();
    RunHeader {
        run: RunId::generate(),
        options: match config.options.as_slice() {
            // The defaults of a schema always pass its own check.
            [] => vec![Options::check(&spec.options, &[]).unwrap_or_default()],
            given => given.to_vec(),
        },
        lanes: 1,
        schedule: config.schedule,
        autoreset: config.autoreset.name().to_owned(),
        max_episode_steps: match config.max_episode_steps {
            None => spec.max_episode_steps,
            Some(limit) => (limit > 0).then_some(limit),
        },
        policy: PolicyInfo { name: policy.to_owned(), version: 0 },
        record: RecordRule::All,
        program: PROGRAM.to_owned(),
        started_ms: wall_ms(),
        parent,
        arguments: entry.arguments().to_owned(),
        spec,
    }
}

/// Makes the failure for an error at the end of a recording.
pub(crate) fn record_failure(error: &RecordError) -> Failure {
    Failure::of(Status::Failed, error).hint("what was recorded until then is kept as far as the disk took it")
}

/// Returns the wall-clock time in milliseconds since 1970.
pub(crate) fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
