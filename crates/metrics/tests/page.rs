//! What is exported is what `docs/metrics.md` lists, and the other way round.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rollhouse_core::Weight;
use rollhouse_metrics::{
    ArchiveSample, CoordinatorSample, EnvSample, Exporter, Family, Figures, Histogram, Kind, Links,
    NodeSample, Page, PoliciesSample, PolicySample, ProcessFigures, ThreadSample, TransportSample,
    VerdictSample,
};
use rollhouse_wire::{
    ArrivalCounts, CallHistogram, CallTimes, ClusterStatus, Effective, LinkFigures, Request, Role,
    UnfitReason,
};

struct Node(NodeSample);
struct Coordinator(CoordinatorSample);
struct Archive(ArchiveSample);
struct Transport(TransportSample);

impl Figures for Node {
    fn families(&self) -> Vec<&'static Family> {
        NodeSample::FAMILIES.iter().collect()
    }

    fn put(&self, page: &mut Page) {
        self.0.put(page);
    }
}

impl Figures for Coordinator {
    fn families(&self) -> Vec<&'static Family> {
        CoordinatorSample::FAMILIES.iter().collect()
    }

    fn put(&self, page: &mut Page) {
        self.0.put(page);
    }
}

impl Figures for Archive {
    fn families(&self) -> Vec<&'static Family> {
        ArchiveSample::FAMILIES.iter().collect()
    }

    fn put(&self, page: &mut Page) {
        self.0.put(page);
    }
}

impl Figures for Transport {
    fn families(&self) -> Vec<&'static Family> {
        TransportSample::FAMILIES.iter().collect()
    }

    fn put(&self, page: &mut Page) {
        self.0.put(page);
    }
}

fn node() -> NodeSample {
    let mut figures = NodeSample { steps: 12, ..NodeSample::default() };
    // Terminated is one word for two finished outcomes.
    figures.episodes = std::array::from_fn(|index| 10 + index as u64);
    let step_times =
        Histogram { bounds: vec![0.001, 0.01], counts: vec![5, 2, 1], sum: 0.5, exemplars: Vec::new() };
    figures.envs =
        vec![EnvSample { env: "CartPole-v1".to_owned(), steps: 8, step_times, ..Default::default() }];
    figures.policies.played =
        vec![PolicySample { env: "CartPole-v1".to_owned(), policy: "pong".to_owned(), ..Default::default() }];
    figures.verdicts = VerdictSample { results: [4, 3, 2], scores: 5, score_sum: -2.5 };
    figures.sessions.attached = vec![("quic", 2)];
    figures.sessions.ended = vec![("finished", 3)];
    figures.part_restarts = vec![("link", "panicked", 2)];
    figures.link.unfit = Some(UnfitReason::Disk);
    figures.spool.failed_attempts = vec![("busy", 3)];
    figures
}

fn coordinator() -> CoordinatorSample {
    CoordinatorSample {
        status: ClusterStatus {
            program: "rollhouse".to_owned(),
            term: 7,
            uptime_s: 1,
            nodes: BTreeMap::new(),
            capacity: 10,
            lanes: 5,
            pools: 1,
            sessions: 2,
            steps: 3,
            episodes: 4,
            transports: BTreeMap::new(),
            store: rollhouse_wire::StoreStatus::default(),
            behind: None,
        },
        restarts: 1,
        pools_opened: 9,
        waiting_lanes: 48,
        waiting_weight: Weight { cpu_milli: 24_500, memory: 3 << 30 },
        unfit_nodes: [(UnfitReason::Address, 2)].into(),
        stored_bytes: 1,
        store_dropped_segments: 0,
        enrolments: vec![("join", "given", 1)],
        policies: (2, 4096),
        audit: (3, 0),
    }
}

fn transport() -> TransportSample {
    let mut arrivals = ArrivalCounts { connected: 3, full: 1, ..ArrivalCounts::default() };
    arrivals.turned_away.insert("unauthenticated", 2);
    let effective = Effective {
        address: SocketAddr::from(([127, 0, 0, 1], 7600)),
        settings: rollhouse_wire::Settings::default(),
        receive_buffer: 4 << 20,
        send_buffer: 2 << 20,
    };
    let mut links = Links::default();
    links.open(&link(1452, 250));
    links.open(&link(1200, 100));
    links.closed(&link(0, 9000));
    TransportSample {
        arrivals: Some(arrivals),
        effective: Some(effective),
        refusals: [(("forbidden", Role::Viewer), 2)].into(),
        calls: calls(&["open_pool"]),
        links: [(Role::Node, links)].into(),
        certificate_expires: Some(4_000_000_000),
    }
}

