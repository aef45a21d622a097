//! What the table of sessions lets in, and what it does not.

use std::collections::BTreeSet;

use super::*;
use proptest::prelude::*;
use rollhouse_core::{AutoresetMode, EnvTerms, Goal, RecordRule, SeedSchedule, StepColumns};
use rollhouse_core::{Interruption, RunId, SharedBound};
use rollhouse_wire::{Collect, LaneSettings, ReplayOf, Secret};

const LEASE: Duration = Duration::from_secs(30);
const CAPACITY: u32 = 64;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn open(index: u32, counter: u64, lanes: u32) -> OpenSession {
    OpenSession {
        session: SessionId { pool: RunId::from_u128(1), index },
        incarnation: Incarnation { term: 1, counter },
        secret: Secret::from_bytes([counter as u8; 16]),
        owner: "trainer".to_owned(),
        operates: false,
        first_lane: 0,
        lanes,
        pool_lanes: lanes,
        replaces: false,
        resume: None,
        settings: LaneSettings {
            env: "CartPole-v1".into(),
            env_kwargs: String::new(),
            deterministic: None,
            infos: Default::default(),
            pace: None,
            options: Default::default(),
            autoreset: AutoresetMode::NextStep,
            max_episode_steps: None,
            seeds: SeedSchedule::Continue,
            record: RecordRule::None,
            collect: None,
            replay: None,
            step_columns: StepColumns::default(),
        },
    }
}

fn attach(open: &OpenSession) -> Attach {
    let OpenSession { session, incarnation, secret, .. } = *open;
    Attach { pool: session.pool, index: session.index, incarnation, secret, log: false }
}

fn end(open: &OpenSession) -> SessionEnd {
    let OpenSession { session, incarnation, .. } = *open;
    let (cause, done) = (EndCause::Closed, SessionCounts::default());
    let detail = String::new();
    SessionEnd { session, incarnation, cause, detail, done, report: None, unreached: false }
}

/// Whether it is to be made.
fn made(opened: Result<Option<Cancel>, Refusal>) -> Result<bool, Refusal> {
    opened.map(|token| token.is_some())
}

fn table_with(open: &OpenSession) -> SessionTable<u32> {
    let mut table = SessionTable::new(CAPACITY, LEASE);
    assert_eq!(made(table.open(open)), Ok(true));
    assert!(table.opened(at(0), open.session, open.incarnation, 7));
    table
}

fn code(result: Result<impl std::fmt::Debug, Refusal>) -> RefusalCode {
    result.unwrap_err().code
}

#[test]
fn asking_again_for_an_open_placement_says_that_it_is_open() {
    let asked = open(0, 1, 8);
    let mut table = table_with(&asked);
    assert_eq!(made(table.open(&asked)), Ok(false));
    assert_eq!(table.lanes(), 8);
}

#[test]
fn older_placements_older_terms_and_ended_ones_are_stale() {
    let asked = open(0, 5, 8);
    let mut table = table_with(&asked);
    assert_eq!(code(table.open(&open(0, 4, 8))), RefusalCode::Stale);
    let mut older_term = open(1, 9, 8);
    older_term.incarnation.term = 0;
    assert_eq!(code(table.open(&older_term)), RefusalCode::Stale);
    assert_eq!(table.begin_end(at(0), asked.session, asked.incarnation, EndCause::Closed), Some(7));
    table.ended(at(0), end(&asked));
    assert_eq!(code(table.open(&asked)), RefusalCode::Stale);
    assert_eq!(made(table.open(&open(0, 6, 8))), Ok(true));
}

#[test]
fn a_newer_placement_has_to_wait_for_the_end_of_the_one_that_is_here() {
    let asked = open(0, 1, 8);
    let mut table = table_with(&asked);
    let newer = open(0, 2, 8);
    assert_eq!(table.superseded(&newer), Some(asked.incarnation));
    assert_eq!(code(table.open(&newer)), RefusalCode::Busy);
    table.begin_end(at(0), asked.session, asked.incarnation, EndCause::Closed);
    table.ended(at(0), end(&asked));
    assert_eq!(table.superseded(&newer), None);
    assert_eq!(made(table.open(&newer)), Ok(true));
}

