//! A shot on its way.

use super::actor::Target;

/// A shot that hits at the end of the tick.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hit {
    pub(super) target: Target,
    pub(super) damage: i32,
    /// Unit that shot; turrets learn nothing.
    pub(super) shooter: Option<Target>,
}
