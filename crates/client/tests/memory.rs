//! Lanes stepped through shared memory are an engine's lanes, and what goes wrong is told as over QUIC.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test uses some of it")]
use crate::nodes;

use std::time::Duration;

use nodes::Nodes;
use rollhouse_client::{
    ConnectOptions, MethodError, OnLoss, OpenError, Pool, PoolRequest, StepError, Transport,
};
use rollhouse_core::{
    AutoresetMode, ColumnData, ColumnMut, ColumnRef, Interruption, OptionValue, Outcome, random_bits,
};
use rollhouse_engine::{
    Engine, EngineConfig, Frame, Received, Reset, ResetLanes, ResetParams, StepError as Rules,
};
use rollhouse_env::Registry;
use rollhouse_wire::{RefusalCode, Spread};

const LANES: usize = 70;

fn engine(env: &str, autoreset: AutoresetMode) -> Engine {
    let entry = Registry::builtin().get(env).unwrap();
    Engine::new(&entry, EngineConfig { autoreset, ..EngineConfig::new(LANES) }, None).unwrap()
}

fn request(env: &str, autoreset: AutoresetMode, transport: Transport) -> PoolRequest {
    let mut request = PoolRequest::new(env, LANES as u32);
    request.settings.autoreset = autoreset;
    request.transport = Some(transport);
    request
}

fn fill(actions: ColumnMut<'_>, step: u64) {
    match actions {
        ColumnMut::I64(actions) => {
            for (lane, action) in actions.iter_mut().enumerate() {
                *action = (random_bits(3, lane as u32, step) & 1) as i64;
            }
        }
        ColumnMut::F32(actions) => {
            for (index, action) in actions.iter_mut().enumerate() {
                *action = (random_bits(3, index as u32, step) % 256) as f32 / 256.0;
            }
        }
        _ => panic!("no env here takes other actions"),
    }
}

/// Everything a frame says, by value.
fn shown(frame: Frame<'_>, same_step: bool) -> (ColumnData, Vec<ColumnData>, Vec<u64>, [Vec<u8>; 3]) {
    let flags = [frame.terminated(), frame.truncated(), frame.reset()].map(<[u8]>::to_vec);
    let elements = frame.obs(0).len() / frame.lanes();
    let over = (0..frame.lanes()).filter(|&row| same_step && flags[0][row] | flags[1][row] == 1);
    let last = |row| ColumnData::from(frame.final_obs(0).slice(row * elements, (row + 1) * elements));
    let rewards = frame.rewards().iter().map(|reward| reward.to_bits()).collect();
    (ColumnData::from(frame.obs(0)), over.map(last).collect(), rewards, flags)
}

fn compare(pool: &mut Pool, engine: &mut Engine, same_step: bool, steps: u64) {
    let reset = Reset::seeded(42, LANES);
    assert_eq!(shown(pool.reset(&reset).unwrap(), false), shown(engine.reset(&reset).unwrap(), false));
    for step in 0..steps {
        fill(pool.actions(), step);
        fill(engine.actions().unwrap(), step);
        let here = shown(engine.step().unwrap(), same_step);
        assert_eq!(shown(pool.step().unwrap(), same_step), here, "step {step}");
    }
}

fn transports(pool: &Pool) -> Vec<Option<Transport>> {
    pool.transports().collect()
}

#[test]
fn lanes_in_the_memory_of_one_and_of_several_nodes_are_an_engines_lanes() {
    for count in [1, 2] {
        let nodes = Nodes::start(count);
        for mode in [AutoresetMode::NextStep, AutoresetMode::SameStep] {
            for env in ["CartPole-v1", "Pendulum-v1", "GridBreakout-v0", "Echo-v0"] {
                let mut request = request(env, mode, Transport::Auto);
                request.spread = Spread::Even;
                let mut pool = nodes.connect().open_pool(request).unwrap();
                assert_eq!(transports(&pool), vec![Some(Transport::Shm); count]);
                let same_step = mode == AutoresetMode::SameStep;
                compare(&mut pool, &mut engine(env, mode), same_step, 250);
            }
        }
    }
}

#[test]
fn frames_and_actions_of_one_session_lie_in_its_memory_and_alternate() {
    let nodes = Nodes::start(1);
    let mut pool =
        nodes.connect().open_pool(request("CartPole-v1", AutoresetMode::NextStep, Transport::Shm)).unwrap();
    let outputs = pool.addresses();
    let addresses = |frame: Frame<'_>| {
        [
            frame.obs(0).as_f32().unwrap().as_ptr().addr(),
            frame.rewards().as_ptr().addr(),
            frame.reset().as_ptr().addr(),
        ]
    };
    let first = addresses(pool.reset(&Reset::all()).unwrap());
    fill(pool.actions(), 0);
    let second = addresses(pool.step().unwrap());
    let third = addresses(pool.step().unwrap());
    assert!(first.iter().chain(&second).all(|address| outputs.contains(address)));
    assert_eq!(first, third);
    assert_ne!(first, second);
}