#[test]
fn a_session_closed_while_it_is_made_is_not_kept() {
    let asked = open(0, 1, 8);
    let mut table: SessionTable<u32> = SessionTable::new(CAPACITY, LEASE);
    assert_eq!(made(table.open(&asked)), Ok(true));
    assert_eq!(table.begin_end(at(0), asked.session, asked.incarnation, EndCause::Closed), None);
    assert!(!table.opened(at(0), asked.session, asked.incarnation, 7));
    assert_eq!((table.lanes(), table.len()), (0, 0));
    assert_eq!(code(table.open(&asked)), RefusalCode::Stale);
}

#[test]
fn whatever_ends_a_session_first_raises_its_token_with_the_cause_also_while_it_is_made() {
    for (cause, interruption) in [
        (EndCause::Finished, Interruption::Cancelled),
        (EndCause::Closed, Interruption::Cancelled),
        (EndCause::LeaseEnded, Interruption::Disconnected),
        (EndCause::Drained, Interruption::Evicted),
        (EndCause::Hung, Interruption::Hung),
        (EndCause::Failed, Interruption::Crashed),
    ] {
        for is_made in [false, true] {
            let asked = open(0, 1, 8);
            let mut table: SessionTable<u32> = SessionTable::new(CAPACITY, LEASE);
            let token = table.open(&asked).unwrap().unwrap();
            if is_made {
                assert!(table.opened(at(0), asked.session, asked.incarnation, 7));
            }
            assert!(!token.is_cancelled());
            let ending = table.begin_end(at(0), asked.session, asked.incarnation, cause);
            assert_eq!(ending.is_some(), is_made);
            table.begin_end(at(0), asked.session, asked.incarnation, EndCause::Closed);
            assert_eq!((token.is_cancelled(), token.interruption()), (true, interruption));
        }
    }
}

#[test]
fn only_the_holder_of_the_secret_of_the_current_placement_attaches() {
    let asked = open(0, 3, 8);
    let mut table = table_with(&asked);
    let good = attach(&asked);
    let wrong = Attach { secret: Secret::from_bytes([9; 16]), ..good };
    assert_eq!(code(table.attach(at(0), &wrong, Transport::Quic)), RefusalCode::Unauthenticated);
    let older = Attach { incarnation: Incarnation { term: 1, counter: 2 }, ..good };
    assert_eq!(code(table.attach(at(0), &older, Transport::Quic)), RefusalCode::Stale);
    assert_eq!(
        code(table.attach(at(0), &Attach { index: 5, ..good }, Transport::Quic)),
        RefusalCode::NotFound
    );
    assert_eq!(table.attach(at(0), &good, Transport::Quic).unwrap().session, 7);
}

/// Whoever named a session that had ended, with any secret, was told so and why. The secret goes with the end, and who
/// shows another one is answered as if there had never been such a session.
#[test]
fn that_a_session_has_ended_and_why_is_told_only_to_who_has_its_secret() {
    let asked = open(0, 3, 8);
    let mut table = table_with(&asked);
    table.begin_end(at(0), asked.session, asked.incarnation, EndCause::LeaseEnded);
    table.ended(at(0), SessionEnd { cause: EndCause::LeaseEnded, ..end(&asked) });
    let owner = attach(&asked);
    let refused = |table: &mut SessionTable<u32>, attach: &Attach| {
        table.attach(at(0), attach, Transport::Quic).map(|attached| attached.session).unwrap_err()
    };
    assert_eq!(refused(&mut table, &owner).ended, Some(EndCause::LeaseEnded));
    let stranger = Attach { secret: Secret::from_bytes([9; 16]), ..owner };
    let to_stranger = refused(&mut table, &stranger);
    let unknown = Attach { incarnation: Incarnation { term: 1, counter: 99 }, ..stranger };
    assert_eq!((to_stranger.code, to_stranger.ended), (RefusalCode::NotFound, None));
    assert_eq!(to_stranger, refused(&mut table, &unknown));
}

