//! Ships what a recorder seals: the task around [`Shipper`].

use std::collections::BTreeSet;
use std::io;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rollhouse_core::{Claimant, OwnedBytes, contained, panic_message};
use rollhouse_replay::{DiskError, DiskFile, Recorder, SealedSegment, Spool};
use rollhouse_wire::{Call, CallError, Connection, OwnerPart, Request, Ship, Shipped, failpoint};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinSet, spawn_blocking};

use crate::shipper::{Pace, ShipAction, ShipCounts, ShipEvent, Shipper, ShipperConfig};

/// Ships the sealed segments of a recorder and removes them once the store has them.
#[derive(Debug)]
pub struct Shipping {
    recorder: Arc<Recorder>,
    spool: Spool,
    name: String,
    config: ShippingConfig,
    /// The deciding value; it outlives the task if that panics.
    shipper: Mutex<Shipper>,
    started: Instant,
    figures: watch::Sender<ShipFigures>,
    look: Notify,
    /// Bytes that earlier recorders left in the spool.
    found_bytes: u64,
    /// Bytes that the store had set aside before.
    found_aside: u64,
}

/// Settings of shipping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShippingConfig {
    /// Settings of the decisions.
    pub shipper: ShipperConfig,
    /// Most bytes a second that are sent; `None` for no bound.
    pub bytes_per_second: Option<NonZeroU64>,
}

/// Figures of shipping.
#[derive(Debug, Clone, Default)]
pub struct ShipFigures {
    /// Counts of what has become of the segments.
    pub counts: ShipCounts,
    /// Bytes that are recorded and neither in the store nor dropped.
    pub unshipped_bytes: u64,
    /// Bytes at which the spool is full.
    pub limit: u64,
    /// Time for which the oldest sealed segment has been waiting to be shipped, at most since the start of the node;
    /// zero if none waits.
    pub oldest: Duration,
    /// Whether the spool is full and stepping waits.
    pub held: bool,
    /// The last attempt or removal that failed, in one sentence with its cause.
    pub last_failure: Option<Arc<str>>,
    /// The same while the store takes nothing, however often it is asked.
    pub failing: Option<Arc<str>>,
    /// Number of attempts that failed, by [`ShipFigures::REASONS`].
    pub failed: [u64; ShipFigures::REASONS.len()],
}

impl ShipFigures {
    /// The reasons for which attempts fail: the store has no time or no room, refuses otherwise, or takes nothing of a
    /// segment for long; the connection is lost; the segment cannot be read; the attempt panicked.
    pub const REASONS: [&str; 6] = ["busy", "refused", "stalled", "lost", "unreadable", "panicked"];
}

/// The result of an attempt: the segment's number, the connection's number, and how it went.
type Attempt = (u64, u64, Result<Shipped, AttemptError>);
/// The result of a removal: the segment's number, the episodes that were lost with it, and how it went.
type Removal = (u64, Option<u64>, Result<(), RemovalError>);

/// Why a segment did not get to the store.
#[derive(Debug)]
enum AttemptError {
    Read(io::Error),
    Call(CallError),
    /// The store took nothing for this long.
    Stalled(Duration),
    /// The sending task panicked, with this message.
    Panicked(String),
}

/// Why a segment was not removed.
#[derive(Debug)]
enum RemovalError {
    Disk(DiskError),
    /// The removing task panicked, with this message.
    Panicked(String),
}

