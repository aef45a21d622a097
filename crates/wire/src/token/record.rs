//! Records of tokens, as the file keeps them, and all of them as they were at one moment.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{TokenRefused, mark, seconds};
use crate::{JoinTerms, ReadGrant, Role, hex};

/// A token as the file keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRecord {
    /// Id of the token; not secret.
    pub id: String,
    /// Name of its holder, for people; need not be unique.
    pub name: String,
    /// The role of its holder: viewer, trainer, admin, or join.
    pub role: Role,
    /// SHA-256 of the secret, in hexadecimal digits.
    pub(super) secret_sha256: String,
    /// The secret that it had before it was last rotated, while that still holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) earlier: Option<EarlierSecret>,
    /// Number of lanes that its holders may have open at a time, all together; absent means no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_lanes: Option<u32>,
    /// The owners whose recordings, pools and sessions its holders may read beside their own. Absent, a viewer reads
    /// everything and a trainer nothing more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<ReadGrant>,
    /// The nodes that it lets in; set for join tokens, and only for those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<JoinTerms>,
    /// Time at which it was made, in seconds since 1970.
    pub created: u64,
    /// Time from which it no longer holds, in seconds since 1970; absent means that it holds for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// Time at which it was revoked, in seconds since 1970; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<u64>,
}

/// A secret that was replaced and holds for some time all the same, so that its holders can change over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EarlierSecret {
    /// SHA-256 of the secret, in hexadecimal digits.
    pub(super) secret_sha256: String,
    /// Time from which it no longer holds, in seconds since 1970.
    pub(super) until: u64,
}

impl TokenRecord {
    /// Returns the time from which the secret before the last rotation no longer holds, in seconds since 1970; `None` if
    /// there is none that may hold.
    pub fn earlier_until(&self) -> Option<u64> {
        self.earlier.as_ref().map(|earlier| earlier.until)
    }

    /// Checks whether `is` knows the SHA-256 of its secret, or of the one before while that holds.
    pub(super) fn has_secret(&self, is: impl Fn(&[u8; 32]) -> bool, now: u64) -> Result<(), TokenRefused> {
        let is = |kept: &str| {
            let mut bytes = [0; 32];
            hex::decode(kept, &mut bytes).is_some() && is(&bytes)
        };
        let earlier = self.earlier.as_ref().filter(|earlier| now < earlier.until);
        if is(&self.secret_sha256) || earlier.is_some_and(|earlier| is(&earlier.secret_sha256)) {
            return Ok(());
        }
        Err(TokenRefused::NotValid)
    }

    /// Checks whether it holds at that time.
    ///
    /// # Errors
    /// [`TokenRefused::Revoked`] or [`TokenRefused::Expired`].
    pub fn check(&self, now: SystemTime) -> Result<(), TokenRefused> {
        let now = seconds(now);
        if self.revoked.is_some() {
            return Err(TokenRefused::Revoked);
        }
        match self.expires {
            Some(expires) if now >= expires => {
                Err(TokenRefused::Expired { ago: Duration::from_secs(now - expires) })
            }
            _ => Ok(()),
        }
    }
}

/// The tokens of a cluster as the file had them at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// The records in the order in which they were made.
    pub(super) records: Vec<TokenRecord>,
    /// Index in `records` by the token's id.
    places: HashMap<String, usize>,
}

impl Tokens {
    pub(super) fn new(records: Vec<TokenRecord>) -> Self {
        let places = records.iter().enumerate().map(|(place, record)| (record.id.clone(), place)).collect();
        Self { records, places }
    }

    pub(super) fn get(&self, id: &str) -> Option<&TokenRecord> {
        self.places.get(id).map(|&place| &self.records[place])
    }

    /// Returns a grant with the tokens, valid or not, that its bare names stand for.
    pub(super) fn named_by(&self, granted: ReadGrant) -> ReadGrant {
        let ReadGrant::Owners(mut owners) = granted else { return ReadGrant::All };
        let of_name = self.records.iter().filter(|record| owners.contains(&record.name));
        let tokens: Vec<String> = of_name.map(|record| format!("{}:{}", record.name, record.id)).collect();
        owners.extend(tokens);
        ReadGrant::Owners(owners)
    }

    /// Checks whether the token with that id holds at that time.
    ///
    /// # Errors
    /// See [`TokenRefused`].
    pub fn holds(&self, id: &str, now: SystemTime) -> Result<(), TokenRefused> {
        self.get(id).ok_or(TokenRefused::NotValid)?.check(now)
    }

    /// Checks whether a connection that was opened by the token with that id and a secret, by the first bytes of its SHA-256,
    /// may go on at that time.
    ///
    /// # Errors
    /// See [`TokenRefused`].
    pub fn admits(&self, id: &str, secret: u64, now: SystemTime) -> Result<(), TokenRefused> {
        let record = self.get(id).ok_or(TokenRefused::NotValid)?;
        record.check(now)?;
        record.has_secret(|kept| mark(kept) == secret, seconds(now)).map_err(|_| TokenRefused::Replaced)
    }
}
