//! How sessions are opened and ended, also when what does so is cut short.

use super::*;
use crate::executor::Crew;
use rollhouse_core::{AutoresetMode, RecordRule, SeedSchedule, StepColumns};
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{SyncSender, sync_channel};

use rollhouse_core::RunId;
use rollhouse_env::testing::{Timing, late};
use rollhouse_env::{BlockEnv, EnvEntry, InstructionSet, MakeError};
use rollhouse_wire::{LaneSettings, OpenSession, Secret, pool_id_of};

use crate::Node;

pub(crate) fn open(env: &str) -> OpenSession {
    OpenSession {
        session: SessionId { pool: pool_id_of("trainer", RunId::from_u128(1 << 32)), index: 0 },
        incarnation: Incarnation { term: 1, counter: 1 },
        secret: Secret::from_bytes([0; 16]),
        owner: "trainer".to_owned(),
        operates: false,
        first_lane: 0,
        lanes: 1,
        pool_lanes: 1,
        replaces: false,
        resume: None,
        settings: LaneSettings {
            env: env.into(),
            env_kwargs: String::new(),
            deterministic: None,
            infos: Default::default(),
            pace: None,
            options: Default::default(),
            autoreset: AutoresetMode::NextStep,
            max_episode_steps: None,
            seeds: SeedSchedule::PerEpisode { run_seed: 3 },
            record: RecordRule::None,
            collect: None,
            replay: None,
            step_columns: StepColumns::default(),
        },
    }
}

pub(crate) fn hosting(registry: Registry, node: &Node, lease: Duration) -> Arc<Hosting> {
    let figures: Arc<NodeFigures> = Arc::default();
    let hang_deadline = Duration::from_secs(60);
    let executor = Executor::of_one(hang_deadline, Arc::clone(&figures));
    let settings = HostingSettings {
        capacity: 8,
        lease,
        deadlines: Deadlines::of_sessions(hang_deadline),
        program: "test 1".to_owned(),
        watch_patience: Duration::from_secs(15),
        budget: Default::default(),
        folder: None,
        connections: SharedBound::CONNECTIONS,
    };
    Arc::new(Hosting::new(
        settings,
        (Arc::new(registry), rollhouse_host::EnvProviders::new([])),
        executor,
        Fitness::default(),
        Arc::clone(node.supervision()),
        figures,
    ))
}

/// Keeps the one worker busy until something is sent.
fn occupy_worker(hosting: &Hosting) -> SyncSender<()> {
    let (let_go, go) = sync_channel::<()>(1);
    drop(
        hosting
            .executor
            .submit(
                (Crew::Waiting, &Claimant::owner("trainer")),
                move || go.recv().unwrap(),
                Box::new(|| false),
            )
            .unwrap(),
    );
    let_go
}

#[test]
fn a_session_that_is_closed_while_it_waits_to_be_made_is_never_made() {
    let (registry, made) = (Registry::builtin(), Arc::new(AtomicU32::new(0)));
    let mut spec = registry.get("test/Faulty-v0").unwrap().spec().clone();
    spec.id = "Counted".to_owned();
    let count = Arc::clone(&made);
    let entry = EnvEntry::per_lane(spec, move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Err::<Never, _>(MakeError::Missing { lane: 0, name: "everything" })
    });
    registry.register(entry).unwrap();
    let node = Node::start().unwrap();
    let hosting = hosting(registry, &node, Duration::from_secs(30));
    let let_go = occupy_worker(&hosting);
    let open = open("Counted");
    let close = CloseSession { session: open.session, incarnation: open.incarnation };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (opened, closed) = runtime.block_on(async {
        tokio::join!(biased; hosting.open(&open, None), async {
            let closed = hosting.close(&close).await;
            let_go.send(()).unwrap();
            closed
        })
    });
    assert_eq!(opened.unwrap_err().code, RefusalCode::Stale);
    assert_eq!(closed.unwrap_err().code, RefusalCode::NotFound);
    assert_eq!(made.load(Ordering::Relaxed), 0);
    assert_eq!(hosting.sessions(), 0);
}

