//! The rooms that nodes have for lanes: within their capacity, their budgets and the limits of envs there.

use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::{EnvId, Holdings, OverBudget, Weight};
use rollhouse_wire::OpenPool;

use crate::cluster::Cluster;
use crate::fitness::Fitness;
use crate::layout::{Dimension, Room};
use crate::limits::{FIRST_LANES, MAX_UNFIT_TOLD};
use crate::member::Member;
use crate::placements::PlacedLanes;

/// The lanes that a node gets of an env of which it has opened none: it may have stated what it does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstLanes {
    /// As many, together with those that it was asked for before.
    AtMost(u32),
    /// As many as it states to have room for: no other nodes have.
    Any,
}

impl FirstLanes {
    /// The order in which lanes are laid: first within bounds.
    pub(crate) const ALL: [Self; 2] = [Self::AtMost(FIRST_LANES), Self::Any];
}

impl Cluster {
    /// Returns the rooms of those nodes for lanes of a pool, in sessions of at most so many lanes. A node that has opened
    /// no such lanes has no more room than for its first ones.
    pub(crate) fn rooms<'a, K>(
        &'a self,
        members: impl Iterator<Item = (K, &'a Member)>,
        open: &'a OpenPool,
        session: u32,
        first: FirstLanes,
    ) -> impl Iterator<Item = (K, Room)> {
        let env = open.settings.weighed_env();
        let measured = self.measured(&env);
        members.map(move |(key, member)| {
            let held = self.placements.held_on(&member.name);
            let taken = held.map(|held| member.scales.taken(held)).unwrap_or_default();
            let (total, lane) = (member.scales.budget().total, member.scales.lane_beside(&env, measured));
            let room = Room {
                node: Arc::clone(&member.name),
                free: self.free(member, &env, session).min(self.first(member, open, first)),
                lanes: Dimension {
                    taken: self.lanes_on(member),
                    lane: 1,
                    of: member.registration.capacity.into(),
                },
                budget: [
                    Dimension { taken: taken.cpu_milli, lane: lane.cpu_milli, of: total.cpu_milli },
                    Dimension { taken: taken.memory, lane: lane.memory, of: total.memory },
                ],
            };
            (key, room)
        })
    }

    /// Returns how many lanes of a pool a node may have more before it has opened any.
    fn first(&self, member: &Member, open: &OpenPool, first: FirstLanes) -> u32 {
        let FirstLanes::AtMost(most) = first else { return u32::MAX };
        if member.results.has_opened(&open.settings.env) {
            return u32::MAX;
        }
        let held = self.placements.held_on(&member.name);
        let held = held.map_or(0, |held| held.lanes_of(&open.settings.weighed_env()));
        most.saturating_sub(u32::try_from(held).unwrap_or(u32::MAX))
    }

    /// Returns the most that nodes have measured of a lane of an env.
    fn measured(&self, env: &EnvId) -> Option<Weight> {
        let measured = self.members.iter().filter_map(|node| node.scales.measured().get(&**env).copied());
        measured.reduce(Weight::greater)
    }

    /// Returns the most that a lane of a pool weighs on a node that could take it.
    pub(crate) fn heaviest(&self, open: &OpenPool) -> Weight {
        let env = &open.settings.weighed_env();
        let measured = self.measured(env);
        let weights = self.suitable(open).map(|(member, _)| member.scales.lane_beside(env, measured));
        weights.fold(Weight::default(), Weight::greater)
    }

    /// Returns the most lanes of an env that a node could take now, in sessions of at most so many lanes.
    pub(crate) fn free(&self, member: &Member, env: &EnvId, session: u32) -> u32 {
        let none = Holdings::default();
        let held = self.placements.held_on(&member.name).unwrap_or(&none);
        let lanes = u32::try_from(self.lanes_on(member)).unwrap_or(u32::MAX);
        member.registration.capacity.saturating_sub(lanes).min(member.scales.room(env, session, held))
    }

    /// Returns the number of lanes on a node, those of sessions that nobody here knows among them.
    fn lanes_on(&self, member: &Member) -> u64 {
        let held = self.placements.held_on(&member.name).map_or(0, Holdings::lanes);
        held + u64::from(member.sessions.stray_lanes)
    }

    /// Returns the most lanes of a pool that a node takes when nothing else is there.
    pub(crate) fn most(&self, member: &Member, open: &OpenPool) -> u32 {
        let env = &open.settings.weighed_env();
        member.registration.capacity.min(member.scales.room(env, u32::MAX, &Holdings::default()))
    }

    /// Returns the limits of nodes that the lanes of a pool do not fit within, the first few of them; empty if there are
    /// none.
    pub(crate) fn over_budget(&self, now: Duration, owner: &str, open: &OpenPool) -> String {
        let over = self.suitable(open).filter_map(|(member, _)| {
            let over = self.over_budget_on(member, open).err()?;
            (member.fitness(now, owner, open) > Fitness::Unfit)
                .then(|| format!("; node `{}`: {over}", member.name))
        });
        over.take(MAX_UNFIT_TOLD).collect()
    }

    /// Returns lanes of an env as they count on that node.
    pub(crate) fn placed_lanes(&self, node: &str, env: &EnvId, lanes: u32) -> PlacedLanes {
        let processes = self.members.get(node).map_or(0, |member| member.scales.processes(env, lanes));
        PlacedLanes { env: env.clone(), lanes, processes }
    }

    fn over_budget_on(&self, member: &Member, open: &OpenPool) -> Result<(), OverBudget> {
        let none = Holdings::default();
        let held = self.placements.held_on(&member.name).unwrap_or(&none);
        member.scales.fits(&open.settings.weighed_env(), open.lanes, held)
    }
}
