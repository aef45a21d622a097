//! A message of every kind, as the golden files have them.

mod answers;
pub(super) mod policy_messages;
pub(super) mod replay_messages;
pub(super) mod requests;
mod sidecars;
mod values;

use std::fmt::Debug;

use rollhouse_core::msgpack::Message;
use rollhouse_wire::{Answer, control};

/// One message, its bytes and how to read them.
pub(super) struct Sample {
    pub(super) name: &'static str,
    pub(super) bytes: Vec<u8>,
    /// Whether these bytes, without a length word, are the message.
    pub(super) reads: Box<Reads>,
    /// What these bytes, without a length word, mean to this version, as it says it itself.
    pub(super) said_again: Box<SaidAgain>,
}

type Reads = dyn Fn(&[u8]) -> Result<bool, String>;
type SaidAgain = dyn Fn(&[u8]) -> Result<Vec<u8>, String>;

pub(super) fn sample<T>(name: &'static str, message: T) -> Sample
where
    T: Message + PartialEq + Debug + 'static,
{
    let mut bytes = Vec::new();
    control::encode(&message, &mut bytes).unwrap();
    let reads = move |bytes: &[u8]| match control::decode::<T>(bytes) {
        Ok(read) => Ok(read == message),
        Err(error) => Err(error.to_string()),
    };
    let said_again = |bytes: &[u8]| {
        let read = control::decode::<T>(bytes).map_err(|error| error.to_string())?;
        let mut again = Vec::new();
        control::encode(&read, &mut again).map_err(|error| error.to_string())?;
        Ok(again.split_off(4))
    };
    Sample { name, bytes, reads: Box::new(reads), said_again: Box::new(said_again) }
}

pub(super) fn answer<T>(name: &'static str, value: T) -> Sample
where
    T: Message + PartialEq + Debug + 'static,
{
    sample(name, Answer::Ok(value))
}

/// Returns a sample of every message.
pub(super) fn samples() -> Vec<Sample> {
    let replays = replay_messages::requests().into_iter().chain(replay_messages::others());
    let policies = policy_messages::requests().into_iter().chain(policy_messages::others());
    requests::requests()
        .into_iter()
        .chain(replays)
        .chain(policies)
        .chain(requests::further_requests())
        .chain(answers::answers())
        .chain(sidecars::sidecars())
        .chain(sidecars::envelopes())
        .collect()
}
