//! OpenEnv.

mod answers;
mod fuzz;
mod spaces;
