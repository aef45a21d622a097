//! A block of lanes that a plug-in steps.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

use arrayvec::ArrayVec;
use rollhouse_core::limits::{BLOCK_LANES, MAX_ANSWER_BYTES, MAX_OBS_COLUMNS};
use rollhouse_core::{
    ColumnMut, ColumnRef, ColumnSpec, DType, EnvSpec, GameResult, LaneSet, OptionSpec, OptionValue, Options,
    Start, Verdict, is_plain,
};
use rollhouse_env::{
    BatchEnv, BlockStep, CallError, Ended, Generator, Image, ImageSize, LaneBlock, MakeError, RenderError,
    StateError,
};

use crate::abi::{self, Block};
use crate::generators::Generators;

/// The functions of a plug-in, all of which are there.
pub(crate) struct Functions {
    pub(crate) describe: unsafe extern "C" fn(u32) -> *const abi::Description,
    pub(crate) make: unsafe extern "C" fn(*const abi::Make, *mut *mut Block) -> i32,
    pub(crate) close: unsafe extern "C" fn(*mut Block),
    pub(crate) reset: unsafe extern "C" fn(*mut Block, *mut abi::Reset) -> i32,
    pub(crate) step: unsafe extern "C" fn(*mut Block, *mut abi::Step) -> i32,
    pub(crate) state_hash: unsafe extern "C" fn(*const Block, u32) -> u32,
    pub(crate) own: Option<OwnGenerators>,
    pub(crate) revive: Option<unsafe extern "C" fn(*mut Block, u64) -> u64>,
    pub(crate) states: Option<States>,
    pub(crate) showing: Showing,
    pub(crate) verdict: Option<unsafe extern "C" fn(*const Block, u32, *mut abi::Verdict)>,
    pub(crate) set_options:
        Option<unsafe extern "C" fn(*mut Block, u32, *const abi::Value, *const abi::Sequence) -> i32>,
    pub(crate) first_infos: Option<unsafe extern "C" fn(*mut Block, u64, *const *mut c_void) -> u64>,
    pub(crate) call: Option<unsafe extern "C" fn(*mut Block, *mut abi::Call) -> i32>,
    pub(crate) failed: Option<unsafe extern "C" fn(*const Block) -> u32>,
}

/// The functions of a plug-in that show lanes to people.
pub(crate) struct Showing {
    pub(crate) render: Option<unsafe extern "C" fn(*const Block, u32, u32, u32, *mut u8) -> i32>,
    pub(crate) text: Option<unsafe extern "C" fn(*const Block, u32, *mut c_char, u32) -> i32>,
}

/// The functions of a plug-in whose lanes have generators of their own.
pub(crate) struct OwnGenerators {
    pub(crate) seed: unsafe extern "C" fn(*mut Block, u32, u64),
    pub(crate) position: unsafe extern "C" fn(*const Block, u32, *mut abi::Position),
    pub(crate) restore: unsafe extern "C" fn(*mut Block, u32, *const abi::Position),
}

/// The functions of a plug-in that shows states as doubles.
pub(crate) struct States {
    pub(crate) state: unsafe extern "C" fn(*const Block, u32, *mut f64, u32) -> u32,
    pub(crate) set_state: unsafe extern "C" fn(*mut Block, u32, *const f64, u32) -> i32,
}

/// An env of a plug-in, of which blocks are made.
pub(crate) struct PluginEnv {
    functions: Arc<Functions>,
    number: u32,
    columns: Columns,
    options: Vec<OptionSpec>,
    /// Names of the methods, in the order of the description.
    methods: Vec<String>,
    /// Whether `verdict` is there and may say something.
    verdicts: bool,
}

/// Element type and number of elements in a row of each column of an env.
pub(crate) struct Columns {
    pub(crate) action: (DType, usize),
    pub(crate) obs: Vec<(DType, usize)>,
    pub(crate) infos: Vec<(DType, usize)>,
}

impl Columns {
    pub(crate) fn of(spec: &EnvSpec) -> Self {
        let kind = |column: &ColumnSpec| (plain(column.dtype), column.elements());
        Self {
            action: kind(&spec.action_column()),
            obs: spec.obs_columns().iter().map(kind).collect(),
            infos: spec.info_channels.iter().map(kind).collect(),
        }
    }
}

