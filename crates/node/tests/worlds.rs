//! Worlds of a kind that no crate knows: all that is written to add one, and what a provider brings about that is slow,
//! silent or untrue.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::cluster;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use cluster::{Cluster, session, session_of};
use parking_lot::Mutex;
use rollhouse_core::limits::MAX_OBS_COLUMNS;
use rollhouse_core::{EnvId, EnvKind, EnvSource, EnvSpec, Role, SharedBound};
use rollhouse_env::{EnvEntry, Registry};
use rollhouse_host::{
    ConnectWatch, EnvProvider, EnvProviders, EnvRequest, LearnError, LearnReason, LearnedEnv, RecordedEnvs,
};
use rollhouse_wire::{FrameKind, RefusalCode};

/// Worlds `trial://HOW/NAME`, each of which is a built-in env. `HOW` is how the provider answers.
#[derive(Debug, Clone)]
struct Trial {
    /// Milliseconds within which it promises to answer.
    within: Arc<AtomicU64>,
    /// What the silent worlds wait for.
    gate: Arc<Mutex<Receiver<()>>>,
}

impl Trial {
    /// Makes the worlds, and what has a silent one answer.
    fn new(within: u64) -> (Self, SyncSender<()>) {
        let (open, gate) = sync_channel(1);
        (Self { within: Arc::new(within.into()), gate: Arc::new(Mutex::new(gate)) }, open)
    }
}

impl EnvProvider for Trial {
    fn kinds(&self) -> Vec<EnvKind> {
        EnvKind::of_worlds("trial").into_iter().collect()
    }

    fn has(&self, id: &EnvId) -> bool {
        matches!(id.source(), EnvSource::Foreign(kind) if self.kinds().contains(kind))
    }

    fn learn_within(&self) -> Duration {
        Duration::from_millis(self.within.load(Ordering::Relaxed))
    }

    fn learn(&self, asked: &EnvRequest, _: &ConnectWatch) -> Result<LearnedEnv, LearnError> {
        let (how, name) = asked.id.rsplit_once('/').unwrap();
        let kernel = Registry::builtin().get(name);
        let kernel = kernel.map_err(|unknown| LearnError::new(LearnReason::NotFound, unknown))?;
        let spec =
            EnvSpec { id: asked.id.to_string(), source: asked.id.source().clone(), ..kernel.spec().clone() };
        let mut of_lanes = spec.clone();
        let mut told = spec;
        let channel = |role| rollhouse_core::ColumnSpec { role, ..kernel.spec().action_column() };
        match how.rsplit('/').next().unwrap() {
            "silent" => drop(self.gate.lock().recv()),
            "panicking" => panic!("a world fell down"),
            "other" => told.id = format!("trial://other/{name}2"),
            "named-python" => told.source = EnvSource::of_id("trial:World"),
            "masked" => told.info_channels = vec![channel(Role::ActionMask)],
            "wide" => told.info_channels = vec![channel(Role::Info); MAX_OBS_COLUMNS + 1],
            "two-faced" => of_lanes.observation_space = kernel.spec().action_space.clone().into(),
            _ => of_lanes = told.clone(),
        }
        Ok(LearnedEnv::new(told, move |_, _| {
            let kernel = Arc::clone(&kernel);
            EnvEntry::new(of_lanes.clone(), move |set, options| kernel.make_block_on(set, options))
        }))
    }
}

const LONG: u64 = 600_000;

fn node(trial: &Trial) -> Cluster {
    Cluster::start(|config| config.providers = trial.clone().into())
}

#[test]
fn a_node_registers_the_kind_of_a_provider_that_it_does_not_know_and_steps_its_worlds() {
    let (trial, _open) = Trial::new(LONG);
    let providers = EnvProviders::from(trial.clone());
    assert_eq!(providers.kinds().iter().map(EnvKind::to_string).collect::<Vec<_>>(), ["trial://*"]);
    let cluster = node(&trial);
    let open = session(1, "trial://usual/CartPole-v1", 2);
    let opened = cluster.coordinator.open(&open).unwrap();
    assert_eq!(opened.spec.id, "trial://usual/CartPole-v1");
    assert_eq!(opened.spec.source, EnvSource::Foreign(EnvKind::of_worlds("trial").unwrap()));
    let owner = cluster.owner();
    let mut stepper = owner.attach(&open);
    assert_eq!(stepper.reset(1).header.kind, FrameKind::Batch);
    assert_eq!(stepper.step(2, &[0, 1]).header.kind, FrameKind::Batch);
}

