//! Column chunks of values that stay the same over many rows. They are written as runs, without a look at each row: the
//! name of an episode takes three bytes, however long the episode is.

use std::io::Write;

use ::parquet::basic::Encoding;
use ::parquet::column::page::{CompressedPage, Page, PageWriter};
use ::parquet::column::writer::ColumnCloseResult;
use ::parquet::data_type::ByteArray;
use ::parquet::errors::Result;
use ::parquet::file::metadata::{ColumnChunkMetaData, PageEncodingStats};
use ::parquet::file::statistics::Statistics;
use ::parquet::file::writer::{SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite};
use ::parquet::schema::types::ColumnDescPtr;
use bytes::Bytes;

/// Numbers, each for some rows that follow each other, in Parquet's run-length encoding.
pub(super) struct Runs {
    encoded: Vec<u8>,
    /// Bytes of a number in a run.
    number_bytes: usize,
    rows: u32,
    /// The last number, and for how many rows it has stood; its run is not encoded yet.
    open: (u32, u32),
}

impl Runs {
    /// Makes an empty sequence of numbers of so many bits each.
    fn new(bits: u32) -> Self {
        Self { encoded: Vec::new(), number_bytes: bits.div_ceil(8) as usize, rows: 0, open: (0, 0) }
    }

    fn push(&mut self, number: u32, rows: u32) {
        if self.open.0 != number {
            self.close();
            self.open.0 = number;
        }
        self.open.1 += rows;
        self.rows += rows;
    }

    /// Encodes the open run: twice its rows in groups of seven bits, then the number.
    fn close(&mut self) {
        let (number, rows) = std::mem::take(&mut self.open);
        if rows == 0 {
            return;
        }
        let mut header = u64::from(rows) << 1;
        while header > 0x7f {
            self.encoded.push(header as u8 | 0x80);
            header >>= 7;
        }
        self.encoded.push(header as u8);
        self.encoded.extend_from_slice(&number.to_le_bytes()[..self.number_bytes]);
    }
}

/// A column chunk that is encoded, but for its place in the file.
pub(super) struct RunsChunk {
    dictionary: Option<CompressedPage>,
    data: CompressedPage,
    statistics: Option<Statistics>,
    rows: u32,
}

impl RunsChunk {
    /// Encodes texts, each for so many rows.
    pub(super) fn of_texts(texts: &[(String, usize)]) -> Self {
        let last = texts.len().saturating_sub(1) as u32;
        let bits = (u32::BITS - last.leading_zeros()).max(1);
        let (mut plain, mut runs) = (Vec::new(), Runs::new(bits));
        for (number, (text, rows)) in texts.iter().enumerate() {
            plain.extend_from_slice(&(text.len() as u32).to_le_bytes());
            plain.extend_from_slice(text.as_bytes());
            runs.push(number as u32, *rows as u32);
        }
        let bound = |text: Option<&(String, usize)>| text.map(|(text, _)| ByteArray::from(text.as_str()));
        let by_text = |one: &&(String, usize), other: &&(String, usize)| one.0.cmp(&other.0);
        let least = bound(texts.iter().min_by(by_text));
        let most = bound(texts.iter().max_by(by_text));
        let bytes = plain.len();
        let dictionary = Page::DictionaryPage {
            buf: plain.into(),
            num_values: texts.len() as u32,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        Self {
            dictionary: Some(CompressedPage::new(dictionary, bytes)),
            statistics: Some(Statistics::new(least, most, None, Some(0), false)),
            ..Self::of_runs(runs, vec![bits as u8], Encoding::RLE_DICTIONARY)
        }
    }

    /// Encodes flags, each for so many rows.
    pub(super) fn of_flags(flags: impl Iterator<Item = (bool, usize)>) -> Self {
        let mut runs = Runs::new(1);
        flags.for_each(|(flag, rows)| runs.push(u32::from(flag), rows as u32));
        runs.close();
        let bytes = (runs.encoded.len() as u32).to_le_bytes();
        Self::of_runs(runs, bytes.to_vec(), Encoding::RLE)
    }

    /// Makes a chunk of one page, in which runs stand behind what their encoding begins with.
    fn of_runs(mut runs: Runs, mut page: Vec<u8>, encoding: Encoding) -> Self {
        runs.close();
        page.append(&mut runs.encoded);
        let (bytes, rows) = (page.len(), runs.rows);
        let data = Page::DataPageV2 {
            buf: page.into(),
            num_values: rows,
            encoding,
            num_nulls: 0,
            num_rows: rows,
            def_levels_byte_len: 0,
            rep_levels_byte_len: 0,
            is_compressed: false,
            statistics: None,
        };
        Self { dictionary: None, data: CompressedPage::new(data, bytes), statistics: None, rows }
    }

    /// Puts the chunk into a row group as its next column, which is `column`.
    pub(super) fn append<W: Write + Send>(
        self,
        column: ColumnDescPtr,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<()> {
        let mut written = TrackedWrite::new(Vec::new());
        let mut pages = SerializedPageWriter::new(&mut written);
        let mut stats = Vec::new();
        let mut offsets = [None; 2];
        for (page, offset) in [self.dictionary, Some(self.data)].into_iter().zip(&mut offsets) {
            let Some(page) = page else { continue };
            let (page_type, encoding) = (page.page_type(), page.encoding());
            stats.push(PageEncodingStats { page_type, encoding, count: 1 });
            *offset = Some(pages.write_page(page)?.offset as i64);
        }
        let written = Bytes::from(written.into_inner()?);
        let bytes = written.len() as i64;
        let encodings = stats.iter().map(|page| page.encoding).collect();
        let mut metadata = ColumnChunkMetaData::builder(column)
            .set_encodings(encodings)
            .set_page_encoding_stats(stats)
            .set_total_compressed_size(bytes)
            .set_total_uncompressed_size(bytes)
            .set_num_values(i64::from(self.rows))
            .set_dictionary_page_offset(offsets[0])
            .set_data_page_offset(offsets[1].unwrap_or(0));
        if let Some(statistics) = self.statistics {
            metadata = metadata.set_statistics(statistics);
        }
        let close = ColumnCloseResult {
            bytes_written: bytes as u64,
            rows_written: u64::from(self.rows),
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        group.append_column(&written, close)
    }
}
