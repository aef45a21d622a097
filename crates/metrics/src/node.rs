//! Figures of a node.

use rollhouse_core::{GameResult, Outcome, Weight};
use rollhouse_wire::UnfitReason;
use std::time::Duration;

use crate::family::{Family, Histogram, Kind, Page};

/// Figures of a node: totals since its start, and its present state.
#[derive(Debug, Clone, Default)]
pub struct NodeSample {
    /// Number of env steps.
    pub steps: u64,
    /// Number of episodes that ended, by [`Outcome::ALL`].
    pub episodes: [u64; Outcome::ALL.len()],
    /// What envs said of episodes that ended.
    pub verdicts: VerdictSample,
    /// Figures of the envs whose lanes were stepped for owners.
    pub envs: Vec<EnvSample>,
    /// Figures of policies.
    pub policies: PoliciesSample,
    /// Figures of the threads that step.
    pub threads: ThreadSample,
    /// Figures of the node's sessions.
    pub sessions: SessionSample,
    /// Number of streams that ended because something came on them that was no request.
    pub malformed_streams: u64,
    /// Figures of those who watch the node's sessions.
    pub watchers: WatcherSample,
    /// What the node has for lanes, and what they take of it.
    pub budget: BudgetSample,
    /// Number of lanes that were started again after a failure.
    pub restarts: u64,
    /// Parts of the node that ended and were made anew: part, way in which it ended, and number.
    pub part_restarts: Vec<(&'static str, &'static str, u64)>,
    /// Figures of the node's link to the coordinator.
    pub link: LinkSample,
    /// Figures of the recorder.
    pub recorder: RecorderSample,
    /// Figures of the spool, from which recordings are shipped.
    pub spool: SpoolSample,
}

/// Figures of what envs said of episodes that ended.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct VerdictSample {
    /// Number of episodes by their result, by [`GameResult::ALL`].
    pub results: [u64; GameResult::ALL.len()],
    /// Number of episodes that were given a score.
    pub scores: u64,
    /// Sum of these scores.
    pub score_sum: f64,
}

/// Figures of the threads that step owners' sessions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ThreadSample {
    /// Times in seconds that requests waited for a thread.
    pub queue_waits: Histogram,
    /// Number of requests that wait for a thread now.
    pub queued: u64,
    /// Time in seconds that the oldest of them has waited; 0 without any.
    pub longest_wait: f64,
    /// Number of requests that were refused because too many waited.
    pub busy: u64,
    /// Number of threads that hung in a step and were given up.
    pub abandoned: u64,
}

/// Figures of a node's sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionSample {
    /// Number of open sessions.
    pub open: u64,
    /// Number of these whose lanes are being launched.
    pub launching: u64,
    /// Number of sessions whose lanes try to connect to what their env is a client of.
    pub connecting: u64,
    /// Number of times that workers have tried again to connect.
    pub connect_retries: u64,
    /// Number of sessions that were opened.
    pub opened: u64,
    /// Number of sessions that ended, by cause.
    pub ended: Vec<(&'static str, u64)>,
    /// Number of times that owners attached, and attached again.
    pub attachments: u64,
    /// Number of sessions to which an owner is attached, by transport.
    pub attached: Vec<(&'static str, u64)>,
}

/// Figures of a node's link to its coordinator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkSample {
    /// Number of connections that were lost.
    pub lost: u64,
    /// True while a coordinator has the node registered.
    pub registered: bool,
    /// Number of times that the node was given another certificate.
    pub renewals: u64,
    /// True if the node's last request for another certificate was refused or had no answer.
    pub renewal_failing: bool,
    /// The trouble that the node tells its coordinator of.
    pub unfit: Option<UnfitReason>,
}

/// Figures of one env over its owners' sessions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EnvSample {
    /// Id of the env. If there are very many envs, those beyond a bound share one name.
    pub env: String,
    /// Number of env steps.
    pub steps: u64,
    /// Times in seconds that steps of all lanes of a session took.
    pub step_times: Histogram,
    /// Times in seconds that steps of some lanes took.
    pub send_times: Histogram,
    /// Times in seconds that resets took.
    pub reset_times: Histogram,
    /// Times in seconds from when ticks of live lanes were due until they began.
    pub lateness: Histogram,
    /// Number of ticks of live lanes that were due and not played.
    pub missed_ticks: u64,
}

