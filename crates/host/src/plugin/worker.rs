//! The worker process of a plug-in: what runs in it.

use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use arrayvec::ArrayVec;
use rollhouse_arena::SharedColumns;
use rollhouse_core::limits::{BLOCK_LANES, HASH_WINDOW_STEPS, MAX_OBS_COLUMNS};
use rollhouse_core::{ColumnMut, ColumnRef, LaneSet, Options, open_regular, panic_message};
use rollhouse_env::{BatchEnv, BlockStep, CallError, Ended, EnvEntry, ImageSize, MakeError};

use super::slot::{Done, Layout, Order, Slot};
use super::talk::{ASK, Answer, BlockAnswer, Described, Hello, Lanes, Question, What, heard, said};
use crate::error::LinkError;
use crate::hashing::hash_bytes;
use crate::link::Link;
use crate::pool::{CLOSE, KIND_BITS, WORK};

/// Steps the lanes of a plug-in for the process `host`, which started this one. This is what the program of a
/// [`PluginHost`](crate::PluginHost) calls, and all that it does: the plug-in's code may do anything to the process.
///
/// Blocks until the host wants no more of it. The host's end ends the process.
///
/// # Errors
/// [`LinkError`]: the process was not started by a host, or the host is gone.
pub fn serve_plugin(host: u32) -> Result<(), LinkError> {
    let mut link = Link::open(host)?;
    let hello: Hello =
        heard(link.hello()).map_err(|_| LinkError::Protocol("a first message that makes no sense"))?;
    let path = hello.path();
    let (answer, work) = match hello.lanes {
        None => (envs(&path), None),
        Some(lanes) => match Work::new(&path, &lanes) {
            Ok((answer, work)) => (Ok(answer), Some(work)),
            Err(why) => (Err(why), None),
        },
    };
    link.ready(&said(&answer.unwrap_or_else(Answer::Refused)))?;
    match work {
        Some(mut work) => work.serve(&mut link),
        None => Ok(()),
    }
}

/// Returns the answer that says what envs there are.
fn envs(path: &Path) -> Result<Answer, String> {
    let file = file_hash(path).map_err(|error| error.to_string())?;
    let entries = rollhouse_plugin::load(path).map_err(|error| error.fault.to_string())?;
    let described = |entry: &EnvEntry| {
        let options = Options::check(&entry.spec().options, &[]).map_err(|error| error.to_string())?;
        let drawn = entry.render_size().zip(entry.render_fps());
        Ok(Described {
            spec: entry.spec().clone(),
            drawn: drawn.map(|(size, fps)| (size.width(), size.height(), fps)),
            verdicts: make(entry, &[options])?.has_verdicts(),
            draws_options: entry.draws_options(),
        })
    };
    Ok(Answer::Envs { file, envs: entries.iter().map(described).collect::<Result<_, String>>()? })
}

/// Hashes the bytes of a file.
fn file_hash(path: &Path) -> io::Result<u64> {
    let (mut file, mut part, mut hash) = (open_regular(path)?, Vec::new(), 0);
    loop {
        part.clear();
        (&mut file).take(FILE_PART).read_to_end(&mut part)?;
        if part.is_empty() {
            return Ok(hash);
        }
        hash = hash_bytes(hash, &part);
    }
}

/// Blocks of lanes that this process steps.
struct Work {
    entry: EnvEntry,
    layout: Layout,
    blocks: Vec<Stepped>,
}

/// The columns of a block: rewards, the two of actions, observations, infos.
type BlockColumns<'a> = ArrayVec<ColumnMut<'a>, { 3 + 2 * MAX_OBS_COLUMNS }>;

/// A block that is stepped.
struct Stepped {
    options: Vec<Options>,
    /// Whether rows that began an episode have infos.
    first_infos: bool,
    /// The lanes; `None` after they have failed as one.
    env: Option<Box<dyn BatchEnv>>,
    /// Steps of each lane since its reset.
    ages: [u32; BLOCK_LANES],
    /// Lanes that have been reset since the block was made.
    begun: LaneSet,
}

impl Work {
    /// Loads the plug-in and makes the lanes.
    fn new(path: &Path, lanes: &Lanes) -> Result<(Answer, Self), String> {
        let file = file_hash(path).map_err(|error| error.to_string())?;
        let entries = rollhouse_plugin::load_untried(path).map_err(|error| error.fault.to_string())?;
        let entry = entries.into_iter().nth(lanes.env).ok_or("it has fewer envs than before")?;
        let spec = entry.spec().clone();
        let blocks = lanes.blocks().map(|options| Stepped::new(&entry, options));
        let blocks = blocks.collect::<Result<_, _>>()?;
        let work = Self { layout: Layout::of(&spec, lanes.room), blocks, entry };
        Ok((Answer::Made { file, spec: Box::new(spec) }, work))
    }

