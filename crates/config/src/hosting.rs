//! The envs that a node has beside the built-in ones.

use crate::openra::Openra;
use crate::plugins::Plugins;
use crate::python::Python;
use crate::setting::Setting;

/// Settings of the envs that a node has beside the built-in ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosting {
    /// Settings of hosting Python envs.
    pub python: Python,
    /// Settings of worlds that engines of OpenRA play.
    pub openra: Openra,
    /// Plug-ins whose envs the node can make.
    pub plugins: Plugins,
}

impl Hosting {
    pub(crate) fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)> {
        let mut settings = self.python.settings();
        settings.extend(self.openra.settings());
        settings.push(("plugin", &mut self.plugins));
        settings
    }
}