fn rows_of(received: &Received) -> Vec<(u32, ColumnData, u64, [u8; 3])> {
    let mut rows: Vec<_> = (0..received.lanes.len())
        .map(|row| {
            let obs = ColumnData::from(received.obs[0].as_ref().slice(row * 4, row * 4 + 4));
            let flags = [received.terminated[row], received.truncated[row], received.reset[row]];
            (received.lanes[row], obs, received.rewards[row].to_bits(), flags)
        })
        .collect();
    rows.sort_by_key(|row| row.0);
    rows
}

#[test]
fn an_action_that_is_none_is_refused_and_nothing_has_moved() {
    let nodes = Nodes::start(1);
    let mut pool =
        nodes.connect().open_pool(request("CartPole-v1", AutoresetMode::NextStep, Transport::Shm)).unwrap();
    assert!(matches!(pool.step(), Err(StepError::Rules(Rules::NotReset))));
    pool.reset(&Reset::all()).unwrap();
    fill(pool.actions(), 0);
    if let ColumnMut::I64(actions) = pool.actions() {
        actions[3] = 7;
    }
    assert!(matches!(pool.step(), Err(StepError::Rules(Rules::Action(_)))));
    fill(pool.actions(), 0);
    pool.step().unwrap();
}

#[test]
fn a_node_without_an_attach_socket_is_stepped_over_quic_unless_memory_was_asked_for() {
    let nodes = Nodes::without_attach();
    let cluster = nodes.connect();
    let pool = cluster.open_pool(request("CartPole-v1", AutoresetMode::NextStep, Transport::Auto)).unwrap();
    assert_eq!(transports(&pool), [Some(Transport::Quic)]);
    let refused =
        cluster.open_pool(request("CartPole-v1", AutoresetMode::NextStep, Transport::Shm)).unwrap_err();
    assert!(matches!(&refused, OpenError::NoMemory { .. }));
    let sentence = refused.to_string();
    assert_eq!(sentence, "transport=shm: node node-0: no shared memory: the node has no attach socket");
}

#[test]
fn quic_is_used_when_it_is_asked_for_and_sessions_say_by_what_they_are_stepped() {
    let nodes = Nodes::start(1);
    let mut options = nodes.options();
    options.transport = Some(Transport::Quic);
    let cluster = nodes.connect_with(options);
    let pools = [Transport::Quic, Transport::Shm].map(|transport| {
        let mut pool = cluster.open_pool(request("CartPole-v1", AutoresetMode::NextStep, transport)).unwrap();
        pool.reset(&Reset::all()).unwrap();
        pool
    });
    assert_eq!(
        pools.each_ref().map(|pool| transports(pool)[0]),
        [Some(Transport::Quic), Some(Transport::Shm)]
    );
    let told = || {
        let sessions = cluster.sessions().unwrap().sessions;
        let mut words: Vec<_> = sessions.into_iter().filter_map(|session| session.report.transport).collect();
        words.sort();
        words
    };
    // The node tells it with its next heartbeat.
    while told() != ["quic", "shm"] {}
}

#[test]
fn an_attach_folder_of_the_callers_own_is_looked_into() {
    let nodes = Nodes::start(1);
    let there = nodes.folder().join("mounted-here");
    let empty = nodes.folder().join("mounted-nothing");
    std::fs::create_dir(&empty).unwrap();
    std::os::unix::fs::symlink(nodes.attach_folder(0), &there).unwrap();
    for (folder, wanted) in [(there, Transport::Shm), (empty, Transport::Quic)] {
        let options = ConnectOptions { attach: Some(folder), ..nodes.options() };
        let request = request("CartPole-v1", AutoresetMode::NextStep, Transport::Auto);
        let pool = nodes.connect_with(options).open_pool(request).unwrap();
        assert_eq!(transports(&pool), [Some(wanted)]);
    }
}

