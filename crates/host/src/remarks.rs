//! The numbers that a Python env says in its infos, as columns of its lanes.
//!
//! What an env says is found out by looking: a worker that describes it resets it, takes one step and tells which numbers were
//! there, with their types and shapes. Keys that are nested are joined by `/`; in the keys themselves `~` stands as `~0` and
//! `/` as `~1`, as in JSON pointers.

use rollhouse_core::limits::{MAX_NAME_BYTES, MAX_OBS_COLUMNS};
use rollhouse_core::{ColumnSpec, DType, EnvSpec, Role};
use serde::{Deserialize, Serialize};

/// What an env said in the infos of a reset and of the step after it, in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Remarks {
    step: Vec<Said>,
    first: Vec<Said>,
}

/// A number, or an array of them, that an info has under a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Said {
    path: String,
    #[serde(with = "as_name")]
    dtype: DType,
    shape: Vec<usize>,
}

/// Infos of a lane, as its worker is told them: in the order of the env's info channels behind the action mask. Booleans of
/// which are there follow, if there are any.
#[derive(Debug, Serialize)]
pub(crate) struct InfoHello {
    record: Vec<Said>,
    reported: Vec<Said>,
    #[serde(flatten)]
    remarks: Remarks,
}

/// Reason for which infos cannot be columns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadInfo {
    /// A name is too long, or empty.
    #[error("infos: a name of {0} bytes, must have 1 to {MAX_NAME_BYTES}")]
    Name(usize),
    /// A name is there twice.
    #[error("infos: `{0}` is there twice")]
    Twice(String),
    /// A column is no info.
    #[error("infos: `{path}` is a column of the role {role:?}")]
    Role {
        /// Its name.
        path: String,
        /// The role that it has.
        role: Role,
    },
    /// There are too many numbers.
    #[error(
        "infos: {bytes} bytes in {columns} columns of a lane, at most {MAX_INFO_BYTES} bytes in {MAX_INFOS} columns are taken"
    )]
    TooMany {
        /// Bytes of a lane's row.
        bytes: usize,
        /// Number of columns.
        columns: usize,
    },
}

impl Remarks {
    /// Reads what a worker tells, which may be anything: whatever makes no sense is none.
    pub(crate) fn read(told: &[u8]) -> Self {
        let told: Self = serde_json::from_slice(told).unwrap_or_default();
        let fits =
            |said: &[Said]| check(said.iter().map(|said| said.channel(Role::Remark)).collect()).is_ok();
        if fits(&told.step) && fits(&told.first) { told } else { Self::default() }
    }

    /// Returns the info channels that they are for lanes that have `others` beside, without an action mask. Where they `are_learned`, the last of
    /// the booleans which say what is there is for infos that have no column.
    pub(crate) fn channels(&self, others: usize, are_learned: bool) -> Vec<ColumnSpec> {
        let of = |said: &[Said], role| said.iter().map(|said| said.channel(role)).collect::<Vec<_>>();
        let mut channels = of(&self.step, Role::Remark);
        channels.extend(of(&self.first, Role::FirstRemark));
        let (dtype, shape) = (DType::Bool, vec![others + channels.len() + usize::from(are_learned)]);
        if shape[0] > 0 {
            let (path, names) = ("is_there".to_owned(), Vec::new());
            channels.push(ColumnSpec { path, dtype, shape, names, role: Role::RemarkMask });
        }
        channels
    }
}

impl Said {
    fn channel(&self, role: Role) -> ColumnSpec {
        let Self { path, dtype, shape } = self.clone();
        ColumnSpec { path, dtype, shape, names: Vec::new(), role }
    }

    fn of(spec: &EnvSpec, is_meant: impl Fn(Role) -> bool) -> Vec<Self> {
        let channels = spec.info_channels.iter().filter(|channel| is_meant(channel.role));
        let said = |ColumnSpec { path, dtype, shape, .. }: &ColumnSpec| Self {
            path: path.clone(),
            dtype: *dtype,
            shape: shape.clone(),
        };
        channels.map(said).collect()
    }
}

impl InfoHello {
    /// Returns the infos of an env; `None` of one that is not asked for infos.
    pub(crate) fn of(spec: &EnvSpec) -> Option<Self> {
        let of = |wanted| Said::of(spec, |role| role == wanted);
        let remarks = Remarks { step: of(Role::Remark), first: of(Role::FirstRemark) };
        let (record, reported) = (of(Role::Info), Said::of(spec, Role::is_report));
        let are_asked = spec.info_channels.iter().any(|channel| channel.role == Role::RemarkMask);
        (are_asked || !record.is_empty() || !reported.is_empty()).then_some(Self {
            record,
            reported,
            remarks,
        })
    }
}

