//! The stream of the single session: an observation a tick, at the game's speed.
//!
//! The game stands while no stream is open. A second stream takes the place of the first one. A client that reads slowly
//! gets the newest observation, and that of the game's end in any case.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rollhouse_codec::openra::{Advance, AgentAction, FastAdvanceRequest};
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tonic::{Status, Streaming};
use tracing::{debug, info};

use super::actions::Actions;
use super::bridge::{Bridge, Refused};
use super::life::Standing;
use super::session::Session;

/// Waits until it is raised.
async fn raised(flag: &mut watch::Receiver<bool>) {
    drop(flag.wait_for(|is_raised| *is_raised).await);
}

/// What a stream shows: its newest observation, or why it ends.
type Newest = Result<Bytes, Status>;

/// A game that is played through a stream.
pub(crate) struct LiveGame {
    bridge: Arc<Bridge>,
    session: Arc<Session>,
    inbound: Streaming<AgentAction>,
    newest: watch::Sender<Newest>,
    actions: Actions,
    ticks: u64,
}

impl LiveGame {
    /// Opens the stream: returns what shows its observations, of which the first is there, and the game to be played.
    pub(crate) async fn open(
        bridge: Arc<Bridge>,
        inbound: Streaming<AgentAction>,
    ) -> Result<(watch::Receiver<Newest>, Self), Refused> {
        let session = bridge.single(true)?;
        let call = bridge.admit(&session).await?;
        let mut held = session.hold().await;
        let first = bridge.observe(&session, &mut held)?;
        drop((call, held));
        let (newest, shown) = watch::channel(Ok(first));
        let actions = Actions::default();
        Ok((shown, Self { bridge, session, inbound, newest, actions, ticks: 0 }))
    }

    /// Plays until the game is over, the client is gone, another stream takes its place, or the gate stops.
    pub(crate) async fn play(mut self, mut replaced: watch::Receiver<u64>) {
        let mut stopping = self.bridge.stopping();
        let mut clock = self.clock();
        let mut listens = true;
        let why = loop {
            tokio::select! {
                biased;
                () = raised(&mut stopping) => break Some(Status::unavailable("the gate stops")),
                _ = replaced.changed() => break Some(Status::aborted("another stream has taken its place")),
                () = self.newest.closed() => break None,
                action = self.inbound.message(), if listens => match action {
                    Ok(Some(action)) => self.actions.push(action.commands),
                    Ok(None) => listens = false,
                    Err(status) => break Some(status),
                },
                _ = clock.tick() => if let Some(ends) = self.tick().await {
                    break ends;
                },
            }
        };
        if let Some(status) = why {
            drop(self.newest.send_replace(Err(status)));
        }
        let (ticks, dropped) = (self.ticks, self.actions.dropped());
        info!(ticks, dropped, tick = self.session.tick(), "a stream has ended");
    }

    /// Returns the clock of the game. A tick that comes late is not made up.
    fn clock(&self) -> Interval {
        let mut clock = interval(Duration::from_secs_f64(1.0 / self.bridge.settings.ticks_per_second));
        clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
        clock
    }

    /// Plays a tick. Returns why the stream ends, if it does; `Some(None)` is the end of the game.
    async fn tick(&mut self) -> Option<Option<Status>> {
        let commands = self.actions.take(self.bridge.shape.action.most_orders);
        let request = FastAdvanceRequest { ticks: 1, commands, ..FastAdvanceRequest::default() };
        let advanced = async {
            let (_, advance) = Advance::of(request, self.bridge.shape.action.most_orders)?;
            let call = self.bridge.admit(&self.session).await?;
            let held = self.session.hold().await;
            self.bridge.advance(Arc::clone(&self.session), (call, held), advance).await
        };
        match advanced.await {
            Ok(observation) => {
                self.ticks += 1;
                drop(self.newest.send_replace(Ok(observation)));
                (self.session.standing() != Standing::Playing).then_some(None)
            }
            // Others took the cores: the tick is missed.
            Err(Refused::Exhausted { .. }) => {
                debug!("a tick was missed");
                None
            }
            Err(refused) => Some(Some(refused.into())),
        }
    }
}
