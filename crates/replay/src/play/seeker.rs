//! Seeking to any step of an episode, forward and back.

use std::sync::Arc;

use rollhouse_core::{ColumnData, ColumnRef, Start, Verdict};
use rollhouse_env::{Image, ImageSize, LaneBlock, Registry, RenderError};

use crate::code::episode::Episode;
use crate::code::frame::Frames;
use crate::play::divergence::{Divergence, Ending, Replayed, no_action, panicked, refused_call, went_on};
use crate::play::envs::Envs;
use crate::play::head::{Head, PlayedStep, Taken};
use crate::play::keyframes::{Keyframes, SeekBounds};
use crate::play::playback::simulator_of;
use crate::play::recompute::RecomputeError;
use crate::play::recorded_picture::RecordedPicture;
use crate::play::returns::Returns;
use crate::play::simulate::{SimulateError, Simulator};
use crate::play::timeline::Timeline;

/// An episode in which any step can be sought, forward and back. Each is exactly as a pass from the first step gives
/// it.
///
/// Steps are passed for the first time in their order: by [`Seeker::pass`], or on the way to a later step. The first
/// pass compares the recorded hashes, adds up the [`Timeline`] and keeps keyframes (state and generator position)
/// within [`SeekBounds`]. From then on a step costs as much as the steps from the keyframe before it. Each keyframe
/// that is used is checked against the hash that its state had. Where an env does not show its state, or does not come
/// into it again, earlier steps are recomputed from the first one on. A full recording is read, and is recomputed
/// beside it only where the env can be, for its picture.
#[derive(Debug)]
pub struct Seeker<'a> {
    envs: Held<'a>,
    episode: Arc<Episode>,
    /// Position of the last seek.
    head: Head,
    /// Position up to which steps were passed.
    scout: Head,
    passed: Passed,
    /// The reason why nothing is recomputed.
    refused: Option<RecomputeError>,
    picture: Picture,
}

/// The envs, borrowed or shared.
#[derive(Debug)]
enum Held<'a> {
    Borrowed(Envs<'a>),
    Shared(Arc<Registry>),
}

/// The source of pictures of steps.
#[derive(Debug, Clone, Copy)]
enum Picture {
    /// The env draws itself, usually in this size.
    Drawn(ImageSize),
    /// Pictures were recorded beside the steps; the first one has this size.
    Frames(ImageSize),
    /// An image is part of the observation.
    Recorded(RecordedPicture),
    Missing,
}

/// Knowledge of the steps that were passed.
#[derive(Debug)]
struct Passed {
    keyframes: Keyframes,
    /// Running returns of a recording that has its rewards, where nothing is simulated.
    returns: Returns,
    timeline: Timeline,
    checks: Checks,
    /// Number of steps after which the env panicked, if it did: there are no further ones.
    lost_after: Option<u64>,
    /// Whether these are the steps after which it refused a call instead.
    refuses: bool,
}

/// The parts of the recording that are compared as steps are passed.
#[derive(Debug)]
struct Checks {
    /// The time limit, 0 if there is none.
    limit: u64,
    next_window: usize,
    /// The last step at which a hash agreed.
    agreed: u64,
    found: Option<Divergence>,
}

impl<'a> Seeker<'a> {
    /// Makes a seeker that stands before the first step. Nothing is passed yet.
    ///
    /// # Errors
    /// If the steps are not recorded, and the env cannot be made or is not the recorded one.
    pub fn new(
        envs: impl Into<Envs<'a>>,
        episode: Arc<Episode>,
        bounds: &SeekBounds,
    ) -> Result<Self, RecomputeError> {
        Self::of(Held::Borrowed(envs.into()), episode, bounds)
    }