/// Symptom: a node opened sessions under the id of any pool, so that recordings of one owner came under the name of
/// another. Cause: only the coordinator looked whether an id is its owner's. Fix: the node looks as well.
#[test]
fn a_session_under_the_id_of_another_owners_pool_is_refused_by_name_and_leaves_nothing() {
    let node = Node::start().unwrap();
    let hosting = hosting(Registry::builtin(), &node, Duration::from_secs(30));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let open = open("CartPole-v1");
    let of_another = OpenSession { owner: "eve".to_owned(), ..open.clone() };
    let refusal = runtime.block_on(hosting.open(&of_another, None)).unwrap_err();
    let said = format!("{} is not an id of a pool of `eve`", open.session.pool);
    assert!(refusal.code == RefusalCode::BadRequest && refusal.message.contains(&said), "{refusal:?}");
    assert_eq!(hosting.sessions(), 0);
    runtime.block_on(async {
        hosting.open(&open, None).await.unwrap();
        hosting.evict_all().await;
    });
}

/// Symptom: on a node without `[python]` the processes of isolated plug-ins were started by a thread that steps sessions.
/// Cause: the threads that wait for processes were those of Python envs. Fix: every node has them.
#[test]
fn lanes_that_are_processes_are_made_by_no_thread_that_steps_also_on_a_node_without_python() {
    let registry = Registry::builtin();
    let simulated = late(&registry.get("test/Faulty-v0").unwrap(), Timing::default());
    let (mut spec, made_by) = (simulated.spec().clone(), Arc::new(Mutex::new(None)));
    spec.id = "Named".to_owned();
    let name = Arc::clone(&made_by);
    let entry = EnvEntry::late(spec, move |options| {
        *name.lock() = std::thread::current().name().map(str::to_owned);
        let late = |block| match block {
            BlockEnv::Late(env, _) => env,
            BlockEnv::Kernel(_) => unreachable!("they are late"),
        };
        Ok(simulated.make_blocks_on(InstructionSet::best(), options)?.into_iter().map(late).collect())
    });
    registry.register(entry).unwrap();
    let node = Node::start().unwrap();
    let hosting = hosting(registry, &node, Duration::from_secs(30));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        hosting.open(&open("Named"), None).await.unwrap();
        hosting.evict_all().await;
    });
    assert_eq!(made_by.lock().as_deref(), Some("rollhouse-learn"));
}

#[test]
fn a_session_ends_and_its_end_is_told_also_when_who_asked_for_that_goes() {
    let node = Node::start().unwrap();
    let hosting = hosting(Registry::builtin(), &node, Duration::from_secs(30));
    let open = open("test/Faulty-v0");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        hosting.open(&open, None).await.unwrap();
        let let_go = occupy_worker(&hosting);
        tokio::select! {
            biased;
            _ = hosting.end(open.session, open.incarnation, closed()) => panic!("no worker is free to end it"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(hosting.sessions(), 1);
        let_go.send(()).unwrap();
        hosting.evict_all().await;
    });
    let (ends, _) = hosting.ends();
    assert_eq!((ends[0].session, ends[0].cause, hosting.sessions()), (open.session, EndCause::Closed, 0));
}

#[test]
fn a_session_whose_actor_panics_is_attached_to_and_ended_by_the_next_one() {
    let node = Node::start().unwrap();
    let hosting = hosting(Registry::builtin(), &node, Duration::from_secs(30));
    let open = open("test/Faulty-v0");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        hosting.open(&open, None).await.unwrap();
        node.supervision().panic_session(0);
        drop(hosting.attach(&attach(&open), Transport::Quic).await.unwrap());
        // One that panics while it ends the session leaves that to the next as well.
        let let_go = occupy_worker(&hosting);
        let panicking = async {
            node.supervision().panic_session(0);
            let_go.send(()).unwrap();
        };
        let ending = hosting.end(open.session, open.incarnation, closed());
        let (end, ()) = tokio::join!(biased; ending, panicking);
        assert_eq!(end.unwrap().cause, EndCause::Closed);
    });
    assert_eq!(hosting.sessions(), 0);
}

