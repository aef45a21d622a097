//! The stepping side of a watched session.

use std::sync::Arc;

use rollhouse_core::{AutoresetMode, ColumnData, ColumnRef};
use rollhouse_engine::{Engine, Glance, Received};
use rollhouse_replay::Frame;
use rollhouse_wire::LaneFrame;
use rollhouse_wire::limits::MAX_WATCHED_ROW_BYTES;

use super::tape::{Row, StepBegin, Tape};
use super::{Begin, Live, Snapshot, Wish};

/// Keeps tapes of the watched lanes, and shows what is wanted of them. Belongs to the thread that steps the session.
#[derive(Debug, Default)]
pub(crate) struct Camera {
    lanes: Vec<Filmed>,
    /// Number of steps and resets since somebody watches.
    moves: u64,
    /// The value of `moves` before which steps do nothing for wishes that could not be fulfilled.
    hold: u64,
}

/// A lane that is watched.
#[derive(Debug)]
struct Filmed {
    lane: usize,
    /// The lane's tape; `None` until an episode of it is known.
    tape: Option<Tape>,
    /// The lane's row of each observation column and of each info channel, both back to back, if its last step was one of
    /// some lanes only.
    sent: Option<(Vec<u8>, Vec<u8>)>,
    /// The value of `moves` at which the lane was shown last.
    shown: Option<u64>,
    /// The value of `moves` before which no tape of the lane is begun, as none could be.
    hold: u64,
}

impl Camera {
    /// Films a step of all lanes. Takes as long as a look at each watched lane, and where one is wanted the making of a
    /// frame.
    #[inline(never)]
    pub(crate) fn after_step(&mut self, engine: &mut Engine, live: &Live) {
        self.moves += 1;
        let same_step = engine.autoreset() == AutoresetMode::SameStep;
        let lost = engine.lost() > 0;
        let taken = engine.entry().spec().action_taken();
        // Only an engine that hangs has no frame after a step.
        let Ok((frame, actions)) = engine.frame_and_actions() else { return };
        let actions = taken.map_or(actions.as_ref(), |number| frame.info(number));
        let (columns, lanes) = (frame.obs_columns(), frame.reset().len());
        let elements = actions.len() / lanes.max(1);
        for filmed in &mut self.lanes {
            let (lane, Some(tape)) = (filmed.lane, &mut filmed.tape) else { continue };
            let row = Row {
                reset: frame.reset()[lane] == 1,
                terminated: frame.terminated()[lane] == 1,
                truncated: frame.truncated()[lane] == 1,
                reward: frame.rewards()[lane],
                action: actions.slice(lane * elements, (lane + 1) * elements),
                obs: &|| columns.iter().flat_map(|column| row_bytes(*column, lane, lanes)).collect(),
            };
            tape.step(row, same_step);
            filmed.sent = None;
        }
        // They borrow the engine.
        drop(columns);
        if lost {
            self.forget_lost(engine);
        }
        self.after_move(engine, live);
    }

