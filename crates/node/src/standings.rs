//! What heartbeats tell of where lanes stand.

use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;
use rollhouse_replay::Recorder;
use rollhouse_wire::{SessionId, SessionStanding};

/// Where the lanes of sessions stand, on the way to the coordinator: looked at, written out, told.
#[derive(Debug, Default)]
pub(crate) struct Standings(Mutex<OnTheirWay>);

#[derive(Debug, Default)]
struct OnTheirWay {
    /// The session that was looked at last: the next ones have their turn.
    last: Option<SessionId>,
    /// Those that are to be told.
    told: Vec<SessionStanding>,
    /// Whether what sessions had recorded is being written out.
    writing: bool,
}

impl Standings {
    /// Returns what is to be told now, and the session after which others have their turn to be looked at, unless what was
    /// looked at last is still being written out.
    pub(crate) fn take(&self) -> (Vec<SessionStanding>, Option<Bound<SessionId>>) {
        let mut state = self.0.lock();
        let next = (!state.writing).then(|| state.last.map_or(Bound::Unbounded, Bound::Excluded));
        (std::mem::take(&mut state.told), next)
    }

    /// Has those told once the recorder has written out what they had recorded. Does not wait for it.
    pub(crate) fn tell(
        self: &Arc<Self>,
        standings: Vec<SessionStanding>,
        last: Option<SessionId>,
        recorder: Option<Arc<Recorder>>,
    ) {
        let mut state = self.0.lock();
        state.last = last;
        let Some(recorder) = recorder.filter(|_| !standings.is_empty()) else {
            state.told = standings;
            return;
        };
        state.writing = true;
        let own = Arc::clone(self);
        // Task: write-out.
        drop(tokio::task::spawn_blocking(move || {
            // What cannot be written is counted as lost by the recorder.
            let _written = recorder.write_out();
            let mut state = own.0.lock();
            (state.told, state.writing) = (standings, false);
        }));
    }
}
