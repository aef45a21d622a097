//! The socket at which programs that others have started become workers.
//!
//! ```text
//! program                                    host
//!   connect ───────────────────────────────▶ of the same user? room among those that wait?
//!   JOIN: place, key ──────────────────────▶ within its time? the key? a place that is free?
//!                 ◀───────────────── HELLO   as to a worker that the host has started
//!                 ◀──────────────── REFUSED  why; the connection is closed
//! ```
//!
//! The socket lies in a folder that nobody else can enter, beside a file with the key. Both ends check that: each opens
//! what the other sends as its own.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rollhouse_core::open_regular;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use tracing::warn;

use crate::message::{self, Join, Tag};

/// Maximum number of programs that have connected and have no place yet.
pub const MAX_JOINING: usize = 16;

/// Time in which a program that has connected sends its first message, and for which it waits until a place is free.
pub const JOIN_WITHIN: Duration = Duration::from_secs(10);

/// Reason for which a program does not become a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JoinRefusal {
    /// It belongs to another user than the host.
    #[error("it belongs to another user than the host")]
    OtherUser = 1,
    /// Its first message is none of a worker.
    #[error("its first message is none of a worker's")]
    Nonsense,
    /// It does not show the key that lies beside the socket.
    #[error("its key is not the one that lies beside the socket")]
    WrongKey,
    /// There is no such place, or it is given up because it was lost too often.
    #[error("there is no such place, or it was lost too often")]
    NoPlace,
    /// Another program has the place, or all places.
    #[error("another program has its place")]
    Taken,
    /// The process is a worker of this host already.
    #[error("its process is a worker of this host already")]
    Twice,
    /// It has sent nothing, or no place has become free, within [`JOIN_WITHIN`].
    #[error("it sent nothing, or no place became free, within {JOIN_WITHIN:?}")]
    Late,
    /// There are [`MAX_JOINING`] other programs that have no place yet.
    #[error("{MAX_JOINING} other programs wait for places")]
    TooMany,
}

/// A socket at which workers connect. Dropping it removes its files.
#[derive(Debug)]
pub struct WorkerSocket {
    folder: PathBuf,
    listener: OwnedFd,
    /// Epoll descriptor of the listener and of those that have connected and sent nothing.
    epoll: OwnedFd,
    key: Key,
    joining: Vec<Joining>,
    /// Process that has bound it: a forked child leaves the files alone.
    owner: u32,
}

type Key = [u8; message::KEY_BYTES];

/// A program that has connected and has no place yet.
#[derive(Debug)]
struct Joining {
    socket: OwnedFd,
    process: u32,
    since: Duration,
    /// Place that it has asked for, once it has shown the key; the inner `None` is any.
    wants: Option<Option<usize>>,
}

/// A program that has become a worker.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) socket: OwnedFd,
    /// Its process id, 0 if it cannot be seen from here.
    pub(crate) process: u32,
    /// Descriptor that is readable when it has ended, where it can be seen.
    pub(crate) pidfd: Option<OwnedFd>,
}

/// State of the place of a worker, for programs that want one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Free,
    /// It may become free soon.
    Coming,
    Taken,
    GivenUp,
}