/// Figures of policies.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoliciesSample {
    /// Of those that played for owners.
    pub played: Vec<PolicySample>,
    /// Number of versions that were fetched from the coordinator.
    pub fetched: u64,
    /// Bytes of these.
    pub fetched_bytes: u64,
}

/// Figures of one policy that played an env for owners.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PolicySample {
    /// Id of the env. If there are very many, those beyond a bound share one name.
    pub env: String,
    /// The policy's name, likewise.
    pub policy: String,
    /// By how many updates fragments were older than the newest policy when their learner was given them.
    pub data_lag: Histogram,
    /// Times in seconds from an update to all nodes having it.
    pub publishing: Histogram,
}

/// What a node has for lanes, and what its lanes take of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetSample {
    /// Number of lanes in open sessions.
    pub lanes: u64,
    /// Number of lanes that the node takes.
    pub capacity: u64,
    /// What it has.
    pub total: Weight,
    /// What they take, as far as it was stated, measured or estimated.
    pub taken: Weight,
}

impl BudgetSample {
    fn put(&self, page: &mut Page) {
        page.value(&LANES, self.lanes as f64);
        page.value(&CAPACITY, self.capacity as f64);
        page.value(&CPU_BUDGET, self.total.cpu_milli as f64 / 1000.0);
        page.value(&CPU_TAKEN, self.taken.cpu_milli as f64 / 1000.0);
        page.value(&MEMORY_BUDGET, self.total.memory as f64);
        page.value(&MEMORY_TAKEN, self.taken.memory as f64);
    }
}

/// Figures of a recorder.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RecorderSample {
    /// Number of episodes whose end was written.
    pub episodes: u64,
    /// Number of those episodes that survive a power cut.
    pub durable_episodes: u64,
    /// Number of bytes written.
    pub bytes: u64,
    /// Number of episodes that could not be written.
    pub lost_episodes: u64,
    /// Time that stepping waited for the disk, added up over threads.
    pub stalled: Duration,
    /// Time that the writer was busy.
    pub busy: Duration,
    /// True if the recorder's disk fails now.
    pub failing: bool,
}

/// Figures of the segments on their way to the store: offered = shipped + quarantined + dropped + waiting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpoolSample {
    /// Bytes of sealed segments that are not in the store yet.
    pub waiting_bytes: u64,
    /// Number of those segments.
    pub waiting_segments: u64,
    /// Number of segments that the store took, or had already.
    pub shipped_segments: u64,
    /// Bytes of those segments.
    pub shipped_bytes: u64,
    /// Number of segments that the store set aside, and that are kept here.
    pub quarantined_segments: u64,
    /// Number of segments that were dropped because the spool was full.
    pub dropped_segments: u64,
    /// Number of episodes that ended in dropped segments.
    pub dropped_episodes: u64,
    /// Time that the oldest of the waiting segments has been waiting.
    pub oldest: Duration,
    /// Attempts to ship that failed: reason, and number.
    pub failed_attempts: Vec<(&'static str, u64)>,
    /// True if the spool is full and stepping waits.
    pub held: bool,
}

/// Figures of those who watch a node's sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WatcherSample {
    /// Recorded episodes that are shown as sessions.
    pub replays: u64,
    /// Number of watchers now.
    pub watchers: u64,
    /// Number of watchers that were disconnected because they hung.
    pub dropped: u64,
    /// Number of frames that were shown.
    pub frames: u64,
    /// Number of frames that a watcher never saw.
    pub missed: u64,
}

impl WatcherSample {
    fn put(&self, page: &mut Page) {
        page.value(&REPLAYS, self.replays as f64);
        page.value(&WATCHERS, self.watchers as f64);
        page.value(&WATCHERS_DROPPED, self.dropped as f64);
        page.value(&WATCHED_FRAMES, self.frames as f64);
        page.value(&WATCHED_FRAMES_MISSED, self.missed as f64);
    }
}

