//! The memory in which columns lie, and typed slices of it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rollhouse_core::{ColumnMut, ColumnRef, DType};

use crate::fetching::{Touch, fetch};
use crate::mapping::{Access, Mapping, WORD};

/// Memory in which columns lie. It never moves; the protocol of [`crate::Arena`] says who may touch which part and
/// when.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Address of offset 0.
    start: NonNull<u8>,
    /// Offsets that may be reached.
    range: Range<usize>,
    access: Access,
    owner: Owner,
}

#[derive(Debug)]
enum Owner {
    Heap(Layout),
    Mapped(Arc<Mapping>),
}

/// Consecutive elements of one type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) offset: usize,
    pub(crate) elements: usize,
    pub(crate) dtype: DType,
}

/// Alignment of every column in bytes: a cache line, and the widest vector.
pub(crate) const ALIGNMENT: usize = 64;

// SAFETY: `Memory` only hands out slices through unsafe functions whose callers uphold exclusivity; the
// pointer itself may be used from any thread.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Allocates `bytes` zero bytes. Aborts the process when the system has no memory, as every Rust allocation does.
    pub(crate) fn zeroed(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes.max(ALIGNMENT), ALIGNMENT)
            .expect("the arena's size was bounded by its caller");
        // SAFETY: the layout's size is at least ALIGNMENT, so not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self { start, range: 0..layout.size(), access: Access::ReadWrite, owner: Owner::Heap(layout) }
    }

    /// Returns the bytes `range` of a mapping, counted from its start.
    pub(crate) fn mapped(mapping: Arc<Mapping>, range: Range<usize>, access: Access) -> Self {
        assert!(range.start <= range.end && range.end <= mapping.bytes(), "columns must lie in the mapping");
        Self { start: mapping.start(), range, access, owner: Owner::Mapped(mapping) }
    }

    /// Ends this memory at `at` and returns the part behind it.
    pub(crate) fn split(&mut self, at: usize) -> Self {
        let Owner::Mapped(mapping) = &self.owner else { panic!("an allocation is one piece") };
        assert!(self.range.start <= at && at <= self.range.end, "the pieces must lie in the memory");
        let behind = Self::mapped(Arc::clone(mapping), at..self.range.end, self.access);
        self.range.end = at;
        behind
    }

    /// Returns whether both are pieces of one allocation or mapping.
    pub(crate) fn is_part_of(&self, other: &Self) -> bool {
        self.start == other.start
    }

    /// Returns the addresses of the memory; for a mapping, all of its addresses.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let start = self.start.as_ptr().addr();
        let bytes = match &self.owner {
            Owner::Heap(layout) => layout.size(),
            Owner::Mapped(mapping) => mapping.bytes(),
        };
        start..start + bytes
    }

    /// Returns the elements of `span` to read.
    ///
    /// # Safety
    /// Nothing writes the span while the slice lives.
    #[inline]
    pub(crate) unsafe fn read<'a>(&'a self, span: Span) -> ColumnRef<'a> {
        self.check(span);
        // SAFETY: checked; no writer, by contract.
        unsafe { self.read_checked(span) }
    }

    /// Returns the elements of `span` to read, without checking the span again.
    ///
    /// # Safety
    /// As [`Memory::read`], and [`Memory::check`] has seen the span or one that it is a run of elements of.
    #[inline]
    pub(crate) unsafe fn read_checked<'a>(&'a self, span: Span) -> ColumnRef<'a> {
        macro_rules! slice {
            ($type:ty) => {
                // SAFETY: the span lies inside the memory and is aligned (checked, by contract; an allocation starts
                // aligned, a mapping at a page), memory is initialised (zeroed) and every bit pattern is a value
                // of these types; no writer, by contract.
                unsafe {
                    std::slice::from_raw_parts(self.start.as_ptr().add(span.offset).cast::<$type>(), span.elements)
                }
            };
        }
        match span.dtype {
            DType::Bool | DType::U8 => ColumnRef::U8(slice!(u8)),
            DType::I32 => ColumnRef::I32(slice!(i32)),
            DType::I64 => ColumnRef::I64(slice!(i64)),
            DType::F32 => ColumnRef::F32(slice!(f32)),
            DType::F64 => ColumnRef::F64(slice!(f64)),
        }
    }

    /// Returns the elements of `span` to write.
    ///
    /// # Safety
    /// Nothing else reads or writes the span while the slice lives.
    #[inline]
    pub(crate) unsafe fn write<'a>(&'a self, span: Span) -> ColumnMut<'a> {
        self.check_writable(span);
        // SAFETY: checked; exclusive, by contract.
        unsafe { self.write_checked(span) }
    }

    /// Returns the elements of `span` to write, without checking the span again.
    ///
    /// # Safety
    /// As [`Memory::write`], and [`Memory::check_writable`] has seen the span or one that it is a run of elements of.
    #[inline]
    pub(crate) unsafe fn write_checked<'a>(&'a self, span: Span) -> ColumnMut<'a> {
        macro_rules! slice {
            ($type:ty) => {
                // SAFETY: as in `read_checked`, and mapped to be written; exclusive, by contract.
                unsafe {
                    std::slice::from_raw_parts_mut(
                        self.start.as_ptr().add(span.offset).cast::<$type>(),
                        span.elements,
                    )
                }
            };
        }
        match span.dtype {
            DType::Bool | DType::U8 => ColumnMut::U8(slice!(u8)),
            DType::I32 => ColumnMut::I32(slice!(i32)),
            DType::I64 => ColumnMut::I64(slice!(i64)),
            DType::F32 => ColumnMut::F32(slice!(f32)),
            DType::F64 => ColumnMut::F64(slice!(f64)),
        }
    }

    /// Has the processor fetch the first elements of `span`, which are touched soon.
    #[inline]
    pub(crate) fn fetch(&self, span: Span, touch: Touch) {
        fetch(self.start.as_ptr().wrapping_add(span.offset), span.elements * span.dtype.size(), touch);
    }

    /// Copies the bytes of `span`, which others may be writing through addresses that they kept.
    ///
    /// # Panics
    /// If `into` has another length, or the span does not begin at a whole word of a mapping.
    #[inline]
    pub(crate) fn copy_out(&self, span: Span, into: &mut [u8]) {
        self.check(span);
        let whole = span.offset.is_multiple_of(WORD) && matches!(self.owner, Owner::Mapped(_));
        assert!(whole && into.len() == span.elements * span.dtype.size(), "a span is copied as a whole");
        let words = into.len().div_ceil(WORD);
        assert!(span.offset + words * WORD <= self.range.end, "words must lie in the memory");
        // SAFETY: in range and aligned (asserted; a mapping starts at a page), valid while `self` lives. It is read
        // through atomics alone, as everything is that somebody may write meanwhile.
        let from = unsafe {
            std::slice::from_raw_parts(self.start.as_ptr().add(span.offset).cast::<AtomicU64>(), words)
        };
        let (to, tail) = into.as_chunks_mut::<WORD>();
        for (to, from) in to.iter_mut().zip(from) {
            *to = from.load(Ordering::Relaxed).to_ne_bytes();
        }
        if let (false, Some(last)) = (tail.is_empty(), from.last()) {
            tail.copy_from_slice(&last.load(Ordering::Relaxed).to_ne_bytes()[..tail.len()]);
        }
    }

    /// Panics if a span does not lie in the memory. Spans are computed by `columns.rs` alone; this second look turns a
    /// mistake there into a panic instead of undefined behaviour.
    #[inline]
    fn check(&self, span: Span) {
        let size = span.dtype.size();
        assert!(span.offset.is_multiple_of(size), "a span must be aligned");
        let end = span.offset + span.elements * size;
        assert!(self.range.start <= span.offset && end <= self.range.end, "a span must lie in the arena");
    }

    /// Panics as [`Memory::check`] does, and if the memory may not be written.
    #[inline]
    pub(crate) fn check_writable(&self, span: Span) {
        self.check(span);
        assert!(self.access == Access::ReadWrite, "the memory is mapped to be read");
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Owner::Heap(layout) = self.owner {
            // SAFETY: allocated in `zeroed` with this very layout, freed once.
            unsafe { dealloc(self.start.as_ptr(), layout) }
        }
    }
}