    fn of(held: Held<'a>, episode: Arc<Episode>, bounds: &SeekBounds) -> Result<Self, RecomputeError> {
        let envs = held.get();
        let make = || simulator_of(envs, &episode);
        let (simulators, refused) = match make().and_then(|shown| Ok((shown, make()?))) {
            Ok((shown, passing)) => ((Some(shown), Some(passing)), None),
            Err(error) if episode.steps.is_some() => ((None, None), Some(error.into())),
            Err(error) => return Err(error.into()),
        };
        let spec = &episode.info.run.spec;
        let entry = refused.is_none().then(|| envs.entry_of(&episode.info.run));
        let drawn = entry.and_then(|entry| entry.ok()?.render_size()).map(Picture::Drawn);
        let recorded = || RecordedPicture::of(&spec.obs_columns()).map(Picture::Recorded);
        let frames = || size_of_frames(&episode).map(Picture::Frames);
        let picture = drawn.or_else(frames).or_else(recorded).unwrap_or(Picture::Missing);
        let passed = Passed {
            keyframes: Keyframes::new(bounds),
            returns: Returns::default(),
            timeline: Timeline::new(bounds.buckets),
            checks: Checks::new(&episode),
            lost_after: None,
            refuses: false,
        };
        let (head, scout) = (Head::new(&episode, simulators.0), Head::new(&episode, simulators.1));
        Ok(Self { envs: held, episode, head, scout, passed, refused, picture })
    }

    /// Returns the episode.
    pub const fn episode(&self) -> &Arc<Episode> {
        &self.episode
    }

    /// Goes on with more of the same episode, which was still being recorded: steps that were passed stay passed. An
    /// episode that has fewer steps, or is another one, is not taken; then this returns false.
    pub fn extend(&mut self, episode: Arc<Episode>) -> bool {
        let (old, new) = (&self.episode.info, &episode.info);
        let is_more = old.name == new.name && old.run_id() == new.run_id() && old.length <= new.length;
        if is_more {
            if let (Picture::Missing, Some(size)) = (&self.picture, size_of_frames(&episode)) {
                self.picture = Picture::Frames(size);
            }
            self.episode = episode;
        }
        is_more
    }

    /// Returns the reason why nothing is recomputed, though steps can be sought; there is no picture then.
    pub const fn refused(&self) -> Option<&RecomputeError> {
        self.refused.as_ref()
    }

    /// Returns the number of steps passed so far.
    pub fn passed(&self) -> u64 {
        self.passed.lost_after.or_else(|| self.scout.at()).unwrap_or(0)
    }

    /// Returns whether there is nothing left to pass.
    pub fn has_passed_all(&self) -> bool {
        self.passed.lost_after.is_some() || self.scout.at() == Some(self.episode.info.length)
    }

    /// Returns the rewards and the return of the steps passed so far.
    pub const fn timeline(&self) -> &Timeline {
        &self.passed.timeline
    }

    /// Returns the first difference from the recording among the steps passed so far, a panic of the env included.
    pub const fn divergence(&self) -> Option<&Divergence> {
        self.passed.checks.found.as_ref()
    }

    /// Returns how many keyframes there are, and how many steps lie between two.
    pub const fn keyframes(&self) -> (usize, u64) {
        self.passed.keyframes.extent()
    }

    /// Passes at most `most` further steps for the first time; returns true when there are no more. A panic of the env
    /// is a divergence, and the end of the pass.
    pub fn pass(&mut self, most: u64) -> bool {
        let to = self.passed().saturating_add(most).min(self.episode.info.length);
        self.pass_to(to);
        self.has_passed_all()
    }

    fn pass_to(&mut self, to: u64) {
        let Self { episode, scout, passed, .. } = self;
        if passed.lost_after.is_some() {
            return;
        }
        let begun = if scout.at().is_none() { scout.begin(episode) } else { Ok(()) };
        let done = begun.and_then(|()| match scout.at() {
            Some(at) if at < to => scout.advance(episode, to, |taken| passed.add(episode, taken)),
            _ => Ok(()),
        });
        let (steps, found) = match done {
            Err(SimulateError::Panicked { steps }) => (steps, panicked(steps)),
            Err(SimulateError::Action { steps, .. }) => {
                passed.refuses = true;
                (steps, no_action(steps))
            }
            Err(SimulateError::Call { steps, method, .. }) => {
                passed.refuses = true;
                (steps, refused_call(steps, method))
            }
            Ok(()) | Err(_) => return,
        };
        passed.lost_after = Some(steps);
        passed.checks.found.get_or_insert(found);
    }

