//! One zeroed allocation and typed slices of it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Range;
use std::ptr::NonNull;

use rollhouse_core::{ColumnMut, ColumnRef, DType};

/// Memory that columns lie in. It never moves; who may touch which part when is [`crate::Arena`]'s protocol.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

/// A run of elements of one type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) offset: usize,
    pub(crate) elements: usize,
    pub(crate) dtype: DType,
}

/// Alignment of every column: a cache line, and the widest vector.
pub(crate) const ALIGNMENT: usize = 64;

// SAFETY: `Memory` only hands out slices through unsafe functions whose callers uphold exclusivity; the
// pointer itself may be used from any thread.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// `bytes` zero bytes. Aborts the process when the system has no memory, as every Rust allocation does.
    pub(crate) fn zeroed(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes.max(ALIGNMENT), ALIGNMENT)
            .expect("the arena's size was bounded by its caller");
        // SAFETY: the layout's size is at least ALIGNMENT, so not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self { start, layout }
    }

    /// Where it lies.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let start = self.start.as_ptr().addr();
        start..start + self.layout.size()
    }

    /// The elements of `span` to read.
    ///
    /// # Safety
    /// Nothing writes the span while the slice lives.
    #[inline]
    pub(crate) unsafe fn read<'a>(&'a self, span: Span) -> ColumnRef<'a> {
        self.check(span);
        macro_rules! slice {
            ($type:ty) => {
                // SAFETY: the span lies inside the allocation and is aligned (checked above), memory is
                // initialised (zeroed) and every bit pattern is a value of these types; no writer, by contract.
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

    /// The elements of `span` to write.
    ///
    /// # Safety
    /// Nothing else reads or writes the span while the slice lives.
    #[inline]
    pub(crate) unsafe fn write<'a>(&'a self, span: Span) -> ColumnMut<'a> {
        self.check(span);
        macro_rules! slice {
            ($type:ty) => {
                // SAFETY: as in `read`; exclusive, by contract.
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

    /// Spans are computed by `columns.rs` alone; this is the second look that makes a mistake there a panic
    /// instead of undefined behaviour.
    #[inline]
    fn check(&self, span: Span) {
        let size = span.dtype.size();
        assert!(span.offset.is_multiple_of(size), "a span must be aligned");
        assert!(span.offset + span.elements * size <= self.layout.size(), "a span must lie in the arena");
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this very layout, freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}
