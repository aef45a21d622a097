//! Checks what nodes say of lanes before it is used.

use rollhouse_wire::{LostLane, Notes};

/// Checks that an answer only speaks of lanes that the session has.
pub(crate) fn check_notes(notes: &Notes, losses: &[LostLane], lanes: usize) -> Result<(), String> {
    let malformed = || "notes that are not a whole number of records".to_owned();
    let began = notes.began().ok_or_else(malformed)?.map(|began| began.lane).max();
    let hashed = notes.hashes().ok_or_else(malformed)?.map(|(lane, _)| lane).max();
    let lost = losses.iter().map(|loss| loss.lane).max();
    match began.max(hashed).max(lost) {
        Some(lane) if lane as usize >= lanes => Err(format!("notes of lane {lane} of a session of {lanes}")),
        _ => Ok(()),
    }
}