impl NodeSample {
    /// Metrics of a node.
    pub const FAMILIES: &'static [Family] = &[
        STEPS,
        OWNER_STEPS,
        EPISODES,
        RESULTS,
        SCORES,
        SCORE_SUM,
        STEP_TIMES,
        SEND_TIMES,
        RESET_TIMES,
        TICK_LATENESS,
        MISSED_TICKS,
        DATA_LAG,
        PUBLISHING,
        FETCHED_POLICIES,
        FETCHED_POLICY_BYTES,
        QUEUE_WAITS,
        QUEUED,
        LONGEST_WAIT,
        BUSY,
        ABANDONED,
        SESSIONS,
        LAUNCHING_SESSIONS,
        CONNECTING_SESSIONS,
        CONNECT_RETRIES,
        SESSIONS_OPENED,
        ATTACHED,
        ATTACHED_SESSIONS,
        MALFORMED,
        REPLAYS,
        WATCHERS,
        WATCHERS_DROPPED,
        WATCHED_FRAMES,
        WATCHED_FRAMES_MISSED,
        LANES,
        CAPACITY,
        CPU_BUDGET,
        CPU_TAKEN,
        MEMORY_BUDGET,
        MEMORY_TAKEN,
        SESSIONS_ENDED,
        RESTARTS,
        PART_RESTARTS,
        COORDINATOR_LOST,
        REGISTERED,
        UNFIT,
        RENEWALS,
        RENEWAL_FAILING,
        RECORDED,
        RECORDED_DURABLY,
        RECORDED_BYTES,
        LOST_EPISODES,
        STALLED,
        WRITER_BUSY,
        FAILING,
        SPOOL_BYTES,
        SPOOL_SEGMENTS,
        SPOOL_OLDEST,
        SHIPPED,
        SHIPPED_BYTES,
        DROPPED,
        DROPPED_EPISODES,
        FAILED_ATTEMPTS,
        HELD,
    ];

    /// Puts the figures on a page.
    pub fn put(&self, page: &mut Page) {
        page.value(&STEPS, self.steps as f64);
        self.put_episodes(page);
        for of in &self.envs {
            let env = [of.env.as_str()];
            page.labelled(&OWNER_STEPS, &env, of.steps as f64);
            page.histogram(&STEP_TIMES, &env, &of.step_times);
            page.histogram(&SEND_TIMES, &env, &of.send_times);
            page.histogram(&RESET_TIMES, &env, &of.reset_times);
            page.histogram(&TICK_LATENESS, &env, &of.lateness);
            page.labelled(&MISSED_TICKS, &env, of.missed_ticks as f64);
        }
        self.policies.put(page);
        self.threads.put(page);
        self.sessions.put(page);
        page.value(&MALFORMED, self.malformed_streams as f64);
        self.watchers.put(page);
        self.budget.put(page);
        for &(cause, count) in &self.sessions.ended {
            page.labelled(&SESSIONS_ENDED, &[cause], count as f64);
        }
        page.value(&RESTARTS, self.restarts as f64);
        for &(part, cause, count) in &self.part_restarts {
            page.labelled(&PART_RESTARTS, &[part, cause], count as f64);
        }
        self.link.put(page);
        self.recorder.put(page);
        self.spool.put(page);
    }

    fn put_episodes(&self, page: &mut Page) {
        for (index, outcome) in Outcome::ALL.iter().enumerate() {
            // Two finished outcomes share the word `terminated`; it is put once, with the sum of both.
            let same = |other: &Outcome| other.word() == outcome.word();
            if Outcome::ALL[..index].iter().any(same) {
                continue;
            }
            let counts = Outcome::ALL.iter().zip(self.episodes).filter(|(other, _)| same(other));
            page.labelled(&EPISODES, &[outcome.word()], counts.map(|(_, n)| n).sum::<u64>() as f64);
        }
        let VerdictSample { results, scores, score_sum } = self.verdicts;
        for (result, count) in GameResult::ALL.iter().zip(results) {
            page.labelled(&RESULTS, &[result.word().unwrap_or_default()], count as f64);
        }
        page.value(&SCORES, scores as f64);
        page.value(&SCORE_SUM, score_sum);
    }
}

impl PoliciesSample {
    fn put(&self, page: &mut Page) {
        for PolicySample { env, policy, data_lag, publishing } in &self.played {
            page.histogram(&DATA_LAG, &[env, policy], data_lag);
            page.histogram(&PUBLISHING, &[env, policy], publishing);
        }
        page.value(&FETCHED_POLICIES, self.fetched as f64);
        page.value(&FETCHED_POLICY_BYTES, self.fetched_bytes as f64);
    }
}

