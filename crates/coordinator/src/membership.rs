//! The nodes of the cluster and the state of each.
//!
//! ```text
//! (unknown) -> alive <-> suspect -> lost -> (forgotten)      by silence; each heartbeat makes it alive again
//!              alive, suspect     -> lost                    its host says that its port is closed
//!              alive <-> draining                             until it starts anew, or is told to go on
//! ```
//!
//! A node is known by the name in its certificate. Its boot number tells a restarted node, whose sessions are gone,
//! from one that was cut off and still has them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::limits::{MAX_ENV_ID_BYTES, MAX_ENV_KINDS, MAX_WEIGHED_ENVS};
use rollhouse_core::{NODE_NAME_RULE, is_node_name};
use rollhouse_wire::limits::{MAX_ATTACH_PATH_BYTES, MAX_LABELS, MAX_NAME_BYTES};
use rollhouse_wire::{Heartbeat, Refusal, RefusalCode, Register};

use crate::event::LinkId;
use crate::limits::{
    DOUBT_AFTER, FORGET_AFTER, LOST_AFTER, MAX_ADDRESS_BYTES, MAX_ENVS, MAX_NODE_LANES, MAX_NODE_SESSIONS,
    MAX_NODES, RETRY_AFTER, SUSPECT_AFTER,
};
use crate::member::Member;
use crate::roster::PortQuestion;

/// The nodes, by name and by connection.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    members: BTreeMap<Arc<str>, Member>,
    links: BTreeMap<LinkId, Arc<str>>,
    /// Whether names or addresses have changed since they were last saved.
    changed: bool,
}

/// The registration of a node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) name: Arc<str>,
    /// Whether it is another boot than before: its earlier sessions are gone.
    pub(crate) restarted: bool,
    /// A connection that it no longer uses.
    pub(crate) replaced: Option<LinkId>,
}

/// A heartbeat that was taken in.
#[derive(Debug)]
pub(crate) struct Beat<'a> {
    pub(crate) member: &'a mut Member,
    /// Whether a later heartbeat was heard before: this one tells nothing new.
    pub(crate) outdated: bool,
    /// Whether its changes of sessions were taken in; if not, they are known or do not follow the known version.
    pub(crate) changed: bool,
    /// Whether the node was taken for lost before.
    pub(crate) returned: bool,
}

/// The change of a node's state with time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Lost(Arc<str>),
    Forgotten(Arc<str>),
}

impl Membership {
    /// Takes a node in, or takes it in again.
    ///
    /// Another boot at the same address has taken the place of the earlier one, even if the earlier one was heard of a
    /// short time ago: no two processes have one port.
    ///
    /// # Errors
    /// If a field is out of bounds, the name is in use by another boot that is alive elsewhere, or there are too many
    /// nodes; nothing has changed then.
    pub(crate) fn register(
        &mut self,
        now: Duration,
        link: LinkId,
        register: &Register,
    ) -> Result<Arrival, Refusal> {
        check(register)?;
        let known = self.members.get(register.node.as_str());
        let restarted = known.is_some_and(|m| m.registration.boot != register.boot);
        if let Some(member) = known {
            let silence = member.silence(now);
            let elsewhere = member.registration.address != register.address;
            if restarted && elsewhere && member.link.is_some_and(|l| l != link) && silence < SUSPECT_AFTER {
                let retry = SUSPECT_AFTER.saturating_sub(silence).as_millis();
                return Err(Refusal::busy(
                    format!("a node `{}` is registered and alive: names are unique", register.node),
                    u64::try_from(retry).unwrap_or(u64::MAX).max(1),
                ));
            }
        } else if self.members.len() >= MAX_NODES {
            return Err(Refusal::busy(
                format!("{MAX_NODES} nodes are registered, which is as many as are accepted"),
                RETRY_AFTER.as_millis() as u64,
            ));
        }
        self.drop_other_name(link, &register.node);
        let mut member = Member::new(now, link, register);
        let name = Arc::clone(&member.name);
        let replaced = known_link(&self.members, &name).filter(|&old| old != link);
        let moved = self.members.get(&name).is_none_or(|old| old.registration.address != register.address);
        self.changed |= moved;
        if let Some(old) = self.members.remove(&name) {
            if restarted {
                // Another boot has shown no more than the one before.
                member.results = old.results;
            } else {
                member.go_on(now, old);
            }
        }
        if let Some(old) = replaced {
            self.links.remove(&old);
        }
        self.links.insert(link, Arc::clone(&name));
        self.members.insert(Arc::clone(&name), member);
        Ok(Arrival { name, restarted, replaced })
    }

