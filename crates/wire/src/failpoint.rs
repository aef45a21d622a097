//! Places at which tests make a process die or panic, to see what is left behind and what goes on.

/// Ends this process as SIGKILL does if `ROLLHOUSE_FAILPOINT` names this place. With `panic:` before the name it panics
/// instead, the first time. Only in builds with debug assertions; other builds do nothing and do not read the variable.
///
/// # Panics
/// If the variable asks for it.
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
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    /// The place at which to die or to panic, read once.
    static WANTED: OnceLock<Option<String>> = OnceLock::new();
    static PANICKED: AtomicBool = AtomicBool::new(false);

    pub(super) fn reached(name: &str) {
        let wanted = WANTED.get_or_init(|| std::env::var("ROLLHOUSE_FAILPOINT").ok());
        let Some(wanted) = wanted.as_deref() else { return };
        if wanted.strip_prefix("panic:") == Some(name) {
            assert!(PANICKED.swap(true, Ordering::Relaxed), "told to at {name}");
        } else if wanted == name {
            // Nothing of ours runs after it. A kernel that does not let a process kill itself is not known.
            let _killed = kill_process(getpid(), Signal::KILL);
        }
    }
}
