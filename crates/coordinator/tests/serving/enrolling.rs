//! Certificates are given to machines that join and to nodes that renew, and to nobody else.

use std::time::{Duration, SystemTime};

use rollhouse_wire::limits::MAX_CERTIFICATE_REQUEST_BYTES;
use rollhouse_wire::{Enroll, Enrolled, JoinTerms, KeyRequest, NodeIssuer, Refusal, RefusalCode, Role};

use crate::serving::on_a_runtime;
use crate::serving::stage::{Peer, Stage};

async fn enroll(peer: &Peer, node: &str, request: &KeyRequest) -> Result<Enrolled, Refusal> {
    let request = request.request().to_vec();
    peer.ask(Enroll { node: node.to_owned(), request }).await
}

fn key() -> KeyRequest {
    KeyRequest::make().unwrap()
}

#[test]
fn a_join_token_is_given_certificates_for_as_many_machines_as_it_says_and_each_machine_again() {
    let stage = Stage::new();
    stage.issuer();
    let coordinator = stage.coordinator();
    on_a_runtime(async {
        let at = coordinator.address();
        let (_, token) = stage.join_token(JoinTerms::new(2));
        let joining = stage.connect(at, &token).await;
        let (a, b) = (key(), key());
        let given = enroll(&joining, "a", &a).await.unwrap();
        assert!(!given.certificate.contains("PRIVATE") && !given.authorities.contains("PRIVATE"));
        for _ in 0..3 {
            enroll(&joining, "a", &a).await.unwrap();
        }
        enroll(&joining, "b", &b).await.unwrap();
        let refused = enroll(&joining, "c", &key()).await.unwrap_err();
        assert_eq!(refused.code, RefusalCode::Quota, "{refused}");
        assert!(refused.message.contains("2 nodes"), "{refused}");
        let other = enroll(&joining, "a", &key()).await.unwrap_err();
        assert_eq!(other.code, RefusalCode::Busy, "a name that was just given, with another key: {other}");
        assert_eq!(stage.tokens.list()[0].join.as_ref().unwrap().used, 2);
    });
    let figures = loop {
        match coordinator.figures() {
            Some(figures) => break figures,
            None => std::thread::yield_now(),
        }
    };
    let asked = figures.enrolments.iter().map(|(&(what, result), &count)| (what.word(), result, count));
    let wanted = [("join", "busy", 1), ("join", "given", 5), ("join", "quota", 1), ("renewal", "given", 0)];
    assert_eq!(asked.collect::<Vec<_>>(), wanted);
    assert_eq!(figures.refusals[&("quota", Role::Join)], 1);
}

#[test]
fn a_name_in_use_by_a_living_node_is_not_given_and_costs_no_use() {
    let stage = Stage::new();
    stage.issuer();
    let coordinator = stage.coordinator();
    on_a_runtime(async {
        let at = coordinator.address();
        let node = stage.node(at, "node-a").await;
        node.register(64).await.unwrap();
        let (_, token) = stage.join_token(JoinTerms::new(1));
        let joining = stage.connect(at, &token).await;
        let refused = enroll(&joining, "node-a", &key()).await.unwrap_err();
        assert_eq!(refused.code, RefusalCode::Busy);
        assert!(refused.message.contains("names are unique"), "{refused}");
        enroll(&joining, "node-b", &key()).await.unwrap();
    });
}

#[test]
fn a_node_renews_its_own_certificate_and_no_other_and_other_roles_none() {
    let stage = Stage::new();
    stage.issuer();
    let coordinator = stage.coordinator();
    on_a_runtime(async {
        let at = coordinator.address();
        let node = stage.node(at, "node-a").await;
        enroll(node.peer(), "node-a", &key()).await.unwrap();
        let refused = enroll(node.peer(), "node-b", &key()).await.unwrap_err();
        assert_eq!(refused.code, RefusalCode::Forbidden, "{refused}");
        for role in [Role::Viewer, Role::Trainer, Role::Admin] {
            let holder = stage.holder(at, role).await;
            assert_eq!(enroll(&holder, "n", &key()).await.unwrap_err().code, RefusalCode::Forbidden);
        }
    });
}

#[test]
fn requests_that_are_none_names_beyond_the_terms_and_revoked_tokens_are_refused_and_cost_no_use() {
    let stage = Stage::new();
    stage.issuer();
    let coordinator = stage.coordinator();
    on_a_runtime(async {
        let at = coordinator.address();
        let terms = JoinTerms { name_prefix: Some("gpu-".into()), ..JoinTerms::new(1) };
        let (id, token) = stage.join_token(terms);
        let joining = stage.connect(at, &token).await;
        for request in [Vec::new(), vec![0; MAX_CERTIFICATE_REQUEST_BYTES + 1], vec![0x30; 300]] {
            let asked = Enroll { node: "gpu-1".to_owned(), request };
            assert_eq!(joining.ask(asked).await.unwrap_err().code, RefusalCode::BadRequest);
        }
        for name in ["cpu-1", "gpu 1", ""] {
            let refused = enroll(&joining, name, &key()).await.unwrap_err();
            assert_eq!(refused.code, RefusalCode::Forbidden, "{refused}");
        }
        enroll(&joining, "gpu-1", &key()).await.unwrap();
        stage.tokens.revoke(&id, SystemTime::now()).unwrap();
        let closed = joining.connection.closed().await.to_string();
        assert!(closed.contains("the token was revoked"), "{closed}");
    });
}

#[test]
fn without_an_issuer_nobody_is_let_in_and_an_issuer_is_taken_without_a_restart() {
    let stage = Stage::new();
    let coordinator = stage.coordinator();
    on_a_runtime(async {
        let (_, token) = stage.join_token(JoinTerms::new(1));
        let joining = stage.connect(coordinator.address(), &token).await;
        let refused = enroll(&joining, "a", &key()).await.unwrap_err();
        assert_eq!(refused.code, RefusalCode::Unsupported);
        assert!(refused.message.contains("rollhouse certs issuer"), "{refused}");
        let foreign = Stage::new();
        NodeIssuer::create(foreign.authority(), HOUR, &stage.path().join("issuer.pem")).unwrap();
        let refused = enroll(&joining, "a", &key()).await.unwrap_err();
        assert_eq!(
            refused.code,
            RefusalCode::Internal,
            "an issuer that the coordinator does not believe: {refused}"
        );
        stage.issuer();
        enroll(&joining, "a", &key()).await.unwrap();
    });
}

const HOUR: Duration = Duration::from_secs(3600);