    /// Takes a heartbeat in.
    ///
    /// # Errors
    /// If no node is registered on that connection, or it tells of too many sessions.
    pub(crate) fn beat(
        &mut self,
        now: Duration,
        link: LinkId,
        heartbeat: &Heartbeat,
    ) -> Result<Beat<'_>, Refusal> {
        let name = self.links.get(&link);
        let member = name.and_then(|name| self.members.get_mut(name)).ok_or_else(|| {
            Refusal::new(RefusalCode::NotFound, "no node is registered on this connection: register first")
        })?;
        let told = heartbeat.changes.sessions.len();
        if member.sessions.view.len() + told > MAX_NODE_SESSIONS {
            return Err(out_of_bounds(
                "sessions",
                (member.sessions.view.len() + told) as u64,
                0,
                MAX_NODE_SESSIONS,
            ));
        }
        weighed("measured", heartbeat.measured.keys())?;
        member.heard = now;
        let returned = std::mem::take(&mut member.lost);
        member.reach.heard();
        let outdated = heartbeat.number <= member.last_heartbeat;
        let mut changed = false;
        if !outdated {
            member.last_heartbeat = heartbeat.number;
            member.load = heartbeat.load;
            member.scales.measure(&heartbeat.measured);
            member.take_unfit(heartbeat.unfit.as_ref());
            member.drain.hear(heartbeat.draining);
            changed = member.sessions.take(&heartbeat.changes);
            member.sessions.take_connecting(&heartbeat.connecting);
        }
        Ok(Beat { member, outdated, changed, returned })
    }

    /// Handles the end of a connection and returns the name of its node. The node keeps its state until it is silent
    /// for too long.
    pub(crate) fn link_lost(&mut self, link: LinkId) -> Option<Arc<str>> {
        let name = self.links.remove(&link)?;
        self.members.get_mut(&name)?.link = None;
        Some(name)
    }

    /// Handles a connection that is ended because its node is not believed any more, and returns the name of the node,
    /// which is lost at once.
    pub(crate) fn link_refused(&mut self, link: LinkId) -> Option<Arc<str>> {
        let name = self.link_lost(link)?;
        self.members.get_mut(&name)?.lost = true;
        Some(name)
    }

    /// Returns the question to a node's host, and its address, when somebody doubts that the node's process lives.
    /// `None` if that was asked a short time ago, or the node is lost anyway.
    pub(crate) fn doubt(&mut self, now: Duration, name: &str) -> Option<(String, PortQuestion)> {
        let member = self.members.get_mut(name).filter(|member| !member.lost)?;
        if !member.reach.ask_port(now) {
            return None;
        }
        let boot = Some(member.registration.boot);
        let asked = PortQuestion { node: Arc::clone(&member.name), boot, at: now };
        Some((member.registration.address.clone(), asked))
    }

    /// Returns the nodes that have been silent for longer than a heartbeat takes and are not lost.
    pub(crate) fn doubtful(&self, now: Duration) -> Vec<Arc<str>> {
        let silent = |member: &&Member| !member.lost && member.silence(now) >= DOUBT_AFTER;
        self.members.values().filter(silent).map(|member| Arc::clone(&member.name)).collect()
    }

    /// Takes in the answer of a node's host that nobody listens at the node's port. Returns `Some` if the node is lost
    /// by that, with the connection that it no longer uses. Anything heard of the node since the question counts for
    /// more. For a process that has shown that it lives all the same, only its connection has ended.
    pub(crate) fn port_closed(&mut self, asked: &PortQuestion) -> Option<Option<LinkId>> {
        let member = self.members.get_mut(&*asked.node)?;
        if member.lost || asked.boot != Some(member.registration.boot) || member.heard > asked.at {
            return None;
        }
        if !member.reach.port_closed(asked.at, member.link.is_some()) {
            return None;
        }
        member.lost = true;
        let link = member.link.take();
        if let Some(link) = link {
            self.links.remove(&link);
        }
        Some(link)
    }

    /// Returns the node that speaks on that connection.
    pub(crate) fn on_link(&self, link: LinkId) -> Option<Arc<str>> {
        self.links.get(&link).cloned()
    }

    /// Returns the nodes that are lost or forgotten now, with the passage of time.
    pub(crate) fn tick(&mut self, now: Duration) -> Vec<Change> {
        let mut changes = Vec::new();
        for member in self.members.values_mut() {
            let silence = member.silence(now);
            if silence >= LOST_AFTER && !member.lost {
                member.lost = true;
                changes.push(Change::Lost(Arc::clone(&member.name)));
            }
            if silence >= FORGET_AFTER {
                changes.push(Change::Forgotten(Arc::clone(&member.name)));
            }
        }
        for change in &changes {
            if let Change::Forgotten(name) = change {
                self.remove(name);
            }
        }
        changes
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let Some(member) = self.members.remove(name) else { return };
        self.changed = true;
        if let Some(link) = member.link {
            self.links.remove(&link);
        }
    }

    /// Returns whether names or addresses have changed since this was asked last.
    pub(crate) const fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.changed, false)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Member> {
        self.members.get(name)
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Member> {
        self.members.get_mut(name)
    }

    /// Returns the nodes by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// Ends the earlier registration of a connection that registers under another name.
    fn drop_other_name(&mut self, link: LinkId, name: &str) {
        if self.links.get(&link).is_some_and(|old| &**old != name) {
            self.link_lost(link);
        }
    }
}

