//! Commands: what a client can ask of lanes between two steps.

use std::borrow::Borrow;
use std::ops::Range;

use rollhouse_core::limits::MAX_LANE_WORDS_BYTES;
use rollhouse_core::{Call, ColumnData, ColumnRef, ColumnSpec, OptionValue, RecordRule};
use rollhouse_engine::Image;
use rollhouse_engine::{
    AskWords, AttributeValue, CallAnswer, CallLane, CallParams, Effect, GetAttributes, GetParams, LaneRange,
    LaneWords, Method, NoteParams, NoteSteps, NotedColumn, Nothing, PolicyVersionParams, Render,
    RenderAnswer, RenderParams, Reset, SchemaAnswer, SetAttributes, SetOptions, SetOptionsParams, SetParams,
    SetPolicyVersion, Statistics, StatisticsAnswer, StepError as Rules, WordsParams,
};
use rollhouse_wire::limits::MAX_COMMAND_BYTES;
use rollhouse_wire::{CallId, Envelope, EnvelopeError, EnvelopeFault};

use crate::commander::{Commander, Commands};
use crate::error::{MethodError, StepError};
use crate::join::{Part, run_together};
use crate::pool::AsyncPool;
use crate::pool_session::PoolSession;

impl AsyncPool {
    /// Calls a method of the lanes of one session, between two steps. Lanes in params and answer count from the
    /// session's first. Sessions are numbered as [`AsyncPool::sessions`] lists them.
    ///
    /// When the connection is lost, a method that may be done twice is asked again. If the future is dropped midway,
    /// the method may or may not have been done.
    ///
    /// # Errors
    /// See [`MethodError`].
    pub async fn call<M: Method>(
        &mut self,
        session: usize,
        params: &M::Params,
    ) -> Result<M::Answer, MethodError>
    where
        M::Params: Sync,
    {
        self.check_nothing_outstanding()?;
        if session >= self.sessions.len() {
            return Err(MethodError::NoSuchSession { session, sessions: self.sessions.len() });
        }
        let mut asked: Vec<Vec<&M::Params>> = vec![Vec::new(); self.sessions.len()];
        asked[session].push(params);
        let mut answers = self.call_all::<M>(asked).await?;
        // One was asked, one is answered.
        answers.swap_remove(session).pop().ok_or(MethodError::NoSuchSession { session, sessions: 0 })
    }

    /// Returns an attribute of every lane: an option's name, a constant's, `state`, `generator` or `max_episode_steps`.
    ///
    /// # Errors
    /// See [`MethodError`].
    pub async fn get_attr(&mut self, name: &str) -> Result<Vec<AttributeValue>, MethodError> {
        self.check_nothing_outstanding()?;
        let params = |lanes| GetParams { name: name.to_owned(), lanes };
        let asked = self.parts().map(|parts| parts.map(|(lanes, _)| params(lanes)).collect()).collect();
        let answers = self.call_all::<GetAttributes>(asked).await?;
        let values: Vec<_> = answers.into_iter().flatten().flat_map(|answer| answer.values).collect();
        match values.len() == self.lanes() {
            true => Ok(values),
            false => Err(MethodError::Answer {
                what: format!("{} values of {} lanes", values.len(), self.lanes()),
            }),
        }
    }

    /// Sets an attribute of every lane: one value for all, or one per lane. An option counts from the next step on; a
    /// lane whose state is set goes on from there.
    ///
    /// # Errors
    /// See [`MethodError`]; lanes of other sessions, and lanes before the one that is named, may have changed.
    pub async fn set_attr(&mut self, name: &str, values: &[AttributeValue]) -> Result<(), MethodError> {
        self.check_nothing_outstanding()?;
        if values.len() != 1 && values.len() != self.lanes() {
            let (name, given, lanes) = (name.to_owned(), values.len(), self.lanes());
            return Err(MethodError::Lanes(rollhouse_engine::CommandError::Length { name, given, lanes }));
        }
        let params = |lanes, rows: Range<usize>| {
            let values = if values.len() == 1 { values } else { &values[rows] };
            SetParams { name: name.to_owned(), lanes, values: values.to_vec() }
        };
        let asked =
            self.parts().map(|parts| parts.map(|(lanes, rows)| params(lanes, rows)).collect()).collect();
        self.call_all::<SetAttributes>(asked).await.map(drop)
    }

