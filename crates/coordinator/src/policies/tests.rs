use rollhouse_replay::testing::{Faults, FaultyDisk};

use super::*;

const DIR: &str = "/policies";
const BUDGET: u64 = 10_000;

fn open(disk: &FaultyDisk) -> PolicyShelf {
    PolicyShelf::open(Arc::new(disk.clone()), Path::new(DIR), BUDGET).unwrap()
}

fn owner(name: &str) -> PolicyAsker {
    PolicyAsker { claimant: Claimant::owner(name), reads: ReadGrant::Owners([name.to_owned()].into()) }
}

fn admin() -> PolicyAsker {
    PolicyAsker { claimant: Claimant::operator("root"), reads: ReadGrant::All }
}

/// A file of so many bytes that begins as one of safetensors.
fn file(bytes: usize, filled: u8) -> Vec<u8> {
    let mut file = vec![filled; bytes];
    file[..9].copy_from_slice(b"\x02\0\0\0\0\0\0\0{");
    file
}

fn announced(name: &str, version: Option<u64>, file: &[u8]) -> PutPolicy {
    PutPolicy { name: name.to_owned(), version, bytes: file.len() as u64, hash: PolicyHash::of(file) }
}

fn put(
    shelf: &PolicyShelf,
    name: &str,
    version: Option<u64>,
    file: &[u8],
    asker: &PolicyAsker,
) -> Result<u64, Refusal> {
    let put = announced(name, version, file);
    shelf.put(&put, asker, file, 1_700_000_000_000).map(|put| put.version)
}

fn message<T>(refused: Result<T, Refusal>) -> (RefusalCode, String) {
    let refusal = refused.err().unwrap();
    (refusal.code, refusal.message)
}

#[test]
fn versions_count_up_and_an_equal_file_is_the_version_that_it_was() {
    let (shelf, ada) = (open(&FaultyDisk::new()), owner("ada:1f2e3d4c"));
    assert_eq!(put(&shelf, "pong", None, &file(100, 0), &ada).unwrap(), 0);
    assert_eq!(put(&shelf, "pong", None, &file(100, 1), &ada).unwrap(), 1);
    assert_eq!(put(&shelf, "pong", Some(7), &file(100, 2), &ada).unwrap(), 7);
    assert_eq!(put(&shelf, "pong", None, &file(100, 1), &ada).unwrap(), 1, "it was there");
    assert_eq!(put(&shelf, "pong", Some(7), &file(100, 2), &ada).unwrap(), 7, "asked again");
    assert_eq!(put(&shelf, "pong", None, &file(100, 3), &ada).unwrap(), 8);
    let (code, why) = message(put(&shelf, "pong", Some(7), &file(100, 4), &ada));
    assert_eq!(
        (code, &*why),
        (RefusalCode::BadRequest, "version 7 of policy `pong` after 8; versions go up")
    );
    let newest = shelf.find("pong", None, &ada.reads).unwrap();
    assert_eq!(shelf.read(&newest).unwrap(), file(100, 3));
    // Another token of the same person.
    assert_eq!(put(&shelf, "pong", None, &file(100, 5), &owner("ada:00000000")).unwrap(), 9);
}

#[test]
fn another_owners_policy_is_neither_seen_nor_changed_but_by_an_admin() {
    let (shelf, ada, eve) = (open(&FaultyDisk::new()), owner("ada"), owner("eve"));
    put(&shelf, "pong", None, &file(100, 0), &ada).unwrap();
    assert_eq!(message(put(&shelf, "pong", None, &file(100, 1), &eve)).0, RefusalCode::Forbidden);
    assert_eq!(message(shelf.find("pong", None, &eve.reads)).0, RefusalCode::NotFound);
    assert!(shelf.list(&eve, None).policies.is_empty());
    let remove = RemovePolicy { name: "pong".to_owned(), version: None };
    assert_eq!(message(shelf.remove(&remove, &eve)).0, RefusalCode::NotFound);
    let reader = PolicyAsker { reads: ReadGrant::All, ..eve };
    assert_eq!(message(shelf.remove(&remove, &reader)).0, RefusalCode::Forbidden);
    assert_eq!(shelf.remove(&remove, &admin()).unwrap(), PolicyRemoved { versions: 1, bytes: 100 });
    assert_eq!(message(shelf.find("pong", None, &ada.reads)).0, RefusalCode::NotFound);
}

