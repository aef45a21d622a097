//! Texts that a node and a recording choose who mean harm, in all that commands and screens show of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use rollhouse_core::{
    ColumnData, ColumnRef, EnvSpec, GameResult, LaneSet, Options, Outcome, RecordRule, RunId, SeedSchedule,
};
use rollhouse_env::Registry;
use rollhouse_replay::{Beside, End, PolicyInfo, RealDisk, Recorder, RecorderConfig, Row, RunHeader};
use rollhouse_tests::{Cluster, Folder, json_lines, succeed};
use rollhouse_wire::{
    AdmitWatcher, Arrival, CertificateFiles, Changes, Dialer, EndCause, EnvelopeReader, EnvelopeWriter,
    Expected, Heartbeat, Identity, Incarnation, LaneFrame, LanePosition, Listener, LookAnswer, LookParams,
    NodeLoad, OpenSession, Peer, PlaysReport, Refusal, RefusalCode, Register, Registered, Request,
    SessionCounts, SessionEnd, SessionId, SessionOpened, SessionReport, Settings, Takes, Trust, Unfit,
    UnfitReason, WatchOpened, WatcherAdmitted, new_pool_id,
};
use tokio::sync::oneshot;

use crate::escapes::{check, is_raw};
use crate::terminal::Viewer;

/// A node with a certificate, whose every text is hostile. It opens what it is asked for, shows it to watchers, and plays
/// nothing.
struct HostileNode {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

type Open = Arc<Mutex<Vec<OpenSession>>>;

impl HostileNode {
    /// Returns when it has joined.
    fn join(cluster: &Cluster, name: &str, coordinator: &str) -> Self {
        let tls = cluster.path(name).join("tls");
        let files = CertificateFiles { certificate: tls.join("cert.pem"), key: tls.join("key.pem") };
        let trust = Trust::File(cluster.path("ca").join("ca.pem"));
        let identity = Identity::load(trust, Some(files)).unwrap();
        let (coordinator, name) = (coordinator.to_owned(), name.to_owned());
        let ((joined, has_joined), (end, ended)) = (sync_channel(1), oneshot::channel::<()>());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::spawn(take_part(identity, name, coordinator, joined));
                // Its tasks end with the runtime.
                let _dropped = ended.await;
            });
        });
        has_joined.recv().unwrap();
        Self { end: Some(end), thread: Some(thread) }
    }
}

impl Drop for HostileNode {
    fn drop(&mut self) {
        drop(self.end.take());
        self.thread.take().map(JoinHandle::join);
    }
}

/// Joins, says so, and reports until it is dropped.
async fn take_part(identity: Arc<Identity>, name: String, coordinator: String, joined: SyncSender<()>) {
    let (open, at) = (Open::default(), SocketAddr::from(([127, 0, 0, 1], 0)));
    let serves = Box::new(|_: &_, stranger: &_| Ok(Peer::anonymous(stranger)));
    let listener = Listener::bind(at, Arc::clone(&identity), Settings::default(), HOSTILE, serves).unwrap();
    let address = listener.effective().address.to_string();
    tokio::spawn(serve(listener, Arc::clone(&open)));
    let dialer = Dialer::new(identity, Settings::default(), HOSTILE);
    let connection = dialer.dial(&coordinator, &Expected::COORDINATOR, None).await.unwrap();
    let _in: Registered = connection.call(registration(&name, address), PATIENCE).await.unwrap();
    tokio::spawn(answer(connection.requests(), Arc::clone(&open)));
    joined.send(()).unwrap();
    for number in 1.. {
        let beat = heartbeat(number, &open.lock().unwrap());
        let Ok(_) = connection.call(beat, PATIENCE).await else { return };
        tokio::time::sleep(BEAT).await;
    }
}

fn registration(name: &str, address: String) -> Register {
    Register {
        node: name.to_owned(),
        boot: 1,
        address,
        attach: Some(HOSTILE.to_owned()),
        capacity: 64,
        threads: 1,
        labels: BTreeMap::from([(HOSTILE.to_owned(), HOSTILE.to_owned())]),
        envs: BTreeMap::from([(HOSTILE.to_owned(), 7), ("CartPole-v1".to_owned(), spec().dynamics_hash)]),
        kinds: vec![format!("{HOSTILE}:*")],
        budget: None,
        term: 0,
        seen: None,
        program: HOSTILE.to_owned(),
    }
}