fn known_link(members: &BTreeMap<Arc<str>, Member>, name: &str) -> Option<LinkId> {
    members.get(name).and_then(|member| member.link)
}

fn check(register: &Register) -> Result<(), Refusal> {
    length("node", &register.node, MAX_NAME_BYTES)?;
    if !is_node_name(&register.node) {
        let name = register.node.escape_debug();
        let message = format!("`{name}` is not a node's name; a node's name has {NODE_NAME_RULE}");
        return Err(Refusal::new(RefusalCode::BadRequest, message));
    }
    length("address", &register.address, MAX_ADDRESS_BYTES)?;
    if let Some(attach) = &register.attach {
        length("attach", attach, MAX_ATTACH_PATH_BYTES)?;
    }
    length("program", &register.program, MAX_ADDRESS_BYTES)?;
    if !(1..=MAX_NODE_LANES).contains(&register.capacity) {
        return Err(out_of_bounds("capacity", u64::from(register.capacity), 1, MAX_NODE_LANES as usize));
    }
    if register.labels.len() > MAX_LABELS {
        return Err(out_of_bounds("labels", register.labels.len() as u64, 0, MAX_LABELS));
    }
    for (label, value) in &register.labels {
        length("a label", label, MAX_NAME_BYTES)?;
        length("a label's value", value, MAX_NAME_BYTES)?;
    }
    if register.envs.len() > MAX_ENVS {
        return Err(out_of_bounds("envs", register.envs.len() as u64, 0, MAX_ENVS));
    }
    register.envs.keys().try_for_each(|env| length("an env's id", env, MAX_ENV_ID_BYTES))?;
    if register.kinds.len() > MAX_ENV_KINDS {
        return Err(out_of_bounds("kinds", register.kinds.len() as u64, 0, MAX_ENV_KINDS));
    }
    register.kinds.iter().try_for_each(|kind| length("a kind of envs", kind, MAX_ENV_ID_BYTES + 2))?;
    register.budget.as_ref().map_or(Ok(()), |budget| weighed("budget.envs", budget.envs.keys()))
}