#[test]
fn a_session_whose_node_stops_is_gone_and_its_owner_is_told_at_once() {
    let mut nodes = Nodes::start(1);
    let mut request = request("CartPole-v1", AutoresetMode::NextStep, Transport::Shm);
    request.on_loss = Some(OnLoss::Report);
    let mut pool = nodes.connect().open_pool(request).unwrap();
    pool.reset(&Reset::all()).unwrap();
    fill(pool.actions(), 0);
    let last = ColumnData::from(pool.step().unwrap().obs(0));
    let memory = pool.memory();
    nodes.stop(0);
    let frame = pool.step().unwrap();
    assert_eq!((ColumnData::from(frame.obs(0)), frame.truncated()), (last, &[1; LANES][..]));
    assert!(!pool.is_in_place(), "frames are the pool's own");
    let error = pool.step().unwrap_err();
    assert!(matches!(error, StepError::AllLost { .. }), "{error}");
    // What was shown stays readable.
    drop(pool);
    drop(memory);
}

/// As many lanes as possible on one node.
fn packed(nodes: &Nodes, env: &str, autoreset: AutoresetMode, spread: Spread) -> Pool {
    let mut request = request(env, autoreset, Transport::Shm);
    request.spread = spread;
    nodes.connect().open_pool(request).unwrap()
}

fn node_of(pool: &Pool, session: usize) -> usize {
    let (name, _) = pool.sessions().nth(session).unwrap();
    name.strip_prefix("node-").unwrap().parse().unwrap()
}

#[test]
fn lanes_in_memory_go_on_elsewhere_where_they_stood_when_their_node_is_gone() {
    for (env, mode, spread) in [
        ("CartPole-v1", AutoresetMode::NextStep, Spread::Pack),
        ("Pendulum-v1", AutoresetMode::SameStep, Spread::Pack),
        ("CartPole-v1", AutoresetMode::SameStep, Spread::Even),
    ] {
        let same_step = mode == AutoresetMode::SameStep;
        let mut nodes = Nodes::start(2);
        let mut pool = packed(&nodes, env, mode, spread);
        assert_eq!(pool.is_in_place(), spread == Spread::Pack);
        let mut engine = engine(env, mode);
        compare(&mut pool, &mut engine, same_step, 150);
        let gone = node_of(&pool, 0);
        nodes.stop(gone);
        let memory = pool.memory();
        for step in 150..400 {
            fill(pool.actions(), step);
            fill(engine.actions().unwrap(), step);
            let here = shown(engine.step().unwrap(), same_step);
            assert_eq!(shown(pool.step().unwrap(), same_step), here, "{env}, step {step}");
            assert_eq!(pool.lost(), 0);
        }
        assert!(!pool.is_in_place());
        assert_ne!(node_of(&pool, 0), gone);
        assert_eq!(transports(&pool)[0], Some(Transport::Quic));
        drop(memory);
    }
}

#[test]
fn lanes_in_memory_leave_a_node_that_drains_with_their_next_step() {
    for spread in [Spread::Pack, Spread::Even] {
        let nodes = Nodes::start(2);
        let mut pool = packed(&nodes, "CartPole-v1", AutoresetMode::NextStep, spread);
        let mut engine = engine("CartPole-v1", AutoresetMode::NextStep);
        compare(&mut pool, &mut engine, false, 100);
        let left = node_of(&pool, 0);
        nodes.connect_as("admin").drain(format!("node-{left}")).unwrap();
        let mut step = 100;
        while node_of(&pool, 0) == left {
            fill(pool.actions(), step);
            fill(engine.actions().unwrap(), step);
            let here = shown(engine.step().unwrap(), false);
            assert_eq!(shown(pool.step().unwrap(), false), here, "step {step}");
            step += 1;
        }
        for step in step..step + 100 {
            fill(pool.actions(), step);
            fill(engine.actions().unwrap(), step);
            let here = shown(engine.step().unwrap(), false);
            assert_eq!(shown(pool.step().unwrap(), false), here, "step {step}");
        }
    }
}

#[test]
fn lanes_sent_in_parts_through_memory_go_on_elsewhere_too() {
    for spread in [Spread::Pack, Spread::Even] {
        let mut nodes = Nodes::start(2);
        let mut pool = packed(&nodes, "CartPole-v1", AutoresetMode::NextStep, spread);
        let mut engine = engine("CartPole-v1", AutoresetMode::NextStep);
        pool.reset(&Reset::seeded(1, LANES)).unwrap();
        engine.reset(&Reset::seeded(1, LANES)).unwrap();
        for step in 0..120u32 {
            if step == 60 {
                nodes.stop(node_of(&pool, 0));
            }
            let lanes: Vec<u32> = (0..LANES as u32).filter(|lane| (lane + step) % 3 == 0).collect();
            let actions: Vec<i64> = lanes.iter().map(|lane| i64::from((lane + step) % 2)).collect();
            pool.send(&lanes, ColumnRef::I64(&actions)).unwrap();
            engine.send(&lanes, ColumnRef::I64(&actions)).unwrap();
            let here = engine.recv(lanes.len(), Duration::from_secs(30)).unwrap();
            let there = pool.recv(lanes.len(), Duration::from_secs(30)).unwrap();
            assert_eq!(rows_of(&there), rows_of(&here), "step {step}");
        }
        // Lockstep goes on from there.
        for step in 0..50 {
            fill(pool.actions(), step);
            fill(engine.actions().unwrap(), step);
            assert_eq!(shown(pool.step().unwrap(), false), shown(engine.step().unwrap(), false));
        }
    }
}

