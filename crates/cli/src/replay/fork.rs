//! `rollhouse replay fork`: an episode goes on in another way from one of its steps.
//!
//! The new episode begins as its parent began and repeats the parent's actions up to the step, checked against the
//! recording, so that it is whole by itself. Its run names the parent.

mod actions;
#[cfg(feature = "viewer")]
mod by_hand;

use std::io::{self, BufReader};
use std::path::Path;
use std::sync::Arc;

use rollhouse_core::{
    ColumnData, Interruption, Outcome, Parent, Past, PastEvent, PlayedActions, SeedSchedule, open_regular,
};
use rollhouse_engine::EngineConfig;
use rollhouse_env::EnvEntry;
use rollhouse_host::RecordedEnvs;
use rollhouse_policy::{Builtin, Policy};
use rollhouse_replay::{Envs, Episode, RecordKind, Recorder, SeekBounds, Seeker, SimulateError};
use serde::Serialize;

use crate::args::{ForkArgs, PolicyName, data_option};
use crate::failure::{Failure, Status};
use crate::human::{Count, Real, counted};
use crate::one_lane::{LaneError, OneLane, PlayedEpisode};
use crate::output::{Output, say};
use crate::python_envs;
use crate::recording::{header_of, open_recorder, record_failure, refuse_store};
use crate::replay::nearest::find_or_nearest;
use crate::replay::source::Source;
use crate::replay::verify::words;
use crate::replay::{ListedParent, read_failure};
use crate::rollout::seed_or_drawn;
use crate::signals;
use actions::read_actions;

pub(super) fn run(args: &ForkArgs, out: &mut Output) -> Result<Status, Failure> {
    #[cfg(feature = "viewer")]
    match (args.way.by_hand, args.hand.fps) {
        (true, _) => crate::play::refuse_terminal()?,
        (false, Some(_)) => return Err(Failure::new(Status::Usage, "--fps is for --by-hand")),
        (false, None) => {}
    }
    let library = Source::of(&args.data)?.open()?;
    let found = find_or_nearest(&library, args.name)?;
    let parent = Arc::new(found.folder.load(&found.info).map_err(read_failure)?);
    let registry = args.plugins.registry()?;
    let hosted = python_envs::of_recordings(&args.hosting, args.by_hand())?;
    let learn = python_envs::learner(hosted.as_ref());
    let refusal = || hosted.as_ref().and_then(RecordedEnvs::refusal);
    let fork = Fork::of(python_envs::envs(&registry, learn.as_deref()), &parent, args.at)
        .map_err(|error| refusal().map_or(error, |refusal| python_envs::failure(&refusal)))?;
    #[cfg(feature = "viewer")]
    if args.way.by_hand {
        return by_hand::run(args, &fork, out);
    }
    let mut way = Way::of(args, &fork)?;
    let recorder = open(args)?;
    let name = way.name().to_owned();
    let policy: Option<&mut dyn Policy> = match &mut way {
        Way::Policy { policy, .. } => Some(&mut **policy),
        Way::Actions { .. } => None,
    };
    let mut lane = fork.begin(&recorder, &name, policy)?;
    let ended = way.go(&mut lane, args.steps);
    let closed = lane.close();
    let played = lane.played();
    drop(lane);
    recorder.finish().map_err(|error| record_failure(&error))?;
    let status = ended?;
    closed.map_err(|error| Failure::of(Status::Failed, &error))?;
    if status == Status::Interrupted {
        say("ended early, as asked; what was played until then is kept");
    }
    let told = Forked::of(&fork, &played, &way);
    if args.json {
        out.json(&told)?;
    } else {
        print(&told, &played, &args.folder(), out)?;
    }
    Ok(status)
}

/// Opens the folder into which a fork is recorded.
fn open(args: &ForkArgs) -> Result<Recorder, Failure> {
    let (dir, way_out) = (args.folder(), "--into DIR records into another folder");
    refuse_store(&dir, way_out)?;
    open_recorder(&dir, "--into", way_out)
}

/// A place in an episode at which it can go on.
struct Fork<'a> {
    parent: &'a Episode,
    entry: Arc<EnvEntry>,
    /// The step from which it goes on.
    at: u64,
    /// The return up to that step.
    total_reward: f64,
    /// The action that led to that step.
    action: Option<ColumnData>,
}

