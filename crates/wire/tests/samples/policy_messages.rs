//! Messages about policies of a cluster.

use rollhouse_core::Goal;
use rollhouse_policy::Sampling;
use rollhouse_wire::{
    Collect, FetchPolicy, ListAfter, OpenPool, PolicyBytes, PolicyFile, PolicyHash, PolicyInfo, PolicyList,
    PolicyPut, PolicyRemoved, PolicyVersion, PutPolicy, RemovePolicy, Request, Spread,
};

use super::values::{POOL, labels, settings};
use super::{Sample, answer, sample};

fn name() -> String {
    "pong".to_owned()
}

fn hash() -> PolicyHash {
    PolicyHash::of(b"weights")
}

fn policy() -> PolicyVersion {
    PolicyVersion { name: name(), version: 3 }
}

pub(crate) fn requests() -> Vec<Sample> {
    let put = PutPolicy { name: name(), version: Some(3), bytes: 7, hash: hash() };
    vec![
        sample("request-put_policy", Request::PutPolicy(put)),
        sample("request-policies", Request::Policies(ListAfter { after: Some(policy()) })),
        sample("request-fetch_policy", Request::FetchPolicy(FetchPolicy { name: name(), version: Some(3) })),
        sample(
            "request-remove_policy",
            Request::RemovePolicy(RemovePolicy { name: name(), version: Some(3) }),
        ),
    ]
}

pub(super) fn others() -> Vec<Sample> {
    let info = PolicyInfo {
        policy: policy(),
        bytes: 7,
        hash: hash(),
        format: "safetensors".to_owned(),
        owner: "ada:1f2e3d4c".to_owned(),
        put_ms: 1_700_000_000_000,
    };
    let mut settings = settings();
    settings.collect = Some(Collect {
        version: Some(3),
        sampling: Some(Sampling { deterministic: true, ..Sampling::default() }),
        file: Some(PolicyFile { version: 3, bytes: 7, hash: hash() }),
        ..Collect::new("pong", 7, Goal::Episodes(1000))
    });
    let open = OpenPool { pool: POOL, lanes: 64, settings, labels: labels(), spread: Spread::Even };
    vec![
        sample("request-open_pool-policy", Request::OpenPool(open)),
        answer("answer-put_policy", PolicyPut { version: 3, known: false }),
        answer("answer-policies", PolicyList { policies: vec![info.clone()], more: true }),
        answer("answer-fetch_policy", PolicyBytes { info }),
        answer("answer-remove_policy", PolicyRemoved { versions: 1, bytes: 7 }),
    ]
}