impl Shipping {
    /// Makes the shipping of the segments of `recorder`, whose configuration must leave it to others to remove them.
    /// Blocks for the disk: the spool's name is read or drawn.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn new(recorder: Arc<Recorder>, config: ShippingConfig) -> Result<Self, DiskError> {
        let spool = recorder.spool();
        let name = spool.name()?;
        let found_aside = spool.aside_bytes()?;
        let figures = watch::Sender::default();
        let found_bytes = spool.sealed().iter().map(|segment| segment.bytes).sum();
        let shipper = Mutex::new(Shipper::new(config.shipper));
        let (started, look) = (Instant::now(), Notify::new());
        Ok(Self { recorder, spool, name, config, shipper, started, figures, look, found_bytes, found_aside })
    }

    /// Returns the figures now.
    pub fn figures(&self) -> ShipFigures {
        self.figures.borrow().clone()
    }

    /// Returns the bytes that were in the spool at the start and all that were written since, those of the segment
    /// being written included. Once as many bytes have left the spool, everything that is written now has left it.
    pub fn recorded_bytes(&self) -> u64 {
        let recorded = self.recorder.status().recorded;
        self.found_bytes + recorded.bytes - recorded.torn_bytes
    }

    /// Returns whether every segment that is sealed now is in the store, set aside or dropped.
    pub fn is_drained(&self) -> bool {
        self.spool.sealed().is_empty()
    }

    /// Looks for sealed segments at once instead of within [`LOOK_EVERY`].
    pub fn look(&self) {
        self.look.notify_one();
    }

    /// Waits until every segment that is sealed now or meanwhile is in the store, set aside or dropped. Waits for ever
    /// while [`Shipping::run`] does not run or there is no connection. Cancellation-safe.
    pub async fn drained(&self) {
        let mut changes = self.figures.subscribe();
        while !self.is_drained() {
            self.look();
            // Never an error: the sender lives as long as `self`.
            let _changed = changes.changed().await;
        }
    }

    /// Ships over the connection that `links` has, until this is dropped or `links` is closed. When it is dropped, it
    /// gives up what is in flight, which stays in the spool, and lets a held recorder go on. Run again, it goes on with
    /// what it knows. Only one may run at a time.
    ///
    /// Must run on a tokio runtime with timers. Files are read on its blocking threads.
    pub async fn run(&self, links: watch::Receiver<Option<Connection>>) {
        let mut task = Task {
            shipping: self,
            released: Released { recorder: &self.recorder, owners: BTreeSet::new() },
            pace: Arc::new(Mutex::new(Pace::new(self.config.bytes_per_second))),
            link: None,
            generation: 0,
            attempts: JoinSet::new(),
            removals: JoinSet::new(),
            last_failure: None,
            failed: Default::default(),
        };
        task.run(links).await;
    }

    /// Locks the shipper, for moments only and by the task alone.
    fn shipper(&self) -> MutexGuard<'_, Shipper> {
        self.shipper.lock()
    }
}

struct Task<'a> {
    shipping: &'a Shipping,
    released: Released<'a>,
    pace: Arc<Mutex<Pace>>,
    link: Option<Connection>,
    /// The present connection's number, which tells the results of an old one apart.
    generation: u64,
    attempts: JoinSet<Attempt>,
    removals: JoinSet<Removal>,
    last_failure: Option<Arc<str>>,
    /// Attempts that failed, by [`ShipFigures::REASONS`].
    failed: [u64; ShipFigures::REASONS.len()],
}