/// Returns the type by which columns in memory go: booleans are unsigned bytes there.
const fn plain(dtype: DType) -> DType {
    match dtype {
        DType::Bool => DType::U8,
        other => other,
    }
}

impl PluginEnv {
    /// Makes env number `number` of a plug-in that described it as `spec`.
    pub(crate) fn new(functions: Arc<Functions>, number: u32, spec: &EnvSpec, verdicts: bool) -> Self {
        let methods = spec.methods.iter().map(|method| method.name.clone()).collect();
        Self {
            functions,
            number,
            columns: Columns::of(spec),
            options: spec.options.clone(),
            methods,
            verdicts,
        }
    }

    /// Returns the options of all lanes in the order of the description. They point into `lanes`.
    fn values(&self, lanes: &[Options]) -> Result<(Vec<abi::Value>, Vec<abi::Sequence>), MakeError> {
        let mut values = Vec::new();
        for lane in lanes {
            for option in &self.options {
                let value = lane.get(&option.name).and_then(plain_value);
                values.push(value.ok_or_else(|| refused(format!("the options lack `{}`", option.name)))?);
            }
        }
        Ok(values.into_iter().unzip())
    }
}

/// Returns a value as plug-ins get it; `None` of a distribution.
pub(crate) fn plain_value(value: &OptionValue) -> Option<(abi::Value, abi::Sequence)> {
    let (mut plain, mut sequence) = (abi::Value { integer: 0, number: 0.0 }, abi::Sequence::NONE);
    match value {
        OptionValue::Bool(flag) => plain.integer = (*flag).into(),
        OptionValue::Int(integer) => plain.integer = *integer,
        OptionValue::Float(number) => plain.number = *number,
        OptionValue::Text(text) => (plain.integer, sequence.text) = (text.len() as i64, text.as_ptr().cast()),
        OptionValue::List(list) => (plain.integer, sequence.numbers) = (list.len() as i64, list.as_ptr()),
        OptionValue::Drawn(_) => return None,
    }
    Some((plain, sequence))
}

/// Lanes that a plug-in steps. A plug-in that fails as a whole panics here, which is how a [`BatchEnv`] says so.
pub(crate) struct PluginBlock {
    env: Arc<PluginEnv>,
    block: *mut Block,
    lanes: usize,
    /// Lanes that the plug-in has lost and not revived.
    lost: LaneSet,
    generators: Generators,
}

// SAFETY: rollhouse.h demands of plug-ins that a block can be called by one thread after the other; only its owner has
// the pointer.
unsafe impl Send for PluginBlock {}

impl PluginBlock {
    /// Makes a block with a lane for each element of `options`.
    ///
    /// # Errors
    /// [`MakeError::Refused`] with what the plug-in says.
    pub(crate) fn make(env: &Arc<PluginEnv>, options: &[Options]) -> Result<Self, MakeError> {
        let (values, sequences) = env.values(options)?;
        let (mut block, mut error) = (ptr::null_mut(), [0u8; MAX_ERROR_BYTES]);
        let make = abi::Make {
            size: abi::size::<abi::Make>(),
            env: env.number,
            // Fits: a registry's entry makes blocks of 1 to BLOCK_LANES lanes.
            lanes: options.len() as u32,
            option_count: env.options.len() as u32,
            values: values.as_ptr(),
            error: error.as_mut_ptr().cast(),
            error_bytes: error.len(),
            sequences: sequences.as_ptr(),
        };
        // SAFETY: the call is as rollhouse.h says; everything it points to lives until it returns.
        let status = unsafe { (env.functions.make)(&raw const make, &raw mut block) };
        if status != abi::OK {
            let said = error.split(|&byte| byte == 0).next().unwrap_or_default();
            let said = String::from_utf8_lossy(said).replace(|c| !is_plain(c), " ");
            return Err(refused(if said.is_empty() { "its `make` failed".to_owned() } else { said }));
        }
        if block.is_null() {
            return Err(refused("its `make` succeeded and gave no block".to_owned()));
        }
        let lanes = options.len();
        Ok(Self {
            env: Arc::clone(env),
            block,
            lanes,
            lost: LaneSet::NONE,
            generators: Generators::new(lanes),
        })
    }

