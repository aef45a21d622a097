//! The placements of sessions as they really were: who made their lanes, and who stepped them.

use std::collections::{BTreeMap, BTreeSet};

use rollhouse_core::RunId;
use rollhouse_wire::{Incarnation, SessionId};

/// The requests that were carried out for one placement of a session.
#[derive(Debug, Default)]
struct Stepped {
    /// The stream that may step it.
    stream: u64,
    last: u32,
    /// The last request that the owner wrote to it.
    written: u32,
    /// Whether its owner has another place.
    left: bool,
}

/// The placements of all sessions.
#[derive(Debug, Default)]
pub(crate) struct Placements {
    stepped: BTreeMap<(SessionId, Incarnation), Stepped>,
    /// The newest placement that was stepped.
    newest: BTreeMap<SessionId, Incarnation>,
    /// The newest placement whose answers were taken, by pool and lane.
    taken: BTreeMap<(RunId, u32), Incarnation>,
    given: BTreeSet<(SessionId, Incarnation)>,
    /// Placements whose lanes were made.
    made: BTreeSet<(SessionId, Incarnation)>,
    /// Number of requests that were carried out.
    pub(crate) requests: u64,
}

impl Placements {
    /// Notes that the coordinator has drawn a placement.
    pub(crate) fn given(&mut self, session: SessionId, incarnation: Incarnation) {
        assert!(self.given.insert((session, incarnation)), "{session} {incarnation} was given twice");
    }

    /// Notes that a node has made a session's lanes.
    pub(crate) fn made(&mut self, session: SessionId, incarnation: Incarnation) {
        assert!(self.made.insert((session, incarnation)), "{session} {incarnation} is made twice");
    }

    /// Notes that a stream attached to a session.
    pub(crate) fn attached(&mut self, session: SessionId, incarnation: Incarnation, stream: u64) {
        self.stepped.entry((session, incarnation)).or_default().stream = stream;
    }

    /// Notes that a node carried out a request. It must be the next one of its session, from the stream that attached
    /// last, and of no placement that a newer one has followed.
    pub(crate) fn stepped(&mut self, session: SessionId, incarnation: Incarnation, stream: u64, number: u32) {
        self.requests += 1;
        let stepped = self.stepped.entry((session, incarnation)).or_default();
        assert_eq!(stepped.stream, stream, "{session} {incarnation}: two owners step it");
        assert_eq!(
            number,
            stepped.last + 1,
            "{session} {incarnation}: a request is carried out twice or not at all"
        );
        stepped.last = number;
        // What its owner had asked before may still be under way; whoever carries it out, nobody takes the answer.
        let asked_before = stepped.left && number <= stepped.written;
        let newest = self.newest.entry(session).or_insert(incarnation);
        assert!(incarnation >= *newest || asked_before, "{session}: {incarnation} is stepped after {newest}");
        *newest = incarnation.max(*newest);
    }

    /// Notes that a trainer took the answer to the request with that number.
    pub(crate) fn taken(
        &mut self,
        pool: RunId,
        lanes: std::ops::Range<u32>,
        incarnation: Incarnation,
        asked: u32,
        answered: u32,
    ) {
        assert_eq!(asked, answered, "an answer was taken for an answer to request {asked}");
        for lane in lanes {
            let newest = self.taken.entry((pool, lane)).or_insert(incarnation);
            assert!(incarnation >= *newest, "lane {lane}: {incarnation} answers after {newest}");
            *newest = incarnation;
        }
    }

    /// Notes that the owner of a session writes a request to one of its placements.
    pub(crate) fn written(&mut self, session: SessionId, incarnation: Incarnation, number: u32) {
        let stepped = self.stepped.entry((session, incarnation)).or_default();
        assert!(!stepped.left, "{session} {incarnation}: its owner has another place, and steps it");
        stepped.written = number;
    }

    /// Notes that the owner of a session has another place for it.
    pub(crate) fn left(&mut self, session: SessionId, incarnation: Incarnation) {
        self.stepped.entry((session, incarnation)).or_default().left = true;
    }
}
