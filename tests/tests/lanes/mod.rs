//! Lanes of every kind mean the same on every carrier: kernels, worker processes and a simulator with a timing of its
//! own, in this process, in shared memory of a node and over QUIC. Each is compared with kernels in this process.
#![cfg(target_os = "linux")]

mod carriers;
mod foretelling;
mod foretold;
mod kinds;
#[expect(
    clippy::module_inception,
    reason = "the file is about lanes, and the folder about their kinds and carriers"
)]
mod lanes;
#[allow(dead_code, reason = "not all of it is needed here")]
#[path = "../../../crates/client/tests/nodes/mod.rs"]
mod nodes;
mod oracle;
mod own;
mod recordings;
mod reports;
mod rows;

use rollhouse_core::limits::MAX_ANSWER_BYTES;
use rollhouse_core::{AutoresetMode, Distribution, EnvSource, OptionValue, random_bits};
use rollhouse_engine::{AttributeValue, LaneOptions, Reset};
use rollhouse_wire::Spread;

use carriers::{Carrier, LANES, LaneOrder, Pair, Stand};
use kinds::Kind;
use lanes::Lanes;
use rows::Row;

const MODES: [AutoresetMode; 3] = [AutoresetMode::NextStep, AutoresetMode::SameStep, AutoresetMode::Disabled];

/// A pair, and kernels in this process.
struct Suite {
    pair: Pair,
    stand: Stand,
    kernels: Stand,
}

/// Lanes that do the same: of a pair, and kernels in this process.
struct Both {
    lanes: Lanes,
    kernels: Lanes,
    /// Number of the next step, from which its actions follow.
    next: u64,
    what: String,
}

impl Suite {
    fn start(pair: Pair) -> Self {
        let kernels = Stand::start(Pair::of(Kind::Kernel, Carrier::Embedded));
        Self { pair, stand: Stand::start(pair), kernels }
    }

    fn open(&self, asked: &LaneOrder) -> Both {
        let what = format!("{:?} {:?}, {asked:?}", self.pair.kind, self.pair.carrier);
        Both { lanes: self.stand.open(asked), kernels: self.kernels.open(asked), next: 0, what }
    }
}

impl Both {
    fn reset(&mut self, reset: &Reset) {
        self.kernels.reset(reset);
        self.lanes.reset(reset);
        self.compare(|_| true);
    }

    /// Takes steps, after each of which the rows are the same.
    fn play(&mut self, steps: u64) {
        self.play_and_compare(steps, |_| true);
    }

    /// Takes steps, after each of which the rows of those lanes are the same.
    fn play_and_compare(&mut self, steps: u64, compared: impl Fn(usize) -> bool) {
        for _ in 0..steps {
            let actions = self.actions();
            if self.kernels.reset_those_that_are_over(self.next) {
                self.lanes.reset_those_that_are_over(self.next);
                self.compare(&compared);
            }
            self.kernels.step(&actions).unwrap();
            self.lanes.step(&actions).unwrap();
            self.next += 1;
            self.compare(&compared);
        }
    }

    /// The next actions: such as their masks allow, where lanes have any.
    fn actions(&self) -> Vec<i64> {
        let of = |(lane, row): (u32, &Row)| {
            let second = (random_bits(3, lane, self.next) & 1) as usize;
            let allowed: Vec<usize> = (0..row.infos.len()).filter(|&action| row.infos[action] == 1).collect();
            allowed.get(second).copied().unwrap_or(second) as i64
        };
        (0..).zip(&self.kernels.rows).map(of).collect()
    }

    fn compare(&self, compared: impl Fn(usize) -> bool) {
        assert_eq!(self.lanes.rows.len(), self.kernels.rows.len());
        for (lane, (found, wanted)) in self.lanes.rows.iter().zip(&self.kernels.rows).enumerate() {
            assert!(
                !compared(lane) || found == wanted,
                "{}, lane {lane} after {} steps: {found:?}, a kernel has {wanted:?}",
                self.what,
                self.next
            );
        }
    }

    /// What both say, which is the same.
    fn ask<T: PartialEq + std::fmt::Debug>(&mut self, ask: impl Fn(&mut Lanes) -> T) -> T {
        let (found, wanted) = (ask(&mut self.lanes), ask(&mut self.kernels));
        assert!(found == wanted, "{}: {found:?}, a kernel has {wanted:?}", self.what);
        wanted
    }
}

