//! Messages to the manager that started a service, in systemd's protocol: datagrams to the socket in `$NOTIFY_SOCKET`.
//! Without that variable nothing is sent.

use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// The manager that started this process, if there is one.
#[derive(Debug)]
pub(crate) struct Manager {
    told: Option<(UnixDatagram, SocketAddr)>,
    /// Interval at which the manager wants to hear that the process lives; it restarts the process otherwise.
    pulse: Option<Duration>,
    /// The time at which it last heard so.
    last: Instant,
}

impl Manager {
    /// Returns the manager that the environment names.
    pub(crate) fn of_environment() -> Self {
        let variable = |name| std::env::var(name).ok();
        // Set for children, too, of which it says whom it means.
        let ours = variable("WATCHDOG_PID").is_none_or(|id| id == std::process::id().to_string());
        let every = variable("WATCHDOG_USEC").filter(|_| ours).and_then(|text| text.parse().ok());
        Self::at(variable("NOTIFY_SOCKET").as_deref(), every.map(Duration::from_micros))
    }

    fn at(socket: Option<&str>, watchdog: Option<Duration>) -> Self {
        let told = socket.and_then(|path| Some((UnixDatagram::unbound().ok()?, address(path)?)));
        // Half of the time it waits, as its manual asks for.
        Self { told, pulse: watchdog.map(|every| every / 2), last: Instant::now() }
    }

    /// Tells the manager that the process serves.
    pub(crate) fn ready(&self) {
        self.tell("READY=1");
    }

    /// Tells the manager that the process ends.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// Tells the manager that the process makes progress, if `lives` says so; `lives` is called when it is time to
    /// tell.
    pub(crate) fn beat(&mut self, lives: impl FnOnce() -> bool) {
        if self.pulse.is_some_and(|every| self.last.elapsed() >= every) && lives() {
            self.tell("WATCHDOG=1");
            self.last = Instant::now();
        }
    }

    fn tell(&self, words: &str) {
        if let Some((socket, address)) = &self.told {
            // A manager that is gone needs no words.
            let _told = socket.send_to_addr(words.as_bytes(), address);
        }
    }
}

/// Reads an address: a path, or behind `@` a name that is in no folder.
fn address(path: &str) -> Option<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = path.strip_prefix('@') {
        use std::os::linux::net::SocketAddrExt;
        return SocketAddr::from_abstract_name(name).ok();
    }
    SocketAddr::from_pathname(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_told_of_start_life_and_end_and_not_of_a_life_without_progress() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("manager");
        let manager = UnixDatagram::bind(&path).unwrap();
        let mut service = Manager::at(path.to_str(), Some(Duration::ZERO));
        service.ready();
        service.beat(|| false);
        service.beat(|| true);
        service.stopping();
        let mut heard = [0; 64];
        for words in ["READY=1", "WATCHDOG=1", "STOPPING=1"] {
            let length = manager.recv(&mut heard).unwrap();
            assert_eq!(&heard[..length], words.as_bytes());
        }
        let mut alone = Manager::at(None, None);
        alone.ready();
        alone.beat(|| panic!("nobody asked"));
    }
}
