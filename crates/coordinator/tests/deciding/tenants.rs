//! What one owner asks for costs no other owner a pool, a place or an answer.

use rollhouse_coordinator::limits::{ENDED_POOL_WEIGHT, MAX_CLOSED_UNSEEN, MAX_ENDED_WEIGHT};
use rollhouse_coordinator::{Asker, Event, Reply};
use rollhouse_core::{RunId, SharedBound};
use rollhouse_wire::{
    Grant, Incarnation, OpenPool, PoolStatus, Refusal, RefusalCode, ReplaceSession, Spread, StoreStatus,
    pool_id_of,
};

use crate::deciding::stage::{POOL, Stage, asked, asker, open_pool};

fn pool(number: u128) -> RunId {
    RunId::from_u128(number << 64)
}

fn named(pool: RunId, lanes: u32) -> OpenPool {
    OpenPool { pool, ..open_pool(lanes) }
}

impl Stage {
    fn open_as(&mut self, asker: Asker, request: OpenPool) -> Result<Vec<Grant>, Refusal> {
        let ticket = self.ticket();
        match self.tell(Event::OpenPool { ticket, asker, request: Box::new(request) }) {
            Some(Reply::PoolOpened(opened)) => Ok(opened.sessions),
            Some(Reply::Refused(refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    fn close_as(&mut self, owner: &str, pool: RunId) -> Result<PoolStatus, Refusal> {
        let ticket = self.ticket();
        match self.tell(Event::ClosePool { ticket, asker: asker(owner), pool }) {
            Some(Reply::PoolClosed(status)) => Ok(*status),
            Some(Reply::Refused(refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    fn pools(&self) -> u32 {
        let store = StoreStatus::default();
        self.cluster.status(self.now, "test", store).pools
    }
}

fn grant(index: u32, lanes: u32) -> Grant {
    Grant {
        index,
        incarnation: Incarnation { term: 1, counter: 1 },
        secret: rollhouse_wire::Secret::from_bytes([1; 16]),
        node: "a".to_owned(),
        address: "a:1".to_owned(),
        attach: None,
        first_lane: 0,
        lanes,
    }
}

/// Requests for places of pools that nobody knows left a pool behind each, whatever they were refused for: a token with
/// a quota of one lane had the coordinator full of them in seconds, and every other trainer refused until it was started
/// anew. A pool was put into the table before the request was judged; it is put there when one of its sessions has a
/// node.
#[test]
fn places_that_are_refused_leave_no_pool_behind() {
    let mut stage = Stage::new(1, &["a"]);
    let poor = Asker { max_lanes: Some(1), ..asker("eve") };
    for number in 0..SharedBound::POOLS.limit as u128 + 64 {
        let of = |lanes| ReplaceSession { open: named(pool(number), 128), ..asked(&grant(0, lanes), 128) };
        // Above the quota, outside of the pool, and more than any node has room for.
        let (replace, asker) = match number % 3 {
            0 => (of(2), poor.clone()),
            1 => (ReplaceSession { first_lane: 128, ..of(1) }, poor.clone()),
            _ => (of(128), asker("eve")),
        };
        let ticket = stage.ticket();
        let event = Event::ReplaceSession { ticket, asker, request: Box::new(replace) };
        let reply = stage.tell(event);
        assert!(matches!(reply, Some(Reply::Refused(_))), "{reply:?}");
    }
    assert_eq!(stage.pools(), 0);
    assert_eq!(stage.open_pool(4).iter().map(|grant| grant.lanes).sum::<u32>(), 4);
}

#[test]
fn a_refused_place_does_not_settle_how_a_pool_was_opened() {
    let mut stage = Stage::new(2, &["a"]);
    stage.full = vec!["a"];
    let wrong = ReplaceSession { open: open_pool(9), ..asked(&grant(0, 9), 9) };
    assert_eq!(stage.replace_as("ada", wrong).unwrap_err().code, RefusalCode::Busy);
    stage.full.clear();
    let right = ReplaceSession { open: open_pool(4), ..asked(&grant(0, 4), 4) };
    assert!(stage.replace_as("eve", right.clone()).is_ok(), "{POOL} is nobody's yet");
    assert_eq!(stage.replace_as("ada", right).unwrap_err().code, RefusalCode::Forbidden);
}

/// One owner could open as many pools as the coordinator takes.
#[test]
fn an_owner_with_as_many_pools_as_one_may_have_is_refused_and_others_are_not() {
    let mut stage = Stage::new(1, &["a"]);
    stage.join_with("big", u32::try_from(SharedBound::POOLS.limit).unwrap());
    for number in 0..SharedBound::POOLS.most as u128 {
        stage.open_as(asker("eve"), named(pool(number), 1)).unwrap();
    }
    let refusal = stage.open_as(asker("eve"), named(pool(u128::MAX), 1)).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Busy);
    assert!(refusal.message.contains(&format!("`eve` has {} pools", SharedBound::POOLS.most)), "{refusal}");
    let unheard = ReplaceSession { open: named(pool(u128::MAX), 1), ..asked(&grant(0, 1), 1) };
    assert_eq!(stage.replace_as("eve", unheard).unwrap_err().code, RefusalCode::Busy);
    assert!(stage.open_as(asker("ada"), open_pool(1)).is_ok());
    stage.close_as("eve", pool(0)).unwrap();
    assert!(stage.open_as(asker("eve"), named(pool(u128::MAX), 1)).is_ok());
}

/// The oldest ended pools were forgotten first, whoever's they were: an owner that opened and closed pools without a
/// pause had others told that theirs are not known, while they waited for their recordings to be stored.
#[test]
fn an_owner_that_opens_and_closes_pools_has_only_its_own_forgotten() {
    let mut stage = Stage::new(1, &["a"]);
    stage.open_pool(1);
    stage.close_as("ada", POOL).unwrap();
    let many = (MAX_ENDED_WEIGHT / ENDED_POOL_WEIGHT) as u128;
    for number in 0..many {
        stage.open_as(asker("eve"), named(pool(number), 1)).unwrap();
        stage.close_as("eve", pool(number)).unwrap();
    }
    assert!(stage.cluster.pool_status(stage.now, POOL).is_ok());
    assert!(stage.cluster.pool_status(stage.now, pool(0)).is_err());
    let last = pool(many - 1);
    assert!(stage.cluster.pool_status(stage.now, last).is_ok());
}

/// A pool that is closed before its nodes have told of it is remembered, so that it is not taken in; the oldest were
/// forgotten first, so that anybody could have those of others forgotten by closing pools that never were.
#[test]
fn an_owner_that_closes_pools_nobody_knows_has_only_its_own_forgotten() {
    let mut stage = Stage::new(2, &["a"]);
    assert_eq!(stage.close_as("ada", POOL).unwrap_err().code, RefusalCode::NotFound);
    for number in 0..2 * MAX_CLOSED_UNSEEN as u128 {
        let theirs = pool_id_of("eve", pool(number));
        assert_eq!(stage.close_as("eve", theirs).unwrap_err().code, RefusalCode::NotFound);
    }
    let replace = asked(&grant(0, 4), 4);
    assert_eq!(stage.replace_as("ada", replace).unwrap_err().code, RefusalCode::Stale, "it was closed");
}

/// A trainer that was killed held its quota until its lease had ended, for up to 47 s, and the refusal of its next start
/// was final: it was started again and again. What may have room later is refused as busy, which clients ask again; what
/// can never have any is refused at once, also lanes in one session that no node has.
#[test]
fn lanes_that_a_killed_trainer_still_has_are_waited_for_and_those_that_can_never_be_are_not() {
    let mut stage = Stage::new(1, &["a", "b"]);
    let limited = Asker { max_lanes: Some(64), ..asker("ada") };
    stage.open_as(limited.clone(), named(pool(1), 40)).unwrap();
    let code = |stage: &mut Stage, asker: &Asker, open| stage.open_as(asker.clone(), open).unwrap_err().code;
    assert_eq!(code(&mut stage, &limited, named(pool(2), 40)), RefusalCode::Busy);
    assert_eq!(code(&mut stage, &limited, named(pool(2), 65)), RefusalCode::Quota);
    stage.close_as("ada", pool(1)).unwrap();
    assert!(stage.open_as(limited, named(pool(2), 40)).is_ok());
    let single = |pool, lanes| OpenPool { spread: Spread::Single, ..named(pool, lanes) };
    // Each node has 64 lanes, and 20 of them are in use.
    assert_eq!(code(&mut stage, &asker("bob"), single(pool(3), 65)), RefusalCode::BadRequest);
    assert_eq!(code(&mut stage, &asker("bob"), single(pool(3), 64)), RefusalCode::Busy);
    assert!(stage.open_as(asker("bob"), single(pool(3), 44)).is_ok());
}
