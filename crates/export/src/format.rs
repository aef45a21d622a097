//! The forms in which an episode can be written out.

/// A form in which an episode is written out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// One JSON object a line; the first has the result of the reset.
    Jsonl,
    /// A film of the episode's pictures.
    Gif,
    /// One of the episode's pictures.
    Png,
    /// A page that plays the episode.
    Html,
    /// NumPy arrays.
    Npz,
    /// A table with a row for each step, as an Apache Parquet file.
    #[cfg(feature = "parquet")]
    Parquet,
    /// Messages for each step, for Foxglove and Rerun.
    #[cfg(feature = "mcap")]
    Mcap,
    /// The recording itself.
    Rhr,
}

impl Format {
    /// Returns the extension of such files, without the dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Gif => "gif",
            Self::Png => "png",
            Self::Html => "html",
            Self::Npz => "npz",
            #[cfg(feature = "parquet")]
            Self::Parquet => "parquet",
            #[cfg(feature = "mcap")]
            Self::Mcap => "mcap",
            Self::Rhr => "rhr",
        }
    }

    /// Returns whether people can read it as it is.
    pub const fn is_text(self) -> bool {
        matches!(self, Self::Jsonl | Self::Html)
    }
}
