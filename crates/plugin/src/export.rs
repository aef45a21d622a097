//! Makes plug-ins of envs that are written in Rust.

mod description;

use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::{ptr, slice};

use arrayvec::ArrayVec;
use rollhouse_core::limits::MAX_OBS_COLUMNS;
use rollhouse_core::{ColumnMut, ColumnRef, DType, EnvSpec, LaneSet, OptionValue, Options, Start};
use rollhouse_env::{BatchEnv, BlockStep, CallError, EnvEntry, ImageSize, InstructionSet};

use crate::abi::{self, Block, Table};
use crate::block::Columns;
use crate::structure::grown;

/// Makes the crate that calls it a plug-in, if it is compiled as a `cdylib`. The argument is an expression that gives
/// the envs, a `Vec` of `EnvEntry`, and is evaluated once.
///
/// An env's `dynamics_hash` is ignored, because whoever loads the plug-in computes it. A panic of an env loses what it
/// would lose in the program itself: a lane of an `Env`, the block of a `BatchEnv`.
#[macro_export]
macro_rules! export_envs {
    ($entries:expr) => {
        #[doc = "Returns the table of this plug-in; see rollhouse.h."]
        #[unsafe(no_mangle)]
        pub extern "C" fn rollhouse_plugin() -> *const $crate::Table {
            $crate::exported(|| $entries)
        }
    };
}

/// Returns the table of a plug-in with the envs that `entries` gives at the first call; NULL if it panics. For
/// [`export_envs!`].
pub fn exported(entries: impl FnOnce() -> Vec<EnvEntry>) -> *const Table {
    let made = catch_unwind(AssertUnwindSafe(|| EXPORTED.get_or_init(|| Exported::new(entries()))));
    made.map_or(ptr::null(), |exported| &raw const exported.table)
}

/// What this shared object exports: each has a copy of this crate, with its own static.
static EXPORTED: OnceLock<Exported> = OnceLock::new();

struct Exported {
    entries: Vec<EnvEntry>,
    descriptions: Vec<abi::Description>,
    table: Table,
}

// SAFETY: the pointers in it are to constants that are never freed.
unsafe impl Send for Exported {}
// SAFETY: as for `Send`; nothing is written after it was made.
unsafe impl Sync for Exported {}

impl Exported {
    fn new(entries: Vec<EnvEntry>) -> Self {
        let descriptions = entries.iter().map(description::description).collect();
        // Fits: a plug-in with more than MAX_ENVS is refused.
        let env_count = entries.len() as u32;
        Self { entries, descriptions, table: Table { env_count, ..TABLE } }
    }
}

const TABLE: Table = Table {
    version: abi::VERSION,
    size: abi::size::<Table>(),
    env_count: 0,
    reserved: 0,
    describe: Some(describe),
    make: Some(make),
    close: Some(close),
    reset: Some(reset),
    step: Some(step),
    state_hash: Some(state_hash),
    seed: Some(seed),
    position: Some(position),
    restore: Some(restore),
    revive: Some(revive),
    state: Some(state),
    set_state: Some(set_state),
    render: Some(render),
    text: Some(text),
    verdict: Some(verdict),
    set_options: Some(set_options),
    first_infos: Some(first_infos),
    call: Some(call),
    failed: Some(failed),
};

/// A block, how its columns lie in memory, and the number of its env.
struct ExportedBlock {
    block: Box<dyn BatchEnv>,
    columns: Columns,
    env: u32,
    /// True once the block has panicked: it has failed as a whole, and is only closed.
    failed: bool,
}

impl ExportedBlock {
    const fn new(block: Box<dyn BatchEnv>, columns: Columns, env: u32) -> Self {
        Self { block, columns, env, failed: false }
    }
}

