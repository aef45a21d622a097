//! `rollhouse bridge`: runs a node beside a simulator, whose worlds are lanes of the cluster then.

use crate::args::BridgeWhat;
use crate::failure::{Failure, Status};
use crate::node;

pub(crate) fn run(what: &BridgeWhat) -> Result<Status, Failure> {
    match what {
        BridgeWhat::Openra(args) => {
            let engine = Some(args.engine.clone());
            let flags =
                [("--engine", "openra.engines", &engine), ("--launch", "openra.launch", &args.launch)];
            node::run_with(&args.node, &flags)
        }
    }
}
