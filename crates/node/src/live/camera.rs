//! The stepping side of a session that is watched.

use rollhouse_core::{ColumnData, ColumnRef};
use rollhouse_engine::{Autoreset, Engine, Received};
use rollhouse_wire::{LaneFrame, column_bytes};

use super::tape::{Row, StepBegin, Tape};
use super::{Begin, Live, Snapshot, Wish};

/// Keeps tapes of the lanes that are watched, and shows what is wanted of them. Belongs to whoever steps the session.
#[derive(Debug, Default)]
pub(crate) struct Camera {
    lanes: Vec<Filmed>,
    /// Steps and resets since somebody watches.
    moves: u64,
}

/// A lane that is watched.
#[derive(Debug)]
struct Filmed {
    lane: usize,
    /// `None` until an episode of it is known.
    tape: Option<Tape>,
    /// Its row of each observation column, back to back, if its last step was one of some lanes only.
    sent_obs: Option<Vec<u8>>,
    /// The moves at which it was shown last.
    shown: Option<u64>,
}

impl Camera {
    /// After a step of all lanes. Takes as long as a look at each lane that is watched, and where one is wanted the
    /// making of a frame.
    #[inline(never)]
    pub(crate) fn after_step(&mut self, engine: &mut Engine, live: &Live) {
        self.moves += 1;
        let same_step = engine.autoreset() == Autoreset::SameStep;
        let lost = engine.lost() > 0;
        // Only an engine that hangs has no frame after a step.
        let Ok((frame, actions)) = engine.frame_and_actions() else { return };
        let (frame, actions) = (frame, actions.as_ref());
        let elements = actions.len() / frame.reset().len().max(1);
        for filmed in &mut self.lanes {
            let (lane, Some(tape)) = (filmed.lane, &mut filmed.tape) else { continue };
            let row = Row {
                reset: frame.reset()[lane] == 1,
                terminated: frame.terminated()[lane] == 1,
                truncated: frame.truncated()[lane] == 1,
                reward: frame.rewards()[lane],
                action: actions.slice(lane * elements, (lane + 1) * elements),
            };
            tape.step(row, same_step);
            filmed.sent_obs = None;
        }
        if lost {
            self.forget_lost(engine);
        }
        self.attend(engine, live);
    }

