//! What a node says of sessions that this coordinator did not place: claims, which take nothing from anybody.

use rollhouse_coordinator::limits::MAX_NODE_CLAIMS;
use rollhouse_coordinator::{Action, Asker, Event, LinkId, Reply};
use rollhouse_core::{RunId, SharedBound};
use rollhouse_wire::{
    Changes, EndCause, Heartbeat, Incarnation, OpenPool, SessionCounts, SessionEnd, SessionId, SessionReport,
    StoreStatus, pool_id_of,
};

use crate::deciding::stage::{POOL, Stage, asked, asker, heartbeat, open_pool, spec};

/// A pool of an owner, whose id is as its owner would draw it.
fn pool_of(owner: &str, number: u128) -> RunId {
    pool_id_of(owner, RunId::from_u128(number << 64))
}

/// A session as a node says that an earlier coordinator placed it.
fn claim(owner: &str, pool: RunId, counter: u64, lanes: u32) -> SessionReport {
    SessionReport {
        session: SessionId { pool, index: 0 },
        incarnation: Incarnation { term: 1, counter },
        owner: owner.to_owned(),
        env: spec().id.into(),
        first_lane: 0,
        lanes,
        pool_lanes: lanes,
        replaces: false,
        launching: false,
        attached: Some(true),
        transport: None,
        done: SessionCounts { steps: 10, ..SessionCounts::default() },
        replay: None,
        plays: None,
    }
}

fn end_of(report: &SessionReport, cause: EndCause) -> SessionEnd {
    SessionEnd {
        session: report.session,
        incarnation: report.incarnation,
        cause,
        detail: String::new(),
        done: report.done,
        report: Some(Box::new(report.clone())),
        unreached: false,
    }
}

/// A cluster whose coordinator has been started again, with an honest node and a hostile one.
struct Cast {
    stage: Stage,
    beats: u64,
}

const HONEST: LinkId = LinkId(1);
const EVIL: LinkId = LinkId(2);

impl Cast {
    fn new() -> Self {
        Self { stage: Stage::new(2, &["honest", "evil"]), beats: 0 }
    }

    /// Has a node say that, and returns the sessions that it is to close.
    fn says(
        &mut self,
        link: LinkId,
        sessions: Vec<SessionReport>,
        ended: Vec<SessionEnd>,
    ) -> Vec<Incarnation> {
        self.beats += 1;
        let changes = Changes { since: 0, through: self.beats, sessions, more: false };
        let beat = Box::new(Heartbeat { changes, ended, ..heartbeat(self.beats) });
        let ticket = self.stage.ticket();
        let reply = self.stage.tell(Event::Heartbeat { link, ticket, heartbeat: beat });
        let Some(Reply::HeartbeatTaken(taken)) = reply else { panic!("{reply:?}") };
        taken.close.iter().map(|close| close.incarnation).collect()
    }

    fn lists(&self) -> Vec<(String, Incarnation)> {
        let sessions = self.stage.cluster.sessions().sessions.into_iter();
        sessions.map(|session| (session.node, session.report.incarnation)).collect()
    }

    fn pools(&self) -> u32 {
        self.stage.cluster.status(self.stage.now, "test", StoreStatus::default()).pools
    }

    fn opens(&mut self, asker: Asker, open: OpenPool) -> bool {
        let ticket = self.stage.ticket();
        let reply = self.stage.tell(Event::OpenPool { ticket, asker, request: Box::new(open) });
        matches!(reply, Some(Reply::PoolOpened(_)))
    }

    fn owner_places_again(&mut self, counter: u64, lanes: u32) -> (String, u64) {
        let grant = rollhouse_wire::Grant {
            index: 0,
            incarnation: Incarnation { term: 1, counter },
            secret: rollhouse_wire::Secret::from_bytes([1; 16]),
            node: "honest".to_owned(),
            address: "honest:1".to_owned(),
            attach: None,
            first_lane: 0,
            lanes,
        };
        let mut request = asked(&grant, lanes);
        request.node = "honest".to_owned();
        let placed = self.stage.replace_as("ada", request).unwrap().grant;
        (placed.node, placed.incarnation.term)
    }
}