/// Refuses too many envs or kinds of envs by which a node weighs lanes.
fn weighed<'a>(field: &str, mut envs: impl ExactSizeIterator<Item = &'a String>) -> Result<(), Refusal> {
    if envs.len() > MAX_WEIGHED_ENVS {
        return Err(out_of_bounds(field, envs.len() as u64, 0, MAX_WEIGHED_ENVS));
    }
    envs.try_for_each(|env| length(field, env, MAX_ENV_ID_BYTES + 2))
}

/// Refuses an empty or overlong text.
pub(crate) fn length(field: &str, text: &str, most: usize) -> Result<(), Refusal> {
    match text.len() {
        0 => Err(Refusal::new(RefusalCode::BadRequest, format!("{field} is empty"))),
        bytes if bytes > most => Err(Refusal::new(
            RefusalCode::BadRequest,
            format!("{field} has {bytes} bytes, at most {most} allowed"),
        )),
        _ => Ok(()),
    }
}

pub(crate) fn out_of_bounds(field: &str, value: u64, least: usize, most: usize) -> Refusal {
    Refusal::new(RefusalCode::BadRequest, format!("{field} is {value}, must be {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rollhouse_wire::Takes;
    use rollhouse_wire::{NodeLoad, NodeState};

    fn register(boot: u64) -> Register {
        Register {
            node: "a".to_owned(),
            boot,
            address: "127.0.0.1:1".to_owned(),
            attach: None,
            capacity: 64,
            threads: 1,
            labels: BTreeMap::new(),
            envs: BTreeMap::new(),
            kinds: Vec::new(),
            budget: None,
            term: 0,
            seen: None,
            program: "test".to_owned(),
        }
    }

    fn beat(number: u64) -> Heartbeat {
        Heartbeat {
            number,
            load: NodeLoad::default(),
            changes: Default::default(),
            ended: Vec::new(),
            unfit: None,
            draining: false,
            measured: BTreeMap::new(),
            connecting: Vec::new(),
            standings: Vec::new(),
        }
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn with_one() -> Membership {
        let mut members = Membership::default();
        members.register(at(0), LinkId(1), &register(7)).unwrap();
        members
    }

    #[test]
    fn silence_makes_a_node_suspect_then_lost_then_forgotten_and_a_heartbeat_makes_it_alive() {
        let mut members = with_one();
        let state = |members: &Membership, ms| members.get("a").unwrap().state(at(ms));
        assert_eq!(state(&members, 2999), NodeState::Alive);
        assert_eq!(state(&members, 3000), NodeState::Suspect);
        assert_eq!(members.tick(at(4999)), []);
        assert_eq!(members.tick(at(5000)), [Change::Lost("a".into())]);
        assert_eq!(members.tick(at(5250)), [], "it is lost once");
        assert_eq!(state(&members, 5250), NodeState::Lost);
        members.beat(at(6000), LinkId(1), &beat(1)).unwrap();
        assert_eq!(state(&members, 6000), NodeState::Alive);
        let end = at(6000) + FORGET_AFTER;
        assert_eq!(members.tick(end), [Change::Lost("a".into()), Change::Forgotten("a".into())]);
        assert!(members.get("a").is_none());
        assert_eq!(members.beat(end, LinkId(1), &beat(2)).unwrap_err().code, RefusalCode::NotFound);
    }

    #[test]
    fn a_second_boot_of_the_name_waits_until_the_first_is_silent() {
        let mut members = with_one();
        let elsewhere = Register { address: "127.0.0.1:2".to_owned(), ..register(8) };
        let refusal = members.register(at(1000), LinkId(2), &elsewhere).unwrap_err();
        assert_eq!((refusal.code, refusal.retry_after_ms), (RefusalCode::Busy, Some(2000)));
        let arrival = members.register(at(3000), LinkId(2), &elsewhere).unwrap();
        assert_eq!(arrival, Arrival { name: "a".into(), restarted: true, replaced: Some(LinkId(1)) });
        assert!(members.beat(at(3000), LinkId(1), &beat(1)).is_err());
    }

    /// Symptom: a node that was killed and started again was not taken back for up to 3 s, and no lanes were placed on
    /// it. Cause: the coordinator had heard of its earlier boot a moment ago. Fix: its address tells that it is the same.
    #[test]
    fn a_second_boot_of_the_name_at_the_same_address_is_taken_at_once() {
        let mut members = with_one();
        let arrival = members.register(at(1), LinkId(2), &register(8)).unwrap();
        assert_eq!(arrival, Arrival { name: "a".into(), restarted: true, replaced: Some(LinkId(1)) });
        assert!(members.beat(at(2), LinkId(1), &beat(1)).is_err());
    }

    #[test]
    fn a_closed_port_makes_a_node_lost_unless_it_was_heard_of_since_or_has_started_anew() {
        let mut members = with_one();
        let (address, asked) = members.doubt(at(100), "a").unwrap();
        assert_eq!((&*address, asked.boot), ("127.0.0.1:1", Some(7)));
        members.beat(at(150), LinkId(1), &beat(1)).unwrap();
        assert_eq!(members.port_closed(&asked), None, "it was heard of since");
        let (_, asked) = members.doubt(at(400), "a").unwrap();
        assert_eq!(
            members.port_closed(&PortQuestion { boot: Some(6), ..asked.clone() }),
            None,
            "an earlier boot"
        );
        assert_eq!(members.port_closed(&asked), Some(Some(LinkId(1))));
        assert_eq!(members.get("a").unwrap().state(at(400)), NodeState::Lost);
        assert_eq!(members.port_closed(&asked), None, "it is lost once");
        assert_eq!(members.tick(at(5150)), [], "it is lost once");
        assert!(members.beat(at(500), LinkId(1), &beat(2)).is_err(), "its connection has ended");
        let back = members.register(at(600), LinkId(2), &register(7)).unwrap();
        assert_eq!(back, Arrival { name: "a".into(), restarted: false, replaced: None });
        assert_eq!(members.get("a").unwrap().state(at(600)), NodeState::Alive);
    }

    /// Symptom: a node that advertises a port where it does not listen was taken for lost, came back, was given lanes and
    /// taken for lost again, for ever. Fix: its host is believed once of a process; after that such a node is alive, comes
    /// last, and says why, for as long as its host has said so a short time ago.
    #[test]
    fn a_node_that_lives_though_its_port_is_closed_stays_alive_and_comes_last() {
        let mut members = with_one();
        let (_, asked) = members.doubt(at(400), "a").unwrap();
        members.port_closed(&asked).unwrap();
        members.register(at(500), LinkId(2), &register(7)).unwrap();
        let takes = |members: &Membership, now| {
            members.get("a").unwrap().status(at(now), 0).unfit.map(|unfit| unfit.takes)
        };
        assert_eq!(takes(&members, 500), Some(Takes::Last));
        let (address, asked) = members.doubt(at(40_000), "a").unwrap();
        assert_eq!(members.port_closed(&asked), None);
        let status = members.get("a").unwrap().status(at(100_000), 0);
        assert!(status.unfit.unwrap().why.contains(&address));
        assert_eq!(takes(&members, 100_001), None, "it is tried again");
        let (_, asked) = members.doubt(at(100_001), "a").unwrap();
        members.link_lost(LinkId(2));
        assert_eq!(members.port_closed(&asked), Some(None), "nothing speaks for it any more");
        let moved = Register { address: "127.0.0.1:2".to_owned(), ..register(7) };
        members.register(at(100_002), LinkId(3), &moved).unwrap();
        assert_eq!(takes(&members, 100_002), None, "it advertises something else");
    }

    #[test]
    fn a_host_is_asked_about_a_node_now_and_then_however_many_doubt_it() {
        let mut members = with_one();
        let asked = (0..1000).filter(|&ms| members.doubt(at(ms), "a").is_some()).count();
        assert_eq!(asked, 4);
        assert!(members.doubt(at(2000), "b").is_none());
        assert_eq!(members.doubtful(at(1499)), []);
        assert_eq!(members.doubtful(at(1500)), ["a".into()]);
    }

    #[test]
    fn a_second_boot_of_the_name_is_taken_at_once_when_the_first_ones_connection_ended() {
        let mut members = with_one();
        members.link_lost(LinkId(1));
        let arrival = members.register(at(1), LinkId(2), &register(8)).unwrap();
        assert_eq!(arrival, Arrival { name: "a".into(), restarted: true, replaced: None });
    }

    #[test]
    fn the_same_boot_replaces_its_connection_and_stays_draining() {
        let mut members = with_one();
        members.get_mut("a").unwrap().drain.ask();
        let arrival = members.register(at(10), LinkId(2), &register(7)).unwrap();
        assert_eq!(arrival, Arrival { name: "a".into(), restarted: false, replaced: Some(LinkId(1)) });
        assert_eq!(members.get("a").unwrap().state(at(10)), NodeState::Draining);
        assert_eq!(members.get("a").unwrap().takes_sessions(at(10)), None);
    }

    #[test]
    fn a_node_takes_no_new_sessions_before_it_has_told_of_all_it_has() {
        let mut members = Membership::default();
        members.register(at(0), LinkId(1), &Register { term: 1, ..register(7) }).unwrap();
        let takes = |members: &Membership| members.get("a").unwrap().takes_sessions(at(1)).is_some();
        assert!(!takes(&members));
        let told = |number, since, through, more| Heartbeat {
            changes: rollhouse_wire::Changes { since, through, more, ..Default::default() },
            ..beat(number)
        };
        members.beat(at(1), LinkId(1), &told(1, 0, 3, true)).unwrap();
        assert!(!takes(&members));
        // What does not join what is known is not all.
        members.beat(at(1), LinkId(1), &told(2, 5, 6, false)).unwrap();
        assert!(!takes(&members));
        members.beat(at(1), LinkId(1), &told(3, 3, 5, false)).unwrap();
        assert!(takes(&members));
        // It is remembered while it is cut off; another boot tells anew.
        members.register(at(2), LinkId(2), &Register { term: 1, ..register(7) }).unwrap();
        assert!(takes(&members));
    }

    #[test]
    fn a_heartbeat_that_was_overtaken_is_outdated() {
        let mut members = with_one();
        assert!(!members.beat(at(1), LinkId(1), &beat(2)).unwrap().outdated);
        assert!(members.beat(at(2), LinkId(1), &beat(1)).unwrap().outdated);
        assert!(members.beat(at(3), LinkId(1), &beat(2)).unwrap().outdated);
        assert!(!members.beat(at(4), LinkId(1), &beat(3)).unwrap().outdated);
    }

    #[test]
    fn a_registration_out_of_bounds_is_refused_by_field_and_limit() {
        let bad = [
            Register { node: String::new(), ..register(1) },
            Register { node: "n".repeat(MAX_NAME_BYTES + 1), ..register(1) },
            Register { capacity: 0, ..register(1) },
            Register { capacity: MAX_NODE_LANES + 1, ..register(1) },
            Register {
                labels: (0..=MAX_LABELS).map(|i| (i.to_string(), "x".into())).collect(),
                ..register(1)
            },
            Register { attach: Some("p".repeat(MAX_ATTACH_PATH_BYTES + 1)), ..register(1) },
        ];
        let fields = [
            "node is empty",
            "node has 129 bytes",
            "capacity is 0",
            "capacity is",
            "labels is 33",
            "attach has 108 bytes",
        ];
        for (register, field) in bad.iter().zip(fields) {
            let refusal = Membership::default().register(at(0), LinkId(1), register).unwrap_err();
            assert_eq!(refusal.code, RefusalCode::BadRequest);
            assert!(refusal.message.contains(field), "{refusal}");
        }
    }
}
