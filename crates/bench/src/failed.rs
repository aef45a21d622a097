//! The failure of a bench for an error that has no remedy.

use std::error::Error;

use rollhouse_cli::failure::{Failure, Status};

/// Turns an error into the failure of the bench.
pub(crate) fn failed(error: impl Error + 'static) -> Failure {
    Failure::of(Status::Failed, &error)
}
