//! This folder knows the files of recordings: their names, locks and indexes, and what a crash left in them.

pub(crate) mod aside;
pub(crate) mod catalogue;
pub(crate) mod damage;
pub(crate) mod followed;
pub(crate) mod index;
pub(crate) mod lines;
pub(crate) mod lock;
pub(crate) mod names;
pub(crate) mod part;
pub(crate) mod recover;
pub(crate) mod rows;
pub(crate) mod run_headers;
pub(crate) mod run_table;
pub(crate) mod scan;
pub(crate) mod summary;
