//! The attach socket: who is admitted, what is handed over, and how either side learns that the other is gone.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests outside of test functions")]

use std::fs::File;
use std::io::{IoSlice, Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as BlockingListener;
use std::path::{Path, PathBuf};

use rollhouse_core::RunId;
use rollhouse_wire::limits::{MAX_ATTACH_MESSAGE_BYTES, MAX_ATTACH_PATH_BYTES};
use rollhouse_wire::{
    Answer, AttachBindError, AttachCallError, AttachListener, AttachMemory, AttachSocket, Incarnation,
    LocalArrival, MemoryAttached, OwnerSocket, Refusal, RefusalCode, Request, Secret, StatusRequest, control,
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// A private folder, gone when dropped.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn socket(&self) -> PathBuf {
        self.path().join("attach.sock")
    }
}

const ATTACHED: MemoryAttached =
    MemoryAttached { lanes: 3, last: 7, generation: 2, logs: true, refused: None, paced: false };

fn asked() -> AttachMemory {
    AttachMemory {
        version: 1,
        pool: RunId::from_u128(5),
        index: 1,
        incarnation: Incarnation { term: 1, counter: 2 },
        secret: Secret::from_bytes([9; 16]),
        log: true,
    }
}

async fn admitted(listener: &AttachListener) -> AttachSocket {
    match listener.accept().await.unwrap() {
        LocalArrival::Admitted(socket) => socket,
        LocalArrival::TurnedAway { uid } => panic!("user {uid} is our own"),
    }
}

fn file(folder: &Folder, name: &str, text: &str) -> File {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    File::open(path).unwrap()
}

fn text_of(descriptor: std::os::fd::OwnedFd) -> String {
    let mut file = File::from(descriptor);
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

#[tokio::test]
async fn an_owner_gets_both_descriptors_in_order_and_either_side_sees_the_other_go() {
    let folder = Folder::new();
    let listener = AttachListener::bind(&folder.socket(), &[]).unwrap();
    for node_goes_first in [true, false] {
        let (first, second) = (file(&folder, "a", "outputs"), file(&folder, "b", "inputs"));
        let serve = async {
            let mut socket = admitted(&listener).await;
            assert_eq!(socket.request().await.unwrap(), asked());
            socket.accept(ATTACHED, [first.as_fd(), second.as_fd()]).await.unwrap();
            socket
        };
        let path = folder.socket();
        let (mut socket, attached) = tokio::join!(serve, OwnerSocket::attach(&path, false, asked(), None));
        let (owner, attached, [outputs, inputs]) = attached.unwrap();
        assert_eq!(attached, ATTACHED);
        assert_eq!((text_of(outputs).as_str(), text_of(inputs).as_str()), ("outputs", "inputs"));
        assert!(owner.is_open());
        if node_goes_first {
            drop(socket);
            assert!(!owner.is_open());
        } else {
            drop(owner);
            socket.gone().await;
        }
    }
}

#[tokio::test]
async fn a_refusal_is_heard_by_name() {
    let folder = Folder::new();
    let listener = AttachListener::bind(&folder.socket(), &[]).unwrap();
    let refusal = Refusal::new(RefusalCode::Stale, "placement 1.2 is not the current one");
    let serve = async {
        let mut socket = admitted(&listener).await;
        socket.request().await.unwrap();
        socket.refuse(refusal.clone()).await;
    };
    let path = folder.socket();
    let ((), attached) = tokio::join!(serve, OwnerSocket::attach(&path, false, asked(), None));
    assert!(matches!(attached, Err(AttachCallError::Refused(heard)) if heard == refusal));
}

/// What a node says to bytes, and whether it drops the connection without a word.
async fn answer_to(bytes: &[u8]) -> Option<Refusal> {
    let folder = Folder::new();
    let listener = AttachListener::bind(&folder.socket(), &[]).unwrap();
    let serve = async {
        let mut socket = admitted(&listener).await;
        let refusal = socket.request().await.unwrap_err();
        if let Some(refusal) = refusal {
            socket.refuse(refusal).await;
        }
    };
    let path = folder.socket();
    let ask = async {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        // Bytes that were not read make the node's end look like an error.
        let _read = stream.read_to_end(&mut answer).await;
        answer
    };
    let ((), answer) = tokio::join!(serve, ask);
    let message = answer.get(4..)?;
    control::decode::<Answer<MemoryAttached>>(message).unwrap().into_result().err()
}

#[tokio::test]
async fn what_is_no_attachment_is_refused_or_dropped() {
    let mut other = Vec::new();
    control::encode(&Request::Status(StatusRequest {}), &mut other).unwrap();
    let refusal = answer_to(&other).await.unwrap();
    assert_eq!(refusal.code, RefusalCode::Unsupported);
    assert_eq!(refusal.message, "the attach socket does not answer status");

    let mut newer = Vec::new();
    control::encode(&Request::AttachMemory(AttachMemory { version: 9, ..asked() }), &mut newer).unwrap();
    let refusal = answer_to(&newer).await.unwrap();
    assert_eq!(
        (refusal.code, refusal.message.as_str()),
        (RefusalCode::Version, "version 9 is not from 1 to 1")
    );

    assert_eq!(answer_to(&[1, 0, 0, 0, 0xc1]).await.unwrap().code, RefusalCode::BadRequest);
    let too_long = (MAX_ATTACH_MESSAGE_BYTES as u32 + 1).to_le_bytes();
    assert_eq!(answer_to(&too_long).await, None);
    assert_eq!(answer_to(&[1, 0]).await, None);
}

/// A server that answers with that many descriptors.
fn answer_with(listener: &BlockingListener, descriptors: &[File]) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut word = [0; 4];
    stream.read_exact(&mut word).unwrap();
    let mut request = vec![0; u32::from_le_bytes(word) as usize];
    stream.read_exact(&mut request).unwrap();
    let mut bytes = Vec::new();
    control::encode(&Answer::Ok(ATTACHED), &mut bytes).unwrap();
    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() {
        assert!(beside.push(SendAncillaryMessage::ScmRights(&borrowed)));
    }
    let sent = sendmsg(&stream, &[IoSlice::new(&bytes)], &mut beside, SendFlags::empty()).unwrap();
    stream.write_all(&bytes[sent..]).unwrap();
}