    /// Takes a block that has been made.
    #[cfg(test)]
    pub(crate) fn of_made(env: &Arc<PluginEnv>, block: *mut Block, lanes: usize) -> Self {
        let generators = Generators::new(lanes);
        Self { env: Arc::clone(env), block, lanes, lost: LaneSet::NONE, generators }
    }

    /// Panics if a call has failed as a whole, or lost lanes that cannot be revived; notes the lanes that it lost.
    fn conclude(&mut self, call: &str, status: i32, lost: LaneSet) -> LaneSet {
        assert!(status == abi::OK, "the plug-in's `{call}` returned {status}: the block has failed");
        if let Some(lane) = self.generators.stray {
            panic!("the plug-in's `{call}` drew for lane {lane} of a block of {}", self.lanes);
        }
        let lost = lost & LaneSet::first(self.lanes);
        let revivable = lost.is_empty() || self.env.functions.revive.is_some();
        assert!(revivable, "the plug-in's `{call}` lost lanes and has no `revive`");
        self.lost |= lost;
        lost
    }

    /// Panics if the block has failed as a whole in a call that has no way to say so.
    fn check(&self, call: &str) {
        let Some(failed) = self.env.functions.failed else { return };
        // SAFETY: a block of this plug-in.
        assert!(unsafe { failed(self.block) } == 0, "the plug-in's `{call}` failed: the block has failed");
    }

    /// Returns the number of a lane for a call.
    ///
    /// # Panics
    /// If the block has no such lane.
    fn checked(&self, lane: usize) -> u32 {
        assert!(lane < self.lanes, "lane {lane} of a block of {}", self.lanes);
        lane as u32
    }
}

impl Drop for PluginBlock {
    fn drop(&mut self) {
        // SAFETY: `make` gave the block, and this is its only call of `close` and its last.
        unsafe { (self.env.functions.close)(self.block) };
    }
}

impl LaneBlock for PluginBlock {
    fn lanes(&self) -> usize {
        self.lanes
    }

    fn seed(&mut self, lane: usize, seed: u64) {
        let number = self.checked(lane);
        match &self.env.functions.own {
            Some(own) => {
                // SAFETY: a block of this plug-in and one of its lanes.
                unsafe { (own.seed)(self.block, number, seed) };
                self.check("seed");
            }
            None => self.generators.lanes[lane] = Generator::seeded(seed),
        }
    }

    fn position(&self, lane: usize) -> Start {
        let number = self.checked(lane);
        let Some(own) = &self.env.functions.own else { return self.generators.lanes[lane].position() };
        let mut position = abi::Position { seed: 0, words: 0, half: 0, has_half: 0 };
        // SAFETY: a block of this plug-in and one of its lanes; the position lives until the call returns.
        unsafe { (own.position)(self.block, number, &raw mut position) };
        self.check("position");
        let half = (position.has_half != 0).then_some(position.half);
        Start { seed: position.seed, words: position.words, half }
    }

    fn restore(&mut self, lane: usize, start: Start) {
        let number = self.checked(lane);
        match &self.env.functions.own {
            Some(own) => {
                let Start { seed, words, half } = start;
                let has_half = half.is_some().into();
                let position = abi::Position { seed, words, half: half.unwrap_or_default(), has_half };
                // SAFETY: as in `position`.
                unsafe { (own.restore)(self.block, number, &raw const position) };
                self.check("restore");
            }
            None => self.generators.lanes[lane] = Generator::at(start),
        }
    }

    fn set_options(&mut self, lane: usize, options: &Options) -> Result<(), MakeError> {
        let number = self.checked(lane);
        let set_options = self.env.functions.set_options.ok_or(MakeError::Kept)?;
        let (values, sequences) = self.env.values(std::slice::from_ref(options))?;
        // SAFETY: a block of this plug-in and one of its lanes; what the values point to lives until the call returns.
        match unsafe { set_options(self.block, number, values.as_ptr(), sequences.as_ptr()) } {
            abi::OK => Ok(()),
            abi::UNSUPPORTED => Err(MakeError::Kept),
            _ => {
                self.check("set_options");
                self.lost.insert(lane);
                Err(refused("its `set_options` failed".to_owned()))
            }
        }
    }