/// Symptom: with the certificate of one node the live pools of other owners were ended after a coordinator's start.
/// Cause: a report of the same session, under the same or a newer placement or another owner, took its place, and the
/// node that really had it was told to close it. Fix: what one node claims ends nothing that another node has.
#[test]
fn what_one_node_claims_has_no_other_node_close_anything() {
    let theirs = claim("ada", POOL, 5, 4);
    let forged = [
        claim("eve", POOL, 1, 4),
        claim("ada", POOL, 5, 4),
        claim("ada", POOL, 9, 4),
        claim("ada", POOL, 5, 7),
        SessionReport { first_lane: 2, ..claim("ada", POOL, 9, 2) },
        SessionReport { session: SessionId { pool: POOL, index: 3 }, ..claim("ada", POOL, 9, 4) },
    ];
    for forged in forged {
        for evil_is_first in [true, false] {
            for ended in [None, Some(EndCause::Finished), Some(EndCause::Closed)] {
                let mut cast = Cast::new();
                let (open, ends) = match ended {
                    None => (vec![forged.clone()], Vec::new()),
                    Some(cause) => (Vec::new(), vec![end_of(&forged, cause)]),
                };
                if evil_is_first {
                    cast.says(EVIL, open, ends);
                    assert_eq!(cast.says(HONEST, vec![theirs.clone()], Vec::new()), []);
                } else {
                    assert_eq!(cast.says(HONEST, vec![theirs.clone()], Vec::new()), []);
                    cast.says(EVIL, open, ends);
                }
                assert_eq!(cast.says(HONEST, vec![theirs.clone()], Vec::new()), [], "{forged:?}");
                let closed_there = cast.stage.closed.iter().filter(|(node, _)| *node == "honest").count();
                assert_eq!(closed_there, 0, "{forged:?}");
                // Its owner gets another place when it wants to, whatever was claimed.
                let (_, term) = cast.owner_places_again(5, 4);
                assert_eq!(term, 2, "{forged:?}");
            }
        }
    }
}

/// Symptom: 16,384 made-up pools of one node kept everybody from opening any, and filled owners' quotas. Cause: what a
/// node said of sessions of an earlier coordinator counted as if their owners had asked for them. Fix: it counts
/// against the node, within a bound, until their owners ask.
#[test]
fn made_up_pools_of_a_node_fill_nobodys_quota_and_lock_nobody_out() {
    let mut cast = Cast::new();
    let limited = Asker { max_lanes: Some(4), ..asker("ada") };
    let made_up: Vec<_> = (1..u128::from(SharedBound::POOLS.limit) + 10)
        .map(|number| claim("ada", pool_of("ada", number), 1, 1))
        .collect();
    cast.says(EVIL, made_up, Vec::new());
    assert_eq!(cast.pools() as usize, MAX_NODE_CLAIMS);
    assert!(cast.opens(limited.clone(), open_pool(4)));
    assert!(
        !cast.opens(limited, OpenPool { pool: pool_of("ada", 1 << 40), ..open_pool(1) }),
        "its own count"
    );
    // Another node still has its claims known.
    let theirs = claim("bob", pool_of("bob", 1), 3, 2);
    assert_eq!(cast.says(HONEST, vec![theirs], Vec::new()), []);
    assert!(cast.lists().contains(&("honest".to_owned(), Incarnation { term: 1, counter: 3 })));
}

/// Symptom: after the certificate of such a node had been revoked, its made-up pools stayed for an hour. Cause: its
/// sessions counted as lost ones that may come back. Fix: what it claims is forgotten with its connection.
#[test]
fn a_node_that_is_not_believed_any_more_leaves_none_of_its_claims_behind() {
    let mut cast = Cast::new();
    let theirs = claim("ada", POOL, 5, 4);
    cast.says(HONEST, vec![theirs], Vec::new());
    let made_up = (0..100).map(|number| claim("bob", pool_of("bob", number), 1, 1));
    let over = end_of(&claim("bob", pool_of("bob", 1 << 40), 1, 1), EndCause::Finished);
    cast.says(EVIL, made_up.chain([claim("ada", POOL, 9, 4)]).collect(), vec![over]);
    cast.stage.tell(Event::LinkRefused { link: EVIL });
    assert_eq!(cast.pools(), 0, "that of ada is known again with the next report of its node");
    let theirs = SessionReport { done: SessionCounts::default(), ..claim("ada", POOL, 5, 4) };
    assert_eq!(cast.says(HONEST, vec![theirs], Vec::new()), []);
    assert!(cast.stage.cluster.pool_status(cast.stage.now, pool_of("bob", 1 << 40)).is_err());
}