/// Calls a block of this plug-in, and returns `failed` if it panics, or has before. The loader is told by [`failed`], and in the
/// next `reset`, `step` or `call`, which fails.
///
/// # Safety
/// `block` is one that `make` gave, and nobody else uses it.
unsafe fn called<T>(
    block: *const Block,
    failed: T,
    call: impl FnOnce(&mut dyn BatchEnv, &Columns) -> T,
) -> T {
    // SAFETY: by the caller.
    unsafe { contained(block, call) }.unwrap_or_else(|| {
        // SAFETY: by the caller; `make` gives blocks of this type, and the call is over.
        unsafe { (*block.cast_mut().cast::<ExportedBlock>()).failed = true };
        failed
    })
}

/// Calls a block of this plug-in for something that costs nothing if it panics. Returns `None` then, and of a block that has
/// failed.
///
/// # Safety
/// As [`called`].
unsafe fn contained<T>(
    block: *const Block,
    call: impl FnOnce(&mut dyn BatchEnv, &Columns) -> T,
) -> Option<T> {
    // SAFETY: by the caller; `make` gives blocks of this type.
    let exported = unsafe { &mut *block.cast_mut().cast::<ExportedBlock>() };
    let ExportedBlock { block, columns, env: _, failed: false } = exported else { return None };
    // Unwind safety: what a panic has left is not used, or not changed by it.
    catch_unwind(AssertUnwindSafe(|| call(&mut **block, columns))).ok()
}

unsafe extern "C" fn describe(env: u32) -> *const abi::Description {
    let found = EXPORTED.get().and_then(|exported| exported.descriptions.get(env as usize));
    found.map_or(ptr::null(), ptr::from_ref)
}

unsafe extern "C" fn make(make: *const abi::Make, block: *mut *mut Block) -> i32 {
    // SAFETY: the loader passes both for the time of the call, and as many bytes of the first as it says.
    let (make, block) = unsafe { (grown("make", make, (*make).size), &mut *block) };
    let Ok(make) = make else { return abi::FAILED };
    let made = catch_unwind(AssertUnwindSafe(|| {
        let exported = EXPORTED.get().ok_or("nothing is exported")?;
        let entry = exported.entries.get(make.env as usize).ok_or("there is no such env")?;
        let spec = entry.spec();
        let count = make.option_count as usize * make.lanes as usize;
        if make.option_count as usize != spec.options.len() {
            return Err("other options than described".to_owned());
        }
        // SAFETY: the loader gives that many values; it may give none as NULL.
        let values = if count == 0 { &[] } else { unsafe { slice::from_raw_parts(make.values, count) } };
        let lane = |lane: usize| {
            let first = lane * spec.options.len();
            // SAFETY: the loader gives as many sequences as values, or NULL if it knows none.
            unsafe { options(spec, &values[first..], behind(make.sequences, first)) }
        };
        let lanes = (0..make.lanes as usize).map(lane).collect::<Result<Vec<_>, String>>()?;
        let block = entry.make_block_on(InstructionSet::best(), &lanes);
        let block = block.map_err(|error| match error {
            rollhouse_env::MakeError::Refused { source } => source.to_string(),
            error => error.to_string(),
        })?;
        Ok(ExportedBlock::new(block, Columns::of(spec), make.env))
    }));
    match made.unwrap_or_else(|_| Err("it panicked".to_owned())) {
        Ok(made) => {
            *block = Box::into_raw(Box::new(made)).cast();
            abi::OK
        }
        Err(why) => {
            // SAFETY: the loader gives that much room.
            unsafe { write_text(&why, make.error, make.error_bytes) };
            abi::FAILED
        }
    }
}

/// Returns the sequences behind `count`; NULL if there are none.
const unsafe fn behind(sequences: *const abi::Sequence, count: usize) -> *const abi::Sequence {
    // SAFETY: by the caller there are that many.
    if sequences.is_null() { sequences } else { unsafe { sequences.add(count) } }
}

