//! One node, as the coordinator knows it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::{EnvId, EnvKind, Scales};
use rollhouse_wire::limits::MAX_CONNECTING_TOLD;
use rollhouse_wire::{
    Changes, ConnectingSession, Incarnation, LaneSettings, NodeLoad, NodeState, NodeStatus, NotTaken,
    Register, ReportView, SessionId, Unfit,
};

use crate::event::LinkId;
use crate::limits::SUSPECT_AFTER;
use crate::reach::Reach;
use crate::results::OpeningResults;

/// A node, as the coordinator knows it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: Arc<str>,
    pub(crate) registration: Registration,
    /// What it has for lanes, and what they weigh there.
    pub(crate) scales: Scales,
    pub(crate) load: NodeLoad,
    pub(crate) drain: Drain,
    /// The trouble that keeps it from taking sessions, as it reports it.
    pub(crate) unfit: Option<Unfit>,
    pub(crate) reach: Reach,
    /// What it has shown when it was asked to open sessions.
    pub(crate) results: OpeningResults,
    pub(crate) sessions: NodeSessions,
    pub(crate) link: Option<LinkId>,
    pub(crate) heard: Duration,
    /// Number of the last heartbeat on its link.
    pub(crate) last_heartbeat: u64,
    pub(crate) lost: bool,
}

/// What a node said of itself when it registered.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) address: String,
    /// Path of its attach socket, if it has one.
    pub(crate) attach: Option<String>,
    pub(crate) capacity: u32,
    pub(crate) envs: BTreeMap<String, u64>,
    /// Kinds of envs that it learns when one is asked for.
    pub(crate) kinds: BTreeSet<EnvKind>,
    pub(crate) boot: u64,
    pub(crate) threads: u32,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) program: String,
}

/// Whether a node takes no new sessions, and whether it is to take some again.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Drain {
    is_on: bool,
    /// Whether to tell it that it need not drain any more.
    taken_back: bool,
}

/// The sessions of a node, as it has reported them.
#[derive(Debug, Default)]
pub(crate) struct NodeSessions {
    /// The sessions that it has reported and that are not over.
    pub(crate) view: ReportView,
    /// Whether it has reported all of its sessions: until then its free room is not known.
    complete: bool,
    /// Lanes of its reported sessions that nobody wants.
    pub(crate) stray_lanes: u32,
    /// The number of removed placements at which it had no such sessions. Only a placement that is removed after that,
    /// or a new report of the node, can make one.
    pub(crate) strayless: Option<u64>,
    /// How often the lanes of sessions that try to connect have tried again, as its last heartbeat says.
    pub(crate) connecting: BTreeMap<(SessionId, Incarnation), u32>,
}

impl Member {
    pub(crate) fn state(&self, now: Duration) -> NodeState {
        if self.lost {
            NodeState::Lost
        } else if self.drain.is_on {
            NodeState::Draining
        } else if self.silence(now) >= SUSPECT_AFTER {
            NodeState::Suspect
        } else {
            NodeState::Alive
        }
    }

    /// Returns the connection through which it takes new sessions, if it does.
    pub(crate) fn takes_sessions(&self, now: Duration) -> Option<LinkId> {
        self.link.filter(|_| self.sessions.complete && self.state(now) == NodeState::Alive)
    }

    /// Returns whether it has reported all of its sessions.
    pub(crate) const fn is_complete(&self) -> bool {
        self.sessions.complete
    }

    pub(crate) const fn link(&self) -> Option<LinkId> {
        self.link
    }

    pub(crate) const fn is_lost(&self) -> bool {
        self.lost
    }

    pub(crate) fn status(&self, now: Duration, sessions: u32) -> NodeStatus {
        let said = &self.registration;
        NodeStatus {
            node: self.name.to_string(),
            state: self.state(now),
            address: said.address.clone(),
            capacity: said.capacity,
            threads: said.threads,
            labels: said.labels.clone(),
            sessions,
            silent_ms: u64::try_from(self.silence(now).as_millis()).unwrap_or(u64::MAX),
            load: self.load,
            program: said.program.clone(),
            kinds: said.kinds.iter().map(EnvKind::to_string).collect(),
            budget: Some(self.scales.budget().total).filter(|total| !total.is_nothing()),
            unfit: self.unfit_now(now).map(Cow::into_owned),
        }
    }