    /// Films lanes that were sent and came back; `action` returns the action with which a lane was sent.
    pub(crate) fn after_send<'a>(
        &mut self,
        engine: &mut Engine,
        live: &Live,
        action: impl Fn(u32) -> Option<ColumnRef<'a>>,
        received: &Received,
    ) {
        self.moves += 1;
        let same_step = engine.autoreset() == AutoresetMode::SameStep;
        let taken = engine.entry().spec().action_taken().map(|number| received.infos[number].as_ref());
        for filmed in &mut self.lanes {
            let row = received.lanes.iter().position(|&lane| lane as usize == filmed.lane);
            let Some((row, action)) = row.and_then(|row| Some((row, action(filmed.lane as u32)?))) else {
                continue;
            };
            let rows = received.lanes.len();
            let action = taken.map_or(action, |column| {
                let elements = column.len() / rows;
                column.slice(row * elements, (row + 1) * elements)
            });
            if let Some(tape) = &mut filmed.tape {
                let came = Row {
                    reset: received.reset[row] == 1,
                    terminated: received.terminated[row] == 1,
                    truncated: received.truncated[row] == 1,
                    reward: received.rewards[row],
                    action,
                    obs: &|| row_of_all(&received.obs, row, rows),
                };
                tape.step(came, same_step);
            }
            filmed.sent = Some(received_row(received, row));
        }
        if engine.lost() > 0 {
            self.forget_lost(engine);
        }
        self.after_move(engine, live);
    }

    /// Begins anew after something else than a step: a reset, or a command that changes lanes. The tapes are of no use
    /// then.
    pub(crate) fn after_change(&mut self, engine: &mut Engine, live: &Live) {
        self.moves += 1;
        for filmed in &mut self.lanes {
            (filmed.tape, filmed.sent, filmed.hold) = (None, None, 0);
        }
        self.attend(engine, live);
    }

    /// Does what watchers want now, with lanes as they stand.
    pub(crate) fn attend(&mut self, engine: &mut Engine, live: &Live) {
        self.hold = 0;
        self.after_move(engine, live);
    }

    /// Does what watchers want after a step. Wishes that could not be fulfilled are not tried again with each step.
    fn after_move(&mut self, engine: &mut Engine, live: &Live) {
        if let Some(lanes) = live.take_changed() {
            self.turn_to(engine, &lanes);
        }
        let moves = self.moves;
        for filmed in &mut self.lanes {
            if filmed.tape.as_ref().is_none_or(Tape::is_full) && moves >= filmed.hold {
                filmed.tape = tape_of(engine, filmed);
                filmed.hold = if filmed.tape.is_none() { moves + HOLD_MOVES } else { 0 };
            }
        }
        if moves < self.hold {
            return;
        }
        let wishes = live.take_wishes();
        if !wishes.is_empty() {
            let done = self.fulfil(engine, live, &wishes);
            self.hold = if done { 0 } else { moves + HOLD_MOVES };
        }
    }

    #[cold]
    fn turn_to(&mut self, engine: &mut Engine, lanes: &[u32]) {
        let lanes: Vec<usize> =
            lanes.iter().map(|&lane| lane as usize).filter(|&lane| lane < engine.lanes()).collect();
        self.lanes.retain(|filmed| lanes.contains(&filmed.lane));
        for &lane in &lanes {
            if self.lanes.iter().all(|filmed| filmed.lane != lane) {
                self.lanes.push(Filmed { lane, tape: None, sent: None, shown: None, hold: 0 });
            }
        }
        // Refused only by an engine that hangs.
        let _watched = engine.watch(&lanes);
    }

    #[cold]
    fn forget_lost(&mut self, engine: &Engine) {
        for filmed in self.lanes.iter_mut().filter(|filmed| engine.is_lost(filmed.lane)) {
            filmed.tape = None;
        }
    }

    /// Shows what is wanted. Returns whether all of it could be shown.
    #[cold]
    fn fulfil(&mut self, engine: &mut Engine, live: &Live, wishes: &[Wish]) -> bool {
        let mut open = Vec::new();
        for wish in wishes {
            let Some(filmed) = self.lanes.iter_mut().find(|filmed| filmed.lane == wish.lane as usize) else {
                open.push(*wish);
                continue;
            };
            let moved = wish.frame && filmed.shown != Some(self.moves);
            let frame = moved.then(|| frame_of(engine, filmed, wish.picture, self.moves)).flatten();
            if frame.is_some() {
                filmed.shown = Some(self.moves);
            }
            let snapshot = wish.snapshot.then(|| snapshot_of(engine, filmed)).flatten();
            let left = Wish {
                frame: wish.frame && frame.is_none(),
                picture: wish.picture && frame.is_none(),
                snapshot: wish.snapshot && snapshot.is_none(),
                ..*wish
            };
            if left.frame || left.snapshot {
                open.push(left);
            }
            if frame.is_some() || snapshot.is_some() {
                live.show(wish.lane, frame, snapshot);
            }
        }
        if !open.is_empty() {
            live.put_back(&open);
        }
        open.is_empty()
    }
}

