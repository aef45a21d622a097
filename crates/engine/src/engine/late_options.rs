//! Options of late lanes.

use super::Engine;
use crate::error::StepError;
use crate::options::{Change, OptionsError};
use crate::setup::make_envs;

impl Engine {
    /// Gives lanes the options of a change: between two episodes where their env takes any, else by making all lanes anew,
    /// because their blocks are made together.
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
        let remade = remade.map(|((block, options), env)| block.carried(change, options, env));
        let remade = remade.collect::<Result<Vec<_>, OptionsError>>()?;
        self.end_log()?;
        for (block, remade) in self.crews.own.blocks.iter_mut().zip(remade) {
            block.adopt(remade);
        }
        Ok(())
    }
}

fn cannot_be_made(error: &dyn std::error::Error) -> OptionsError {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    let message = causes.fold(error.to_string(), |message, cause| format!("{message}: {cause}"));
    OptionsError::Make { lane: 0, message }
}
