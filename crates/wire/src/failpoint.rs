//! Places at which a process can be made to die, for tests of what is left behind.

/// Ends this process as SIGKILL does if `ROLLHOUSE_FAILPOINT` names this place. Only in builds with debug assertions;
/// in others it is nothing, and the variable is not read.
#[inline]
pub fn failpoint(name: &'static str) {
    #[cfg(debug_assertions)]
    debug::reached(name);
    #[cfg(not(debug_assertions))]
    let _ = name;
}

#[cfg(debug_assertions)]
mod debug {
    use std::sync::OnceLock;

    use rustix::process::{Signal, getpid, kill_process};

    /// The place at which to die, read once.
    static WANTED: OnceLock<Option<String>> = OnceLock::new();

    pub(super) fn reached(name: &str) {
        let wanted = WANTED.get_or_init(|| std::env::var("ROLLHOUSE_FAILPOINT").ok());
        if wanted.as_deref() == Some(name) {
            // Nothing of ours runs after it. A kernel that does not let a process kill itself is not known.
            let _killed = kill_process(getpid(), Signal::KILL);
        }
    }
}
