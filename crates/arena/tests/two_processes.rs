//! What only two processes show. A program of its own, because it is the trainer too.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic and says what it did")]

use rollhouse_arena::{Request, SharedMemory};

use crate::common::pair::{Pair, Size, be_trainer};

mod common {
    pub(crate) mod pair;
}

type Check = (&'static str, fn());

fn main() {
    if be_trainer() {
        return;
    }
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let mut passed = 0;
    for (name, check) in CHECKS {
        if wanted.as_ref().is_none_or(|wanted| name.contains(wanted.as_str())) {
            check();
            println!("test {name} ... ok");
            passed += 1;
        }
    }
    println!("test result: ok. {passed} passed; 0 failed; 0 ignored");
}

const CHECKS: &[Check] = &[
    ("steps_pass_between_processes", steps_pass_between_processes),
    (
        "a_sleeping_trainer_is_woken_through_memory_it_can_only_read",
        a_sleeping_trainer_is_woken_through_memory_it_can_only_read,
    ),
];

fn steps_pass_between_processes() {
    let mut pair = Pair::start(Size { lanes: 16, elements: 4 }).unwrap();
    for _ in 0..5_000 {
        pair.step();
    }
    pair.finish().unwrap();
}

/// Each answer is given when the trainer says that it sleeps. If the kernel refused to sleep on its memory, or the
/// wake-up did not reach it, every wait would take many slices, or one that lasts to its end and then a second.
fn a_sleeping_trainer_is_woken_through_memory_it_can_only_read() {
    let mut pair = Pair::start(Size { lanes: 1, elements: 1 }).unwrap();
    let inputs = SharedMemory::attach(pair.end.inputs_fd().try_clone_to_owned().unwrap()).unwrap();
    let says_it_sleeps = || inputs.word(384).load(std::sync::atomic::Ordering::SeqCst) == 1;
    for _ in 0..20 {
        assert_eq!(pair.end.wait(None, || true), Ok(Request::Step));
        while !says_it_sleeps() {
            std::thread::yield_now();
        }
        pair.answer();
    }
    let said = pair.finish().unwrap();
    let slices: Vec<u32> = said.split_whitespace().map(|slices| slices.parse().unwrap()).collect();
    assert_eq!(slices.len(), 20);
    // A machine that stands still for the length of a slice may add one here and there.
    assert!(slices.iter().filter(|&&slices| slices == 1).count() >= 10, "{slices:?}");
}