    /// Calls a method of the env on one lane and returns its answer; payload and answer are JSON by agreement. A call that
    /// changes the lane is recorded, and done again where the lane goes on after a loss of its node.
    ///
    /// # Errors
    /// See [`MethodError`]. After [`MethodError::Lost`] and whatever else says that a call which changes the lane may have been
    /// done, the lanes of that session are not resumed if their node is lost.
    pub async fn call_method(
        &mut self,
        lane: usize,
        method: &str,
        payload: &str,
    ) -> Result<String, MethodError> {
        self.check_nothing_outstanding()?;
        let found = self.sessions.iter().position(|site| site.lanes().contains(&lane));
        let index = found.ok_or(Rules::NoSuchLane { lane, lanes: self.lanes() })?;
        let row = (lane - self.sessions[index].lanes().start) as u32;
        let (method, payload) = (method.to_owned(), payload.to_owned());
        let params = CallParams { lane: row, method, payload };
        let changes = self.spec().method(&params.method).is_some_and(|method| method.changes);
        // If this is dropped midway, the log is gone.
        let log = self.sessions[index].session.doubt();
        let answered = self.call::<CallLane>(index, &params).await;
        let CallParams { method, payload, .. } = params;
        let session = &mut self.sessions[index].session;
        match &answered {
            Ok(_) if changes => session.settle_call(log, Some((row, Call { method, payload }))),
            Err(error) if changes && !error.says_nothing_changed() => {}
            _ => session.settle_call(log, None),
        }
        answered.map(|CallAnswer { answer }| answer)
    }

    /// Says which version of the policy chooses the actions from now on. Recordings have it with each step; 0 stands for
    /// one that nobody has said. Lanes that go on elsewhere after a loss have none until it is said again.
    ///
    /// # Errors
    /// See [`MethodError`]; lanes of other sessions may have been told.
    pub async fn set_policy_version(&mut self, version: u64) -> Result<(), MethodError> {
        self.check_nothing_outstanding()?;
        let asked = self.sessions.iter().map(|_| vec![PolicyVersionParams { version }]).collect();
        self.call_all::<SetPolicyVersion>(asked).await.map(drop)
    }

    /// Notes what step columns have in the steps that lanes take from now on: for each column its place among those of the
    /// pool's settings, and a row for each of `lanes`, or without them for each lane of the pool. It stays so until
    /// something else is noted; lanes that go on elsewhere after a loss have nothing until it is noted again. It costs
    /// a round trip; where nothing is recorded, nothing is asked.
    ///
    /// # Errors
    /// See [`MethodError`]; lanes have to have been reset. Lanes of other sessions may have been noted.
    pub async fn note(
        &mut self,
        lanes: Option<&[u32]>,
        columns: &[(usize, ColumnData)],
    ) -> Result<(), MethodError> {
        self.check_nothing_outstanding()?;
        let settings = &self.recipe.open.settings;
        if settings.record == RecordRule::None {
            return Ok(());
        }
        let all: Vec<u32>;
        let lanes = match lanes {
            Some(lanes) => lanes,
            None => {
                all = (0..self.lanes() as u32).collect();
                &all
            }
        };
        if let Some(&lane) = lanes.iter().find(|&&lane| lane as usize >= self.lanes()) {
            return Err(Rules::NoSuchLane { lane: lane as usize, lanes: self.lanes() }.into());
        }
        let mut rows = Vec::with_capacity(columns.len());
        for (column, values) in columns {
            let dtype = values.as_ref().dtype();
            let is_of = |spec: &&ColumnSpec| ColumnData::zeros(spec.dtype, 0).as_ref().dtype() == dtype;
            let spec = settings.step_columns.specs().get(*column).filter(is_of);
            let no_column = || Rules::StepColumn { column: *column, dtype };
            let elements = spec.ok_or_else(no_column)?.elements();
            if values.len() != lanes.len() * elements {
                let (what, given) = ("elements of a step column", values.len());
                return Err(Rules::Length { what, given, wanted: lanes.len() * elements }.into());
            }
            rows.push((*column as u32, values, elements));
        }
        let asked = self.sessions.iter().map(|site| notes_of(site.lanes(), lanes, &rows)).collect();
        self.call_all::<NoteSteps>(asked).await.map(drop)
    }

