//! Shared pieces of the process tests.
#![forbid(unsafe_code)]
