//! What a node on this machine has for lanes.

use std::num::NonZeroUsize;

use rollhouse_config::{BudgetSettings, Python};
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{Budget, EnvKind, EnvSource, EnvTerms, Workers};
use rollhouse_env::Registry;

use crate::failure::{Failure, Status};

/// Returns the budget of a node that has these settings and can make the envs of the registry.
///
/// # Errors
/// If terms are for an env that there is not, or limit the processes of one that the node steps itself.
pub(crate) fn of_node(
    settings: &BudgetSettings,
    python: &Python,
    registry: &Registry,
) -> Result<Budget, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let envs = settings.envs.0.iter().map(|(env, terms)| {
        let workers = workers(env, python, registry, cores)?;
        if terms.max_processes.is_some() && workers.is_none() {
            let what = format!("env.\"{env}\": max_processes is for lanes in worker processes, and the node steps these itself");
            return Err(Failure::new(Status::Usage, what));
        }
        Ok((env.clone(), EnvTerms { workers, ..terms.clone() }))
    });
    let envs = envs.collect::<Result<_, Failure>>()?;
    let total = settings.total(cores, memory());
    Ok(Budget { total, stated: settings.memory.0 > 0, envs })
}

/// Returns the worker processes that a session of such lanes has; `None` if the node steps them itself.
fn workers(
    env: &str,
    python: &Python,
    registry: &Registry,
    cores: usize,
) -> Result<Option<Workers>, Failure> {
    let entry = registry.get(env);
    let learned = env.parse::<EnvKind>().is_ok() || EnvSource::of_id(env).is_learned();
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    match entry {
        Ok(entry) if entry.is_late() => Ok(Some(Workers { most: count(cores), lanes: count(BLOCK_LANES) })),
        Ok(_) => Ok(None),
        // An engine has them in a process of its own.
        Err(_) if matches!(EnvSource::of_id(env), EnvSource::Foreign(_)) => Ok(None),
        // Which envs a package has is known when one is asked for.
        Err(_) if learned => {
            let set = python.workers.0 as usize;
            Ok(Some(Workers { most: count(if set > 0 { set } else { cores }), lanes: 1 }))
        }
        Err(error) => Err(Failure::new(Status::Usage, format_args!("env.\"{env}\": {error}"))
            .hint("`rollhouse envs` lists the envs that a node has by itself; plug-ins are to be loaded")),
    }
}

/// Returns the bytes of memory that this process may use: the least of the limits of its cgroups and what the machine
/// has. 0 if nothing tells.
fn memory() -> u64 {
    memory_by(|path| std::fs::read_to_string(path).ok())
}

fn memory_by(read: impl Fn(&str) -> Option<String>) -> u64 {
    let kib = |line: &str| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok();
    let machine = read("/proc/meminfo").and_then(|text| {
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        Some(kib(total)? * 1024)
    });
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().take(MAX_GROUPS).flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|of| of == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        // A limit of any group above it holds as well. In a container the path may be one of the machine's.
        let above = std::path::Path::new(path).ancestors().take(MAX_GROUPS);
        let above = above.map(|group| format!("{root}/{}/{file}", group.display()));
        above.filter_map(|limit| read(&limit)?.trim().parse::<u64>().ok()).collect()
    });
    limits.chain(machine).min().unwrap_or(0)
}

/// Most cgroups of a process, and most groups above one, that are looked at.
const MAX_GROUPS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use rollhouse_core::Weight;

    fn files<'a>(files: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<String> + 'a {
        move |path| {
            let path = path.replace("//", "/").replace("//", "/");
            files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned())
        }
    }

    #[test]
    fn memory_is_the_least_of_the_machine_and_the_groups_above_the_process() {
        let machine = ("/proc/meminfo", "MemTotal:        1000 kB\nMemFree: 1 kB\n");
        let group = ("/proc/self/cgroup", "0::/system.slice/node.service\n");
        let limit = ("/sys/fs/cgroup/system.slice/memory.max", "500000\n");
        let none = ("/sys/fs/cgroup/system.slice/node.service/memory.max", "max\n");
        assert_eq!(memory_by(files(&[machine])), 1_024_000);
        assert_eq!(memory_by(files(&[machine, group, limit, none])), 500_000);
        let old = ("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/docker/x\n");
        let limit = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "700000\n");
        assert_eq!(memory_by(files(&[machine, old, limit])), 700_000);
        assert_eq!(memory_by(files(&[])), 0);
    }

    #[test]
    fn terms_are_for_envs_that_there_are_or_that_may_be_learned() {
        let (registry, python) =
            (Registry::builtin(), rollhouse_config::NodeConfig::default().hosting.python);
        let mut settings = BudgetSettings::default();
        (settings.cpu.0, settings.memory.0) = (1500, 9);
        let mut of = |env: &str, max_processes| {
            let terms = EnvTerms { max_processes, ..EnvTerms::default() };
            settings.envs.0 = [(env.to_owned(), terms)].into();
            of_node(&settings, &python, &registry).map_err(|failure| failure.message().to_owned())
        };
        let budget = of("gymnasium:*", Some(4)).unwrap();
        assert_eq!((budget.total, budget.stated), (Weight { cpu_milli: 1500, memory: 9 }, true));
        assert!(budget.envs["gymnasium:*"].workers.is_some_and(|workers| workers.lanes == 1));
        assert!(of("my_envs:Maze", None).is_ok() && of("CartPole-v1", None).is_ok());
        assert!(of("CartPole-v1", Some(1)).unwrap_err().contains("max_processes"));
        assert!(of("CartPole-v2", None).unwrap_err().contains("CartPole-v1"));
    }
}
