//! Structures of the interface that give their own size, so that later versions can add members.

use std::mem::MaybeUninit;
use std::ptr;

use crate::error::PluginFault;

/// Copies a structure that gives its own size. Members that it does not have are 0, what it has beyond is ignored.
///
/// # Safety
/// At `from` there are `size` bytes, and zeros are a value of `T`.
pub(crate) unsafe fn grown<T: Copy>(
    structure: &'static str,
    from: *const T,
    size: u32,
) -> Result<T, PluginFault> {
    // All members of 4 bytes come in pairs, so that no member is cut.
    if size < 16 || !size.is_multiple_of(8) {
        return Err(PluginFault::Size { structure, size });
    }
    let mut to = MaybeUninit::<T>::zeroed();
    let bytes = size_of::<T>().min(size as usize);
    // SAFETY: both sides have that many bytes, by the caller and by `min`.
    unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), to.as_mut_ptr().cast::<u8>(), bytes) };
    // SAFETY: zeros are a value by the caller, and so is what the plug-in has written for its own use.
    Ok(unsafe { to.assume_init() })
}
