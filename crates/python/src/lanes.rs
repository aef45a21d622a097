//! The two steppers of a vector env's lanes: an engine in this process, or a pool of a cluster.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_client::{MethodError, Pool, RequestError, StepError, Transport};
use rollhouse_core::{ColumnMut, ColumnRef, Outcome};
use rollhouse_engine::{Engine, Frame, PaceAnswer, PaceControl, Received, Reset, StepError as Refused};
use rollhouse_host::OwnWorkers;

/// An engine or a pool. Both have the same rules; errors that only a pool can meet are its own.
#[derive(Debug)]
pub(crate) enum Lanes {
    /// An engine, and the worker processes that step its lanes if they are not stepped in this one.
    Engine(Box<Engine>, Option<OwnWorkers>),
    Pool(Box<Pool>),
}

/// The reason why lanes did not close.
pub(crate) enum CloseError {
    Engine(Refused),
    Pool(RequestError),
}

/// The place of a session: its node, first lane, lane after the last, and the transport by which it is stepped.
pub(crate) type Placement = (String, usize, usize, &'static str);

impl Lanes {
    /// Returns the number of lanes.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Engine(engine, _) => engine.lanes(),
            Self::Pool(pool) => pool.lanes(),
        }
    }

    /// Returns the number of threads of this process that step.
    pub(crate) fn threads(&self) -> usize {
        match self {
            Self::Engine(engine, _) => engine.threads(),
            Self::Pool(_) => 0,
        }
    }

    /// Returns whether stepping waits for other threads or processes.
    pub(crate) fn waits(&self) -> bool {
        match self {
            Self::Engine(engine, _) => engine.threads() > 1,
            Self::Pool(_) => true,
        }
    }

    /// Returns where the lanes of a cluster are now.
    pub(crate) fn placements(&self) -> Vec<Placement> {
        let Self::Pool(pool) = self else { return Vec::new() };
        // A session that is not attached yet is stepped over QUIC, or tries memory again.
        let word = |transport: Option<Transport>| transport.unwrap_or(Transport::Quic).word();
        let placed = pool.sessions().zip(pool.transports());
        placed
            .map(|((node, lanes), transport)| (node.to_owned(), lanes.start, lanes.end, word(transport)))
            .collect()
    }

    pub(crate) fn memory(&self) -> Arc<dyn Any + Send + Sync> {
        match self {
            Self::Engine(engine, _) => engine.memory(),
            Self::Pool(pool) => pool.memory(),
        }
    }

    /// Returns whether they are stepped in a node's memory. If they leave it because the node is lost, memory and
    /// addresses change.
    #[inline]
    pub(crate) fn is_in_place(&self) -> bool {
        match self {
            Self::Engine(..) => false,
            Self::Pool(pool) => pool.is_in_place(),
        }
    }

    pub(crate) fn addresses(&self) -> Range<usize> {
        match self {
            Self::Engine(engine, _) => engine.addresses(),
            Self::Pool(pool) => pool.addresses(),
        }
    }

    pub(crate) fn reset(&mut self, reset: &Reset) -> Result<(), StepError> {
        match self {
            Self::Engine(engine, _) => Ok(engine.reset(reset).map(drop)?),
            Self::Pool(pool) => pool.reset(reset).map(drop),
        }
    }

    #[inline]
    pub(crate) fn actions(&mut self) -> Result<ColumnMut<'_>, StepError> {
        match self {
            Self::Engine(engine, _) => Ok(engine.actions()?),
            Self::Pool(pool) => Ok(pool.actions()),
        }
    }

    /// Returns the column of actions, if it is memory that a node or workers read.
    pub(crate) fn actions_in_place(&mut self) -> Option<ColumnMut<'_>> {
        match self {
            // Between its look at an action and the step others could change it.
            Self::Engine(_, None) => None,
            Self::Engine(engine, Some(_)) => engine.actions().ok(),
            Self::Pool(pool) => pool.actions_in_place(),
        }
    }

    /// Returns the engine; `None` of a pool.
    pub(crate) fn engine(&mut self) -> Option<&mut Engine> {
        match self {
            Self::Engine(engine, _) => Some(engine),
            Self::Pool(_) => None,
        }
    }

    /// Returns whether worker processes step them.
    pub(crate) fn has_workers(&self) -> bool {
        matches!(self, Self::Engine(_, Some(_)))
    }

    /// Gives the envs of workers what resets are given beside declared options: those that are begun next.
    pub(crate) fn give(&self, given: Vec<u8>) {
        if let Self::Engine(_, Some(workers)) = self {
            workers.set_options(given);
        }
    }

    #[inline]
    pub(crate) fn step(&mut self) -> Result<(), StepError> {
        match self {
            Self::Engine(engine, _) => Ok(engine.step().map(drop)?),
            Self::Pool(pool) => pool.step().map(drop),
        }
    }

    /// Fetches the newest rows of live lanes.
    pub(crate) fn latest(&mut self) -> Result<(), StepError> {
        match self {
            Self::Engine(..) => Err(Refused::NoPace.into()),
            Self::Pool(pool) => pool.latest().map(drop),
        }
    }

    /// Puts actions into the queues of live lanes.
    pub(crate) fn act(&mut self, lanes: &[u32], actions: ColumnRef<'_>) -> Result<(), StepError> {
        match self {
            Self::Engine(..) => Err(Refused::NoPace.into()),
            Self::Pool(pool) => pool.act(lanes, actions).map(drop),
        }
    }

    /// Has something happen to the clocks of live lanes.
    pub(crate) fn control(
        &mut self,
        lanes: &[u32],
        control: PaceControl,
    ) -> Result<Vec<PaceAnswer>, MethodError> {
        match self {
            Self::Engine(..) => Err(Refused::NoPace.into()),
            Self::Pool(pool) => pool.control(lanes, control),
        }
    }

    #[inline]
    pub(crate) fn frame(&mut self) -> Result<Frame<'_>, StepError> {
        match self {
            Self::Engine(engine, _) => Ok(engine.frame()?),
            Self::Pool(pool) => pool.frame(),
        }
    }

    pub(crate) fn send(&mut self, lanes: &[u32], actions: ColumnRef<'_>) -> Result<(), StepError> {
        match self {
            Self::Engine(engine, _) => Ok(engine.send(lanes, actions)?),
            Self::Pool(pool) => pool.send(lanes, actions),
        }
    }

    pub(crate) fn recv(&mut self, min: usize, timeout: Duration) -> Result<Received, StepError> {
        match self {
            Self::Engine(engine, _) => Ok(engine.recv(min, timeout)?),
            Self::Pool(pool) => pool.recv(min, timeout),
        }
    }

    /// Returns the number of lanes that were sent and not received.
    #[inline]
    pub(crate) fn outstanding(&self) -> usize {
        match self {
            Self::Engine(engine, _) => engine.outstanding(),
            Self::Pool(pool) => pool.outstanding(),
        }
    }

    /// Returns the number of lanes whose env has failed, or whose node went away, and that are not back.
    #[inline]
    pub(crate) fn lost(&self) -> usize {
        match self {
            Self::Engine(engine, _) => engine.lost(),
            Self::Pool(pool) => pool.lost(),
        }
    }

    /// Returns the word for how a lane was lost; `None` if it is not.
    pub(crate) fn loss(&self, lane: usize) -> Option<&'static str> {
        match self {
            Self::Engine(engine, _) => engine.loss(lane).map(|cause| Outcome::Interrupted(cause).word()),
            Self::Pool(pool) => pool.loss(lane).map(Outcome::word),
        }
    }

    /// Ends them. The envs of workers have so long to close themselves; `None` ends workers at once.
    pub(crate) fn close(self, patience: Option<Duration>) -> Result<(), CloseError> {
        match self {
            Self::Engine(engine, None) => engine.close().map(drop).map_err(CloseError::Engine),
            Self::Engine(engine, Some(workers)) => {
                if patience.is_none() {
                    // What is under way fails by it, and is not waited for.
                    workers.end(None);
                }
                // It hands over what it has recorded; that lanes are lost is no error.
                let _closed = engine.close();
                workers.end(patience);
                Ok(())
            }
            Self::Pool(pool) => pool.close().map(drop).map_err(CloseError::Pool),
        }
    }
}
