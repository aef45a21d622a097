//! What goes beside columns of frames, and commands in their envelopes.

use std::collections::BTreeMap;

use rollhouse_core::{Began, DType, OptionValue, Start, StepColumn, StepColumns, messages};
use rollhouse_policy::Sampling;
use rollhouse_wire::{
    Attach, Envelope, FragmentNotes, LostLane, Notes, PlaySteps, PolicyGiven, PolicyLags, PolicyTaken,
    Refusal, RefusalCode, Request, ResetLanes, SendLanes, StepNotes,
};
use serde::{Deserialize, Serialize};

use super::values::{INCARNATION, POOL, secret};
use super::{Sample, sample};

pub(super) fn sidecars() -> Vec<Sample> {
    let reset = ResetLanes { seeds: vec![Some(7), None], mask: vec![1, 0], ..ResetLanes::default() };
    let options = BTreeMap::from([
        ("low".to_owned(), vec![OptionValue::Float(-0.05), OptionValue::Int(0)]),
        ("wind".to_owned(), vec![OptionValue::Bool(true)]),
    ]);
    let with_options = ResetLanes { options, ..ResetLanes::default() };
    let kept = ResetLanes { kept: true, ..with_options.clone() };
    let start = Start { seed: 7, words: 12, half: Some(0xabcd) };
    let policy =
        PolicyGiven { name: "pong".to_owned(), version: 7, seed: 3, sampling: None, keeps_states: false };
    let sampling = Sampling { deterministic: false, temperature: 0.5, epsilon: 0.1 };
    let value = StepColumn { name: "value".to_owned(), dtype: DType::F32, shape: Vec::new() };
    let columns = StepColumns::new(vec![value]).unwrap();
    let lags = PolicyLags { data: vec![1, 2], publishing_us: vec![1_500] };
    let leaving = Notes { leaving: true, ..Notes::default() };
    let fragment = FragmentNotes {
        steps: 3,
        version: 7,
        finals: vec![1, 65],
        notes: vec![StepNotes { step: 2, notes: leaving }],
    };
    let mut log = Notes::default();
    log.put_began(&Began { lane: 5, number: 203, start });
    log.put_hash(6, 0xdead_beef);
    vec![
        sample(
            "attach-log",
            Request::Attach(Attach {
                pool: POOL,
                index: 1,
                incarnation: INCARNATION,
                secret: secret(),
                log: true,
            }),
        ),
        sample("sidecar-reset", reset),
        sample("sidecar-reset-options", with_options),
        sample("sidecar-reset-options-kept", kept),
        sample("sidecar-send", SendLanes { min: 32 }),
        sample("sidecar-notes", Notes { lost: vec![LostLane { lane: 5, outcome: 3 }], ..Notes::default() }),
        sample("sidecar-notes-log", log),
        sample("sidecar-notes-leaving", Notes { leaving: true, ..Notes::default() }),
        sample("sidecar-play", PlaySteps { steps: 128, at: 1 << 40, lags: PolicyLags::default() }),
        sample("sidecar-play-lags", PlaySteps { steps: 1, at: 0, lags }),
        sample("sidecar-policy", policy.clone()),
        sample("sidecar-policy-states", PolicyGiven { keeps_states: true, ..policy.clone() }),
        sample("sidecar-policy-drawing", PolicyGiven { sampling: Some(sampling), ..policy }),
        sample(
            "sidecar-follows-states",
            PolicyTaken { states: Some(columns.clone()), columns: columns.clone() },
        ),
        sample("sidecar-follows", PolicyTaken { columns, states: None }),
        sample("sidecar-fragment", FragmentNotes { steps: 3, version: 7, ..FragmentNotes::default() }),
        sample("sidecar-fragment-notes", fragment),
        sample("sidecar-refused", Refusal::new(RefusalCode::BadRequest, "action 9 of lane 3, at most 1")),
    ]
}

#[derive(Serialize, Deserialize)]
pub(super) struct RenderParams {
    lane: u32,
}

#[derive(Serialize, Deserialize)]
pub(super) struct RenderAnswer {
    height: u32,
}

messages!(RenderParams, RenderAnswer);

pub(super) fn envelopes() -> Vec<Sample> {
    let command = Envelope::command(7, "render", &RenderParams { lane: 3 }).unwrap();
    let answered = command.clone().answered(Ok(&RenderAnswer { height: 160 }));
    let refused = Refusal::new(RefusalCode::Unsupported, "image of lane 3: the env does not draw itself");
    let refused = command.clone().answered::<()>(Err(refused));
    vec![
        sample("envelope-command", command),
        sample("envelope-answer", answered),
        sample("envelope-error", refused),
    ]
}
