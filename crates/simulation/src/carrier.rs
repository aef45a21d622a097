//! Carries out the actions of the client library's own driver in virtual time: the trainer's process takes the driver's
//! orders out of it, and puts in what comes of them.

use std::collections::{BTreeMap, VecDeque};
use std::future::{pending, poll_fn};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rollhouse_client::{
    Carrier, Line, LinkAnswer, LinkLost, NoMemory, NoPlace, OfferedMemory, RequestBody, SessionEvent,
    SessionStream,
};
use rollhouse_core::RunId;
use rollhouse_node::FrameRequest;
use rollhouse_wire::{
    Attach, Attached, ColumnBuffer, FrameHeader, FrameKind, Grant, HEADER_BYTES, Incarnation, Notes,
    PoolStatus, PoolStatusRequest, ReplaceSession, SessionReplaced, control,
};

use crate::cast::index;
use crate::message::{Memory, header_of};

/// The carrier of one session of a trainer.
#[derive(Debug, Clone, Default)]
pub(crate) struct VirtualCarrier(pub(crate) Arc<Mutex<Shared>>);

/// The driver's orders, and what its process gives it.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The time of the process's clock.
    pub(crate) now: Duration,
    /// A number that grows with what is received on the connection of its stream; `None` if that is lost.
    pub(crate) received: Option<u64>,
    /// The time at which it wants to be looked at again.
    pub(crate) wake: Option<Duration>,
    pub(crate) orders: Vec<Order>,
    calls: u64,
    replies: BTreeMap<u64, Reply>,
    streams: BTreeMap<u64, Incoming>,
    /// Whether lanes that go on elsewhere begin anew there, under the same numbers.
    pub(crate) forges: bool,
    /// Whether answers to other requests are taken.
    pub(crate) takes_any: bool,
    /// The node on whose machine the trainer is, if its lanes may be stepped by memory.
    pub(crate) machine: Option<usize>,
    /// The place that a session that forges was given.
    pub(crate) replaced: Option<Grant>,
}

/// The answers that have come on a stream, and how it ended.
#[derive(Debug, Default)]
struct Incoming {
    answers: VecDeque<Bytes>,
    lost: Option<LinkLost>,
}

/// Something for the process to do.
#[derive(Debug)]
pub(crate) enum Order {
    Place(u64, Box<ReplaceSession>),
    Status(u64, RunId),
    Attach {
        call: u64,
        node: String,
        attach: Attach,
        memory: bool,
    },
    /// Nobody waits for that call any more.
    Forget(u64),
    Frame {
        stream: u64,
        conn: u64,
        header: FrameHeader,
        request: Arc<FrameRequest>,
    },
    Written {
        incarnation: Incarnation,
        number: u32,
    },
    Taken {
        incarnation: Incarnation,
        asked: u32,
        answered: u32,
    },
    StreamEnd {
        stream: u64,
        conn: u64,
    },
    Count(&'static str),
}

/// What became of a call.
#[derive(Debug)]
pub(crate) enum Reply {
    Placed(Result<SessionReplaced, NoPlace>),
    Status(Option<PoolStatus>),
    Attached(Result<(u64, u64, Attached), SessionEvent>),
    Memory(Result<(u64, u64, Memory), NoMemory>),
}

/// How waiting for something ended.
pub(crate) enum Within<T> {
    Done(T),
    Late,
    /// The session has another place, and does not know what its lanes did.
    Replaced(Grant),
}

impl VirtualCarrier {
    /// Answers a call, if it waits still.
    pub(crate) fn reply(&self, call: u64, reply: Reply) {
        let mut shared = self.0.lock();
        if let Reply::Attached(Ok((stream, ..))) | Reply::Memory(Ok((stream, ..))) = &reply {
            shared.streams.insert(*stream, Incoming::default());
        }
        shared.replies.insert(call, reply);
    }

    pub(crate) fn answered(&self, stream: u64, answer: &Bytes) {
        if let Some(incoming) = self.0.lock().streams.get_mut(&stream) {
            incoming.answers.push_back(answer.clone());
        }
    }

    pub(crate) fn lost(&self, stream: u64, how: LinkLost) {
        if let Some(incoming) = self.0.lock().streams.get_mut(&stream) {
            incoming.lost.get_or_insert(how);
        }
    }