    /// Does what the host says until it says no more.
    fn serve(&mut self, link: &mut Link) -> Result<(), LinkError> {
        let mut columns = link.take_columns(self.layout.columns_at())?;
        loop {
            let command = match link.receive() {
                Err(LinkError::Os(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
                command => command?,
            };
            let (number, kind) = (command.code >> KIND_BITS, command.code & ((1 << KIND_BITS) - 1));
            let answer = match kind {
                WORK => self.work(link, &mut columns, number)?,
                ASK => {
                    let ask =
                        heard(&command.payload).map_err(|_| LinkError::Protocol("a question of no sense"))?;
                    said(&self.answer(link, ask)?)
                }
                CLOSE => {
                    self.blocks.clear();
                    return link.reply(command.code, &[]);
                }
                _ => return Err(LinkError::Protocol("a command of no kind")),
            };
            link.reply(command.code, &answer)?;
        }
    }

    /// Steps the blocks that belong to a command, and returns what is to be said of those that failed.
    fn work(&mut self, link: &Link, columns: &mut SharedColumns, number: u64) -> Result<Vec<u8>, LinkError> {
        let mut failures: Vec<(usize, String)> = Vec::new();
        for (at, block) in self.blocks.iter_mut().enumerate() {
            let (slot, memory_at) = slot(&self.layout, link, at)?;
            let Some(order) = slot.order(number) else { continue };
            let places = self.layout.places(memory_at, at, block.options.len());
            let mut columns_of_block = BlockColumns::new();
            columns_of_block.extend(columns.at(places));
            let worked = block.work(slot, order, &mut columns_of_block, self.layout.obs_columns());
            let done = worked.unwrap_or_else(|why| {
                failures.push((at, why));
                Done { failed: true, ..Done::default() }
            });
            slot.put_done(done);
            link.publish(self.layout.done_at(at), number)?;
        }
        Ok(if failures.is_empty() { Vec::new() } else { said(&failures) })
    }

    fn answer(&mut self, link: &Link, ask: Question) -> Result<BlockAnswer, LinkError> {
        let (slot, _) = slot(&self.layout, link, ask.block)?;
        let block = self.blocks.get_mut(ask.block);
        let block = block.ok_or(LinkError::Protocol("a question about a block of another worker"))?;
        if let What::Revive { lanes } = ask.what {
            return Ok(BlockAnswer::Revived(block.revive(&self.entry, LaneSet::of_bits(lanes)).bits()));
        }
        let Some(env) = &mut block.env else { return Ok(BlockAnswer::Unsupported) };
        let calls = matches!(ask.what, What::Call { .. });
        let answered = catch_unwind(AssertUnwindSafe(|| {
            set_generators(env.as_mut(), slot, slot.order_of_ask());
            tell(env.as_mut(), slot, ask.what)
        }));
        Ok(answered.unwrap_or_else(|_| {
            block.env = None;
            if calls { BlockAnswer::BlockLost } else { BlockAnswer::Unsupported }
        }))
    }
}

/// Returns the slot of a block, and the byte at which slots begin.
fn slot<'a>(layout: &'a Layout, link: &'a Link, block: usize) -> Result<(Slot<'a>, usize), LinkError> {
    let (memory, at) = link.memory().ok_or(LinkError::Protocol("a command without a memory"))?;
    if layout.done_at(block) < layout.columns_at() {
        Ok((layout.slot(memory, at, block), at))
    } else {
        Err(LinkError::Protocol("a block without a slot"))
    }
}

/// Seeds and moves the generators of lanes.
fn set_generators(env: &mut dyn BatchEnv, slot: Slot<'_>, order: Order) {
    let lanes = LaneSet::first(env.lanes());
    for lane in order.seed & lanes {
        env.seed(lane, slot.start(lane).seed);
    }
    for lane in order.restore & lanes {
        env.restore(lane, slot.start(lane));
    }
}

/// Answers a question about a block.
fn tell(env: &mut dyn BatchEnv, slot: Slot<'_>, what: What) -> BlockAnswer {
    match what {
        What::Facts => {
            for lane in 0..env.lanes() {
                slot.put_facts(lane, env.state_hash(lane), env.position(lane), env.verdict(lane));
            }
            BlockAnswer::Done
        }
        What::State { lane } => env.state(lane).map_or(BlockAnswer::Unsupported, BlockAnswer::State),
        What::SetState { lane, state } => {
            env.set_state(lane, &state).map_or(BlockAnswer::Unsupported, |()| BlockAnswer::Done)
        }
        What::SetOptions { lane, options } => match env.set_options(lane, &options) {
            Ok(()) => BlockAnswer::Done,
            Err(MakeError::Kept) => BlockAnswer::Unsupported,
            Err(error) => BlockAnswer::Refused(words(&error)),
        },
        What::Call { lane, method, payload } => match env.call(lane, &method, &payload) {
            Ok(answer) => BlockAnswer::Answer(answer),
            Err(CallError::Refused { message }) => BlockAnswer::Refused(message),
            Err(CallError::Unsupported) => BlockAnswer::Unsupported,
            Err(CallError::Lost) => BlockAnswer::LaneLost,
        },
        What::Render { lane, width, height } => {
            let image = ImageSize::new(width, height).ok().and_then(|size| env.render(lane, size).ok());
            image.map_or(BlockAnswer::Unsupported, |image| BlockAnswer::Picture(image.pixels().to_vec()))
        }
        What::Text { lane, columns } => {
            env.text(lane, columns).map_or(BlockAnswer::Unsupported, BlockAnswer::Text)
        }
        What::Revive { .. } => BlockAnswer::Unsupported,
    }
}

impl Stepped {
    fn new(entry: &EnvEntry, options: &[Options]) -> Result<Self, String> {
        Ok(Self {
            env: Some(make(entry, options)?),
            options: options.to_vec(),
            first_infos: entry.spec().has_first_infos(),
            ages: [0; BLOCK_LANES],
            begun: LaneSet::NONE,
        })
    }