impl Task<'_> {
    async fn run(&mut self, mut links: watch::Receiver<Option<Connection>>) {
        self.tell(ShipEvent::Restarted);
        self.tell(ShipEvent::FoundAside { bytes: self.shipping.found_aside });
        let first = links.borrow_and_update().clone();
        self.connect(first);
        loop {
            self.take_stock();
            self.publish();
            let pause = self.shipping.shipper().wake_at().map(|at| at.saturating_sub(self.now()));
            let pause = pause.unwrap_or(LOOK_EVERY).min(LOOK_EVERY);
            tokio::select! {
                changed = links.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let link = links.borrow_and_update().clone();
                    self.connect(link);
                }
                Some(ended) = self.attempts.join_next() => {
                    // Those that were aborted are told by their connection's end; none panics.
                    if let Ok(attempt) = ended {
                        self.attempted(attempt);
                    }
                }
                Some(ended) = self.removals.join_next() => {
                    // None is aborted, and none panics.
                    if let Ok(removal) = ended {
                        self.removed(removal);
                    }
                }
                () = self.shipping.look.notified() => {}
                () = tokio::time::sleep(pause) => self.tell(ShipEvent::Tick),
            }
        }
    }

    fn now(&self) -> Duration {
        self.shipping.started.elapsed()
    }

    fn tell(&mut self, event: ShipEvent) {
        let mut actions = Vec::new();
        self.shipping.shipper().handle(self.now(), event, &mut actions);
        actions.into_iter().for_each(|action| self.act(action));
    }

    fn take_stock(&mut self) {
        let spool = &self.shipping.spool;
        for segment in spool.sealed() {
            self.shipping.shipper().segment_is_of(segment.number, || spool.owned(segment.number));
            self.tell(ShipEvent::Spooled(segment));
            failpoint("node.shipping.spooled");
        }
        let status = self.shipping.recorder.status();
        self.shipping.shipper().open_is_of(&status.open_owned);
        self.tell(ShipEvent::Open { bytes: status.open_bytes });
        self.hold_owners();
    }

    /// Has the recorder take nothing of those owners who have their share of the spool, and of nobody else.
    fn hold_owners(&mut self) {
        let held = self.shipping.shipper().held_owners().clone();
        self.released.hold(held);
    }

    fn publish(&self) {
        let shipper = self.shipping.shipper();
        let figures = ShipFigures {
            counts: shipper.counts(),
            unshipped_bytes: shipper.unshipped_bytes(),
            limit: shipper.limit(),
            oldest: shipper.oldest_since().map_or(Duration::ZERO, |since| self.now().saturating_sub(since)),
            held: shipper.is_held(),
            last_failure: self.last_failure.clone(),
            failing: self.last_failure.clone().filter(|_| shipper.is_failing()),
            failed: self.failed,
        };
        drop(shipper);
        self.shipping.figures.send_replace(figures);
    }

    fn connect(&mut self, link: Option<Connection>) {
        if self.link.take().is_some() {
            self.attempts.abort_all();
            self.tell(ShipEvent::Disconnected);
        }
        self.generation += 1;
        self.link = link;
        if self.link.is_some() {
            self.tell(ShipEvent::Connected);
        }
    }

    fn attempted(&mut self, (number, generation, result): Attempt) {
        match result {
            Ok(answer) => self.tell(ShipEvent::Answered { number, answer }),
            Err(error) => {
                self.last_failure = Some(error.to_string().into());
                let index = ShipFigures::REASONS.iter().position(|reason| *reason == error.reason());
                if let Some(count) = index.and_then(|index| self.failed.get_mut(index)) {
                    *count += 1;
                }
                if generation == self.generation {
                    let retry_after = error.retry_after();
                    self.tell(ShipEvent::Failed { number, retry_after });
                }
            }
        }
    }

    fn removed(&mut self, (number, episodes, result): Removal) {
        match result {
            Ok(()) => self.tell(ShipEvent::TakenAway { number, episodes }),
            Err(error) => {
                self.last_failure = Some(error.to_string().into());
                self.tell(ShipEvent::Stuck { number });
            }
        }
    }

    fn act(&mut self, action: ShipAction) {
        match action {
            ShipAction::Ship(segment) => {
                let Some(link) = self.link.clone() else { return };
                let (number, generation) = (segment.number, self.generation);
                let attempt = attempt(
                    self.shipping.spool.clone(),
                    self.shipping.name.clone(),
                    link,
                    segment,
                    self.pace.clone(),
                    self.shipping.started,
                );
                // Task: segment being shipped.
                self.attempts.spawn(async move {
                    let ended = contained(attempt).await;
                    let result = ended.unwrap_or_else(|message| Err(AttemptError::Panicked(message)));
                    (number, generation, result)
                });
            }
            ShipAction::TakeAway { number, dropped } => {
                let spool = self.shipping.spool.clone();
                self.remove(number, move || {
                    let episodes = if dropped { spool.episodes(number).ok() } else { None };
                    (number, episodes, spool.take_away(number).map_err(RemovalError::Disk))
                });
            }
            ShipAction::SetAside { number } => {
                let spool = self.shipping.spool.clone();
                self.remove(number, move || {
                    (number, None, spool.set_aside(number).map_err(RemovalError::Disk))
                });
            }
            ShipAction::Hold(held) => self.shipping.recorder.hold(held),
        }
    }
    /// Runs `remove`, which takes a segment out of the spool, on a thread that may block.
    fn remove(&mut self, number: u64, remove: impl FnOnce() -> Removal + Send + 'static) {
        // Task: file operation.
        self.removals.spawn_blocking(move || {
            catch_unwind(AssertUnwindSafe(remove))
                .unwrap_or_else(|panic| (number, None, Err(RemovalError::Panicked(panic_message(&*panic)))))
        });
    }
}

