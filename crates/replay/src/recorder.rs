//! The recorder: one per folder and process, with one writer thread.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{Interruption, Outcome, RunId, SeedSchedule};

use crate::block::BlockRecorder;
use crate::buffer::Layout;
use crate::clock::Clock;
use crate::coding::stepped::skips_after_end;
use crate::disk::Disk;
use crate::folder::RepairReport;
use crate::handover::{Doorbell, RunShared};
use crate::limits::{BUDGET_BYTES, EXTENT_BYTES, MAX_OPEN_RUNS, MAX_SEGMENT_BYTES, SEGMENT_BYTES};
use crate::record_error::{BeginError, DiskError, OpenError, RecordError};
use crate::run::{RecordKind, RecordMode, RunHeader};
use crate::run_record::RunInfo;
use crate::segments::RunPlace;
use crate::spool::Spool;
use crate::writer::{Command, Shared, Writer};

/// Records runs into one folder. Dropping it without [`Recorder::finish`] writes and seals what was handed over
/// all the same, but nobody learns of errors.
#[derive(Debug)]
pub struct Recorder {
    commands: SyncSender<Command>,
    doorbell: Arc<Doorbell>,
    totals: Arc<Mutex<Status>>,
    writer: Option<JoinHandle<()>>,
    open_runs: Arc<AtomicUsize>,
    spool: Spool,
}

/// Records one run, or some of its lanes; makes a [`BlockRecorder`] for each block of its lanes.
#[derive(Debug)]
pub struct RunRecorder {
    shared: Arc<RunShared>,
    lanes: Range<u32>,
    open_runs: Arc<AtomicUsize>,
}

/// Tells whether stepping threads wait for a run's writer; see [`RunRecorder::backlog`].
#[derive(Debug, Clone)]
pub struct Backlog(Arc<RunShared>);

/// How a folder is recorded into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecorderConfig {
    /// Bytes at which a segment is sealed and the next one opened; between [`EXTENT_BYTES`] / 16 and
    /// [`MAX_SEGMENT_BYTES`]. Default [`SEGMENT_BYTES`]: large enough that a run's header does not count,
    /// small enough that the budget drops little at a time.
    pub segment_bytes: u64,
    /// Bytes of all segments at which the oldest unpinned ones are dropped, whole and counted. Default
    /// [`BUDGET_BYTES`]. `u64::MAX` where somebody else takes segments away, see [`Recorder::spool`].
    pub budget_bytes: u64,
    /// How long after its first chunk a segment is sealed whatever its size, at the latest; it is 200 ms when no run
    /// is open. Default: never, as small segments cost readers more. Nodes set it, because only sealed segments are shipped.
    pub seal_after: Option<Duration>,
    /// How often what was written is made durable without being asked. Default 1 s: at most this much of a
    /// run is lost with the machine's power.
    pub commit_every: Duration,
    /// What happens to stepping while the disk takes nothing: it is full, read-only or broken. Default
    /// [`OnOutage::Lose`].
    pub on_outage: OnOutage,
}

/// What happens to stepping while the disk takes nothing. Either way what was durable stays, what was not when the
/// disk failed (at most [`RecorderConfig::commit_every`]) is counted as lost, and recording goes on by itself
/// within about four seconds of the disk taking something again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnOutage {
    /// It goes on; what is stepped meanwhile is counted as lost.
    #[default]
    Lose,
    /// It waits: see [`RunRecorder::outage`]. Nothing that is stepped meanwhile is lost.
    Wait,
}

impl Default for RecorderConfig {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES,
            budget_bytes: BUDGET_BYTES,
            seal_after: None,
            commit_every: Duration::from_secs(1),
            on_outage: OnOutage::Lose,
        }
    }
}

/// What a recorder has written so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recorded {
    /// Episodes that were written from their beginning to their end.
    pub episodes: u64,
    /// Bytes written to segments.
    pub bytes: u64,
    /// Of those, bytes that a disk which failed did not keep.
    pub torn_bytes: u64,
    /// Segments opened.
    pub segments: u64,
    /// Episodes of which a chunk could not be written: the one with the end, or one before it.
    pub lost_episodes: u64,
    /// Chunks that could not be written.
    pub lost_chunks: u64,
    /// Pictures that were left out, because more came than the disk could follow.
    pub lost_frames: u64,
    /// Old segments removed to stay within the budget.
    pub dropped_segments: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// How long stepping threads waited because the disk could not follow, added up over threads.
    pub stalled: Duration,
    /// How long the writer thread was busy.
    pub busy: Duration,
}