impl ThreadSample {
    fn put(&self, page: &mut Page) {
        page.histogram(&QUEUE_WAITS, &[], &self.queue_waits);
        page.value(&QUEUED, self.queued as f64);
        page.value(&LONGEST_WAIT, self.longest_wait);
        page.value(&BUSY, self.busy as f64);
        page.value(&ABANDONED, self.abandoned as f64);
    }
}

impl SessionSample {
    /// Puts all but the ends on a page.
    fn put(&self, page: &mut Page) {
        page.value(&SESSIONS, self.open as f64);
        page.value(&LAUNCHING_SESSIONS, self.launching as f64);
        page.value(&CONNECTING_SESSIONS, self.connecting as f64);
        page.value(&CONNECT_RETRIES, self.connect_retries as f64);
        page.value(&SESSIONS_OPENED, self.opened as f64);
        page.value(&ATTACHED, self.attachments as f64);
        for &(transport, count) in &self.attached {
            page.labelled(&ATTACHED_SESSIONS, &[transport], count as f64);
        }
    }
}

impl LinkSample {
    fn put(&self, page: &mut Page) {
        page.value(&COORDINATOR_LOST, self.lost as f64);
        page.value(&REGISTERED, f64::from(u8::from(self.registered)));
        for reason in UnfitReason::ALL {
            page.labelled(&UNFIT, &[reason.word()], f64::from(u8::from(self.unfit == Some(reason))));
        }
        page.value(&RENEWALS, self.renewals as f64);
        page.value(&RENEWAL_FAILING, f64::from(u8::from(self.renewal_failing)));
    }
}

impl RecorderSample {
    fn put(&self, page: &mut Page) {
        page.value(&RECORDED, self.episodes as f64);
        page.value(&RECORDED_DURABLY, self.durable_episodes as f64);
        page.value(&RECORDED_BYTES, self.bytes as f64);
        page.value(&LOST_EPISODES, self.lost_episodes as f64);
        page.value(&STALLED, self.stalled.as_secs_f64());
        page.value(&WRITER_BUSY, self.busy.as_secs_f64());
        page.value(&FAILING, f64::from(u8::from(self.failing)));
    }
}

impl SpoolSample {
    fn put(&self, page: &mut Page) {
        page.value(&SPOOL_BYTES, self.waiting_bytes as f64);
        page.value(&SPOOL_SEGMENTS, self.waiting_segments as f64);
        page.value(&SPOOL_OLDEST, self.oldest.as_secs_f64());
        page.labelled(&SHIPPED, &["stored"], self.shipped_segments as f64);
        page.labelled(&SHIPPED, &["quarantined"], self.quarantined_segments as f64);
        page.value(&SHIPPED_BYTES, self.shipped_bytes as f64);
        page.value(&DROPPED, self.dropped_segments as f64);
        page.value(&DROPPED_EPISODES, self.dropped_episodes as f64);
        for &(reason, count) in &self.failed_attempts {
            page.labelled(&FAILED_ATTEMPTS, &[reason], count as f64);
        }
        page.value(&HELD, f64::from(u8::from(self.held)));
    }
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family { name, help, kind: Kind::Counter, labels: &[] }
}

const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family { name, help, kind: Kind::Gauge, labels: &[] }
}

const fn times(name: &'static str, help: &'static str) -> Family {
    Family { name, help, kind: Kind::Histogram, labels: &[] }
}

const fn by(label: &'static [&'static str], family: Family) -> Family {
    Family { labels: label, ..family }
}

const STEPS: Family = counter("rollhouse_steps_total", "Env steps of all lanes.");
const EPISODES: Family =
    by(&["outcome"], counter("rollhouse_episodes_total", "Episodes that ended, by outcome."));
const RESULTS: Family = by(
    &["result"],
    counter("rollhouse_episode_results_total", "Episodes that ended with a result, for envs that give one."),
);
const SCORES: Family =
    counter("rollhouse_episode_scores_total", "Episodes that ended with a score, for envs that give one.");
const SCORE_SUM: Family =
    gauge("rollhouse_episode_score_points", "Sum of these scores since the start; one below zero lowers it.");
const OWNER_STEPS: Family =
    by(&["env"], counter("rollhouse_owner_steps_total", "Env steps of sessions that owners step."));
