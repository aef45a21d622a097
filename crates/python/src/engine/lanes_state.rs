//! What changes of lanes in Python from call to call: whether they run, which are lost, and where their memory lies.

use std::collections::BTreeSet;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rollhouse_client::StepError;
use rollhouse_engine::{Engine, Received, StepError as Refused};

use crate::arrays::{KeepAlive, constant_flags, fill_flags};
use crate::attended::HandOver;
use crate::cost::Cost;
use crate::endings::Endings;
use crate::engine::{NativeLanes, Rules};
use crate::failure::{exception, of_step};
use crate::lanes::Lanes;
use crate::news::{News, NewsItem};
use crate::recording::Recording;
use crate::statistics::EpisodeStatistics;
use crate::views::Views;
use crate::waiting::wait;
use crate::words::{self, Said};

/// The state that changes from call to call.
pub(crate) struct LanesState {
    /// The lanes; `None` after they were closed.
    pub(crate) inner: Option<Lanes>,
    pub(crate) memory: Py<KeepAlive>,
    /// Whether the frames lie in a node's memory.
    pub(crate) in_place: bool,
    /// Views of the two slots, made when a slot is first shown.
    pub(crate) views: [Option<Views>; 2],
    /// The mask of an info that every row has.
    pub(crate) every_row: Py<PyAny>,
    /// Whether each lane is lost, as far as Python was told; empty when none is.
    pub(crate) lost: Vec<bool>,
    /// The word for how each was lost of which Python was not told yet; empty when none is lost.
    pub(crate) losses: Vec<Option<&'static str>>,
    /// Why lanes were lost, as far as it is known and Python was not told yet.
    pub(crate) reasons: Said,
    pub(crate) endings: Endings,
    pub(crate) statistics: Option<EpisodeStatistics>,
    pub(crate) cost: Cost,
    pub(crate) recording: Option<Recording>,
    /// The node of each session of a pool, as it was last reported.
    pub(crate) nodes: Vec<String>,
}

impl HandOver for LanesState {
    fn hand_over(&mut self, paused: Duration) -> bool {
        let (Some(Lanes::Engine(engine, _)), Some(recording)) = (&mut self.inner, &self.recording) else {
            return false;
        };
        // An engine that hangs hands over nothing more.
        recording.run().is_behind() || engine.hand_over(paused).unwrap_or(false)
    }
}

impl LanesState {
    /// Makes the state of lanes that were just made.
    pub(super) fn of(
        py: Python<'_>,
        lanes: Lanes,
        rules: Rules,
        recording: Option<Recording>,
    ) -> PyResult<Self> {
        Ok(Self {
            memory: KeepAlive::new(py, lanes.memory())?,
            in_place: lanes.is_in_place(),
            views: [None, None],
            every_row: every_row(py, lanes.count())?,
            lost: Vec::new(),
            losses: Vec::new(),
            reasons: Vec::new(),
            endings: Endings::default(),
            statistics: rules.statistics.then(|| EpisodeStatistics::of(lanes.count())),
            cost: Cost::new(lanes.waits()),
            recording,
            nodes: lanes.placements().into_iter().map(|(node, ..)| node).collect(),
            inner: Some(lanes),
        })
    }

    /// Forgets the losses of lanes of which Python has been told.
    pub(crate) fn forget_losses(&mut self, lanes: &[u32]) {
        self.reasons.retain(|(lane, _)| !lanes.contains(&(*lane as u32)));
        for &lane in lanes {
            if let Some(untold) = self.losses.get_mut(lane as usize) {
                *untold = None;
            }
        }
    }

    #[inline]
    pub(crate) fn inner(&mut self, py: Python<'_>) -> PyResult<&mut Lanes> {
        match &mut self.inner {
            Some(inner) => Ok(inner),
            None => Err(closed(py)),
        }
    }

    /// Returns the engine, whose calls may be begun and waited for.
    pub(crate) fn engine(&mut self, py: Python<'_>) -> PyResult<&mut Engine> {
        let whole = || PyRuntimeError::new_err("a pool steps its lanes in one call");
        self.inner(py)?.engine().ok_or_else(whole)
    }

    /// Returns the number of lanes that were sent and not received.
    #[inline]
    pub(crate) fn outstanding(&self) -> usize {
        self.inner.as_ref().map_or(0, Lanes::outstanding)
    }

    pub(crate) fn refuse_outstanding(&self, py: Python<'_>) -> PyResult<()> {
        let outstanding = self.outstanding();
        if outstanding == 0 {
            return Ok(());
        }
        let message = format!("{outstanding} lanes were sent and have not been received");
        Err(exception(py, "OutstandingError", message))
    }

