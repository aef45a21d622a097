//! What is lost when a lane fails, hangs, or its process is killed, and what others notice of it.

use std::ops::Range;
use std::time::{Duration, Instant};

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{Interruption, OptionValue, Outcome};
use rollhouse_engine::{AttributeValue, LaneOptions, Reset};
use rustix::process::{Pid, Signal, kill_process};

use super::carriers::{LANES, LaneOrder, Pair};
use super::kinds::Kind;
use super::{Both, Suite};

/// A lane of the second block.
const LANE: usize = 70;
/// The step of its episode in which it breaks.
const BREAKS: u64 = 6;
/// Far longer than anything takes; only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Begins episodes of which one lane's has an option of its own. The kernels beside them have none.
fn begin(both: &mut Both, option: Option<&str>) {
    let seeded = Reset::seeded(9, LANES);
    both.kernels.reset(&seeded);
    let mut steps = vec![OptionValue::Int(-1); LANES];
    steps[LANE] = OptionValue::Int(BREAKS as i64);
    let options = option.map(|name| (name.to_owned(), steps));
    both.lanes.reset(&Reset { options: LaneOptions::from_iter(options), ..seeded });
    both.compare(|_| true);
}

/// Takes the step in which the lanes of one of those ranges are lost, and those after it: the others have the numbers of
/// a kernel.
fn expect_lost(both: &mut Both, one_of: &[Range<usize>], cause: Interruption) {
    let before = both.lanes.rows.clone();
    both.play_and_compare(1, |_| false);
    let found = both.lanes.lost();
    let lost = one_of.iter().find(|lost| (*lost).clone().map(|lane| (lane, cause)).eq(found.iter().copied()));
    let lost = lost.unwrap_or_else(|| panic!("{}: {found:?} are lost, not {one_of:?}", both.what));
    both.compare(|lane| !lost.contains(&lane));
    for lane in lost.clone() {
        let row = &both.lanes.rows[lane];
        let shown = (row.flags, row.reward, &row.obs);
        assert_eq!(shown, ([0, 1, 0], 0, &before[lane].obs), "{}, lane {lane}", both.what);
    }
    both.play_and_compare(4, |lane| !lost.contains(&lane));
    let outcomes = &both.lanes.statistics()[0].outcomes;
    assert_eq!(outcomes[Outcome::Interrupted(cause).word()], lost.len() as u64, "{}", both.what);
}

pub(super) fn a_lane_that_fails_is_lost_alone_with_the_cause_and_comes_back(suite: &Suite) {
    let mut both = suite.open(&LaneOrder::of("test/Faulty-v0"));
    begin(&mut both, Some("panic_at"));
    both.play(BREAKS - 1);
    let alone = LANE..LANE + 1;
    expect_lost(&mut both, &[alone], Interruption::Crashed);
    let began = Instant::now();
    while both.lanes.loss(LANE).is_some() {
        assert!(began.elapsed() < PATIENCE, "{}: it does not come back", both.what);
        both.play_and_compare(1, |lane| lane != LANE);
    }
    assert_eq!(both.lanes.rows[LANE].flags, [0, 0, 1], "{}", both.what);
    assert_eq!(both.lanes.statistics()[0].restarts, 1, "{}", both.what);
    // It plays on, and no return has a reward of the episode that was lost.
    both.lanes.set("panic_at", &[AttributeValue::Scalar(OptionValue::Int(-1))]).unwrap();
    both.play_and_compare(100, |lane| lane != LANE);
    both.lanes.check_returns();
}

/// Kernels that hang are no lanes that are lost: their session is.
///
/// Symptom: on a node whose `hang_after` is shorter than 25 s, a lane of a plug-in that hung took its whole session along.
/// Cause: only lanes of Python envs were given two fifths of that time. Fix: all lanes that finish when they finish are.
pub(super) fn a_lane_that_hangs_costs_what_it_shares_with_others(pair: Pair) {
    let (hangs, option, lost) = match pair.kind {
        Kind::Kernel => return,
        Kind::Workers => (None, Some("hang_at"), BLOCK_LANES..2 * BLOCK_LANES),
        Kind::Simulator | Kind::Reporting => (Some((LANE, BREAKS - 1)), None, LANE..LANE + 1),
    };
    let suite = Suite::start(Pair { hangs, lane_deadline: Duration::from_secs(2), ..pair });
    let mut both = suite.open(&LaneOrder::of("test/Faulty-v0"));
    begin(&mut both, option);
    both.play(BREAKS - 1);
    expect_lost(&mut both, &[lost], Interruption::Hung);
}

pub(super) fn a_worker_that_is_killed_costs_its_own_lanes(pair: Pair) {
    if pair.kind != Kind::Workers {
        return;
    }
    let suite = Suite::start(pair);
    let mut both = suite.open(&LaneOrder::of("test/Faulty-v0"));
    begin(&mut both, None);
    both.play(BREAKS - 1);
    let workers = suite.stand.envs.workers();
    assert_eq!(workers.len(), 3, "one for each block");
    kill_process(Pid::from_raw(workers[0]).unwrap(), Signal::KILL).unwrap();
    while suite.stand.envs.workers().len() == 3 {
        std::thread::yield_now();
    }
    let blocks = [0..BLOCK_LANES, BLOCK_LANES..2 * BLOCK_LANES, 2 * BLOCK_LANES..LANES];
    expect_lost(&mut both, &blocks, Interruption::Crashed);
    let lost: Vec<usize> = both.lanes.lost().into_iter().map(|(lane, _)| lane).collect();
    let began = Instant::now();
    while !both.lanes.lost().is_empty() {
        assert!(began.elapsed() < PATIENCE, "{}: they do not come back", both.what);
        both.play_and_compare(1, |lane| !lost.contains(&lane));
    }
    both.play_and_compare(100, |lane| !lost.contains(&lane));
    both.lanes.check_returns();
}