#[test]
fn an_owner_that_has_its_share_of_policies_is_refused_more_and_another_is_not() {
    let (shelf, ada, eve) = (open(&FaultyDisk::new()), owner("ada"), owner("eve"));
    let mut versions = 0;
    let why = loop {
        match put(&shelf, "pong", None, &file(500, versions), &ada) {
            Ok(_) => versions += 1,
            Err(refusal) => break refusal,
        }
    };
    assert_eq!((why.code, versions), (RefusalCode::Quota, 9), "half of what is not reserved");
    assert!(why.message.contains("has 500 bytes, and `ada` has 4500 of the 4688"), "{}", why.message);
    put(&shelf, "breakout", None, &file(500, 0), &eve).unwrap();
    let oldest = RemovePolicy { name: "pong".to_owned(), version: Some(0) };
    shelf.remove(&oldest, &ada).unwrap();
    assert_eq!(message(put(&shelf, "pong", None, &file(700, 9), &ada)).0, RefusalCode::Quota);
    put(&shelf, "pong", None, &file(100, 9), &ada).unwrap();
}

#[test]
fn what_is_no_policy_is_refused() {
    let (shelf, ada) = (open(&FaultyDisk::new()), owner("ada"));
    let good = file(100, 0);
    for name in ["", "a/b", "..", "pong@3", "pong.onnx", "random"] {
        assert_eq!(message(put(&shelf, name, None, &good, &ada)).0, RefusalCode::BadRequest, "{name}");
    }
    let (_, why) = message(put(&shelf, "pong", None, &[7; 100], &ada));
    assert!(why.contains("neither a file of safetensors nor of ONNX"), "{why}");
    let other = announced("pong", None, &file(100, 1));
    let (_, why) = message(shelf.put(&other, &ada, &good, 0));
    assert!(why.contains("is not what was announced"), "{why}");
    let huge = PutPolicy { bytes: u64::MAX, ..other };
    assert!(message(shelf.admit(&huge, &ada)).1.contains("67108864"));
    assert!(shelf.list(&ada, None).policies.is_empty());
}

#[test]
fn lists_come_in_pages_in_the_order_of_names_and_versions() {
    let shelf = PolicyShelf::open(Arc::new(FaultyDisk::new()), Path::new(DIR), 10_000_000).unwrap();
    let ada = owner("ada");
    for version in 0..MAX_POLICIES_LISTED as u64 {
        put(&shelf, "pong", Some(version), &file(20, 0), &ada).unwrap();
    }
    put(&shelf, "a", None, &file(20, 0), &ada).unwrap();
    put(&shelf, "z", None, &file(20, 0), &ada).unwrap();
    let first = shelf.list(&ada, None);
    assert!(first.more && first.policies.len() == MAX_POLICIES_LISTED);
    assert_eq!(first.policies[0].policy.to_string(), "a@0");
    let last = first.policies.last().map(|info| info.policy.clone());
    let rest = shelf.list(&ada, last.as_ref());
    let names: Vec<String> = rest.policies.iter().map(|info| info.policy.to_string()).collect();
    assert_eq!((names, rest.more), (vec!["pong@1023".to_owned(), "z@0".to_owned()], false));
}

#[test]
fn an_acknowledged_version_survives_a_power_cut_at_any_point_and_a_torn_one_is_none() {
    let ada = owner("ada");
    for operations in 1..60 {
        let disk = FaultyDisk::new();
        let shelf = open(&disk);
        put(&shelf, "pong", None, &file(100, 0), &ada).unwrap();
        let fail_at = Some(disk.operations() + operations);
        disk.set_faults(Faults { fail_at, fail_on: true, short_writes: Some(7), ..Faults::default() });
        let second = put(&shelf, "pong", None, &file(100, 1), &ada);
        let shelf = open(&disk.after_power_cut(|_, left| left / 2));
        let newest = shelf.find("pong", None, &ada.reads).unwrap();
        let wanted = if second.is_ok() { 1 } else { newest.policy.version };
        assert_eq!(newest.policy.version, wanted, "after {operations} operations");
        assert_eq!(shelf.read(&newest).unwrap(), file(100, wanted as u8));
        put(&shelf, "pong", None, &file(100, 2), &ada).unwrap();
    }
}
