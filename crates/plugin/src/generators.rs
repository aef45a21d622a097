//! The generators of a block's lanes, which a plug-in draws from by callbacks.

use std::ffi::c_void;

use rollhouse_env::Generator;

use crate::abi;

/// A generator for each lane.
pub(crate) struct Generators {
    pub(crate) lanes: Vec<Generator>,
    /// The last lane for which the plug-in drew though the block has no such lane.
    pub(crate) stray: Option<u32>,
}

impl Generators {
    /// Makes `lanes` generators, seeded with 0.
    pub(crate) fn new(lanes: usize) -> Self {
        Self { lanes: vec![Generator::seeded(0); lanes], stray: None }
    }

    /// Returns what the plug-in is given to draw with. It is valid for as long as nothing else uses the value.
    pub(crate) fn callbacks(&mut self) -> abi::Random {
        let context: *mut Self = self;
        abi::Random {
            size: abi::size::<abi::Random>(),
            reserved: 0,
            context: context.cast(),
            word,
            half,
            uniform,
        }
    }

    /// Draws from a lane's generator. For a lane that the block does not have it notes that, and gives zeros, because a
    /// panic must not unwind into the plug-in.
    fn draw<T: Default>(&mut self, lane: u32, draw: impl FnOnce(&mut Generator) -> T) -> T {
        match self.lanes.get_mut(lane as usize) {
            Some(generator) => draw(generator),
            None => {
                self.stray = Some(lane);
                T::default()
            }
        }
    }
}

unsafe extern "C" fn word(context: *mut c_void, lane: u32) -> u64 {
    // SAFETY: a plug-in passes the context of `Generators::callbacks` during the call for which it was made, while the
    // block holds the generators exclusively and does not touch them.
    unsafe { &mut *context.cast::<Generators>() }.draw(lane, Generator::next_u64)
}

unsafe extern "C" fn half(context: *mut c_void, lane: u32) -> u32 {
    // SAFETY: as in `word`.
    unsafe { &mut *context.cast::<Generators>() }.draw(lane, Generator::next_u32)
}

unsafe extern "C" fn uniform(context: *mut c_void, lane: u32, low: f64, high: f64) -> f64 {
    // SAFETY: as in `word`.
    unsafe { &mut *context.cast::<Generators>() }.draw(lane, |generator| generator.uniform(low, high))
}
