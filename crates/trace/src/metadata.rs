//! A trace's description, as Parquet key-value metadata.

use parquet::file::metadata::KeyValue;

use crate::columns::{FORMAT, MAX_GROUP_ROWS, MAX_THREADS, VERSION};

/// What was recorded and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The program's command line.
    pub program: String,
    /// The recorded instruction set, such as `x86_64`.
    pub arch: String,
    /// The recorder and its version.
    pub recorder: String,
    /// Instructions of the whole program per epoch; 0 if the trace has one epoch.
    pub epoch_instructions: u64,
}

/// Totals of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Epochs.
    pub epochs: u32,
    /// Threads.
    pub threads: u32,
    /// Accesses.
    pub accesses: u64,
    /// Instructions retired by all threads.
    pub instructions: u64,
    /// Marks, of all kinds.
    pub marks: u64,
    /// Marks among them that begin a region of interest.
    pub regions: u64,
    /// Non-temporal stores among the accesses.
    pub non_temporal_stores: u64,
}

impl Totals {
    /// The format's version of a trace with these contents.
    fn version(&self) -> u32 {
        if (self.marks, self.non_temporal_stores) == (0, 0) { 1 } else { VERSION }
    }
}

/// Numbers of a row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub first_epoch: u32,
    pub rows: usize,
    pub accesses: u64,
    pub checksum: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub header: Header,
    pub totals: Totals,
    pub groups: Vec<Group>,
}

/// What follows the number of non-temporal stores, the last of the totals.
const NON_TEMPORAL: &str = " non-temporal";

const KEYS: [&str; 9] = [
    "memtide.format",
    "memtide.version",
    "memtide.program",
    "memtide.arch",
    "memtide.recorder",
    "memtide.epoch_instructions",
    "memtide.totals",
    "memtide.row_groups",
    "memtide.checksum",
];

impl Metadata {
    pub fn to_key_values(&self) -> Vec<KeyValue> {
        let Totals { epochs, threads, accesses, instructions, marks, regions, non_temporal_stores } =
            self.totals;
        let mut more = if marks == 0 { String::new() } else { format!(" {marks} marks {regions} regions") };
        if non_temporal_stores > 0 {
            more += &format!(" {non_temporal_stores}{NON_TEMPORAL}");
        }
        let group = |group: &Group| {
            format!("{} {} {} {:08x}", group.first_epoch, group.rows, group.accesses, group.checksum)
        };
        let mut values = vec![
            FORMAT.to_owned(),
            self.totals.version().to_string(),
            self.header.program.clone(),
            self.header.arch.clone(),
            self.header.recorder.clone(),
            self.header.epoch_instructions.to_string(),
            format!(
                "{epochs} epochs {threads} threads {accesses} accesses {instructions} instructions{more}"
            ),
            self.groups.iter().map(group).collect::<Vec<_>>().join("\n"),
        ];
        values.push(format!("{:08x}", checksum(&values)));
        let pairs = KEYS.iter().zip(values);
        pairs.map(|(key, value)| KeyValue::new((*key).to_owned(), value)).collect()
    }

    /// Parses the metadata of a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_key_values(pairs: Option<&Vec<KeyValue>>) -> Result<Metadata, MetadataError> {
        let find = |key: &str| {
            let pair = pairs?.iter().find(|pair| pair.key == key)?;
            pair.value.clone()
        };
        if find(KEYS[0]).is_none_or(|format| format != FORMAT) {
            return Err(MetadataError::Foreign);
        }
        let version = find(KEYS[1]).unwrap_or_default();
        if !(1..=VERSION).any(|known| version == known.to_string()) {
            return Err(MetadataError::Version(format!(
                "a trace of format version {version:?}; this memtide reads versions 1 to {VERSION}: \
                use the memtide that wrote it, or record again"
            )));
        }
        let values: Option<Vec<String>> = KEYS.iter().map(|key| find(key)).collect();
        let values = values.ok_or(MetadataError::Damaged("its metadata is incomplete"))?;
        Metadata::parse(&values).ok_or(MetadataError::Damaged("its metadata is not what was written"))
    }

    fn parse(values: &[String]) -> Option<Metadata> {
        let (sum, values) = values.split_last()?;
        if *sum != format!("{:08x}", checksum(values)) {
            return None;
        }
        let header = Header {
            program: values[2].clone(),
            arch: values[3].clone(),
            recorder: values[4].clone(),
            epoch_instructions: values[5].parse().ok()?,
        };
        let totals: Vec<&str> = values[6].split(' ').step_by(2).collect();
        let (&[epochs, threads, accesses, instructions], more) = totals.split_first_chunk()?;
        let (non_temporal_stores, more) = match *more {
            [ref more @ .., stores] if values[6].ends_with(NON_TEMPORAL) => (positive(stores)?, more),
            _ => (0, more),
        };
        let (marks, regions) = match *more {
            [] => (0, 0),
            [marks, regions] => (positive(marks)?, regions.parse().ok()?),
            _ => return None,
        };
        let totals = Totals {
            epochs: epochs.parse().ok()?,
            threads: threads.parse().ok()?,
            accesses: accesses.parse().ok()?,
            instructions: instructions.parse().ok()?,
            marks,
            regions,
            non_temporal_stores,
        };
        if values[1] != totals.version().to_string() {
            return None;
        }
        let groups: Option<Vec<Group>> = values[7].lines().map(parse_group).collect();
        Some(Metadata { header, totals, groups: groups? }).filter(Metadata::is_plausible)
    }

    fn is_plausible(&self) -> bool {
        let epochs: Vec<u32> = self.groups.iter().map(|group| group.first_epoch).collect();
        let accesses = self.groups.iter().map(|group| group.accesses).sum::<u64>();
        (1..=MAX_THREADS).contains(&self.totals.threads)
            && accesses == self.totals.accesses
            && self.totals.regions <= self.totals.marks
            && self.totals.non_temporal_stores <= self.totals.accesses
            && epochs.first().is_none_or(|&first| first == 0)
            && epochs.is_sorted_by(|a, b| a < b)
            && epochs.last().map_or(self.totals.epochs == 0, |&last| last < self.totals.epochs)
            && self.totals.epochs <= i32::MAX as u32
            && self.has_no_empty_epochs()
    }
}

