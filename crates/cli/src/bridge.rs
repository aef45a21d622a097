//! `rollhouse bridge`: runs a node beside a simulator, whose worlds are lanes of the cluster then.

use crate::args::BridgeWhat;
use crate::failure::{Failure, Status};
use crate::node;

pub(crate) fn run(what: &BridgeWhat) -> Result<Status, Failure> {
    match what {
        BridgeWhat::Openra(args) => {
            node::run_with(&args.node, &[("--engine", "openra.engines", &Some(args.engine.clone()))])
        }
    }
}