    /// Moves to step `t` and returns it; 0 is the reset. Steps that were not passed yet are passed on the way.
    ///
    /// # Errors
    /// If the episode is shorter, or the env panics before that step. Then another step can still be sought.
    pub fn seek(&mut self, t: u64) -> Result<PlayedStep, SimulateError> {
        let length = self.episode.info.length;
        if t > length {
            return Err(SimulateError::NoSuchStep { step: t, length });
        }
        self.pass_to(t);
        match self.passed.lost_after {
            // What refuses a call says so again.
            Some(steps) if !self.passed.refuses && (t > steps || steps == 0) => {
                return Err(SimulateError::Panicked { steps });
            }
            _ => {}
        }
        if let Err(error) = self.bring_to(t) {
            // What panicked is never called again.
            let simulator = simulator_of(self.envs.get(), &self.episode).ok();
            self.head = Head::new(&self.episode, simulator);
            return Err(error);
        }
        Ok(self.head.shown(&self.episode))
    }

    fn bring_to(&mut self, t: u64) -> Result<(), SimulateError> {
        let Self { episode, head, passed, .. } = self;
        // At a keyframe itself there is no observation: the one before the step is taken.
        let keyframe = passed.keyframes.before(t);
        let known = passed.returns.before(t);
        let nearest = keyframe.map(|keyframe| keyframe.at).or(known.map(|known| known.at));
        let goes_on = |at: u64| at == t || at < t && nearest.is_none_or(|nearest| nearest <= at);
        if !head.at().is_some_and(goes_on) {
            let resumed = match (keyframe, known) {
                (Some(keyframe), _) => head.resume(episode, keyframe)?,
                (None, Some(known)) => head.resume_recorded(episode, known)?,
                (None, None) => false,
            };
            if !resumed {
                if keyframe.is_some() {
                    passed.keyframes.give_up();
                }
                head.begin(episode)?;
            }
        }
        head.advance(episode, t, |_| {})
    }

    /// Returns the usual size of pictures; `None` where there are none.
    pub const fn picture_size(&self) -> Option<ImageSize> {
        match &self.picture {
            Picture::Drawn(size) | Picture::Frames(size) => Some(*size),
            Picture::Recorded(recorded) => Some(recorded.size),
            Picture::Missing => None,
        }
    }

    /// Returns the step that [`Seeker::render`] shows. Where pictures were recorded, it is the last step with a picture
    /// at or before the one that was sought last. `None` if there is no picture.
    pub fn picture_step(&self) -> Option<u64> {
        let at = self.head.at()?;
        match &self.picture {
            Picture::Drawn(_) | Picture::Recorded(_) => Some(at),
            Picture::Frames(_) => self.frames().at(at).map(|(step, _)| step),
            Picture::Missing => None,
        }
    }

    fn frames(&self) -> &Frames {
        const NONE: &Frames = &Frames::new();
        self.episode.steps.as_ref().map_or(NONE, |steps| &steps.frames)
    }

    /// Renders the step that was sought last: as the env draws itself, or, where it does not or is not recomputed, as a
    /// recorded picture ([`Seeker::picture_step`] says of which step), or as the image that is part of the observation.
    ///
    /// # Errors
    /// If there is none of them, or no step was sought.
    pub fn render(&self, size: ImageSize) -> Result<Image, RenderError> {
        match &self.picture {
            Picture::Frames(_) => {
                let frame = self.head.at().and_then(|at| self.frames().at(at)).ok_or(RenderError::Lost)?.1;
                // A damaged one is missing.
                frame.unpack().map_err(|_| RenderError::Lost)?.scaled(size)
            }
            Picture::Recorded(recorded) => match self.head.obs_row(&self.episode, recorded.column) {
                Some(ColumnRef::U8(bytes)) => recorded.scaled(bytes, size),
                _ => Err(RenderError::Lost),
            },
            Picture::Drawn(_) | Picture::Missing => self.simulated()?.render(0, size),
        }
    }