    fn state_hash(&self, lane: usize) -> u32 {
        let number = self.checked(lane);
        if self.lost.has(lane) {
            return 0;
        }
        // SAFETY: a block of this plug-in and one of its lanes.
        let hash = unsafe { (self.env.functions.state_hash)(self.block, number) };
        self.check("state_hash");
        hash
    }

    fn has_verdicts(&self) -> bool {
        self.env.verdicts
    }

    fn verdict(&self, lane: usize) -> Verdict {
        let number = self.checked(lane);
        let Some(verdict) = self.env.functions.verdict.filter(|_| !self.lost.has(lane)) else {
            return Verdict::default();
        };
        let mut said = abi::Verdict { result: 0, has_score: 0, score: 0.0 };
        // SAFETY: a block of this plug-in and one of its lanes; what is said lives until the call returns.
        unsafe { verdict(self.block, number, &raw mut said) };
        let result = u8::try_from(said.result).map_or(GameResult::None, GameResult::of_code);
        Verdict::new(result, (said.has_score != 0).then_some(said.score))
    }

    fn revive(&mut self, lanes: LaneSet) -> LaneSet {
        let wanted = lanes & self.lost;
        let Some(revive) = self.env.functions.revive else { return LaneSet::NONE };
        // SAFETY: a block of this plug-in, and lanes that it has.
        let revived = LaneSet::of_bits(unsafe { revive(self.block, wanted.bits()) }) & wanted;
        self.lost &= !revived;
        revived
    }

    fn state(&self, lane: usize) -> Result<Vec<f64>, StateError> {
        let number = self.checked(lane);
        let states = self.env.functions.states.as_ref().ok_or(StateError::Unsupported)?;
        if self.lost.has(lane) {
            return Err(StateError::Lost);
        }
        let mut state = vec![0.0; USUAL_STATE];
        loop {
            let room = state.len();
            // SAFETY: a block of this plug-in and one of its lanes; `state` has the room, which is at most MAX_STATE.
            let count =
                unsafe { (states.state)(self.block, number, state.as_mut_ptr(), room as u32) } as usize;
            self.check("state");
            match count {
                0 => return Err(StateError::Unsupported),
                count if count <= room => {
                    state.truncate(count);
                    return Ok(state);
                }
                // The second answer is taken only if it is that of the first.
                count if room == USUAL_STATE && count <= MAX_STATE => state = vec![0.0; count],
                _ => return Err(StateError::Unsupported),
            }
        }
    }

    fn set_state(&mut self, lane: usize, state: &[f64]) -> Result<(), StateError> {
        let number = self.checked(lane);
        let states = self.env.functions.states.as_ref().ok_or(StateError::Unsupported)?;
        if self.lost.has(lane) {
            return Err(StateError::Lost);
        }
        let count = u32::try_from(state.len()).map_err(|_| StateError::Unsupported)?;
        // SAFETY: a block of this plug-in and one of its lanes; `state` has that many doubles.
        let status = unsafe { (states.set_state)(self.block, number, state.as_ptr(), count) };
        self.check("set_state");
        if status == abi::OK { Ok(()) } else { Err(StateError::Unsupported) }
    }

    fn call(&mut self, lane: usize, method: &str, payload: &str) -> Result<String, CallError> {
        let number = self.checked(lane);
        let method = self.env.methods.iter().position(|known| known == method);
        let (Some(call), Some(method)) = (self.env.functions.call, method) else {
            return Err(CallError::Unsupported);
        };
        if self.lost.has(lane) {
            return Err(CallError::Lost);
        }
        let (ended, mut answer) = ([payload.as_bytes(), &[0]].concat(), vec![0u8; MAX_ANSWER_BYTES + 1]);
        let random = self.generators.callbacks();
        let mut said = abi::Call {
            size: abi::size::<abi::Call>(),
            lane: number,
            // Fits: there are at most MAX_METHODS.
            method: method as u32,
            lost: 0,
            payload: ended.as_ptr().cast(),
            payload_bytes: payload.len() as u64,
            random: &raw const random,
            answer: answer.as_mut_ptr().cast(),
            answer_room: answer.len() as u64,
            answer_bytes: 0,
        };
        // SAFETY: a block of this plug-in and one of its lanes; everything that the call points to lives until it returns.
        let status = unsafe { call(self.block, &raw mut said) };
        let lost = if said.lost == 0 { LaneSet::NONE } else { LaneSet::one(lane) };
        let concluded = if matches!(status, abi::REFUSED | abi::UNSUPPORTED) { abi::OK } else { status };
        if !self.conclude("call", concluded, lost).is_empty() {
            return Err(CallError::Lost);
        }
        // One that says more than there is room for has too much to say, which its length tells.
        answer.truncate(usize::try_from(said.answer_bytes).unwrap_or(usize::MAX));
        let answer = String::from_utf8_lossy(&answer).into_owned();
        match status {
            abi::OK => Ok(answer),
            abi::REFUSED => Err(CallError::refused(answer)),
            _ => Err(CallError::Unsupported),
        }
    }

