//! Lanes that play by a policy of their owner's, some steps a request.
//!
//! ```text
//! none --policy--> follows it --play--> steps, until as many are done as are asked for, or fit an answer, or take long
//!                  a later policy takes its place between two requests
//! ```

use std::time::{Duration, Instant};

use bytes::Bytes;
use rollhouse_core::cut_text;
use rollhouse_core::limits::MAX_NAME_BYTES;
use rollhouse_engine::{Fragment, PlayError, Player, StepError};
use rollhouse_policy::{ModelError, model_of};
use rollhouse_wire::limits::{MAX_FRAGMENT_BYTES, MAX_SIDECAR_BYTES};
use rollhouse_wire::{
    BEGAN_BYTES, ColumnBuffer, FragmentNotes, FrameKind, FrameLayout, Notes, PlaySteps, PlaysReport,
    PolicyGiven, PolicyLags, PolicyTaken, Refusal, RefusalCode, StepNotes, control,
};

use super::{FrameRequest, OwnedSession, RequestFault, refusal_of};
use crate::answer::Sidecar;
use crate::plan::bad_policy;

/// The policy by which lanes play, and what it has played since the last answer.
#[derive(Debug)]
pub(super) struct Played {
    player: Player,
    fragment: Fragment,
    notes: FragmentNotes,
    /// Bytes of the notes, at most.
    noted: usize,
    /// What the owner has measured, until it is counted.
    lags: PolicyLags,
    /// By how many updates what the owner was given last was older than the newest policy.
    lag: Option<u32>,
}

/// A request to play that is under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Play {
    steps: usize,
    /// When it is answered with the steps that are done.
    until: Instant,
}

impl OwnedSession {
    /// Takes a policy, by which the lanes play from now on.
    pub(super) fn follow(
        &mut self,
        number: u32,
        request: &FrameRequest,
    ) -> Result<Result<Bytes, Refusal>, RequestFault> {
        let given: PolicyGiven = control::decode(&request.sidecar).map_err(|_| RequestFault::Policy)?;
        Ok(self.follow_model(&given, request.columns.bytes()).map(|taken| {
            let answer = self.new_answer();
            answer.finish(FrameKind::Follows, false, number, &Sidecar::Policy(&taken))
        }))
    }

    fn follow_model(&mut self, given: &PolicyGiven, file: &[u8]) -> Result<PolicyTaken, Refusal> {
        let PolicyGiven { name, version, seed, sampling, keeps_states } = given;
        let bad = |error: &dyn std::error::Error| bad_policy(name, error);
        let model = model_of(name, *version, *sampling, file).map_err(|error| bad(&error))?;
        let spec = self.engine.entry().spec();
        let (columns, states) = (model.columns(spec), model.states(spec));
        let is_recurrent = model.is_recurrent(spec);
        if is_recurrent && !keeps_states {
            return Err(bad(&ModelError::Forgetful));
        }
        match &mut self.played {
            Some(played) if played.player.is_like(&*model, spec) => {
                played.player.follow(&self.engine, &*model, *seed).map_err(|error| bad(&error))?;
            }
            _ => {
                let player = Player::new(&self.engine, &*model, *seed).map_err(|error| bad(&error))?;
                self.played = Some(Box::new(self.played_by(player)?));
            }
        }
        Ok(PolicyTaken { columns, states: is_recurrent.then_some(states) })
    }

    /// Takes what the policy of another node has remembered of the lanes.
    pub(super) fn recall(
        &mut self,
        number: u32,
        given: &ColumnBuffer,
    ) -> Result<Result<Bytes, Refusal>, RequestFault> {
        let lanes = self.lanes();
        let Some(played) = &mut self.played else { return Ok(Err(refusal_of(&StepError::NoPolicy))) };
        let places = FrameLayout::memory(lanes, played.player.states().specs());
        let places = places.filter(|places| places.end() == given.bytes().len());
        let places = places.ok_or(RequestFault::Memory)?;
        if !played.player.recall(&self.engine, places.read(given)) {
            return Err(RequestFault::Memory);
        }
        Ok(Ok(self.new_answer().finish(FrameKind::Resumed, false, number, &Sidecar::Nothing)))
    }

    /// Makes room for what a policy plays between two answers.
    fn played_by(&self, player: Player) -> Result<Played, Refusal> {
        let (columns, lanes) = (player.columns(&self.engine), self.lanes());
        let Some(places) = self.layout.fragment((1, lanes), &columns.notes, lanes, columns.states.as_deref())
        else {
            let message = format!("one step of {lanes} lanes is larger than a frame");
            return Err(Refusal::new(RefusalCode::BadRequest, message));
        };
        let room = (MAX_FRAGMENT_BYTES / places.bytes.max(1)).clamp(1, MAX_STEPS);
        let fragment = Fragment::new(&columns, lanes, room);
        Ok(Played {
            player,
            fragment,
            notes: FragmentNotes::default(),
            noted: 0,
            lags: PolicyLags::default(),
            lag: None,
        })
    }