#[test]
fn a_session_that_plays_by_itself_takes_no_owner_and_needs_none() {
    let mut asked = open(0, 1, 8);
    let goal = Goal::Batches(1);
    asked.settings.collect = Some(Collect::new("noop", 0, goal));
    let mut table = table_with(&asked);
    assert_eq!(code(table.attach(at(0), &attach(&asked), Transport::Quic)), RefusalCode::BadRequest);
    assert_eq!(table.look(at(1_000), asked.session, asked.incarnation), None);
    assert_eq!(table.reports(|_| SessionCounts::default(), |_| false, |_| None, |_| None)[0].attached, None);
}

/// Opens sessions like that one until one is refused. Returns those that were opened.
fn open_all(table: &mut SessionTable<u32>, like: &OpenSession, first: u32) -> Vec<OpenSession> {
    let mut opened = Vec::new();
    loop {
        let index = first + opened.len() as u32;
        let one = open(index, u64::from(index) + 1, 1);
        let asked = OpenSession { session: one.session, incarnation: one.incarnation, ..like.clone() };
        match table.open(&asked) {
            Ok(_) => opened.push(asked),
            Err(refusal) => {
                assert_eq!(refusal.code, RefusalCode::Busy);
                assert!(refusal.message.contains(&like.owner), "{refusal}");
                return opened;
            }
        }
    }
}

/// Symptom: one owner had every session of a node that plays by itself, shows a recorded episode, or is there at all, and
/// everybody else was refused. Cause: places were counted without regard to whose they are. Fix: shares by owner, which
/// are given back with each session.
#[test]
fn an_owner_who_opens_all_sessions_that_it_may_leaves_places_of_every_kind_to_others_and_admins() {
    let collect = Collect::new("noop", 0, Goal::Batches(1));
    let plain = open(0, 1, 1);
    let (mut plays, mut shows) = (plain.clone(), plain.clone());
    plays.settings.collect = Some(collect);
    shows.settings.replay = Some(ReplayOf { episode: "k3f9q2tz-17-203".to_owned(), dynamics: 0, full: true });
    for (kind, bound) in
        [(plain, SharedBound::SESSIONS), (plays, SharedBound::ROLLOUTS), (shows, SharedBound::REPLAYS)]
    {
        let mut table: SessionTable<u32> = SessionTable::new(100_000, LEASE);
        let mut first = 0;
        let mut take = |table: &mut SessionTable<u32>, owner: &str, operates: bool| {
            let like = OpenSession { owner: owner.to_owned(), operates, ..kind.clone() };
            let opened = open_all(table, &like, first);
            first += opened.len() as u32;
            opened
        };
        let eves = take(&mut table, "eve", false);
        assert_eq!(eves.len() as u64, (bound.limit - bound.reserve).div_ceil(2));
        let adas = take(&mut table, "ada", false).len();
        assert!(adas >= eves.len() / 2, "{adas} after {}", eves.len());
        assert!(take(&mut table, "root", true).len() as u64 > bound.reserve / 2);
        for asked in &eves {
            table.not_made(at(0), asked.session, asked.incarnation);
        }
        assert!(take(&mut table, "bob", false).len() >= adas, "what eve had is free with her sessions");
    }
}

#[test]
fn a_session_that_does_not_fit_within_the_budget_is_refused_with_the_limit_and_what_is_taken() {
    let terms =
        EnvTerms { cpu_milli: Some(500), memory: Some(10), max_lanes: Some(8), ..EnvTerms::default() };
    let total = Weight { cpu_milli: 1000, memory: 60 };
    let envs = [("CartPole-v1".to_owned(), terms)].into();
    let mut table: SessionTable<u32> =
        SessionTable::new(CAPACITY, LEASE).within(Budget { total, stated: false, envs });
    assert_eq!(made(table.open(&open(0, 1, 5))), Ok(true), "cores are for spreading");
    assert_eq!(table.taken(), Weight { cpu_milli: 2500, memory: 50 });
    let refusal = table.open(&open(1, 2, 2)).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Busy);
    assert!(refusal.message.starts_with("memory is 1 MiB for all lanes"), "{refusal}");
    let refusal = table.open(&open(1, 2, 4)).unwrap_err();
    assert_eq!(refusal.message, "max_lanes of `CartPole-v1` is 8: 5 in use, 4 more asked for");
    table.not_made(at(0), open(0, 1, 5).session, open(0, 1, 5).incarnation);
    assert_eq!((table.taken(), table.lanes()), (Weight::default(), 0));
    assert_eq!(made(table.open(&open(1, 2, 6))), Ok(true));
}

