//! Lanes that play by policies on their nodes: a pool is sent a policy, and then asked for fragments.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rollhouse_core::msgpack::Message;
use rollhouse_core::{AutoresetMode, ColumnSpec, DType, Interruption, Outcome, Role, StepColumns};
use rollhouse_engine::{BatchColumns, Fragment, FragmentColumns, FragmentPart, StepError as Rules};
use rollhouse_wire::{
    ColumnBuffer, FragmentNotes, FragmentPlaces, FrameKind, FrameLayout, LostLane, Notes, PlaySteps,
    PolicyGiven, PolicyLags, PolicyTaken, StepNotes, control,
};

use crate::carrier::{Carrier, SessionStream};
use crate::check::check_notes;
use crate::error::StepError;
use crate::join::{Part, run_together};
use crate::link::Link;
use crate::log::LaneFlags;
use crate::pool::{AsyncPool, Readiness};
use crate::pool_session::{PoolSession, Way};
use crate::session::{Answered, RequestBody, Trouble};

/// The result of a session's part: the lanes that are lost after its last step, or why there is no answer.
type Taken = Result<Vec<LostLane>, Trouble>;

/// What is asked of all sessions of a pool.
struct FragmentRequest<'a, 'f> {
    layout: &'a FrameLayout,
    notes: &'a StepColumns,
    /// Columns of what the policy remembers of each lane; `None` if it remembers nothing.
    states: Option<&'a StepColumns>,
    steps: usize,
    /// How many steps the lanes have taken since they were reset.
    at: u64,
    /// Indices of the observation's columns that hold booleans.
    bools: &'a [usize],
    target: &'a Mutex<&'f mut Fragment>,
    /// What is reported with the first request of all.
    lags: &'a Mutex<PolicyLags>,
}

impl AsyncPool {
    /// Has the lanes play by a policy from now on, and returns once all nodes have it, what it notes of each step. Its file, which
    /// a built-in one has not, goes from here to each node. The lanes are stepped over QUIC.
    ///
    /// # Errors
    /// See [`StepError`]. Of several nodes some may have it then.
    pub async fn follow(&mut self, policy: &PolicyGiven, file: Bytes) -> Result<&StepColumns, StepError> {
        let policy = PolicyGiven { keeps_states: true, ..policy.clone() };
        let body = RequestBody { kind: FrameKind::Policy, columns: file, sidecar: encoded(&policy) };
        let deadline = self.deadline();
        self.settle_sessions(deadline, false).await;
        let Self { sessions, carrier, alarm, .. } = self;
        let way = &Way { carrier: &*carrier, deadline: carrier.at(deadline) };
        let mut taken: Vec<Option<Result<PolicyTaken, Trouble>>> = sessions.iter().map(|_| None).collect();
        let parts = sessions.iter_mut().zip(&mut taken).filter(|(site, _)| !site.session.is_out());
        let parts = parts.map(|(site, slot)| {
            let body = body.clone();
            Box::pin(async move { *slot = Some(site.follow(way, body).await) }) as Part<'_>
        });
        let waited = alarm.within(deadline, run_together(parts.collect(), || false)).await;
        if waited.is_none() {
            return Err(self.timed_out());
        }
        let ready = self.readiness;
        let mut of_policy = None;
        let mut judged = Vec::new();
        for taken in taken {
            judged.push(taken.map(|taken| {
                taken.map(|taken| {
                    of_policy.get_or_insert(taken);
                    Vec::new()
                })
            }));
        }
        self.judge(judged, ready, false)?;
        self.readiness = ready;
        Ok(&self.noted.insert(of_policy.unwrap_or_default()).columns)
    }

    /// Returns what the policy notes of each step by which the lanes play; `None` without one.
    pub fn noted(&self) -> Option<&StepColumns> {
        self.noted.as_ref().map(|noted| &noted.columns)
    }

    /// Has a node count what its owner has measured of the policy, with the next fragment.
    pub fn report_lags(&mut self, lags: PolicyLags) {
        self.lags = lags;
    }

