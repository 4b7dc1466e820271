//! Where the factors have nonzeros: the elimination tree and the rows of L (Liu).

/// The rows of L without its diagonal, and its columns' lengths.
pub(super) struct Structure {
    /// Where each row's columns begin.
    starts: Vec<usize>,
    columns: Vec<u32>,
    /// Nonzeros of each column of L, the diagonal included.
    pub lengths: Vec<usize>,
    /// The parent of each column in the elimination tree.
    pub parents: Vec<Option<u32>>,
}

impl Structure {
    /// Of a symmetric matrix: `below(k)` are the columns before `k` in which row `k` has a nonzero.
    pub fn new(unknowns: usize, below: impl Fn(usize) -> Vec<u32>) -> Structure {
        let mut parents: Vec<Option<u32>> = vec![None; unknowns];
        let mut lengths = vec![1; unknowns];
        let (mut starts, mut columns) = (vec![0], Vec::new());
        let mut seen = vec![u32::MAX; unknowns];
        for row in 0..unknowns {
            seen[row] = row as u32;
            for mut column in below(row) {
                while seen[column as usize] != row as u32 {
                    seen[column as usize] = row as u32;
                    columns.push(column);
                    lengths[column as usize] += 1;
                    column = *parents[column as usize].get_or_insert(row as u32);
                }
            }
            let start = *starts.last().expect("it is never empty");
            columns[start..].sort_unstable();
            starts.push(columns.len());
        }
        Structure { starts, columns, lengths, parents }
    }

    /// Lengths of the Householder vectors of a matrix of whose A'A this is the structure, given the first
    /// column of each row: those that begin in a column, and those that its children pass on.
    pub fn vectors(&self, leftmost: &[u32]) -> Vec<usize> {
        let mut lengths = vec![0; leftmost.len()];
        leftmost.iter().for_each(|column| lengths[*column as usize] += 1);
        for (column, parent) in self.parents.iter().enumerate() {
            if let Some(parent) = parent {
                lengths[*parent as usize] += lengths[column] - 1;
            }
        }
        lengths
    }

    /// The columns in which a row of L has nonzeros, ascending; the diagonal is not among them.
    pub fn row(&self, row: usize) -> &[u32] {
        &self.columns[self.starts[row]..self.starts[row + 1]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrow_fills_in_one_order_and_not_in_the_other() {
        let first = Structure::new(6, |row| if row == 0 { Vec::new() } else { vec![0] });
        assert_eq!(first.lengths, [6, 5, 4, 3, 2, 1]);
        let last = Structure::new(6, |row| if row == 5 { (0..5).collect() } else { Vec::new() });
        assert_eq!(last.row(5), [0, 1, 2, 3, 4]);
        assert_eq!(last.lengths, [2, 2, 2, 2, 2, 1]);
        assert_eq!(last.parents, [Some(5), Some(5), Some(5), Some(5), Some(5), None]);
    }
}