    /// Describes the env's state at the step that was sought last, in one line of at most `columns` ASCII characters.
    ///
    /// # Errors
    /// As [`Seeker::render`].
    pub fn text(&self, columns: usize) -> Result<String, RenderError> {
        self.simulated()?.text(0, columns)
    }

    /// Returns the info channels of the step that was sought last, a row each; zeros at the reset.
    pub fn infos(&self) -> Vec<ColumnData> {
        self.head.infos(&self.episode)
    }

    /// Returns the hash of the env's state at the step that was sought last, and the state of its random generator;
    /// `None` where it is not recomputed.
    pub fn standing(&self) -> Option<(u32, Start)> {
        self.simulated().ok()?.standing()
    }

    fn simulated(&self) -> Result<&Simulator, RenderError> {
        match (self.head.at(), self.head.simulator()) {
            (Some(_), Some(simulator)) => Ok(simulator),
            (_, None) => Err(RenderError::Unsupported),
            (None, _) => Err(RenderError::Lost),
        }
    }
}

impl Seeker<'static> {
    /// Makes a seeker as [`Seeker::new`] does, for callers that keep it beside its registry or hand it to other
    /// threads.
    ///
    /// # Errors
    /// As [`Seeker::new`].
    pub fn shared(
        registry: Arc<Registry>,
        episode: Arc<Episode>,
        bounds: &SeekBounds,
    ) -> Result<Self, RecomputeError> {
        Self::of(Held::Shared(registry), episode, bounds)
    }
}

impl Held<'_> {
    fn get(&self) -> Envs<'_> {
        match self {
            Self::Borrowed(envs) => *envs,
            Self::Shared(registry) => Envs::from(&**registry),
        }
    }
}

/// Returns the size of the first recorded picture.
fn size_of_frames(episode: &Episode) -> Option<ImageSize> {
    let (_, frame) = episode.steps.as_ref()?.frames.iter().next()?;
    frame.size().ok()
}

impl Passed {
    fn add(&mut self, episode: &Episode, taken: &Taken<'_>) {
        self.timeline.add(taken.reward, taken.total_reward);
        let Some((env, ended)) = taken.env else { return self.returns.add(taken.t, taken.total_reward) };
        let flags = (ended.terminated.has(0), ended.truncated.has(0));
        if self.checks.is_due(episode, taken.t, flags) {
            self.checks.look(episode, taken, flags, env);
        }
        if taken.t == self.keyframes.due() {
            self.keyframes.keep(taken.t, taken.total_reward, env);
        }
    }
}

impl Checks {
    fn new(episode: &Episode) -> Self {
        let limit = episode.info.run.max_episode_steps.map_or(0, u64::from);
        Self { limit, next_window: 0, agreed: 0, found: None }
    }

    /// Returns whether something may differ at step `t`.
    fn is_due(&self, episode: &Episode, t: u64, flags: (bool, bool)) -> bool {
        self.found.is_none()
            && (flags.0
                || flags.1
                || t == self.limit
                || t == episode.info.length
                || episode.windows.get(self.next_window).is_some_and(|&(age, _)| age == t))
    }

    fn look(&mut self, episode: &Episode, taken: &Taken<'_>, flags: (bool, bool), env: &dyn LaneBlock) {
        let (t, info) = (taken.t, &episode.info);
        let replayed = Replayed {
            terminated: flags.0,
            truncated: flags.1 || self.limit > 0 && t >= self.limit,
            hash: env.state_hash(0),
            total_reward: taken.total_reward,
            verdict: if t == info.length { env.verdict(0) } else { Verdict::default() },
        };
        if let Some(&(_, recorded)) = episode.windows.get(self.next_window).filter(|&&(age, _)| age == t) {
            self.next_window += 1;
            self.found = replayed.state_differs(self.agreed, t, recorded);
            if self.found.is_some() {
                return;
            }
            self.agreed = t;
        }
        self.found = if t < info.length {
            went_on(self.agreed, t, &replayed)
        } else {
            let (outcome, total_reward) = (info.outcome, info.total_reward);
            let (hash, verdict) = (episode.end_hash, info.verdict());
            Ending { length: t, outcome, hash, total_reward, verdict }.differs(self.agreed, &replayed)
        };
    }
}
