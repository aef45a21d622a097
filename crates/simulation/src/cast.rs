//! Names, places and numbers of the processes of a simulated cluster, which several of them know.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rollhouse_core::{Budget, EnvTerms, Weight};
use rollhouse_wire::Grant;

use crate::network::Site;

/// Number of nodes.
pub(crate) const NODES: usize = 3;
/// Most lanes of each node.
pub(crate) const CAPACITY: u32 = 12;
/// The env that trainers step: short episodes of plain numbers.
pub(crate) const ENV: &str = "CartPole-v1";
/// The same env with lanes that finish when they finish: it is stepped some lanes at a time.
pub(crate) const LATE_ENV: &str = "CartPole-late-v1";
/// Time for a node to open a session, as in the coordinator's actor.
pub(crate) const OPEN_DEADLINE: Duration = Duration::from_secs(30);
/// Time for which episodes that ended are kept to have them played again elsewhere, as in the client library.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(10);
/// The folder of the coordinator's data on its disk.
pub(crate) const DATA: &str = "/coordinator";

/// Returns the budget of a node: cores that are others on each, so that lanes are heavy, and memory for its lanes alone.
pub(crate) fn budget(node: usize) -> Budget {
    let terms = EnvTerms { cpu_milli: Some(100), memory: Some(1), ..EnvTerms::default() };
    let total = Weight { cpu_milli: 400 * (node as u64 + 1), memory: CAPACITY.into() };
    let envs = [ENV, LATE_ENV].map(|env| (env.to_owned(), terms.clone()));
    Budget { total, stated: false, envs: envs.into() }
}

/// Returns the name of a node.
pub(crate) fn name(node: usize) -> String {
    format!("node-{node}")
}

/// Returns the index of the node of that name.
pub(crate) fn index(name: &str) -> usize {
    name.strip_prefix("node-").and_then(|index| index.parse().ok()).expect("a node's name")
}

/// Returns the folder of its spool on its disk.
pub(crate) fn spool_dir() -> PathBuf {
    Path::new("/spool").to_path_buf()
}

/// Returns the folder of the coordinator's store on its disk.
pub(crate) fn store_dir() -> PathBuf {
    Path::new(DATA).join("store")
}

/// Returns a number for a place, another one for each.
pub(crate) const fn site_number(site: Site) -> u64 {
    match site {
        Site::Coordinator => 0,
        Site::Node(index) => 1 + index as u64,
        Site::Trainer(index) => 1000 + index as u64,
    }
}

/// Returns the lanes of a session in its pool.
pub(crate) fn lanes_of(grant: &Grant) -> Range<u32> {
    grant.first_lane..grant.first_lane + grant.lanes
}