/// Returns the options of a lane whose values come first in `values`.
///
/// # Safety
/// `sequences` is NULL, or has one for each option of the spec, whose text or numbers are as long as its value says.
unsafe fn options(
    spec: &EnvSpec,
    values: &[abi::Value],
    sequences: *const abi::Sequence,
) -> Result<Options, String> {
    let given = spec.options.iter().zip(values).enumerate().map(|(at, (option, value))| {
        // SAFETY: by the caller.
        let sequence = if sequences.is_null() { abi::Sequence::NONE } else { unsafe { *sequences.add(at) } };
        let length = usize::try_from(value.integer).unwrap_or_default();
        let value = match option.default {
            OptionValue::Bool(_) => OptionValue::Bool(value.integer != 0),
            OptionValue::Int(_) => OptionValue::Int(value.integer),
            OptionValue::Float(_) => OptionValue::Float(value.number),
            OptionValue::Text(_) => {
                // SAFETY: by the caller.
                let bytes = unsafe { part(sequence.text.cast::<u8>(), length) };
                OptionValue::Text(String::from_utf8_lossy(bytes).into_owned())
            }
            // SAFETY: by the caller.
            OptionValue::List(_) => OptionValue::List(unsafe { part(sequence.numbers, length) }.to_vec()),
            OptionValue::Drawn(_) => return Err(format!("option `{}` has no kind", option.name)),
        };
        Ok((option.name.clone(), value))
    });
    let given = given.collect::<Result<Vec<_>, _>>()?;
    Options::check(&spec.options, &given).map_err(|error| error.to_string())
}

/// Returns what is at `from`; nothing if it is NULL.
///
/// # Safety
/// If it is not NULL, `count` values are there.
const unsafe fn part<'a, T>(from: *const T, count: usize) -> &'a [T] {
    // SAFETY: by the caller.
    if from.is_null() { &[] } else { unsafe { slice::from_raw_parts(from, count) } }
}

unsafe extern "C" fn set_options(
    block: *mut Block,
    lane: u32,
    values: *const abi::Value,
    sequences: *const abi::Sequence,
) -> i32 {
    // SAFETY: the loader passes a block of this plug-in.
    let env = unsafe { (*block.cast::<ExportedBlock>()).env };
    let Some(entry) = EXPORTED.get().and_then(|exported| exported.entries.get(env as usize)) else {
        return abi::FAILED;
    };
    if !entry.draws_options() {
        return abi::UNSUPPORTED;
    }
    let spec = entry.spec();
    // SAFETY: the loader gives a value and a sequence for each option.
    let given = unsafe { options(spec, part(values, spec.options.len()), sequences) };
    let Ok(given) = given else { return abi::FAILED };
    let set = |block: &mut dyn BatchEnv, _: &Columns| block.set_options(lane as usize, &given).is_ok();
    // SAFETY: the loader passes a block of this plug-in.
    if unsafe { called(block, false, set) } { abi::OK } else { abi::FAILED }
}

unsafe extern "C" fn close(block: *mut Block) {
    // SAFETY: `make` gave the block from a box, and it is closed once.
    let block = unsafe { Box::from_raw(block.cast::<ExportedBlock>()) };
    // A destructor that panics must not unwind into the loader.
    let _ended = catch_unwind(AssertUnwindSafe(move || drop(block)));
}

unsafe extern "C" fn reset(block: *mut Block, reset: *mut abi::Reset) -> i32 {
    // SAFETY: the loader passes it for the time of the call.
    let reset = unsafe { &mut *reset };
    let call = |block: &mut dyn BatchEnv, columns: &Columns| {
        let mut obs = RowsMut::new();
        // SAFETY: the loader gives the columns as described, with a row for each lane.
        unsafe { add_rows(&mut obs, reset.obs, &columns.obs, block.lanes()) };
        reset.lost = block.reset(LaneSet::of_bits(reset.lanes), &mut obs).bits();
        abi::OK
    };
    // SAFETY: the loader passes a block of this plug-in.
    unsafe { called(block, abi::FAILED, call) }
}