    /// Returns the columns of the fragments of this pool; `None` before it follows a policy.
    pub fn fragment_columns(&self) -> Option<FragmentColumns> {
        let same_step = self.kind.autoreset == AutoresetMode::SameStep;
        let batch = BatchColumns::of(&self.kind.spec, same_step);
        let PolicyTaken { columns, states } = self.noted.as_ref()?;
        let states = states.as_ref().map(|states| states.specs().to_vec());
        Some(FragmentColumns { batch, notes: columns.specs().to_vec(), states })
    }

    /// Plays until the fragment is full, by the policy that the pool [follows](AsyncPool::follow). `at` says how many steps
    /// the lanes have taken since they were reset. Lanes whose node is lost go on elsewhere, and show what they would have
    /// shown, where the pool resumes its lanes.
    ///
    /// # Errors
    /// See [`StepError`]; what the fragment has is not known then, and the pool has to be reset, but where no lane has moved.
    pub async fn play(&mut self, at: u64, fragment: &mut Fragment) -> Result<(), StepError> {
        self.refuse_order()?;
        let Some(PolicyTaken { columns: notes, states }) = self.noted.clone() else {
            return Err(Rules::NoPolicy.into());
        };
        self.first_done = None;
        let lost_before = self.lanes_lost();
        let deadline = self.deadline();
        self.settle_sessions(deadline, false).await;
        let ready = std::mem::replace(&mut self.readiness, Readiness::NeedsReset);
        fragment.begin(&self.newest());
        let (reports, steps) = (self.reports_losses(), fragment.room());
        let Self { sessions, carrier, kind, alarm, lags, .. } = self;
        let way = &Way { carrier: &*carrier, deadline: carrier.at(deadline) };
        let mut taken: Vec<Option<Taken>> = sessions.iter().map(|_| None).collect();
        let (target, lags) = (Mutex::new(fragment), Mutex::new(std::mem::take(lags)));
        let waited = {
            let asked = &FragmentRequest {
                layout: &kind.layout,
                notes: &notes,
                states: states.as_ref(),
                steps,
                at,
                bools: &kind.bools,
                target: &target,
                lags: &lags,
            };
            let parts = sessions.iter_mut().zip(&mut taken).filter(|(site, _)| !site.session.is_out());
            let parts = parts.map(|(site, slot)| {
                Box::pin(async move { *slot = Some(site.play(way, asked).await) }) as Part<'_>
            });
            alarm.within(deadline, run_together(parts.collect(), || false)).await
        };
        if waited.is_none() {
            return Err(self.timed_out());
        }
        let fragment = target.into_inner();
        let mut news = false;
        for site in sessions.iter_mut().filter(|site| site.session.gone().is_some()) {
            news |= reports && site.session.gone().is_some_and(|gone| !gone.reported);
            let now = site.session.report_gone();
            fragment.stand_still(site.played, site.lanes(), now);
        }
        if let Err(error) = self.judge(taken, ready, news) {
            if self.sessions.iter().any(|site| site.played > 0) {
                // Some have moved, and nobody is shown where to.
                self.readiness = Readiness::NeedsReset;
            }
            return Err(error);
        }
        fragment.land_all();
        self.batch.next_frame().land_last(fragment);
        self.note_ends(&lost_before);
        Ok(())
    }
}

impl<C: Carrier> PoolSession<C> {
    /// Sends the policy to its node.
    async fn follow(&mut self, way: &Way<'_, C>, body: RequestBody) -> Result<PolicyTaken, Trouble> {
        self.link.play(&mut self.terms).map_err(Trouble::Refused)?;
        self.ask(body.clone(), way);
        self.answer(way).await?;
        let now = way.carrier.now();
        let taken = control::decode::<PolicyTaken>(self.sidecar());
        let taken = taken.map_err(|error| self.distrust(now, error.to_string()))?;
        self.session.follows(body, taken.states.as_ref());
        Ok(taken)
    }

