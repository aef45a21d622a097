//! Colours, and what replaces them on a terminal without colours.

use ratatui_core::style::{Color, Modifier, Style};

/// The look of a screen: what the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// 24-bit colour.
    Colour,
    /// Text, bold, dim and reversed.
    Plain,
}

impl Look {
    /// Chooses the look by the environment's `NO_COLOR`, `COLORTERM` and `TERM`; an empty variable counts as not set.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name| variable(name).filter(|value| !value.is_empty());
        let has = |name, words: &[&str]| {
            value(name).is_some_and(|value| words.iter().any(|word| value.contains(word)))
        };
        let is_colourful = has("COLORTERM", &["truecolor", "24bit"])
            || has("TERM", &["direct", "kitty", "ghostty", "alacritty", "foot", "wezterm"]);
        if value("NO_COLOR").is_none() && is_colourful { Self::Colour } else { Self::Plain }
    }

    const fn coloured(self, [red, green, blue]: [u8; 3], instead: Modifier) -> Style {
        match self {
            Self::Colour => Style::new().fg(Color::Rgb(red, green, blue)),
            Self::Plain => Style::new().add_modifier(instead),
        }
    }

    // Okabe and Ito's colours, which colour-blind people tell apart too.

    /// Returns the style of the most important text.
    pub(crate) const fn strong(self) -> Style {
        self.coloured([240, 228, 66], Modifier::BOLD)
    }

    /// Returns the style of the return.
    pub(crate) const fn total(self) -> Style {
        self.coloured([86, 180, 233], Modifier::empty())
    }

    /// Returns the style of rewards.
    pub(crate) const fn reward(self) -> Style {
        self.coloured([230, 159, 0], Modifier::empty())
    }

    /// Returns the style of observations.
    pub(crate) const fn obs(self) -> Style {
        self.coloured([0, 178, 130], Modifier::empty())
    }

    /// Returns the style of errors.
    pub(crate) const fn bad(self) -> Style {
        self.coloured([233, 104, 20], Modifier::BOLD)
    }

    /// Returns the style of explanations.
    pub(crate) const fn faint(self) -> Style {
        self.coloured([138, 138, 138], Modifier::DIM)
    }

    /// Returns the style of the bar at the bottom, and of what is chosen.
    pub(crate) const fn chosen(self) -> Style {
        match self {
            Self::Colour => Style::new().fg(Color::Rgb(255, 255, 255)).bg(Color::Rgb(38, 56, 82)),
            Self::Plain => Style::new().add_modifier(Modifier::REVERSED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_used_where_the_terminal_says_that_it_has_it_and_nobody_minds() {
        let look = |set: &'static [(&str, &str)]| {
            Look::of(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(look(&[("COLORTERM", "truecolor")]), Look::Colour);
        assert_eq!(look(&[("TERM", "xterm-direct")]), Look::Colour);
        assert_eq!(look(&[("COLORTERM", "truecolor"), ("NO_COLOR", "")]), Look::Colour);
        assert_eq!(look(&[("COLORTERM", "truecolor"), ("NO_COLOR", "1")]), Look::Plain);
        assert_eq!(look(&[("TERM", "xterm-256color")]), Look::Plain);
    }
}
