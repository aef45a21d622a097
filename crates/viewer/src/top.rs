//! A cluster as it is now: its nodes and sessions, and how fast they are.

mod rates;
mod screen;
mod skin;

use std::collections::VecDeque;
use std::time::Duration;

use rollhouse_wire::{ClusterStatus, NodeState, NodeStatus, SessionStatus};

use crate::keys::Key;
use crate::numbers::plain;
pub use screen::draw_top;
pub use skin::{Asker, watch_cluster};

use rates::Rates;

/// A sample: what a coordinator said at one moment.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Time of the sample, on a clock that only goes forward.
    pub at: Duration,
    /// The cluster at a glance.
    pub status: ClusterStatus,
    /// Nodes of the cluster, and how many more there are.
    pub nodes: (Vec<NodeStatus>, u32),
    /// Open sessions of the cluster, and how many more there are.
    pub sessions: (Vec<SessionStatus>, u32),
}

/// The screen of a cluster. It knows nothing of a terminal or a network: it is told what was heard and which keys were
/// pressed.
#[derive(Debug)]
pub struct Top {
    /// Name of the cluster.
    place: String,
    sample: Option<Sample>,
    /// Samples before the last one, the oldest first: nodes report once a second what they did, so that two samples in
    /// a row may say the same.
    before: VecDeque<Sample>,
    /// Whether the coordinator could not be heard since the last sample.
    is_gap: bool,
    rates: Rates,
    shows: Shows,
    sort: [(usize, bool); 2],
    filter: String,
    types_filter: bool,
    list: List,
    question: Option<TopAsk>,
    shows_help: bool,
    message: Option<String>,
    /// Reason why the coordinator could not be heard, and since when.
    away: Option<(String, Duration)>,
}

/// The place in the list of rows.
#[derive(Debug)]
struct List {
    /// Name of the row that is chosen: it stays chosen while rows come and go.
    chosen: Option<String>,
    /// The first row on the screen.
    first: usize,
    /// Number of rows on the screen.
    height: usize,
}

/// A request of the screen of a cluster to its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TopAsk {
    /// End the viewer.
    Quit,
    /// Drain a node: it takes no new sessions and ends when its last session has.
    Drain(String),
    /// Take the draining of a node back.
    Undrain(String),
}

/// The kind of rows that are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shows {
    Nodes,
    Sessions,
}

/// A row: its name, its cells, and the value by which each column sorts it.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) cells: Vec<String>,
    pub(crate) keys: Vec<SortBy>,
    /// Whether something is wrong with what the row shows.
    pub(crate) is_bad: bool,
}

/// A value by which a row is sorted.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub(crate) enum SortBy {
    Number(f64),
    Text(String),
}

impl Top {
    /// Makes the screen of a cluster that is called `place`, before anything was heard of it.
    pub fn new(place: &str) -> Self {
        Self {
            place: plain(place),
            sample: None,
            before: VecDeque::new(),
            is_gap: false,
            rates: Rates::default(),
            shows: Shows::Nodes,
            sort: [(0, false); 2],
            filter: String::new(),
            types_filter: false,
            list: List { chosen: None, first: 0, height: 1 },
            question: None,
            shows_help: false,
            message: None,
            away: None,
        }
    }

    /// Takes a sample of what the coordinator said.
    pub fn take(&mut self, sample: Sample) {
        let last = self.sample.take();
        if !std::mem::take(&mut self.is_gap) {
            self.before.extend(last);
        }
        if self.before.len() > RATE_SAMPLES {
            self.before.pop_front();
        }
        self.rates.take(self.before.front(), &sample);
        if self.away.take().is_some() {
            self.message = Some("the coordinator is back".into());
        }
        self.sample = Some(sample);
        self.hold_chosen();
    }

    /// Notes that the coordinator could not be heard at a moment, and why. The last sample stays on the screen.
    pub fn lost(&mut self, why: &str, at: Duration) {
        let since = self.away.as_ref().map_or(at, |(_, since)| *since);
        self.away = Some((plain(why), since));
        // What is measured across the gap would be no rate.
        self.rates.forget();
        self.before.clear();
        self.is_gap = true;
    }