/// What a recorder has written, and what is wrong with its disk if anything.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Written so far.
    pub recorded: Recorded,
    /// Of those, the episodes that survive a power cut.
    pub durable_episodes: u64,
    /// Bytes of segments that are not sealed: of the one being written, and of the one before while it is sealed.
    pub open_bytes: u64,
    /// The last failed operation. Set while and after the recorder could not write.
    pub error: Option<DiskError>,
    /// Whether the disk takes nothing just now, for the reason in `error`.
    pub failing: bool,
    /// Somebody has removed the folder: nothing is recorded any more.
    pub removed: bool,
    /// What opening the folder had to repair.
    pub repaired: RepairReport,
}

impl Recorder {
    /// Takes the folder's writer lock, repairs what an earlier crash left and starts the writer thread. The
    /// folder is made if it is not there.
    ///
    /// # Errors
    /// If somebody else records there, a file operation fails or `config` is out of bounds.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, config: RecorderConfig) -> Result<Self, OpenError> {
        // Number and randomness of a fresh run id serve the session as well.
        let session = RunId::generate().short() as u32;
        let (mut recorder, writer) = Self::with_writer(disk, dir, config, session, Clock::system())?;
        let thread = std::thread::Builder::new().name("replay-writer".into());
        // Task: writer.
        recorder.writer = Some(thread.spawn(move || writer.run()).map_err(OpenError::Thread)?);
        Ok(recorder)
    }

    /// A recorder, and its writer that nobody runs yet.
    pub(crate) fn with_writer(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: RecorderConfig,
        session: u32,
        clock: Clock,
    ) -> Result<(Self, Writer), OpenError> {
        let least = EXTENT_BYTES / 16;
        if !(least..=MAX_SEGMENT_BYTES).contains(&config.segment_bytes) {
            let setting = "segment_bytes";
            return Err(OpenError::Config {
                setting,
                given: config.segment_bytes,
                least,
                most: MAX_SEGMENT_BYTES,
            });
        }
        let (commands, receiver) = sync_channel(COMMANDS);
        let doorbell = Arc::new(Doorbell::default());
        if let Clock::Driven(now, ahead_ms) = clock {
            doorbell.drive(now, ahead_ms);
        }
        let totals = Arc::new(Mutex::new(Status::default()));
        let spool = Spool::new(disk.clone(), dir);
        let shared = Shared {
            session,
            commands: receiver,
            doorbell: doorbell.clone(),
            status: totals.clone(),
            sealed: spool.clone(),
        };
        let writer = Writer::open(disk, dir, config, shared, clock)?;
        let open_runs = Arc::default();
        Ok((Self { commands, doorbell, totals, writer: None, open_runs, spool }, writer))
    }

    /// Begins a run. Nothing is written before its first rows.
    ///
    /// # Errors
    /// If the header contradicts itself, too many runs are open or the writer is gone.
    pub fn begin_run(&self, header: RunHeader) -> Result<RunRecorder, BeginError> {
        let lanes = 0..header.lanes;
        self.begin_lanes(header, lanes)
    }

    /// The same of a run of which pictures are recorded too, of every `frames_every`-th step of an episode as a rule: see
    /// [`BlockRecorder::frame`]. They are kept of envs alone that cannot be recomputed.
    ///
    /// # Errors
    /// As [`Recorder::begin_run`].
    pub fn begin_run_with_frames(
        &self,
        header: RunHeader,
        frames_every: u64,
    ) -> Result<RunRecorder, BeginError> {
        let lanes = 0..header.lanes;
        self.begin(header, lanes, 0, frames_every)
    }

    /// Begins to record some lanes of a run whose others are recorded elsewhere, by this recorder or another
    /// one; all say the same of the run. What it costs depends on these lanes, not on the run's.
    ///
    /// # Errors
    /// As [`Recorder::begin_run`].
    ///
    /// # Panics
    /// If the lanes are not lanes of the run.
    pub fn begin_lanes(&self, header: RunHeader, lanes: Range<u32>) -> Result<RunRecorder, BeginError> {
        self.begin_placed(header, lanes, 0)
    }

    /// The same for lanes that may be recorded by several recorders one after the other, and by one several times:
    /// `placement` is another number each time. Readers then know that an episode may have been recorded more than
    /// once.
    ///
    /// # Errors
    /// As [`Recorder::begin_run`].
    ///
    /// # Panics
    /// As [`Recorder::begin_lanes`].
    pub fn begin_placed(
        &self,
        header: RunHeader,
        lanes: Range<u32>,
        placement: u64,
    ) -> Result<RunRecorder, BeginError> {
        self.begin(header, lanes, placement, 0)
    }

    fn begin(
        &self,
        header: RunHeader,
        lanes: Range<u32>,
        placement: u64,
        frames_every: u64,
    ) -> Result<RunRecorder, BeginError> {
        assert!(lanes.start <= lanes.end && lanes.end <= header.lanes, "lanes beyond the run's");
        if let RecordMode::Sample { probability } = header.mode
            && !(0.0..=1.0).contains(&probability)
        {
            return Err(BeginError::Probability(probability));
        }
        if header.options.len() != 1 && header.options.len() != header.lanes as usize {
            return Err(BeginError::Options { given: header.options.len(), lanes: header.lanes });
        }
        let kind = RecordKind::of(header.mode, header.spec.determinism);
        let layout = Layout::new(&header.spec, kind, header.schedule == SeedSchedule::Continue);
        let block_lanes = lanes.len().min(BLOCK_LANES);
        if !layout.fits(block_lanes) {
            return Err(BeginError::RowTooLarge { bytes: layout.row_bytes(block_lanes) });
        }
        let mut info = RunInfo::new(&header);
        info.placement = placement;
        info.frames_every = if kind == RecordKind::Full { frames_every } else { 0 };
        let payload = info.encode().map_err(|error| BeginError::Header(Arc::new(error)))?;
        if self.open_runs.fetch_add(1, Ordering::Relaxed) >= MAX_OPEN_RUNS {
            self.open_runs.fetch_sub(1, Ordering::Relaxed);
            return Err(BeginError::TooManyRuns);
        }
        let skips = skips_after_end(&header.autoreset);
        let shared = RunShared::new(layout, lanes.len(), skips, self.doorbell.clone());
        let run = RunRecorder { shared: shared.clone(), lanes, open_runs: self.open_runs.clone() };
        let place = RunPlace { tag: info.tag(), payload: payload.into(), at: None };
        let begin = Command::Begin(Box::new(header), place, shared);
        self.send(begin).map_err(|()| BeginError::WriterGone)?;
        Ok(run)
    }

    /// Makes everything handed over so far durable: on return it survives a power cut.
    ///
    /// Blocks for the disk. What block recorders still hold in their buffers is not covered; see
    /// [`BlockRecorder::flush`].
    ///
    /// # Errors
    /// If anything handed over since the recorder was opened is lost.
    pub fn sync(&self) -> Result<Recorded, RecordError> {
        self.ask(Command::Sync)
    }

    /// Seals the segment that is being written, if there is one, with everything handed over so far in it: on
    /// return [`Recorder::spool`] has it. The next chunk opens another.
    ///
    /// Blocks for the disk, and covers what [`Recorder::sync`] covers.
    ///
    /// # Errors
    /// As [`Recorder::sync`].
    pub fn seal(&self) -> Result<Recorded, RecordError> {
        self.ask(Command::Seal)
    }

    /// Waits until everything handed over so far has been coded and counted in [`Recorder::status`]. Makes nothing
    /// durable. Blocks as long as the writer needs for what it has, also while it is held.
    ///
    /// # Errors
    /// As [`Recorder::sync`].
    pub fn write_out(&self) -> Result<Recorded, RecordError> {
        self.ask(Command::WriteOut)
    }

    /// Has the writer take nothing any more, or take what waits: while held, stepping threads wait as soon as
    /// their buffers are used up ([`RunRecorder::is_behind`]). [`Recorder::write_out`], [`Recorder::sync`],
    /// [`Recorder::seal`] and [`Recorder::finish`] write what was handed over all the same.
    pub fn hold(&self, held: bool) {
        self.doorbell.hold(held);
    }

    /// Sees whether the disk takes anything, if that is not known, so that [`Status::failing`] is right about what is
    /// about to begin. Blocks for the disk.
    pub fn try_disk(&self) {
        let (done, answer) = sync_channel(1);
        if self.send(Command::TryDisk(done)).is_ok() {
            // A writer that is gone shows as such.
            let _tried = answer.recv();
        }
    }

    /// The folder, if somebody has removed it.
    pub fn removed_folder(&self) -> Option<PathBuf> {
        self.status().removed.then(|| self.spool.dir().to_owned())
    }

    /// As [`RunRecorder::outage`], for runs that are to begin.
    pub fn outage(&self) -> Option<DiskError> {
        self.doorbell.outage()
    }

    /// The sealed segments of the folder, for those who take them elsewhere.
    pub fn spool(&self) -> Spool {
        self.spool.clone()
    }

    /// Whether its writer has ended, which it never does by itself: nothing is recorded any more, and what is handed
    /// over is counted as lost.
    pub fn is_gone(&self) -> bool {
        self.doorbell.is_gone()
    }

    fn ask(&self, command: impl FnOnce(SyncSender<()>) -> Command) -> Result<Recorded, RecordError> {
        let (done, answer) = sync_channel(1);
        let sent = self.send(command(done));
        match sent.ok().and_then(|()| answer.recv().ok()) {
            Some(()) => self.outcome(),
            None => Err(RecordError::WriterGone { recorded: self.status().recorded.into() }),
        }
    }

    /// Writes what was handed over, seals the segment, releases the folder and says what was recorded. Block
    /// recorders that are still open after it are recorded no further.
    ///
    /// Blocks for the disk.
    ///
    /// # Errors
    /// If anything handed over is lost.
    pub fn finish(mut self) -> Result<Recorded, RecordError> {
        if self.close() {
            self.outcome()
        } else {
            Err(RecordError::WriterGone { recorded: self.status().recorded.into() })
        }
    }

    /// What is written so far; does not wait for the writer.
    pub fn status(&self) -> Status {
        let mut status = self.totals.lock().clone();
        status.recorded.stalled = self.doorbell.stalled();
        status.recorded.lost_chunks += self.doorbell.abandoned();
        status.recorded.lost_frames = self.doorbell.lost_frames();
        status
    }

    fn outcome(&self) -> Result<Recorded, RecordError> {
        let Status { recorded, error, .. } = self.status();
        match error {
            Some(error) if recorded.lost_chunks > 0 => {
                Err(RecordError::Disk { error, recorded: recorded.into() })
            }
            _ if recorded.lost_chunks > 0 => Err(RecordError::WriterGone { recorded: recorded.into() }),
            _ => Ok(recorded),
        }
    }

    pub(crate) fn send(&self, command: Command) -> Result<(), ()> {
        self.commands.send(command).map_err(drop)?;
        self.doorbell.ring();
        Ok(())
    }

    /// Ends the writer thread; false if it panicked.
    fn close(&mut self) -> bool {
        let Some(writer) = self.writer.take() else { return true };
        // A failed send means that the thread has ended already; join tells how.
        let _ended = self.send(Command::Finish);
        writer.join().is_ok()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.close();
    }
}

