//! All tests of the crate that need nothing but its public names, in one program.

mod openenv;
mod openra;
