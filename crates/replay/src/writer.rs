//! The writer thread: takes full buffers, gives empty ones back.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::disk::{Disk, Locking};
use crate::handover::{Doorbell, RunShared};
use crate::recorder::{DiskError, OpenError, RecorderConfig, Status};
use crate::run::RunHeader;

/// What the recorder asks of its writer thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// A run begins.
    Begin(Box<RunHeader>, Arc<RunShared>),
    /// Make everything handed over so far durable, then answer.
    Sync(SyncSender<()>),
    /// Write what was handed over and end.
    Finish,
}

/// The thread's state.
#[derive(Debug)]
pub(crate) struct Writer {
    commands: Receiver<Command>,
    doorbell: Arc<Doorbell>,
    totals: Arc<Mutex<Status>>,
    runs: Vec<(Box<RunHeader>, Arc<RunShared>)>,
    _lock: Locking,
}

impl Writer {
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        _config: RecorderConfig,
        commands: Receiver<Command>,
        doorbell: Arc<Doorbell>,
        totals: Arc<Mutex<Status>>,
    ) -> Result<Self, OpenError> {
        let failed = |operation, path: PathBuf| {
            move |error| OpenError::Disk(DiskError { operation, path, source: Arc::new(error) })
        };
        disk.create_dir(dir).map_err(failed("create", dir.into()))?;
        let path = dir.join("writer.lock");
        let note = format!("process {}", std::process::id());
        let lock = match disk.lock(&path, &note).map_err(failed("lock", path.clone()))? {
            Locking::Held(holder) => return Err(OpenError::Locked { dir: dir.into(), holder }),
            taken => taken,
        };
        Ok(Self { commands, doorbell, totals, runs: Vec::new(), _lock: lock })
    }

    pub(crate) fn run(mut self) {
        self.doorbell.answer_here();
        loop {
            let began = Instant::now();
            let command = match self.commands.try_recv() {
                Ok(command) => Some(command),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(Command::Finish),
            };
            let took = self.drain();
            {
                let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
                totals.recorded.episodes += took;
                totals.recorded.busy += began.elapsed();
            }
            match command {
                Some(Command::Begin(header, shared)) => self.runs.push((header, shared)),
                Some(Command::Sync(done)) => drop(done.send(())),
                Some(Command::Finish) => break,
                None if took == 0 => std::thread::park_timeout(Duration::from_millis(1)),
                None => {}
            }
        }
        self.doorbell.leave();
    }

    fn drain(&mut self) -> u64 {
        let mut ends = 0;
        self.runs.retain(|(_, shared)| {
            let over = shared.is_over();
            while let Some(buffer) = shared.take_full() {
                ends += buffer.ends.len() as u64;
                shared.recycle(buffer);
            }
            !over
        });
        ends
    }
}