impl RunRecorder {
    /// The recorder of the run's lanes from `first_lane` on; at most [`BLOCK_LANES`]. One at a time for a range:
    /// a later one for the same range goes on counting that range's episodes.
    ///
    /// # Panics
    /// If the range is empty, too long or not within the lanes that are recorded here.
    pub fn block(&self, first_lane: u32, lanes: usize) -> BlockRecorder {
        assert!((1..=BLOCK_LANES).contains(&lanes), "{lanes} lanes in a block of at most {BLOCK_LANES}");
        let end = u64::from(first_lane) + lanes as u64;
        let within = first_lane >= self.lanes.start && end <= u64::from(self.lanes.end);
        assert!(within, "lanes {first_lane}..{end} of the recorded {:?}", self.lanes);
        self.shared.retain();
        BlockRecorder::new(self.shared.clone(), first_lane, lanes)
    }
}

impl RunRecorder {
    /// Whether the writer has fallen so far behind that stepping threads wait for it, or will when they next
    /// fill a buffer. For those who watch that a run makes progress: waiting for the disk is no hang.
    pub fn is_behind(&self) -> bool {
        self.shared.is_exhausted()
    }

    /// Gives up those who step it: what they had handed over is written, its open episodes end as `interruption`
    /// with the steps that are there and without a return, and what still comes is dropped. Does not block; the
    /// first call counts. For threads that hang: nobody else ends what they hold.
    pub fn cut_short(&self, interruption: Interruption) {
        self.shared.cut_short(Outcome::Interrupted(interruption));
    }

