//! The thread that plays: it carries orders out, until there are none, nobody takes what is played, or lanes cannot be played.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use rollhouse_engine::{Fragment, FragmentColumns, Reset};
use rollhouse_wire::{PolicyGiven, PolicyLags};

use super::{PlayedLanes, RolloutsError};

/// What is to be done.
pub(super) enum Order {
    /// To fill the fragment.
    Play(Box<Fragment>),
    /// To begin episodes so, and to play until each lane has come to the end of its own.
    PlayEpisodes(Box<Reset>),
    /// To play by another policy.
    Follow {
        policy: Box<PolicyGiven>,
        file: Bytes,
        /// When it was given.
        given: Instant,
        done: SyncSender<Result<FragmentColumns, RolloutsError>>,
    },
}

pub(super) type Played = Result<Box<Fragment>, RolloutsError>;

/// The lanes, and how far they are.
pub(super) struct Serving<L> {
    pub(super) lanes: L,
    pub(super) columns: FragmentColumns,
    /// Steps that are played at a time where it is not known how many there are.
    pub(super) steps: usize,
    /// Steps that the lanes have taken.
    pub(super) at: u64,
    /// What was measured of the policy, and is not reported yet.
    pub(super) lags: Arc<Mutex<PolicyLags>>,
}

impl<L: PlayedLanes> Serving<L> {
    pub(super) fn serve(mut self, orders: &Receiver<Order>, played: &SyncSender<Played>) {
        while let Ok(order) = orders.recv() {
            let done = match order {
                Order::Play(mut fragment) => self.play(&mut fragment).map(|()| fragment),
                Order::PlayEpisodes(reset) => self.play_episodes(&reset),
                Order::Follow { policy, file, given, done } => {
                    let followed = self.lanes.follow(&policy, file);
                    if followed.is_ok() {
                        self.lags.lock().published(given.elapsed());
                    }
                    // Nobody may wait for it.
                    let _left = done.send(followed);
                    continue;
                }
            };
            let failed = done.is_err();
            if played.send(done).is_err() || failed {
                break;
            }
        }
        self.lanes.end();
    }

    fn play(&mut self, fragment: &mut Fragment) -> Result<(), RolloutsError> {
        self.lanes.report_lags(std::mem::take(&mut self.lags.lock()));
        let done = self.lanes.play(self.at, fragment);
        self.at += fragment.steps() as u64;
        done
    }

    fn play_episodes(&mut self, reset: &Reset) -> Played {
        self.lanes.begin(reset)?;
        let (lanes, mut parts) = (self.lanes.lanes(), Vec::new());
        let (mut ended, mut all) = (vec![false; lanes], false);
        while !all {
            let steps: usize = parts.iter().map(Fragment::steps).sum();
            let bytes: usize = parts.iter().map(Fragment::bytes).sum();
            if steps >= MAX_EPISODE_STEPS || bytes >= MAX_EPISODES_BYTES {
                return Err(RolloutsError::Long { steps, bytes });
            }
            let mut fragment = Fragment::new(&self.columns, lanes, self.steps);
            self.play(&mut fragment)?;
            all = fragment.note_first_ends(&mut ended);
            parts.push(fragment);
        }
        let mut whole = Fragment::joined(&parts).ok_or(RolloutsError::Ended)?;
        whole.keep_first_episodes();
        Ok(Box::new(whole))
    }
}

/// Steps of an episode that is played to its end, for one batch of such.
pub const MAX_EPISODE_STEPS: usize = 65_536;

/// Bytes of all lanes' episodes of one batch; as much again is needed while they are put together.
pub const MAX_EPISODES_BYTES: usize = 4 << 30;