    /// Begins to play. Returns what is to be waited for.
    pub(super) fn play(&mut self, sidecar: &[u8]) -> Result<Result<Play, Refusal>, RequestFault> {
        let PlaySteps { steps, at, lags } = control::decode(sidecar).map_err(|_| RequestFault::Play)?;
        if steps == 0 {
            return Err(RequestFault::Play);
        }
        let Some(played) = &mut self.played else {
            return Ok(Err(refusal_of(&StepError::NoPolicy)));
        };
        let frame = match self.engine.frame() {
            Ok(frame) => frame,
            Err(error) => return Ok(Err(refusal_of(&error))),
        };
        played.player.stand_at(at);
        played.fragment.begin(&frame);
        played.notes = FragmentNotes { version: played.player.version(), ..FragmentNotes::default() };
        played.noted = 0;
        played.lag = lags.data.last().copied().or(played.lag);
        played.lags = lags;
        self.begun = true;
        let steps = (steps as usize).min(played.fragment.room());
        Ok(Ok(Play { steps, until: Instant::now() + SLICE }))
    }

    /// Returns the policy by which the lanes play, if they do.
    pub(crate) fn plays(&self) -> Option<PlaysReport> {
        let Played { player, lag, .. } = &**self.played.as_ref()?;
        let policy = cut_text(player.name().to_owned(), MAX_NAME_BYTES);
        Some(PlaysReport { policy, version: player.version(), lag: *lag })
    }

    /// Returns what the owner has measured of the policy that the lanes play by, with the env and its name; only once.
    pub(crate) fn take_lags(&mut self) -> Option<(String, String, PolicyLags)> {
        let Played { player, lags, .. } = &mut **self.played.as_mut()?;
        let lags = std::mem::take(lags);
        let names = || (self.engine.entry().spec().id.clone(), player.name().to_owned());
        (!lags.is_empty()).then(names).map(|(env, policy)| (env, policy, lags))
    }

    /// Plays until enough is done. `None` while lanes are under way that are waited for.
    pub(super) fn play_on(
        &mut self,
        number: u32,
        play: Play,
        patience: Duration,
    ) -> Result<Option<Bytes>, Refusal> {
        let Some(mut played) = self.played.take() else {
            return Err(Refusal::new(RefusalCode::Internal, "the session plays by no policy"));
        };
        let done = self.steps_done(&mut played, play, patience);
        let answer = match done {
            Ok(true) => self.fragment_answer(number, &mut played).map(Some),
            Ok(false) => Ok(None),
            Err(refusal) => Err(refusal),
        };
        self.played = Some(played);
        answer
    }

    /// Returns whether the steps that are done are to be answered.
    fn steps_done(&mut self, played: &mut Played, play: Play, patience: Duration) -> Result<bool, Refusal> {
        // What one more step may add.
        let most = self.lanes() * (BEGAN_BYTES + HASH_BYTES + LOST_BYTES) + STEP_BYTES;
        loop {
            match played.player.step(&mut self.engine, &mut played.fragment, patience) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                // What was played is answered first: with a refusal nothing has moved.
                Err(_) if played.fragment.steps() > 0 => return Ok(true),
                Err(error) => return Err(refusal_of_play(&error)),
            }
            self.show_step();
            self.note_step(played);
            let steps = played.fragment.steps();
            if steps >= play.steps
                || played.noted + most
                    > MAX_SIDECAR_BYTES - FINALS_BYTES * played.fragment.finals().rows.len()
                || Instant::now() >= play.until
            {
                return Ok(true);
            }
        }
    }

    /// Keeps what is to be noted of the step that is done.
    fn note_step(&mut self, played: &mut Played) {
        self.look_for_losses();
        let given_up = played.player.given_up();
        let notes = if given_up.is_empty() { self.notes() } else { Some(self.notes_of_losses(given_up)) };
        if let Some(notes) = notes {
            let step = played.fragment.steps() as u32 - 1;
            let Notes { lost, began, hashes, .. } = &notes;
            played.noted += lost.len() * LOST_BYTES + began.len() + hashes.len() + STEP_BYTES;
            played.notes.notes.push(StepNotes { step, notes });
        }
    }

    fn fragment_answer(&mut self, number: u32, played: &mut Played) -> Result<Bytes, Refusal> {
        let Played { fragment, notes, player, .. } = played;
        let remembered = player.memory(&mut self.engine).map_err(|error| refusal_of(&error))?;
        notes.steps = fragment.steps() as u32;
        notes.finals = fragment.finals().rows.iter().map(|&row| row as u32).collect();
        let mut answer = self.new_answer();
        answer.fragment(&self.layout, fragment);
        remembered.iter().for_each(|lanes| answer.memory(lanes));
        Ok(answer.finish(FrameKind::Fragment, false, number, &Sidecar::Fragment(notes)))
    }
}

fn refusal_of_play(error: &PlayError) -> Refusal {
    match error {
        PlayError::Step(error) => refusal_of(error),
        PlayError::Act(error) => Refusal::new(RefusalCode::BadRequest, error.to_string()),
    }
}

/// Steps of one answer.
const MAX_STEPS: usize = 4096;

/// Time after which a request to play is answered with the steps that are done: others of the node have their turns then.
const SLICE: Duration = Duration::from_millis(50);

/// Bytes that a note of a lane takes, at most: of a hash, and of its loss.
const HASH_BYTES: usize = 8;
const LOST_BYTES: usize = 32;

/// Bytes around the notes of a step, at most.
const STEP_BYTES: usize = 64;

/// Bytes of the place of a last observation, at most.
const FINALS_BYTES: usize = 5;
