//! The provider of worlds `openra://MAP`.

use std::collections::BTreeSet;
use std::time::Duration;

use rollhouse_core::limits::MAX_ENGINES;
use rollhouse_core::{Determinism, EnvId, EnvKind, EnvSource, EnvSpec};
use rollhouse_env::EnvEntry;
use rollhouse_host::{ConnectWatch, EnvProvider, EnvRequest, LearnError, LearnReason, LearnedEnv};

use super::lanes::blocks;
use super::settings::{Settings, is_address};
use super::spaces::{actions, info_channels, observations};

/// Worlds that engines of OpenRA serve: `openra://MAP`, with the arguments `engine`, `map_size`, `bots`, `weights`, `words`
/// and `max_actor_id`. What such a world is follows from its arguments alone; the engine is connected to by the first
/// reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenraWorlds {
    engines: BTreeSet<String>,
}

/// Maximum number of bytes of a map's name.
const MAX_MAP_BYTES: usize = 128;
const WORLDS: &str = "openra";
const LEARN_WITHIN: Duration = Duration::from_secs(5);

/// Reason for which a world is refused.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the engine {engine} may not be connected to from here; may be: {}", .known.join(", "))]
    Engine { engine: String, known: Vec<String> },
    #[error("`{0}` names no map of 1 to {MAX_MAP_BYTES} bytes")]
    Map(String),
    #[error("games of an engine do not come out the same again")]
    Deterministic,
    #[error("recordings have no pictures of an engine's games")]
    Pictures,
}

/// Returns whether a text is the address of an engine, `HOST:PORT`.
pub fn is_engine(text: &str) -> bool {
    is_address(text)
}

impl OpenraWorlds {
    /// Makes the provider of worlds of these engines, `HOST:PORT` each, word by word as arguments name them. Those beyond
    /// [`MAX_ENGINES`] are left out.
    pub fn new(engines: impl IntoIterator<Item = String>) -> Self {
        Self { engines: engines.into_iter().take(MAX_ENGINES).collect() }
    }

    fn settings(&self, asked: &EnvRequest) -> Result<Settings, LearnError> {
        let settings = Settings::of(&asked.kwargs);
        let settings = settings.map_err(|error| LearnError::new(LearnReason::Arguments, error))?;
        if !self.engines.contains(&settings.engine) {
            let (engine, known) = (settings.engine, self.engines.iter().cloned().collect());
            return Err(LearnError::new(LearnReason::NotAllowed, Refused::Engine { engine, known }));
        }
        if asked.deterministic == Some(true) {
            return Err(LearnError::new(LearnReason::Unsupported, Refused::Deterministic));
        }
        if asked.infos.frames_every > 0 {
            return Err(LearnError::new(LearnReason::Unsupported, Refused::Pictures));
        }
        Ok(settings)
    }
}

impl EnvProvider for OpenraWorlds {
    fn kinds(&self) -> Vec<EnvKind> {
        EnvKind::of_worlds(WORLDS).into_iter().filter(|_| !self.engines.is_empty()).collect()
    }

    fn has(&self, id: &EnvId) -> bool {
        matches!(id.source(), EnvSource::Foreign(kind) if EnvKind::of_worlds(WORLDS).as_ref() == Some(kind))
    }

    fn learn_within(&self) -> Duration {
        LEARN_WITHIN
    }

    fn learn(&self, asked: &EnvRequest, _: &ConnectWatch) -> Result<LearnedEnv, LearnError> {
        let map = map_of(&asked.id).ok_or_else(|| {
            LearnError::new(
                LearnReason::NotFound,
                Refused::Map(asked.id.chars().take(MAX_MAP_BYTES).collect()),
            )
        })?;
        let settings = self.settings(asked)?;
        let internal = |error| LearnError::new(LearnReason::Internal, error);
        let spec = EnvSpec {
            id: asked.id.to_string(),
            source: asked.id.source().clone(),
            summary: format!("map {map} of an engine of OpenRA, which plays it"),
            observation_space: observations(&settings.sight).map_err(internal)?,
            action_space: actions(&settings.sight).map_err(internal)?,
            observation_names: Vec::new(),
            action_names: Vec::new(),
            max_episode_steps: None,
            determinism: Determinism::NonDeterministic,
            methods: Vec::new(),
            options: Vec::new(),
            info_channels: info_channels(),
            dynamics_hash: 0,
        };
        let (of_lanes, map) = (spec.clone(), map.to_owned());
        let arguments = serde_json::Value::Object(asked.kwargs.clone()).to_string();
        Ok(LearnedEnv::new(spec, move |_, _| {
            let (map, settings) = (map.clone(), settings.clone());
            let make = move |options: &[_]| blocks(&map, &settings, options.len());
            EnvEntry::late(of_lanes.clone(), make).with_arguments(arguments.clone())
        }))
    }
}

/// Returns the map that an id names.
fn map_of(id: &EnvId) -> Option<&str> {
    let (_, map) = id.split_once("://")?;
    let is_map = (1..=MAX_MAP_BYTES).contains(&map.len()) && !map.chars().any(char::is_control);
    is_map.then_some(map)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(id: &str, engine: &str) -> EnvRequest {
        let kwargs = json!({"engine": engine, "map_size": [44, 44]});
        EnvRequest {
            id: id.into(),
            kwargs: kwargs.as_object().unwrap().clone(),
            deterministic: None,
            infos: rollhouse_host::InfoRequest::default(),
        }
    }

    fn learn(asked: &EnvRequest) -> Result<LearnedEnv, LearnError> {
        let worlds = OpenraWorlds::new(["127.0.0.1:9999".to_owned()]);
        rollhouse_host::EnvProviders::from(worlds).learn(asked, &ConnectWatch::default())
    }

    #[test]
    fn a_world_is_learned_without_its_engine() {
        let learned = learn(&asked("openra://river", "127.0.0.1:9999")).unwrap();
        assert_eq!(learned.spec().id, "openra://river");
        let entry = learned.entry(&ConnectWatch::default(), None).unwrap();
        assert!(entry.is_late() && entry.arguments().contains("127.0.0.1:9999"));
    }

    #[test]
    fn engines_that_the_operator_does_not_name_and_maps_without_a_name_are_refused() {
        let refused = learn(&asked("openra://river", "10.0.0.1:9999")).unwrap_err();
        assert_eq!(refused.reason(), LearnReason::NotAllowed);
        assert!(
            refused.to_string().contains("10.0.0.1:9999") && refused.to_string().contains("127.0.0.1:9999")
        );
        let unnamed = learn(&asked("openra://", "127.0.0.1:9999")).unwrap_err();
        assert_eq!(unnamed.reason(), LearnReason::NotFound, "{unnamed}");
        let sure = EnvRequest { deterministic: Some(true), ..asked("openra://river", "127.0.0.1:9999") };
        assert_eq!(learn(&sure).unwrap_err().reason(), LearnReason::Unsupported);
        assert!(OpenraWorlds::new([]).kinds().is_empty(), "who has no engine registers no kind");
    }
}