impl<'a> Fork<'a> {
    /// Recomputes the parent up to the step, and on to the next recorded hash, which has to match the recomputed state.
    fn of(envs: Envs<'_>, parent: &'a Arc<Episode>, at: u64) -> Result<Self, Failure> {
        let info = &parent.info;
        let (name, length) = (info.name, info.length);
        if at > length {
            let message = SimulateError::NoSuchStep { step: at, length };
            return Err(
                Failure::of(Status::Usage, &message).hint(format_args!("{name} has steps 0 to {length}"))
            );
        }
        if info.recorded() == RecordKind::Full {
            let message = format!("{name} cannot be brought back to a step: its env is not deterministic");
            return Err(Failure::new(Status::Failed, message));
        }
        if at == length && info.outcome.is_finished() {
            let how = info.outcome.word();
            let message = format!("{name} is over at step {at}: it is {how} there, and does not go on");
            let failure = Failure::new(Status::Usage, message);
            return Err(match length.checked_sub(1) {
                Some(last) => {
                    failure.hint(format_args!("--at {last} is the last step that it can go on from"))
                }
                None => failure,
            });
        }
        let refused = |error: &dyn std::error::Error| Failure::of(Status::Failed, error);
        let entry = envs.entry_of(&info.run).map_err(|error| {
            let failure = refused(&error);
            match error {
                SimulateError::NotHosted { .. } => {
                    failure.hint("--python PATH names the interpreter, --allow PACKAGE what it may import")
                }
                _ => failure,
            }
        })?;
        let mut seeker =
            Seeker::new(envs, Arc::clone(parent), &SeekBounds::default()).map_err(|error| refused(&error))?;
        if let Some(error) = seeker.refused() {
            // A trace shows its steps all the same, and is not lived through.
            return Err(refused(error));
        }
        let checked = parent.windows.iter().map(|&(age, _)| age).find(|&age| age >= at).unwrap_or(length);
        seeker.seek(checked.min(length)).map_err(|error| refused(&error))?;
        if let Some(found) = seeker.divergence().filter(|found| found.from <= at) {
            let (from, to) = (Count(found.from), Count(found.to));
            let (recorded, now) = (words(&found.recorded), words(&found.replayed));
            let message = format!(
                "{name} differs from what was recorded between steps {from} and {to}: its {} was {recorded} and is {now}",
                found.field
            );
            return Err(Failure::new(Status::Found, message).hint("nothing was recorded"));
        }
        let step = seeker.seek(at).map_err(|error| refused(&error))?;
        Ok(Self { parent, entry, at, total_reward: step.total_reward, action: step.action })
    }

    /// Returns the parent episode and the step.
    fn parent(&self) -> Parent {
        let info = &self.parent.info;
        Parent::new(info.run_id(), info.name.lane, info.name.number, self.at)
    }

    /// Makes a lane that stands at the step, with all steps up to it recorded. `name` is recorded as the source of
    /// the actions that follow; a policy among them sees the steps before.
    fn begin(
        &self,
        recorder: &Recorder,
        name: &str,
        policy: Option<&mut dyn Policy>,
    ) -> Result<OneLane, Failure> {
        let config = self.config();
        let header = header_of(&self.entry, config.clone(), name, Some(self.parent()));
        let run = header.run;
        let recording = recorder.begin_run(header).map_err(|error| Failure::of(Status::Failed, &error))?;
        let mut lane = OneLane::new(&self.entry, config, recording, run)
            .map_err(|error| Failure::of(Status::Failed, &error))?;
        lane.resume(self.past(), (self.at, self.total_reward, self.action.clone()), policy)
            .map_err(|error| Failure::of(Status::Found, &error))?;
        Ok(lane)
    }

    /// Returns the settings with which the parent was stepped.
    fn config(&self) -> EngineConfig {
        let info = &self.parent.info;
        EngineConfig {
            options: vec![info.options()],
            max_episode_steps: Some(info.run.max_episode_steps.unwrap_or(0)),
            schedule: SeedSchedule::Continue,
            ..OneLane::config()
        }
    }

    /// Returns the parent's actions and calls up to the step, with the hashes of its states.
    fn past(&self) -> Vec<Past> {
        let Episode { info, actions, windows, calls, .. } = self.parent;
        let elements = info.run.spec.action_space.elements();
        let mut past = vec![PastEvent::Began { number: 0, start: info.start }];
        let mut from = 0;
        let hashes = windows.iter().filter(|(age, _)| *age <= self.at);
        let mut marks: Vec<_> = hashes.map(|&(age, hash)| (age, Some(PastEvent::Stood(hash)))).collect();
        // Calls come after the hash of the step behind which they were; those behind the last step go with the next.
        let calls = calls.iter().filter(|called| called.step < self.at);
        marks.extend(calls.map(|called| (called.step, Some(PastEvent::Called(called.call.clone())))));
        marks.push((self.at, None));
        marks.sort_by_key(|(age, _)| *age);
        for (to, event) in marks {
            let (first, last) = (from as usize * elements, to as usize * elements);
            let actions = actions.as_ref().slice(first, last).into();
            past.push(PastEvent::Played(PlayedActions { count: (to - from) as usize, actions }));
            past.extend(event);
            from = to;
        }
        past.into_iter().map(|what| Past { lane: 0, what }).collect()
    }

