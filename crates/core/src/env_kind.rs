//! Kinds of envs that are learned when one is asked for.

use std::fmt;
use std::str::FromStr;

use crate::limits::{MAX_ENV_ID_BYTES, MAX_NAME_BYTES};

/// Kind of envs: all whose code is in one Python package, written `gymnasium:*`.
///
/// A machine that hosts a kind does not know its envs beforehand. It learns one when it is asked for it by its id, which
/// is `gymnasium:ID`, `gymnasium:module:ID`, or a class as `package.module:Class`. A vector env of a package, whose lanes step
/// together, is `vector:package:ID`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnvKind {
    package: String,
}

impl EnvKind {
    /// Makes the kind of a package's envs; `None` if that is no name of a package.
    pub fn of_package(package: &str) -> Option<Self> {
        let named = is_identifier(package) && package.len() <= MAX_NAME_BYTES;
        named.then(|| Self { package: package.to_owned() })
    }

    /// Returns the package.
    pub fn package(&self) -> &str {
        &self.package
    }

    /// Returns whether an id is one of an env that is learned when it is asked for.
    pub fn has_id(id: &str) -> bool {
        !Self::packages_of(id).is_empty()
    }

    /// Returns whether the lanes of an env step together, because it is a vector env of a package.
    pub fn steps_together(id: &str) -> bool {
        Self::has_id(id) && Self::vector_of(id).is_some()
    }

    /// Returns what stands behind `vector:` in the id of a vector env: a package and a name.
    fn vector_of(id: &str) -> Option<&str> {
        id.strip_prefix(VECTOR).filter(|named| named.contains(':'))
    }

    /// Returns the packages whose kinds a machine needs for an env, as far as its id tells; none if it is no env of any
    /// kind.
    pub fn packages_of(id: &str) -> Vec<&str> {
        let id = Self::vector_of(id).unwrap_or(id);
        let Some((module, rest)) = id.split_once(':') else { return Vec::new() };
        if id.len() > MAX_ENV_ID_BYTES || rest.is_empty() || !module.split('.').all(is_identifier) {
            return Vec::new();
        }
        let of_module = |module: &'_ str| module.split('.').next().unwrap_or_default().len();
        let mut packages = vec![&module[..of_module(module)]];
        if module == REGISTRY
            && let Some((registering, _)) = rest.rsplit_once(':')
        {
            packages.push(&registering[..of_module(registering)]);
        }
        packages
    }
}

/// Prints the kind as it is announced: `gymnasium:*`.
impl fmt::Display for EnvKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:*", self.package)
    }
}

impl FromStr for EnvKind {
    type Err = NoEnvKind;

    fn from_str(text: &str) -> Result<Self, NoEnvKind> {
        text.strip_suffix(":*").and_then(Self::of_package).ok_or(NoEnvKind)
    }
}

/// Error of a text that names no kind of envs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a kind of envs is written PACKAGE:*")]
pub struct NoEnvKind;

fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// How ids of vector envs begin. A package of that name has no second colon in its ids.
const VECTOR: &str = "vector:";

/// Package whose registry has envs by names of their own.
const REGISTRY: &str = "gymnasium";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_learned_envs_have_a_module_and_a_name_and_need_its_package() {
        for (id, packages) in [
            ("gymnasium:CartPole-v1", &["gymnasium"][..]),
            ("gymnasium:ale_py:ALE/Pong-v5", &["gymnasium", "ale_py"]),
            ("gymnasium:my_envs.registered:Maze-v0", &["gymnasium", "my_envs"]),
            ("my_package.envs:Maze", &["my_package"]),
            ("vector:envpool:Pong-v5", &["envpool"]),
            ("vector:gymnasium:CartPole-v1", &["gymnasium"]),
            ("vector:gymnasium:my_envs:Maze-v0", &["gymnasium", "my_envs"]),
            ("vector:my_package.envs:MazeVector", &["my_package"]),
            ("vector:Maze", &["vector"]),
            ("vector:envpool:", &[]),
            ("CartPole-v1", &[]),
            ("test/Faulty-v0", &[]),
            (":Maze", &[]),
            ("a..b:C", &[]),
            ("../a:C", &[]),
            ("a b:C", &[]),
            ("gymnasium:", &[]),
            ("1a:B", &[]),
        ] {
            assert_eq!(
                (EnvKind::packages_of(id), EnvKind::has_id(id)),
                (packages.to_vec(), !packages.is_empty())
            );
        }
        assert!(!EnvKind::has_id(&format!("a:{}", "b".repeat(MAX_ENV_ID_BYTES))));
    }

    #[test]
    fn lanes_of_vector_envs_alone_step_together() {
        for (id, together) in [
            ("vector:envpool:Pong-v5", true),
            ("vector:Maze", false),
            ("vector:../a:C", false),
            ("gymnasium:CartPole-v1", false),
            ("CartPole-v1", false),
        ] {
            assert_eq!(EnvKind::steps_together(id), together, "{id}");
        }
    }

    #[test]
    fn a_kind_is_read_as_it_is_printed_and_nothing_else_is_one() {
        let kind = EnvKind::of_package("gymnasium").unwrap();
        assert_eq!((kind.to_string().parse(), kind.package()), (Ok(kind.clone()), "gymnasium"));
        for text in ["", "*", ":*", "gymnasium", "gymnasium:", "a.b:*", "a:b:*", "1a:*"] {
            assert_eq!(text.parse::<EnvKind>(), Err(NoEnvKind), "{text}");
        }
    }
}
