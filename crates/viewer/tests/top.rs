//! A cluster on the screen, and what keys do to it.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeMap;
use std::time::Duration;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use rollhouse_core::{RunId, split_mix64};
use rollhouse_viewer::{Key, Look, Sample, Top, TopAsk, draw_top};
use rollhouse_wire::{
    ClusterStatus, Incarnation, NodeLoad, NodeState, NodeStatus, SessionCounts, SessionId, SessionReport,
    SessionStatus, StoreStatus,
};

fn node(name: &str, state: NodeState, lanes: u32, steps: u64) -> NodeStatus {
    NodeStatus {
        node: name.into(),
        state,
        address: "10.0.0.1:7610".into(),
        capacity: 512,
        threads: 4,
        labels: BTreeMap::new(),
        sessions: lanes / 64,
        silent_ms: 300,
        load: NodeLoad { lanes, queued: 2, steps, spool_bytes: 1_250_000, ..NodeLoad::default() },
        program: "rollhouse 0.1.0".into(),
        kinds: Vec::new(),
        budget: None,
        unfit: None,
    }
}

fn session(index: u32, node: &str, env: &str, steps: u64, episodes: u64) -> SessionStatus {
    let report = SessionReport {
        session: SessionId { pool: RunId::from_u128(7 << 64), index },
        incarnation: Incarnation::default(),
        owner: "ada".into(),
        env: env.into(),
        first_lane: 64 * index,
        lanes: 64,
        pool_lanes: 192,
        replaces: false,
        launching: false,
        attached: Some(true),
        transport: Some("quic".into()),
        done: SessionCounts {
            steps,
            episodes,
            return_sum: f64::from(20 + index) * episodes as f64,
            interrupted: 0,
            ..SessionCounts::default()
        },
        replay: None,
        plays: None,
    };
    SessionStatus { node: node.into(), report, connecting: 0 }
}

/// The cluster `seconds` after the first look.
fn sample(seconds: u64) -> Sample {
    let nodes = [(NodeState::Alive, 2), (NodeState::Lost, 1)];
    let status = ClusterStatus {
        program: "rollhouse 0.1.0".into(),
        term: 3,
        uptime_s: 7500 + seconds,
        nodes: nodes.into(),
        capacity: 1024,
        lanes: 192,
        pools: 1,
        sessions: 3,
        steps: 1_000_000 + 123_000 * seconds,
        episodes: 5000 + 50 * seconds,
        transports: BTreeMap::new(),
        store: StoreStatus {
            segments: 12,
            bytes: 23_400_000 + 10_000 * seconds,
            set_aside: 2,
            ..StoreStatus::default()
        },
        behind: None,
    };
    let nodes = vec![
        node("anna", NodeState::Alive, 128, 600_000 + 100_000 * seconds),
        node("bert", NodeState::Alive, 64, 400_000 + 23_000 * seconds),
        node("carl\u{1b}[2J", NodeState::Lost, 0, 7),
    ];
    let sessions = vec![
        session(0, "anna", "CartPole-v1", 300_000 + 60_000 * seconds, 3000 + 30 * seconds),
        session(1, "anna", "Pendulum-v1", 300_000 + 40_000 * seconds, 1000 + 20 * seconds),
        session(2, "bert", "CartPole-v1", 400_000 + 23_000 * seconds, 1000),
    ];
    Sample { at: Duration::from_secs(10 + seconds), status, nodes: (nodes, 0), sessions: (sessions, 4) }
}

fn looked_twice() -> Top {
    let mut top = Top::new("rollhouse://host:7600");
    top.set_height(10);
    top.take(sample(0));
    top.take(sample(2));
    top
}

fn press(top: &mut Top, keys: impl IntoIterator<Item = Key>) -> Option<TopAsk> {
    keys.into_iter().filter_map(|key| top.on(key)).last()
}

fn screen(top: &Top) -> String {
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
    draw_top(top, Look::Plain, &mut buffer);
    let row = |y| (0..80).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..24).map(row).collect::<Vec<_>>().join("\n")
}

fn assert_screen(top: &Top, wanted: &str) {
    let found = screen(top);
    let rows = |text: &str| text.trim_matches('\n').lines().map(str::to_owned).collect::<Vec<_>>();
    let without_gap: Vec<String> = rows(&found).into_iter().filter(|row| !row.is_empty()).collect();
    assert_eq!(without_gap.join("\n"), rows(wanted).join("\n"), "\n{found}");
}

#[test]
fn nodes_are_shown_with_what_they_did_a_second() {
    assert_screen(&looked_twice(), NODES);
}

#[test]
fn sessions_are_shown_sorted_by_their_return() {
    let mut top = looked_twice();
    press(&mut top, [Key::Tab, Key::Left, Key::Left]);
    assert_screen(&top, SESSIONS);
    press(
        &mut top,
        [Key::Char('/')].into_iter().chain("cart anna".chars().map(Key::Char)).chain([Key::Enter]),
    );
    let found = screen(&top);
    assert!(
        found.contains("filter: cart anna") && !found.contains("Pendulum") && !found.contains("bert"),
        "{found}"
    );
}

