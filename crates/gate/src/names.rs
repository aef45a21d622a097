//! Names that are drawn.

use ring::rand::{SecureRandom, SystemRandom};

/// Draws a name of 12 hexadecimal digits; `None` if the system has no randomness.
pub(crate) fn random_name() -> Option<String> {
    let mut bytes = [0; 6];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
