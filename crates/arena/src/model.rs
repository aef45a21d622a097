//! Tests that let a model checker run the code of the handshake and of the rings through every interleaving, with every
//! value that the memory model lets a load see.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::bell::{Bell, Sleeping};
use crate::files::{NODE_BELL, TRAINER_BELL};
use crate::header::{inputs, outputs};
use crate::patience::{SLICE, Wait, sleep};
use crate::ring::{RingPlace, RingReader, RingWriter};
use crate::sequence;
use crate::words::{Words, WordsMut};

/// Words that the checker watches. Its futex sleeps without a time limit, so that a lost wake-up is a deadlock.
struct Watched {
    words: BTreeMap<usize, AtomicU64>,
    queue: Mutex<()>,
    woken: Condvar,
}

impl Watched {
    fn new(offsets: impl IntoIterator<Item = usize>) -> Self {
        let words = offsets.into_iter().map(|offset| (offset, AtomicU64::new(0))).collect();
        Self { words, queue: Mutex::new(()), woken: Condvar::new() }
    }
}

impl Words for Watched {
    fn load(&self, offset: usize) -> u64 {
        self.words[&offset].load(Ordering::Relaxed)
    }

    fn sleep_on(&self, offset: usize, value: u32, _: Duration) {
        // The kernel compares and queues under a lock that a wake-up takes too.
        let queue = self.queue.lock().unwrap();
        if self.load(offset) as u32 == value {
            drop(self.woken.wait(queue).unwrap());
        }
    }

    fn fence(order: Ordering) {
        fence(order);
    }
}

impl WordsMut for Watched {
    fn store(&self, offset: usize, value: u64) {
        self.words[&offset].store(value, Ordering::Relaxed);
    }

    fn wake_on(&self, _: usize) {
        drop(self.queue.lock().unwrap());
        self.woken.notify_all();
    }

    fn enter(&self, offset: usize) {
        self.words[&offset].fetch_add(1, Ordering::Relaxed);
    }

    fn leave(&self, offset: usize) {
        self.words[&offset].fetch_sub(1, Ordering::Relaxed);
    }
}

/// A descriptor that counts what is written to it, and on which one sleeps while it is 0.
#[derive(Default)]
struct Counter {
    count: Mutex<u64>,
    written: Condvar,
}

impl Counter {
    fn write(&self) {
        *self.count.lock().unwrap() += 1;
        self.written.notify_all();
    }

    fn poll_and_read(&self) {
        let mut count = self.count.lock().unwrap();
        while *count == 0 {
            count = self.written.wait(count).unwrap();
        }
        *count = 0;
    }
}

fn sleep_until<T>(own: &Watched, peer: &Watched, bell: Bell, mut ready: impl FnMut() -> Option<T>) -> T {
    let wait = Wait { own, peer, bell, deadline: None, slice: SLICE };
    sleep(&wait, || Ok::<_, Infallible>(ready()), || true).expect("nothing ends this wait")
}

#[test]
fn a_step_is_seen_whole_by_both_sides_and_no_wake_up_is_lost() {
    loom::model(|| {
        let outputs = [outputs::ANSWER_SEQ, outputs::NODE_SLEEPING, outputs::TRAINER_WAKE];
        let inputs = [inputs::ACTION_SEQ, inputs::TRAINER_SLEEPING, inputs::NODE_WAKE];
        let node = Arc::new(Watched::new(outputs.map(|word| word.at)));
        let trainer = Arc::new(Watched::new(inputs.map(|word| word.at)));
        // Columns, which nothing orders but the sequences: the checker reports a race on them.
        let action = Arc::new(UnsafeCell::new(0));
        let frame = Arc::new(UnsafeCell::new(0));
        let serving = thread::spawn({
            let (node, trainer) = (Arc::clone(&node), Arc::clone(&trainer));
            let (action, frame) = (Arc::clone(&action), Arc::clone(&frame));
            move || {
                let posted = || (trainer.load_acquire(inputs::ACTION_SEQ.at) == 1).then_some(());
                sleep_until(&node, &trainer, NODE_BELL, posted);
                // SAFETY: the trainer has posted and waits.
                let action = action.with(|action| unsafe { *action });
                // SAFETY: the trainer reads it once it is answered.
                frame.with_mut(|frame| unsafe { *frame = action + 1 });
                node.store_release(outputs::ANSWER_SEQ.at, 1);
                TRAINER_BELL.ring(&*node, &*trainer);
            }
        });
        // SAFETY: nothing is posted.
        action.with_mut(|action| unsafe { *action = 6 });
        trainer.store_release(inputs::ACTION_SEQ.at, 1);
        NODE_BELL.ring(&*trainer, &*node);
        let answered = || (node.load_acquire(outputs::ANSWER_SEQ.at) == 1).then_some(());
        sleep_until(&trainer, &node, TRAINER_BELL, answered);
        // SAFETY: the node has answered.
        assert_eq!(frame.with(|frame| unsafe { *frame }), 7);
        serving.join().unwrap();
    });
}

