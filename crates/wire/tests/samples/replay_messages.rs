//! Messages about sessions that show recorded episodes.

use rollhouse_core::LaneState;
use rollhouse_wire::{
    Changes, EpisodeBytes, FetchEpisode, Heartbeat, LookAnswer, OpenReplay, OpenSession, PauseParams,
    PlayParams, ReplayOf, ReplayReport, ReplayStanding, Request, SeekParams, SessionOpened, SessionReport,
    StepParams,
};

use super::values::{INCARNATION, POOL, lane_frame, load, report, secret, session, settings, spec};
use super::{Sample, answer, sample};

const EPISODE: &str = "k3f9q2tz-17-203";

pub(crate) fn requests() -> Vec<Sample> {
    let episode = || EPISODE.to_owned();
    vec![
        sample("request-open_replay", Request::OpenReplay(OpenReplay { pool: POOL, episode: episode() })),
        sample("request-fetch_episode", Request::FetchEpisode(FetchEpisode { episode: episode() })),
    ]
}

pub(super) fn others() -> Vec<Sample> {
    let mut settings = settings();
    settings.collect = None;
    let dynamics = 0x0123_4567_89ab_cdef;
    settings.replay = Some(ReplayOf { episode: EPISODE.to_owned(), dynamics, full: false });
    let open = OpenSession {
        session: session(),
        incarnation: INCARNATION,
        secret: secret(),
        owner: "ada".into(),
        operates: false,
        first_lane: 0,
        lanes: 1,
        pool_lanes: 1,
        replaces: false,
        resume: None,
        settings,
    };
    let replay = Some(ReplayReport { episode: EPISODE.to_owned(), state: LaneState::Paused });
    let told = SessionReport { attached: Some(false), transport: None, replay, ..report() };
    let changes = Changes { since: 40, through: 42, sessions: vec![told], more: false };
    let heartbeat = Heartbeat {
        number: 9,
        load: load(),
        changes,
        ended: Vec::new(),
        unfit: None,
        draining: false,
        measured: Default::default(),
        connecting: Vec::new(),
        standings: Vec::new(),
    };
    let standing = ReplayStanding { state: LaneState::Replaying, step: 3, length: 181, speed: 0.5 };
    vec![
        sample("request-open_session-replay", Request::OpenSession(open)),
        answer("answer-open_session-replay", SessionOpened { spec: spec(), lease_ms: 30_000, replay: true }),
        sample("request-heartbeat-replay", Request::Heartbeat(heartbeat)),
        answer("answer-fetch_episode", EpisodeBytes { bytes: 1_234 }),
        sample("watch-look-replay", LookAnswer { frame: Some(lane_frame()), replay: Some(standing) }),
        sample("watch-seek", SeekParams { step: 120 }),
        sample("watch-play", PlayParams { speed: 0.5 }),
        sample("watch-pause", PauseParams {}),
        sample("watch-step", StepParams { by: -1 }),
    ]
}
