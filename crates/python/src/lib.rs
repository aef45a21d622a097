//! The native half of the `rollhouse` Python package.
//!
//! Start reading in `python/rollhouse/__init__.py`: that is the interface. This crate holds what Python should
//! not do itself: lanes here and on a cluster, the arrays over their memory, and recordings. It carries the `rollhouse`
//! command as well.
//!
//! | thread or task | runs on | on cancel | on error |
//! |---|---|---|---|
//! | keeper | own thread `rollhouse-keeper`, one for each folder that a process records into | ends with the folder, and with the process | without it pauses hold back what was recorded, and nothing else is lost |

mod actions;
mod arrays;
mod attended;
mod cluster;
mod command;
mod commands;
mod cost;
mod described;
mod dict_key;
mod endings;
mod engine;
mod envs;
mod episodes;
mod failure;
mod fork;
mod frames;
mod hosted_statistics;
mod infos;
mod keywords;
mod lanes;
mod news;
mod noting;
mod obs_shape;
mod read_failure;
mod recording;
mod replay_session;
mod replays;
mod rollouts;
mod spares;
mod statistics;
mod views;
mod waiting;
mod words;
mod worker_link;
mod workers;

use pyo3::prelude::*;

/// `rollhouse._native`.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    /// The package's version.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use super::cluster::NativeCluster;
    #[pymodule_export]
    use super::command::run_command;
    #[pymodule_export]
    use super::engine::NativeLanes;
    #[pymodule_export]
    use super::envs::{check_render_size, env_ids, env_spec, load_plugin};
    #[pymodule_export]
    use super::episodes::{EpisodeInfo, episode_name, in_reading_order, read_episodes};
    #[pymodule_export]
    use super::frames::{pack_frame, read_frames, unpack_frame};
    #[pymodule_export]
    use super::hosted_statistics::HostedStatistics;
    #[pymodule_export]
    use super::recording::RecordingWatch;
    #[pymodule_export]
    use super::replay_session::NativeReplay;
    #[pymodule_export]
    use super::replays::Recordings;
    #[pymodule_export]
    use super::rollouts::{NativeRollouts, NativeUpdate, difference, policy_in_dialect};
    #[pymodule_export]
    use super::worker_link::WorkerLink;
    #[pymodule_export]
    use super::workers::NativeWorkers;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::fork::count_forks(module.py())
    }
}