impl Metadata {
    /// Whether every epoch of a row group can have a row: a replay iterates over epochs.
    fn has_no_empty_epochs(&self) -> bool {
        let ends = self.groups.iter().skip(1).map(|group| group.first_epoch).chain([self.totals.epochs]);
        self.groups.iter().zip(ends).all(|(group, end)| (end - group.first_epoch) as usize <= group.rows)
    }
}

fn positive(count: &str) -> Option<u64> {
    count.parse().ok().filter(|&count| count > 0)
}

fn parse_group(line: &str) -> Option<Group> {
    let fields: Vec<&str> = line.split(' ').collect();
    let &[first_epoch, rows, accesses, checksum] = fields.as_slice() else { return None };
    let group = Group {
        first_epoch: first_epoch.parse().ok()?,
        rows: rows.parse().ok()?,
        accesses: accesses.parse().ok()?,
        checksum: u32::from_str_radix(checksum, 16).ok()?,
    };
    (group.rows <= MAX_GROUP_ROWS && group.accesses <= group.rows as u64).then_some(group)
}

fn checksum(values: &[String]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    for value in values {
        crc.update(&(value.len() as u64).to_le_bytes());
        crc.update(value.as_bytes());
    }
    crc.finalize()
}

/// Why metadata is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MetadataError {
    Foreign,
    Version(String),
    Damaged(&'static str),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_epochs_than_rows_are_refused() {
        let read = |epochs, second| {
            let group = |first_epoch, rows| Group { first_epoch, rows, accesses: rows as u64, checksum: 0 };
            let (program, arch, recorder) = (String::new(), String::new(), String::new());
            let header = Header { program, arch, recorder, epoch_instructions: 1 };
            let totals = Totals { epochs, threads: 1, accesses: 5, instructions: 5, ..Totals::default() };
            let written = Metadata { header, totals, groups: vec![group(0, 2), group(second, 3)] };
            Metadata::from_key_values(Some(&written.to_key_values())).map(|_| ())
        };
        assert_eq!(read(5, 2), Ok(()));
        let damaged = Err(MetadataError::Damaged("its metadata is not what was written"));
        assert_eq!(read(6, 2), damaged);
        assert_eq!(read(5, 3), damaged);
        assert_eq!(read(i32::MAX as u32, 1), damaged);
    }

    /// Reads metadata of this version with these totals, whose checksum is right.
    fn read(version: &str, totals: &str) -> Option<Totals> {
        let mut values =
            [FORMAT, version, "program", "x86_64", "test", "1", totals, "0 9 5 0"].map(str::to_owned);
        let sum = format!("{:08x}", checksum(&values));
        let pairs = KEYS.iter().zip(values.iter_mut().map(std::mem::take).chain([sum]));
        let pairs = pairs.map(|(key, value)| KeyValue::new((*key).to_owned(), value)).collect();
        Metadata::from_key_values(Some(&pairs)).ok().map(|metadata| metadata.totals)
    }

    #[test]
    fn version_is_2_exactly_with_marks_or_non_temporal_stores() {
        let plain = "1 epochs 1 threads 5 accesses 7 instructions";
        let counts = |t: Totals| (t.accesses, t.marks, t.regions, t.non_temporal_stores);
        assert_eq!(read("1", plain).map(counts), Some((5, 0, 0, 0)));
        for (more, expected) in [
            (" 3 marks 2 regions", (5, 3, 2, 0)),
            (" 4 non-temporal", (5, 0, 0, 4)),
            (" 3 marks 2 regions 4 non-temporal", (5, 3, 2, 4)),
        ] {
            assert_eq!(read("2", &format!("{plain}{more}")).map(counts), Some(expected), "{more}");
        }
        for (version, marks) in [
            ("2", ""),
            ("1", " 3 marks 2 regions"),
            ("2", " 0 marks 0 regions"),
            ("2", " 3 marks 4 regions"),
            ("2", " 3 marks"),
            ("2", " -1 marks 0 regions"),
            ("2", " 3 marks 2 regions 1 non-temporal 1 more"),
            ("2", " 3 marks 2 regions 0 non-temporal"),
            ("1", " 4 non-temporal"),
            ("2", " 6 non-temporal"),
            ("3", " 3 marks 2 regions"),
        ] {
            assert_eq!(read(version, &format!("{plain}{marks}")), None, "{version}:{marks}");
        }
    }
}
