//! Where envs come from: the program, a plug-in, a Python package, or a world of another kind.
//!
//! An id is read once, where it comes in ([`EnvId`]), and so is a spec that does not say where its env comes from. What is
//! decided by it is decided by an [`EnvSource`].

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::bounded_text;
use crate::limits::{MAX_ENV_ID_BYTES, MAX_NAME_BYTES};

/// Source of an env: what has its code.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum EnvSource {
    /// The program that has registered it.
    #[default]
    BuiltIn,
    /// A plug-in that was loaded.
    PlugIn,
    /// A Python package. A machine needs all of these kinds, and learns the env when it is asked for.
    Python {
        /// Kinds of the packages, as far as the id tells: that of the registry before that of the package that registers.
        kinds: Vec<EnvKind>,
        /// What the env has of its lanes.
        lanes: PythonLanes,
    },
    /// A world of a kind that is neither. A machine needs the kind, and learns the env when it is asked for.
    Foreign(EnvKind),
}

/// Lanes of an env of a Python package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PythonLanes {
    /// Each has an env of its own.
    Apart,
    /// They are one vector env, which steps them together.
    Together,
}

impl EnvSource {
    /// Returns the source that follows from an id. An id without a colon is one of the program or of a plug-in; which of both
    /// does not follow, and the program counts.
    pub fn of_id(id: &str) -> Self {
        if id.len() > MAX_ENV_ID_BYTES {
            return Self::BuiltIn;
        }
        if let Some((kind, world)) = id.split_once(WORLD)
            && !world.is_empty()
            && let Some(kind) = EnvKind::of_worlds(kind)
        {
            return Self::Foreign(kind);
        }
        let vector = id.strip_prefix(VECTOR).filter(|named| named.contains(':'));
        let Some((module, rest)) = vector.unwrap_or(id).split_once(':') else { return Self::BuiltIn };
        if rest.is_empty() || !module.split('.').all(is_identifier) {
            return Self::BuiltIn;
        }
        let registering = rest.rsplit_once(':').filter(|_| module == REGISTRY).map(|(module, _)| module);
        let package = |module: &str| EnvKind::of_package(module.split('.').next().unwrap_or_default());
        let kinds = std::iter::once(module).chain(registering).map(package).collect::<Option<_>>();
        let lanes = if vector.is_some() { PythonLanes::Together } else { PythonLanes::Apart };
        kinds.map_or(Self::BuiltIn, |kinds| Self::Python { kinds, lanes })
    }

    /// Returns whether an env of that id can come from here.
    pub fn fits(&self, id: &str) -> bool {
        match self {
            Self::BuiltIn | Self::PlugIn => !id.contains(':'),
            Self::Python { .. } | Self::Foreign(_) => *self == Self::of_id(id),
        }
    }

    /// Returns whether a machine learns the env when it is asked for, and has it in no registry.
    pub const fn is_learned(&self) -> bool {
        matches!(self, Self::Python { .. } | Self::Foreign(_))
    }

    /// Returns whether the lanes of the env step together.
    pub const fn steps_together(&self) -> bool {
        matches!(self, Self::Python { lanes: PythonLanes::Together, .. })
    }

    /// Returns the kinds that a machine needs to learn the env; none if it is not learned.
    pub fn kinds(&self) -> &[EnvKind] {
        match self {
            Self::BuiltIn | Self::PlugIn => &[],
            Self::Python { kinds, .. } => kinds,
            Self::Foreign(kind) => std::slice::from_ref(kind),
        }
    }

    /// Returns whether it follows from the id of its env.
    pub(crate) const fn follows_from_id(&self) -> bool {
        !matches!(self, Self::PlugIn)
    }

    /// Writes a source that follows from no id.
    pub(crate) fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if self.follows_from_id() { "" } else { PLUG_IN })
    }

    /// Reads a source that follows from no id. Any other word is one of a newer program, and leaves it to the id.
    pub(crate) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Ok(if word == PLUG_IN { Self::PlugIn } else { Self::BuiltIn })
    }
}

/// Word for an env of a plug-in in messages and files.
const PLUG_IN: &str = "plug_in";

