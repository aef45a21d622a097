//! The section of worlds that engines of OpenRA play.

use rollhouse_core::limits::MAX_ENGINES;

use crate::setting::{Given, HostPort, Setting, SettingValue, text};

/// Settings by which a node has worlds `openra://MAP`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Openra {
    /// Engines that may be connected to. None by default: the node then has no such worlds. Whoever may open pools plays on
    /// any of these.
    pub engines: Engines,
    /// Command line of an engine that the node starts, and starts again when it ends. Default none: engines run already.
    pub launch: Option<String>,
}

/// Engines, as text written with commas between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Engines(pub Vec<String>);

impl Openra {
    pub(crate) fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)> {
        vec![("openra.engines", &mut self.engines), ("openra.launch", &mut self.launch)]
    }
}

impl Setting for Engines {
    fn wanted(&self) -> String {
        format!(
            "at most {MAX_ENGINES} addresses HOST:PORT separated by commas, as in \"127.0.0.1:9999,sim-2:9999\""
        )
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        let mut engines: Vec<String> = Vec::new();
        for engine in text(given)?.split(',').map(str::trim).filter(|engine| !engine.is_empty()) {
            HostPort(String::new()).set(&Given::Word(engine.to_owned()))?;
            if !engines.iter().any(|known| known == engine) {
                engines.push(engine.to_owned());
            }
        }
        if engines.len() > MAX_ENGINES {
            return Err(format!("there are {}", engines.len()));
        }
        self.0 = engines;
        Ok(())
    }

    fn show(&self) -> SettingValue {
        SettingValue::Text(self.0.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_addresses_and_named_once() {
        let mut engines = Engines::default();
        engines.set(&Given::Word("127.0.0.1:9999, sim-2:9999,,127.0.0.1:9999".to_owned())).unwrap();
        assert_eq!(engines.show(), SettingValue::Text("127.0.0.1:9999,sim-2:9999".to_owned()));
        for wrong in ["sim-2", "sim-2:0", ":9999", "http://sim-2:9999"] {
            assert!(engines.set(&Given::Word(wrong.to_owned())).is_err(), "{wrong}");
        }
        let many: Vec<String> = (0..=MAX_ENGINES).map(|number| format!("sim-{number}:9999")).collect();
        assert_eq!(engines.set(&Given::Word(many.join(","))), Err(format!("there are {}", many.len())));
        assert_eq!(engines.0.len(), 2, "what is refused changes nothing");
    }
}