fn heartbeat(number: u64, open: &[OpenSession]) -> Heartbeat {
    let report = |open: &OpenSession| SessionReport {
        session: open.session,
        incarnation: open.incarnation,
        owner: open.owner.clone(),
        first_lane: open.first_lane,
        lanes: open.lanes,
        pool_lanes: open.pool_lanes,
        ..claimed()
    };
    // One more is said to be an earlier coordinator's, of which nobody but the node knows.
    let sessions = open.iter().map(report).chain([claimed()]).collect();
    Heartbeat {
        number,
        load: NodeLoad::default(),
        changes: Changes { since: 0, through: number, sessions, more: false },
        ended: Vec::new(),
        unfit: Some(Unfit { takes: Takes::Last, reason: UnfitReason::Shipping, why: HOSTILE.to_owned() }),
        draining: false,
        measured: BTreeMap::new(),
        connecting: Vec::new(),
        standings: Vec::new(),
    }
}

/// A session of a pool that nobody has opened.
fn claimed() -> SessionReport {
    static POOL: OnceLock<RunId> = OnceLock::new();
    SessionReport {
        session: SessionId { pool: *POOL.get_or_init(|| new_pool_id(HOSTILE)), index: 0 },
        incarnation: Incarnation { term: 1, counter: 1 },
        owner: HOSTILE.to_owned(),
        env: HOSTILE.into(),
        first_lane: 0,
        lanes: 1,
        pool_lanes: 1,
        replaces: false,
        launching: false,
        attached: Some(true),
        transport: Some("a\u{1b}]0;\u{202e}\u{200b}".to_owned()),
        done: SessionCounts::default(),
        replay: None,
        plays: Some(PlaysReport { policy: HOSTILE.to_owned(), version: 1, lag: Some(2) }),
    }
}

/// Does what the coordinator asks for; pools of three lanes are refused in words of its own.
async fn answer(mut requests: rollhouse_wire::Requests, open: Open) {
    while let Ok((request, responder)) = requests.next().await {
        let refusal = || Refusal::new(RefusalCode::BadRequest, HOSTILE);
        let _sent = match request {
            Request::OpenSession(asked) if asked.lanes == 3 => {
                responder.respond::<SessionOpened>(Err(refusal())).await
            }
            Request::OpenSession(asked) => {
                // A session of another env than was asked for is none: what it is called stands in the refusal.
                let spec = if asked.lanes == 5 { hostile_spec() } else { called("CartPole-v1") };
                open.lock().unwrap().push(asked);
                let opened = SessionOpened { spec, lease_ms: 30_000, replay: false };
                responder.respond(Ok(opened)).await
            }
            Request::AdmitWatcher(AdmitWatcher { session, owner, .. }) => {
                let of_it = |open: &&OpenSession| open.session == session;
                let key = open.lock().unwrap().iter().find(of_it).map(|open| open.secret.watch_key(&owner));
                responder.respond(key.map(|key| WatcherAdmitted { key }).ok_or_else(refusal)).await
            }
            Request::CloseSession(close) => {
                open.lock().unwrap().retain(|open| open.session != close.session);
                let end = SessionEnd {
                    session: close.session,
                    incarnation: close.incarnation,
                    cause: EndCause::Failed,
                    detail: HOSTILE.to_owned(),
                    done: SessionCounts::default(),
                    report: None,
                    unreached: false,
                };
                responder.respond(Ok(end)).await
            }
            _ => responder.refuse(refusal()).await,
        };
    }
}

/// Shows each session to whoever asks to watch it.
async fn serve(mut listener: Listener, open: Open) {
    while let Some(arrival) = listener.accept().await {
        let Arrival::Connected(connection) = arrival else { continue };
        let open = Arc::clone(&open);
        tokio::spawn(async move {
            let mut requests = connection.requests();
            while let Ok((request, responder)) = requests.next().await {
                let Request::OpenWatch(watch) = request else {
                    let refusal = Refusal::new(RefusalCode::BadRequest, HOSTILE);
                    let _sent = responder.refuse(refusal).await;
                    continue;
                };
                let of_it = |open: &&OpenSession| open.session.pool == watch.pool;
                let Some(of_it) = open.lock().unwrap().iter().find(of_it).cloned() else { continue };
                let opened = WatchOpened {
                    spec: hostile_spec(),
                    first_lane: of_it.first_lane,
                    lanes: of_it.lanes,
                    pool_lanes: of_it.pool_lanes,
                    settings: of_it.settings,
                    program: HOSTILE.to_owned(),
                };
                if let Ok((reader, writer)) = responder.accept_envelopes(opened).await {
                    tokio::spawn(show(reader, writer));
                }
            }
        });
    }
}

async fn show(mut reader: EnvelopeReader, mut writer: EnvelopeWriter) {
    let mut serial = 0;
    while let Ok(Some(command)) = reader.read().await {
        let refusal = Refusal::new(RefusalCode::BadRequest, HOSTILE);
        let answer = if command.method == LookParams::METHOD {
            serial += 1;
            command.answered(Ok(&LookAnswer { frame: Some(frame(serial)), replay: None }))
        } else {
            command.answered::<LookAnswer>(Err(refusal))
        };
        if writer.write(&answer).await.is_err() {
            return;
        }
    }
}

