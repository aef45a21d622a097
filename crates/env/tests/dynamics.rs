//! The constants that tie specs to dynamics, on every instruction set this machine has.
//!
//! They also hold on other architectures, which emulation shows, e.g. with Debian's `qemu-user` and
//! `gcc-aarch64-linux-gnu`:
//!
//! ```text
//! rustup target add aarch64-unknown-linux-gnu
//! CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
//! CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER='qemu-aarch64 -L /usr/aarch64-linux-gnu' \
//! cargo test -p rollhouse-env --target aarch64-unknown-linux-gnu
//! ```

use rollhouse_core::OwnDType;
use rollhouse_env::{InstructionSet, Registry, dynamics_hash, spec_hash};

#[test]
fn every_builtin_env_carries_the_hash_of_its_dynamics() {
    let registry = Registry::builtin();
    let mut wrong = Vec::new();
    for id in registry.ids() {
        let entry = registry.get(&id).unwrap();
        for set in InstructionSet::available() {
            let hash = dynamics_hash(&entry, set).unwrap();
            if hash != entry.spec().dynamics_hash {
                wrong.push(format!("{id} on {set}: const DYNAMICS_HASH: u64 = {hash:#018x};"));
            }
        }
    }
    assert!(wrong.is_empty(), "the dynamics or the spec changed:\n{}", wrong.join("\n"));
}

#[test]
fn elements_of_a_type_of_their_own_are_part_of_the_hash() {
    let entry = Registry::builtin().get("CartPole-v1").unwrap();
    let spec = entry.spec();
    let of = |own| {
        let mut spec = spec.clone();
        spec.action_space = spec.action_space.with_own(own).unwrap();
        spec_hash(&spec)
    };
    assert_eq!(of(OwnDType::I8), of(OwnDType::I8));
    assert_ne!(of(OwnDType::I8), of(OwnDType::U8));
    assert_ne!(of(OwnDType::I8), spec_hash(spec));
}
