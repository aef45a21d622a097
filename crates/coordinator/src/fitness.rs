//! The fitness of nodes: which may take lanes, and which come last.
//!
//! A node reports its own troubles with its heartbeats. It cannot know that owners do not reach it because it
//! advertises a wrong address: sessions that end without their owner ever having attached show this. An owner can bring
//! that about at will, so it counts for that owner alone, and puts the node behind others instead of leaving it out. The
//! same holds for what a node refuses to open, see [`OpeningResults`](crate::results::OpeningResults).

use std::borrow::Cow;
use std::time::Duration;

use rollhouse_core::RecordRule;
use rollhouse_wire::{EndCause, OpenPool, SessionEnd, Takes, Unfit, UnfitReason};

use crate::cluster::Cluster;
use crate::limits::{MAX_FAILURE_BYTES, MAX_UNFIT_TOLD};
use crate::member::Member;

/// The order in which nodes are considered for lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fitness {
    /// It takes no lanes.
    Unfit,
    /// It takes lanes only when no other has room: its spool is full, and lanes that are recorded may wait for that.
    Full,
    /// It takes lanes only when the others have no room.
    Last,
    /// It takes lanes as any other node does.
    Fit,
}

impl Fitness {
    /// The fitness of nodes that take lanes, the best first.
    pub(crate) const TAKES: [Self; 3] = [Self::Fit, Self::Last, Self::Full];

    /// Returns the least fitness of a node to which lanes are moved from one of this fitness, which stays: a better one,
    /// or lanes on nodes that cannot record would go round among such. One that is fit may not have said yet that it is
    /// not, or that it goes away.
    pub(crate) const fn better(self) -> Self {
        match self {
            Self::Fit => Self::Full,
            Self::Last => Self::Fit,
            Self::Full | Self::Unfit => Self::Last,
        }
    }
}

impl Member {
    /// Returns the node's trouble: the one it reports, or that it is not reached at its address.
    pub(crate) fn unfit_now(&self, now: Duration) -> Option<Cow<'_, Unfit>> {
        self.unfit.as_ref().map(Cow::Borrowed).or_else(|| self.not_reached(now).map(Cow::Owned))
    }

    /// Returns the trouble of a node that is not reached at the address that it advertises. Who has not reached it does
    /// not get there; others do as before.
    fn not_reached(&self, now: Duration) -> Option<Unfit> {
        let address = &self.registration.address;
        let (reason, why) = if self.reach.is_misled(now) {
            let why = format!("its host reports that nobody listens at {address}, which it advertises");
            (UnfitReason::Address, why)
        } else {
            let owner = self.reach.unreached.last(now)?;
            (UnfitReason::Unreached, format!("`{owner}` did not reach it at {address}, which it advertises"))
        };
        Some(Unfit { takes: Takes::Last, reason, why })
    }

    /// Returns the node's fitness for lanes of that owner, as far as it takes sessions at all.
    pub(crate) fn fitness(&self, now: Duration, owner: &str, request: &OpenPool) -> Fitness {
        let records = request.settings.record != RecordRule::None;
        let full = |unfit: &Unfit| records && unfit.reason == UnfitReason::SpoolFull;
        match self.unfit.as_ref().map(|unfit| (unfit.takes, full(unfit))) {
            Some((Takes::Nothing, _)) => Fitness::Unfit,
            Some((Takes::Unrecorded, _)) if records => Fitness::Unfit,
            Some((Takes::Last, true)) => Fitness::Full,
            Some((Takes::Last, false)) => Fitness::Last,
            Some((Takes::Unrecorded, _)) | None
                if self.reach.is_misled(now)
                    || self.reach.unreached.is_by(now, owner)
                    || self.results.comes_last(now, &request.settings.env) =>
            {
                Fitness::Last
            }
            Some((Takes::Unrecorded, _)) | None => Fitness::Fit,
        }
    }

    /// Takes in the trouble that the node reports, and keeps a bounded part of the sentence.
    pub(crate) fn take_unfit(&mut self, told: Option<&Unfit>) {
        if self.unfit.as_ref() == told {
            return;
        }
        self.unfit = told.cloned().map(|mut unfit| {
            unfit.why.truncate(unfit.why.floor_char_boundary(MAX_FAILURE_BYTES));
            unfit
        });
    }
}