#[test]
fn a_session_nobody_attaches_to_is_overdue_after_the_lease_and_not_before() {
    let asked = open(0, 1, 8);
    let look = |table: &mut SessionTable<u32>, now| table.look(now, asked.session, asked.incarnation);
    let mut table = table_with(&asked);
    let version = table.version();
    assert_eq!((look(&mut table, at(29)), table.version()), (None, version), "a look is nothing to report");
    assert_eq!(look(&mut table_with(&asked), at(30)), Some(7));
    let attachment = table.attach(at(0), &attach(&asked), Transport::Quic).unwrap();
    assert_eq!(look(&mut table, at(100)), None);
    table.detached(at(100), asked.session, asked.incarnation, attachment.number);
    assert_eq!(look(&mut table, at(129)), None);
    assert_eq!(look(&mut table, at(130)), Some(7));
    assert_eq!(look(&mut table, at(131)), None, "it is being ended");
}

#[test]
fn ends_are_told_until_they_are_acknowledged() {
    let asked = open(0, 1, 8);
    let mut table = table_with(&asked);
    table.begin_end(at(0), asked.session, asked.incarnation, EndCause::Closed);
    table.ended(at(0), end(&asked));
    let (told, all) = table.ends();
    assert!(all);
    let report = told[0].report.clone();
    assert_eq!(told, [SessionEnd { report, ..end(&asked) }]);
    assert_eq!(table.ends(), (told.clone(), true));
    table.acknowledge(&told);
    assert!(table.ends().0.is_empty());
}

#[test]
fn a_newer_coordinator_is_told_of_all_ends_again_and_of_what_the_sessions_were() {
    let (first, second) = (open(0, 1, 8), open(1, 2, 8));
    let mut table = table_with(&first);
    assert_eq!(made(table.open(&second)), Ok(true));
    assert!(table.opened(at(0), second.session, second.incarnation, 8));
    table.joined(seen(1)).unwrap();
    let reports = table.reports(|_| SessionCounts::default(), |_| false, |_| None, |_| None);
    table.begin_end(at(0), first.session, first.incarnation, EndCause::Closed);
    table.ended(at(0), end(&first));
    let (told, _) = table.ends();
    assert_eq!(told[0].report.as_deref(), Some(&reports[0]));
    table.acknowledge(&told);
    table.joined(seen(1)).unwrap();
    assert_eq!(table.ends(), (Vec::new(), true), "it has heard that");
    table.begin_end(at(0), second.session, second.incarnation, EndCause::Closed);
    table.ended(at(0), end(&second));
    table.joined(seen(2)).unwrap();
    let sessions: Vec<SessionId> = table.ends().0.iter().map(|end| end.session).collect();
    assert_eq!(sessions, [first.session, second.session]);
}

#[test]
fn a_draining_node_refuses_new_sessions_and_confirms_open_ones() {
    let asked = open(0, 1, 8);
    let mut table = table_with(&asked);
    table.drain();
    assert_eq!(made(table.open(&asked)), Ok(false));
    assert_eq!(code(table.open(&open(1, 2, 8))), RefusalCode::Draining);
}

