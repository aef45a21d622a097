//! What is asked of a pool's lanes between two steps is what an engine in this process answers.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "the double does more than this file needs")]

use crate::double;

use double::{Double, Fault, cart_pole};
use rollhouse_client::{MethodError, Pool, PoolRequest, StepError};
use rollhouse_core::OptionValue;
use rollhouse_engine::{
    AttributeValue, CommandLanes, Engine, EngineConfig, GetAttributes, GetParams, LaneOptions, LaneRange,
    Method, OptionsError, Reset, ResetLanes, ResetParams, StepError as Rules,
};
use rollhouse_env::{ImageSize, Registry};
use rollhouse_wire::RefusalCode;

const LANES: usize = 7;

fn engine(env: &str, lanes: usize) -> Engine {
    Engine::new(&Registry::builtin().get(env).unwrap(), EngineConfig::new(lanes), None).unwrap()
}

fn values(engine: &mut Engine, name: &str) -> Vec<AttributeValue> {
    let lanes = LaneRange { first: 0, count: engine.lanes() as u32 };
    let params = GetParams { name: name.into(), lanes };
    GetAttributes::run(&mut CommandLanes::of(engine), params).unwrap().values
}

fn float(value: f64) -> AttributeValue {
    AttributeValue::Scalar(OptionValue::Float(value))
}

/// Both begin the same episodes, with bounds of their own for each lane.
fn begin(pool: &mut Pool, engine: &mut Engine) {
    let lanes = engine.lanes();
    let low = (0..lanes).map(|lane| OptionValue::Float(-0.01 * lane as f64)).collect();
    let options = LaneOptions::from([("low".into(), low), ("high".into(), vec![OptionValue::Int(0)])]);
    let reset = Reset { options, ..Reset::seeded(3, lanes) };
    let here = engine.reset(&reset).unwrap().obs(0).as_f32().unwrap().to_vec();
    assert_eq!(pool.reset(&reset).unwrap().obs(0).as_f32().unwrap(), here);
}

#[test]
fn options_of_a_reset_and_attributes_reach_the_lanes_they_name_on_every_node() {
    let double = Double::start(3);
    let mut pool = double.connect().open_pool(cart_pole(LANES as u32)).unwrap();
    let mut engine = engine("CartPole-v1", LANES);
    begin(&mut pool, &mut engine);
    for name in ["low", "high", "state", "max_episode_steps", "generator", "gravity"] {
        assert_eq!(pool.get_attr(name).unwrap(), values(&mut engine, name), "{name}");
    }
    let states = pool.get_attr("state").unwrap();
    let turned: Vec<_> = states.iter().rev().cloned().collect();
    pool.set_attr("state", &turned).unwrap();
    assert_eq!(pool.get_attr("state").unwrap(), turned);
    pool.set_attr("low", &[float(-0.5)]).unwrap();
    assert_eq!(pool.get_attr("low").unwrap(), vec![float(-0.5); LANES]);
    // Turned round, the lanes go on in each other's places.
    for lane in 0..LANES {
        pool.actions().as_i64_mut().unwrap()[lane] = 1;
        engine.actions().unwrap().as_i64_mut().unwrap()[lane] = 1;
    }
    let here: Vec<f32> = {
        let frame = engine.step().unwrap();
        frame.obs(0).as_f32().unwrap().chunks(4).rev().flatten().copied().collect()
    };
    assert_eq!(pool.step().unwrap().obs(0).as_f32().unwrap(), here);
}

#[test]
fn what_is_asked_of_many_lanes_travels_in_parts() {
    let double = Double::start(2);
    let mut pool = double.connect().open_pool(cart_pole(2_500)).unwrap();
    let mut engine = engine("CartPole-v1", 2_500);
    begin(&mut pool, &mut engine);
    let handled = double.handled();
    assert_eq!(pool.get_attr("state").unwrap(), values(&mut engine, "state"));
    // 1,250 lanes on each node, 512 at a time.
    assert_eq!(double.handled() - handled, 6);
}