/// Checks infos that are to be recorded, and returns their channels.
///
/// # Errors
/// [`BadInfo`].
pub(crate) fn check(channels: Vec<ColumnSpec>) -> Result<Vec<ColumnSpec>, BadInfo> {
    let mut bytes = 0_usize;
    for (at, ColumnSpec { path, dtype, shape, names: _, role }) in channels.iter().enumerate() {
        if path.is_empty() || path.len() > MAX_NAME_BYTES {
            return Err(BadInfo::Name(path.len()));
        }
        if channels[..at].iter().any(|other| other.path == *path) {
            return Err(BadInfo::Twice(path.clone()));
        }
        if !matches!(role, Role::Info | Role::Remark) {
            return Err(BadInfo::Role { path: path.clone(), role: *role });
        }
        let row = shape.iter().try_fold(dtype.size(), |bytes, &extent| bytes.checked_mul(extent));
        bytes = bytes.saturating_add(row.unwrap_or(usize::MAX));
    }
    let columns = channels.len();
    if columns > MAX_INFOS || bytes > MAX_INFO_BYTES {
        return Err(BadInfo::TooMany { bytes, columns });
    }
    Ok(channels)
}

/// Types as NumPy calls them, for workers.
pub(crate) mod as_name {
    use rollhouse_core::DType;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::description::DTYPES;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    pub(crate) fn serialize<S: Serializer>(dtype: &DType, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(dtype.name())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DType, D::Error> {
        let name = String::deserialize(deserializer)?;
        let known = DTYPES.into_iter().find(|dtype| dtype.name() == name);
        known.ok_or_else(|| serde::de::Error::custom(format!("elements of type `{name}`")))
    }
}

/// Most infos of each kind of a lane: those that are recorded, and those of a step and of a reset. With the action mask and what
/// says which are there, they are no more than an env's columns.
pub const MAX_INFOS: usize = (MAX_OBS_COLUMNS - 2) / 3;

/// Most bytes of a row of each kind.
pub const MAX_INFO_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn said(path: &str, shape: &[usize]) -> Said {
        Said { path: path.to_owned(), dtype: DType::F64, shape: shape.to_vec() }
    }

    #[test]
    fn what_a_worker_says_of_infos_is_taken_within_bounds_and_else_there_are_none() {
        let told = br#"{"step":[{"path":"lives","dtype":"int64","shape":[]}],"first":[]}"#;
        let channels = Remarks::read(told).channels(1, true);
        let shown: Vec<_> = channels.iter().map(|c| (c.path.as_str(), c.role, c.elements())).collect();
        assert_eq!(shown, [("lives", Role::Remark, 1), ("is_there", Role::RemarkMask, 3)]);
        let wide =
            format!(r#"{{"step":[{{"path":"a","dtype":"float64","shape":[{}]}}],"first":[]}}"#, usize::MAX);
        let twice = r#"{"step":[{"path":"a","dtype":"float64","shape":[]},{"path":"a","dtype":"float64","shape":[]}],"first":[]}"#;
        for nonsense in ["", "{}", "[]", "null", &wide, twice] {
            let remarks = Remarks::read(nonsense.as_bytes());
            assert!(remarks.channels(0, false).is_empty(), "{nonsense}");
            assert_eq!(remarks.channels(0, true)[0].elements(), 1, "{nonsense}");
        }
    }

    #[test]
    fn infos_that_are_to_be_recorded_are_bounded() {
        let channels = |said: Vec<Said>| said.iter().map(|said| said.channel(Role::Info)).collect::<Vec<_>>();
        let many = (0..=MAX_INFOS).map(|at| said(&at.to_string(), &[])).collect();
        assert!(
            matches!(check(channels(many)), Err(BadInfo::TooMany { columns, .. }) if columns == MAX_INFOS + 1)
        );
        assert!(matches!(
            check(channels(vec![said("a", &[513])])),
            Err(BadInfo::TooMany { bytes: 4104, .. })
        ));
        assert!(matches!(check(channels(vec![said("", &[])])), Err(BadInfo::Name(0))));
        let obs = vec![ColumnSpec { role: Role::Obs, ..said("a", &[]).channel(Role::Info) }];
        assert!(matches!(check(obs), Err(BadInfo::Role { .. })));
        assert_eq!(check(channels(vec![said("a", &[2])])).unwrap().len(), 1);
    }
}