#[test]
fn an_owner_that_closes_its_pool_has_every_placement_of_it_closed_that_was_claimed() {
    let mut cast = Cast::new();
    cast.says(HONEST, vec![claim("ada", POOL, 5, 4)], Vec::new());
    cast.says(EVIL, vec![claim("ada", POOL, 9, 4)], Vec::new());
    let ticket = cast.stage.ticket();
    cast.stage.tell(Event::ClosePool { ticket, asker: asker("ada"), pool: POOL });
    let mut closed: Vec<_> = cast.stage.closed.iter().map(|(node, _)| *node).collect();
    closed.sort_unstable();
    assert_eq!(closed, ["evil", "honest"]);
}

/// Symptom: a pool of an earlier coordinator counted as stored by the word of a node that had nothing of it, and one that its
/// owner closed was answered as closed when that node said so. Cause: it was enough that those which claimed it had shipped,
/// and that its newest claim had ended. Fix: all nodes of the earlier coordinator have to have said what they have, and a
/// close waits for each of them.
#[test]
fn a_pool_is_neither_stored_nor_closed_by_the_word_of_one_node_while_others_may_have_more_of_it() {
    for closes in [false, true] {
        let mut cast = Cast { stage: Stage::new(1, &["honest", "evil"]), beats: 0 };
        cast.stage.restart();
        cast.stage.join("evil", 1);
        let evil = LinkId(1);
        let forged = claim("ada", POOL, 9, 4);
        cast.says(evil, vec![forged.clone()], Vec::new());
        let answers = |cast: &mut Cast| {
            let ticket = cast.stage.ticket();
            cast.stage.tell(Event::ClosePool { ticket, asker: asker("ada"), pool: POOL })
        };
        if closes {
            assert!(answers(&mut cast).is_none(), "its nodes have not all come back");
        }
        cast.says(evil, Vec::new(), vec![end_of(&forged, EndCause::Finished)]);
        cast.says(evil, Vec::new(), Vec::new());
        let stored = |cast: &Cast| cast.stage.cluster.pool_status(cast.stage.now, POOL).unwrap().shipped;
        assert!(!stored(&cast));
        cast.stage.now = std::time::Duration::from_secs(30);
        cast.stage.tell(Event::Tick);
        cast.says(evil, Vec::new(), Vec::new());
        assert!(!stored(&cast), "the other node is not heard of, and may have recorded it");
        let again = answers(&mut cast);
        let Some(Reply::PoolClosed(status)) = again else { panic!("{again:?}") };
        assert!(!status.shipped);
        // It comes back, and has nothing: what is claimed is all that there is.
        cast.stage.join("honest", 1);
        cast.says(LinkId(2), Vec::new(), Vec::new());
        assert!(stored(&cast));
    }
}

#[test]
fn the_close_of_a_pool_that_two_nodes_claim_is_answered_when_both_have_closed_it() {
    let mut cast = Cast::new();
    cast.stage.tell(Event::Tick);
    cast.says(HONEST, vec![claim("ada", POOL, 5, 4)], Vec::new());
    let forged = claim("ada", POOL, 9, 4);
    cast.says(EVIL, vec![forged.clone()], Vec::new());
    let ticket = cast.stage.ticket();
    let event = Event::ClosePool { ticket, asker: asker("ada"), pool: POOL };
    let asked = cast.stage.cluster.handle(cast.stage.now, event);
    let closes = asked.iter().filter(|action| matches!(action, Action::Close { .. })).count();
    assert_eq!((closes, asked.len()), (2, 2), "{asked:?}");
    cast.says(EVIL, Vec::new(), vec![end_of(&forged, EndCause::Finished)]);
    assert!(cast.stage.answered.is_none(), "the other one has not closed it");
    cast.says(HONEST, Vec::new(), vec![end_of(&claim("ada", POOL, 5, 4), EndCause::Closed)]);
    assert_eq!(cast.stage.answered.take(), Some(ticket));
}