    /// Waits for `work` until that time.
    pub(crate) async fn within<T>(&self, until: Duration, work: impl Future<Output = T>) -> Within<T> {
        let mut work = pin!(work);
        poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Within::Done(done));
            }
            let mut shared = self.0.lock();
            match shared.replaced.take() {
                Some(grant) => Poll::Ready(Within::Replaced(grant)),
                None => shared.sleep(until).map(|()| Within::Late),
            }
        })
        .await
    }

    fn order(&self, order: Order) {
        self.0.lock().orders.push(order);
    }

    /// Makes a call and waits for what becomes of it.
    async fn call<T>(&self, order: impl FnOnce(u64) -> Order, read: impl Fn(Reply) -> Option<T>) -> T {
        let call = {
            let mut shared = self.0.lock();
            shared.calls += 1;
            let call = shared.calls;
            shared.orders.push(order(call));
            call
        };
        let waits = Waits(self, call);
        let reply = poll_fn(|_| self.0.lock().replies.remove(&call).map_or(Poll::Pending, Poll::Ready)).await;
        std::mem::forget(waits);
        read(reply).expect("a call is answered as it was made")
    }
}

impl Shared {
    fn sleep(&mut self, until: Duration) -> Poll<()> {
        if until <= self.now {
            return Poll::Ready(());
        }
        self.wake = Some(self.wake.map_or(until, |wake| wake.min(until)));
        Poll::Pending
    }
}

/// A call that is forgotten if this is dropped.
struct Waits<'a>(&'a VirtualCarrier, u64);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.0.lock().replies.remove(&self.1);
        self.0.order(Order::Forget(self.1));
    }
}

impl Carrier for VirtualCarrier {
    type Stream = Stream;
    type Alarm = ();

    fn now(&self) -> Duration {
        self.0.lock().now
    }

    async fn sleep_until(&self, until: Duration) {
        poll_fn(|_| self.0.lock().sleep(until)).await;
    }

    async fn alarm(&self, (): &mut (), until: Duration) {
        self.sleep_until(until).await;
    }

    async fn attach_stream(
        &self,
        pool: RunId,
        grant: &Grant,
        _max_columns: usize,
    ) -> Result<(Stream, Attached), SessionEvent> {
        let incarnation = grant.incarnation;
        let order = attaching(pool, grant, false);
        let read = |reply| if let Reply::Attached(attached) = reply { Some(attached) } else { None };
        let (stream, conn, attached) = self.call(order, read).await?;
        let open = Open { carrier: self.clone(), stream, conn, incarnation, posted: None };
        Ok((Stream { open: Some(open), ..Stream::default() }, attached))
    }

    async fn attach_memory(&self, pool: RunId, grant: &Grant) -> Result<OfferedMemory, NoMemory> {
        if self.0.lock().machine != Some(index(&grant.node)) {
            return Err(NoMemory::NoSocket);
        }
        let read = |reply| if let Reply::Memory(memory) = reply { Some(memory) } else { None };
        let (stream, conn, memory) = self.call(attaching(pool, grant, true), read).await?;
        let incarnation = grant.incarnation;
        let open = Open { carrier: self.clone(), stream, conn, incarnation, posted: None };
        let file = |file: &OwnedFd| file.try_clone().expect("a descriptor is free");
        let files = memory.files.each_ref().map(file);
        let is_open = Box::new(move || open.answer(0).is_pending());
        Ok(OfferedMemory { attached: memory.attached, files, is_open })
    }

    async fn replace(&self, request: ReplaceSession) -> Result<SessionReplaced, NoPlace> {
        let read = |reply| if let Reply::Placed(placed) = reply { Some(placed) } else { None };
        let placed = self.call(|call| Order::Place(call, Box::new(request)), read).await?;
        if !self.0.lock().forges {
            return Ok(placed);
        }
        self.0.lock().replaced = Some(placed.grant);
        pending().await
    }

    async fn pool_status(&self, request: PoolStatusRequest) -> Option<PoolStatus> {
        let read = |reply| if let Reply::Status(status) = reply { Some(status) } else { None };
        self.call(|call| Order::Status(call, request.pool), read).await
    }
}

/// Returns the order to attach a session.
fn attaching(pool: RunId, grant: &Grant, memory: bool) -> impl FnOnce(u64) -> Order + use<> {
    let (&Grant { index, incarnation, secret, .. }, node) = (grant, grant.node.clone());
    let attach = Attach { pool, index, incarnation, secret, log: true };
    move |call| Order::Attach { call, node, attach, memory }
}

/// The stream by which a session is attached.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    open: Option<Open>,
    columns: ColumnBuffer,
    sidecar: Vec<u8>,
}

/// A stream that has not ended here; the node is told when this is dropped.
#[derive(Debug)]
struct Open {
    carrier: VirtualCarrier,
    stream: u64,
    conn: u64,
    incarnation: Incarnation,
    posted: Option<u32>,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut shared = self.carrier.0.lock();
        shared.streams.remove(&self.stream);
        shared.orders.push(Order::StreamEnd { stream: self.stream, conn: self.conn });
    }
}