/// Id of an env that is asked for, with the source that follows from it. It is sent, ordered and compared as its text.
#[derive(Clone)]
pub struct EnvId(Arc<(Box<str>, EnvSource)>);

impl EnvId {
    /// Returns the source that follows from the id, as [`EnvSource::of_id`] does.
    pub fn source(&self) -> &EnvSource {
        &self.0.1
    }

    /// Reads an id of at most [`MAX_ENV_ID_BYTES`].
    ///
    /// # Errors
    /// If it is longer, or is no text.
    pub fn bounded<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        bounded_text::<MAX_ENV_ID_BYTES, _>(from).map(Self::from)
    }
}

impl<T: Into<Box<str>>> From<T> for EnvId {
    fn from(text: T) -> Self {
        let text = text.into();
        let source = EnvSource::of_id(&text);
        Self(Arc::new((text, source)))
    }
}

impl Deref for EnvId {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.0
    }
}

impl Borrow<str> for EnvId {
    fn borrow(&self) -> &str {
        self
    }
}

impl PartialEq for EnvId {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for EnvId {}

impl PartialOrd for EnvId {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for EnvId {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl fmt::Debug for EnvId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for EnvId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

impl Serialize for EnvId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for EnvId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

/// Kind of envs: all whose code is in one Python package, written `gymnasium:*`, or all worlds of another kind, written
/// `bullet://*`.
///
/// A machine that hosts a kind does not know its envs beforehand. It learns one when it is asked for it by its id, which
/// is `gymnasium:ID`, `gymnasium:module:ID`, or a class as `package.module:Class`. A vector env of a package, whose lanes step
/// together, is `vector:package:ID`. A world of another kind is `bullet://NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnvKind {
    is_package: bool,
    name: String,
}

impl EnvKind {
    /// Makes the kind of a package's envs; `None` if that is no name of a package.
    pub fn of_package(package: &str) -> Option<Self> {
        Self::named(package, true)
    }

    /// Makes a kind of worlds that are of no Python package; `None` if that is no name: it begins with a letter, and has
    /// letters, digits and underscores.
    pub fn of_worlds(kind: &str) -> Option<Self> {
        Self::named(kind, false)
    }

    fn named(name: &str, is_package: bool) -> Option<Self> {
        let named = is_identifier(name) && name.len() <= MAX_NAME_BYTES;
        named.then(|| Self { is_package, name: name.to_owned() })
    }

    /// Returns whether it is one of a Python package.
    pub const fn is_package(&self) -> bool {
        self.is_package
    }

    /// Returns the name of the package, or of the kind of worlds.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Prints the kind as it is announced: `gymnasium:*`, `bullet://*`.
impl fmt::Display for EnvKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}*", self.name, if self.is_package { ":" } else { WORLD })
    }
}

impl FromStr for EnvKind {
    type Err = NoEnvKind;

    fn from_str(text: &str) -> Result<Self, NoEnvKind> {
        let text = text.strip_suffix('*').ok_or(NoEnvKind)?;
        let kind = match text.strip_suffix(WORLD) {
            Some(kind) => Self::of_worlds(kind),
            None => text.strip_suffix(':').and_then(Self::of_package),
        };
        kind.ok_or(NoEnvKind)
    }
}

/// Error of a text that names no kind of envs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a kind of envs is written PACKAGE:* or KIND://*")]
pub struct NoEnvKind;

fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// How ids of vector envs begin. A package of that name has no second colon in its ids.
const VECTOR: &str = "vector:";

/// What stands between a kind of worlds and the name of one. No class and no registered env of Python has a name that begins
/// with two slashes.
const WORLD: &str = "://";

/// Package whose registry has envs by names of their own.
const REGISTRY: &str = "gymnasium";

#[cfg(test)]
mod tests {
    use super::*;

    /// Kinds that an id tells, as they are announced.
    fn kinds_of(id: &str) -> Vec<String> {
        EnvSource::of_id(id).kinds().iter().map(EnvKind::to_string).collect()
    }