unsafe extern "C" fn first_infos(block: *mut Block, lanes: u64, infos: *const *mut c_void) -> u64 {
    let call = |block: &mut dyn BatchEnv, columns: &Columns| {
        let mut rows = RowsMut::new();
        // SAFETY: the loader gives the columns as described, with a row for each lane.
        unsafe { add_rows(&mut rows, infos, &columns.infos, block.lanes()) };
        block.first_infos(LaneSet::of_bits(lanes), &mut rows).bits()
    };
    // SAFETY: the loader passes a block of this plug-in.
    unsafe { called(block, lanes, call) }
}

unsafe extern "C" fn step(block: *mut Block, step: *mut abi::Step) -> i32 {
    // SAFETY: the loader passes it for the time of the call.
    let step = unsafe { &mut *step };
    let call = |block: &mut dyn BatchEnv, columns: &Columns| {
        let lanes = block.lanes();
        let (mut obs, mut infos) = (RowsMut::new(), RowsMut::new());
        // SAFETY: the loader gives the columns as described, with a row for each lane, and a reward for each.
        let (actions, rewards) = unsafe {
            add_rows(&mut obs, step.obs, &columns.obs, lanes);
            add_rows(&mut infos, step.infos, &columns.infos, lanes);
            (rows(step.actions, columns.action, lanes), slice::from_raw_parts_mut(step.rewards, lanes))
        };
        let ended = block.step(BlockStep {
            skip: LaneSet::of_bits(step.skip),
            reset: LaneSet::of_bits(step.reset),
            actions,
            obs: &mut obs,
            infos: &mut infos,
            rewards,
        });
        step.terminated = ended.terminated.bits();
        step.truncated = ended.truncated.bits();
        step.lost = ended.lost.bits();
        abi::OK
    };
    // SAFETY: the loader passes a block of this plug-in.
    unsafe { called(block, abi::FAILED, call) }
}

unsafe extern "C" fn state_hash(block: *const Block, lane: u32) -> u32 {
    // SAFETY: the loader passes a block of this plug-in.
    unsafe { called(block, 0, |block, _| block.state_hash(lane as usize)) }
}

unsafe extern "C" fn seed(block: *mut Block, lane: u32, seed: u64) {
    // SAFETY: the loader passes a block of this plug-in.
    unsafe { called(block, (), |block, _| block.seed(lane as usize, seed)) }
}

unsafe extern "C" fn position(block: *const Block, lane: u32, to: *mut abi::Position) {
    // SAFETY: the loader passes a block of this plug-in.
    let start = unsafe { called(block, Start::seeded(0), |block, _| block.position(lane as usize)) };
    let Start { seed, words, half } = start;
    let has_half = half.is_some().into();
    // SAFETY: the loader passes a place to write to.
    unsafe { *to = abi::Position { seed, words, half: half.unwrap_or_default(), has_half } };
}

unsafe extern "C" fn restore(block: *mut Block, lane: u32, from: *const abi::Position) {
    // SAFETY: the loader passes a position for the time of the call.
    let abi::Position { seed, words, half, has_half } = unsafe { *from };
    let start = Start { seed, words, half: (has_half != 0).then_some(half) };
    // SAFETY: the loader passes a block of this plug-in.
    unsafe { called(block, (), |block, _| block.restore(lane as usize, start)) }
}

unsafe extern "C" fn revive(block: *mut Block, lanes: u64) -> u64 {
    // SAFETY: the loader passes a block of this plug-in.
    unsafe { contained(block, |block, _| block.revive(LaneSet::of_bits(lanes)).bits()) }.unwrap_or_default()
}