    /// Returns images of those lanes as they are now, in their order, of `size` (columns and rows) or of the env's own
    /// size. A node refuses an image whose bytes do not pack into
    /// [`MAX_COMMAND_BYTES`](rollhouse_wire::limits::MAX_COMMAND_BYTES).
    ///
    /// # Errors
    /// See [`MethodError`].
    pub async fn render(
        &mut self,
        lanes: Range<usize>,
        size: Option<(u32, u32)>,
    ) -> Result<Vec<Image>, MethodError> {
        self.check_nothing_outstanding()?;
        if lanes.end > self.lanes() {
            return Err(Rules::NoSuchLane { lane: lanes.end - 1, lanes: self.lanes() }.into());
        }
        let part = |own: &Range<usize>| {
            let rows = lanes.start.max(own.start)..lanes.end.min(own.end);
            rows.map(|row| RenderParams { lane: (row - own.start) as u32, size, packed: true }).collect()
        };
        let asked = self.sessions.iter().map(|site| part(site.lanes())).collect();
        let images = self.call_all::<Render>(asked).await?;
        let unpacked = images.into_iter().flatten().map(RenderAnswer::image);
        unpacked
            .collect::<Result<_, _>>()
            .map_err(|error| MethodError::Answer { what: format!("an image is malformed: {error}") })
    }

    /// Returns what those lanes say in words: why they are lost, and infos of their last row that have no column. The answer is
    /// in the order of the lanes.
    ///
    /// # Errors
    /// See [`MethodError`]; [`MethodError::Refused`] of earlier nodes, which know nothing of it.
    pub async fn words(&mut self, lanes: &[u32]) -> Result<Vec<LaneWords>, MethodError> {
        self.check_nothing_outstanding()?;
        let part = |own: &Range<usize>| {
            let here = lanes.iter().filter(|&&lane| own.contains(&(lane as usize)));
            let here: Vec<u32> = here.map(|lane| lane - own.start as u32).collect();
            here.chunks(WORDS_LANES).map(|part| WordsParams { lanes: part.to_vec() }).collect()
        };
        let asked = self.sessions.iter().map(|site| part(site.lanes())).collect();
        let answers = self.call_all::<AskWords>(asked).await?;
        let mut left: Vec<_> = answers
            .into_iter()
            .map(|parts| parts.into_iter().flat_map(|answer| answer.words).collect::<Vec<_>>().into_iter())
            .collect();
        let mut next = |lane: &u32| {
            let session = self.sessions.iter().position(|site| site.lanes().contains(&(*lane as usize)))?;
            left[session].next()
        };
        let words: Option<Vec<_>> = lanes.iter().map(&mut next).collect();
        words.ok_or_else(|| MethodError::Answer { what: format!("too few words of {} lanes", lanes.len()) })
    }

    /// Returns what the lanes of each session have done, and how the time was spent.
    ///
    /// # Errors
    /// See [`MethodError`].
    pub async fn statistics(&mut self) -> Result<Vec<StatisticsAnswer>, MethodError> {
        self.check_nothing_outstanding()?;
        let asked = self.sessions.iter().map(|_| vec![Nothing {}]).collect();
        Ok(self.call_all::<Statistics>(asked).await?.into_iter().flatten().collect())
    }

    /// Returns the description of the lanes, as the first session has them.
    ///
    /// # Errors
    /// See [`MethodError`].
    pub async fn schema(&mut self) -> Result<SchemaAnswer, MethodError> {
        self.call::<rollhouse_engine::Schema>(0, &Nothing {}).await
    }

