//! Live lanes: worlds that tick by a pace, whatever their owner does.
//!
//! A step puts its action into the lane's queue and is answered with the row of the next tick that takes it, as any step is.
//! What is here is for owners that do not wait for one.

use bytes::Bytes;
use rollhouse_arena::Frame;
use rollhouse_core::ColumnRef;
use rollhouse_engine::{PaceAnswer, PaceControl, PaceLanes, PaceParams, StepError as Rules};
use rollhouse_wire::FrameKind;

use crate::error::{MethodError, StepError};
use crate::pool::{AsyncPool, Readiness};
use crate::pool_session::Way;
use crate::session::RequestBody;
use crate::under_way::columns_of;

impl AsyncPool {
    /// Returns the newest rows of all lanes at once, without waiting for a tick: one round trip. It takes nothing away from later
    /// answers: rewards, ticks and what was dropped go on adding up until a step is answered.
    ///
    /// # Errors
    /// See [`StepError`]; lanes without a pace are refused.
    pub async fn latest(&mut self) -> Result<Frame<'_>, StepError> {
        self.ask_latest(|_, _| Some(Bytes::new())).await
    }

    /// Puts actions into the queues of some lanes, row i of `actions` for `lanes[i]`, and returns the newest rows of all lanes
    /// without waiting for a tick. All that waits for a tick goes into it in order; of more than
    /// [`MAX_QUEUED_ACTIONS`](rollhouse_engine::MAX_QUEUED_ACTIONS) the oldest go.
    ///
    /// # Errors
    /// See [`StepError`]; nothing is put anywhere then.
    pub async fn act(&mut self, lanes: &[u32], actions: ColumnRef<'_>) -> Result<Frame<'_>, StepError> {
        self.refuse_send(lanes, actions)?;
        let layout = self.kind.layout.clone();
        let elements = layout.action.elements();
        self.ask_latest(|first, count| {
            let rows =
                (0..lanes.len()).filter(|&row| (first..first + count).contains(&(lanes[row] as usize)));
            let rows: Vec<usize> = rows.collect();
            let named: Vec<u32> = rows.iter().map(|&row| lanes[row] - first as u32).collect();
            if named.is_empty() {
                return Some(Bytes::new());
            }
            columns_of(&layout, &named, |at| actions.slice(rows[at] * elements, (rows[at] + 1) * elements))
        })
        .await
    }

    /// Has something happen to the clocks of some lanes, or of all if `lanes` is empty, and returns how each of them stands then.
    ///
    /// # Errors
    /// See [`MethodError`]; lanes without a pace are refused, and what a lane cannot do as it stands. The lanes of another
    /// session than the one that refused may have done it.
    pub async fn control(
        &mut self,
        lanes: &[u32],
        control: PaceControl,
    ) -> Result<Vec<PaceAnswer>, MethodError> {
        self.check_nothing_outstanding()?;
        if self.recipe.open.settings.pace.is_none() {
            return Err(Rules::NoPace.into());
        }
        let mut answers = Vec::new();
        for session in 0..self.sessions.len() {
            let range = self.sessions[session].lanes().clone();
            let here = lanes.iter().filter(|&&lane| range.contains(&(lane as usize)));
            let here: Vec<u32> = here.map(|&lane| lane - range.start as u32).collect();
            if lanes.is_empty() || !here.is_empty() {
                let params = PaceParams { lanes: here, control: control.clone() };
                answers.push(self.call::<PaceLanes>(session, &params).await?);
            }
        }
        Ok(answers)
    }

    /// Asks each session for its newest rows; `columns` returns what goes into the queues of its lanes, from the first on and so
    /// many.
    async fn ask_latest(
        &mut self,
        columns: impl Fn(usize, usize) -> Option<Bytes>,
    ) -> Result<Frame<'_>, StepError> {
        if self.recipe.open.settings.pace.is_none() {
            return Err(Rules::NoPace.into());
        }
        self.refuse_order()?;
        let deadline = self.deadline();
        self.settle_sessions(deadline, false).await;
        let ready = std::mem::replace(&mut self.readiness, Readiness::NeedsReset);
        let Self { sessions, carrier, .. } = self;
        let way = Way { carrier, deadline: carrier.at(deadline) };
        for site in sessions.iter_mut().filter(|site| !site.session.is_out()) {
            let range = site.lanes();
            let columns = columns(range.start, range.len()).unwrap_or_default();
            site.ask(RequestBody { kind: FrameKind::Latest, columns, sidecar: Bytes::new() }, &way);
        }
        self.answers(deadline, ready).await?;
        Ok(self.newest())
    }
}