impl Cluster {
    /// Takes in the end of a session on that node, which shows whether the owner could reach it.
    pub(crate) fn note_reach(&mut self, now: Duration, node: &str, end: &SessionEnd) {
        let Some(pool) = self.pools.get(&end.session.pool) else { return };
        let waited = matches!(end.cause, EndCause::LeaseEnded | EndCause::Closed);
        let Some(member) = self.members.get_mut(node) else { return };
        match end.unreached {
            true if waited => member.reach.unreached.note(now, &pool.owner),
            true => {}
            false => member.reach.unreached.clear(&pool.owner),
        }
    }

    /// Returns the troubles of nodes that would be asked for these lanes, the first few of them; empty if there are
    /// none.
    pub(crate) fn unfit_for(&self, now: Duration, owner: &str, request: &OpenPool) -> String {
        let unfit = self.suitable(request).filter_map(|(member, _)| {
            let unfit = member.unfit.as_ref()?;
            (member.fitness(now, owner, request) == Fitness::Unfit)
                .then(|| format!("; node `{}` takes none: {}", member.name, unfit.why))
        });
        unfit.take(MAX_UNFIT_TOLD).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{MAX_UNREACHED_OWNERS, UNREACHED_FOR};
    use rollhouse_core::{AutoresetMode, SeedSchedule};
    use rollhouse_core::{Determinism, EnvSource, EnvSpec, RunId, Space};
    use rollhouse_wire::{
        Changes, Heartbeat, LaneSettings, NodeLoad, NodeState, OpenSession, Refusal, Register, Secret,
        SeenTerm, SessionCounts, SessionOpened, Spread,
    };
    use std::collections::BTreeMap;

    use crate::event::{Action, Asker, Event, LinkId, Reply, Ticket};

    /// A cluster whose nodes are as good as their word, and open whatever they are asked for.
    struct Stage {
        cluster: Cluster,
        now: Duration,
        beats: u64,
        pools: u128,
        opened: Vec<(LinkId, OpenSession)>,
    }

    impl Stage {
        fn new(nodes: u64) -> Self {
            let cluster =
                Cluster::new(SeenTerm { term: 1, boot: 1 }, None, Box::new(|| Secret::from_bytes([7; 16])));
            let mut stage = Self { cluster, now: Duration::ZERO, beats: 0, pools: 0, opened: Vec::new() };
            for node in 1..=nodes {
                stage.register(node, &format!("10.0.0.{node}:7610"));
            }
            stage
        }

        fn register(&mut self, node: u64, address: &str) {
            let register = Box::new(Register {
                node: format!("n{node}"),
                boot: node,
                address: address.to_owned(),
                attach: None,
                capacity: 64,
                threads: 1,
                labels: BTreeMap::new(),
                envs: BTreeMap::from([("E".to_owned(), 1)]),
                kinds: Vec::new(),
                budget: None,
                term: 0,
                seen: None,
                program: String::from("test"),
            });
            let (link, ticket, node) = (LinkId(node), Ticket(0), format!("n{node}"));
            let told = self.handle(Event::Register { link, ticket, node, register });
            assert!(matches!(told, Some(Reply::Registered(_))), "{told:?}");
        }

        /// What is answered, once nodes have opened what they were asked to.
        fn handle(&mut self, event: Event) -> Option<Reply> {
            let (mut events, mut answer) = (vec![event], None);
            while let Some(event) = events.pop() {
                for action in self.cluster.handle(self.now, event) {
                    match action {
                        Action::Answer { reply, .. } => answer = Some(reply),
                        Action::Open { link, request } => {
                            let (session, incarnation) = (request.session, request.incarnation);
                            self.opened.push((link, *request));
                            let opened = SessionOpened { spec: spec(), lease_ms: 30_000, replay: false };
                            let result = Ok(Box::new(opened));
                            events.push(Event::Opened { session, incarnation, result });
                        }
                        _ => {}
                    }
                }
            }
            answer
        }

        fn beat(&mut self, node: u64, change: impl FnOnce(&mut Heartbeat)) -> (bool, bool) {
            self.beats += 1;
            let mut heartbeat = Heartbeat {
                number: self.beats,
                load: NodeLoad::default(),
                changes: Changes::default(),
                ended: Vec::new(),
                unfit: None,
                draining: false,
                measured: BTreeMap::new(),
                connecting: Vec::new(),
                standings: Vec::new(),
            };
            change(&mut heartbeat);
            let (link, heartbeat) = (LinkId(node), Box::new(heartbeat));
            match self.handle(Event::Heartbeat { link, ticket: Ticket(0), heartbeat }) {
                Some(Reply::HeartbeatTaken(taken)) => (taken.drain, taken.undrain),
                other => panic!("{other:?}"),
            }
        }

        /// The nodes on which lanes are placed, in the order of the lanes.
        fn open(&mut self, owner: &str, lanes: u32, record: RecordRule) -> Result<Vec<u64>, Refusal> {
            self.pools += 1;
            let settings = LaneSettings {
                env: "E".into(),
                env_kwargs: String::new(),
                deterministic: None,
                infos: Default::default(),
                pace: None,
                options: BTreeMap::new(),
                autoreset: AutoresetMode::NextStep,
                max_episode_steps: None,
                seeds: SeedSchedule::Continue,
                record,
                collect: None,
                replay: None,
                step_columns: rollhouse_core::StepColumns::default(),
            };
            let (pool, labels) = (RunId::from_u128(self.pools), BTreeMap::new());
            let request = Box::new(OpenPool { pool, lanes, settings, labels, spread: Spread::Pack });
            let asker = Asker { owner: owner.to_owned(), max_lanes: None, admin: false };
            match self.handle(Event::OpenPool { ticket: Ticket(1), asker, request }) {
                Some(Reply::PoolOpened(opened)) => {
                    Ok(opened.sessions.iter().map(|grant| grant.node[1..].parse().unwrap()).collect())
                }
                Some(Reply::Refused(refusal)) => Err(refusal),
                other => panic!("{other:?}"),
            }
        }

        /// The session that was opened last ends.
        fn end(&mut self, cause: EndCause, unreached: bool) {
            let (link, open) = self.opened.pop().unwrap();
            let (session, incarnation) = (open.session, open.incarnation);
            let (done, report, detail) = (SessionCounts::default(), None, String::new());
            let end = SessionEnd { session, incarnation, cause, detail, done, report, unreached };
            self.beat(link.0, |beat| beat.ended.push(end));
        }
    }

    fn spec() -> EnvSpec {
        EnvSpec {
            id: "E".to_owned(),
            source: EnvSource::BuiltIn,
            summary: String::new(),
            observation_space: Space::discrete(2).into(),
            action_space: Space::discrete(2),
            observation_names: Vec::new(),
            action_names: Vec::new(),
            max_episode_steps: None,
            determinism: Determinism::Deterministic,
            methods: Vec::new(),
            options: Vec::new(),
            info_channels: Vec::new(),
            dynamics_hash: 1,
        }
    }

    fn unfit(takes: Takes) -> Option<Unfit> {
        Some(Unfit { takes, reason: UnfitReason::Disk, why: "no space left on the disk".to_owned() })
    }

    /// Symptom: with its disk full a node stayed alive and got every recorded pool, each of which ended in a timeout.
    /// Cause: nothing told the coordinator what a node knew of itself. Fix: heartbeats tell, and placement looks.
    #[test]
    fn a_node_that_cannot_record_is_given_nothing_that_is_recorded_and_the_refusal_names_it_and_why() {
        let mut stage = Stage::new(2);
        stage.beat(1, |beat| beat.unfit = unfit(Takes::Unrecorded));
        for _ in 0..4 {
            assert_eq!(stage.open("ada", 8, RecordRule::All), Ok(vec![2]));
        }
        assert_eq!(stage.open("ada", 64, RecordRule::None), Ok(vec![1]), "what records nothing it takes");
        stage.beat(2, |beat| beat.unfit = unfit(Takes::Nothing));
        let refusal = stage.open("ada", 8, RecordRule::All).unwrap_err();
        assert!(refusal.retry_after_ms.is_some(), "it may be mended: {refusal}");
        assert!(refusal.message.contains("`n2` takes none: no space left on the disk"), "{refusal}");
        assert!(stage.open("ada", 8, RecordRule::None).is_err());
        stage.beat(2, |_| {});
        assert_eq!(stage.open("ada", 8, RecordRule::All), Ok(vec![2]), "mended, it is as any other");
    }

    #[test]
    fn a_node_that_comes_last_is_given_lanes_when_no_other_has_room() {
        let mut stage = Stage::new(2);
        stage.beat(1, |beat| beat.unfit = unfit(Takes::Last));
        assert_eq!(stage.open("ada", 64, RecordRule::All), Ok(vec![2]));
        assert_eq!(stage.open("ada", 64, RecordRule::All), Ok(vec![1]));
    }

    /// Symptom: a node that advertised a wrong address was given every pool. Cause: nobody kept that owners never
    /// reached it. Fix: ends say whether an owner ever attached, and such a node comes last, for that owner alone.
    #[test]
    fn a_node_that_an_owner_could_not_reach_comes_last_for_that_owner_alone_until_he_reaches_it() {
        let mut stage = Stage::new(2);
        assert_eq!(stage.open("ada", 8, RecordRule::All), Ok(vec![1]));
        stage.end(EndCause::LeaseEnded, true);
        assert_eq!(stage.open("ada", 8, RecordRule::All), Ok(vec![2]));
        assert_eq!(stage.open("bob", 8, RecordRule::All), Ok(vec![1]), "bob was told nothing of the kind");
        assert_eq!(stage.open("ada", 56, RecordRule::All), Ok(vec![2]), "also when the other is fuller");
        assert_eq!(stage.open("ada", 8, RecordRule::All), Ok(vec![1]), "last is not never");
        stage.end(EndCause::Closed, false);
        stage.opened.clear();
        stage.now = Duration::from_secs(1);
        assert_eq!(stage.open("ada", 8, RecordRule::All), Ok(vec![1]), "he reached it");
    }

    #[test]
    fn what_an_owner_could_not_reach_is_forgotten_with_another_address_after_a_while_and_in_order_of_age() {
        let mut stage = Stage::new(2);
        stage.open("ada", 8, RecordRule::All).unwrap();
        stage.end(EndCause::LeaseEnded, true);
        stage.register(1, "10.0.0.9:7610");
        assert_eq!(stage.open("ada", 8, RecordRule::All), Ok(vec![1]));
        stage.end(EndCause::LeaseEnded, true);
        let mut unreached = stage.cluster.members.get("n1").unwrap().reach.unreached.clone();
        assert!(unreached.is_by(UNREACHED_FOR - Duration::from_secs(1), "ada"));
        assert!(!unreached.is_by(UNREACHED_FOR, "ada"));
        for owner in 0..2 * MAX_UNREACHED_OWNERS as u64 {
            unreached.note(Duration::from_secs(owner), &owner.to_string().into());
        }
        assert_eq!(unreached.owners.len(), MAX_UNREACHED_OWNERS);
        assert!(unreached.owners.contains_key("127") && !unreached.owners.contains_key("0"));
    }

    #[test]
    fn a_drain_that_is_taken_back_is_told_until_the_node_says_that_it_takes_sessions_again() {
        let mut stage = Stage::new(1);
        let node = || "n1".to_owned();
        stage.handle(Event::Drain { ticket: Ticket(0), node: node() });
        assert_eq!(stage.beat(1, |_| {}), (true, false));
        assert!(stage.open("ada", 8, RecordRule::None).is_err());
        stage.handle(Event::Undrain { ticket: Ticket(0), node: node() });
        assert_eq!(stage.beat(1, |beat| beat.draining = true), (false, true));
        assert!(stage.open("ada", 8, RecordRule::None).is_err(), "until it says so");
        assert_eq!(stage.beat(1, |_| {}), (false, false));
        assert_eq!(stage.open("ada", 8, RecordRule::None), Ok(vec![1]));
    }

    #[test]
    fn a_coordinator_that_has_just_started_learns_from_a_node_that_it_drains() {
        let mut stage = Stage::new(1);
        assert_eq!(stage.beat(1, |beat| beat.draining = true), (true, false));
        let state = stage.cluster.members.get("n1").unwrap().state(stage.now);
        assert_eq!(state, NodeState::Draining);
    }
}