    /// Returns the step at which it is cut at the latest.
    fn limit(&self) -> Option<u32> {
        self.parent.info.run.max_episode_steps
    }
}

/// The source of actions after the step.
enum Way {
    Policy { policy: Box<dyn Policy>, seed: u64 },
    Actions { rows: ColumnData, elements: usize, count: u64 },
}

impl Way {
    /// Makes the chosen source, which is known to suit the env.
    fn of(args: &ForkArgs, fork: &Fork<'_>) -> Result<Self, Failure> {
        let spec = fork.entry.spec();
        if let Some(path) = &args.way.actions {
            let (space, column) = (&spec.action_space, spec.action_column());
            let cannot = |error: io::Error| {
                Failure::new(Status::Usage, format_args!("{} cannot be read: {error}", path.display()))
            };
            let read = if path == Path::new("-") {
                read_actions(io::stdin().lock(), space, &column, fork.at)
            } else {
                let file = open_regular(path).map_err(cannot)?;
                read_actions(BufReader::new(file), space, &column, fork.at)
            };
            let (rows, count) = read.map_err(|error| Failure::of(Status::Usage, &error))?;
            return Ok(Self::Actions { rows, elements: column.elements(), count });
        }
        if fork.limit().is_none() && args.steps.is_none() {
            let message = format!("{} has no time limit here, and a policy may play it for ever", spec.id);
            return Err(Failure::new(Status::Usage, message).hint("--steps N says how far it goes"));
        }
        let seed = seed_or_drawn(args.seed);
        // One of the ways is asked for.
        let model = args.way.policy.as_ref().unwrap_or(&PolicyName::Builtin(Builtin::Random)).model()?;
        let policy = model.make(spec, seed).map_err(|error| Failure::of(Status::Usage, &error))?;
        Ok(Self::Policy { policy, seed })
    }

    /// Returns the name that is recorded for it.
    fn name(&self) -> &str {
        match self {
            Self::Policy { policy, .. } => policy.name(),
            Self::Actions { .. } => FROM_FILE,
        }
    }

    /// Steps until the episode is over, there is no further action, `most` steps were taken, or the end is asked for.
    fn go(&mut self, lane: &mut OneLane, most: Option<u64>) -> Result<Status, Failure> {
        let ending = signals::ending()?;
        let mut taken = 0;
        while lane.outcome().is_none() && most.is_none_or(|most| taken < most) {
            if ending.load(std::sync::atomic::Ordering::Relaxed) {
                return Ok(Status::Interrupted);
            }
            let stepped = match self {
                Self::Policy { policy, .. } => lane.step_by(&mut **policy),
                Self::Actions { rows, elements, count } => {
                    match rows.row(taken as usize, *elements).filter(|_| taken < *count) {
                        Some(action) => lane.step(action).map_err(LaneError::Step),
                        None => return Ok(Status::Done),
                    }
                }
            };
            stepped.map_err(|error| Failure::of(Status::Failed, &error))?;
            taken += 1;
        }
        if lane.outcome() == Some(Outcome::Interrupted(Interruption::Crashed)) {
            let message =
                format!("the env failed after step {}; what was played until then is kept", lane.steps());
            return Err(Failure::new(Status::Failed, message));
        }
        self.tell_unused(taken, lane);
        Ok(Status::Done)
    }

    /// Reports how many actions of a file were not used.
    fn tell_unused(&self, taken: u64, lane: &OneLane) {
        let Self::Actions { count, .. } = self else { return };
        let left = count - taken;
        if left > 0 && lane.outcome().is_some() {
            let left = counted(left, "action");
            say(&format!(
                "note: the episode ended at step {}, {left} of the file were not taken",
                lane.steps()
            ));
        }
    }
}

/// The output of `--json`; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct Forked {
    id: String,
    env: String,
    parent: ListedParent,
    policy: String,
    seed: Option<u64>,
    length: u64,
    #[serde(rename = "return")]
    total_reward: f64,
    outcome: &'static str,
}

impl Forked {
    fn of(fork: &Fork<'_>, played: &PlayedEpisode, way: &Way) -> Self {
        Self {
            id: played.name.to_string(),
            env: fork.entry.spec().id.clone(),
            parent: fork.parent().into(),
            policy: way.name().to_owned(),
            seed: match way {
                Way::Policy { seed, .. } => Some(*seed),
                Way::Actions { .. } => None,
            },
            length: played.steps,
            total_reward: played.total_reward,
            outcome: played.outcome.word(),
        }
    }
}