    /// Plays so many steps, in as many requests as its node wants. Returns the lanes that are lost after the last.
    async fn play(&mut self, way: &Way<'_, C>, asked: &FragmentRequest<'_, '_>) -> Taken {
        let mut lost = Vec::new();
        self.played = 0;
        self.show_states(asked);
        while self.played < asked.steps {
            let play = PlaySteps {
                steps: (asked.steps - self.played) as u32,
                at: asked.at + self.played as u64,
                lags: std::mem::take(&mut asked.lags.lock()),
            };
            let body = RequestBody { kind: FrameKind::Play, columns: Bytes::new(), sidecar: encoded(&play) };
            self.ask(body, way);
            self.answer(way).await?;
            let now = way.carrier.now();
            (self.played, lost) = self.land_fragment(now, asked).map_err(|what| self.distrust(now, what))?;
        }
        Ok(lost)
    }

    /// Writes into the fragment what the policy remembers of the lanes before its first step.
    fn show_states(&self, asked: &FragmentRequest<'_, '_>) {
        let Some(states) = asked.states else { return };
        let zeros = |spec: &ColumnSpec| vec![0.0; self.lanes.len() * spec.elements()];
        let mut fragment = asked.target.lock();
        match self.session.memory() {
            Some(memory) => fragment.remember(&self.lanes, &memory.rows),
            None => fragment.remember(&self.lanes, &states.specs().iter().map(zeros).collect::<Vec<_>>()),
        }
    }

    /// Writes the answer's rows into the fragment. Returns the steps that are done, and the lanes that are lost after the last.
    fn land_fragment(
        &mut self,
        now: Duration,
        asked: &FragmentRequest<'_, '_>,
    ) -> Result<(usize, Vec<LostLane>), String> {
        let said: FragmentNotes = control::decode(self.sidecar()).map_err(|error| error.to_string())?;
        let Self { session, link, lanes, played, .. } = self;
        let Link::Stream(stream) = link else { return Err("a fragment that came by memory".to_owned()) };
        let columns = stream.columns().ok_or("the answer is gone")?;
        let steps = said.steps as usize;
        let places = Some(steps).filter(|steps| (1..=asked.steps - *played).contains(steps));
        let places = places.and_then(|steps| {
            let states = asked.states.map(StepColumns::specs);
            asked.layout.fragment((steps, lanes.len()), asked.notes.specs(), said.finals.len(), states)
        });
        let Some(places) = places.filter(|places| places.bytes == columns.bytes().len()) else {
            return Err(format!("a fragment of {steps} steps in {} bytes", columns.bytes().len()));
        };
        check(&said, steps, lanes.len())?;
        let rows = Rows { places: &places, columns, layout: asked.layout, notes: asked.notes };
        if !rows.flags_are_sound(asked.bools) {
            return Err("a fragment with flags that are neither 0 nor 1".to_owned());
        }
        let mut target = asked.target.lock();
        target.land(&rows.part(*played, steps, lanes, &said));
        let (mut losses, nothing) = (Vec::new(), Notes::default());
        let mut notes = said.notes.iter().peekable();
        for step in 0..steps {
            let noted = notes.next_if(|noted| noted.step as usize == step);
            let noted = noted.map_or(&nothing, |noted| &noted.notes);
            losses.clone_from(&noted.lost);
            let known = losses.len();
            let of_step = step * lanes.len()..(step + 1) * lanes.len();
            let (flags, taken) = (rows.flags(&of_step), Some(rows.actions(&of_step)));
            session.note_batch(&Answered { now, flags, taken, notes: noted }, &mut losses);
            let lane = |loss: &LostLane| lanes.start + loss.lane as usize;
            target.lose(*played + step, losses.iter().map(lane), losses[known..].iter().map(lane));
        }
        if let Some(memory) = &places.memory {
            session.remembers(memory.read(columns));
        }
        // A lane whose episode its policy gave up is there.
        losses.retain(|loss| loss.outcome != Outcome::Interrupted(Interruption::Policy).code());
        Ok((*played + steps, losses))
    }
}