    /// Those who step the run wait for the writer no longer once `flag` is raised, in the middle of a step either: what
    /// they hand over until they have ended waits for it in memory. The first flag counts. For those who have to end
    /// while the disk takes nothing.
    pub fn end_with(&self, flag: Arc<AtomicBool>) {
        self.shared.end_with(flag);
    }

    /// The same as [`RunRecorder::is_behind`] for those who keep no run open by asking.
    pub fn backlog(&self) -> Backlog {
        Backlog(Arc::clone(&self.shared))
    }

    /// Why nothing is taken just now, if the disk takes nothing and stepping is to wait for it
    /// ([`OnOutage::Wait`]). Whoever steps all the same waits in the middle of a step as soon as the buffers are
    /// used up. Does not block.
    pub fn outage(&self) -> Option<DiskError> {
        self.shared.doorbell.outage()
    }
}

impl Backlog {
    /// As [`RunRecorder::is_behind`].
    pub fn is_behind(&self) -> bool {
        self.0.is_exhausted()
    }
}

impl Drop for RunRecorder {
    fn drop(&mut self) {
        self.open_runs.fetch_sub(1, Ordering::Relaxed);
        self.shared.release();
    }
}

/// Commands that may wait for the writer; callers block beyond that.
const COMMANDS: usize = 16;