    fn render(&self, lane: usize, size: ImageSize) -> Result<Image, RenderError> {
        let number = self.checked(lane);
        let render = self.env.functions.showing.render.ok_or(RenderError::Unsupported)?;
        if self.lost.has(lane) {
            return Err(RenderError::Lost);
        }
        let mut pixels = vec![0; size.bytes()];
        let (width, height) = (size.width() as u32, size.height() as u32);
        // SAFETY: a block of this plug-in and one of its lanes; `pixels` has the bytes of a picture of that size.
        let status = unsafe { render(self.block, number, width, height, pixels.as_mut_ptr()) };
        self.check("render");
        if status == abi::OK { Image::new(size, pixels) } else { Err(RenderError::Unsupported) }
    }

    fn text(&self, lane: usize, columns: usize) -> Result<String, RenderError> {
        let number = self.checked(lane);
        let text = self.env.functions.showing.text.ok_or(RenderError::Unsupported)?;
        if self.lost.has(lane) {
            return Err(RenderError::Lost);
        }
        let mut line = vec![0u8; columns.min(MAX_LINE) + 1];
        // SAFETY: a block of this plug-in and one of its lanes; `line` has that many bytes.
        let status = unsafe { text(self.block, number, line.as_mut_ptr().cast(), line.len() as u32) };
        self.check("text");
        // A line without its end is none.
        let length = line.iter().position(|&byte| byte == 0).ok_or(RenderError::Unsupported)?;
        line.truncate(length);
        let shown = line.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
        match String::from_utf8(line) {
            Ok(line) if status == abi::OK && shown => Ok(line),
            _ => Err(RenderError::Unsupported),
        }
    }
}