/// The rows of an answer.
struct Rows<'a> {
    places: &'a FragmentPlaces,
    columns: &'a ColumnBuffer,
    layout: &'a FrameLayout,
    notes: &'a StepColumns,
}

impl<'a> Rows<'a> {
    /// Returns the rows as a part of the pool's fragment.
    fn part(
        &self,
        at: usize,
        steps: usize,
        lanes: &Range<usize>,
        said: &'a FragmentNotes,
    ) -> FragmentPart<'a> {
        let Self { places, columns, layout, notes } = *self;
        let all = |specs: &[ColumnSpec], places: &[Range<usize>]| {
            specs
                .iter()
                .zip(places)
                .map(|(spec, place)| columns.column(place, spec.dtype))
                .collect::<Vec<_>>()
        };
        let infos = all(&layout.infos, &places.infos);
        let reported = layout.infos.iter().position(|channel| channel.role == Role::PolicyVersion);
        let flags = |place: &Range<usize>| &columns.bytes()[place.clone()];
        FragmentPart {
            at,
            steps,
            lanes: lanes.clone(),
            obs: all(&layout.obs, &places.obs),
            actions: columns.column(&places.actions, layout.action.dtype),
            notes: all(notes.specs(), &places.notes),
            rewards: columns.column(&places.rewards, DType::F64).as_f64().unwrap_or_default(),
            terminated: flags(&places.terminated),
            truncated: flags(&places.truncated),
            reset: flags(&places.reset),
            version: said.version,
            versions: reported.and_then(|channel| infos[channel].as_i64()),
            finals: &said.finals,
            final_obs: all(&layout.obs, &places.final_obs),
            infos,
        }
    }

    /// Returns whether flags and booleans are all 0 or 1.
    fn flags_are_sound(&self, bools: &[usize]) -> bool {
        let Self { places, columns, .. } = self;
        let flags = [&places.terminated, &places.truncated, &places.reset];
        let of_obs =
            bools.iter().flat_map(|&column| [Some(&places.obs[column]), places.final_obs.get(column)]);
        let all = flags.into_iter().chain(of_obs.flatten());
        all.flat_map(|place| &columns.bytes()[place.clone()]).all(|&flag| flag <= 1)
    }

    /// Returns the flags of the rows of a step.
    fn flags(&self, rows: &Range<usize>) -> LaneFlags<'a> {
        let bytes = self.columns.bytes();
        let of = |place: &Range<usize>| &bytes[place.start + rows.start..place.start + rows.end];
        let FragmentPlaces { terminated, truncated, reset, .. } = self.places;
        LaneFlags { terminated: of(terminated), truncated: of(truncated), reset: of(reset) }
    }

    /// Returns the actions of the rows of a step, as bytes of a column.
    fn actions(&self, rows: &Range<usize>) -> &'a [u8] {
        let (width, first) = (self.layout.action.row_bytes(), self.places.actions.start);
        &self.columns.bytes()[first + rows.start * width..first + rows.end * width]
    }
}

/// Refuses what a node says of a fragment that cannot be.
fn check(said: &FragmentNotes, steps: usize, lanes: usize) -> Result<(), String> {
    let rows = said.finals.iter().all(|&row| (row as usize) < steps * lanes);
    if !rows || !said.finals.is_sorted_by(|one, next| one < next) {
        return Err("last observations of rows that the fragment has not".to_owned());
    }
    let in_order = said.notes.is_sorted_by(|one, next| one.step < next.step);
    if !in_order || said.notes.last().is_some_and(|last| last.step as usize >= steps) {
        return Err("notes of steps that the fragment has not".to_owned());
    }
    said.notes.iter().try_for_each(|StepNotes { notes, .. }| check_notes(notes, &notes.lost, lanes))
}

/// Encodes a sidecar.
fn encoded(message: &impl Message) -> Bytes {
    let mut bytes = Vec::new();
    let encoded = control::encode(message, &mut bytes);
    debug_assert!(encoded.is_ok(), "names and numbers are short");
    Bytes::from(bytes).slice(size_of::<u32>()..)
}
