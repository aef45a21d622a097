//! What an episode can be written out as.

/// A form that an episode is written out in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// One JSON object a line, the first one what the reset gave.
    Jsonl,
    /// A film of its pictures.
    Gif,
    /// One of its pictures.
    Png,
    /// A page that plays it.
    Html,
    /// NumPy arrays.
    Npz,
    /// A table with a row of each step, in Apache Parquet's form.
    #[cfg(feature = "parquet")]
    Parquet,
    /// Messages of each step, for Foxglove and Rerun.
    #[cfg(feature = "mcap")]
    Mcap,
    /// The recording itself.
    Rhr,
}

impl Format {
    /// How names of such files end, without the dot.
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

    /// Whether people can read it as it is.
    pub const fn is_text(self) -> bool {
        matches!(self, Self::Jsonl | Self::Html)
    }
}
