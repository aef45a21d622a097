//! A block as a registry makes it: of lanes that finish within the call, or of late ones, which can be waited for.

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use rollhouse_core::{ColumnMut, ColumnRef, LaneDeadlines, LaneSet};

use crate::{BatchEnv, BlockStep, Collected, Ended, LaneBlock, LateLanes, LateRows, Post};

/// A block of lanes, by the way in which they are stepped.
pub enum BlockEnv {
    /// The lanes finish within the call.
    Kernel(Box<dyn BatchEnv>),
    /// The lanes finish when they finish. Who waits for them gives them these times.
    Late(Box<dyn LateLanes>, LaneDeadlines),
}

impl BlockEnv {
    /// Returns the block if its lanes finish within the call.
    pub fn kernel(&mut self) -> Option<&mut dyn BatchEnv> {
        match self {
            Self::Kernel(env) => Some(&mut **env),
            Self::Late(..) => None,
        }
    }

    /// Returns the block if its lanes are late.
    pub fn late(&mut self) -> Option<&mut dyn LateLanes> {
        match self {
            Self::Kernel(_) => None,
            Self::Late(env, _) => Some(&mut **env),
        }
    }

    /// Begins episodes as [`BatchEnv::reset`] does, whatever steps the lanes: late ones are waited for by the clock `now`.
    /// Those that take longer than a reset may are lost.
    pub fn reset_at_once(
        &mut self,
        lanes: LaneSet,
        obs: &mut [ColumnMut<'_>],
        now: fn() -> Instant,
    ) -> LaneSet {
        match self {
            Self::Kernel(env) => env.reset(lanes, obs),
            Self::Late(env, deadlines) => {
                let mut rewards = vec![0.0; env.lanes()];
                let actions = ColumnRef::U8(&[]);
                let post = Post { step: LaneSet::NONE, reset: lanes, actions, repeats: true };
                let rows = LateRows { obs, infos: &mut [], rewards: &mut rewards };
                complete(&mut **env, post, rows, (deadlines, now)).lost
            }
        }
    }

    /// Steps as [`BatchEnv::step`] does, whatever steps the lanes: late ones are waited for by the clock `now`. Those are
    /// lost that take longer than a step may, or than a reset if some begin an episode. Lanes that report what they take
    /// repeat their actions.
    pub fn step_at_once(&mut self, step: BlockStep<'_, '_>, now: fn() -> Instant) -> Ended {
        let (env, deadlines) = match self {
            Self::Kernel(env) => return env.step(step),
            Self::Late(env, deadlines) => (&mut **env, &*deadlines),
        };
        let BlockStep { skip, reset, actions, obs, infos, rewards } = step;
        rewards.fill(0.0);
        let lanes = LaneSet::first(env.lanes());
        let post = Post { step: lanes & !(skip | reset), reset: reset & lanes, actions, repeats: true };
        let Collected { terminated, truncated, lost, .. } =
            complete(env, post, LateRows { obs, infos, rewards }, (deadlines, now));
        Ended { terminated, truncated, lost }
    }
}

impl Deref for BlockEnv {
    type Target = dyn LaneBlock;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Kernel(env) => &**env,
            Self::Late(env, _) => &**env,
        }
    }
}

impl DerefMut for BlockEnv {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Kernel(env) => &mut **env,
            Self::Late(env, _) => &mut **env,
        }
    }
}

/// Posts, and waits until all lanes that were posted have finished or are lost. Blocks for the longer of the `deadlines` of
/// what is posted at most; lanes that are under way then are given up. Those that hung are lost as well.
fn complete(
    env: &mut dyn LateLanes,
    post: Post<'_>,
    rows: LateRows<'_, '_>,
    (deadlines, now): (&LaneDeadlines, fn() -> Instant),
) -> Collected {
    let mut missing = (post.step | post.reset) & LaneSet::first(env.lanes());
    let (time, resetting) = deadlines.longest(!post.step.is_empty(), !post.reset.is_empty());
    let deadline = now() + time;
    let mut all = Collected::default();
    env.post(post);
    let mut given_up = LaneSet::NONE;
    while !missing.is_empty() {
        env.flush();
        env.linger();
        let rows = LateRows { obs: &mut *rows.obs, infos: &mut *rows.infos, rewards: &mut *rows.rewards };
        let collected = env.collect(rows);
        all.add(collected);
        missing &= !(collected.lanes() | given_up);
        if missing.is_empty() {
            break;
        }
        if deadline <= now() {
            // What a lane finished before it was given up is collected once more.
            given_up = missing;
            all.hung |= missing & env.give_up(missing, &deadlines.why_hung(resetting));
        } else {
            env.wait(deadline);
        }
    }
    all.lost |= all.hung | given_up & !all.done;
    all
}