unsafe extern "C" fn state(block: *const Block, lane: u32, to: *mut f64, room: u32) -> u32 {
    // SAFETY: the loader passes a block of this plug-in.
    let Some(state) = (unsafe { called(block, None, |block, _| block.state(lane as usize).ok()) }) else {
        return 0;
    };
    if state.len() <= room as usize {
        // SAFETY: the loader gives that much room, and the two do not overlap.
        unsafe { ptr::copy_nonoverlapping(state.as_ptr(), to, state.len()) };
    }
    u32::try_from(state.len()).unwrap_or_default()
}

unsafe extern "C" fn set_state(block: *mut Block, lane: u32, from: *const f64, count: u32) -> i32 {
    // SAFETY: the loader gives that many doubles; an empty state may be NULL.
    let state = if count == 0 { &[] } else { unsafe { slice::from_raw_parts(from, count as usize) } };
    // SAFETY: the loader passes a block of this plug-in.
    let set = unsafe { called(block, false, |block, _| block.set_state(lane as usize, state).is_ok()) };
    if set { abi::OK } else { abi::UNSUPPORTED }
}

unsafe extern "C" fn call(block: *mut Block, call: *mut abi::Call) -> i32 {
    // SAFETY: the loader passes a block of this plug-in.
    let env = unsafe { (*block.cast::<ExportedBlock>()).env };
    // SAFETY: the loader passes it for the time of the call.
    let call = unsafe { &mut *call };
    let entry = EXPORTED.get().and_then(|exported| exported.entries.get(env as usize));
    let Some(method) = entry.and_then(|entry| entry.spec().methods.get(call.method as usize)) else {
        return abi::UNSUPPORTED;
    };
    // SAFETY: the loader gives that many bytes.
    let payload = unsafe { part(call.payload.cast::<u8>(), call.payload_bytes as usize) };
    let payload = String::from_utf8_lossy(payload);
    let ask =
        |block: &mut dyn BatchEnv, _: &Columns| Some(block.call(call.lane as usize, &method.name, &payload));
    // SAFETY: the loader passes a block of this plug-in.
    let (status, said) = match unsafe { called(block, None, ask) } {
        Some(Ok(answer)) => (abi::OK, answer),
        Some(Err(CallError::Refused { message })) => (abi::REFUSED, message),
        Some(Err(CallError::Unsupported)) => return abi::UNSUPPORTED,
        Some(Err(CallError::Lost)) => {
            call.lost = 1;
            return abi::OK;
        }
        None => return abi::FAILED,
    };
    let room = said.len().min(call.answer_room as usize);
    // SAFETY: the loader gives that much room, and the two do not overlap.
    unsafe { ptr::copy_nonoverlapping(said.as_ptr(), call.answer.cast(), room) };
    call.answer_bytes = said.len() as u64;
    status
}

unsafe extern "C" fn render(block: *const Block, lane: u32, width: u32, height: u32, pixels: *mut u8) -> i32 {
    let draw = |block: &mut dyn BatchEnv, _: &Columns| {
        let size = ImageSize::new(width as usize, height as usize)?;
        block.render(lane as usize, size).map(Some)
    };
    // SAFETY: the loader passes a block of this plug-in.
    let Ok(Some(image)) = (unsafe { called(block, Ok(None), draw) }) else { return abi::UNSUPPORTED };
    // SAFETY: the loader gives room for a picture of that size, which an `Image` has.
    unsafe { ptr::copy_nonoverlapping(image.pixels().as_ptr(), pixels, image.pixels().len()) };
    abi::OK
}

unsafe extern "C" fn text(block: *const Block, lane: u32, to: *mut c_char, room: u32) -> i32 {
    let columns = (room as usize).saturating_sub(1);
    // SAFETY: the loader passes a block of this plug-in.
    let line = unsafe { called(block, None, |block, _| block.text(lane as usize, columns).ok()) };
    let Some(line) = line else { return abi::UNSUPPORTED };
    // SAFETY: the loader gives that much room.
    unsafe { write_text(&line, to, room as usize) };
    abi::OK
}

