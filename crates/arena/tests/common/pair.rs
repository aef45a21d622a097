//! A node in this process and a trainer in a child of it, on one memory.
#![allow(dead_code, reason = "the test and the bench use different parts of it")]
#![allow(clippy::print_stdout, reason = "the trainer tells its parent what it saw")]

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::process::{Child, Command, Stdio};

use rollhouse_arena::{
    Answer, Arena, ArenaIdent, AttachedArena, BatchColumns, Expected, FrameNotes, MIN_RING_BYTES, Patience,
    Request, ServingEnd, Share, SharedArena, TrainerError,
};
use rollhouse_core::{ColumnMut, ColumnSpec, DType, Role};

/// The node's side. Its env shows each action as the next observation.
pub(crate) struct Pair {
    arena: Arena,
    share: Share,
    lanes: Range<usize>,
    pub(crate) end: ServingEnd,
    trainer: Child,
}

/// The size of a batch: lanes, and single-precision elements of an action and of an observation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) lanes: usize,
    pub(crate) elements: usize,
}

impl Pair {
    /// Starts the trainer: this very program, which has to call [`be_trainer`] first of all.
    pub(crate) fn start(size: Size) -> io::Result<Self> {
        let columns = columns(size);
        let lanes = 0..size.lanes;
        let (mut shared, placement) = SharedArena::create(&columns, size.lanes, IDENT, MIN_RING_BYTES)?;
        let ranges = std::slice::from_ref(&lanes);
        let (arena, mut shares) =
            Arena::new(&columns, size.lanes, ranges, Patience::NONE, placement).map_err(io::Error::other)?;
        let end = shared.attach(GENERATION, arena.frames())?;
        let files = [inherited(end.outputs_fd())?, inherited(end.inputs_fd())?];
        let [outputs, inputs] = files.each_ref().map(|fd| fd.as_raw_fd().to_string());
        let trainer = Command::new(std::env::current_exe()?)
            .args([TRAINER, &outputs, &inputs, &size.lanes.to_string(), &size.elements.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Self { arena, share: shares.remove(0), lanes, end, trainer })
    }

    /// Waits for a step and answers it.
    pub(crate) fn step(&mut self) {
        let request = self.end.wait(None, || true);
        assert_eq!(request, Ok(Request::Step), "the trainer steps only");
        self.answer();
    }

    /// Answers the step that was asked for.
    pub(crate) fn answer(&mut self) {
        self.end.copy_actions(self.arena.actions_mut());
        self.arena.start();
        if let Some(mut rows) = self.share.begin() {
            rows.with_block(&self.lanes, |rows| assert!(rows.obs[0].copy_from(rows.actions), "one type"));
        }
        assert_eq!(self.arena.wait(None), Ok(()), "the one share is done");
        self.end.answer_frame(&self.arena.frame(), &[], &FrameNotes::default());
    }

    /// Ends the trainer and gives what it said.
    pub(crate) fn finish(self) -> io::Result<String> {
        self.end.remote().close(0);
        let said = self.trainer.wait_with_output()?;
        assert!(said.status.success(), "the trainer ended with {}", said.status);
        String::from_utf8(said.stdout).map_err(io::Error::other)
    }
}

/// Steps as a trainer until the node closes, and prints the number of steps and how often in each the wait for it came
/// to sleep, if the program was started by [`Pair::start`]; false if not.
pub(crate) fn be_trainer() -> bool {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(TRAINER) {
        return false;
    }
    let mut number = || arguments.next().and_then(|text| text.parse::<usize>().ok()).expect("a number");
    // SAFETY: the parent left these descriptors open for this process, which takes each once.
    let mut file = || unsafe { OwnedFd::from_raw_fd(number() as RawFd) };
    let (outputs, inputs) = (file(), file());
    let size = Size { lanes: number(), elements: number() };
    let columns = columns(size);
    let expected = Expected { columns: &columns, lanes: size.lanes, ident: IDENT, generation: GENERATION };
    let mut arena = AttachedArena::open(outputs, inputs, &expected).expect("a sound pair of files");
    let mut slept = Vec::new();
    for step in 0u32.. {
        let value = (step % 1024) as f32;
        let ColumnMut::F32(actions) = arena.actions_mut() else { panic!("actions are singles") };
        actions.fill(value);
        arena.post_step();
        let mut slices = 0u32;
        let alive = || {
            slices += 1;
            true
        };
        match arena.wait(None, alive) {
            Ok(answer) => assert_eq!(answer, Answer::Frame),
            Err(error) => {
                assert_eq!(error, TrainerError::Closed { code: 0 });
                break;
            }
        }
        let obs = arena.frame().obs(0).as_f32().expect("observations are singles");
        let sum = sum(obs);
        assert_eq!(sum, value * obs.len() as f32, "every element of step {step} arrived");
        if slept.len() < MOST_STEPS_TOLD {
            slept.push(slices.to_string());
        }
    }
    println!("{}", slept.join(" "));
    true
}

/// Sums of small whole numbers are exact in any order; this one is fast.
fn sum(values: &[f32]) -> f32 {
    let (chunks, rest) = values.as_chunks::<16>();
    let mut sums = [0.0; 16];
    for chunk in chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, value)| *sum += value);
    }
    sums.iter().chain(rest).sum()
}

fn columns(size: Size) -> BatchColumns {
    let column = |role| ColumnSpec {
        path: String::new(),
        dtype: DType::F32,
        shape: vec![size.elements],
        names: vec![],
        role,
    };
    BatchColumns {
        action: column(Role::Action),
        obs: vec![column(Role::Obs)],
        infos: vec![],
        final_obs: false,
    }
}

/// A copy of the descriptor that a child process inherits.
fn inherited(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let copy = fd.try_clone_to_owned()?;
    rustix::io::fcntl_setfd(&copy, rustix::io::FdFlags::empty())?;
    Ok(copy)
}

const GENERATION: u64 = 1;
const IDENT: ArenaIdent = ArenaIdent { term: 1, counter: 1, autoreset: 0 };
const TRAINER: &str = "be-the-trainer-of-a-pair";
/// Steps of which the trainer says how it waited.
const MOST_STEPS_TOLD: usize = 1000;
