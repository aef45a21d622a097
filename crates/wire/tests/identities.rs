//! Every identity a stranger can show, good and bad, and what he is told.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests outside of test functions")]

use crate::common;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use common::{Cluster, DAY, SOON, address, connected, dialer, raw, run, turned_away};
use rollhouse_wire::{
    Answer, Arrival, CallError, Connection, DialError, Drain, Expected, Identity, IdentityError, ListAfter,
    Listener, NewToken, NodeList, Refusal, RefusalCode, Request, Role, Settings, StatusRequest, Trust,
    TurnedAway, Versions, Welcome, control,
};

/// Dials while the other side accepts: both must come to an end.
async fn meet(
    listener: &mut Listener,
    identity: Arc<Identity>,
    expected: &Expected,
    token: Option<&str>,
) -> (Result<Connection, DialError>, Option<Arrival>) {
    let dialer = dialer(identity);
    let to = address(listener);
    tokio::join!(dialer.dial(&to, expected, token), listener.accept())
}

/// What a stranger shows.
enum ShownCredential {
    Certificate(Arc<Identity>),
    Made(raw::Certificate),
    Token(String),
    Nothing,
}

/// Shows a certificate that no program of ours would, and says what came of it on both sides.
async fn show(listener: &mut Listener, certificate: raw::Certificate) -> (Refusal, TurnedAway) {
    let to = listener.effective().address;
    let shown = async {
        let raw = raw::Raw::connect(to, Some(certificate)).await;
        control::decode::<Answer<Welcome>>(&raw.hello(Versions::OURS).await).unwrap()
    };
    let (answer, away) = tokio::join!(shown, turned_away(listener));
    (answer.into_result().unwrap_err(), away)
}