    /// Does what a command says in the block's columns. The error says why the block has failed.
    fn work(
        &mut self,
        slot: Slot<'_>,
        order: Order,
        columns: &mut BlockColumns<'_>,
        obs_columns: usize,
    ) -> Result<Done, String> {
        let env = self.env.as_mut().ok_or("it has failed before")?;
        let [ColumnMut::F64(rewards), first, second, rows @ ..] = &mut columns[..] else {
            return Err("its columns are others".to_owned());
        };
        let actions = [first, second][order.place].as_ref();
        let (obs, infos) = rows.split_at_mut(obs_columns);
        let (begun, first_infos) = (self.begun, self.first_infos);
        let stepped = catch_unwind(AssertUnwindSafe(|| {
            set_generators(env.as_mut(), slot, order);
            let mut ended = step(env.as_mut(), order, begun, obs, infos, (actions, rewards));
            if first_infos && !order.reset.is_empty() {
                ended.lost |= env.first_infos(order.reset & !ended.lost, infos);
            }
            ended
        }));
        match stepped {
            Ok(ended) => {
                self.begun |= order.reset;
                self.grow_older(order);
                Ok(self.done(slot, order, ended))
            }
            Err(panic) => {
                self.env = None;
                Err(panic_message(&*panic))
            }
        }
    }

    fn grow_older(&mut self, order: Order) {
        if order.step == LaneSet::first(self.options.len()) {
            self.ages.iter_mut().for_each(|age| *age = age.wrapping_add(1));
        } else {
            order.step.into_iter().for_each(|lane| self.ages[lane] = self.ages[lane].wrapping_add(1));
        }
        order.reset.into_iter().for_each(|lane| self.ages[lane] = 0);
    }

    /// Returns how a step went, and writes the facts for which lanes are usually asked next: of those whose episode
    /// ended, and of those that have made another [`HASH_WINDOW_STEPS`] steps.
    fn done(&self, slot: Slot<'_>, order: Order, ended: Ended) -> Done {
        let Ended { terminated, truncated, lost } = ended;
        let mut done = Done { failed: false, terminated, truncated, lost, known: LaneSet::NONE };
        if let (true, Some(env)) = (order.facts, &self.env) {
            let old = |lane: &usize| u64::from(self.ages[*lane]).is_multiple_of(HASH_WINDOW_STEPS);
            let due: LaneSet = order.step.into_iter().filter(old).collect();
            done.known = (due | terminated | truncated) & order.step & !lost;
            for lane in done.known {
                slot.put_facts(lane, env.state_hash(lane), env.position(lane), env.verdict(lane));
            }
        }
        done
    }

    /// Makes lost lanes anew, all of them if the block has failed.
    fn revive(&mut self, entry: &EnvEntry, lanes: LaneSet) -> LaneSet {
        if let Some(env) = &mut self.env {
            return catch_unwind(AssertUnwindSafe(|| env.revive(lanes))).unwrap_or_default();
        }
        self.begun = LaneSet::NONE;
        self.env = make(entry, &self.options).ok();
        if self.env.is_some() { LaneSet::first(self.options.len()) } else { LaneSet::NONE }
    }
}

/// Steps a block, or only resets lanes while it has some that have never been reset.
fn step<'a>(
    env: &mut dyn BatchEnv,
    order: Order,
    begun: LaneSet,
    obs: &mut [ColumnMut<'a>],
    infos: &mut [ColumnMut<'a>],
    (actions, rewards): (ColumnRef<'_>, &mut [f64]),
) -> Ended {
    let Order { step, reset, .. } = order;
    if step.is_empty() && begun != LaneSet::first(env.lanes()) {
        rewards.fill(0.0);
        return Ended { lost: env.reset(reset, obs), ..Ended::default() };
    }
    env.step(BlockStep { skip: !(step | reset), reset, actions, obs, infos, rewards })
}

fn make(entry: &EnvEntry, options: &[Options]) -> Result<Box<dyn BatchEnv>, String> {
    match catch_unwind(AssertUnwindSafe(|| entry.make_block(options))) {
        Ok(made) => made.map_err(|error| words(&error)),
        Err(panic) => Err(panic_message(&*panic)),
    }
}

/// Returns what a plug-in says of an error, without the words around it.
fn words(error: &MakeError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Bytes of a file that are read at a time.
const FILE_PART: u64 = 64 << 10;