unsafe extern "C" fn failed(block: *const Block) -> u32 {
    // SAFETY: the loader passes a block of this plug-in, which `make` gave, and uses it for nothing else meanwhile.
    unsafe { (*block.cast::<ExportedBlock>()).failed.into() }
}

unsafe extern "C" fn verdict(block: *const Block, lane: u32, to: *mut abi::Verdict) {
    // SAFETY: the loader passes a block of this plug-in.
    let said = unsafe { contained(block, |block, _| block.verdict(lane as usize)) }.unwrap_or_default();
    let (has_score, score) = (said.score().is_some().into(), said.score().unwrap_or_default());
    // SAFETY: the loader passes a place to write to.
    unsafe { *to = abi::Verdict { result: said.result().code().into(), has_score, score } };
}

/// Writes a text that ends with 0, cut to the room there is.
///
/// # Safety
/// `to` has `room` bytes, and may be NULL without room.
unsafe fn write_text(text: &str, to: *mut c_char, room: usize) {
    let Some(most) = room.checked_sub(1) else { return };
    let text = &text[..text.floor_char_boundary(most)];
    // SAFETY: by the caller; the text with its 0 takes at most `room` bytes.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), text.len());
        to.add(text.len()).write(0);
    }
}

/// Columns of a call, at most [`MAX_OBS_COLUMNS`], as a registry's entry has. They are filled where they stay: moving room for
/// that many would cost more than stepping a lane.
type RowsMut<'a> = ArrayVec<ColumnMut<'a>, MAX_OBS_COLUMNS>;

/// Adds columns to write to.
///
/// # Safety
/// `from` has a pointer for each of `kinds`, to `lanes` rows of that type and width, which nobody else uses meanwhile.
#[inline]
unsafe fn add_rows(to: &mut RowsMut<'_>, from: *const *mut c_void, kinds: &[(DType, usize)], lanes: usize) {
    for (at, &(dtype, width)) in kinds.iter().take(to.remaining_capacity()).enumerate() {
        let elements = width * lanes;
        // SAFETY: by the caller.
        to.push(unsafe {
            let rows = *from.add(at);
            match dtype {
                DType::Bool | DType::U8 => ColumnMut::U8(slice::from_raw_parts_mut(rows.cast(), elements)),
                DType::I32 => ColumnMut::I32(slice::from_raw_parts_mut(rows.cast(), elements)),
                DType::I64 => ColumnMut::I64(slice::from_raw_parts_mut(rows.cast(), elements)),
                DType::F32 => ColumnMut::F32(slice::from_raw_parts_mut(rows.cast(), elements)),
                DType::F64 => ColumnMut::F64(slice::from_raw_parts_mut(rows.cast(), elements)),
            }
        });
    }
}