impl Open {
    fn frame(&self, (kind, number): (FrameKind, u32), columns: &[u8], sidecar: &[u8]) {
        let mut buffer = ColumnBuffer::default();
        buffer.resize(columns.len());
        buffer.bytes_mut().copy_from_slice(columns);
        let request = Arc::new(FrameRequest { columns: buffer, sidecar: sidecar.to_vec() });
        let (columns, sidecar) = (columns.len() as u32, sidecar.len() as u32);
        let header = FrameHeader { kind, flags: 0, number, columns, sidecar };
        self.carrier.order(Order::Frame { stream: self.stream, conn: self.conn, header, request });
    }

    /// Returns the answer to a request, if it has come; those that nobody waits for are skipped.
    fn answer(&self, number: u32) -> Poll<Result<Bytes, LinkLost>> {
        let mut shared = self.carrier.0.lock();
        let takes_any = shared.takes_any;
        let Some(incoming) = shared.streams.get_mut(&self.stream) else {
            return Poll::Ready(Err(LinkLost::Ended));
        };
        let mut skipped = 0;
        let found = loop {
            match incoming.answers.pop_front() {
                Some(answer) if header_of(&answer).number == number || takes_any => break Some(answer),
                Some(_) => skipped += 1,
                None => break None,
            }
        };
        let lost = incoming.lost;
        (0..skipped).for_each(|_| shared.orders.push(Order::Count("answer nobody waits for")));
        match (found, lost) {
            (Some(answer), _) => Poll::Ready(Ok(answer)),
            (None, Some(lost)) => Poll::Ready(Err(lost)),
            (None, None) => Poll::Pending,
        }
    }
}

impl SessionStream for Stream {
    type Line = Heard;

    fn is_attached(&self) -> bool {
        self.open.is_some()
    }

    fn line(&self) -> Option<Heard> {
        self.open.as_ref().map(|open| Heard(open.carrier.clone()))
    }

    fn is_free(&self, number: u32) -> Result<bool, LinkLost> {
        self.open.as_ref().map_or(Err(LinkLost::Ended), |open| Ok(open.posted != Some(number)))
    }

    fn post(&mut self, number: u32, body: &RequestBody) {
        let Some(open) = &mut self.open else { return };
        open.posted = Some(number);
        open.carrier.order(Order::Written { incarnation: open.incarnation, number });
        open.frame((body.kind, number), &body.columns, &body.sidecar);
    }

    fn hasten(&mut self) {
        if let Some(open) = &self.open
            && let Some(number) = open.posted
        {
            open.frame((FrameKind::Hasten, number), &[], &[]);
        }
    }

    async fn answer(&mut self, number: u32) -> Result<LinkAnswer, LinkLost> {
        let Some(open) = &self.open else { return Err(LinkLost::Ended) };
        let answer = match poll_fn(|_| open.answer(number)).await {
            Ok(answer) => answer,
            Err(lost) => {
                self.open = None;
                return Err(lost);
            }
        };
        let header = header_of(&answer);
        let (columns, sidecar) = answer[HEADER_BYTES..].split_at(header.columns as usize);
        if header.kind == FrameKind::Refused {
            open.carrier.order(Order::Count("step refused"));
            return Ok(LinkAnswer::Refused(control::decode(&answer[HEADER_BYTES..]).expect("a refusal")));
        }
        let incarnation = open.incarnation;
        open.carrier.order(Order::Taken { incarnation, asked: number, answered: header.number });
        self.columns.resize(columns.len());
        self.columns.bytes_mut().copy_from_slice(columns);
        self.sidecar = sidecar.to_vec();
        if open.carrier.0.lock().forges && header.kind == FrameKind::Batch {
            // Who means harm moves on without need.
            let notes = if sidecar.is_empty() {
                Notes::default()
            } else {
                control::decode(sidecar).expect("notes of ours")
            };
            let mut bytes = Vec::new();
            control::encode(&Notes { leaving: true, ..notes }, &mut bytes).expect("few notes");
            self.sidecar = bytes.split_off(size_of::<u32>());
        }
        Ok(LinkAnswer::Done(header))
    }

    fn columns(&self) -> Option<&ColumnBuffer> {
        self.open.as_ref().map(|_| &self.columns)
    }

    fn sidecar(&self) -> &[u8] {
        if self.open.is_some() { &self.sidecar } else { &[] }
    }

    fn detach(&mut self) {
        self.open = None;
    }

    fn distrust(&mut self, what: &str) {
        panic!("a node of ours is distrusted: {what}");
    }
}

/// The connection of a stream.
pub(crate) struct Heard(VirtualCarrier);

impl Line for Heard {
    fn received(&self) -> Option<u64> {
        self.0.0.lock().received
    }

    fn doubt(&self) {}
}