    /// Gives the options of a reset to the lanes of sessions that are attached by memory, where a reset carries none.
    pub(crate) async fn give_options(&mut self, reset: &Reset) -> Result<(), StepError> {
        // Those that are not attached yet would be when they are reset.
        let Self { sessions, carrier, .. } = self;
        let parts = sessions.iter_mut().map(|site| Box::pin(site.attach_early(carrier)) as Part<'_>);
        run_together(parts.collect(), || false).await;
        let part = |values: &Vec<OptionValue>, own: &Range<usize>| {
            if values.len() == 1 { values.clone() } else { values[own.clone()].to_vec() }
        };
        let params = |site: &PoolSession| {
            let own = site.lanes();
            let in_memory = site.link.in_place().is_some();
            let options = reset.options.iter().map(|(name, values)| (name.clone(), part(values, own)));
            let mask = reset.mask.get(own.clone()).unwrap_or_default().to_vec();
            in_memory.then(|| SetOptionsParams { mask, options: options.collect(), kept: true })
        };
        let asked = self.sessions.iter().map(|site| params(site).into_iter().collect()).collect();
        // The reset that follows puts the options into the log.
        let logs: Vec<_> = self.sessions.iter_mut().map(|site| site.session.doubt()).collect();
        let given = self.call_all::<SetOptions>(asked).await;
        // One session that refuses has changed nothing; of several some may have done what others have not.
        let unchanged = self.sessions.len() == 1
            && matches!(
                given,
                Err(MethodError::Lanes(_) | MethodError::Refused { .. } | MethodError::TooLong(_))
            );
        if given.is_ok() || unchanged {
            self.sessions.iter_mut().zip(logs).for_each(|(site, log)| site.session.settle_call(log, None));
        }
        given.map(drop).map_err(StepError::from)
    }

    /// Splits the lanes of each session into parts whose attributes fit an envelope, with the rows of the batch that
    /// they are.
    fn parts(
        &self,
    ) -> impl Iterator<Item = impl Iterator<Item = (LaneRange, Range<usize>)> + use<>> + use<'_> {
        self.sessions.iter().map(|site| {
            let own = site.lanes().clone();
            own.clone().step_by(PART_LANES).map(move |start| {
                let end = (start + PART_LANES).min(own.end);
                let range = LaneRange { first: (start - own.start) as u32, count: (end - start) as u32 };
                (range, start..end)
            })
        })
    }

    pub(crate) fn check_nothing_outstanding(&self) -> Result<(), MethodError> {
        match self.first_done.as_ref().and_then(|books| books.first_outstanding()) {
            Some(lane) => Err(Rules::LaneOutstanding { lane }.into()),
            None => Ok(()),
        }
    }

    /// Asks each session what `asked` has for it, in its order, and all sessions together.
    async fn call_all<M: Method>(
        &mut self,
        asked: Vec<Vec<impl Borrow<M::Params>>>,
    ) -> Result<Vec<Vec<M::Answer>>, MethodError> {
        let commands = asked.iter().map(|asked| {
            let params = asked.iter().map(|params| Envelope::packed(params.borrow()));
            let params = params.collect::<Result<_, _>>().map_err(too_long)?;
            Ok(Commands { method: M::NAME, repeatable: M::REPEATABLE, params })
        });
        let commands = commands.collect::<Result<_, MethodError>>()?;
        let answers = self.call_each(M::NAME, M::EFFECT, commands).await?;
        let read = |(session, answers): (usize, Vec<Envelope>)| {
            let read = answers.iter().map(Envelope::payload::<M::Answer>).collect::<Result<Vec<_>, _>>();
            read.map_err(|error| self.distrust(session, &error.to_string()))
        };
        answers.into_iter().enumerate().map(read).collect()
    }

    /// Closes the connection to a session's node, whose answers cannot be read.
    fn distrust(&mut self, session: usize, what: &str) -> MethodError {
        self.commanders[session].distrust(what);
        let node = &self.sessions[session].session.grant().node;
        MethodError::Answer { what: format!("node {node}: {what}") }
    }

    async fn call_each(
        &mut self,
        method: &'static str,
        effect: Effect,
        asked: Vec<Commands>,
    ) -> Result<Vec<Vec<Envelope>>, MethodError> {
        let call = CallId::generate();
        call.traced(method, self.call_sessions(call, effect, asked)).await
    }

