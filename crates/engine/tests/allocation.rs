//! The steady step allocates nothing.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use allocation_counter::measure;
use rollhouse_core::{AutoresetMode, random_bits};
use rollhouse_engine::{Engine, EngineConfig, Reset};
use rollhouse_env::Registry;

#[test]
fn a_step_allocates_nothing_in_any_mode() {
    let entry = Registry::builtin().get("CartPole-v1").unwrap();
    for autoreset in [AutoresetMode::NextStep, AutoresetMode::SameStep] {
        let mut engine =
            Engine::new(&entry, EngineConfig { autoreset, ..EngineConfig::new(130) }, None).unwrap();
        engine.reset(&Reset::seeded(1, 130)).unwrap();
        let counted = measure(|| {
            for step in 0..2_000 {
                for (lane, action) in (0..).zip(engine.actions().unwrap().as_i64_mut().unwrap()) {
                    *action = (random_bits(5, lane, step) & 1) as i64;
                }
                engine.step().unwrap();
            }
        });
        assert_eq!(counted.count_total, 0, "{autoreset:?}");
    }
}
