//! One node, as the coordinator knows it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::{EnvKind, Scales};
use rollhouse_wire::{LaneSettings, NodeLoad, NodeState, NodeStatus, Register, ReportView, Unfit};

use crate::event::LinkId;
use crate::limits::{MAX_UNREACHED_OWNERS, MISLED_FOR, SUSPECT_AFTER, UNREACHED_FOR};

/// A node, as the coordinator knows it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: Arc<str>,
    pub(crate) address: String,
    /// Path of its attach socket, if it has one.
    pub(crate) attach: Option<String>,
    pub(crate) capacity: u32,
    pub(crate) envs: BTreeMap<String, u64>,
    /// Kinds of envs that it learns when one is asked for.
    pub(crate) kinds: BTreeSet<EnvKind>,
    /// What it has for lanes, and what they weigh there.
    pub(crate) scales: Scales,
    pub(crate) load: NodeLoad,
    pub(crate) draining: bool,
    /// Whether to tell it that it need not drain any more.
    pub(crate) undrain: bool,
    /// The trouble that keeps it from taking sessions, as it reports it.
    pub(crate) unfit: Option<Unfit>,
    pub(crate) unreached: Unreached,
    /// The sessions that it has reported and that are not over.
    pub(crate) view: ReportView,
    /// Whether it has reported all of its sessions: until then its free room is not known.
    pub(crate) complete: bool,
    /// Lanes of its reported sessions that nobody wants.
    pub(crate) stray_lanes: u32,
    /// The number of removed placements at which it had no such sessions. Only a placement that is removed after that,
    /// or a new report of the node, can make one.
    pub(crate) strayless: Option<u64>,
    pub(crate) link: Option<LinkId>,
    pub(crate) boot: u64,
    pub(crate) threads: u32,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) program: String,
    pub(crate) heard: Duration,
    /// Number of the last heartbeat on its link.
    pub(crate) last_heartbeat: u64,
    pub(crate) lost: bool,
    /// The time at which its host was last asked whether its port is closed.
    pub(crate) port_asked: Option<Duration>,
    /// Whether it is lost because its host says that its port is closed.
    pub(crate) closed: bool,
    /// The time at which its host last said so although the process lives: the node does not listen at the address that
    /// it advertises.
    pub(crate) misled: Option<Duration>,
}

impl Member {
    pub(crate) fn state(&self, now: Duration) -> NodeState {
        if self.lost {
            NodeState::Lost
        } else if self.draining {
            NodeState::Draining
        } else if self.silence(now) >= SUSPECT_AFTER {
            NodeState::Suspect
        } else {
            NodeState::Alive
        }
    }

    /// Returns the connection through which it takes new sessions, if it does.
    pub(crate) fn takes_sessions(&self, now: Duration) -> Option<LinkId> {
        self.link.filter(|_| self.complete && self.state(now) == NodeState::Alive)
    }

    /// Returns whether it has reported all of its sessions.
    pub(crate) const fn is_complete(&self) -> bool {
        self.complete
    }

    pub(crate) const fn link(&self) -> Option<LinkId> {
        self.link
    }

    pub(crate) const fn is_lost(&self) -> bool {
        self.lost
    }

    /// Takes in whether it says that it drains: an earlier coordinator, or the node itself, may have begun that. A node
    /// that is told to go on drains until it says that it does not.
    pub(crate) const fn take_draining(&mut self, draining: bool) {
        if draining {
            self.draining = true;
        } else if self.undrain {
            (self.draining, self.undrain) = (false, false);
        }
    }

    pub(crate) fn has_labels(&self, wanted: &BTreeMap<String, String>) -> bool {
        wanted.iter().all(|(label, value)| self.labels.get(label) == Some(value))
    }