    async fn call_sessions(
        &mut self,
        call: CallId,
        effect: Effect,
        asked: Vec<Commands>,
    ) -> Result<Vec<Vec<Envelope>>, MethodError> {
        let deadline = self.deadline();
        let (after, pool) = (self.timeout(), self.id());
        let Self { sessions, commanders, carrier, recipe, .. } = self;
        let network = carrier.network();
        let recorded = recipe.open.settings.record != RecordRule::None;
        // What a call does is put back into the log by who knows what was called.
        let forgets = match effect {
            Effect::None => false,
            Effect::Begins | Effect::Calls => true,
            Effect::Changes => !recorded,
        };
        if forgets {
            let meant = |(site, asked): &(&mut PoolSession, &Commands)| {
                !asked.params.is_empty() && !site.session.is_resuming()
            };
            sessions.iter_mut().zip(&asked).filter(meant).for_each(|(site, _)| site.session.forget());
        }
        commanders.resize_with(sessions.len(), Commander::default);
        let mut results: Vec<Option<Result<Vec<Envelope>, MethodError>>> = Vec::new();
        results.resize_with(sessions.len(), || None);
        let parts = sessions.iter_mut().zip(commanders).zip(asked).zip(&mut results);
        let parts = parts.map(|(((site, commander), asked), slot)| {
            Box::pin(async move {
                *slot = Some(match (site.session.gone(), asked.params.is_empty()) {
                    (_, true) => Ok(Vec::new()),
                    (Some(gone), _) => Err(MethodError::Gone { reason: gone.reason.clone() }),
                    (None, _) if site.session.is_resuming() => {
                        Err(MethodError::Gone { reason: HALF_RESUMED.to_owned() })
                    }
                    (None, _) => {
                        let answers = commander.ask(network, (pool, call), site, &asked);
                        let answers = tokio::time::timeout_at(deadline, answers).await;
                        answers.unwrap_or_else(|_| Err(MethodError::TimedOut(site.session.unanswered(after))))
                    }
                });
            }) as Part<'_>
        });
        run_together(parts.collect(), || false).await;
        // Every part has left its result.
        results.into_iter().flatten().collect()
    }
}

fn too_long(error: EnvelopeError) -> MethodError {
    MethodError::TooLong(EnvelopeFault::Envelope(error))
}

/// Returns what a session is told of the lanes that are its own, in envelopes that are not too long. `rows` has for each
/// column its place, a row for each of `lanes`, and the elements of a row.
fn notes_of(own: &Range<usize>, lanes: &[u32], rows: &[(u32, &ColumnData, usize)]) -> Vec<NoteParams> {
    let here = |&at: &usize| own.contains(&(lanes[at] as usize));
    let here: Vec<usize> = (0..lanes.len()).filter(here).collect();
    let bytes: usize = rows.iter().map(|(_, _, elements)| elements * size_of::<f64>()).sum();
    let part = |part: &[usize]| {
        let column = |&(column, values, elements): &(u32, &ColumnData, usize)| {
            let mut bytes = Vec::new();
            for row in part.iter().filter_map(|&at| values.row(at, elements)) {
                put_le(row, &mut bytes);
            }
            NotedColumn { column, values: bytes }
        };
        let lanes = part.iter().map(|&at| lanes[at] - own.start as u32).collect();
        NoteParams { lanes, columns: rows.iter().map(column).collect() }
    };
    here.chunks((NOTE_BYTES / (bytes + size_of::<u32>() + 1)).max(1)).map(part).collect()
}

fn put_le(row: ColumnRef<'_>, out: &mut Vec<u8>) {
    match row {
        ColumnRef::U8(values) => out.extend_from_slice(values),
        ColumnRef::I32(values) => out.extend(values.iter().copied().flat_map(i32::to_le_bytes)),
        ColumnRef::I64(values) => out.extend(values.iter().copied().flat_map(i64::to_le_bytes)),
        ColumnRef::F32(values) => out.extend(values.iter().copied().flat_map(f32::to_le_bytes)),
        ColumnRef::F64(values) => out.extend(values.iter().copied().flat_map(f64::to_le_bytes)),
    }
}

/// Most bytes of one envelope's notes; a row of all columns, however wide, and the names around them are less than the
/// rest.
const NOTE_BYTES: usize = MAX_COMMAND_BYTES / 2;

const _: () = assert!(rollhouse_core::limits::MAX_STEP_COLUMN_BYTES <= NOTE_BYTES);

/// Message for lanes that a call left halfway to another node.
const HALF_RESUMED: &str = "they are being resumed elsewhere, which the next step or reset carries on with";

/// Most lanes in one envelope of words, each of which says at most [`MAX_LANE_WORDS_BYTES`].
const WORDS_LANES: usize = 64;
const _: () = assert!(WORDS_LANES * (MAX_LANE_WORDS_BYTES + 32) < MAX_COMMAND_BYTES);

/// Most lanes in one envelope of attributes: states of up to 28 doubles fit.
const PART_LANES: usize = 512;
