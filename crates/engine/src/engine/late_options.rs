//! Options of late lanes.

use super::Engine;
use crate::error::StepError;
use crate::options::{Change, OptionsError};
use crate::setup::make_envs;

impl Engine {
    /// Makes all lanes anew with the options of a change, because their blocks are made together.
    pub(crate) fn change_late_options(&mut self, change: &Change) -> Result<(), StepError> {
        self.lockstep()?;
        let crew = &mut self.crews.own;
        let options = crew.blocks.iter().map(|block| block.options_after(change));
        let options = options.collect::<Result<Vec<_>, OptionsError>>()?;
        let envs = make_envs(&self.entry, self.config.instruction_set, &options.concat());
        let envs = envs.map_err(|error| OptionsError::Make { lane: 0, message: error.to_string() })?;
        let remade = crew.blocks.iter().zip(options).zip(envs);
        let remade = remade.map(|((block, options), env)| block.carried(change, options, env));
        let remade = remade.collect::<Result<Vec<_>, OptionsError>>()?;
        self.end_log()?;
        for (block, remade) in self.crews.own.blocks.iter_mut().zip(remade) {
            block.adopt(remade);
        }
        Ok(())
    }
}