fn every_row_and_count_is_that_of_a_kernel_in_each_mode(suite: &Suite) {
    for env in ["CartPole-v1", "test/Faulty-v0", "test/Masked-v0"] {
        for autoreset in MODES {
            let mut both = suite.open(&LaneOrder { autoreset, limit: Some(30), ..LaneOrder::of(env) });
            both.reset(&Reset::seeded(42, LANES));
            both.play(80);
            let statistics = both.ask(Lanes::statistics);
            assert!(statistics[0].lengths.max == Some(30.0) || env == "test/Masked-v0", "{statistics:?}");
        }
    }
}

fn a_lane_that_waits_for_its_reset_is_not_stepped(suite: &Suite) {
    let asked =
        LaneOrder { autoreset: AutoresetMode::Disabled, limit: Some(4), ..LaneOrder::of("CartPole-v1") };
    let mut both = suite.open(&asked);
    both.reset(&Reset::seeded(1, LANES));
    both.play(4);
    let refused = both.ask(|lanes| lanes.step(&[0; LANES]).map(<[Row]>::to_vec).unwrap_err());
    assert!(refused.contains("reset"), "{refused}");
    both.play(4);
}

fn lanes_that_finish_in_any_order_play_the_episodes_of_lockstep(suite: &Suite) {
    for autoreset in [AutoresetMode::NextStep, AutoresetMode::SameStep] {
        for (spread, min) in [(Spread::Pack, 1), (Spread::Pack, 40), (Spread::Even, 40)] {
            let mut both = suite.open(&LaneOrder { autoreset, spread, ..LaneOrder::of("CartPole-v1") });
            both.reset(&Reset::seeded(4, LANES));
            let mut wanted = vec![Vec::new(); LANES];
            for step in 0..STEPS {
                let actions: Vec<i64> = (0..LANES as u32).map(|lane| action(lane, step)).collect();
                let rows = both.kernels.step(&actions).unwrap();
                wanted.iter_mut().zip(rows).for_each(|(wanted, row)| wanted.push(row.clone()));
            }
            send_as_they_come(&mut both.lanes, &wanted, min);
            // Lockstep goes on from there.
            both.play(3);
        }
    }
}

const STEPS: u64 = 40;

fn action(lane: u32, step: u64) -> i64 {
    (random_bits(3, lane, step) & 1) as i64
}

/// Sends each lane as soon as it is received, until each has played all steps.
fn send_as_they_come(lanes: &mut Lanes, wanted: &[Vec<Row>], min: usize) {
    let (mut taken, mut version) = ([0u64; LANES], 0);
    let (mut idle, mut outstanding): (Vec<u32>, usize) = ((0..LANES as u32).collect(), 0);
    loop {
        // Some wait until the next time, so that lanes are sent while others are under way.
        let held = if outstanding > 0 { idle.len() / 3 } else { 0 };
        let sent: Vec<u32> = idle.drain(held..).collect();
        let actions: Vec<i64> = sent.iter().map(|&lane| action(lane, taken[lane as usize])).collect();
        // In one process lanes that finish together have been sent under different versions of the policy. A pool takes
        // none while lanes are under way.
        if outstanding == 0 || lanes.is_in_process() {
            version += 1;
            lanes.set_policy_version(version);
        }
        lanes.send(&sent, &actions);
        outstanding += sent.len();
        if outstanding == 0 {
            return;
        }
        let received = lanes.recv(min.min(outstanding));
        assert!(received.len() >= min.min(outstanding));
        outstanding -= received.len();
        for (lane, row) in received {
            let steps = &mut taken[lane as usize];
            assert_eq!(row, wanted[lane as usize][*steps as usize], "lane {lane}, step {steps}");
            *steps += 1;
            if *steps < STEPS {
                idle.push(lane);
            }
        }
    }
}

fn low(value: OptionValue) -> Vec<(String, OptionValue)> {
    vec![("low".to_owned(), value)]
}

const fn between(low: f64, high: f64) -> OptionValue {
    OptionValue::Drawn(Distribution::Uniform([low, high]))
}

