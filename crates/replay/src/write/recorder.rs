//! The recorder: one per folder and process, with one writer thread.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{Claimant, Interruption, Outcome, RecordRule, RunId, SeedSchedule, StepColumns};

use crate::clock::Clock;
use crate::code::coding::stepped::skips_after_end;
use crate::code::layout::Layout;
use crate::code::run::{RecordKind, RunHeader};
use crate::code::run_record::RunInfo;
use crate::disk::Disk;
use crate::disk_error::DiskError;
use crate::limits::{EXTENT_BYTES, MAX_OPEN_RUNS, MAX_SEGMENT_BYTES};
use crate::stored::lock::OpenError;
use crate::write::block::BlockRecorder;
use crate::write::handover::{Doorbell, RunShared};
use crate::write::record_error::{BeginError, RecordError};
use crate::write::recorded::{Recorded, Status};
use crate::write::recorder_config::RecorderConfig;
use crate::write::segment_writer::RunPlace;
use crate::write::spool::Spool;
use crate::write::writer::{Command, Shared, Writer};

/// Records runs into one folder. A recorder that is dropped without [`Recorder::finish`] still writes and seals what
/// was handed over, but nobody learns of errors.
#[derive(Debug)]
pub struct Recorder {
    commands: SyncSender<Command>,
    doorbell: Arc<Doorbell>,
    totals: Arc<Mutex<Status>>,
    writer: Option<JoinHandle<()>>,
    open_runs: Arc<AtomicUsize>,
    spool: Spool,
}

/// A handle to a recorder's status; see [`Recorder::watch`]. It keeps neither the recorder nor its folder.
#[derive(Debug, Clone)]
pub struct RecorderWatch {
    totals: Arc<Mutex<Status>>,
    doorbell: Arc<Doorbell>,
}

/// A recorder of one run, or of some of its lanes. It makes a [`BlockRecorder`] for each block of its lanes.
#[derive(Debug)]
pub struct RunRecorder {
    shared: Arc<RunShared>,
    lanes: Range<u32>,
    step_columns: StepColumns,
    open_runs: Arc<AtomicUsize>,
}

/// What is recorded of a run beside its env's steps.
#[derive(Debug, Clone, Default)]
pub struct Beside {
    /// Number that tells apart recordings of lanes that several recorders may record: see [`Recorder::begin_placed`].
    pub placement: u64,
    /// Of every how many-th step of an episode there are pictures, as a rule: see [`BlockRecorder::frame`]. 0 stands
    /// for none. Pictures are kept only of envs that cannot be recomputed.
    pub frames_every: u64,
    /// Columns in which those who choose the actions note something of each step: see [`BlockRecorder::note`].
    pub step_columns: StepColumns,
    /// The owner to whose share of the folder the recording counts; it is not recorded. `None` counts for nobody.
    pub owner: Option<Claimant>,
}