/// Steps between two attempts at a failed wish: a lane that has failed or played its quota has no episode.
const HOLD_MOVES: u64 = 64;

/// Begins a tape of the episode under way in a lane, from where it stands; `None` if there is no episode, or no copy of
/// its state just now. Of an env that shows none, what the lane shows is kept instead.
#[cold]
fn tape_of(engine: &mut Engine, filmed: &Filmed) -> Option<Tape> {
    let glance = engine.glance(filmed.lane).ok().filter(|glance| glance.open)?;
    let (obs, _) = row_of(engine, filmed)?;
    let spec = engine.entry().spec();
    let form = ColumnData::zeros(spec.action_column().dtype, 0);
    let hides_state = spec.source.is_learned() || glance.state.is_none() && engine.outstanding() == 0;
    let begin = match glance {
        Glance { position: Some(position), state: Some(state), hash: Some(hash), .. } => {
            StepBegin { step: glance.steps, total_reward: glance.total_reward, position, state, hash, obs }
        }
        Glance { steps: step, total_reward, .. } if hides_state => {
            let begin = StepBegin { step, total_reward, obs, ..StepBegin::default() };
            return Some(Tape::new(glance.number, Begin::Step(Box::new(begin)), &form).keeping_rows());
        }
        _ => return None,
    };
    Some(Tape::new(glance.number, Begin::Step(Box::new(begin)), &form))
}

/// The episode whose row a frame shows.
struct Episode {
    number: u64,
    steps: u64,
    total_reward: f64,
    ended: (bool, bool),
}

impl Episode {
    fn of_tape(tape: &Tape) -> Self {
        Self {
            number: tape.number(),
            steps: tape.steps(),
            total_reward: tape.total_reward(),
            ended: tape.ended(),
        }
    }

    /// Of a lane without a tape: where none is under way, its row is the last one of the episode before.
    fn of_glance(glance: &Glance, ended: (bool, bool)) -> Self {
        match glance.last {
            Some((steps, total_reward)) if !glance.open => {
                Self { number: glance.number.wrapping_sub(1), steps, total_reward, ended }
            }
            _ => Self {
                number: glance.number,
                steps: glance.steps,
                total_reward: glance.total_reward,
                ended: (false, false),
            },
        }
    }
}

/// Returns whether the lane's last step terminated and whether it truncated its episode.
fn ends_of(engine: &mut Engine, lane: usize) -> (bool, bool) {
    let frame = engine.frame();
    frame.map_or((false, false), |frame| (frame.terminated()[lane] == 1, frame.truncated()[lane] == 1))
}

fn frame_of(engine: &mut Engine, filmed: &mut Filmed, picture: bool, moves: u64) -> Option<LaneFrame> {
    let (obs, infos) = row_of(engine, filmed)?;
    let glance = engine.glance(filmed.lane).ok()?;
    let ended = if engine.outstanding() > 0 { (false, false) } else { ends_of(engine, filmed.lane) };
    let keeps_rows = filmed.tape.as_ref().is_some_and(|tape| tape.rows().is_some());
    let picture = if picture && keeps_rows { picture_of(engine, filmed.lane) } else { None };
    if let (Some(tape), Some(picture)) = (&mut filmed.tape, &picture) {
        tape.keep_picture(picture);
    }
    let tape = filmed.tape.as_ref();
    let action = tape.map(Tape::actions).filter(|actions| !actions.is_empty()).map(|actions| {
        let elements = engine.entry().spec().action_column().elements();
        actions.as_ref().slice(actions.len() - elements, actions.len()).bytes().to_vec()
    });
    let shown = match tape {
        Some(tape) => Episode::of_tape(tape),
        None => Episode::of_glance(&glance, ended),
    };
    Some(LaneFrame {
        serial: 0,
        episode: shown.number,
        step: shown.steps,
        total_reward: shown.total_reward,
        reward: tape.map_or(0.0, Tape::reward),
        terminated: shown.ended.0,
        truncated: shown.ended.1,
        action: action.unwrap_or_default(),
        picture: picture
            .filter(|picture| picture.len() + obs.len() <= MAX_WATCHED_ROW_BYTES)
            .map(|picture| picture.to_vec())
            .unwrap_or_default(),
        obs,
        infos,
        state: glance.state.unwrap_or_default(),
        hash: glance.hash,
        position: glance.position.map(Into::into),
        moves,
    })
}