fn print(told: &Forked, played: &PlayedEpisode, dir: &Path, out: &mut Output) -> io::Result<()> {
    let Forked { id, parent, .. } = told;
    writeln!(out, "{id}: {} from step {} of {} on\n", told.env, Count(parent.step), parent.id)?;
    let PlayedEpisode { steps, total_reward, outcome, .. } = *played;
    let new = Count(steps.saturating_sub(parent.step));
    writeln!(out, "  steps     {}, of them {new} new", Count(steps))?;
    writeln!(out, "  return    {}", Real(total_reward))?;
    writeln!(out, "  outcome   {}", outcome.word())?;
    writeln!(out, "  policy    {}", told.policy)?;
    if let Some(seed) = told.seed {
        writeln!(out, "  seed      {seed} (the same seed gives the same fork)")?;
    }
    writeln!(out, "  recorded  in {}", dir.display())?;
    writeln!(out, "\nWatch it: rollhouse replay play {id} --at {}{}", parent.step, data_option(dir))
}

/// The name that is recorded as the policy of actions from a file.
const FROM_FILE: &str = "file";

#[cfg(test)]
mod tests {
    use rollhouse_env::Registry;
    use rollhouse_replay::testing::FaultyDisk;
    use rollhouse_replay::{Query, RecorderConfig, Replays};

    use super::*;

    /// An episode that a policy has played to its end.
    fn recorded(env: &str) -> Arc<Episode> {
        let (disk, dir) = (FaultyDisk::new(), Path::new("/data"));
        let recorder = Recorder::open(Arc::new(disk.clone()), dir, RecorderConfig::default()).unwrap();
        let entry = Registry::builtin().get(env).unwrap();
        let config = EngineConfig { schedule: SeedSchedule::PerEpisode { run_seed: 5 }, ..OneLane::config() };
        let header = header_of(&entry, config.clone(), "random", None);
        let run = header.run;
        let mut lane = OneLane::new(&entry, config, recorder.begin_run(header).unwrap(), run).unwrap();
        lane.begin().unwrap();
        let mut policy = Builtin::Random.make(&entry.spec().action_space, 5).unwrap();
        while lane.outcome().is_none() {
            lane.step_by(&mut *policy).unwrap();
        }
        drop(lane);
        recorder.finish().unwrap();
        let replays = Replays::open(Arc::new(disk), dir).unwrap();
        let found = replays.list(&Query::default()).unwrap();
        Arc::new(replays.load(&found[0]).unwrap())
    }

    fn refusal(registry: &Registry, parent: &Arc<Episode>, at: u64) -> (Status, String) {
        match Fork::of(registry.into(), parent, at) {
            Ok(_) => panic!("step {at} is refused"),
            Err(failure) => (failure.status(), failure.message().to_owned()),
        }
    }

    #[test]
    fn an_env_with_other_dynamics_is_refused_with_both_hashes() {
        let parent = recorded("CartPole-v1");
        let builtin = Registry::builtin();
        let original = builtin.get("CartPole-v1").unwrap();
        let mut spec = original.spec().clone();
        spec.dynamics_hash ^= 1;
        let hashes = [original.spec().dynamics_hash, spec.dynamics_hash].map(|hash| format!("{hash:016x}"));
        let registry = Registry::empty();
        registry
            .register(EnvEntry::new(spec, move |set, options| original.make_block_on(set, options)))
            .unwrap();
        let (status, message) = refusal(&registry, &parent, 3);
        assert_eq!(status, Status::Failed);
        assert!(hashes.iter().all(|hash| message.contains(hash)), "{message}");
    }

    #[test]
    fn a_prefix_that_is_not_what_was_recorded_is_refused_and_what_differs_later_is_not() {
        let mut parent = Arc::unwrap_or_clone(recorded("MountainCar-v0"));
        assert_eq!(parent.info.length, 200);
        let ColumnData::I64(actions) = &mut parent.actions else { panic!("they are numbers") };
        actions[99] = (actions[99] + 1) % 3;
        let (registry, parent) = (Registry::builtin(), Arc::new(parent));
        for at in [70, 99, 128, 199] {
            let (status, message) = refusal(&registry, &parent, at);
            assert_eq!(status, Status::Found, "{at}");
            assert!(message.contains("between steps 65 and 128: its state was hash"), "{message}");
        }
        assert!(Fork::of((&registry).into(), &parent, 64).is_ok());
    }
}