#[test]
fn lanes_in_memory_that_are_reported_as_lost_begin_new_episodes_elsewhere() {
    for spread in [Spread::Pack, Spread::Even] {
        let mut nodes = Nodes::start(2);
        let mut request = request("CartPole-v1", AutoresetMode::NextStep, Transport::Shm);
        (request.spread, request.on_loss) = (spread, Some(OnLoss::Report));
        let mut pool = nodes.connect().open_pool(request).unwrap();
        pool.reset(&Reset::seeded(3, LANES)).unwrap();
        for step in 0..30 {
            fill(pool.actions(), step);
            pool.step().unwrap();
        }
        let lanes = pool.sessions().next().unwrap().1;
        nodes.stop(node_of(&pool, 0));
        fill(pool.actions(), 30);
        let frame = pool.step().unwrap();
        let cut: Vec<usize> = (0..LANES).filter(|&lane| frame.truncated()[lane] == 1).collect();
        assert_eq!(cut, lanes.clone().collect::<Vec<_>>());
        assert_eq!(pool.lost(), lanes.len());
        let begun = loop {
            fill(pool.actions(), 31);
            match pool.step() {
                Ok(frame) if frame.reset()[lanes.start] == 1 => break frame.reset()[lanes.clone()].to_vec(),
                Ok(_) | Err(StepError::AllLost { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        };
        assert!(begun.iter().all(|&flag| flag == 1), "all of them at once");
        assert_eq!(pool.lost(), 0);
    }
}

/// Symptom: a step after all lanes were lost, of a pool whose lanes come back, was refused as one before the first reset where
/// no other node had a place for them within a second. Cause: nothing had moved, yet the pool asked for a reset.
#[test]
fn a_pool_all_of_whose_lanes_are_lost_can_be_stepped_until_they_are_back() {
    for transport in [Transport::Shm, Transport::Quic] {
        let mut nodes = Nodes::start(1);
        let mut request = request("CartPole-v1", AutoresetMode::NextStep, transport);
        request.on_loss = Some(OnLoss::Report);
        let mut pool = nodes.connect().open_pool(request).unwrap();
        pool.reset(&Reset::seeded(3, LANES)).unwrap();
        nodes.stop(node_of(&pool, 0));
        fill(pool.actions(), 0);
        assert_eq!(pool.step().unwrap().truncated(), [1; LANES]);
        for _ in 0..2 {
            let error = pool.step().unwrap_err();
            assert!(matches!(error, StepError::AllLost { .. }), "{error}");
        }
    }
}

#[test]
fn a_session_in_shared_memory_that_hangs_is_given_up_at_its_deadline_and_another_steps_on() {
    let nodes = Nodes::giving_up_after(Duration::from_millis(200));
    let mut hangs = request("test/Faulty-v0", AutoresetMode::NextStep, Transport::Shm);
    hangs.settings.options.insert("hang_at".to_owned(), OptionValue::Int(2));
    let mut pool = nodes.connect().open_pool(hangs).unwrap();
    pool.reset(&Reset::all()).unwrap();
    fill(pool.actions(), 0);
    pool.step().unwrap();
    let error = pool.step().unwrap_err();
    assert!(matches!(error, StepError::AllLost { .. }), "{error}");
    assert_eq!(pool.loss(0), Some(Outcome::Interrupted(Interruption::Hung)));
    // They stay lost: begun anew they would hang again, and take another thread with them.
    let error = pool.reset(&Reset::all()).unwrap_err();
    assert!(matches!(error, StepError::AllLost { .. }), "{error}");
    assert_eq!(pool.loss(0), Some(Outcome::Interrupted(Interruption::Hung)));
    let other = request("test/Faulty-v0", AutoresetMode::NextStep, Transport::Shm);
    let mut pool = nodes.connect().open_pool(other).unwrap();
    compare(&mut pool, &mut engine("test/Faulty-v0", AutoresetMode::NextStep), false, 20);
}

#[test]
fn one_owner_after_another_attaches_and_goes() {
    let nodes = Nodes::start(1);
    for _ in 0..5 {
        let request = request("CartPole-v1", AutoresetMode::NextStep, Transport::Shm);
        let mut pool = nodes.connect().open_pool(request).unwrap();
        compare(&mut pool, &mut engine("CartPole-v1", AutoresetMode::NextStep), false, 20);
        pool.close().unwrap();
    }
}

/// Counts every step the env has made: as many as `steps`, each with the action that was meant for it, and the frames'
/// numbers rise by one.
fn count(steps: u64) {
    let nodes = Nodes::start(1);
    let mut request = PoolRequest::new("Echo-v0", 1);
    request.settings.max_episode_steps = Some(0);
    request.transport = Some(Transport::Shm);
    let mut pool = nodes.connect().open_pool(request).unwrap();
    let first = pool.reset(&Reset::all()).unwrap().number();
    for step in 1..=steps {
        let action = (step % 256) as f32 / 256.0;
        if let ColumnMut::F32(actions) = pool.actions() {
            actions.fill(action);
        }
        let frame = pool.step().unwrap();
        assert_eq!(frame.number(), first + step);
        assert_eq!(frame.info(0).as_i64().unwrap(), [step as i64], "a step was missed or doubled");
        assert_eq!(frame.rewards(), [f64::from(action)], "step {step} took another action");
        assert_eq!(frame.obs(0).as_f32().unwrap()[99], action + (step % 65_536) as f32);
    }
}

#[test]
fn no_step_is_missed_and_none_doubled() {
    // Ten million are counted by `ROLLHOUSE_SOAK=200`.
    let soak = std::env::var("ROLLHOUSE_SOAK").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    count(50_000 * soak);
}

/// What a client says to an attach socket that hands over these files.
fn told_of(outputs: std::fs::File, inputs: std::fs::File) -> String {
    let nodes = Nodes::start(1);
    let fake = nodes.folder().join("fake");
    std::fs::create_dir(&fake).unwrap();
    let (bound, ready) = std::sync::mpsc::sync_channel(1);
    let path = fake.join("a.sock");
    let server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = rollhouse_wire::AttachListener::bind(&path, &[]).unwrap();
            bound.send(()).unwrap();
            let rollhouse_wire::LocalArrival::Admitted(mut socket) = listener.accept().await.unwrap() else {
                panic!("our own user is admitted");
            };
            socket.request().await.unwrap();
            let attached = rollhouse_wire::MemoryAttached {
                lanes: LANES as u32,
                last: 0,
                generation: 1,
                logs: false,
                refused: None,
                paced: false,
            };
            use std::os::fd::AsFd;
            socket.accept(attached, [outputs.as_fd(), inputs.as_fd()]).await.unwrap();
            socket.gone().await;
        });
    });
    ready.recv().unwrap();
    let options = ConnectOptions { attach: Some(fake), ..nodes.options() };
    let request = request("CartPole-v1", AutoresetMode::NextStep, Transport::Shm);
    let error = nodes.connect_with(options).open_pool(request).unwrap_err();
    server.join().unwrap();
    error.to_string()
}