impl WorkerSocket {
    /// Binds a socket in `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// The operating system's; `PermissionDenied` for a folder that belongs to another user or that others may enter;
    /// `AddrInUse` if another process listens there.
    pub fn bind(folder: &Path) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => check_private(folder)?,
        }
        let path = folder.join(SOCKET);
        let address = SocketAddrUnix::new(&path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let seqpacket = || socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        if connect(seqpacket()?, &address).is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("another process listens at {}", path.display()),
            ));
        }
        for left in [&path, &folder.join(KEY)] {
            match fs::remove_file(left) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let key = draw_key()?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join(KEY))?;
        file.write_all(&key)?;
        let listener = seqpacket()?;
        bind(&listener, &address)?;
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
        listen(&listener, MAX_JOINING as i32)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(0), EventFlags::IN)?;
        let (folder, owner) = (folder.to_owned(), std::process::id());
        Ok(Self { folder, listener, epoll, key, joining: Vec::new(), owner })
    }

    /// Returns the folder that it lies in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the descriptor that is readable when somebody connects or sends something.
    pub(crate) const fn descriptor(&self) -> &OwnedFd {
        &self.epoll
    }

    /// Returns the time at which the next program is refused for being late.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.joining.iter().map(|joining| joining.since + JOIN_WITHIN).min()
    }

    /// Takes who has connected, and what they have sent. Gives those that may have one a place: `place` says how a place is,
    /// and which process has it. Returns them with their places. Does not block.
    pub(crate) fn admit(&mut self, now: Duration, places: &[(Place, Option<u32>)]) -> Vec<(usize, Guest)> {
        self.accept(now);
        let (mut places, mut guests) = (places.to_vec(), Vec::new());
        for mut joining in std::mem::take(&mut self.joining) {
            let was_silent = joining.wants.is_none();
            let judged = match joining.wants {
                Some(wants) => Ok(Some(wants)),
                None => self.join_of(&joining),
            };
            let judged = judged.and_then(|wants| {
                joining.wants = wants;
                wants.map_or(Ok(None), |wants| place_for(wants, joining.process, &places))
            });
            let late = now >= joining.since + JOIN_WITHIN;
            if was_silent && (joining.wants.is_some() || judged.is_err() || late) {
                // Taken out before it may be closed. One that was not added needs no more.
                let _ = epoll::delete(&self.epoll, &joining.socket);
            }
            match judged {
                Ok(Some(place)) => {
                    places[place] = (Place::Taken, Some(joining.process));
                    guests.push((place, guest(joining.socket, joining.process)));
                }
                Ok(None) if !late => self.joining.push(joining),
                Ok(None) => refuse(&joining.socket, joining.process, JoinRefusal::Late),
                Err(why) => refuse(&joining.socket, joining.process, why),
            }
        }
        guests
    }

    /// Takes those that have connected, as many as may wait.
    fn accept(&mut self, now: Duration) {
        for _ in 0..2 * MAX_JOINING {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let Ok(socket) = accept_with(&self.listener, flags) else { return };
            let Ok(peer) = socket_peercred(&socket) else { continue };
            let process = Pid::as_raw(Some(peer.pid)).unsigned_abs();
            if peer.uid != geteuid() {
                refuse(&socket, process, JoinRefusal::OtherUser);
            } else if self.joining.len() == MAX_JOINING {
                refuse(&socket, process, JoinRefusal::TooMany);
            } else if epoll::add(&self.epoll, &socket, EventData::new_u64(0), EventFlags::IN).is_ok() {
                self.joining.push(Joining { socket, process, since: now, wants: None });
            }
        }
    }

    /// Returns the place that a program asks for in its first message; `None` if that is not there yet.
    fn join_of(&self, joining: &Joining) -> Result<Option<Option<usize>>, JoinRefusal> {
        let Ok(join) = message::receive_join(&joining.socket) else { return Err(JoinRefusal::Nonsense) };
        let Some(Join { place, key }) = join else { return Ok(None) };
        // However much of it is right, it takes the same time.
        if key.iter().zip(&self.key).fold(0, |differs, (a, b)| differs | a ^ b) != 0 {
            return Err(JoinRefusal::WrongKey);
        }
        match place {
            message::ANY_PLACE => Ok(Some(None)),
            place => usize::try_from(place).map(|place| Some(Some(place))).map_err(|_| JoinRefusal::NoPlace),
        }
    }
}

impl Drop for WorkerSocket {
    fn drop(&mut self) {
        if self.owner == std::process::id() {
            // Files that stay behind let nobody in, and the next one that is bound there removes them.
            let _removed = [SOCKET, KEY].map(|name| fs::remove_file(self.folder.join(name)));
        }
    }
}

impl JoinRefusal {
    /// Returns the refusal of that number.
    pub(crate) fn of_number(number: u64) -> Option<Self> {
        use JoinRefusal as R;
        let all =
            [R::OtherUser, R::Nonsense, R::WrongKey, R::NoPlace, R::Taken, R::Twice, R::Late, R::TooMany];
        all.into_iter().find(|&refusal| refusal as u64 == number)
    }
}