#[test]
fn a_node_is_drained_after_a_question_and_not_without() {
    let mut top = looked_twice();
    assert_eq!(press(&mut top, [Key::Down, Key::Char('d')]), None);
    assert!(screen(&top).contains("drain bert: it takes no new sessions"), "{}", screen(&top));
    assert_eq!(press(&mut top, [Key::Char('n')]), None);
    assert_eq!(press(&mut top, [Key::Char('d'), Key::Enter]), None, "anything but y is no");
    let asked = press(&mut top, [Key::Char('d'), Key::Char('y')]);
    assert_eq!(asked, Some(TopAsk::Drain("bert".into())));
    assert_eq!(press(&mut top, [Key::Char('u'), Key::Char('y')]), Some(TopAsk::Undrain("bert".into())));
    // Of a session it is the node on which it runs.
    press(&mut top, [Key::Tab, Key::End]);
    assert_eq!(press(&mut top, [Key::Char('d'), Key::Char('y')]), Some(TopAsk::Drain("bert".into())));
    top.say("bert was not asked: role viewer may not\u{1b}");
    assert!(screen(&top).contains("role viewer may not\\u{1b}"));
}

#[test]
fn a_row_that_is_chosen_stays_chosen_while_the_order_changes() {
    let mut top = looked_twice();
    press(&mut top, [Key::Down, Key::Right, Key::Right, Key::Right, Key::Char('r')]);
    top.take(sample(4));
    assert_eq!(press(&mut top, [Key::Char('d'), Key::Char('y')]), Some(TopAsk::Drain("bert".into())));
}

#[test]
fn a_coordinator_that_is_away_is_said_and_rates_begin_anew_when_it_is_back() {
    let mut top = Top::new("here");
    top.lost("nobody answers", Duration::from_secs(1));
    assert!(screen(&top).contains("away") && screen(&top).contains("nobody answers"));
    let mut top = looked_twice();
    top.lost("nobody answers\u{1b}", Duration::from_secs(13));
    let away = screen(&top);
    assert!(away.contains("what is shown is old: nobody answers\\u{1b}") && away.contains("anna"), "{away}");
    assert!(away.contains("steps/s -"), "{away}");
    // It counts anew: what is less than before is no rate.
    let mut back = sample(0);
    (back.at, back.status.steps) = (Duration::from_secs(30), 5);
    top.take(back);
    let back = screen(&top);
    assert!(back.contains("the coordinator is back") && back.contains("steps/s -"), "{back}");
}

#[test]
fn whatever_is_pressed_on_whatever_screen_nothing_panics() {
    let keys = [Key::Up, Key::Down, Key::PageUp, Key::PageDown, Key::Home, Key::End, Key::Left, Key::Right];
    let more = [Key::Tab, Key::Enter, Key::Backspace, Key::Escape, Key::Ctrl('l')];
    let keys: Vec<Key> = keys.into_iter().chain(more).chain("dur/?yn<>é".chars().map(Key::Char)).collect();
    let mut top = Top::new("here");
    let mut seed = 5;
    for turn in 0..2000 {
        seed = split_mix64(seed);
        top.on(keys[(seed >> 8) as usize % keys.len()]);
        match seed % 7 {
            0 => top.take(sample(turn)),
            1 => top.lost("away", Duration::from_secs(turn)),
            2 => {
                let mut none = sample(turn);
                (none.nodes, none.sessions) = ((Vec::new(), 0), (Vec::new(), 0));
                top.take(none);
            }
            _ => {}
        }
        let area = Rect::new(0, 0, (seed >> 20) as u16 % 200 + 1, (seed >> 40) as u16 % 60 + 1);
        top.set_height(usize::from(area.height));
        for look in [Look::Colour, Look::Plain] {
            let mut buffer = Buffer::empty(area);
            draw_top(&top, look, &mut buffer);
            assert!(buffer.content().iter().all(|cell| !cell.symbol().contains('\u{1b}')));
        }
    }
}

const NODES: &str = "
cluster rollhouse://host:7600  up 2 h 5 min, term 3, rollhouse 0.1.0
nodes 2 alive, 1 lost   lanes 192 of 1,024   sessions 3 in 1 pool
steps/s 123k     episodes/s 50       mean return 20.40     batches waiting 6
store 23.4MB in 12 segments, +10.0kB/s   to ship 3.75MB   set aside 2
nodes
NODE↑          STATE         LANES  SESSIONS  STEPS/S  WAITING  TO SHIP  REPORT
anna           alive       128/512         2     100k        2    1.25M   0.3 s
bert           alive        64/512         1    23.0k        2    1.25M   0.3 s
carl\\u{1b}[2J  lost          0/512         0        0        2    1.25M   0.3 s
 ? help  q quit  Tab nodes/sessions  ↑↓ choose  ←→ r sort  / filter  d drain
";
const SESSIONS: &str = "
cluster rollhouse://host:7600  up 2 h 5 min, term 3, rollhouse 0.1.0
nodes 2 alive, 1 lost   lanes 192 of 1,024   sessions 3 in 1 pool
steps/s 123k     episodes/s 50       mean return 20.40     batches waiting 6
store 23.4MB in 12 segments, +10.0kB/s   to ship 3.75MB   set aside 2
sessions
SESSION     NODE       ENV           OWNER     LANES  STEPS/S  EPIS/S  RETURN↓
00000000/2  bert       CartPole-v1   ada          64    23.0k       0       22
00000000/1  anna       Pendulum-v1   ada          64    40.0k      20       21
00000000/0  anna       CartPole-v1   ada          64    60.0k      30       20
4 more do not fit into a message
 ? help  q quit  Tab nodes/sessions  ↑↓ choose  ←→ r sort  / filter  d drain
";
