//! `rollhouse top`: watches a cluster on the terminal.

use std::io::{self, IsTerminal};
use std::time::Duration;

use rollhouse_client::{Cluster, RequestError};
use rollhouse_viewer::{Asker, Look, Sample, watch_cluster};

use crate::args::TopArgs;
use crate::connect::{connect, parse};
use crate::failure::{Failure, Status};

pub(crate) fn run(args: &TopArgs) -> Result<Status, Failure> {
    if !io::stdout().is_terminal() {
        let failure =
            Failure::new(Status::Usage, "a cluster is watched on a terminal, and stdout is not one");
        return Err(failure.hint(
            "`rollhouse status --json`, `rollhouse nodes --json` and `rollhouse sessions --json` print",
        ));
    }
    let cluster = connect(&args.cluster)?;
    let place = args.cluster.url().map(|text| parse(&text)).transpose()?;
    let place = place.map_or_else(|| "of this folder".to_owned(), |address| shown(&address.to_string()));
    let look = Look::of(|name| std::env::var(name).ok());
    let watched = watch_cluster(Coordinator { cluster }, &place, look);
    watched.map_err(|error| {
        Failure::new(Status::Failed, format_args!("the terminal cannot be used: {error}"))
    })?;
    Ok(Status::Done)
}

/// Returns an address without the parameters after it.
fn shown(address: &str) -> String {
    address.split('?').next().unwrap_or_default().to_owned()
}

/// The coordinator behind a connection.
struct Coordinator {
    cluster: Cluster,
}

impl Asker for Coordinator {
    fn look(&mut self, at: Duration) -> Result<Sample, String> {
        let status = self.cluster.status().map_err(|error| said(&error))?;
        let nodes = self.cluster.nodes().map_err(|error| said(&error))?;
        let sessions = self.cluster.sessions().map_err(|error| said(&error))?;
        let (nodes, sessions) = ((nodes.nodes, nodes.omitted), (sessions.sessions, sessions.omitted));
        Ok(Sample { at, status, nodes, sessions })
    }

    fn drain(&mut self, node: &str, drains: bool) -> Result<(), String> {
        let done = if drains { self.cluster.drain(node) } else { self.cluster.undrain(node) };
        done.map_err(|error| said(&error))
    }
}

/// Writes an error with its causes, as a command would print it.
fn said(error: &RequestError) -> String {
    Failure::of(Status::Failed, error).message().to_owned()
}