    /// The dynamics with which it hosts such lanes; `None` if it cannot. What is recomputed of a recorded episode takes
    /// the env as it was recorded, what was recorded in full takes none.
    pub(crate) fn dynamics_for(&self, settings: &LaneSettings) -> Option<Dynamics> {
        let now = self.envs.get(&settings.env).copied();
        match &settings.replay {
            None => now.map(Dynamics::Has).or_else(|| self.learns(&settings.env).then_some(Dynamics::Learns)),
            Some(of) if of.full => Some(Dynamics::Has(of.dynamics)),
            Some(of) => now.filter(|now| *now == of.dynamics).map(Dynamics::Has),
        }
    }

    /// Returns whether it learns that env when it is asked for, as far as the env's id tells.
    pub(crate) fn learns(&self, env: &str) -> bool {
        let packages = EnvKind::packages_of(env);
        let hosted = |package: &str| self.kinds.iter().any(|kind| kind.package() == package);
        !packages.is_empty() && packages.into_iter().all(hosted)
    }

    pub(crate) fn status(&self, now: Duration, sessions: u32) -> NodeStatus {
        NodeStatus {
            node: self.name.to_string(),
            state: self.state(now),
            address: self.address.clone(),
            capacity: self.capacity,
            threads: self.threads,
            labels: self.labels.clone(),
            sessions,
            silent_ms: u64::try_from(self.silence(now).as_millis()).unwrap_or(u64::MAX),
            load: self.load,
            program: self.program.clone(),
            kinds: self.kinds.iter().map(EnvKind::to_string).collect(),
            budget: Some(self.scales.budget().total).filter(|total| !total.is_nothing()),
            unfit: self.unfit_now(now).map(Cow::into_owned),
        }
    }

    /// Returns whether its host said a short time ago that nobody listens at its port, although it lives.
    pub(crate) fn is_misled(&self, now: Duration) -> bool {
        self.misled.is_some_and(|at| now.saturating_sub(at) <= MISLED_FOR)
    }

    pub(crate) fn silence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.heard)
    }

    pub(crate) fn new(now: Duration, link: LinkId, register: &Register) -> Self {
        Self {
            name: register.node.as_str().into(),
            address: register.address.clone(),
            attach: register.attach.clone(),
            capacity: register.capacity,
            envs: register.envs.clone(),
            // A newer node may have kinds of a form that is not known here: nobody here asks for their envs.
            kinds: register.kinds.iter().filter_map(|kind| kind.parse().ok()).collect(),
            scales: Scales::new(register.budget.clone().unwrap_or_default()),
            load: NodeLoad::default(),
            draining: false,
            undrain: false,
            unfit: None,
            unreached: Unreached::default(),
            view: ReportView::default(),
            // One without sessions has no term to tell.
            complete: register.term == 0,
            stray_lanes: 0,
            strayless: None,
            link: Some(link),
            boot: register.boot,
            threads: register.threads,
            labels: register.labels.clone(),
            program: register.program.clone(),
            heard: now,
            last_heartbeat: 0,
            lost: false,
            port_asked: None,
            closed: false,
            misled: None,
        }
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

/// Owners that could not reach a node, with the time at which that was noticed last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Unreached {
    pub(crate) owners: BTreeMap<Arc<str>, Duration>,
}

impl Unreached {
    /// Notes that a session of that owner ended without the owner having attached.
    pub(crate) fn note(&mut self, now: Duration, owner: &Arc<str>) {
        if self.owners.len() >= MAX_UNREACHED_OWNERS && !self.owners.contains_key(owner) {
            let oldest = self.owners.iter().min_by_key(|(_, at)| **at).map(|(owner, _)| Arc::clone(owner));
            oldest.map(|oldest| self.owners.remove(&oldest));
        }
        self.owners.insert(Arc::clone(owner), now);
    }

    /// Notes that the owner has reached the node.
    pub(crate) fn clear(&mut self, owner: &str) {
        self.owners.remove(owner);
    }

    pub(crate) fn is_by(&self, now: Duration, owner: &str) -> bool {
        self.owners.get(owner).is_some_and(|&at| now.saturating_sub(at) < UNREACHED_FOR)
    }
}