    #[test]
    fn ids_of_learned_envs_tell_the_kinds_that_a_machine_needs() {
        for (id, kinds) in [
            ("gymnasium:CartPole-v1", &["gymnasium:*"][..]),
            ("gymnasium:ale_py:ALE/Pong-v5", &["gymnasium:*", "ale_py:*"]),
            ("gymnasium:my_envs.registered:Maze-v0", &["gymnasium:*", "my_envs:*"]),
            ("my_package.envs:Maze", &["my_package:*"]),
            ("vector:envpool:Pong-v5", &["envpool:*"]),
            ("vector:gymnasium:CartPole-v1", &["gymnasium:*"]),
            ("vector:gymnasium:my_envs:Maze-v0", &["gymnasium:*", "my_envs:*"]),
            ("vector:my_package.envs:MazeVector", &["my_package:*"]),
            ("vector:Maze", &["vector:*"]),
            ("bullet://Maze", &["bullet://*"]),
            ("bullet://Maze:2", &["bullet://*"]),
            ("vector:envpool:", &[]),
            ("CartPole-v1", &[]),
            ("test/Faulty-v0", &[]),
            ("", &[]),
            (":Maze", &[]),
            ("a..b:C", &[]),
            ("../a:C", &[]),
            ("a b:C", &[]),
            ("gymnasium:", &[]),
            ("gymnasium::X-v0", &[]),
            ("1a:B", &[]),
            ("1a://B", &[]),
            ("://B", &[]),
        ] {
            assert_eq!(kinds_of(id), kinds, "{id}");
            assert_eq!(EnvSource::of_id(id).is_learned(), !kinds.is_empty(), "{id}");
        }
        assert!(!EnvSource::of_id(&format!("a:{}", "b".repeat(MAX_ENV_ID_BYTES))).is_learned());
    }

    #[test]
    fn lanes_of_vector_envs_alone_step_together() {
        for (id, together) in [
            ("vector:envpool:Pong-v5", true),
            ("vector:Maze", false),
            ("vector:../a:C", false),
            ("gymnasium:CartPole-v1", false),
            ("bullet://Maze", false),
            ("CartPole-v1", false),
        ] {
            assert_eq!(EnvSource::of_id(id).steps_together(), together, "{id}");
        }
    }

    #[test]
    fn an_id_fits_the_source_that_it_tells_and_one_with_a_colon_no_other() {
        let python = EnvSource::of_id("my_package:Maze");
        for (source, id, fits) in [
            (EnvSource::BuiltIn, "CartPole-v1", true),
            (EnvSource::PlugIn, "CartPole-v1", true),
            (EnvSource::BuiltIn, "my_package:Maze", false),
            (EnvSource::PlugIn, "a b:C", false),
            (python.clone(), "my_package:Maze", true),
            (python.clone(), "other:Maze", false),
            (python.clone(), "Maze", false),
            (python, "my_package://Maze", false),
            (EnvSource::of_id("bullet://Maze"), "bullet://Other", true),
            (EnvSource::of_id("bullet://Maze"), "bullet:Maze", false),
        ] {
            assert_eq!(source.fits(id), fits, "{source:?} {id}");
        }
    }

    #[test]
    fn a_kind_is_read_as_it_is_printed_and_nothing_else_is_one() {
        for kind in [EnvKind::of_package("gymnasium"), EnvKind::of_worlds("bullet")].map(Option::unwrap) {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        for text in ["", "*", ":*", "://*", "gymnasium", "gymnasium:", "a.b:*", "a:b:*", "1a:*", "a:b://*"] {
            assert_eq!(text.parse::<EnvKind>(), Err(NoEnvKind), "{text}");
        }
    }

    #[test]
    fn an_id_is_sent_as_its_text_and_read_with_its_source() {
        let bytes = rmp_serde::to_vec(&EnvId::from("bullet://Maze")).unwrap();
        assert_eq!(bytes, rmp_serde::to_vec("bullet://Maze").unwrap());
        let read: EnvId = crate::msgpack::decode(&bytes, 100).unwrap();
        assert_eq!(read.source(), &EnvSource::Foreign(EnvKind::of_worlds("bullet").unwrap()));
    }
}
