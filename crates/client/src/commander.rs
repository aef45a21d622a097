//! Commands to one session: sent together, answered in order, over a stream or through shared memory.

use std::cmp::Ordering;
use std::time::Duration;

use rollhouse_core::RunId;
use rollhouse_wire::limits::{MAX_COMMAND_ANSWER_BYTES, MAX_OUTSTANDING_COMMANDS};
use rollhouse_wire::{
    CallError, CallId, CloseCode, Connection, Envelope, EnvelopeFault, EnvelopeReader, EnvelopeWriter, Grant,
    Incarnation, OpenCommands, PiecedAnswer, Refusal, RefusalCode,
};

use crate::error::MethodError;
use crate::link::MemoryLink;
use crate::network::Network;
use crate::pool_session::PoolSession;

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

/// Commands of one method to one session.
///
/// Their params are bytes and their answers envelopes: whoever knows the method's types writes and reads them, so that
/// this is compiled once and not for every method.
#[derive(Debug)]
pub(crate) struct Commands {
    pub(crate) method: &'static str,
    /// Whether the method may be called again when an answer got lost.
    pub(crate) repeatable: bool,
    pub(crate) params: Vec<Vec<u8>>,
}

impl Commands {
    fn envelope(&self, index: usize, id: u64, of: CallId) -> Envelope {
        let (method, payload) = (self.method.to_owned(), self.params[index].clone());
        let command = Envelope { id, method, call: Some(of), payload, error: None, room: 0, more: 0 };
        command.with_room(MAX_COMMAND_ANSWER_BYTES)
    }
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
    pub(crate) async fn ask(
        &mut self,
        network: &Network,
        (pool, of): (RunId, CallId),
        site: &mut PoolSession,
        asked: &Commands,
    ) -> Result<Vec<Envelope>, MethodError> {
        let mut answers = Vec::with_capacity(asked.params.len());
        let mut wait = FIRST_WAIT;
        loop {
            let node = site.session.grant().node.clone();
            let done = match site.link.rings() {
                Some(rings) => self.exchange(&mut Channel::Rings(rings), of, asked, &mut answers).await,
                None => {
                    let grant = site.session.grant();
                    self.exchange_on_stream(network, (pool, of), grant, asked, &mut answers).await
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
                Err(Trouble::Lost { written: true }) if !asked.repeatable => {
                    return Err(MethodError::Lost { node, method: asked.method });
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
    async fn exchange_on_stream(
        &mut self,
        network: &Network,
        (pool, of): (RunId, CallId),
        grant: &Grant,
        asked: &Commands,
        answers: &mut Vec<Envelope>,
    ) -> Result<(), Trouble> {
        let mut stream = self.stream(network, (pool, of), grant).await?;
        let done = self.exchange(&mut Channel::Stream(&mut stream), of, asked, answers).await;
        match &done {
            Ok(()) => self.stream = Some(stream),
            Err(Trouble::Malformed(what)) => stream.connection.close(CloseCode::Malformed, what),
            Err(_) => {}
        }
        done
    }

    /// Sends those of `asked` that have no answer yet, and reads their answers.
    async fn exchange(
        &mut self,
        carrier: &mut Channel<'_>,
        of: CallId,
        asked: &Commands,
        answers: &mut Vec<Envelope>,
    ) -> Result<(), Trouble> {
        let (mut sent, mut awaited) = (answers.len(), self.next);
        let mut pieced = PiecedAnswer::default();
        while answers.len() < asked.params.len() {
            while sent < asked.params.len() && sent - answers.len() < MAX_OUTSTANDING_COMMANDS {
                if !carrier.send(&asked.envelope(sent, self.next, of)).await? {
                    break;
                }
                self.next += 1;
                sent += 1;
            }
            let Some(answer) = carrier.next().await? else { continue };
            match answer.id.cmp(&awaited) {
                Ordering::Less if carrier.has_old_answers() => {}
                Ordering::Equal => {
                    let whole = pieced.add(answer, MAX_COMMAND_ANSWER_BYTES);
                    let whole = whole.map_err(|error| Trouble::Malformed(error.to_string()))?;
                    let Some(whole) = whole else { continue };
                    awaited += 1;
                    answers.push(done(whole)?);
                }
                Ordering::Less | Ordering::Greater => {
                    let what = format!("an answer to command {}, not {awaited}", answer.id);
                    return Err(Trouble::Malformed(what));
                }
            }
        }
        Ok(())
    }

    /// Closes the connection to a node whose answers cannot be read.
    pub(crate) fn distrust(&mut self, what: &str) {
        if let Some(stream) = self.stream.take() {
            stream.connection.close(CloseCode::Malformed, what);
        }
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

/// What carries commands to a session, and their answers back.
enum Channel<'a> {
    Stream(&'a mut CommandStream),
    /// The rings of its memory.
    Rings(&'a mut MemoryLink),
}

impl Channel<'_> {
    /// Returns whether answers that an earlier call did not wait for may come first: a stream ends with its call.
    const fn has_old_answers(&self) -> bool {
        matches!(self, Self::Rings(_))
    }

    /// Sends a command. Returns false if there is no room before an answer is read.
    async fn send(&mut self, command: &Envelope) -> Result<bool, Trouble> {
        match self {
            Self::Stream(stream) => match stream.writer.write(command).await {
                Ok(()) => Ok(true),
                Err(EnvelopeFault::Lost(_)) => Err(Trouble::Lost { written: true }),
                Err(fault) => Err(Trouble::TooLong(fault)),
            },
            Self::Rings(link) => {
                let command = command.encode();
                let command = command.map_err(|error| Trouble::TooLong(EnvelopeFault::Envelope(error)))?;
                link.try_command(&command).map_err(|_| Trouble::Lost { written: true })
            }
        }
    }

    /// Waits for the next answer. Returns none if there is none yet, and commands may be sent meanwhile.
    async fn next(&mut self) -> Result<Option<Envelope>, Trouble> {
        match self {
            Self::Stream(stream) => match stream.reader.read().await {
                Ok(Some(answer)) => Ok(Some(answer)),
                Ok(None) | Err(EnvelopeFault::Lost(_)) => Err(Trouble::Lost { written: true }),
                Err(fault) => Err(Trouble::Malformed(fault.to_string())),
            },
            Self::Rings(link) => {
                let mut bytes = Vec::new();
                if !link.try_command_answer(&mut bytes).map_err(|_| Trouble::Lost { written: true })? {
                    // The node takes long: this thread has others to serve.
                    tokio::time::sleep(RING_PAUSE).await;
                    return Ok(None);
                }
                Envelope::decode(&bytes).map(Some).map_err(|error| Trouble::Malformed(error.to_string()))
            }
        }
    }
}

fn done(mut answer: Envelope) -> Result<Envelope, Trouble> {
    match answer.error.take() {
        Some(refusal) => Err(Trouble::Refused(refusal)),
        None => Ok(answer),
    }
}

/// Pause for other tasks before the ring of answers is looked at again.
const RING_PAUSE: Duration = Duration::from_millis(1);

/// Pause before a lost command is sent again.
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