/// Returns the place that a process gets which wants one, or any; `None` while it has to wait.
fn place_for(
    wants: Option<usize>,
    process: u32,
    places: &[(Place, Option<u32>)],
) -> Result<Option<usize>, JoinRefusal> {
    if process != 0 && places.iter().any(|&(_, has)| has == Some(process)) {
        return Err(JoinRefusal::Twice);
    }
    let is = |wanted: Place| places.iter().position(|&(place, _)| place == wanted);
    let place = match wants {
        Some(wanted) => places.get(wanted).map(|&(place, _)| (place, wanted)),
        None => [Place::Free, Place::Coming, Place::Taken, Place::GivenUp]
            .into_iter()
            .find_map(|place| Some((place, is(place)?))),
    };
    match place {
        Some((Place::Free, place)) => Ok(Some(place)),
        Some((Place::Coming, _)) => Ok(None),
        Some((Place::Taken, _)) => Err(JoinRefusal::Taken),
        Some((Place::GivenUp, _)) | None => Err(JoinRefusal::NoPlace),
    }
}

/// Makes a worker of a program. If its process has ended meanwhile, its connection says so.
fn guest(socket: OwnedFd, process: u32) -> Guest {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    Guest { socket, process, pidfd: pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) }
}

fn refuse(socket: &OwnedFd, process: u32, why: JoinRefusal) {
    warn!(process, %why, "a program does not become a worker");
    // Whether it is read is the program's affair.
    let _sent = message::send(socket, Tag::Refused, why as u64, &[]);
}

