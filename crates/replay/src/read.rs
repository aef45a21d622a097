//! This folder reads recordings: it lists, finds and loads episodes.

pub(crate) mod archived;
pub(crate) mod copies;
pub(crate) mod find;
pub(crate) mod headless;
pub(crate) mod label;
pub(crate) mod label_file;
pub(crate) mod library;
pub(crate) mod load;
pub(crate) mod news;
pub(crate) mod order;
pub(crate) mod overview;
pub(crate) mod query;
pub(crate) mod read_error;
pub(crate) mod replays;
pub(crate) mod run_filter;
pub(crate) mod sealed;
pub(crate) mod segment;
pub(crate) mod select;
pub(crate) mod so_far;
pub(crate) mod stats;