#[test]
fn files_that_are_no_memory_of_the_session_are_refused_by_name() {
    let nodes_file = |name: &str, bytes: u64| {
        let path = std::env::temp_dir().join(format!("rollhouse-fake-{}-{name}", std::process::id()));
        let file =
            std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.set_len(bytes).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    };
    let told = told_of(nodes_file("outputs", 1 << 20), nodes_file("inputs", 1 << 20));
    assert!(
        told.starts_with("transport=shm: node node-0: no shared memory: the outputs file cannot be mapped"),
        "{told}"
    );
    let sealed = || {
        let memory = rollhouse_arena::SharedMemory::create("test", 64).unwrap();
        std::fs::File::from(std::os::fd::AsFd::as_fd(&memory).try_clone_to_owned().unwrap())
    };
    let told = told_of(sealed(), sealed());
    assert!(told.contains("no shared memory: "), "{told}");
}

#[test]
fn a_reset_through_memory_is_no_command() {
    let nodes = Nodes::start(1);
    let asked = request("CartPole-v1", AutoresetMode::NextStep, Transport::Shm);
    let mut pool = nodes.connect().open_pool(asked).unwrap();
    pool.reset(&Reset::all()).unwrap();
    let refused = pool.call::<ResetLanes>(0, &ResetParams::default()).unwrap_err();
    assert!(
        matches!(&refused, MethodError::Refused { refusal, .. } if refusal.code == RefusalCode::Unsupported),
        "{refused}"
    );
    pool.step().unwrap();
}