#[test]
fn images_come_for_the_lanes_asked_for_and_more_than_may_be_unanswered_at_a_time() {
    let double = Double::start(2);
    let mut pool = double.connect().open_pool(PoolRequest::new("GridBreakout-v0", 150)).unwrap();
    let mut engine = engine("GridBreakout-v0", 150);
    pool.reset(&Reset::seeded(1, 150)).unwrap();
    engine.reset(&Reset::seeded(1, 150)).unwrap();
    let images = pool.render(3..149, Some((64, 48))).unwrap();
    assert_eq!(images.len(), 146);
    for (lane, image) in (3..149).zip(images) {
        assert_eq!(image, engine.render(lane, Some(ImageSize::new(64, 48).unwrap())).unwrap(), "lane {lane}");
    }
    assert!(matches!(pool.render(140..151, None), Err(MethodError::Lanes(_))));
}

#[test]
fn what_may_be_done_twice_is_asked_again_and_nothing_else_is() {
    let double = Double::start(1);
    let mut pool = double.connect().open_pool(cart_pole(LANES as u32)).unwrap();
    let mut engine = engine("CartPole-v1", LANES);
    begin(&mut pool, &mut engine);
    double.fail(0, [Fault::CutBefore, Fault::CutAfter, Fault::Busy]);
    assert_eq!(pool.get_attr("state").unwrap(), values(&mut engine, "state"));
    assert_eq!(double.faults_left(), 0);
    double.fail(0, [Fault::CutAfter]);
    let lost = pool.call::<ResetLanes>(0, &ResetParams::default()).unwrap_err();
    assert!(matches!(&lost, MethodError::Lost { node, method: "reset" } if node == "node-0"), "{lost}");
    let refused = pool.get_attr("viscosity").unwrap_err();
    let MethodError::Refused { refusal, .. } = &refused else { panic!("{refused}") };
    assert_eq!(refusal.code, RefusalCode::BadRequest);
    assert!(refusal.message.contains(" (call="), "{refused}");
    // A refused command is over: the stream goes on.
    assert_eq!(pool.get_attr("low").unwrap(), values(&mut engine, "low"));
}

#[test]
fn statistics_and_schema_come_from_the_nodes() {
    let double = Double::start(2);
    let mut pool = double.connect().open_pool(cart_pole(LANES as u32)).unwrap();
    pool.reset(&Reset::seeded(1, LANES)).unwrap();
    for _ in 0..5 {
        pool.actions().as_i64_mut().unwrap().fill(0);
        pool.step().unwrap();
    }
    let statistics = pool.statistics().unwrap();
    assert_eq!(statistics.iter().map(|one| one.steps).sum::<u64>(), 5 * LANES as u64);
    assert_eq!(statistics.len(), 2);
    let schema = pool.schema().unwrap();
    assert_eq!((schema.lanes, schema.spec.id.as_str()), (4, "CartPole-v1"));
    let none = pool.call::<rollhouse_engine::Schema>(2, &rollhouse_engine::Nothing {}).unwrap_err();
    assert!(matches!(none, MethodError::NoSuchSession { session: 2, sessions: 2 }), "{none}");
}

#[test]
fn bad_options_and_lanes_under_way_are_refused_here() {
    let double = Double::start(2);
    let mut pool = double.connect().open_pool(cart_pole(LANES as u32)).unwrap();
    let options = LaneOptions::from([("low".into(), vec![OptionValue::Float(0.0); 2])]);
    let refused = pool.reset(&Reset { options, ..Reset::default() }).unwrap_err();
    let wanted = OptionsError::Length { name: "low".into(), given: 2, lanes: LANES };
    assert!(matches!(&refused, StepError::Rules(Rules::Options(error)) if *error == wanted), "{refused}");
    pool.reset(&Reset::seeded(1, LANES)).unwrap();
    pool.send(&[1], rollhouse_core::ColumnRef::I64(&[0])).unwrap();
    let refused = pool.get_attr("state").unwrap_err();
    assert!(refused.to_string().contains("lane 1 was sent already"), "{refused}");
    assert!(matches!(pool.set_attr("low", &[]), Err(MethodError::Lanes(_))));
}