#[test]
fn what_a_provider_says_that_is_not_so_is_a_refusal_that_names_it() {
    let (trial, _open) = Trial::new(LONG);
    let cluster = node(&trial);
    for (pool, (how, code, says)) in (1..).zip([
        ("other", RefusalCode::Unsupported, "describes `trial://other/CartPole-v12`"),
        ("named-python", RefusalCode::Unsupported, "describes `trial://named-python/CartPole-v1`"),
        ("masked", RefusalCode::Unsupported, "describes what no env may be: action space"),
        ("wide", RefusalCode::Unsupported, "columns of one kind, may have at most"),
        ("two-faced", RefusalCode::Unsupported, "of another spec than it was learned with"),
        ("panicking", RefusalCode::Internal, "a world fell down"),
    ]) {
        let open = session(pool, &format!("trial://{how}/CartPole-v1"), 1);
        let refusal = cluster.coordinator.open(&open).unwrap_err();
        assert_eq!(refusal.code, code, "{how}: {refusal}");
        assert!(refusal.message.contains(says), "{how}: {refusal}");
    }
    let unknown = cluster.coordinator.open(&session(20, "trial://usual/Nowhere-v1", 1)).unwrap_err();
    assert_eq!(unknown.code, RefusalCode::NotFound);
    let foreign = cluster.coordinator.open(&session(21, "moon://usual/CartPole-v1", 1)).unwrap_err();
    assert_eq!(foreign.code, RefusalCode::NotFound, "no provider has that kind");
    cluster.coordinator.open(&session(22, "trial://usual/CartPole-v1", 1)).unwrap();
}

#[test]
fn a_provider_that_never_answers_takes_its_asker_s_threads_and_nobody_s_answer() {
    let (trial, _open) = Trial::new(1);
    let cluster = node(&trial);
    let silent = |pool: u128, owner: &str| {
        let open = session_of(owner, pool, &format!("trial://{pool}/silent/CartPole-v1"), 1);
        cluster.coordinator.open(&open).unwrap_err()
    };
    let codes: Vec<_> =
        (1..=u128::from(SharedBound::LEARNING.limit)).map(|pool| silent(pool, "ada").code).collect();
    assert_eq!(codes.first(), Some(&RefusalCode::Unsupported));
    assert_eq!(codes.last(), Some(&RefusalCode::Busy), "its share is taken");
    trial.within.store(LONG, Ordering::Relaxed);
    cluster.coordinator.open(&session_of("bob", 100, "trial://usual/CartPole-v1", 1)).unwrap();
    cluster.coordinator.open(&session_of("ada", 101, "CartPole-v1", 1)).unwrap();
}

#[test]
fn an_answer_that_comes_too_late_is_nobody_s_and_who_asks_again_gets_a_new_one() {
    let (trial, open) = Trial::new(1);
    let cluster = node(&trial);
    let asked = |pool| cluster.coordinator.open(&session(pool, "trial://silent/CartPole-v1", 1));
    let refusal = asked(1).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Unsupported);
    assert!(refusal.message.contains("was not learned within 1ms"), "{refusal}");
    drop(open);
    trial.within.store(LONG, Ordering::Relaxed);
    assert_eq!(asked(2).unwrap().spec.id, "trial://silent/CartPole-v1");
}

#[test]
fn recorded_worlds_are_learned_in_their_time_or_refused_and_the_refusal_is_remembered() {
    let (trial, _open) = Trial::new(LONG);
    let of = |how: &str| EnvSpec {
        id: format!("trial://{how}/CartPole-v1"),
        ..Registry::builtin().get("CartPole-v1").unwrap().spec().clone()
    };
    let recorded = RecordedEnvs::new(trial.clone().into());
    assert_eq!(recorded.entry(&of("usual"), "").unwrap().spec().id, of("usual").id);
    for (how, reason) in [
        ("other", LearnReason::Unsupported),
        ("two-faced", LearnReason::Unsupported),
        ("panicking", LearnReason::Internal),
    ] {
        assert_eq!(recorded.entry(&of(how), "").unwrap_err().reason(), reason, "{how}");
    }
    trial.within.store(1, Ordering::Relaxed);
    let late = recorded.entry(&of("silent"), "").unwrap_err();
    assert_eq!(late.reason(), LearnReason::Late);
    trial.within.store(LONG, Ordering::Relaxed);
    assert!(Arc::ptr_eq(&recorded.entry(&of("silent"), "").unwrap_err(), &late), "it is not asked again");
}
