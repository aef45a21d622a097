//! Processes of a cluster are killed and paused at random, again and again, their disks are full and the links between
//! them cut, under a trainer that steps: the bench that does so, on a small scale.

use rollhouse_tests::{Folder, bench};

#[test]
fn thirty_kills_over_all_processes_cost_no_episode_and_no_frame_and_leave_nothing_behind() {
    let folder = Folder::new();
    let result = bench(folder.path(), "chaos --minutes 0 --kills 30 --seed 7 --json");
    let count = |part: &str, name: &str| result[part][name].as_u64().unwrap_or_else(|| panic!("{result}"));
    let kills = ["node_killed", "coordinator_killed", "trainer_killed"].map(|kind| count("faults", kind));
    assert_eq!(kills.iter().sum::<u64>(), 30, "{result}");
    for kind in [
        "node_killed",
        "coordinator_killed",
        "trainer_killed",
        "node_paused",
        "node_disk_full",
        "link_cut",
        "link_cut_one_way",
    ] {
        assert!(count("faults", kind) > 0, "{kind}: {result}");
    }
    assert!(result["datagrams_lost"].as_u64() > Some(0), "{result}");
    for kind in ["frames_differing", "durable_lost", "duplicates", "invented", "changed"] {
        assert_eq!(count("audit", kind), 0, "{kind}: {result}");
    }
    for kind in ["lost", "duplicates", "invented", "changed", "otherwise", "sessions"] {
        assert_eq!(count("trainers", kind), 0, "{kind}: {result}");
    }
    for kind in ["sockets", "descriptors", "mappings", "processes", "socket_files"] {
        assert_eq!(result["audit"]["leaked"][kind], 0, "{kind}: {result}");
    }
    for kind in ["sockets", "descriptors", "mappings"] {
        assert_eq!(result["audit"]["leaked"]["of_services"][kind], 0, "{kind}: {result}");
    }
    // Lanes were hit and went on, and what was compared was not nothing.
    assert!(count("recovery", "count") > 0 && count("audit", "episodes") > 0, "{result}");
    // Those that were left at the end were killed when nothing else happened.
    let of_trainers = ["killed", "episodes", "disconnected"].map(|kind| count("trainers", kind));
    assert!(of_trainers.iter().all(|&count| count > 0), "{result}");
}