const DATA_LAG: Family = by(
    &["env", "policy"],
    times(
        "rollhouse_policy_data_lag_updates",
        "Updates by which fragments were older than the newest policy when their learner was given them.",
    ),
);
const PUBLISHING: Family = by(
    &["env", "policy"],
    times(
        "rollhouse_policy_publishing_seconds",
        "Time from a learner's update until all its nodes had it, with that for fragments that were under way.",
    ),
);
const FETCHED_POLICIES: Family =
    counter("rollhouse_policy_fetches_total", "Versions of policies that were fetched from the coordinator.");
const FETCHED_POLICY_BYTES: Family =
    counter("rollhouse_policy_fetched_bytes_total", "Bytes of the policies that were fetched.");
const STEP_TIMES: Family = by(
    &["env"],
    times(
        "rollhouse_step_seconds",
        "Time of owners' steps of all lanes of a session, with the encoding of the answer.",
    ),
);
const SEND_TIMES: Family = by(
    &["env"],
    times(
        "rollhouse_send_seconds",
        "Time of owners' steps of some lanes of a session, with the encoding of the answer.",
    ),
);
const RESET_TIMES: Family = by(
    &["env"],
    times("rollhouse_reset_seconds", "Time of owners' resets, with the encoding of the answer."),
);
const TICK_LATENESS: Family = by(
    &["env"],
    times(
        "rollhouse_live_tick_lateness_seconds",
        "Time from when a tick of live lanes was due until it began.",
    ),
);
const MISSED_TICKS: Family = by(
    &["env"],
    counter(
        "rollhouse_live_ticks_missed_total",
        "Ticks of live lanes that were due and not played, because the machine or an earlier tick was late.",
    ),
);
const QUEUE_WAITS: Family =
    times("rollhouse_queue_wait_seconds", "Time that owners' requests waited for a thread that steps.");
const QUEUED: Family = gauge("rollhouse_queue_requests", "Requests that wait for a thread that steps.");
const LONGEST_WAIT: Family = gauge(
    "rollhouse_queue_longest_wait_seconds",
    "Time that the oldest request has waited for a thread that steps; 0 if none waits.",
);
const BUSY: Family = counter(
    "rollhouse_busy_total",
    "Owners' requests that were refused because too many waited for a thread.",
);
const ABANDONED: Family =
    counter("rollhouse_abandoned_threads_total", "Threads that hung in a step and were given up.");
const SESSIONS: Family = gauge("rollhouse_sessions", "Open sessions.");
const LAUNCHING_SESSIONS: Family =
    gauge("rollhouse_launching_sessions", "Open sessions whose lanes are being launched.");
const CONNECTING_SESSIONS: Family = gauge(
    "rollhouse_connecting_sessions",
    "Sessions whose lanes try to connect to the game or simulator of which their env is a client.",
);
const CONNECT_RETRIES: Family =
    counter("rollhouse_connect_retries_total", "Times that worker processes tried again to connect.");
const SESSIONS_OPENED: Family = counter("rollhouse_sessions_opened_total", "Sessions that were opened.");
const ATTACHED: Family = counter(
    "rollhouse_owners_attached_total",
    "Times that an owner attached to a session, or attached again.",
);
const ATTACHED_SESSIONS: Family =
    by(&["transport"], gauge("rollhouse_attached_sessions", "Sessions that an owner is attached to."));
const MALFORMED: Family = counter(
    "rollhouse_malformed_streams_total",
    "Sessions' streams that ended because what came on them was no request.",
);
const REPLAYS: Family =
    gauge("rollhouse_replay_sessions", "Sessions that show a recorded episode, 16 at most.");
const WATCHERS: Family = gauge("rollhouse_watchers", "Streams on which sessions are watched.");
const WATCHERS_DROPPED: Family = counter(
    "rollhouse_watchers_dropped_total",
    "Watchers that were sent away as they asked for nothing, or did not take what they had asked for.",
);
const WATCHED_FRAMES: Family =
    counter("rollhouse_watched_frames_total", "Frames that were shown to those who watch.");
