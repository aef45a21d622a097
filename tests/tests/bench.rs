//! The bench of a cluster: that it measures what it says, on a small scale. How fast it is proves nothing here.

use std::process::Command;

use rollhouse_tests::{Done, Folder, bench, bench_binary};

#[test]
fn a_bench_of_a_cluster_plays_all_sessions_and_leaves_no_thread_with_any() {
    let folder = Folder::new();
    let line = "cluster --sessions 3 --episodes 2 --idle-sessions 40 --idle-seconds 1 --json";
    let result = bench(folder.path(), line);
    let (playing, resting) = (&result["playing"], &result["resting"]);
    assert_eq!((&playing["passed"], &playing["pass_rate"]), (&3.into(), &1.0.into()), "{playing}");
    // An episode of CartPole takes 8 steps at the very least.
    assert!(playing["steps"].as_u64().is_some_and(|steps| steps >= 3 * 2 * 8), "{playing}");
    assert!(playing["reset_p99_ms"].as_f64() >= playing["reset_p50_ms"].as_f64(), "{playing}");
    assert_eq!((&result["opening"]["lanes"], &resting["sessions"]), (&4096.into(), &40.into()));
    let crashing = &result["crashing"];
    assert!(crashing["crashed"].as_u64().is_some_and(|lanes| lanes >= 3 * 256 / 4), "{crashing}");
    assert_eq!(crashing["steps_missing"], 0, "a lane that crashes costs no other one a step: {crashing}");
    for held in ["threads", "descriptors"] {
        let more = resting["with"][held].as_i64().zip(resting["before"][held].as_i64());
        assert!(more.is_some_and(|(with, before)| with - before < 20), "{held}: {resting}");
    }
}

#[test]
fn a_bench_of_shared_memory_steps_in_a_process_of_its_own_and_does_not_spin_when_idle() {
    let folder = Folder::new();
    let line = "shm --steps 200 --batches 20 --repetitions 2 --beside-ms 1000 --json";
    let result = bench(folder.path(), line);
    for part in ["engine_us", "shm_us", "quic_us"] {
        assert!(result["small"][part]["median"].as_f64().is_some_and(|us| us > 0.0), "{result}");
    }
    assert_eq!(result["large"]["batches"], 20, "{result}");
    for part in ["engine", "shm"] {
        let times = &result["large"][part];
        assert!(times["p99_us"].as_f64() >= times["p50_us"].as_f64(), "{result}");
    }
    for kind in ["shm", "quic"] {
        assert!(result["beside"][kind]["beside"].as_f64().is_some_and(|steps| steps > 0.0), "{result}");
    }
    // A spinning thread would use a thousand in this second.
    for process in ["trainer_ms", "node_ms"] {
        assert!(result["idle"][process].as_f64().is_some_and(|ms| ms < 500.0), "{process}: {result}");
    }
}

#[test]
fn a_bench_that_cannot_be_is_refused_with_a_plain_message() {
    for (line, says) in
        [("engine --isa mmx", "--isa"), ("engine --autoreset Disabled", "NextStep or SameStep")]
    {
        let done = Done::of(Command::new(bench_binary()).args(line.split(' ')).output().unwrap());
        assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""), "{line}");
        assert!(done.stderr.contains(says), "{line}: {}", done.stderr);
    }
}
