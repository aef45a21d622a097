//! Carries out faults in the world.

use std::path::Path;
use std::time::Duration;

use rollhouse_core::split_mix64;
use rollhouse_replay::Disk;
use rollhouse_replay::testing::Faults as DiskFaults;

use crate::bug::Bug;
use crate::cast::{DATA, name, spool_dir, store_dir};
use crate::connection::DOUBTED_WITHIN;
use crate::coordinator::Coordinator;
use crate::fault::{Fault, OPERATOR_LOOKS_EVERY};
use crate::network::{Conn, IDLE, Site};
use crate::trainer::Trainer;
use crate::world::{Event, World};

impl World {
    pub(crate) fn fault(&mut self, fault: &Fault) {
        if self.setup.tell {
            eprintln!("{:?} fault: {fault:?}", self.now);
        }
        let name = self.harm(fault);
        *self.record.counted.entry(name).or_default() += 1;
    }

    /// Does the harm, and returns what was done in words.
    fn harm(&mut self, fault: &Fault) -> &'static str {
        match *fault {
            Fault::Kill { site, away } => {
                self.kill(site, away, false);
                "killed"
            }
            Fault::PowerCut { site, away } => {
                self.kill(site, away, true);
                self.cut_power(site);
                "power cut"
            }
            Fault::Drain { node } => {
                self.drain(node);
                "drained"
            }
            Fault::Revoke { trainer } => {
                self.revoke(trainer);
                "token revoked"
            }
            Fault::Restore { back, away } => self.restore(back, away),
            Fault::Pause { site, time } => {
                self.pause(site, time);
                "paused"
            }
            Fault::Unplug { site: Site::Trainer(index), late } => {
                self.trouble.loose.insert(index, late);
                "trainer unplugged"
            }
            Fault::Unplug { site, late } => {
                self.unplug(site, late);
                "unplugged"
            }
            Fault::Jump { site, by } => {
                self.jump(site, by);
                "clock jumped"
            }
            Fault::Wall { node, ahead_ms } => {
                self.set_wall(node, ahead_ms);
                "clock on the wall set"
            }
            Fault::Forge { trainer } => {
                self.forge(trainer);
                "trainer told to forge"
            }
            Fault::Disk { site, faults, full } => {
                self.set_disk(site, faults, full);
                "disk fault"
            }
            Fault::DiskWorks { site } => {
                self.disks[&site].set_faults(self.with_bugs(DiskFaults::default()));
                "disk works again"
            }
            Fault::CutBegins { index } => {
                self.cut(index);
                "partition"
            }
        }
    }

    /// Breaks the connections that a cut crosses.
    fn cut(&mut self, index: usize) {
        let cut = self.traffic.network.cuts[index].clone();
        let crosses = |conn: &Conn| conn.open.contains(&true) && cut.breaks(conn.ends[0].0, conn.ends[1].0);
        let broken = self.traffic.conns.iter().filter(|(_, conn)| crosses(conn)).map(|(&conn, _)| conn);
        for conn in broken.collect::<Vec<_>>() {
            self.lose_conn(conn, self.now + IDLE);
        }
    }

    /// Sets a node's clock on the wall.
    fn set_wall(&mut self, node: usize, ahead_ms: i64) {
        self.walls[node] = ahead_ms;
        if let Some(node) = &mut self.processes.nodes[node] {
            node.set_wall(ahead_ms);
        }
    }

    /// Makes a disk faulty, and soon full if it is to be.
    fn set_disk(&self, site: Site, faults: DiskFaults, full: bool) {
        let disk = &self.disks[&site];
        let capacity = full.then(|| disk.used() + 100);
        disk.set_faults(self.with_bugs(DiskFaults { capacity, ..faults }));
    }

    /// Has a trainer make a request that it may not make.
    fn forge(&mut self, trainer: usize) {
        if let Some(mut process) = self.processes.trainers[trainer].take() {
            self.with_context(Site::Trainer(trainer), |ctx| process.forge(ctx));
            self.processes.trainers[trainer] = Some(process);
        }
    }

    /// Ends a process, and its host as well if it is `silent` from then on.
    fn kill(&mut self, site: Site, away: Duration, silent: bool) {
        let life = self.sites.entry(site).or_default();
        if !life.running {
            return;
        }
        (life.running, life.silent) = (false, silent);
        let number = life.number;
        match site {
            Site::Coordinator => self.processes.coordinator = None,
            Site::Node(index) => self.processes.nodes[index] = None,
            Site::Trainer(index) => {
                self.forgets(index);
                if let Some(pool) = self.processes.trainers[index].take().and_then(|trainer| trainer.pool()) {
                    self.ledger.owners.gives_up_pool(pool);
                }
            }
        }
        let mut told = Vec::new();
        for (&conn, known) in &mut self.traffic.conns {
            for end in 0..2 {
                if known.ends[end] == (site, number) && known.open[end] {
                    known.open[end] = false;
                    told.push((conn, end == 0));
                }
            }
        }
        for (conn, second) in told {
            // Its host tells who dialled it, unless that is filtered on the way, or it is back before anybody asks.
            let dialler = self.traffic.conns[&conn].ends[0].0;
            if !second
                && away > DOUBTED_WITHIN
                && !(self.setup.kinds.network && self.random.chance(300))
                && let Some(at) = self.host_says(dialler, site)
            {
                self.at(at, Event::PortClosed { conn });
                continue;
            }
            // Silence is noticed late, and a process that knows nothing of a connection says so when it is back.
            let notices =
                if self.random.chance(500) { IDLE } else { IDLE.min(away + Duration::from_millis(100)) };
            self.at(self.now + notices, Event::ConnLost { conn, second });
        }
        self.at(self.now + away, Event::Start(site));
    }

    /// Ends the coordinator and gives its folder a term that it has had before. Returns what was done in words.
    fn restore(&mut self, back: u64, away: Duration) -> &'static str {
        self.kill(Site::Coordinator, away, false);
        let disk = &self.disks[&Site::Coordinator];
        let dir = Path::new(DATA);
        let names = disk.list(dir).unwrap_or_default();
        let terms = names.iter().filter_map(|name| name.strip_prefix("term-")?.parse::<u64>().ok());
        let newest = terms.max().expect("a coordinator has started there");
        for name in names.iter().filter(|name| name.starts_with("term-")) {
            disk.remove(&dir.join(name)).expect("worlds with restores have no faults of disks");
        }
        disk.sync_dir(dir).expect("worlds with restores have no faults of disks");
        disk.write(&dir.join(format!("term-{}", newest.saturating_sub(back))), Vec::new());
        self.ledger.restored();
        "folder restored"
    }

    /// Has the operator look at the coordinator's status, and start it with the term that it names.
    pub(crate) fn operate(&mut self) {
        let least = self.processes.coordinator.as_ref().and_then(Coordinator::least_term);
        if let Some(least) = least {
            *self.record.counted.entry("coordinator was behind").or_default() += 1;
            self.trouble.least_term = least;
            self.kill(Site::Coordinator, Duration::from_millis(300), false);
        }
        self.at(self.now + OPERATOR_LOOKS_EVERY, Event::Operator);
    }

    /// Asks the coordinator, if it is there, to drain a node, as an operator does.
    fn drain(&mut self, node: usize) {
        if let Some(mut coordinator) = self.processes.coordinator.take() {
            self.with_context(Site::Coordinator, |ctx| coordinator.drain(name(node), ctx));
            self.processes.coordinator = Some(coordinator);
        }
    }

    /// Revokes the token of a trainer's owner; the trainer and those that share the token get another.
    fn revoke(&mut self, trainer: usize) {
        self.ledger.owners.revoke(trainer);
    }

    /// Takes away what the disk did not have; a part of it may be there all the same.
    fn cut_power(&mut self, site: Site) {
        let disk = self.disks[&site].clone();
        match site {
            Site::Coordinator => self.ledger.check_store(&disk.after_power_cut(|_, _| 0), &store_dir()),
            Site::Node(index) => {
                self.ledger.check_spool(index, &disk.after_power_cut(|_, _| 0), &spool_dir())
            }
            Site::Trainer(_) => {}
        }
        let draw = self.random.bits();
        let left = disk.after_power_cut(|path, unsynced| {
            let word = split_mix64(draw ^ path.as_os_str().len() as u64);
            if word & 1 == 0 { 0 } else { (word >> 1) as usize % (unsynced + 1) }
        });
        left.set_faults(self.with_bugs(DiskFaults::default()));
        self.disks.insert(site, left);
    }

    /// Returns a disk's faults together with those of a program that forgets to sync.
    pub(crate) fn with_bugs(&self, faults: DiskFaults) -> DiskFaults {
        let (pretend_syncs, pretend_dir_syncs) = match self.setup.bug {
            Some(Bug::StoreAcknowledgesBeforeSync) => (Some("/store/"), None),
            Some(Bug::StoreForgetsToSyncNames) => (None, Some("/store/")),
            Some(Bug::SpoolAcknowledgesBeforeSync) => (Some("/spool/"), None),
            _ => (None, None),
        };
        DiskFaults { pretend_syncs, pretend_dir_syncs, ..faults }
    }

    fn pause(&mut self, site: Site, time: Duration) {
        let until = self.now + time;
        let life = self.sites.entry(site).or_default();
        life.paused_until = life.paused_until.max(until);
        let number = life.number;
        if time < IDLE {
            return;
        }
        let of_it = |conn: &Conn| conn.ends.contains(&(site, number)) && conn.open.contains(&true);
        let silent = self.traffic.conns.iter().filter(|(_, conn)| of_it(conn)).map(|(&conn, _)| conn);
        for conn in silent.collect::<Vec<_>>() {
            self.lose_conn(conn, self.now + IDLE);
        }
    }

    /// Takes a process's connections away. Their other ends notice later, and what is under way arrives.
    pub(crate) fn unplug(&mut self, site: Site, late: Duration) {
        let number = self.life(site).number;
        let end = |conn: &Conn| (0..2).find(|&end| conn.ends[end] == (site, number) && conn.open[end]);
        let own: Vec<_> =
            self.traffic.conns.iter().filter_map(|(&conn, known)| Some((conn, end(known)?))).collect();
        for (conn, end) in own {
            self.delay(conn, late);
            let now = self.now;
            self.at(now, Event::ConnLost { conn, second: end == 1 });
            self.at(now + IDLE, Event::ConnLost { conn, second: end == 0 });
        }
    }

    /// Forgets what a trainer kept of its lanes for the case that they have to go on elsewhere.
    fn forgets(&mut self, index: usize) {
        if let Some((pool, since)) = self.processes.trainers[index].as_ref().and_then(Trainer::keeps) {
            self.ledger.forgets(pool, since);
        }
    }

    fn jump(&mut self, site: Site, by: Duration) {
        if let Site::Trainer(index) = site {
            self.forgets(index);
        }
        let now = self.now;
        let life = self.sites.entry(site).or_default();
        life.jumped += by;
        life.wakes = Some(now);
        let life = life.number;
        self.at(now, Event::Wake { site, life });
    }
}