/// A handle that tells whether stepping threads wait for a run's writer; see [`RunRecorder::backlog`].
#[derive(Debug, Clone)]
pub struct Backlog(Arc<RunShared>);

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

    /// Makes a recorder, and its writer, which nobody runs yet.
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

    /// Begins a run of which more is recorded than the env's steps.
    ///
    /// # Errors
    /// As [`Recorder::begin_run`].
    pub fn begin_run_with(&self, header: RunHeader, beside: Beside) -> Result<RunRecorder, BeginError> {
        let lanes = 0..header.lanes;
        self.begin_lanes_with(header, lanes, beside)
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

    /// Begins to record lanes, as [`Recorder::begin_lanes`] does, that several recorders may record one after the
    /// other, or one recorder several times: `placement` is another number each time. Readers then know that an episode
    /// may have been recorded more than once.
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
        self.begin_lanes_with(header, lanes, Beside { placement, ..Beside::default() })
    }

    /// Begins to record lanes, as [`Recorder::begin_placed`] does, of which more is recorded than the env's steps. Step
    /// columns that the env notes follow those of `beside`.
    ///
    /// # Errors
    /// As [`Recorder::begin_run`].
    ///
    /// # Panics
    /// As [`Recorder::begin_lanes`].
    pub fn begin_lanes_with(
        &self,
        mut header: RunHeader,
        lanes: Range<u32>,
        beside: Beside,
    ) -> Result<RunRecorder, BeginError> {
        let Beside { placement, frames_every, step_columns, owner } = beside;
        let step_columns = step_columns.and_of(&header.spec).map_err(BeginError::StepColumns)?;
        header.spec = header.spec.recorded();
        assert!(lanes.start <= lanes.end && lanes.end <= header.lanes, "lanes beyond the run's");
        if let RecordRule::Sample { probability } = header.record
            && !(0.0..=1.0).contains(&probability)
        {
            return Err(BeginError::Probability(probability));
        }
        if header.options.len() != 1 && header.options.len() != header.lanes as usize {
            return Err(BeginError::Options { given: header.options.len(), lanes: header.lanes });
        }
        header.spec.check_paths().map_err(BeginError::SamePath)?;
        let kind = RecordKind::of(header.record, &header.spec);
        let layout = Layout::new(&header.spec, kind, header.schedule == SeedSchedule::Continue)
            .with_step_columns(&step_columns);
        let block_lanes = lanes.len().min(BLOCK_LANES);
        if !layout.fits(block_lanes) {
            let bytes = layout.row_bytes(block_lanes) + layout.packed_bytes() * block_lanes;
            return Err(BeginError::RowTooLarge { bytes });
        }
        let mut info = RunInfo::new(&header);
        info.placement = placement;
        info.step_columns = step_columns.clone();
        info.frames_every = if kind == RecordKind::Full { frames_every } else { 0 };
        let payload = info.encode().map_err(|error| BeginError::Header(Arc::new(error)))?;
        if self.open_runs.fetch_add(1, Ordering::Relaxed) >= MAX_OPEN_RUNS {
            self.open_runs.fetch_sub(1, Ordering::Relaxed);
            return Err(BeginError::TooManyRuns);
        }
        let skips = skips_after_end(&header.autoreset);
        let shared = RunShared::new(layout, lanes.len(), skips, self.doorbell.clone());
        shared.set_options(&header.options);
        if let Some(owner) = &owner {
            shared.set_owner(owner);
        }
        let open_runs = self.open_runs.clone();
        let run = RunRecorder { shared: shared.clone(), lanes, step_columns, open_runs };
        let place = RunPlace {
            tag: info.tag(),
            env: info.spec.id.as_str().into(),
            memory: info.memory() + payload.len(),
            payload: payload.into(),
            at: None,
            owner,
        };
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

    /// Seals the segment that is being written, if there is one, with everything in it that was handed over so far: on
    /// return [`Recorder::spool`] has the segment. The next chunk opens another.
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

    /// Tells the writer to take nothing any more, or to take what waits: while it is held, stepping threads wait as
    /// soon as their buffers are used up ([`RunRecorder::is_behind`]). [`Recorder::write_out`], [`Recorder::sync`],
    /// [`Recorder::seal`] and [`Recorder::finish`] still write what was handed over.
    pub fn hold(&self, held: bool) {
        self.doorbell.hold(held);
    }

    /// Does the same for the runs of one owner alone ([`Beside::owner`]), those that begin later included.
    pub fn hold_owner(&self, owner: &Claimant, held: bool) {
        self.doorbell.hold_owner(owner, held);
    }

    /// Tests whether the disk takes anything, if that is not known, so that [`Status::failing`] is right for a run that
    /// is about to begin. Blocks for the disk.
    pub fn try_disk(&self) {
        let (done, answer) = sync_channel(1);
        if self.send(Command::TryDisk(done)).is_ok() {
            // A writer that is gone shows as such.
            let _tried = answer.recv();
        }
    }

    /// Returns the folder, if somebody has removed it.
    pub fn removed_folder(&self) -> Option<PathBuf> {
        self.status().removed.then(|| self.spool.dir().to_owned())
    }

    /// Returns the reason why the disk takes nothing, as [`RunRecorder::outage`] does, for runs that are about to
    /// begin.
    pub fn outage(&self) -> Option<DiskError> {
        self.doorbell.outage()
    }

    /// Returns whether the writer has to take nothing for now, as [`Recorder::hold`] says. Does not block.
    pub fn is_held(&self) -> bool {
        self.doorbell.is_held()
    }

    /// Returns whether the writer has to take nothing of an owner for now, as [`Recorder::hold_owner`] says. Does not
    /// block.
    pub fn is_owner_held(&self, owner: &Claimant) -> bool {
        self.doorbell.is_owner_held(owner)
    }

    /// Returns the sealed segments of the folder, for those who carry them elsewhere.
    pub fn spool(&self) -> Spool {
        self.spool.clone()
    }

    /// Returns whether the writer has ended, which it never does by itself: then nothing is recorded any more, and what
    /// is handed over is counted as lost.
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

    /// Writes what was handed over, seals the segment, releases the folder and returns what was recorded. Block
    /// recorders that are still open record nothing more.
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

    /// Returns what is written so far; does not wait for the writer.
    pub fn status(&self) -> Status {
        status_of(&self.totals, &self.doorbell)
    }

    /// Returns a handle to the status, for any time, also after the recorder has finished.
    pub fn watch(&self) -> RecorderWatch {
        RecorderWatch { totals: Arc::clone(&self.totals), doorbell: Arc::clone(&self.doorbell) }
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

    /// Ends the writer thread; returns false if it panicked.
    fn close(&mut self) -> bool {
        let Some(writer) = self.writer.take() else { return true };
        // A failed send means that the thread has ended already; join tells how.
        let _ended = self.send(Command::Finish);
        writer.join().is_ok()
    }
}

impl RecorderWatch {
    /// Returns what is written so far; does not wait for the writer.
    pub fn status(&self) -> Status {
        status_of(&self.totals, &self.doorbell)
    }
}

fn status_of(totals: &Mutex<Status>, doorbell: &Doorbell) -> Status {
    let mut status = totals.lock().clone();
    status.recorded.stalled = doorbell.stalled();
    status.recorded.lost_chunks += doorbell.abandoned();
    status.recorded.lost_frames = doorbell.lost_frames();
    status
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.close();
    }
}