    /// Shows a message about the result of what was asked for.
    pub fn say(&mut self, message: &str) {
        self.message = Some(plain(message));
    }

    /// Sets how many rows fit.
    pub fn set_height(&mut self, height: usize) {
        self.list.height = height.max(1);
        self.hold_chosen();
    }

    /// Handles a key; the caller carries out what it returns.
    pub fn on(&mut self, key: Key) -> Option<TopAsk> {
        if key == Key::Ctrl('c') {
            return Some(TopAsk::Quit);
        }
        if let Some(asked) = self.question.take() {
            // Anything else is no.
            return Some(asked).filter(|_| matches!(key, Key::Char('y' | 'Y')));
        }
        self.message = None;
        if self.types_filter {
            self.type_in(key);
            return None;
        }
        if std::mem::take(&mut self.shows_help) {
            return None;
        }
        match key {
            Key::Char('q') => return Some(TopAsk::Quit),
            Key::Escape if self.filter.is_empty() => return Some(TopAsk::Quit),
            Key::Escape => self.filter.clear(),
            Key::Char('?') => self.shows_help = true,
            Key::Char('/') => self.types_filter = true,
            Key::Tab | Key::BackTab => self.turn_over(),
            Key::Right | Key::Char('>') => self.sort_by(1),
            Key::Left | Key::Char('<') => self.sort_by(self.columns() - 1),
            Key::Char('r') => self.sort_mut().1 ^= true,
            Key::Down => self.move_by(1),
            Key::Up => self.move_by(-1),
            Key::PageDown => self.move_by(self.list.height as isize),
            Key::PageUp => self.move_by(-(self.list.height as isize)),
            Key::Home => self.move_by(isize::MIN),
            Key::End => self.move_by(isize::MAX),
            Key::Char('d') => self.question = self.node_of_chosen(TopAsk::Drain),
            Key::Char('u') => self.question = self.node_of_chosen(TopAsk::Undrain),
            _ => {}
        }
        self.hold_chosen();
        None
    }

    fn type_in(&mut self, key: Key) {
        match key {
            Key::Enter => self.types_filter = false,
            Key::Escape => {
                self.filter.clear();
                self.types_filter = false;
            }
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Char(char) if !char.is_control() && self.filter.chars().count() < MAX_TYPED => {
                self.filter.push(char);
            }
            _ => {}
        }
        self.hold_chosen();
    }

    fn turn_over(&mut self) {
        self.shows = match self.shows {
            Shows::Nodes => Shows::Sessions,
            Shows::Sessions => Shows::Nodes,
        };
        (self.list.chosen, self.list.first) = (None, 0);
    }

    fn sort_by(&mut self, on: usize) {
        let columns = self.columns();
        let sort = self.sort_mut();
        // Of numbers the largest are looked for.
        sort.0 = (sort.0 + on) % columns;
        sort.1 = sort.0 > 0;
    }

    const fn sort_mut(&mut self) -> &mut (usize, bool) {
        &mut self.sort[self.shows as usize]
    }

    /// Returns the column by which rows are sorted, and whether the largest are first.
    pub(crate) const fn sort(&self) -> (usize, bool) {
        self.sort[self.shows as usize]
    }

    fn columns(&self) -> usize {
        screen::columns_of(self.shows).len()
    }

    /// Asks for something to be done to the chosen node, or to the node of the chosen session.
    fn node_of_chosen(&mut self, ask: impl FnOnce(String) -> TopAsk) -> Option<TopAsk> {
        let Some(chosen) = self.list.chosen.clone() else {
            self.message = Some("no node is chosen".into());
            return None;
        };
        let node = match self.shows {
            Shows::Nodes => Some(chosen),
            Shows::Sessions => self.sample.as_ref().and_then(|sample| {
                let of = sample.sessions.0.iter().find(|one| one.report.session.to_string() == chosen);
                of.map(|one| one.node.clone())
            }),
        };
        node.map(ask)
    }