    pub(crate) fn silence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.heard)
    }

    pub(crate) fn new(now: Duration, link: LinkId, register: &Register) -> Self {
        Self {
            name: register.node.as_str().into(),
            registration: Registration::of(register),
            scales: Scales::new(register.budget.clone().unwrap_or_default()),
            load: NodeLoad::default(),
            drain: Drain::default(),
            unfit: None,
            reach: Reach::default(),
            results: OpeningResults::default(),
            // One without sessions has no term to tell.
            sessions: NodeSessions { complete: register.term == 0, ..NodeSessions::default() },
            link: Some(link),
            heard: now,
            last_heartbeat: 0,
            lost: false,
        }
    }

    /// Goes on as the `old` registration of the same boot did.
    pub(crate) fn go_on(&mut self, now: Duration, old: Self) {
        self.drain = old.drain;
        self.unfit = old.unfit;
        self.results = old.results;
        if self.registration.address == old.registration.address {
            self.reach = old.reach.registered_again(now);
        }
        self.load = old.load;
        self.scales.measure(old.scales.measured());
        if old.link == self.link {
            self.last_heartbeat = old.last_heartbeat;
        }
        let complete = self.sessions.complete | old.sessions.complete;
        self.sessions = NodeSessions { complete, strayless: None, ..old.sessions };
    }
}

impl Registration {
    fn of(register: &Register) -> Self {
        Self {
            address: register.address.clone(),
            attach: register.attach.clone(),
            capacity: register.capacity,
            envs: register.envs.clone(),
            // A newer node may have kinds of a form that is not known here: nobody here asks for their envs.
            kinds: register.kinds.iter().filter_map(|kind| kind.parse().ok()).collect(),
            boot: register.boot,
            threads: register.threads,
            labels: register.labels.clone(),
            program: register.program.clone(),
        }
    }

    pub(crate) fn has_labels(&self, wanted: &BTreeMap<String, String>) -> bool {
        wanted.iter().all(|(label, value)| self.labels.get(label) == Some(value))
    }

    /// The dynamics with which it hosts such lanes; `None` if it cannot. What is recomputed of a recorded episode takes
    /// the env as it was recorded, what was recorded in full takes none.
    pub(crate) fn dynamics_for(&self, settings: &LaneSettings) -> Option<Dynamics> {
        let now = self.envs.get(&*settings.env).copied();
        match &settings.replay {
            None => now.map(Dynamics::Has).or_else(|| self.learns(&settings.env).then_some(Dynamics::Learns)),
            Some(of) if of.full => Some(Dynamics::Has(of.dynamics)),
            Some(of) => now.filter(|now| *now == of.dynamics).map(Dynamics::Has),
        }
    }

    /// Returns whether it learns that env when it is asked for, as far as the env's id tells.
    pub(crate) fn learns(&self, env: &EnvId) -> bool {
        env.source().is_learned() && env.source().kinds().iter().all(|kind| self.kinds.contains(kind))
    }
}

impl Drain {
    pub(crate) const fn ask(&mut self) {
        *self = Self { is_on: true, taken_back: false };
    }

    pub(crate) const fn take_back(&mut self) {
        self.taken_back = self.is_on;
    }

    /// Returns whether to tell the node that it is to drain, and whether to tell it that it need not any more.
    pub(crate) const fn orders(&self) -> (bool, bool) {
        (self.is_on && !self.taken_back, self.taken_back)
    }

    pub(crate) const fn is_on(&self) -> bool {
        self.is_on
    }

    /// Takes in whether the node says that it drains: an earlier coordinator, or the node itself, may have begun that. A
    /// node that is told to go on drains until it says that it does not.
    pub(crate) const fn hear(&mut self, drains: bool) {
        if drains {
            self.is_on = true;
        } else if self.taken_back {
            *self = Self { is_on: false, taken_back: false };
        }
    }
}

impl NodeSessions {
    /// Takes in what a heartbeat says of them. Returns whether that was news; if not, it is known or does not follow
    /// the known version.
    pub(crate) fn take(&mut self, changes: &Changes) -> bool {
        let is_news = match self.view.take(changes) {
            Ok(()) => true,
            Err(NotTaken::Known | NotTaken::Gap) => false,
        };
        // What is told last, and what was known by then, is all.
        self.complete |= !changes.more && changes.through <= self.view.version();
        is_news
    }

    /// Takes in which of them try to connect: what a heartbeat does not tell is over.
    pub(crate) fn take_connecting(&mut self, told: &[ConnectingSession]) {
        if told.is_empty() && self.connecting.is_empty() {
            return;
        }
        let told = told.iter().take(MAX_CONNECTING_TOLD);
        self.connecting = told.map(|one| ((one.session, one.incarnation), one.retries)).collect();
    }
}

/// The dynamics with which a node hosts an env.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dynamics {
    /// The node has the env, with that hash.
    Has(u64),
    /// The node learns the env when it opens a session of it, and says the hash then.
    Learns,
}

impl Dynamics {
    /// Returns the hash, if it is known before a session is opened.
    pub(crate) const fn known(self) -> Option<u64> {
        match self {
            Self::Has(hash) => Some(hash),
            Self::Learns => None,
        }
    }

    /// Returns whether lanes with that hash can be asked for where these dynamics are; any, if no node has said it.
    pub(crate) const fn may_be(self, wanted: Option<u64>) -> bool {
        match (self, wanted) {
            (Self::Has(hash), Some(wanted)) => hash == wanted,
            (Self::Has(_), None) => false,
            (Self::Learns, _) => true,
        }
    }
}