fn snapshot_of(engine: &mut Engine, filmed: &Filmed) -> Option<Snapshot> {
    let glance = engine.glance(filmed.lane).ok()?;
    let tape = filmed.tape.clone()?;
    Some(Snapshot { tape, start: glance.start, hash: glance.hash })
}

/// Returns a picture of a lane whose env shows no state, as a PNG file. Nothing is waited for that other lanes do.
fn picture_of(engine: &mut Engine, lane: usize) -> Option<Arc<[u8]>> {
    engine.entry().render_size().filter(|_| engine.outstanding() == 0)?;
    let image = engine.render(lane, None).ok()?;
    Frame::pack(&image).ok().map(|frame| frame.bytes().into())
}

/// Returns the lane's newest row of each observation column, and of each info channel, both back to back; `None` while the
/// lane is under way.
fn row_of(engine: &mut Engine, filmed: &Filmed) -> Option<(Vec<u8>, Vec<u8>)> {
    if filmed.sent.is_some() {
        return filmed.sent.clone();
    }
    if engine.outstanding() > 0 {
        // The frame would end what is under way.
        return engine.row_beside(filmed.lane).map(|row| received_row(&row, 0));
    }
    let (lane, lanes, count) = (filmed.lane, engine.lanes(), engine.entry().spec().info_channels.len());
    // None before the first reset.
    let frame = engine.frame().ok()?;
    let obs = frame.obs_columns().iter().flat_map(|column| row_bytes(*column, lane, lanes)).collect();
    let count = if frame.reset()[lane] == 0 { count } else { 0 };
    Some((obs, (0..count).flat_map(|index| row_bytes(frame.info(index), lane, lanes)).collect()))
}

/// Returns the observations of a row that was received, and its infos: none where the lane began an episode.
fn received_row(received: &Received, row: usize) -> (Vec<u8>, Vec<u8>) {
    let rows = received.lanes.len();
    let infos = if received.reset[row] == 0 { &received.infos[..] } else { &[] };
    (row_of_all(&received.obs, row, rows), row_of_all(infos, row, rows))
}

fn row_of_all(columns: &[ColumnData], row: usize, rows: usize) -> Vec<u8> {
    columns.iter().flat_map(|column| row_bytes(column.as_ref(), row, rows)).collect()
}