    /// Returns the rows that the filter lets through, in their order.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let Some(sample) = &self.sample else { return Vec::new() };
        let mut rows: Vec<Row> = match self.shows {
            Shows::Nodes => sample.nodes.0.iter().map(|node| self.node(node)).collect(),
            Shows::Sessions => sample.sessions.0.iter().map(|session| self.session(session)).collect(),
        };
        let words: Vec<String> = self.filter.split_whitespace().map(str::to_lowercase).collect();
        rows.retain(|row| {
            let has = |word: &String| row.cells.iter().any(|cell| cell.to_lowercase().contains(word));
            words.iter().all(has)
        });
        let (column, descending) = self.sort();
        rows.sort_by(|a, b| {
            let order = a.keys[column].partial_cmp(&b.keys[column]).unwrap_or(std::cmp::Ordering::Equal);
            let order = if descending { order.reverse() } else { order };
            order.then_with(|| a.name.cmp(&b.name))
        });
        rows
    }

    fn node(&self, node: &NodeStatus) -> Row {
        let load = &node.load;
        let steps = self.rates.node(&node.node);
        let number = |value: f64| SortBy::Number(value);
        Row {
            name: node.node.clone(),
            cells: vec![
                plain(&node.node),
                node.state.word().to_owned(),
                format!("{}/{}", load.lanes, node.capacity),
                node.sessions.to_string(),
                screen::rate(steps),
                load.queued.to_string(),
                screen::si(load.spool_bytes as f64),
                format!("{:.1} s", node.silent_ms as f64 / 1000.0),
            ],
            keys: vec![
                SortBy::Text(node.node.clone()),
                number(f64::from(node.state as u8)),
                number(f64::from(load.lanes)),
                number(f64::from(node.sessions)),
                number(steps.unwrap_or(-1.0)),
                number(f64::from(load.queued)),
                number(load.spool_bytes as f64),
                number(node.silent_ms as f64),
            ],
            is_bad: matches!(node.state, NodeState::Suspect | NodeState::Lost) || node.unfit.is_some(),
        }
    }

    fn session(&self, session: &SessionStatus) -> Row {
        let SessionStatus { node, report, .. } = session;
        let name = report.session.to_string();
        let (steps, episodes, mean) = self.rates.session(&name);
        let mean = mean.or_else(|| rates::mean(&report.done));
        let number = |value: f64| SortBy::Number(value);
        let plays = report.plays.as_ref().map(ToString::to_string).unwrap_or_default();
        let plays = plain(&plays);
        Row {
            cells: vec![
                plain(&name),
                plain(node),
                plain(&report.env),
                plain(&report.owner),
                report.lanes.to_string(),
                screen::rate(steps),
                screen::rate(episodes),
                mean.map_or_else(|| "-".into(), crate::numbers::real),
                plays.clone(),
            ],
            keys: vec![
                SortBy::Text(name.clone()),
                SortBy::Text(node.clone()),
                SortBy::Text(report.env.to_string()),
                SortBy::Text(report.owner.clone()),
                number(f64::from(report.lanes)),
                number(steps.unwrap_or(-1.0)),
                number(episodes.unwrap_or(-1.0)),
                number(mean.unwrap_or(f64::NEG_INFINITY)),
                SortBy::Text(plays),
            ],
            is_bad: report.attached == Some(false),
            name,
        }
    }

    /// Returns the place of the chosen row, or of the first if it is gone.
    fn place_of_chosen(&self, rows: &[Row]) -> usize {
        rows.iter().position(|row| Some(&row.name) == self.list.chosen.as_ref()).unwrap_or(0)
    }

    fn move_by(&mut self, rows: isize) {
        let all = self.rows();
        let last = all.len().saturating_sub(1);
        let at = self.place_of_chosen(&all).saturating_add_signed(rows).min(last);
        self.list.chosen = all.get(at).map(|row| row.name.clone());
    }

    /// Ensures that a row is chosen, if there is any, and is on the screen.
    fn hold_chosen(&mut self) {
        let all = self.rows();
        let at = self.place_of_chosen(&all);
        self.list.chosen = all.get(at).map(|row| row.name.clone());
        self.list.first = self.list.first.min(at).max((at + 1).saturating_sub(self.list.height));
        self.list.first = self.list.first.min(all.len().saturating_sub(self.list.height));
    }
}

/// Samples before the last over which rates are measured.
const RATE_SAMPLES: usize = 5;
/// Most characters that can be typed.
const MAX_TYPED: usize = 40;