#[test]
fn a_session_whose_actor_panics_too_often_ends_as_failed_and_its_owner_is_sent_away() {
    let node = Node::start().unwrap();
    let hosting = hosting(Registry::builtin(), &node, Duration::from_secs(30));
    let open = open("CartPole-v1");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        hosting.open(&open, None).await.unwrap();
        let place = hosting.attach(&attach(&open), Transport::Quic).await.unwrap();
        let Stepped::Owned(owned) = &place.session else { panic!("{place:?}") };
        node.supervision().use_up_back_off(0);
        node.supervision().panic_session(0);
        owned.status.ending().await;
        hosting.evict_all().await;
    });
    let (ends, _) = hosting.ends();
    assert_eq!((ends[0].cause, ends[0].detail.as_str()), (EndCause::Failed, "nobody watched it any more"));
}

#[test]
fn evicting_waits_for_sessions_that_somebody_else_is_ending() {
    let node = Node::start().unwrap();
    let hosting = hosting(Registry::builtin(), &node, Duration::from_secs(30));
    let open = open("test/Faulty-v0");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        hosting.open(&open, None).await.unwrap();
        let let_go = occupy_worker(&hosting);
        let evicted = async {
            hosting.evict_all().await;
            assert_eq!(hosting.sessions(), 0);
        };
        let worker = async {
            // Time for who would not wait.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let_go.send(()).unwrap();
        };
        let ending = hosting.end(open.session, open.incarnation, closed());
        let (end, (), ()) = tokio::join!(biased; ending, evicted, worker);
        assert_eq!(end.unwrap().cause, EndCause::Closed);
    });
}

#[test]
fn the_lease_of_a_session_runs_however_the_task_of_its_owner_ends() {
    let (node, lease) = (Node::start().unwrap(), Duration::from_secs(30));
    let hosting = hosting(Registry::builtin(), &node, lease);
    let open = open("CartPole-v1");
    let look = || {
        let later = hosting.now() + lease;
        hosting.table().look(later, open.session, open.incarnation).is_some()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        hosting.open(&open, None).await.unwrap();
        let place = hosting.attach(&attach(&open), Transport::Quic).await.unwrap();
        assert!(!look());
        // Task: attached session.
        let serving = tokio::spawn(async move {
            let _place = place;
            panic!("the task of an owner");
        });
        assert!(serving.await.unwrap_err().is_panic());
    });
    assert!(look());
}

#[test]
fn a_session_whose_lease_is_over_is_ended_by_its_actor() {
    let node = Node::start().unwrap();
    let hosting = hosting(Registry::builtin(), &node, Duration::ZERO);
    let open = open("CartPole-v1");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(hosting.open(&open, None)).unwrap();
    while hosting.sessions() > 0 {
        std::thread::yield_now();
    }
    let (ends, _) = hosting.ends();
    assert_eq!(
        (ends[0].cause, ends[0].detail.as_str()),
        (EndCause::LeaseEnded, "nobody was attached for 0 s")
    );
}

fn closed() -> Gone {
    Gone { cause: EndCause::Closed, detail: String::new() }
}

fn attach(open: &OpenSession) -> Attach {
    let OpenSession { session, incarnation, secret, .. } = *open;
    Attach { pool: session.pool, index: session.index, incarnation, secret, log: false }
}

/// An env that is never made.
struct Never;

impl rollhouse_env::Env for Never {
    fn reset(&mut self, _: &mut rollhouse_env::Generator, _: &mut [rollhouse_core::ColumnMut<'_>]) {}

    fn step(
        &mut self,
        _: &mut rollhouse_env::Generator,
        _: rollhouse_core::ColumnRef<'_>,
        _: &mut [rollhouse_core::ColumnMut<'_>],
        _: &mut [rollhouse_core::ColumnMut<'_>],
    ) -> rollhouse_env::StepResult {
        rollhouse_env::StepResult { reward: 0.0, terminated: false, truncated: false }
    }

    fn state_hash(&self) -> u32 {
        0
    }
}