    /// After lanes were sent together and came back; row i of `actions` is for `lanes[i]`.
    pub(crate) fn after_send(
        &mut self,
        engine: &mut Engine,
        live: &Live,
        (lanes, actions): (&[u32], ColumnRef<'_>),
        received: &Received,
    ) {
        self.moves += 1;
        let same_step = engine.autoreset() == Autoreset::SameStep;
        let elements = actions.len() / lanes.len().max(1);
        for filmed in &mut self.lanes {
            let at = |all: &[u32]| all.iter().position(|&lane| lane as usize == filmed.lane);
            let (Some(sent), Some(row)) = (at(lanes), at(&received.lanes)) else { continue };
            if let Some(tape) = &mut filmed.tape {
                let came = Row {
                    reset: received.reset[row] == 1,
                    terminated: received.terminated[row] == 1,
                    truncated: received.truncated[row] == 1,
                    reward: received.rewards[row],
                    action: actions.slice(sent * elements, (sent + 1) * elements),
                };
                tape.step(came, same_step);
            }
            let rows = received.lanes.len();
            let columns = received.obs.iter().map(ColumnData::as_ref);
            filmed.sent_obs = Some(columns.flat_map(|column| row_bytes(column, row, rows)).collect());
        }
        if engine.lost() > 0 {
            self.forget_lost(engine);
        }
        self.attend(engine, live);
    }

    /// After something else than a step: a reset, or a command that changes lanes. What the tapes know is of no use.
    pub(crate) fn after_change(&mut self, engine: &mut Engine, live: &Live) {
        self.moves += 1;
        for filmed in &mut self.lanes {
            (filmed.tape, filmed.sent_obs) = (None, None);
        }
        self.attend(engine, live);
    }

    /// Does what those who watch want now, with lanes as they stand.
    pub(crate) fn attend(&mut self, engine: &mut Engine, live: &Live) {
        if let Some(lanes) = live.take_changed() {
            self.turn_to(engine, &lanes);
        }
        for filmed in &mut self.lanes {
            if filmed.tape.as_ref().is_none_or(Tape::is_full) {
                filmed.tape = tape_of(engine, filmed);
            }
        }
        let wishes = live.take_wishes();
        if !wishes.is_empty() {
            self.fulfil(engine, live, &wishes);
        }
    }

    #[cold]
    fn turn_to(&mut self, engine: &mut Engine, lanes: &[u32]) {
        let lanes: Vec<usize> =
            lanes.iter().map(|&lane| lane as usize).filter(|&lane| lane < engine.lanes()).collect();
        self.lanes.retain(|filmed| lanes.contains(&filmed.lane));
        for &lane in &lanes {
            if self.lanes.iter().all(|filmed| filmed.lane != lane) {
                self.lanes.push(Filmed { lane, tape: None, sent_obs: None, shown: None });
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

    #[cold]
    fn fulfil(&mut self, engine: &mut Engine, live: &Live, wishes: &[Wish]) {
        let mut open = Vec::new();
        for wish in wishes {
            let Some(filmed) = self.lanes.iter_mut().find(|filmed| filmed.lane == wish.lane as usize) else {
                open.push(*wish);
                continue;
            };
            let moved = wish.frame && filmed.shown != Some(self.moves);
            let frame = moved.then(|| frame_of(engine, filmed, self.moves)).flatten();
            if frame.is_some() {
                filmed.shown = Some(self.moves);
            }
            let snapshot = wish.snapshot.then(|| snapshot_of(engine, filmed)).flatten();
            let left = Wish {
                frame: wish.frame && frame.is_none(),
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
    }
}

/// A tape of the episode that is under way in a lane, from where it stands; `None` if none is, or its state is not to
/// be had.
#[cold]
fn tape_of(engine: &mut Engine, filmed: &Filmed) -> Option<Tape> {
    let glance = engine.glance(filmed.lane).ok().filter(|glance| glance.open)?;
    let obs = obs_of(engine, filmed)?;
    let begin = StepBegin {
        step: glance.steps,
        total_reward: glance.total_reward,
        position: glance.position?,
        state: glance.state?,
        hash: glance.hash?,
        obs,
    };
    let action = engine.entry().spec().action_column();
    let form = ColumnData::zeros(action.dtype, 0);
    Some(Tape::new(glance.number, Begin::Step(Box::new(begin)), &form))
}

fn frame_of(engine: &mut Engine, filmed: &Filmed, moves: u64) -> Option<LaneFrame> {
    let obs = obs_of(engine, filmed)?;
    let glance = engine.glance(filmed.lane).ok()?;
    let tape = filmed.tape.as_ref();
    let action = tape.map(Tape::actions).filter(|actions| !actions.is_empty()).map(|actions| {
        let elements = engine.entry().spec().action_column().elements();
        column_bytes(actions.as_ref().slice(actions.len() - elements, actions.len())).to_vec()
    });
    let (terminated, truncated) = tape.map_or((false, false), Tape::ended);
    Some(LaneFrame {
        serial: 0,
        episode: tape.map_or(glance.number, Tape::number),
        step: tape.map_or(glance.steps, Tape::steps),
        total_reward: tape.map_or(glance.total_reward, Tape::total_reward),
        reward: tape.map_or(0.0, Tape::reward),
        terminated,
        truncated,
        action: action.unwrap_or_default(),
        obs,
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

/// The lane's row of each observation column.
fn obs_of(engine: &mut Engine, filmed: &Filmed) -> Option<Vec<u8>> {
    if let Some(sent) = &filmed.sent_obs {
        return Some(sent.clone());
    }
    let lanes = engine.lanes();
    // None before the first reset.
    let frame = engine.frame().ok()?;
    Some(frame.obs_columns().iter().flat_map(|column| row_bytes(*column, filmed.lane, lanes)).collect())
}

fn row_bytes(column: ColumnRef<'_>, row: usize, rows: usize) -> Vec<u8> {
    let elements = column.len() / rows.max(1);
    column_bytes(column.slice(row * elements, (row + 1) * elements)).to_vec()
}
