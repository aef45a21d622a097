//! The bench of a cluster: that it measures what it says, on a small scale. How fast it is proves nothing here.

use rollhouse_tests::{Folder, json_lines};

#[test]
fn a_bench_of_a_cluster_plays_all_sessions_and_leaves_no_thread_with_any() {
    let folder = Folder::new();
    let line = "bench cluster --sessions 3 --episodes 2 --idle-sessions 40 --idle-seconds 1 --json";
    let results = json_lines(folder.path(), line);
    let [result] = results.as_slice() else { panic!("{results:?}") };
    let (playing, resting) = (&result["playing"], &result["resting"]);
    assert_eq!((&playing["passed"], &playing["pass_rate"]), (&3.into(), &1.0.into()), "{playing}");
    // An episode of CartPole takes 8 steps at the very least.
    assert!(playing["steps"].as_u64().is_some_and(|steps| steps >= 3 * 2 * 8), "{playing}");
    assert!(playing["reset_p99_ms"].as_f64() >= playing["reset_p50_ms"].as_f64(), "{playing}");
    assert_eq!((&result["opening"]["lanes"], &resting["sessions"]), (&4096.into(), &40.into()));
    for held in ["threads", "descriptors"] {
        let more = resting["with"][held].as_i64().zip(resting["before"][held].as_i64());
        assert!(more.is_some_and(|(with, before)| with - before < 20), "{held}: {resting}");
    }
}