impl BatchEnv for PluginBlock {
    fn reset(&mut self, lanes: LaneSet, obs: &mut [ColumnMut<'_>]) -> LaneSet {
        let mut pointers = Pointers::new();
        point(&mut pointers, obs, &self.env.columns.obs, self.lanes);
        let random = self.generators.callbacks();
        let mut reset = abi::Reset {
            size: abi::size::<abi::Reset>(),
            lanes_in_block: self.lanes as u32,
            lanes: (lanes & LaneSet::first(self.lanes)).bits(),
            obs: pointers.as_ptr(),
            random: &raw const random,
            lost: 0,
        };
        // SAFETY: a block of this plug-in. The columns have a row for each lane, as `point` has checked, and with
        // the generators live until the call returns.
        let status = unsafe { (self.env.functions.reset)(self.block, &raw mut reset) };
        self.conclude("reset", status, LaneSet::of_bits(reset.lost) & lanes)
    }

    fn first_infos(&mut self, lanes: LaneSet, infos: &mut [ColumnMut<'_>]) -> LaneSet {
        let lanes = lanes & LaneSet::first(self.lanes);
        let Some(first_infos) = self.env.functions.first_infos else { return LaneSet::NONE };
        let mut pointers = Pointers::new();
        point(&mut pointers, infos, &self.env.columns.infos, self.lanes);
        // SAFETY: as in `reset`.
        let lost = unsafe { first_infos(self.block, lanes.bits(), pointers.as_ptr()) };
        self.check("first_infos");
        self.conclude("first_infos", abi::OK, LaneSet::of_bits(lost) & lanes)
    }

    fn step(&mut self, step: BlockStep<'_, '_>) -> Ended {
        let (columns, lanes) = (&self.env.columns, self.lanes);
        let all = LaneSet::first(lanes);
        let (skip, reset) = (step.skip & all, step.reset & all);
        assert!(step.rewards.len() == lanes, "{} rewards for {lanes} lanes", step.rewards.len());
        let (mut obs, mut infos) = (Pointers::new(), Pointers::new());
        point(&mut obs, step.obs, &columns.obs, lanes);
        point(&mut infos, step.infos, &columns.infos, lanes);
        let actions = pointer(step.actions, columns.action, lanes);
        let random = self.generators.callbacks();
        let mut call = abi::Step {
            size: abi::size::<abi::Step>(),
            lanes_in_block: lanes as u32,
            skip: skip.bits(),
            reset: reset.bits(),
            actions,
            obs: obs.as_ptr(),
            infos: infos.as_ptr(),
            rewards: step.rewards.as_mut_ptr(),
            random: &raw const random,
            terminated: 0,
            truncated: 0,
            lost: 0,
        };
        // SAFETY: as in `reset`; actions and rewards have a row for each lane too.
        let status = unsafe { (self.env.functions.step)(self.block, &raw mut call) };
        let lost = self.conclude("step", status, LaneSet::of_bits(call.lost) & !skip);
        for lane in skip | reset {
            step.rewards[lane] = 0.0;
        }
        let moved = all & !(skip | reset | lost);
        Ended {
            terminated: LaneSet::of_bits(call.terminated) & moved,
            truncated: LaneSet::of_bits(call.truncated) & moved,
            lost,
        }
    }
}

/// Pointers to the columns of a call. They are put where they stay.
type Pointers = ArrayVec<*mut c_void, MAX_OBS_COLUMNS>;

/// Adds the columns as a plug-in is given them.
///
/// # Panics
/// If the caller gave other types or numbers of rows than the spec says.
#[inline]
fn point(to: &mut Pointers, columns: &mut [ColumnMut<'_>], kinds: &[(DType, usize)], lanes: usize) {
    assert!(columns.len() == kinds.len(), "{} columns of {}", columns.len(), kinds.len());
    for (column, &(dtype, width)) in columns.iter_mut().zip(kinds) {
        let rows = column.as_ref();
        assert!(
            rows.dtype() == dtype && rows.len() == width * lanes,
            "a column has the spec's type and rows"
        );
        to.push(match column {
            ColumnMut::U8(values) => values.as_mut_ptr().cast(),
            ColumnMut::I32(values) => values.as_mut_ptr().cast(),
            ColumnMut::I64(values) => values.as_mut_ptr().cast(),
            ColumnMut::F32(values) => values.as_mut_ptr().cast(),
            ColumnMut::F64(values) => values.as_mut_ptr().cast(),
        });
    }
}

/// Returns a column to be read, as `point` does.
#[inline]
fn pointer(column: ColumnRef<'_>, (dtype, width): (DType, usize), lanes: usize) -> *const c_void {
    assert!(
        column.dtype() == dtype && column.len() == width * lanes,
        "actions have the spec's type and rows"
    );
    match column {
        ColumnRef::U8(values) => values.as_ptr().cast(),
        ColumnRef::I32(values) => values.as_ptr().cast(),
        ColumnRef::I64(values) => values.as_ptr().cast(),
        ColumnRef::F32(values) => values.as_ptr().cast(),
        ColumnRef::F64(values) => values.as_ptr().cast(),
    }
}

/// What a plug-in said when it could not make an env.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct MakeRefused(String);

fn refused(why: String) -> MakeError {
    MakeError::Refused { source: Box::new(MakeRefused(why)) }
}

const _: () = assert!(BLOCK_LANES == 64, "rollhouse.h says so");

/// Room for the reason that a failed `make` gives, in bytes.
const MAX_ERROR_BYTES: usize = 512;

/// Number of doubles for which a state is first given room.
const USUAL_STATE: usize = 64;

/// Maximum number of doubles in a lane's state.
const MAX_STATE: usize = 1 << 20;

/// Maximum number of characters in a line about a lane.
const MAX_LINE: usize = 4096;