/// Whom he is taken for, or with which code and words he is refused.
type Outcome = Result<Role, (RefusalCode, &'static str)>;

fn refused(code: RefusalCode, part: &'static str) -> Outcome {
    Err((code, part))
}

#[test]
fn every_bad_identity_is_refused_with_a_typed_error_and_counted() {
    let (cluster, foreign) = (Cluster::new(), Cluster::new());
    let tokens = cluster.tokens();
    let now = SystemTime::now();
    let new = |role, lifetime| NewToken {
        name: "ada".into(),
        role,
        max_lanes: Some(8),
        reads: None,
        lifetime,
        join: None,
    };
    let (_, good) = tokens.create(&new(Role::Trainer, None), now).unwrap();
    let (_, expired) = tokens.create(&new(Role::Trainer, Some(DAY)), now - 2 * DAY).unwrap();
    let (record, revoked) = tokens.create(&new(Role::Admin, None), now).unwrap();
    tokens.revoke(&record.id, now).unwrap();
    let wrong = format!("{}{}", &good[..good.len() - 1], if good.ends_with('0') { '1' } else { '0' });
    // One of another cluster, whose holder trusts ours for dialling.
    let both = cluster.path().join("both.pem");
    let pem = format!("{}{}", cluster.authority.certificate_pem(), foreign.authority.certificate_pem());
    std::fs::write(&both, pem).unwrap();
    let stranger = Identity::load(Trust::File(both), Some(foreign.files(Role::Admin, "mallory"))).unwrap();

    let made = |uri, from: i32, to: i32| {
        let at = |hours: i32| now + raw::HOUR * (hours + 24) as u32 - DAY;
        ShownCredential::Made(raw::certificate(&cluster, uri, at(from), at(to)))
    };
    const NODE: &str = "urn:rollhouse:node:n1";

    use RefusalCode::{Forbidden, Unauthenticated};
    let rows: Vec<(&str, ShownCredential, Outcome)> = vec![
        ("a good token", ShownCredential::Token(good.clone()), Ok(Role::Trainer)),
        (
            "a node's certificate",
            ShownCredential::Certificate(cluster.identity(Role::Node, "n1")),
            Ok(Role::Node),
        ),
        (
            "an admin's certificate",
            ShownCredential::Certificate(cluster.identity(Role::Admin, "eve")),
            Ok(Role::Admin),
        ),
        ("nothing", ShownCredential::Nothing, refused(Unauthenticated, "neither a certificate nor a token")),
        ("a wrong secret", ShownCredential::Token(wrong), refused(Unauthenticated, "the token is not valid")),
        (
            "no token at all",
            ShownCredential::Token("hunter2".into()),
            refused(Unauthenticated, "the token is not valid"),
        ),
        (
            "an endless token",
            ShownCredential::Token("rh_".repeat(1_000)),
            refused(Unauthenticated, "not valid"),
        ),
        ("an expired token", ShownCredential::Token(expired), refused(Unauthenticated, "the token expired")),
        (
            "a revoked token",
            ShownCredential::Token(revoked),
            refused(Unauthenticated, "the token was revoked"),
        ),
        (
            "a foreign certificate",
            ShownCredential::Certificate(stranger),
            refused(Unauthenticated, "not issued by this"),
        ),
        (
            "another coordinator",
            ShownCredential::Certificate(cluster.identity(Role::Coordinator, "c2")),
            refused(Forbidden, "does not join another"),
        ),
        ("an expired certificate", made(NODE, -2, -1), refused(Unauthenticated, "the certificate expired")),
        ("one of tomorrow", made(NODE, 1, 2), refused(Unauthenticated, "becomes valid in")),
        ("one without a role", made("urn:other:node:n1", -1, 1), refused(Unauthenticated, "one role")),
        (
            "one of an unknown role",
            made("urn:rollhouse:king:n1", -1, 1),
            refused(Unauthenticated, "one role"),
        ),
        ("one with a bad name", made("urn:rollhouse:node:a:b", -1, 1), refused(Unauthenticated, "one role")),
    ];
    run(async {
        let mut listener = cluster.coordinator(Settings::default());
        let mut turned_away = 0;
        for (name, shown, expected) in rows {
            let (identity, token) = match shown {
                ShownCredential::Certificate(identity) => (identity, None),
                ShownCredential::Token(token) => (cluster.nobody(), Some(token)),
                ShownCredential::Nothing => (cluster.nobody(), None),
                ShownCredential::Made(certificate) => {
                    let (told, away) = show(&mut listener, certificate).await;
                    let (code, part) = expected.unwrap_err();
                    assert_eq!(told.code, code, "{name}");
                    assert!(told.message.contains(part) && away.to_string().contains(part), "{name}: {told}");
                    turned_away += 1;
                    continue;
                }
            };
            let (dialled, arrival) =
                meet(&mut listener, identity, &Expected::COORDINATOR, token.as_deref()).await;
            match (expected, dialled, arrival.unwrap()) {
                (Ok(role), Ok(ours), Arrival::Connected(theirs)) => {
                    assert_eq!(theirs.peer().role, role, "{name}");
                    assert_eq!(ours.peer().role, Role::Coordinator, "{name}");
                }
                (Err((code, part)), Err(DialError::Refused(told)), Arrival::TurnedAway(away)) => {
                    assert_eq!(told.code, code, "{name}");
                    assert!(told.message.contains(part), "{name}: {told}");
                    assert_eq!(away.reason.word(), code.word(), "{name}");
                    assert!(away.to_string().contains(part), "{name}: {away}");
                    turned_away += 1;
                }
                (_, dialled, arrival) => panic!("{name}: {dialled:?}, {arrival:?}"),
            }
        }
        let counted: u64 = listener.counts().turned_away.values().sum();
        assert_eq!(counted, turned_away);
    });
}

#[test]
fn a_dialler_believes_only_whom_it_wants() {
    let (cluster, foreign) = (Cluster::new(), Cluster::new());
    let pinned = |fingerprint| Identity::load(Trust::Fingerprint(fingerprint), None).unwrap();
    type Check = fn(&IdentityError) -> bool;
    let rows: Vec<(&str, Arc<Identity>, Expected, Option<Check>)> = vec![
        ("by the authority", cluster.nobody(), Expected::node("n1"), None),
        ("by the fingerprint", pinned(cluster.authority.fingerprint()), Expected::node("n1"), None),
        (
            "wrong authority",
            foreign.nobody(),
            Expected::node("n1"),
            Some(|e| matches!(e, IdentityError::Foreign(_))),
        ),
        (
            "wrong fingerprint",
            pinned(foreign.authority.fingerprint()),
            Expected::node("n1"),
            Some(|e| matches!(e, IdentityError::Foreign(_))),
        ),
        (
            "wrong role",
            cluster.nobody(),
            Expected::COORDINATOR,
            Some(|e| matches!(e, IdentityError::WrongRole { .. })),
        ),
        (
            "wrong name",
            cluster.nobody(),
            Expected::node("n2"),
            Some(|e| matches!(e, IdentityError::WrongName { .. })),
        ),
    ];
    run(async {
        let mut listener = cluster.node("n1", Settings::default());
        for (name, identity, expected, check) in rows {
            let (dialled, arrival) = meet(&mut listener, identity, &expected, None).await;
            match (check, dialled, arrival.unwrap()) {
                (None, Ok(ours), Arrival::Connected(theirs)) => {
                    assert_eq!(ours.peer().name, "n1", "{name}");
                    assert_eq!(theirs.peer().role, Role::Anonymous, "{name}");
                }
                (Some(check), Err(DialError::Identity { source, .. }), Arrival::TurnedAway(_)) => {
                    assert!(check(&source), "{name}: {source}");
                }
                (_, dialled, arrival) => panic!("{name}: {dialled:?}, {arrival:?}"),
            }
        }
    });
}

#[test]
fn roles_are_enforced_per_message() {
    let cluster = Cluster::new();
    run(async {
        let mut listener = cluster.coordinator(Settings::default());
        let viewer = cluster.identity(Role::Viewer, "watcher");
        let (ours, theirs) = meet(&mut listener, viewer, &Expected::COORDINATOR, None).await;
        let (ours, Some(Arrival::Connected(theirs))) = (ours.unwrap(), theirs) else { panic!("no peer") };
        let mut requests = theirs.requests();
        let drain = Drain { node: "n1".into() };
        let served = async {
            let (request, responder) = requests.next().await.unwrap();
            assert_eq!(request, Request::Nodes(ListAfter::default()), "what is forbidden never gets here");
            responder.respond(Ok(NodeList { nodes: Vec::new(), omitted: 0 })).await.unwrap();
            // Drives what is still being answered until the peer goes.
            requests.next().await.unwrap_err()
        };
        let asked = async {
            let refused = ours.call(drain, SOON).await.unwrap_err();
            assert_eq!(refused.refusal(), Some(RefusalCode::Forbidden), "{refused}");
            ours.call(ListAfter::<String>::default(), SOON).await.unwrap();
            ours.close(rollhouse_wire::CloseCode::Finished, "");
        };
        tokio::join!(served, asked);
    });
}

#[test]
fn certificates_and_authorities_change_without_a_restart() {
    let (old, new) = (Cluster::new(), Cluster::new());
    run(async {
        let mut listener = old.node("n1", Settings::default());
        // The new authority takes over the folder's name: first both are believed, then the certificate changes.
        let both = format!("{}{}", old.authority.certificate_pem(), new.authority.certificate_pem());
        std::fs::write(old.path().join("ca.pem"), &both).unwrap();
        let issued = new.authority.issue(Role::Node, "n1", DAY).unwrap();
        issued.write(&old.path().join("n1.pem"), &old.path().join("n1.key")).unwrap();
        // Files are looked at once a second at most: dialled until the new certificate is shown.
        let started = std::time::Instant::now();
        loop {
            let (dialled, _) = meet(&mut listener, new.nobody(), &Expected::node("n1"), None).await;
            match dialled {
                Ok(_) => break,
                Err(DialError::Identity { source: IdentityError::Foreign(_), .. }) => {}
                Err(other) => panic!("{other:?}"),
            }
            assert!(started.elapsed() < Duration::from_secs(60), "the old certificate is still shown");
        }
        let (dialled, _) = meet(&mut listener, old.nobody(), &Expected::node("n1"), None).await;
        assert!(dialled.is_ok(), "who believes both goes on: {dialled:?}");
    });
}

/// Symptom: a connection outlived its peer's certificate and the authority that had signed it. Cause: a certificate was
/// checked once and then forgotten. Fix: the connection keeps it, and whoever serves the peer looks again.
#[test]
fn a_peers_certificate_is_judged_anew_while_its_connection_lives_on_both_sides() {
    let (old, new) = (Cluster::new(), Cluster::new());
    run(async {
        let mut listener = old.coordinator(Settings::default());
        let (dialled, arrival) =
            meet(&mut listener, old.identity(Role::Trainer, "ada"), &Expected::COORDINATOR, None).await;
        let (Ok(ours), Some(Arrival::Connected(theirs))) = (dialled, arrival) else {
            panic!("not connected")
        };
        let (ours, theirs) = (ours.certificate().unwrap(), theirs.certificate().unwrap());
        let now = SystemTime::now();
        for (shown, name) in [(theirs, "ada"), (ours, "coordinator")] {
            // Twice: what is remembered is right as well.
            for _ in 0..2 {
                assert_eq!(shown.certify(now).unwrap().name, name);
                let later = shown.certify(now + 2 * DAY);
                assert!(matches!(later, Err(IdentityError::Expired { .. })), "{later:?}");
            }
        }
        // The authority is replaced, and with it what the coordinator shows.
        std::fs::write(old.path().join("ca.pem"), new.authority.certificate_pem()).unwrap();
        let issued = new.authority.issue(Role::Coordinator, "coordinator", DAY).unwrap();
        issued.write(&old.path().join("coordinator.pem"), &old.path().join("coordinator.key")).unwrap();
        let started = std::time::Instant::now();
        while theirs.certify(SystemTime::now()).is_ok() {
            assert!(started.elapsed() < Duration::from_secs(60), "the old authority is still believed");
            std::thread::yield_now();
        }
        let judged = theirs.certify(SystemTime::now());
        assert!(matches!(judged, Err(IdentityError::Foreign(_))), "{judged:?}");
    });
}

#[test]
fn an_identity_whose_files_are_spoilt_stays_in_force_and_says_so() {
    let cluster = Cluster::new();
    let identity = cluster.identity(Role::Node, "n1");
    std::fs::write(cluster.path().join("n1.key"), "no key").unwrap();
    let started = std::time::Instant::now();
    while identity.trouble().is_none() {
        assert!(started.elapsed() < Duration::from_secs(60), "the spoilt file is not noticed");
        std::thread::yield_now();
    }
    assert_eq!(identity.certified().unwrap().name, "n1");
    assert!(
        Identity::load(
            cluster.trust(),
            Some(rollhouse_wire::CertificateFiles {
                certificate: cluster.path().join("n1.pem"),
                key: cluster.path().join("n1.key"),
            })
        )
        .is_err()
    );
}

#[test]
fn an_authority_is_loaded_again_and_never_overwritten() {
    let cluster = Cluster::new();
    let again = rollhouse_wire::CertificateAuthority::load(cluster.path()).unwrap();
    assert_eq!(again.fingerprint(), cluster.authority.fingerprint());
    assert_eq!(again.fingerprint().to_string().parse(), Ok(again.fingerprint()));
    assert!(rollhouse_wire::CertificateAuthority::create(cluster.path(), DAY).is_err());
    let issued = again.issue(Role::Trainer, "ada", DAY).unwrap();
    let (certificate, key) = (cluster.path().join("ada.pem"), cluster.path().join("ada.key"));
    issued.write(&certificate, &key).unwrap();
    let files = rollhouse_wire::CertificateFiles { certificate, key };
    let identity = Identity::load(cluster.trust(), Some(files)).unwrap();
    assert_eq!(identity.certified().unwrap().to_string(), "trainer `ada`");
    for name in ["", "a b", "a:b", "ü", &"x".repeat(200)] {
        assert!(again.issue(Role::Trainer, name, DAY).is_err(), "{name}");
    }
    assert!(again.issue(Role::Anonymous, "ada", DAY).is_err());
}

#[test]
fn a_call_that_nobody_answers_ends_at_its_deadline() {
    let cluster = Cluster::new();
    run(async {
        let mut listener = cluster.node("n1", Settings::default());
        let dialer = dialer(cluster.nobody());
        let (to, expected) = (address(&listener), Expected::node("n1"));
        let (ours, _theirs) = tokio::join!(dialer.dial(&to, &expected, None), connected(&mut listener));
        let asked = ours.unwrap().call(StatusRequest {}, Duration::from_millis(1)).await;
        assert!(matches!(asked, Err(CallError::TimedOut { request: "status", .. })), "{asked:?}");
    });
}