fn frame(serial: u64) -> LaneFrame {
    LaneFrame {
        serial,
        episode: 0,
        step: serial,
        total_reward: serial as f64,
        reward: 1.0,
        terminated: false,
        truncated: false,
        action: 1_i64.to_le_bytes().to_vec(),
        obs: [0.5_f32; 4].iter().flat_map(|value| value.to_le_bytes()).collect(),
        infos: Vec::new(),
        picture: Vec::new(),
        state: vec![0.5; 4],
        hash: Some(7),
        position: Some(LanePosition { seed: 1, words: 0, half: None }),
        moves: serial,
    }
}

fn spec() -> EnvSpec {
    Registry::builtin().get("CartPole-v1").unwrap().spec().clone()
}

/// CartPole's spaces under names that control terminals.
fn hostile_spec() -> EnvSpec {
    called(HOSTILE)
}

fn called(id: &str) -> EnvSpec {
    let named = |count: usize| (0..count).map(|number| format!("{HOSTILE}{number}")).collect();
    EnvSpec {
        id: id.to_owned(),
        summary: HOSTILE.to_owned(),
        observation_names: named(4),
        action_names: named(2),
        ..spec()
    }
}

/// What a screen has written holds no character and no sequence of the hostile texts' own.
fn check_screen(screen: &Viewer, what: &str) {
    let text = screen.text();
    assert_eq!(text.chars().find(|&char| is_raw(char)), None, "{what}: {text:?}");
    for sequence in ["\u{1b}]0;owned", "\u{9b}31m", "owned\u{7}"] {
        assert!(!text.contains(sequence), "{what}: {text:?}");
    }
}

/// Symptom: whoever listed the nodes of a cluster had his terminal written to by a node. Cause: what nodes say of
/// themselves was printed as it came. Fix: lines, tables, messages, JSON and screens are cleaned where all of them pass.
#[test]
fn no_node_controls_the_terminal_of_whoever_lists_or_watches_what_it_reports() {
    let cluster = Cluster::new(&["mean"]);
    // Of its second term, so that a node can claim what is of the first.
    let earlier = ["coordinator.least_term=2"];
    let (coordinator, address) = cluster.coordinator_with("127.0.0.1:0", &earlier, &[]);
    let node = HostileNode::join(&cluster, "mean", &address);
    let admin = cluster.connection("admin", &address);
    let on = |line: &str| check(cluster.folder(), &format!("{line} --connect {admin}"));
    let rollout = "rollout --env CartPole-v1 --steps 1000 --record none --detach";
    let opened = on(&format!("{rollout} --lanes 2"));
    assert_eq!(opened.code, Some(0), "{}", opened.stderr);
    for lanes in [3, 5] {
        let refused = on(&format!("{rollout} --lanes {lanes}"));
        assert!(refused.code != Some(0) && refused.stderr.contains("owned"), "{}", refused.stderr);
    }
    let reported = || json_lines(cluster.folder(), &format!("sessions --json --connect {admin}")).len() > 1;
    while !reported() {
        std::thread::yield_now();
    }
    for line in ["nodes", "sessions", "status", "envs"] {
        let shown = on(line);
        assert_eq!(shown.code, Some(0), "{line}: {}", shown.stderr);
        let as_json = on(&format!("{line} --json"));
        assert_eq!(as_json.code, Some(0), "{line}: {}", as_json.stderr);
        // The texts are there, so that it is they that were cleaned.
        assert!(line == "status" || as_json.stdout.contains("owned"), "{line}: {}", as_json.stdout);
    }
    let sessions = json_lines(cluster.folder(), &format!("sessions --json --connect {admin}"));
    let opened = sessions.iter().find(|session| session["lanes"] == 2).unwrap();
    let pool = opened["run"].as_str().unwrap();
    let frames = on(&format!("watch {pool} --json --frames 2"));
    assert_eq!(frames.code, Some(0), "{}", frames.stderr);
    on(&format!("watch {HOSTILE} --json"));
    on("drain mean");
    on("undrain mean");

    let mut top = Viewer::run(&format!("top --connect {admin}"));
    top.wait_for("mean");
    check_screen(&top, "top, nodes");
    top.press("\t", SHOWN);
    check_screen(&top, "top, sessions");
    top.press("\td", "drain mean");
    check_screen(&top, "top, a question");
    top.press("nq", "\u{1b}[?1049l");
    let mut watch = Viewer::run(&format!("watch {pool} --pictures cells --connect {admin}"));
    watch.wait_for("● live");
    watch.wait_for(SHOWN);
    check_screen(&watch, "watch");
    // Going back asks for the episode so far, which the node refuses in its own words.
    watch.press("\u{1b}[D", SHOWN);
    check_screen(&watch, "watch, refused");
    watch.press("q", "\u{1b}[?1049l");

    on(&format!("close {pool}"));
    drop(node);
    coordinator.signal("TERM");
    let (_, log) = coordinator.ended();
    assert_eq!(log.join("").chars().find(|&char| is_raw(char) || char.is_control()), None, "{log:?}");
}

