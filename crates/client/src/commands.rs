//! Commands: what a client can ask of lanes between two steps.

use std::cmp::Ordering;
use std::ops::Range;
use std::time::Duration;

use rollhouse_core::{OptionValue, RunId};
use rollhouse_engine::Image;
use rollhouse_engine::{
    AttributeValue, Effect, GetAttributes, GetParams, LaneRange, Method, Nothing, PolicyVersionParams,
    Render, RenderAnswer, RenderParams, Reset, SchemaAnswer, SetAttributes, SetOptions, SetOptionsParams,
    SetParams, SetPolicyVersion, Statistics, StatisticsAnswer, StepError as Rules,
};
use rollhouse_wire::limits::MAX_OUTSTANDING_COMMANDS;
use rollhouse_wire::{
    CallError, CallId, CloseCode, Connection, Envelope, EnvelopeFault, EnvelopeReader, EnvelopeWriter, Grant,
    Incarnation, OpenCommands, RecordRule, Refusal, RefusalCode,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{MethodError, StepError};
use crate::join::{Part, run_together};
use crate::link::{MemoryLink, NoAnswer};
use crate::network::Network;
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
        let mut answers = self.call_all::<M, _>(asked).await?;
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
        let answers = self.call_all::<GetAttributes, _>(asked).await?;
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
        self.call_all::<SetAttributes, _>(asked).await.map(drop)
    }

    /// Says which version of the policy chooses the actions from now on. Recordings have it with each step; 0 stands for
    /// one that nobody has said. Lanes that go on elsewhere after a loss have none until it is said again.
    ///
    /// # Errors
    /// See [`MethodError`]; lanes of other sessions may have been told.
    pub async fn set_policy_version(&mut self, version: u64) -> Result<(), MethodError> {
        self.check_nothing_outstanding()?;
        let asked = self.sessions.iter().map(|_| vec![PolicyVersionParams { version }]).collect();
        self.call_all::<SetPolicyVersion, _>(asked).await.map(drop)
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
        let images = self.call_all::<Render, _>(asked).await?;
        let unpacked = images.into_iter().flatten().map(RenderAnswer::image);
        unpacked
            .collect::<Result<_, _>>()
            .map_err(|error| MethodError::Answer { what: format!("an image is malformed: {error}") })
    }

    /// Returns what the lanes of each session have done, and how the time was spent.
    ///
    /// # Errors
    /// See [`MethodError`].
    pub async fn statistics(&mut self) -> Result<Vec<StatisticsAnswer>, MethodError> {
        self.check_nothing_outstanding()?;
        let asked = self.sessions.iter().map(|_| vec![Nothing {}]).collect();
        Ok(self.call_all::<Statistics, _>(asked).await?.into_iter().flatten().collect())
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
        let Self { sessions, cluster, start, .. } = self;
        let (network, start) = (cluster.network(), *start);
        let parts = sessions.iter_mut().map(|site| Box::pin(site.attach_early(network, start)) as Part<'_>);
        run_together(parts.collect(), || false).await;
        let part = |values: &Vec<OptionValue>, own: &Range<usize>| {
            if values.len() == 1 { values.clone() } else { values[own.clone()].to_vec() }
        };
        let params = |site: &PoolSession| {
            let own = site.lanes();
            let in_memory = site.link.in_place().is_some();
            let options = reset.options.iter().map(|(name, values)| (name.clone(), part(values, own)));
            let mask = reset.mask.get(own.clone()).unwrap_or_default().to_vec();
            in_memory.then(|| SetOptionsParams { mask, options: options.collect() })
        };
        let asked = self.sessions.iter().map(|site| params(site).into_iter().collect()).collect();
        self.call_all::<SetOptions, _>(asked).await.map(drop).map_err(StepError::from)
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

    fn check_nothing_outstanding(&self) -> Result<(), MethodError> {
        match self.first_done.as_ref().and_then(|books| books.first_outstanding()) {
            Some(lane) => Err(Rules::LaneOutstanding { lane }.into()),
            None => Ok(()),
        }
    }

    /// Asks each session what `asked` has for it, in its order, and all sessions together.
    async fn call_all<M: Method, P: Serialize + Send + Sync>(
        &mut self,
        asked: Vec<Vec<P>>,
    ) -> Result<Vec<Vec<M::Answer>>, MethodError> {
        let call = CallId::generate();
        call.traced(M::NAME, self.call_each::<M, P>(call, asked)).await
    }

    async fn call_each<M: Method, P: Serialize + Send + Sync>(
        &mut self,
        call: CallId,
        asked: Vec<Vec<P>>,
    ) -> Result<Vec<Vec<M::Answer>>, MethodError> {
        let clock = self.clock();
        let (after, pool) = (self.timeout(), self.id());
        let Self { sessions, commanders, cluster, recipe, .. } = self;
        let network = cluster.network();
        let recorded = recipe.open.settings.record != RecordRule::None;
        if M::EFFECT == Effect::Begins || M::EFFECT == Effect::Changes && !recorded {
            let meant = |(site, asked): &(&mut PoolSession, &Vec<P>)| {
                !asked.is_empty() && !site.session.is_resuming()
            };
            sessions.iter_mut().zip(&asked).filter(meant).for_each(|(site, _)| site.session.forget());
        }
        commanders.resize_with(sessions.len(), Commander::default);
        let mut results: Vec<Option<Result<Vec<M::Answer>, MethodError>>> = Vec::new();
        results.resize_with(sessions.len(), || None);
        let parts = sessions.iter_mut().zip(commanders).zip(asked).zip(&mut results);
        let parts = parts.map(|(((site, commander), asked), slot)| {
            Box::pin(async move {
                *slot = Some(match (site.session.gone(), asked.is_empty()) {
                    (_, true) => Ok(Vec::new()),
                    (Some(gone), _) => Err(MethodError::Gone { reason: gone.reason.clone() }),
                    (None, _) if site.session.is_resuming() => {
                        Err(MethodError::Gone { reason: HALF_RESUMED.to_owned() })
                    }
                    (None, _) => {
                        let answers = commander.ask::<M, P>(network, (pool, call), site, &asked);
                        let answers = tokio::time::timeout_at(clock.deadline, answers).await;
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

/// Sends commands to one session and reads the answers.
#[derive(Debug, Default)]
pub(crate) struct Commander {
    stream: Option<CommandStream>,
    /// The id of the next command.
    next: u64,
}

#[derive(Debug)]
struct CommandStream {
    connection: Connection,
    /// The incarnation of the session to which `stream` belongs.
    incarnation: Incarnation,
    reader: EnvelopeReader,
    writer: EnvelopeWriter,
}

/// Why a command has no answer.
enum Trouble {
    Refused(Refusal),
    /// The stream is lost, with whether anything was written that has no answer.
    Lost {
        written: bool,
    },
    /// The node breaks the protocol.
    Malformed(String),
    /// A command is too long.
    TooLong(EnvelopeFault),
}

impl Commander {
    /// Sends all of `asked`, in their order: through the session's memory if it is attached by it, else over a stream
    /// of its own. They are part of the call `of`. If this is dropped midway, the next call begins on a new stream.
    async fn ask<M: Method, P: Serialize>(
        &mut self,
        network: &Network,
        (pool, of): (RunId, CallId),
        site: &mut PoolSession,
        asked: &[P],
    ) -> Result<Vec<M::Answer>, MethodError> {
        let mut answers = Vec::with_capacity(asked.len());
        let mut wait = FIRST_WAIT;
        loop {
            let node = site.session.grant().node.clone();
            let done = match site.link.in_place_mut().filter(|link| link.is_attached()) {
                Some(link) => self.exchange_in_memory::<M, P>(link, of, asked, &mut answers).await,
                None => {
                    let grant = site.session.grant();
                    self.exchange::<M, P>(network, (pool, of), grant, asked, &mut answers).await
                }
            };
            let pause = match done {
                Ok(()) => return Ok(answers),
                Err(Trouble::Refused(refusal)) if refusal.code == RefusalCode::Busy => {
                    wait.max(Duration::from_millis(refusal.retry_after_ms.unwrap_or(0)))
                }
                Err(Trouble::Refused(refusal)) => {
                    return Err(MethodError::Refused { node, refusal: refusal.of_call(of) });
                }
                Err(Trouble::Lost { written: true }) if !M::REPEATABLE => {
                    return Err(MethodError::Lost { node, method: M::NAME });
                }
                Err(Trouble::Lost { .. }) => wait,
                Err(Trouble::TooLong(fault)) => return Err(MethodError::TooLong(fault)),
                Err(Trouble::Malformed(what)) => {
                    return Err(MethodError::Answer { what: format!("node {node}: {what}") });
                }
            };
            tokio::time::sleep(pause).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Sends those of `asked` that have no answer yet over the session's command stream, and reads their answers.
    async fn exchange<M: Method, P: Serialize>(
        &mut self,
        network: &Network,
        (pool, of): (RunId, CallId),
        grant: &Grant,
        asked: &[P],
        answers: &mut Vec<M::Answer>,
    ) -> Result<(), Trouble> {
        let mut stream = self.stream(network, (pool, of), grant).await?;
        let done = stream.exchange::<M, P>(&mut self.next, of, asked, answers).await;
        match &done {
            Ok(()) => self.stream = Some(stream),
            Err(Trouble::Malformed(what)) => stream.connection.close(CloseCode::Malformed, what),
            Err(_) => {}
        }
        done
    }

    /// Does the same through the rings of shared memory. Answers that an earlier call did not wait for are skipped.
    async fn exchange_in_memory<M: Method, P: Serialize>(
        &mut self,
        link: &mut MemoryLink,
        of: CallId,
        asked: &[P],
        answers: &mut Vec<M::Answer>,
    ) -> Result<(), Trouble> {
        let lost = |_: NoAnswer| Trouble::Lost { written: true };
        let (mut sent, mut awaited) = (answers.len(), self.next);
        let mut bytes = Vec::new();
        while answers.len() < asked.len() {
            while sent < asked.len() && sent - answers.len() < MAX_OUTSTANDING_COMMANDS {
                let command = encoded::<M, P>(self.next, of, &asked[sent])?;
                if !link.try_command(&command).map_err(lost)? {
                    break;
                }
                self.next += 1;
                sent += 1;
            }
            if !link.try_command_answer(&mut bytes).map_err(lost)? {
                // The node takes long: this thread has others to serve.
                tokio::time::sleep(RING_PAUSE).await;
                continue;
            }
            let answer = Envelope::decode(&bytes).map_err(|error| Trouble::Malformed(error.to_string()))?;
            match answer.id.cmp(&awaited) {
                Ordering::Less => {}
                Ordering::Equal => {
                    awaited += 1;
                    answers.push(read::<M::Answer>(answer)?);
                }
                Ordering::Greater => {
                    let what = format!("an answer to command {}, not {awaited}", answer.id);
                    return Err(Trouble::Malformed(what));
                }
            }
        }
        Ok(())
    }

    /// Takes the session's command stream out: a call that ends midway leaves none.
    async fn stream(
        &mut self,
        network: &Network,
        (pool, of): (RunId, CallId),
        grant: &Grant,
    ) -> Result<CommandStream, Trouble> {
        let usable = |stream: &CommandStream| {
            stream.connection.lost().is_none() && stream.incarnation == grant.incarnation
        };
        if let Some(stream) = self.stream.take().filter(usable) {
            return Ok(stream);
        }
        let lost = Trouble::Lost { written: false };
        let Ok(connection) = network.node(grant).await else { return Err(lost) };
        let Grant { index, incarnation, secret, .. } = *grant;
        let open = OpenCommands { pool, index, incarnation, secret };
        match connection.commands(open, Some(of)).await {
            Ok((_, reader, writer)) => Ok(CommandStream { connection, incarnation, reader, writer }),
            Err(CallError::Refused(refusal)) => Err(Trouble::Refused(refusal)),
            Err(_) => Err(lost),
        }
    }
}

impl CommandStream {
    /// Sends those of `asked` that have no answer yet, and reads their answers.
    async fn exchange<M: Method, P: Serialize>(
        &mut self,
        next: &mut u64,
        of: CallId,
        asked: &[P],
        answers: &mut Vec<M::Answer>,
    ) -> Result<(), Trouble> {
        let (mut sent, mut awaited) = (answers.len(), *next);
        while answers.len() < asked.len() {
            while sent < asked.len() && sent - answers.len() < MAX_OUTSTANDING_COMMANDS {
                let command = Envelope::command(*next, M::NAME, &asked[sent])
                    .map_err(|error| Trouble::TooLong(EnvelopeFault::Envelope(error)))?
                    .of_call(of);
                *next += 1;
                sent += 1;
                self.writer.write(&command).await.map_err(|fault| match fault {
                    EnvelopeFault::Lost(_) => Trouble::Lost { written: true },
                    fault => Trouble::TooLong(fault),
                })?;
            }
            let answer = match self.reader.read().await {
                Ok(Some(answer)) => answer,
                Ok(None) | Err(EnvelopeFault::Lost(_)) => return Err(Trouble::Lost { written: true }),
                Err(fault) => return Err(Trouble::Malformed(fault.to_string())),
            };
            if answer.id != awaited {
                return Err(Trouble::Malformed(format!("an answer to command {}, not {awaited}", answer.id)));
            }
            awaited += 1;
            answers.push(read::<M::Answer>(answer)?);
        }
        Ok(())
    }
}

fn encoded<M: Method, P: Serialize>(id: u64, of: CallId, params: &P) -> Result<Vec<u8>, Trouble> {
    let command = Envelope::command(id, M::NAME, params).and_then(|command| command.of_call(of).encode());
    command.map_err(|error| Trouble::TooLong(EnvelopeFault::Envelope(error)))
}

fn read<T: DeserializeOwned>(answer: Envelope) -> Result<T, Trouble> {
    match &answer.error {
        Some(refusal) => Err(Trouble::Refused(refusal.clone())),
        None => answer.payload().map_err(|error| Trouble::Malformed(error.to_string())),
    }
}

/// Message for lanes that a call left halfway to another node.
const HALF_RESUMED: &str = "they are being resumed elsewhere, which the next step or reset carries on with";

/// Most lanes in one envelope of attributes: states of up to 28 doubles fit.
const PART_LANES: usize = 512;

/// Pause for other tasks before the ring of answers is looked at again.
const RING_PAUSE: Duration = Duration::from_millis(1);

/// Pause before a lost command is sent again.
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