/// Of a request of each kind that took 20 ms.
fn calls(requests: &[&'static str]) -> BTreeMap<&'static str, CallHistogram> {
    let times = CallTimes::default();
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for request in requests {
        times.note(request, "k3f9q2tz".parse().ok(), Duration::from_millis(20), at);
    }
    times.histograms()
}

fn link(datagram: u16, micros: u64) -> LinkFigures {
    LinkFigures {
        path: rollhouse_wire::Path::Ethernet,
        datagram,
        round_trip: Duration::from_micros(micros),
        window: 12_000,
        sent_bytes: 0,
        received_bytes: 0,
        sent_packets: 10,
        lost_packets: 1,
        congestion_events: 0,
        black_holes: 0,
    }
}

fn printed<const N: usize>(figures: [Arc<dyn Figures>; N]) -> String {
    exporter(figures).print().unwrap()
}

fn exporter<const N: usize>(figures: [Arc<dyn Figures>; N]) -> Exporter {
    let mut exporter = Exporter::new();
    for each in figures.into_iter().chain([Arc::new(ProcessFigures::new()) as Arc<dyn Figures>]) {
        exporter.add(each).unwrap();
    }
    exporter
}

#[test]
fn open_metrics_name_the_call_of_a_slow_request_and_each_unit() {
    let text =
        exporter([Arc::new(Coordinator(coordinator())), Arc::new(Transport(transport()))]).print_open();
    for line in [
        "rollhouse_call_seconds_bucket{request=\"open_pool\",le=\"0.05\"} 1 # {trace_id=\"k3f9q2tz\"} 0.02 1700000000.000",
        "rollhouse_call_seconds_bucket{request=\"open_pool\",le=\"0.01\"} 0",
        "# UNIT rollhouse_call_seconds seconds",
        "# TYPE rollhouse_pools_opened counter",
        "rollhouse_pools_opened_total 9",
        "# UNIT rollhouse_store_received_bytes bytes",
    ] {
        assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
    }
    assert!(text.ends_with("\n# EOF\n"));
}

/// Nothing that is counted is named after a session, an owner or a node: what labels can say is what the worst page has,
/// whether there are ten sessions or ten thousand.
#[test]
fn a_page_with_every_value_of_every_label_has_under_ten_thousand_series() {
    const ENVS: usize = 65;
    const POLICIES: usize = 65;
    let times = || Histogram { bounds: vec![1.0; 13], counts: vec![1; 14], sum: 1.0, exemplars: Vec::new() };
    let env = |number| EnvSample {
        env: format!("env-{number}"),
        steps: 1,
        step_times: times(),
        send_times: times(),
        reset_times: times(),
        lateness: times(),
        missed_ticks: 1,
    };
    let policy = |number| PolicySample {
        env: format!("env-{number}"),
        policy: "pong".to_owned(),
        data_lag: times(),
        publishing: times(),
    };
    let node = NodeSample {
        envs: (0..ENVS).map(env).collect(),
        policies: PoliciesSample { played: (0..POLICIES).map(policy).collect(), ..PoliciesSample::default() },
        threads: ThreadSample { queue_waits: times(), ..ThreadSample::default() },
        ..node()
    };
    let roles = [
        Role::Anonymous,
        Role::Viewer,
        Role::Trainer,
        Role::Join,
        Role::Node,
        Role::Admin,
        Role::Coordinator,
    ];
    let words: Vec<&'static str> = Request::WORDS.to_vec();
    // More than there are codes and reasons of refusals.
    let reasons = (0..64).map(|number| &*format!("reason-{number}").leak());
    let refusals = reasons.flat_map(|reason| roles.map(|role| ((reason, role), 1)));
    let links = roles.map(|role| (role, transport().links[&Role::Node]));
    let transport = TransportSample {
        refusals: refusals.collect(),
        calls: calls(&words),
        links: links.into(),
        ..transport()
    };
    let text = printed([Arc::new(Node(node)), Arc::new(Transport(transport))]);
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    assert!(series > 3 * ENVS * 16 && series < 10_000, "{series} series");
}

#[test]
fn every_metric_is_exported_with_the_type_it_has() {
    for (text, families) in [
        (printed([Arc::new(Node(node())), Arc::new(Transport(transport()))]), NodeSample::FAMILIES),
        (
            printed([
                Arc::new(Coordinator(coordinator())),
                Arc::new(Archive(ArchiveSample::default())),
                Arc::new(Transport(transport())),
            ]),
            &[CoordinatorSample::FAMILIES, ArchiveSample::FAMILIES].concat(),
        ),
    ] {
        let families = || families.iter().chain(TransportSample::FAMILIES).chain(ProcessFigures::FAMILIES);
        for family in families() {
            let kind = word(family.kind);
            let line = format!("# TYPE {} {kind}", family.name);
            assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
        }
        let exported = text.lines().filter(|line| line.starts_with("# TYPE ")).count();
        assert_eq!(exported, families().count());
    }
}

#[test]
fn worst_links_show_and_buckets_add_up_and_outcomes_of_one_word_are_one_series() {
    let text = printed([Arc::new(Node(node())), Arc::new(Transport(transport()))]);
    for line in [
        "rollhouse_step_seconds_bucket{env=\"CartPole-v1\",le=\"0.001\"} 5",
        "rollhouse_step_seconds_bucket{env=\"CartPole-v1\",le=\"0.01\"} 7",
        "rollhouse_step_seconds_bucket{env=\"CartPole-v1\",le=\"+Inf\"} 8",
        "rollhouse_step_seconds_count{env=\"CartPole-v1\"} 8",
        "rollhouse_step_seconds_sum{env=\"CartPole-v1\"} 0.5",
        "rollhouse_episode_results_total{result=\"win\"} 4",
        "rollhouse_episode_results_total{result=\"draw\"} 2",
        "rollhouse_episode_scores_total 5",
        "rollhouse_episode_score_points -2.5",
        "rollhouse_refusals_total{code=\"forbidden\",peer=\"viewer\"} 2",
        "rollhouse_call_seconds_bucket{request=\"open_pool\",le=\"0.05\"} 1",
        "rollhouse_quic_rtt_seconds{peer=\"node\"} 0.00025",
        "rollhouse_quic_datagram_bytes{peer=\"node\"} 1200",
        "rollhouse_quic_packets_lost_total{peer=\"node\"} 3",
        "rollhouse_quic_handshakes_refused_total{reason=\"unauthenticated\"} 2",
    ] {
        assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
    }
    let series: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("rollhouse_episodes_total{outcome=")).collect();
    let words: Vec<&str> = series.iter().filter_map(|line| line.split('"').nth(1)).collect();
    assert_eq!(words.iter().collect::<std::collections::BTreeSet<_>>().len(), words.len(), "{series:?}");
    let sum: u64 = series.iter().filter_map(|line| line.split(' ').nth(1)?.parse::<u64>().ok()).sum();
    assert_eq!(sum, node().episodes.iter().sum::<u64>());
}

#[test]
fn names_follow_the_rule() {
    for family in all() {
        // Those of a process have the names that every exporter gives them.
        let prefix = if ProcessFigures::FAMILIES.contains(family) { "process_" } else { "rollhouse_" };
        assert!(family.name.starts_with(prefix), "{}", family.name);
        assert_eq!(family.name.ends_with("_total"), family.kind == Kind::Counter, "{}", family.name);
        assert!(family.help.ends_with('.') && !family.help.contains('|'), "{}", family.help);
    }
}

#[test]
fn the_page_of_metrics_lists_each_with_type_labels_and_meaning() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/metrics lies in the workspace");
    let page = std::fs::read_to_string(root.join("docs/metrics.md")).unwrap();
    let listed: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let wanted: Vec<String> = all().map(row).collect();
    for row in &wanted {
        assert!(listed.contains(&row.as_str()), "docs/metrics.md lacks the line\n{row}");
    }
    for row in &listed {
        assert!(
            wanted.iter().any(|wanted| wanted == row),
            "docs/metrics.md lists what is not exported:\n{row}"
        );
    }
    assert_eq!(listed.len(), wanted.len(), "a metric is listed twice");
}

fn all() -> impl Iterator<Item = &'static Family> {
    let cluster = NodeSample::FAMILIES.iter().chain(CoordinatorSample::FAMILIES);
    let cluster = cluster.chain(ArchiveSample::FAMILIES);
    cluster.chain(TransportSample::FAMILIES).chain(ProcessFigures::FAMILIES)
}

fn row(family: &Family) -> String {
    let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
    format!("| `{}` | {} | {} | {} |", family.name, word(family.kind), labels.join(", "), family.help)
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    }
}