#[test]
fn a_ring_passes_every_record_on_and_wakes_whoever_waits_for_room() {
    /// Room for two of the records, and no record passes the end without a skip.
    const RING: RingPlace = RingPlace { data: 64, bytes: 32, written: 0, read: 0 };
    const READER: Bell = Bell { sleeping: Sleeping(8), wake: 8 };
    const WRITER: Bell = Bell { sleeping: Sleeping(16), wake: 16 };
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let writers = Arc::new(Watched::new([0, 8, 16, 64, 72, 80, 88]));
        let readers = Arc::new(Watched::new([0, 8, 16]));
        let writing = thread::spawn({
            let (own, peer) = (Arc::clone(&writers), Arc::clone(&readers));
            move || {
                let mut writer = RingWriter::resume(RING, &*own, &*peer).unwrap();
                for record in [&[1; 8][..], &[2; 4], &[3; 8]] {
                    let push = || writer.push(&*own, &*peer, record).unwrap().then_some(());
                    sleep_until(&own, &peer, WRITER, push);
                    READER.ring(&*own, &*peer);
                }
            }
        });
        let mut reader = RingReader::resume(RING, &*readers, &*writers).unwrap();
        for wanted in [&[1; 8][..], &[2; 4], &[3; 8]] {
            let mut record = Vec::new();
            let pop = || reader.pop(&*readers, &*writers, &mut record).unwrap().then_some(());
            sleep_until(&readers, &writers, READER, pop);
            assert_eq!(record, wanted);
            WRITER.ring(&*readers, &*writers);
        }
        writing.join().unwrap();
    });
}

#[test]
fn a_number_is_seen_by_all_threads_that_wait_for_it_and_no_wake_up_is_lost() {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let words = Arc::new(Watched::new([sequence::VALUE, sequence::SLEEPERS, sequence::WAKES]));
        let column = Arc::new(UnsafeCell::new(0));
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let (words, column) = (Arc::clone(&words), Arc::clone(&column));
                thread::spawn(move || {
                    sleep_until(&words, &words, sequence::BELL, || sequence::reached(&*words, 1));
                    // SAFETY: nobody writes it once the number is raised.
                    assert_eq!(column.with(|column| unsafe { *column }), 7);
                })
            })
            .collect();
        // SAFETY: nobody reads it before the number is raised.
        column.with_mut(|column| unsafe { *column = 7 });
        sequence::raise(&*words, 1);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert_eq!(words.load(sequence::SLEEPERS), 0);
    });
}

#[test]
fn a_worker_that_sleeps_on_a_descriptor_misses_no_command() {
    const COMMANDED: usize = 0;
    const ASLEEP: Sleeping = Sleeping(8);
    loom::model(|| {
        let memory = Arc::new(Watched::new([COMMANDED, ASLEEP.0]));
        let bell = Arc::new(Counter::default());
        let worker = thread::spawn({
            let (memory, bell) = (Arc::clone(&memory), Arc::clone(&bell));
            move || {
                for number in 1..=2 {
                    ASLEEP.announce(&*memory);
                    while memory.load_acquire(COMMANDED) < number {
                        bell.poll_and_read();
                    }
                    ASLEEP.withdraw(&*memory);
                }
            }
        });
        for number in 1..=2 {
            memory.store_release(COMMANDED, number);
            if ASLEEP.is_announced(&*memory) {
                bell.write();
            }
        }
        worker.join().unwrap();
    });
}
