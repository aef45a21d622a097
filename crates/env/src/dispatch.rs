//! Chooses among instruction sets at run time. This file has the only unsafe code of the crate.
#![allow(unsafe_code)]

use std::fmt;
use std::str::FromStr;

/// Instruction set for which a block's kernels are compiled. Results are the same bits with all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstructionSet {
    /// The instructions that every machine of this architecture has: SSE2 on x86-64.
    Portable,
    /// AVX2, four doubles wide.
    Avx2,
    /// AVX-512 F, BW, DQ and VL, eight doubles wide.
    Avx512,
}

impl InstructionSet {
    /// All instruction sets, narrowest first.
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    /// Returns the widest instruction set that this machine has.
    pub fn best() -> Self {
        Self::available().last().unwrap_or(Self::Portable)
    }

    /// Returns the instruction sets that this machine has, narrowest first.
    pub fn available() -> impl DoubleEndedIterator<Item = Self> {
        Self::ALL.into_iter().filter(|set| set.is_available())
    }

    /// Returns whether this machine has the instruction set.
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// Returns the name in flags and listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable if cfg!(target_arch = "x86_64") => "sse2",
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

impl fmt::Display for InstructionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for InstructionSet {
    type Err = UnknownInstructionSet;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|set| set.name() == name || (*set == Self::Portable && name == "portable"))
            .ok_or_else(|| UnknownInstructionSet { name: name.to_owned() })
    }
}

/// Error of a name that no instruction set has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownInstructionSet {
    /// Name that was given.
    pub name: String,
}

impl fmt::Display for UnknownInstructionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [portable, avx2, avx512] = InstructionSet::ALL.map(InstructionSet::name);
        write!(f, "unknown instruction set `{}`; known are {portable}, {avx2}, {avx512}", self.name)
    }
}

impl std::error::Error for UnknownInstructionSet {}

/// Code to be compiled once per instruction set. `run` and all it calls must be `#[inline(always)]`, else they
/// are compiled for the portable set only.
pub trait Kernel {
    /// Result of the computation: the same bits on every instruction set.
    type Output;

    /// Computes the result.
    fn run(self) -> Self::Output;
}

/// Instruction set that this machine has. Each value proves that this was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target(InstructionSet);

impl Target {
    /// Returns the widest instruction set.
    pub fn best() -> Self {
        Self(InstructionSet::best())
    }

    /// Returns the target for `set`; None if this machine does not have it.
    pub fn new(set: InstructionSet) -> Option<Self> {
        set.is_available().then_some(Self(set))
    }

    /// Runs the kernel's code that was compiled for this set.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            // SAFETY: `Target::new` is the only constructor and has checked every feature that `run_avx2`
            // enables; features do not go away while a process runs.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => unsafe { run_avx2(kernel) },
            // SAFETY: as above, for the features of `run_avx512`.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => unsafe { run_avx512(kernel) },
            _ => kernel.run(),
        }
    }
}

/// Asks the processor to fetch the cache line of `place`, which is to be written soon. It changes nothing, and there
/// need not be anything at `place`.
#[cfg_attr(
    target_arch = "x86_64",
    expect(
        clippy::pointers_in_nomem_asm_block,
        reason = "fetching a cache line is no access that anybody sees"
    )
)]
#[inline(always)]
pub fn fetch_to_write<T>(place: *const T) {
    // SAFETY: a hint that accesses no memory, faults nowhere, sets no flag, and does nothing on processors that do not
    // know it.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) place, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2,avx512f,avx512bw,avx512dq,avx512vl")]
fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}