fn options_change_what_they_change_in_a_kernel(suite: &Suite) {
    for spread in [Spread::Pack, Spread::Even] {
        let options = low(between(-0.05, -0.01));
        let mut both = suite.open(&LaneOrder { options, spread, ..LaneOrder::of("CartPole-v1") });
        both.reset(&Reset::seeded(5, LANES));
        both.play(40);
        // In the middle of episodes.
        both.ask(|lanes| lanes.set("low", &[AttributeValue::Scalar(OptionValue::Float(0.01))]).unwrap());
        both.play(40);
        both.ask(|lanes| lanes.set("low", &[AttributeValue::Scalar(between(-0.2, 0.0))]).unwrap());
        both.play(40);
        let of_each = (0..LANES).map(|lane| OptionValue::Float(-0.001 * lane as f64)).collect();
        let options = LaneOptions::from([("low".to_owned(), of_each)]);
        let mask = (0..LANES).map(|lane| lane % 3 > 0).collect();
        both.reset(&Reset { options, mask, ..Reset::default() });
        both.ask(|lanes| lanes.get("low").unwrap());
        both.play(40);
        // What is refused changes nothing.
        both.ask(|lanes| lanes.set("low", &[AttributeValue::Scalar(OptionValue::Bool(true))]).unwrap_err());
        both.play(3);
    }
}

fn commands_between_two_steps_answer_what_a_kernel_answers(suite: &Suite) {
    for spread in [Spread::Pack, Spread::Even] {
        let mut both = suite.open(&LaneOrder { spread, ..LaneOrder::of("CartPole-v1") });
        both.reset(&Reset::seeded(6, LANES));
        for _ in 0..5 {
            both.play(9);
            for name in ["state", "generator", "low", "max_episode_steps"] {
                both.ask(|lanes| lanes.get(name).unwrap());
            }
        }
        let steps = |lanes: &mut Lanes| lanes.statistics().iter().map(|one| one.steps).sum::<u64>();
        both.ask(steps);
        for lane in [0, 64, LANES - 1] {
            both.ask(|lanes| lanes.picture(lane));
        }
        let mut states = both.ask(|lanes| lanes.get("state").unwrap());
        states.reverse();
        both.ask(|lanes| lanes.set("state", &states).unwrap());
        both.play(9);
        assert!(both.lanes.get("viscosity").unwrap_err().contains("no attribute `viscosity`"));
    }
}

fn calls_of_methods_answer_and_move_lanes_as_those_of_a_kernel(suite: &Suite) {
    let mut both = suite.open(&LaneOrder::of("test/Called-v0"));
    // A plug-in's env is the same, and says where it comes from.
    both.ask(|lanes| {
        let mut schema = lanes.schema();
        schema.spec.source = EnvSource::default();
        schema
    });
    both.reset(&Reset::seeded(7, LANES));
    for _ in 0..40 {
        call(&mut both);
        both.play(1);
    }
    both.ask(|lanes| lanes.call(3, "fly", "").unwrap_err());
    both.ask(|lanes| lanes.call(3, "push", "far").unwrap_err());
    both.ask(|lanes| lanes.call(LANES, "where", "").unwrap_err());
    // With its quotation marks an answer has two bytes more than it has letters.
    let longest = both.ask(|lanes| lanes.call(5, "shout", &(MAX_ANSWER_BYTES - 2).to_string()).unwrap());
    assert_eq!(longest.len(), MAX_ANSWER_BYTES);
    let longer = both.ask(|lanes| lanes.call(5, "shout", &(MAX_ANSWER_BYTES - 1).to_string()).unwrap_err());
    assert!(longer.ends_with("may have at most 1048576"), "{longer}");
    both.play(1);
}

/// Calls some lanes, which answer the same.
fn call(both: &mut Both) {
    for part in 0..3 {
        let bits = random_bits(8, part, both.next);
        let method = ["push", "shake", "where"][bits as usize % 3];
        let payload = format!("{}", (bits >> 32 & 7) as i64 - 3);
        // Lanes that wait for their next episode refuse what would change them.
        let _same = both.ask(|lanes| lanes.call((bits >> 8) as usize % LANES, method, &payload));
    }
}

fn lanes_that_lose_their_carrier_go_on_elsewhere_with_the_same_numbers(pair: Pair) {
    for (env, autoreset) in
        [("CartPole-v1", AutoresetMode::NextStep), ("test/Faulty-v0", AutoresetMode::SameStep)]
    {
        let mut suite = Suite::start(pair);
        let mut both = suite.open(&LaneOrder { autoreset, ..LaneOrder::of(env) });
        both.reset(&Reset::seeded(8, LANES));
        both.play(90);
        suite.stand.interrupt(&mut both.lanes);
        both.play(60);
    }
}