const WATCHED_FRAMES_MISSED: Family = counter(
    "rollhouse_watched_frames_missed_total",
    "Frames that a watcher never saw, as a newer one had taken their place: no harm is done.",
);
const LANES: Family = gauge("rollhouse_lanes", "Lanes of open sessions.");
const CAPACITY: Family = gauge("rollhouse_capacity_lanes", "Lanes the node takes.");
const CPU_BUDGET: Family = gauge("rollhouse_cpu_budget_cores", "Cores that the node has for lanes.");
const CPU_TAKEN: Family =
    gauge("rollhouse_cpu_taken_cores", "Cores that the lanes of open sessions take, by their weights.");
const MEMORY_BUDGET: Family = gauge("rollhouse_memory_budget_bytes", "Memory that the node has for lanes.");
const MEMORY_TAKEN: Family =
    gauge("rollhouse_memory_taken_bytes", "Memory that the lanes of open sessions take, by their weights.");
const SESSIONS_ENDED: Family =
    by(&["cause"], counter("rollhouse_sessions_ended_total", "Sessions that ended, by cause."));
const RESTARTS: Family =
    counter("rollhouse_restarts_total", "Lanes that were started again after a failure.");
const PART_RESTARTS: Family = by(
    &["part", "cause"],
    counter(
        "rollhouse_part_restarts_total",
        "Parts of the node that ended by themselves and were made anew, by part and cause.",
    ),
);
const COORDINATOR_LOST: Family =
    counter("rollhouse_coordinator_lost_total", "Times that the connection to the coordinator was lost.");
const UNFIT: Family = by(
    &["reason"],
    gauge(
        "rollhouse_unfit",
        "1 while the node has a trouble of that kind and comes last or is left out, else 0.",
    ),
);
const REGISTERED: Family =
    gauge("rollhouse_registered", "1 while a coordinator has the node registered, else 0.");
const RENEWALS: Family = counter(
    "rollhouse_certificate_renewals_total",
    "Times that the node was given its next certificate by the coordinator.",
);
const RENEWAL_FAILING: Family = gauge(
    "rollhouse_certificate_renewal_failing",
    "1 while the node's next certificate was asked for and not given, else 0.",
);
const RECORDED: Family = counter("rollhouse_recorder_episodes_total", "Episodes whose end was recorded.");
const RECORDED_DURABLY: Family = counter(
    "rollhouse_recorder_durable_episodes_total",
    "Recorded episodes that survive a power cut on this machine.",
);
const RECORDED_BYTES: Family = counter("rollhouse_recorder_bytes_total", "Bytes of recordings written.");
const LOST_EPISODES: Family = counter(
    "rollhouse_recorder_lost_episodes_total",
    "Episodes that could not be written because the disk failed.",
);
const STALLED: Family = counter(
    "rollhouse_recorder_stalled_seconds_total",
    "Time that stepping waited for the disk, added up over threads.",
);
const WRITER_BUSY: Family =
    counter("rollhouse_recorder_busy_seconds_total", "Time that the recorder's writer was busy.");
const FAILING: Family = gauge("rollhouse_recorder_failing", "1 while the recorder's disk fails, else 0.");
const SPOOL_BYTES: Family =
    gauge("rollhouse_spool_bytes", "Bytes of recordings that are not in the store yet.");
const SPOOL_SEGMENTS: Family =
    gauge("rollhouse_spool_segments", "Sealed segments that are not in the store yet.");
const SPOOL_OLDEST: Family = gauge(
    "rollhouse_spool_oldest_age_seconds",
    "How long the oldest sealed segment that is not in the store has been waiting, at most since the start; 0 if none waits.",
);
const SHIPPED: Family = by(
    &["result"],
    counter("rollhouse_spool_shipped_segments_total", "Segments shipped, by what the store did with them."),
);
const SHIPPED_BYTES: Family =
    counter("rollhouse_spool_shipped_bytes_total", "Bytes of segments shipped to the store.");
const DROPPED: Family = counter(
    "rollhouse_spool_dropped_segments_total",
    "Segments dropped before they were shipped, because the spool was full and told to drop.",
);
const DROPPED_EPISODES: Family =
    counter("rollhouse_spool_dropped_episodes_total", "Episodes that ended in dropped segments.");
const FAILED_ATTEMPTS: Family = by(
    &["reason"],
    counter("rollhouse_spool_failed_attempts_total", "Attempts to ship a segment that failed, by reason."),
);
const HELD: Family = gauge("rollhouse_spool_held", "1 while the spool is full and stepping waits, else 0.");
