//! A socket: messages in, answers out, in order.
//!
//! While an env works on a message the socket is read on, so that pings are answered and its end is seen; at most one message
//! waits meanwhile, and the next is left to the system's buffers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::SinkExt;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rollhouse_codec::openenv::{
    BadBody, BadMessage, ClientMessage, Code, error, faults_reply, mcp_reply, read_action, state_reply,
};
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout};
use tokio_stream::StreamExt;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};

use super::counts::Refusal;
use super::player::{PlayError, Player};
use super::server::{Done, NoSession, OpenenvServer, Session, blocking};

/// What a socket is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A session of its own, or the one of that name.
    Play(Option<String>),
    /// JSON-RPC.
    Rpc,
}

/// A socket of a client.
struct Socket {
    server: Arc<OpenenvServer>,
    frames: WebSocketStream<TokioIo<Upgraded>>,
    stopping: watch::Receiver<bool>,
    /// A message that came while another was worked on.
    waiting: Option<Message>,
    pings: Interval,
    /// When the last message came.
    asked: Instant,
    /// Whether anything has come since the last ping.
    is_heard: bool,
}

/// Why a socket ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Its client ended it, or is gone.
    Gone,
    /// It is closed with this code.
    Closed(CloseCode),
}

/// A client that has sent nothing for so long is asked whether it is there, and has the same time to answer.
const PING_EVERY: Duration = Duration::from_secs(20);
/// Time in which a client says goodbye to a socket that is closed.
const GOODBYE_WITHIN: Duration = Duration::from_secs(2);
/// Time in which a client takes an answer.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);

/// Serves a socket until it ends. What it has begun ends with it.
pub(super) async fn serve(server: Arc<OpenenvServer>, upgraded: Upgraded, purpose: Purpose) {
    server.counts.sockets.fetch_add(1, Ordering::Relaxed);
    let most = server.most_bytes();
    let config = WebSocketConfig::default()
        .max_message_size(Some(most))
        .max_frame_size(Some(most))
        .write_buffer_size(0)
        .read_buffer_size(READ_BYTES);
    let stream = TokioIo::new(upgraded);
    let frames = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let mut pings = interval(PING_EVERY.min(server.settings.idle));
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.reset();
    let stopping = server.stopping();
    let (asked, is_heard) = (Instant::now(), true);
    let mut socket = Socket { server, frames, stopping, waiting: None, pings, asked, is_heard };
    let end = match purpose {
        Purpose::Rpc => socket.answer_rpc().await,
        Purpose::Play(name) => socket.play(name).await,
    };
    if let End::Closed(code) = end {
        drop(timeout(GOODBYE_WITHIN, socket.say_goodbye(code)).await);
    }
}

impl Socket {
    async fn play(&mut self, name: Option<String>) -> End {
        let session = match &name {
            Some(name) => self.server.attach(name),
            None => self.server.session().await,
        };
        let mut session = match session {
            Ok(session) => session,
            Err(refused) => {
                let (code, capacity, factory) = match &refused {
                    NoSession::Full(capacity) => (Code::CapacityReached, Some(*capacity), None),
                    NoSession::NotMade { env, .. } => (Code::FactoryError, None, Some(&**env)),
                    NoSession::Unknown(_) | NoSession::InUse(_) => (Code::SessionError, None, None),
                };
                let sent = self.send(error(code, &refused.to_string(), capacity, factory)).await;
                return sent.err().unwrap_or(End::Closed(CloseCode::Normal));
            }
        };
        let end = loop {
            let message = match self.next().await {
                Ok(message) => message,
                Err(end) => break end,
            };
            let (back, answer) = self.answer(session, message).await;
            let Some(back) = back else { return answer.err().unwrap_or(End::Closed(CloseCode::Error)) };
            session = back;
            let sent = match answer {
                Ok(answer) => self.send(answer).await,
                Err(end) => Err(end),
            };
            if let Err(end) = sent {
                break end;
            }
        };
        let server = Arc::clone(&self.server);
        server.give_back(name.as_deref(), session).await;
        end
    }

    async fn answer_rpc(&mut self) -> End {
        loop {
            let message = match self.next().await {
                Ok(message) => message,
                Err(end) => return end,
            };
            let answer = match &message {
                Message::Text(text) => self.server.rpc(text).await,
                _ => self.server.rpc_no_text(),
            };
            if let Err(end) = self.send(answer).await {
                return end;
            }
        }
    }

    /// Returns the answer to a message, and the session; none if the thread that had it is gone.
    async fn answer(
        &mut self,
        session: Session,
        message: Message,
    ) -> (Option<Session>, Result<Vec<u8>, End>) {
        let Message::Text(text) = &message else {
            self.server.counts.refuse(Refusal::Json);
            return (
                Some(session),
                self.last(error(Code::SessionError, "messages are texts of JSON", None, None)).await,
            );
        };
        let read = match ClientMessage::read(text) {
            Ok(read) => read,
            Err(bad) => return self.refuse(session, &bad).await,
        };
        match read {
            ClientMessage::Reset(request) => {
                self.work(session, Done::Reset, move |player| player.reset(&request)).await
            }
            ClientMessage::Step(data) => match read_action(self.server.actions(), data) {
                Ok(action) => self.work(session, Done::Step, move |player| player.step(&action)).await,
                Err(BadBody::Fields(faults)) => self.refuse(session, &BadMessage::Fields(faults)).await,
                Err(BadBody::Json(why)) => self.refuse(session, &BadMessage::Json(why)).await,
            },
            ClientMessage::State => {
                let answer = state_reply(session.player.state());
                (Some(session), Ok(answer))
            }
            ClientMessage::Mcp(request) => {
                let answer = self.server.rpc(request).await;
                (Some(session), Ok(mcp_reply(&answer)))
            }
            ClientMessage::Close => (Some(session), Err(End::Closed(CloseCode::Normal))),
        }
    }

