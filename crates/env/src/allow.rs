//! Masks that an env shows in its observations, as whoever draws actions honours them.

use rollhouse_core::{ColumnRef, EnvSpec};

use crate::skirmish;

/// Makes drawn actions ones that the masks allow. It is given the observation columns, with a row for each lane, and the elements of
/// as many actions of the space; these it rewrites to other actions of the space, which follow from both alone. It does not allocate.
pub type Allow = fn(&[ColumnRef<'_>], &mut [i64]);

/// Returns how drawn actions of an env are made ones that its observation's masks allow. It is there for built-in envs whose actions
/// have parts that depend on each other, so that no action mask of one row says what is allowed.
pub fn allow_of(spec: &EnvSpec) -> Option<Allow> {
    skirmish::allow_of(spec)
}
