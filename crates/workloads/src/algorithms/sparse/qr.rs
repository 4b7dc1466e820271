//! Householder QR, left-looking.
//!
//! ```text
//!  column k of A ─▶ x
//!  walk: the elimination tree of A'A gives the columns i in which column k of R has nonzeros
//!  reflect: x -= beta[i] (V[:, i]' x) V[:, i] for each, and x[i] ─▶ R;
//!    a child of k in the tree adds its rows to V[:, k]
//!  house: the Householder vector of the rest of x ─▶ V[:, k], the norm of the rest ─▶ R[k, k]
//! ```
//!
//! Each column of V has a pivot row, which no later column has. CSparse takes any of the column's rows. Here
//! it is the row of the diagonal, which is no zero: rows are ordered as columns, and lengths are the same.
//!
//! # Sample
//! Reflections of columns left out are identities (beta = 0). The others keep the norm of x: all stay finite.

use super::*;

/// Per element squared and added, scalar AArch64: load, fused multiply-add, and the loop.
const NORM_INSTRUCTIONS: u64 = 4;

/// What only QR has.
pub(super) struct Reflections {
    /// First column, in elimination order, of each row of A.
    leftmost: Array<u32>,
    pub betas: Array<f64>,
}

impl Reflections {
    pub fn new(unknowns: usize, space: &mut Space) -> Result<Reflections, WorkloadError> {
        Ok(Reflections {
            betas: space.array("beta", unknowns)?,
            leftmost: space.array("leftmost", unknowns)?,
        })
    }
}

/// First step at which each row has a nonzero; rows in elimination order.
pub(super) fn leftmost(mesh: &Mesh, order: &[u32], step_of: &[u32]) -> Vec<u32> {
    let first = |unknown: &u32| {
        let steps = mesh.columns[*unknown as usize].iter().map(|column| step_of[*column as usize]);
        steps.min().expect("the diagonal is a nonzero")
    };
    order.iter().map(first).collect()
}

impl Sparse {
    /// Fills V with its structure and identities, and A's first columns.
    pub(super) fn fill_reflections(&self, qr: &Reflections, leftmost: &[u32]) {
        let n = self.order.len();
        let mut children = vec![Vec::new(); n];
        let mut seen = vec![u32::MAX; n];
        for (k, unknown) in self.order.iter().enumerate() {
            qr.leftmost.set(*unknown as usize, leftmost[k]);
            if let Some(parent) = self.structure.parents[k] {
                children[parent as usize].push(k);
            }
            let of_a = self.a.range(*unknown as usize);
            let of_a = of_a.map(|at| self.steps.get(self.a.indices.get(at) as usize));
            let below = children[k].iter().flat_map(|child| self.l.range(*child));
            let below = below.map(|at| self.l.indices.get(at));
            let mut places = self.l.range(k);
            for row in std::iter::once(k as u32).chain(of_a).chain(below) {
                if row as usize >= k && seen[row as usize] != k as u32 {
                    seen[row as usize] = k as u32;
                    self.l.indices.set(places.next().expect("columns have their lengths"), row);
                }
            }
            debug_assert!(places.is_empty());
            self.l.values.set(self.l.range(k).start, 1.0);
        }
    }

    /// Returns where the column's entry `at` of A belongs in x.
    pub(super) fn row_of<M: Memory>(&self, m: &mut M, qr: &Reflections, at: usize) -> Loaded<usize> {
        let row = m.load(&self.a.indices, at).map(|row| row as usize);
        m.load(&qr.leftmost, row);
        m.load(&self.steps, row).map(|step| step as usize)
    }

    /// Applies the reflection of a column to x, and stores the element that it completes in R.
    pub(super) fn reflect<M: Memory>(&self, m: &mut M, k: usize, column: usize, qr: &Reflections) {
        let entries = self.l.range(column);
        let beta = *m.load(&qr.betas, column);
        let factor = beta * self.dot(m, entries.clone());
        self.subtract(m, entries, factor);
        if let (Some(r), Ok(number)) = (&self.u, self.structure.row(k).binary_search(&(column as u32))) {
            move_entry(m, (r, r.range(k).start + number), column as u32, &self.x);
        }
        if self.structure.parents[column] == Some(k as u32) {
            self.search(m, k, column);
        }
    }

    /// The product of a column of V with x.
    fn dot<M: Memory>(&self, m: &mut M, entries: Range<usize>) -> f64 {
        let mut sum = 0.0;
        self.entries(m, entries, |m, row, value| {
            sum += value * *m.load(&self.x, row);
            m.work(SOLVE_INSTRUCTIONS);
        });
        sum
    }

    /// Stores the column's reflection and R's diagonal element, and clears x.
    pub(super) fn house<M: Memory>(&self, m: &mut M, k: usize, qr: &Reflections, r: &Compressed) {
        let run = self.run_of(self.structure.row(k).len(), k);
        for (number, (at, step)) in r.range(k).zip(self.structure.row(k)).enumerate() {
            if !run.contains(&number) {
                move_entry(&mut Native, (r, at), *step, &self.x);
            }
        }
        let entries = self.l.range(k);
        let run = self.run_of(entries.len(), k);
        for (number, at) in entries.clone().enumerate() {
            let row = self.l.indices.get(at);
            if run.contains(&number) {
                move_entry(m, (&self.l, at), row, &self.x);
            } else {
                move_entry(&mut Native, (&self.l, at), row, &self.x);
            }
        }
        let first = *m.load(&self.l.values, entries.start);
        let below = self.norm(m, entries.clone(), run);
        let (pivot, beta, norm) = reflection(first, below);
        m.work(ROOT_INSTRUCTIONS);
        m.store(&self.l.values, entries.start, pivot);
        m.store(&qr.betas, k, beta);
        m.store(&r.indices, r.range(k).end - 1, k as u32);
        m.store(&r.values, r.range(k).end - 1, norm);
    }

    /// The sum of the squares of a column of V without its first; a run of it is recorded.
    fn norm<M: Memory>(&self, m: &mut M, entries: Range<usize>, run: Range<usize>) -> f64 {
        let recorded = entries.start + run.start..entries.start + run.end;
        for at in recorded.clone() {
            if at % VALUES == 0 || at == recorded.start {
                load_line::<_, _, VALUES>(m, &self.l.values, at);
            }
            m.work(NORM_INSTRUCTIONS);
        }
        entries.skip(1).map(|at| self.l.values.get(at)).map(|x| x * x).sum()
    }
}

/// Moves an entry of x to a factor.
fn move_entry<M: Memory>(m: &mut M, to: (&Compressed, usize), row: u32, x: &Array<f64>) {
    let value = *m.load(x, row as usize);
    m.store(x, row as usize, 0.0);
    m.work(STORE_INSTRUCTIONS);
    m.store(&to.0.indices, to.1, row);
    m.store(&to.0.values, to.1, value);
}

/// Of a vector's first element and the sum of the others' squares: the first element of its Householder
/// vector, whose others are the same, beta, and the vector's norm (Golub and Van Loan).
fn reflection(first: f64, below: f64) -> (f64, f64, f64) {
    if below == 0.0 {
        return (1.0, if first > 0.0 { 0.0 } else { 2.0 }, first.abs());
    }
    let norm = libm::sqrt(first * first + below);
    // first - norm, without cancellation.
    let pivot = if first > 0.0 { -below / (first + norm) } else { first - norm };
    (pivot, -1.0 / (norm * pivot), norm)
}