/// Returns a column to read.
///
/// # Safety
/// At `rows` there are `lanes` rows of that type and width, which nobody writes meanwhile.
unsafe fn rows<'a>(rows: *const c_void, (dtype, width): (DType, usize), lanes: usize) -> ColumnRef<'a> {
    let elements = width * lanes;
    // SAFETY: by the caller.
    unsafe {
        match dtype {
            DType::Bool | DType::U8 => ColumnRef::U8(slice::from_raw_parts(rows.cast(), elements)),
            DType::I32 => ColumnRef::I32(slice::from_raw_parts(rows.cast(), elements)),
            DType::I64 => ColumnRef::I64(slice::from_raw_parts(rows.cast(), elements)),
            DType::F32 => ColumnRef::F32(slice::from_raw_parts(rows.cast(), elements)),
            DType::F64 => ColumnRef::F64(slice::from_raw_parts(rows.cast(), elements)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rollhouse_core::Verdict;
    use rollhouse_env::{Ended, LaneBlock};

    use super::*;

    /// A block that panics when it is asked for a hash, and counts its resets.
    struct Brittle(Arc<AtomicU64>);

    impl LaneBlock for Brittle {
        fn lanes(&self) -> usize {
            1
        }
        fn seed(&mut self, _: usize, _: u64) {}
        fn position(&self, _: usize) -> Start {
            Start::default()
        }
        fn restore(&mut self, _: usize, _: Start) {}
        fn state_hash(&self, _: usize) -> u32 {
            panic!("told to panic");
        }
        fn verdict(&self, _: usize) -> Verdict {
            panic!("told to panic");
        }
    }

    impl BatchEnv for Brittle {
        fn reset(&mut self, _: LaneSet, _: &mut [ColumnMut<'_>]) -> LaneSet {
            self.0.fetch_add(1, Ordering::Relaxed);
            LaneSet::NONE
        }
        fn step(&mut self, _: BlockStep<'_, '_>) -> Ended {
            Ended::default()
        }
    }

    /// Symptom: a program that had loaded a plug-in in Rust heard of a panic with the next step. Cause: a hash has no way to
    /// report one. Fix: the last function of the table does.
    #[test]
    fn a_panic_in_a_function_that_cannot_report_it_fails_the_loaded_block_at_once() {
        let columns = Columns { action: (DType::I64, 1), obs: vec![], infos: vec![] };
        let exported = ExportedBlock::new(Box::new(Brittle(Arc::default())), columns, 0);
        let registry = rollhouse_env::Registry::builtin();
        let spec = registry.get("CartPole-v1").unwrap().spec().clone();
        let functions = Arc::new(crate::load::checked(&Table { env_count: 1, ..TABLE }).unwrap());
        let env = Arc::new(crate::block::PluginEnv::new(functions, 0, &spec, false));
        let made: *mut Block = Box::into_raw(Box::new(exported)).cast();
        let loaded = crate::block::PluginBlock::of_made(&env, made, 1);
        let panic = catch_unwind(AssertUnwindSafe(|| loaded.state_hash(0))).unwrap_err();
        let told = rollhouse_core::panic_message(&*panic);
        assert!(told.contains("`state_hash` failed"), "{told}");
    }

    /// Symptom: a `BatchEnv` that had panicked in a plug-in was stepped on.
    /// Cause: only a panic in `reset`, `step` and `call` was told to the loader, who has a way to be told in those alone.
    /// Fix: it is told by `failed` at once and in the next one, and the block is asked for nothing meanwhile.
    #[test]
    fn a_block_that_has_panicked_fails_as_a_whole_and_is_only_closed() {
        let resets = Arc::new(AtomicU64::new(0));
        let columns = Columns { action: (DType::I64, 1), obs: vec![], infos: vec![] };
        let block: *mut Block =
            Box::into_raw(Box::new(ExportedBlock::new(Box::new(Brittle(Arc::clone(&resets))), columns, 0)))
                .cast();
        let reset = || {
            let (obs, random) = (ptr::null(), ptr::null());
            let size = abi::size::<abi::Reset>();
            let mut call = abi::Reset { size, lanes_in_block: 1, lanes: 1, obs, random, lost: 0 };
            // SAFETY: a block of this file without columns, and nobody else uses it.
            unsafe { reset(block, &raw mut call) }
        };
        let mut said = abi::Verdict { result: 7, has_score: 1, score: 1.0 };
        // SAFETY: as above; what is said lives until the call returns.
        unsafe { verdict(block, 0, &raw mut said) };
        assert_eq!((said.result, said.has_score), (0, 0));
        assert_eq!((reset(), resets.load(Ordering::Relaxed)), (abi::OK, 1), "a verdict costs nothing");
        // SAFETY: as above.
        assert_eq!(unsafe { (failed(block), state_hash(block, 0), failed(block)) }, (0, 0, 1));
        assert_eq!((reset(), resets.load(Ordering::Relaxed)), (abi::FAILED, 1));
        // SAFETY: as above, and it is not used any more.
        unsafe { close(block) };
    }
}
