//! The program of workers of plug-ins in tests, in the place of `rollhouse plugin-worker`. Its last argument is the
//! host's process id.

use rollhouse_host::{LinkError, serve_plugin};

fn main() -> Result<(), LinkError> {
    let host = std::env::args().next_back().and_then(|id| id.parse().ok());
    serve_plugin(host.ok_or(LinkError::Protocol("no process id of the host"))?)
}