/// Records one episode whose header is hostile throughout, as a program might that is none of ours.
fn hostile_recording(folder: &Path) {
    let spec = hostile_spec();
    let recorder = Recorder::open(Arc::new(RealDisk), folder, RecorderConfig::default()).unwrap();
    let run = recorder.begin_run_with(
        RunHeader {
            run: RunId::from_u128(77 << 64 | 9),
            options: vec![Options::check(&spec.options, &[]).unwrap()],
            lanes: 1,
            schedule: SeedSchedule::Continue,
            autoreset: "NextStep".into(),
            max_episode_steps: None,
            policy: PolicyInfo { name: HOSTILE.into(), version: 0 },
            record: RecordRule::Trace,
            program: HOSTILE.into(),
            started_ms: 1_700_000_000_000,
            parent: None,
            arguments: String::new(),
            spec: spec.clone(),
        },
        Beside::default(),
    );
    let run = run.unwrap();
    let mut block = run.block(0, 1);
    let obs: Vec<ColumnData> = spec
        .obs_columns()
        .into_iter()
        .map(|column| ColumnData::zeros(column.dtype, column.elements()))
        .collect();
    let obs: Vec<ColumnRef<'_>> = obs.iter().map(ColumnData::as_ref).collect();
    block.begin(0, rollhouse_core::Start::seeded(1), &obs);
    block.row(Row {
        stepped: LaneSet::one(0),
        begun: LaneSet::NONE,
        actions: ColumnRef::I64(&[1]),
        obs: &obs,
        rewards: &[1.0],
        infos: &[],
        now_ms: 5,
    });
    let outcome = Outcome::Finished { terminated: true, truncated: false };
    block.end(0, End { outcome, total_reward: 1.0, hash: 0, result: GameResult::None, score: None });
    drop((block, run));
    assert_eq!(recorder.finish().unwrap().lost_frames, 0);
}

/// The same of recordings, which anybody sends to anybody.
#[test]
fn no_recording_of_somebody_else_controls_the_terminal_of_whoever_imports_lists_or_plays_it() {
    let (theirs, ours) = (Folder::new(), Folder::new());
    hostile_recording(theirs.path());
    let listed = json_lines(theirs.path(), "replay ls --json");
    let name = listed[0]["id"].as_str().unwrap().to_owned();
    let file: PathBuf = theirs.path().join("one.rhr");
    succeed(theirs.path(), &format!("replay export {name} --format rhr --output {}", file.display()));
    let imported = check(ours.path(), &format!("replay import {}", file.display()));
    assert_eq!(imported.code, Some(0), "{}", imported.stderr);
    for line in
        ["replay ls", "replay stats", "replay stats --plot", "replay show NAME", "replay show NAME --steps"]
    {
        for json in ["", " --json"] {
            let line = format!("{line}{json}").replace("NAME", &name);
            check(ours.path(), &line);
        }
    }
    assert!(check(ours.path(), "replay ls --json").stdout.contains("owned"));
    for line in [
        "replay verify NAME",
        "replay diff NAME NAME",
        "replay export NAME --format jsonl",
        "replay export NAME --format html",
        "replay export NAME --format csv",
        "replay fork NAME --at 0",
        "replay tag NAME good",
        "replay prune --older-than 1h",
        "replay repair",
    ] {
        check(ours.path(), &line.replace("NAME", &name));
    }
    let data = ours.path();
    let mut list = Viewer::start(data, "replay play");
    list.wait_for("filter:");
    list.wait_for(SHOWN);
    check_screen(&list, "the list");
    list.press("\r", SHOWN);
    check_screen(&list, "an episode out of the list");
    list.press("q", "\u{1b}[?1049l");
    let mut play = Viewer::start(data, &format!("replay play {name} --speed 1/16"));
    play.wait_for(SHOWN);
    play.press("\u{1b}[F", "terminated");
    check_screen(&play, "an episode");
    play.press("q", "\u{1b}[?1049l");
}

/// Turns the direction, sets the title, colours by C1, begins a line of its own, hides a character; what turns the direction
/// comes first, so that it is in a cell that is cut short, too.
const HOSTILE: &str = "\u{202e}\u{1b}]0;owned\u{7}\u{9b}31m\r\nall is well\u{2066}\u{200b}\u{7f}y";
/// Its beginning, as it is shown.
const SHOWN: &str = "\\u{202e";
const BEAT: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(60);