impl RunRecorder {
    /// Returns the columns in which those who choose the actions note something of each step.
    pub const fn step_columns(&self) -> &StepColumns {
        &self.step_columns
    }

    /// Makes the recorder of `lanes` lanes of the run, from `first_lane` on; at most [`BLOCK_LANES`]. A range has one
    /// recorder at a time: a later one for the same range goes on counting that range's episodes.
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
    /// Returns whether the writer has fallen so far behind that stepping threads wait for it, or will when they next
    /// fill a buffer. It is for those who watch that a run makes progress: waiting for the disk is no hang.
    pub fn is_behind(&self) -> bool {
        self.shared.is_exhausted()
    }

    /// Gives up the threads that step the run: what they had handed over is written, the open episodes end as
    /// `interruption` with the steps that are there and without a return, and what still comes is dropped. Does not
    /// block; the first call counts. It is for threads that hang: nobody else ends the episodes that they hold.
    pub fn cut_short(&self, interruption: Interruption) {
        self.shared.cut_short(Outcome::Interrupted(interruption));
    }

    /// Sets a flag: once it is raised, the threads that step the run no longer wait for the writer, not even in the
    /// middle of a step. What they hand over until they have ended waits in memory. The first flag counts. It is for
    /// threads that have to end while the disk takes nothing.
    pub fn end_with(&self, flag: Arc<AtomicBool>) {
        self.shared.end_with(flag);
    }

    /// Returns a handle that answers [`RunRecorder::is_behind`] and does not keep the run open.
    pub fn backlog(&self) -> Backlog {
        Backlog(Arc::clone(&self.shared))
    }

    /// Returns the reason why nothing is taken just now, if the disk takes nothing and stepping should wait for it
    /// ([`OnOutage::Wait`](crate::OnOutage::Wait)). A thread that steps nevertheless waits in the middle of a step as
    /// soon as the buffers are used up. Does not block.
    pub fn outage(&self) -> Option<DiskError> {
        self.shared.doorbell.outage()
    }

    /// Returns whether the writer has to take nothing for now, as [`Recorder::hold`] says. Does not block.
    pub fn is_held(&self) -> bool {
        self.shared.doorbell.is_held()
    }

    /// Returns whether the writer has to take nothing of the run's owner for now, as [`Recorder::hold_owner`] says. Does
    /// not block.
    pub fn is_owner_held(&self) -> bool {
        self.shared.is_owner_held()
    }
}

impl Backlog {
    /// Returns whether the writer has fallen behind, as [`RunRecorder::is_behind`] does.
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