proptest! {
    #[test]
    fn lanes_never_exceed_the_capacity_and_all_come_back(
        steps in prop::collection::vec((0u8..5, 0u32..6, 1u32..40), 1..120)
    ) {
        let mut table: SessionTable<u32> = SessionTable::new(CAPACITY, LEASE);
        let (mut counter, mut known) = (0, BTreeMap::<SessionId, OpenSession>::new());
        let mut open_now = BTreeSet::new();
        for (step, index, lanes) in steps {
            let id = open(index, 0, 1).session;
            match (step, known.get(&id).cloned()) {
                (0 | 1, _) => {
                    counter += 1;
                    let asked = open(index, counter, lanes);
                    if made(table.open(&asked)) == Ok(true) {
                        prop_assert!(!open_now.contains(&id));
                        open_now.insert(id);
                        known.insert(id, asked);
                    }
                }
                (2, Some(asked)) => {
                    table.opened(at(counter), id, asked.incarnation, index);
                }
                (3, Some(asked)) => {
                    table.not_made(at(0), id, asked.incarnation);
                }
                (4, Some(asked)) if table.begin_end(at(0), id, asked.incarnation, EndCause::Closed).is_some() => {
                    table.ended(at(0), end(&asked));
                }
                _ => {}
            }
            let here: BTreeSet<SessionId> = table.all().into_iter().map(|(id, _)| id).collect();
            let lanes: u32 = here.iter().map(|id| known[id].lanes).sum();
            prop_assert_eq!(table.lanes(), lanes);
            prop_assert!(lanes <= CAPACITY);
            open_now = here;
        }
    }

    #[test]
    fn what_is_reported_changes_only_with_the_version(
        steps in prop::collection::vec((0u8..6, 0u32..3), 1..60)
    ) {
        let mut table: SessionTable<u32> = SessionTable::new(CAPACITY, LEASE);
        let (mut counter, mut known) = (0, BTreeMap::<u32, (OpenSession, u64)>::new());
        for (step, index) in steps {
            let reports = |table: &SessionTable<u32>| table.reports(|_| SessionCounts::default(), |_| false, |_| None, |_| None);
            let before = (table.version(), reports(&table));
            match (step, known.get_mut(&index)) {
                (0, _) => {
                    counter += 1;
                    let asked = open(index, counter, 4);
                    if made(table.open(&asked)) == Ok(true) {
                        known.insert(index, (asked, 0));
                    }
                }
                (1, Some((asked, _))) => {
                    table.opened(at(counter), asked.session, asked.incarnation, index);
                }
                (2 | 3, Some((asked, number))) => {
                    let by = if step == 2 { Transport::Quic } else { Transport::SharedMemory };
                    *number = table.attach(at(0), &attach(asked), by).map_or(*number, |attached| attached.number);
                }
                (4, Some((asked, number))) => {
                    table.detached(at(counter), asked.session, asked.incarnation, *number);
                }
                (5, Some((asked, _)))
                    if table.begin_end(at(0), asked.session, asked.incarnation, EndCause::Closed).is_some() =>
                {
                    table.ended(at(0), end(asked));
                }
                _ => {}
            }
            prop_assert!(reports(&table) == before.1 || table.version() != before.0);
        }
    }
}

fn seen(term: u64) -> SeenTerm {
    SeenTerm { term, boot: 0 }
}

#[test]
fn a_coordinator_that_began_earlier_or_has_the_term_of_another_is_not_joined_and_opens_nothing() {
    let late = SeenTerm { term: 7, boot: 1 };
    let mut table: SessionTable<u32> = SessionTable::new(CAPACITY, LEASE).having_seen(late);
    assert_eq!(table.seen(), Some(late));
    for outdated in [SeenTerm { term: 6, boot: 1 }, SeenTerm { term: 7, boot: 2 }] {
        let refusal = table.joined(outdated).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Stale);
        assert!(refusal.message.contains("--least-term 8"), "{refusal}");
    }
    let mut older = open(0, 1, 1);
    older.incarnation.term = 6;
    assert_eq!(table.open(&older).unwrap_err().code, RefusalCode::Stale);
    assert_eq!(table.joined(late), Ok(false));
    let next = SeenTerm { term: 8, boot: 2 };
    assert_eq!((table.joined(next), table.seen()), (Ok(true), Some(next)));
}