    /// Waits for `least` lanes that were sent. Returns None if they are not done within `timeout` seconds.
    pub(crate) fn receive(
        &mut self,
        py: Python<'_>,
        least: usize,
        timeout: Option<f64>,
    ) -> PyResult<Option<Received>> {
        let inner = self.inner(py)?;
        let mut received = None;
        wait(py, timeout, |patience| match inner.recv(least, patience) {
            Ok(rows) => {
                received = Some(rows);
                Ok(true)
            }
            Err(StepError::Rules(Refused::TimedOut)) => Ok(false),
            Err(error) => Err(Python::attach(|py| of_step(py, &error))),
        })?;
        Ok(received)
    }

    /// Steps, without the interpreter lock when that is worth it.
    #[inline]
    pub(crate) fn step(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(inner) = &mut self.inner else { return Err(closed(py)) };
        let behind = self.recording.as_ref().is_some_and(|recording| recording.run().is_behind());
        self.cost.run(py, behind, || inner.step()).map_err(|error| of_step(py, &error))
    }

    /// Finds out which sessions of a pool went to another node.
    #[inline]
    pub(crate) fn look_for_moves(&mut self, news: &News) {
        let Some(Lanes::Pool(pool)) = &self.inner else { return };
        for ((node, lanes), was) in pool.sessions().zip(&mut self.nodes) {
            if node != was {
                let from = std::mem::replace(was, node.to_owned());
                news.push(NewsItem::Moved { lanes: lanes.collect(), from, to: node.to_owned() });
            }
        }
    }

    /// Finds out which lanes are lost. Returns those lost since the last look, or raises an exception if that is
    /// wanted.
    #[inline]
    pub(crate) fn look_for_losses(&mut self, py: Python<'_>, owner: &NativeLanes) -> PyResult<Vec<usize>> {
        let Some(inner) = &mut self.inner else { return Ok(Vec::new()) };
        if inner.lost() == 0 {
            self.lost.clear();
            self.losses.clear();
            self.reasons.clear();
            return Ok(Vec::new());
        }
        let (before, untold) = (std::mem::take(&mut self.lost), std::mem::take(&mut self.losses));
        let losses: Vec<_> = (0..owner.lanes).map(|lane| inner.loss(lane)).collect();
        self.lost = losses.iter().map(Option::is_some).collect();
        let was_lost = |lane: usize| before.get(lane).copied().unwrap_or(false);
        let new: Vec<usize> = (0..owner.lanes).filter(|&lane| self.lost[lane] && !was_lost(lane)).collect();
        let is_told = |lane: usize| was_lost(lane) && untold.get(lane).copied().flatten().is_none();
        self.losses = (0..owner.lanes).map(|lane| losses[lane].filter(|_| !is_told(lane))).collect();
        let asked: Vec<u32> = new.iter().map(|&lane| lane as u32).collect();
        let reasons = words::ask(py, inner, &asked, |words| words.lost)?;
        self.reasons.extend(reasons);
        for outcome in new.iter().filter_map(|&lane| losses[lane]).collect::<BTreeSet<_>>() {
            let lanes = new.iter().copied().filter(|&lane| losses[lane] == Some(outcome)).collect();
            owner.attended.news.push(NewsItem::LanesLost { lanes, outcome });
        }
        if owner.rules.raise_on_loss
            && let Some((&first, outcome)) = new.first().zip(new.first().and_then(|&lane| losses[lane]))
        {
            self.losses.fill(None);
            let reasons = std::mem::take(&mut self.reasons);
            let what = match outcome {
                "crashed" => format!("the env of lane {first} crashed"),
                outcome => format!("lane {first} was lost ({outcome})"),
            };
            let why = reasons.iter().find(|(lane, _)| *lane == first).map(|(_, why)| format!(": {why}"));
            let why = why.unwrap_or_default();
            let message = format!("{what} ({} lanes lost in this step){why}", new.len());
            let lanes = PyTuple::new(py, &new)?;
            let class = py.import("rollhouse.errors")?.getattr("LaneLostError")?;
            return Err(PyErr::from_value(class.call1((message, lanes, outcome))?));
        }
        Ok(new)
    }

    /// Makes views anew if frames lie in other memory than before. An array of the earlier memory keeps that alive.
    #[inline]
    pub(crate) fn look_where(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(inner) = &self.inner else { return Ok(()) };
        if inner.is_in_place() != self.in_place {
            self.in_place = inner.is_in_place();
            self.memory = KeepAlive::new(py, inner.memory())?;
            self.views = [None, None];
        }
        Ok(())
    }
}

pub(crate) fn closed(py: Python<'_>) -> PyErr {
    exception(py, "ClosedError", "this vector env is closed".to_owned())
}

/// Makes the mask of an info that every row has. All steps' infos share it, so Python cannot change it.
fn every_row(py: Python<'_>, lanes: usize) -> PyResult<Py<PyAny>> {
    let every_row = constant_flags(py, lanes)?;
    fill_flags(&every_row, lanes, |flags| flags.fill(1));
    Ok(every_row.unbind())
}