/// Sends one segment and waits for the answer.
async fn attempt(
    spool: Spool,
    name: String,
    link: Connection,
    segment: SealedSegment,
    pace: Arc<Mutex<Pace>>,
    started: Instant,
) -> Result<Shipped, AttemptError> {
    let number = segment.number;
    let owned = owner_parts(&spool.owned(number));
    // Task: file operation.
    let opened = spawn_blocking(move || {
        let file: Arc<dyn DiskFile> = spool.open(number)?.into();
        let (bytes, crc) = measure(&*file)?;
        Ok::<_, io::Error>((file, bytes, crc))
    });
    let (file, bytes, crc) = joined(opened.await).map_err(AttemptError::Read)?;
    let ship = Request::Ship(Ship { spool: name, segment: number, bytes, crc, owned });
    let mut call = in_time(async { link.open(&ship).await.map_err(AttemptError::Call) }).await?;
    let sent = send(&mut call, file, bytes, &pace, started).await;
    match sent {
        Ok(()) => in_time(async { call.answer().await.map_err(AttemptError::Call) }).await,
        // The store may have answered without reading on, because it has the segment or does not want it.
        Err(error @ AttemptError::Call(_)) => {
            let answer = tokio::time::timeout(EARLY_ANSWER, call.answer()).await;
            match answer {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(refused @ CallError::Refused(_))) => Err(AttemptError::Call(refused)),
                _ => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

async fn send(
    call: &mut Call,
    file: Arc<dyn DiskFile>,
    bytes: u64,
    pace: &Mutex<Pace>,
    started: Instant,
) -> Result<(), AttemptError> {
    let mut at = 0;
    while at < bytes {
        let file = file.clone();
        // Task: file operation.
        let read = spawn_blocking(move || read_piece(&*file, at, bytes));
        let piece = joined(read.await).map_err(AttemptError::Read)?;
        let pause = {
            let mut pace = pace.lock();
            pace.wait(started.elapsed(), piece.len() as u64)
        };
        tokio::time::sleep(pause).await;
        in_time(async { call.send.write_all(&piece).await.map_err(|e| AttemptError::Call(e.into())) })
            .await?;
        at += piece.len() as u64;
    }
    call.finish().map_err(AttemptError::Call)
}

async fn in_time<T>(work: impl Future<Output = Result<T, AttemptError>>) -> Result<T, AttemptError> {
    tokio::time::timeout(STALL, work).await.unwrap_or(Err(AttemptError::Stalled(STALL)))
}

/// Returns whose a segment's bytes are as the store is sent it.
pub fn owner_parts(owned: &OwnedBytes) -> Vec<OwnerPart> {
    let part = |(owner, bytes): (&Claimant, u64)| {
        let (owner, operates) = (owner.name().to_owned(), owner.operates());
        OwnerPart { owner, operates, bytes }
    };
    owned.iter().map(part).collect()
}

/// Returns the length and the CRC-32C of a file.
fn measure(file: &dyn DiskFile) -> io::Result<(u64, u32)> {
    let len = file.len()?;
    let (mut at, mut crc) = (0, crc32c::crc32c(&[]));
    while at < len {
        let piece = read_piece(file, at, len)?;
        crc = crc32c::crc32c_append(crc, &piece);
        at += piece.len() as u64;
    }
    Ok((len, crc))
}

/// Reads bytes from `at` on, at least one and at most [`PIECE_BYTES`], but none from `end` on.
fn read_piece(file: &dyn DiskFile, at: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut piece = vec![0; usize::try_from(end - at).map_or(PIECE_BYTES, |rest| rest.min(PIECE_BYTES))];
    loop {
        match file.read_at(&mut piece, at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                piece.truncate(read);
                return Ok(piece);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn joined<T>(result: Result<io::Result<T>, tokio::task::JoinError>) -> io::Result<T> {
    result.unwrap_or_else(|error| Err(io::Error::other(error)))
}

impl AttemptError {
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Call(CallError::Refused(refusal)) => refusal.retry_after_ms.map(Duration::from_millis),
            _ => None,
        }
    }
}

impl AttemptError {
    /// Returns the reason among [`ShipFigures::REASONS`].
    const fn reason(&self) -> &'static str {
        match self {
            Self::Read(_) => "unreadable",
            Self::Call(CallError::Refused(refusal)) if refusal.code.is_transient() => "busy",
            Self::Call(CallError::Refused(_)) => "refused",
            Self::Call(_) => "lost",
            Self::Stalled(_) => "stalled",
            Self::Panicked(_) => "panicked",
        }
    }
}

impl std::fmt::Display for AttemptError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read(error) => write!(f, "a segment of the spool cannot be read: {error}"),
            Self::Call(error) => write!(f, "a segment was not taken by the store: {error}"),
            Self::Stalled(time) => write!(f, "the store took nothing of a segment for {} s", time.as_secs()),
            Self::Panicked(message) => write!(f, "sending a segment panicked: {message}"),
        }
    }
}

impl std::fmt::Display for RemovalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Disk(error) => error.fmt(f),
            Self::Panicked(message) => write!(f, "removing a segment panicked: {message}"),
        }
    }
}

/// Lets the recorder go on when it is dropped, since nobody makes room any more.
struct Released<'a> {
    recorder: &'a Recorder,
    /// The owners who are held.
    owners: BTreeSet<Claimant>,
}

impl Released<'_> {
    /// Holds these owners, and nobody else.
    fn hold(&mut self, owners: BTreeSet<Claimant>) {
        self.owners.difference(&owners).for_each(|owner| self.recorder.hold_owner(owner, false));
        owners.difference(&self.owners).for_each(|owner| self.recorder.hold_owner(owner, true));
        self.owners = owners;
    }
}

impl Drop for Released<'_> {
    fn drop(&mut self) {
        self.recorder.hold(false);
        self.hold(BTreeSet::new());
    }
}

/// Interval at which the spool is searched for sealed segments.
pub const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Most bytes that are read and sent at a time.
const PIECE_BYTES: usize = 256 << 10;
/// Time that a piece or an answer may take: as long as a disk may take to make a segment durable.
const STALL: Duration = Duration::from_secs(60);
/// Time to wait for the reason why a stream ended.
const EARLY_ANSWER: Duration = Duration::from_secs(2);
