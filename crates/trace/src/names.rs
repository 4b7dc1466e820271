//! Names of a row group's mappings, each distinct one stored once.

use std::collections::HashMap;
use std::sync::Arc;

use crate::columns::MAX_NAME_BYTES;

/// Maximum bytes of the distinct names of a row group, including [`ENTRY_BYTES`] each.
const MAX_BYTES: usize = 16 << 20;

/// Bytes counted per distinct name, in addition to its text.
const ENTRY_BYTES: usize = 16;

/// Names by row.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Names {
    /// Rows with a name, in order, each with the index of its name in `distinct`.
    rows: Vec<(u32, u32)>,
    distinct: Vec<Arc<str>>,
    places: HashMap<Arc<str>, u32>,
    bytes: usize,
}

impl Names {
    pub fn clear(&mut self) {
        self.rows.clear();
        self.distinct.clear();
        self.places.clear();
        self.bytes = 0;
    }

    /// Names a row, which must follow all rows with a name.
    ///
    /// # Errors
    /// The limit that the name exceeds.
    pub fn push(&mut self, row: usize, name: &str) -> Result<(), &'static str> {
        if name.len() > MAX_NAME_BYTES {
            return Err("a name of more than 255 bytes");
        }
        let place = match self.places.get(name) {
            Some(&place) => place,
            None => {
                self.bytes += name.len() + ENTRY_BYTES;
                if self.bytes > MAX_BYTES {
                    return Err("more than 16 MiB of different names in a row group");
                }
                let name: Arc<str> = name.into();
                let place = self.distinct.len() as u32;
                self.distinct.push(Arc::clone(&name));
                self.places.insert(name, place);
                place
            }
        };
        self.rows.push((row as u32, place));
        Ok(())
    }

    /// The name of this row, if it has one.
    pub fn get(&self, row: usize) -> Option<&str> {
        let at = self.rows.binary_search_by_key(&row, |&(row, _)| row as usize).ok()?;
        Some(&self.distinct[self.rows[at].1 as usize])
    }

    /// The distinct names, in order of first use.
    pub fn distinct(&self) -> &[Arc<str>] {
        &self.distinct
    }

    /// For each row with a name, its index in [`Names::distinct`].
    pub fn places(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().map(|&(_, place)| place as usize)
    }
}