/// Connects to the socket in `folder` and asks for a place, or any. Returns the connection, on which the answer comes.
pub(crate) fn join(folder: &Path, place: Option<usize>) -> io::Result<OwnedFd> {
    check_private(folder)?;
    let mut key = [0; message::KEY_BYTES];
    open_regular(folder.join(KEY))?.read_exact(&mut key)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(folder.join(SOCKET))?)?;
    if socket_peercred(&socket)?.uid != geteuid() {
        let message = format!("the socket in {} is another user's", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    let place = place.map_or(message::ANY_PLACE, |place| place as u64);
    message::send_join(&socket, Join { place, key })?;
    Ok(socket)
}

/// Checks that a folder is this user's alone: who may write there could put another socket in the place of this one.
fn check_private(folder: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    if found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let message =
        format!("{} is no folder of this user's that nobody else can enter (mode 0700)", folder.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

fn draw_key() -> io::Result<Key> {
    let mut key = [0; message::KEY_BYTES];
    fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
    Ok(key)
}

const SOCKET: &str = "workers.sock";
const KEY: &str = "key";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_the_place_that_it_wants_or_any_and_no_process_gets_two() {
        use Place::{Coming, Free, GivenUp, Taken};
        let places = [(Taken, Some(7)), (Coming, None), (Free, None), (GivenUp, None)];
        let of = |wants, process| place_for(wants, process, &places);
        assert_eq!(of(None, 8), Ok(Some(2)));
        assert_eq!((of(Some(2), 8), of(Some(1), 8)), (Ok(Some(2)), Ok(None)));
        assert_eq!(of(Some(0), 8), Err(JoinRefusal::Taken));
        assert_eq!([3, 4].map(|place| of(Some(place), 8)), [Err(JoinRefusal::NoPlace); 2]);
        assert_eq!([None, Some(0), Some(2)].map(|wants| of(wants, 7)), [Err(JoinRefusal::Twice); 3]);
        // Processes that cannot be seen from here are not told apart.
        assert_eq!(place_for(None, 0, &[(Taken, Some(0)), (Free, None)]), Ok(Some(1)));
        assert_eq!(place_for(None, 8, &places[..1]), Err(JoinRefusal::Taken));
        assert_eq!(place_for(None, 8, &places[..2]), Ok(None));
    }

    #[test]
    fn refusals_are_told_by_number() {
        for number in 0..20 {
            let refusal = JoinRefusal::of_number(number);
            assert_eq!(refusal.map(|refusal| refusal as u64), Some(number).filter(|n| (1..=8).contains(n)));
        }
    }

    #[test]
    fn a_folder_that_others_can_enter_is_refused_and_a_socket_has_one_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("workers");
        let socket = WorkerSocket::bind(&path).unwrap();
        for (name, mode) in [("", 0o700), (SOCKET, 0o600), (KEY, 0o600)] {
            assert_eq!(fs::metadata(path.join(name)).unwrap().mode() & 0o777, mode, "{name}");
        }
        assert_eq!(WorkerSocket::bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        assert!(!path.join(SOCKET).exists() && !path.join(KEY).exists());
        fs::set_permissions(&path, PermissionsExt::from_mode(0o750)).unwrap();
        assert_eq!(WorkerSocket::bind(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(join(&path, None).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    /// Connects to a socket and sends some bytes, if there are any.
    fn connected(socket: &WorkerSocket, bytes: &[u8]) -> OwnedFd {
        let address = SocketAddrUnix::new(socket.folder().join(SOCKET)).unwrap();
        let connected = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let connected = connected.unwrap();
        connect(&connected, &address).unwrap();
        if !bytes.is_empty() {
            rustix::net::send(&connected, bytes, rustix::net::SendFlags::empty()).unwrap();
        }
        connected
    }

    /// Returns the refusal that a program was sent; `None` if it was sent nothing.
    fn refusal_of(program: &OwnedFd) -> Option<JoinRefusal> {
        match message::receive(program, false).unwrap() {
            message::Received::Message(message) if message.tag == Tag::Refused => {
                JoinRefusal::of_number(message.number)
            }
            message::Received::Nothing => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rubbish_a_wrong_key_and_whoever_comes_late_or_is_one_too_many_get_a_typed_refusal() {
        let folder = tempfile::tempdir().unwrap();
        let mut socket = WorkerSocket::bind(&folder.path().join("workers")).unwrap();
        let (free, now) = ([(Place::Free, None)], Duration::from_secs(5));
        let hello = |key: Key| {
            let head = [Tag::Join as u64, message::ANY_PLACE].map(u64::to_ne_bytes).concat();
            [&head[..], &key].concat()
        };
        let key = socket.key;
        let (short, long) = (hello(key)[..40].to_vec(), [hello(key), vec![0; 60_000]].concat());
        let mut wrong = key;
        wrong[31] ^= 1;
        for (bytes, refusal) in [
            (&b"GET / HTTP/1.1"[..], JoinRefusal::Nonsense),
            (&short, JoinRefusal::Nonsense),
            (&long, JoinRefusal::Nonsense),
            (&hello(wrong), JoinRefusal::WrongKey),
        ] {
            let program = connected(&socket, bytes);
            assert!(socket.admit(now, &free).is_empty());
            assert_eq!(refusal_of(&program), Some(refusal));
        }
        // One that hangs up takes no place.
        drop(connected(&socket, &[]));
        assert!(socket.admit(now, &free).is_empty() && socket.next_due().is_none());
        let silent: Vec<_> = (0..MAX_JOINING).map(|_| connected(&socket, &[])).collect();
        assert!(socket.admit(now, &free).is_empty());
        let one_more = connected(&socket, &hello(key));
        assert_eq!(socket.next_due(), Some(now + JOIN_WITHIN));
        assert!(socket.admit(now, &free).is_empty());
        assert_eq!(refusal_of(&one_more), Some(JoinRefusal::TooMany));
        assert!(silent.iter().all(|program| refusal_of(program).is_none()));
        assert!(socket.admit(now + JOIN_WITHIN, &free).is_empty());
        assert!(silent.iter().all(|program| refusal_of(program) == Some(JoinRefusal::Late)));
        // They kept nobody out for longer.
        let program = connected(&socket, &hello(key));
        let coming = [(Place::Coming, None)];
        assert!(socket.admit(now, &coming).is_empty() && refusal_of(&program).is_none());
        let guests = socket.admit(now, &free);
        assert!(matches!(&guests[..], [(0, guest)] if guest.process == std::process::id()));
        assert!(guests[0].1.pidfd.is_some() && socket.next_due().is_none());
    }
}