    async fn refuse(
        &mut self,
        session: Session,
        bad: &BadMessage,
    ) -> (Option<Session>, Result<Vec<u8>, End>) {
        let (refusal, code) = match bad {
            BadMessage::Json(_) => (Refusal::Json, Code::InvalidJson),
            BadMessage::Type(_) => (Refusal::Type, Code::UnknownType),
            BadMessage::Fields(_) | BadMessage::NoObject => (Refusal::Fields, Code::SessionError),
        };
        self.server.counts.refuse(refusal);
        let answer = match bad {
            BadMessage::Fields(faults) => Ok(faults_reply(faults)),
            BadMessage::NoObject => self.last(error(code, &bad.to_string(), None, None)).await,
            _ => Ok(error(code, &bad.to_string(), None, None)),
        };
        (Some(session), answer)
    }

    /// Sends an answer after which the socket is closed.
    async fn last(&mut self, answer: Vec<u8>) -> Result<Vec<u8>, End> {
        self.send(answer).await?;
        Err(End::Closed(CloseCode::Normal))
    }

    /// Has a player do something, while the socket is read on. If the client goes away meanwhile, the work ends all the same.
    async fn work(
        &mut self,
        session: Session,
        what: Done,
        work: impl FnOnce(&mut Player) -> Result<Vec<u8>, PlayError> + Send + 'static,
    ) -> (Option<Session>, Result<Vec<u8>, End>) {
        let mut working = std::pin::pin!(blocking(move || {
            let mut session = session;
            let answer = work(&mut session.player);
            (session, answer)
        }));
        let mut ended = None;
        let done = loop {
            tokio::select! {
                biased;
                done = &mut working => break done,
                read = self.frames.next(), if self.waiting.is_none() && ended.is_none() => {
                    match self.took(read) {
                        Ok(message) => self.waiting = message,
                        Err(end) => ended = Some(end),
                    }
                }
            }
        };
        self.asked = Instant::now();
        let Some((session, answer)) = done else { return (None, Err(End::Closed(CloseCode::Error))) };
        if answer.is_ok() {
            self.server.count(what);
        }
        let answer = answer.unwrap_or_else(|refused| {
            self.server.counts.refuse(Refusal::Execution);
            error(Code::ExecutionError, &refused.to_string(), None, None)
        });
        (Some(session), ended.map_or(Ok(answer), Err))
    }

    /// Waits for the next message.
    async fn next(&mut self) -> Result<Message, End> {
        if let Some(message) = self.waiting.take() {
            return Ok(message);
        }
        loop {
            if *self.stopping.borrow_and_update() {
                return Err(End::Closed(CloseCode::Away));
            }
            tokio::select! {
                biased;
                read = self.frames.next() => if let Some(message) = self.took(read)? {
                    return Ok(message);
                },
                _ = self.stopping.changed() => {}
                _ = self.pings.tick() => self.look().await?,
            }
        }
    }

    /// Returns the message that was read, if it is one for the server.
    fn took(&mut self, read: Option<Result<Message, Error>>) -> Result<Option<Message>, End> {
        self.is_heard = true;
        match read {
            Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => {
                self.asked = Instant::now();
                Ok(Some(message))
            }
            Some(Ok(Message::Close(_))) | None => Err(End::Gone),
            Some(Ok(_)) => Ok(None),
            Some(Err(Error::Capacity(_))) => {
                self.server.counts.refuse(Refusal::Long);
                Err(End::Closed(CloseCode::Size))
            }
            Some(Err(Error::Utf8(_))) => {
                self.server.counts.refuse(Refusal::Frames);
                Err(End::Closed(CloseCode::Invalid))
            }
            Some(Err(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake))) => Err(End::Gone),
            Some(Err(Error::Protocol(_))) => {
                self.server.counts.refuse(Refusal::Frames);
                Err(End::Closed(CloseCode::Protocol))
            }
            Some(Err(_)) => Err(End::Gone),
        }
    }

    /// Looks whether the client is there and asks for something.
    async fn look(&mut self) -> Result<(), End> {
        if self.asked.elapsed() >= self.server.settings.idle {
            self.server.counts.refuse(Refusal::Idle);
            let why = format!("no message came for {} s", self.server.settings.idle.as_secs());
            self.send(error(Code::SessionError, &why, None, None)).await?;
            return Err(End::Closed(CloseCode::Normal));
        }
        if !self.is_heard {
            self.server.counts.refuse(Refusal::Silent);
            return Err(End::Gone);
        }
        self.is_heard = false;
        self.put(Message::Ping(Bytes::new())).await
    }

    /// Closes the socket, and reads on until the client has done so, too: what it has sent meanwhile would have the system
    /// drop what was sent to it.
    async fn say_goodbye(&mut self, code: CloseCode) {
        let frame = CloseFrame { code, reason: "".into() };
        if self.frames.close(Some(frame)).await.is_ok() {
            while let Some(Ok(_)) = self.frames.next().await {}
        }
    }

    async fn send(&mut self, answer: Vec<u8>) -> Result<(), End> {
        // What is written here is JSON, and so UTF-8.
        let text = String::from_utf8(answer).map_err(|_| End::Closed(CloseCode::Error))?;
        self.put(Message::text(text)).await
    }

    async fn put(&mut self, message: Message) -> Result<(), End> {
        match timeout(TAKEN_WITHIN, self.frames.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Gone),
            Err(_) => {
                self.server.counts.refuse(Refusal::NotTaken);
                Err(End::Gone)
            }
        }
    }
}

/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;