#[test]
fn another_number_of_descriptors_than_two_is_refused() {
    let folder = Folder::new();
    let path = folder.socket();
    let listener = BlockingListener::bind(&path).unwrap();
    for count in [0, 1, 3, 4, 16] {
        let given: Vec<File> = (0..count).map(|_| file(&folder, "a", "")).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| answer_with(&listener, &given));
            let attached = runtime.block_on(OwnerSocket::attach(&path, false, asked(), None));
            let Err(AttachCallError::Descriptors { given: seen }) = attached else {
                panic!("{count} descriptors were taken");
            };
            assert!(seen != 2 && seen <= count.max(3) + 1, "{seen} of {count}");
        });
    }
}

#[tokio::test]
async fn a_socket_file_that_nobody_answers_at_is_replaced_and_one_in_use_is_not() {
    let folder = Folder::new();
    let path = folder.socket();
    drop(BlockingListener::bind(&path).unwrap());
    let listener = AttachListener::bind(&path, &[]).unwrap();
    assert!(matches!(AttachListener::bind(&path, &[]), Err(AttachBindError::InUse { .. })));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    drop(listener);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_file_that_has_taken_its_place_is_not_removed() {
    let folder = Folder::new();
    let path = folder.socket();
    let listener = AttachListener::bind(&path, &[12_345]).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "somebody else's").unwrap();
    drop(listener);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "somebody else's");
    assert!(matches!(AttachListener::bind(&path, &[]), Err(AttachBindError::NoSocket { .. })));
}

#[tokio::test]
async fn paths_that_are_too_long_are_refused_by_name() {
    let folder = Folder::new();
    let long = folder.path().join("s".repeat(MAX_ATTACH_PATH_BYTES));
    let error = AttachListener::bind(&long, &[]).unwrap_err().to_string();
    assert!(error.ends_with(&format!("{} bytes, it is from 1 to 107", long.as_os_str().len())), "{error}");
    assert!(matches!(AttachListener::bind(Path::new(""), &[]), Err(AttachBindError::Length { .. })));
}

/// Symptom: a member of a folder's group put a socket of its own in the place of a node's, and trainers attached there.
/// Cause: only writing by everybody was looked for. Fix: nobody but the node's user and root may write to the folder or
/// own it, unless it is sticky.
#[tokio::test]
async fn folders_in_which_others_could_replace_the_socket_are_refused_by_name() {
    let folder = Folder::new();
    for mode in [0o777, 0o770, 0o775, 0o702] {
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).unwrap();
        let error = AttachListener::bind(&folder.socket(), &[]).unwrap_err().to_string();
        assert!(error.ends_with(&format!("(mode {mode:04o})")), "{error}");
    }
    for mode in [0o1777, 0o1770, 0o755, 0o700] {
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).unwrap();
        drop(AttachListener::bind(&folder.socket(), &[]).unwrap());
    }
    // Only root can give a folder away.
    if std::os::unix::fs::chown(folder.path(), Some(12_345), None).is_ok() {
        let error = AttachListener::bind(&folder.socket(), &[]).unwrap_err().to_string();
        assert!(error.ends_with("is user 12345's"), "{error}");
    }
}

/// Symptom: nodes in pods refused to start with their socket in a volume that the pod's containers share. Cause: everybody may
/// write to such a volume, and only a folder that was there was taken. Fix: a folder in it is made.
#[tokio::test]
async fn a_folder_that_is_not_there_is_made_for_the_nodes_user_alone() {
    let folder = Folder::new();
    // What Kubernetes lets containers of a pod share, and a folder in it.
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o2777)).unwrap();
    let made = folder.path().join("node");
    drop(AttachListener::bind(&made.join("attach.sock"), &[]).unwrap());
    let mode = std::fs::metadata(&made).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "{mode:o}");
    assert!(matches!(
        AttachListener::bind(&folder.path().join("not/there/attach.sock"), &[]),
        Err(AttachBindError::Io { .. })
    ));
}
