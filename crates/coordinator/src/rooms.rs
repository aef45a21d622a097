//! The rooms that nodes have for lanes: within their capacity, their budgets and the limits of envs there.

use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::{Holdings, OverBudget, Weight};
use rollhouse_wire::{OpenPool, Spread};

use crate::cluster::Cluster;
use crate::fitness::Fitness;
use crate::layout::{Dimension, Room};
use crate::limits::{MAX_SESSION_LANES, MAX_UNFIT_TOLD};
use crate::member::Member;
use crate::placements::PlacedLanes;

impl Cluster {
    /// Returns the room of a node for lanes of a pool.
    pub(crate) fn room(&self, member: &Member, open: &OpenPool) -> Room {
        let session = if open.spread == Spread::Single { u32::MAX } else { MAX_SESSION_LANES };
        self.room_for(member, open.settings.weighed_env(), session)
    }

    /// Returns the room of a node for lanes of an env, in sessions of at most so many lanes.
    pub(crate) fn room_for(&self, member: &Member, env: &str, session: u32) -> Room {
        let none = Holdings::default();
        let held = self.placements.held_on(&member.name).unwrap_or(&none);
        let lanes = held.lanes() + u64::from(member.sessions.stray_lanes);
        let free = member.registration.capacity.saturating_sub(u32::try_from(lanes).unwrap_or(u32::MAX));
        let (total, taken) = (member.scales.budget().total, member.scales.taken(held));
        let measured = self.members.iter().filter_map(|node| node.scales.measured().get(env).copied());
        let lane = member.scales.lane_beside(env, measured.reduce(Weight::greater));
        Room {
            node: Arc::clone(&member.name),
            free: free.min(member.scales.room(env, session, held)),
            lanes: Dimension { taken: lanes, lane: 1, of: member.registration.capacity.into() },
            budget: [
                Dimension { taken: taken.cpu_milli, lane: lane.cpu_milli, of: total.cpu_milli },
                Dimension { taken: taken.memory, lane: lane.memory, of: total.memory },
            ],
        }
    }

    /// Returns the most lanes of a pool that a node takes when nothing else is there.
    pub(crate) fn most(&self, member: &Member, open: &OpenPool) -> u32 {
        let env = open.settings.weighed_env();
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
    pub(crate) fn placed_lanes(&self, node: &str, env: &str, lanes: u32) -> PlacedLanes {
        let processes = self.members.get(node).map_or(0, |member| member.scales.processes(env, lanes));
        PlacedLanes { env: env.into(), lanes, processes }
    }

    fn over_budget_on(&self, member: &Member, open: &OpenPool) -> Result<(), OverBudget> {
        let none = Holdings::default();
        let held = self.placements.held_on(&member.name).unwrap_or(&none);
        member.scales.fits(open.settings.weighed_env(), open.lanes, held)
    }
}