fn row_bytes(column: ColumnRef<'_>, row: usize, rows: usize) -> Vec<u8> {
    let elements = column.len() / rows.max(1);
    column.slice(row * elements, (row + 1) * elements).bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use rollhouse_core::{Claimant, Past, PastEvent, PlayedActions};
    use rollhouse_engine::{EngineConfig, Reset};
    use rollhouse_env::Registry;

    use super::*;

    fn engine() -> Engine {
        let entry = Registry::builtin().get("CartPole-v1").unwrap();
        let mut engine = Engine::new(&entry, EngineConfig::new(3), None).unwrap();
        engine.reset(&Reset::seeded(1, 3)).unwrap();
        engine
    }

    fn step(engine: &mut Engine, action: i64) {
        engine.actions().unwrap().as_i64_mut().unwrap().fill(action);
        engine.step().unwrap();
    }

    /// However a lane comes to be watched, its tape says what it did: played again from its beginning, it comes to the
    /// state that the lane has.
    #[test]
    fn what_a_tape_says_leads_to_where_the_lane_is() {
        let mut engine = engine();
        let (live, mut camera) = (Arc::new(Live::default()), Camera::default());
        (0..5).for_each(|at| step(&mut engine, at % 2));
        let _following = live.follow(1, &Claimant::owner("ada")).unwrap();
        let entry = Registry::builtin().get("CartPole-v1").unwrap();
        for at in 0..200i64 {
            step(&mut engine, i64::from(at % 7 < 4));
            camera.after_step(&mut engine, &live);
            let Some(snapshot) = snapshot_of(&mut engine, &camera.lanes[0]) else { continue };
            let mut again = Engine::new(&entry, EngineConfig::new(1), None).unwrap();
            let actions = snapshot.tape.actions().clone();
            match snapshot.tape.begin() {
                Begin::Reset => {
                    let (number, start) = (snapshot.tape.number(), snapshot.start);
                    let began = Past { lane: 0, what: PastEvent::Began { number, start } };
                    let count = actions.as_ref().len();
                    let played = PastEvent::Played(PlayedActions { count, actions });
                    again.replay(vec![began, Past { lane: 0, what: played }]).unwrap();
                }
                Begin::Step(begin) => {
                    again.reset(&Reset::seeded(0, 1)).unwrap();
                    again.set_states(0..1, vec![begin.state.clone()]).unwrap();
                    actions.as_ref().as_i64().unwrap().iter().for_each(|&action| step(&mut again, action));
                }
            }
            assert_eq!(
                again.glance(0).unwrap().state,
                engine.glance(1).unwrap().state,
                "step {at}: {snapshot:?}"
            );
        }
    }

    /// Symptom: a watcher saw step 0 of an episode with an observation of step 14. Cause: who came between two episodes
    /// was shown the last row of the one and the number of the other. Fix: the row is shown as what it is.
    #[test]
    fn who_comes_between_two_episodes_sees_the_last_row_of_the_first() {
        let mut engine = engine();
        let mut steps = 0;
        while engine.glance(1).unwrap().open {
            step(&mut engine, 1);
            steps += 1;
        }
        let (live, mut camera) = (Arc::new(Live::default()), Camera::default());
        let _following = live.follow(1, &Claimant::owner("ada")).unwrap();
        live.lanes.lock().by_lane.get_mut(&1).unwrap().wants_frame = true;
        live.calls.fetch_or(super::super::WANTED, std::sync::atomic::Ordering::Relaxed);
        camera.attend(&mut engine, &live);
        let (frame, _) = live.lanes.lock().by_lane[&1].frame.after(0).unwrap();
        assert_eq!((frame.episode, frame.step, frame.total_reward), (0, steps, steps as f64));
        assert!(frame.terminated && !frame.truncated && frame.action.is_empty());
    }

    #[test]
    fn a_lane_shows_one_frame_for_each_that_is_wanted_and_none_that_is_not_new() {
        let mut engine = engine();
        let (live, mut camera) = (Arc::new(Live::default()), Camera::default());
        let following = live.follow(2, &Claimant::owner("ada")).unwrap();
        let want = || {
            live.lanes.lock().by_lane.get_mut(&2).unwrap().wants_frame = true;
            live.calls.fetch_or(super::super::WANTED, std::sync::atomic::Ordering::Relaxed);
        };
        let newest = || live.lanes.lock().by_lane[&2].frame.serial();
        (0..100).for_each(|at| {
            step(&mut engine, at % 2);
            camera.after_step(&mut engine, &live);
        });
        assert_eq!(newest(), 0, "nobody wanted any");
        want();
        camera.attend(&mut engine, &live);
        want();
        camera.attend(&mut engine, &live);
        assert_eq!(newest(), 1, "it has not moved");
        (0..200).for_each(|at| {
            step(&mut engine, at % 2);
            camera.after_step(&mut engine, &live);
        });
        assert_eq!(newest(), 2, "what was wanted is shown once it has");
        drop(following);
        camera.after_step(&mut engine, &live);
        assert!(!live.is_watched() && camera.lanes.is_empty());
    }
}
