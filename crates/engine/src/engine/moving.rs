//! Lanes that are put into other memory.

use rollhouse_arena::Placement;

use super::{Engine, Stage};
use crate::block::Block;
use crate::error::ConfigError;

impl Engine {
    /// Makes an engine like [`Engine::on`] of the lanes of this one, which have done nothing yet and are not recorded.
    /// Lanes that finish when they finish are taken along, because making them anew takes long; this engine is left
    /// without them then. Others are made anew.
    ///
    /// # Errors
    /// As [`Engine::on`], and [`ConfigError::Begun`] after the first reset.
    pub fn moved_to(&mut self, placement: Placement) -> Result<Self, ConfigError> {
        if self.stage != Stage::New {
            return Err(ConfigError::Begun);
        }
        let blocks = &mut self.crews.own.blocks;
        let envs = if self.entry.is_late() { blocks.iter_mut().map(Block::take_env).collect() } else { None };
        Self::made_of(envs, placement, &self.entry, self.config.clone(), None)
    }
}
