//! Options of late lanes.

use super::Engine;
use crate::error::StepError;
use crate::options::{Change, OptionsError, cannot_be_made};
use crate::setup::make_envs;

impl Engine {
    /// Gives lanes the options of a change: to envs that take any between two episodes by refusing those that play, else by
    /// making all lanes anew, because their blocks are made together.
    pub(crate) fn change_late_options(&mut self, change: &Change) -> Result<(), StepError> {
        self.lockstep()?;
        let blocks = &mut self.crews.own.blocks;
        let options = blocks.iter().map(|block| block.options_after(change));
        let options = options.collect::<Result<Vec<_>, OptionsError>>()?;
        if self.entry.tries_options() {
            self.entry.check_drawn_of(&options.concat()).map_err(|error| cannot_be_made(&error))?;
            blocks.iter().try_for_each(|block| block.check_between_episodes(change))?;
            self.end_log()?;
            let mut blocks = self.crews.own.blocks.iter_mut().zip(options);
            return Ok(blocks.try_for_each(|(block, options)| block.give_options(change, options))?);
        }
        let envs = make_envs(&self.entry, self.config.instruction_set, &options.concat());
        let envs = envs.map_err(|error| cannot_be_made(&error))?;
        let remade = blocks.iter_mut().zip(options).zip(envs);
        let remade = remade.map(|((block, options), env)| {
            let begin = block.beginning(change);
            block.carried(begin, options, env)
        });
        let remade = remade.collect::<Result<Vec<_>, OptionsError>>()?;
        if !change.begins {
            self.end_log()?;
        }
        for (block, remade) in self.crews.own.blocks.iter_mut().zip(remade) {
            block.adopt(remade);
        }
        Ok(())
    }
}