fn keeps_the_rules(kind: Kind, carrier: Carrier) {
    foretelling::are_as_foretold(kind, carrier);
    let pair = Pair::of(kind, carrier);
    let suite = Suite::start(pair);
    every_row_and_count_is_that_of_a_kernel_in_each_mode(&suite);
    a_lane_that_waits_for_its_reset_is_not_stepped(&suite);
    lanes_that_finish_in_any_order_play_the_episodes_of_lockstep(&suite);
    options_change_what_they_change_in_a_kernel(&suite);
    commands_between_two_steps_answer_what_a_kernel_answers(&suite);
    calls_of_methods_answer_and_move_lanes_as_those_of_a_kernel(&suite);
    drop(suite);
    recordings::what_is_recorded_is_what_a_kernel_records(pair);
    lanes_that_lose_their_carrier_go_on_elsewhere_with_the_same_numbers(pair);
}

#[test]
fn lanes_in_this_process_report_what_they_took() {
    reports::what_lanes_took_is_answered_recorded_and_resumed(Carrier::Embedded);
}

#[test]
fn lanes_behind_shared_memory_report_what_they_took() {
    reports::what_lanes_took_is_answered_recorded_and_resumed(Carrier::Memory);
}

#[test]
fn lanes_over_quic_report_what_they_took() {
    reports::what_lanes_took_is_answered_recorded_and_resumed(Carrier::Quic);
}

#[test]
fn kernels_in_this_process_keep_the_rules() {
    keeps_the_rules(Kind::Kernel, Carrier::Embedded);
}

#[test]
fn kernels_in_shared_memory_keep_the_rules() {
    keeps_the_rules(Kind::Kernel, Carrier::Memory);
}

#[test]
fn kernels_over_quic_keep_the_rules() {
    keeps_the_rules(Kind::Kernel, Carrier::Quic);
}

#[test]
fn workers_of_this_process_keep_the_rules() {
    keeps_the_rules(Kind::Workers, Carrier::Embedded);
}

#[test]
fn workers_of_this_process_keep_the_rules_for_one_who_sleeps() {
    keeps_the_rules(Kind::Workers, Carrier::Slept);
}

#[test]
fn workers_behind_shared_memory_keep_the_rules() {
    keeps_the_rules(Kind::Workers, Carrier::Memory);
}

#[test]
fn workers_over_quic_keep_the_rules() {
    keeps_the_rules(Kind::Workers, Carrier::Quic);
}

#[test]
fn a_simulator_in_this_process_keeps_the_rules() {
    keeps_the_rules(Kind::Simulator, Carrier::Embedded);
}

#[test]
fn a_simulator_in_this_process_keeps_the_rules_for_one_who_sleeps() {
    keeps_the_rules(Kind::Simulator, Carrier::Slept);
}

#[test]
fn a_simulator_behind_shared_memory_keeps_the_rules() {
    keeps_the_rules(Kind::Simulator, Carrier::Memory);
}

#[test]
fn a_simulator_over_quic_keeps_the_rules() {
    keeps_the_rules(Kind::Simulator, Carrier::Quic);
}

#[test]
fn a_program_of_the_trainers_own_in_this_process_keeps_the_rules() {
    foretelling::are_as_foretold(Kind::Own, Carrier::Embedded);
}

#[test]
fn a_program_of_the_trainers_own_behind_shared_memory_keeps_the_rules() {
    foretelling::are_as_foretold(Kind::Own, Carrier::Memory);
}

#[test]
fn a_program_of_the_trainers_own_over_quic_keeps_the_rules() {
    foretelling::are_as_foretold(Kind::Own, Carrier::Quic);
}

/// Python envs keep the rules, where an interpreter with the package is named: by `cargo xtask`, after it has made one.
fn python_keeps_the_rules(carrier: Carrier) {
    if kinds::interpreter().is_some() {
        foretelling::are_as_foretold(Kind::Python, carrier);
    }
}

#[test]
fn python_in_this_process_keeps_the_rules() {
    python_keeps_the_rules(Carrier::Embedded);
}

#[test]
fn python_behind_shared_memory_keeps_the_rules() {
    python_keeps_the_rules(Carrier::Memory);
}

#[test]
fn python_over_quic_keeps_the_rules() {
    python_keeps_the_rules(Carrier::Quic);
}
