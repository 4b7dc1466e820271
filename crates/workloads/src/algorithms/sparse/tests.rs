use std::collections::BTreeSet;

use super::*;
use crate::testing::{Recorded, native, record, traced};

impl Sparse {
    /// Nonzeros of L or R.
    fn nonzeros(&self) -> usize {
        self.structure.lengths.iter().sum()
    }

    /// An entry of A in elimination order.
    fn entry(&self, row: usize, column: usize) -> f64 {
        let [row, column] = [row, column].map(|step| self.order[step] as usize);
        let found = self.a.range(column).find(|at| self.a.indices.get(*at) as usize == row);
        found.map_or(0.0, |at| self.a.values.get(at))
    }

    /// Rows of L, dense.
    fn lower(&self) -> Vec<Vec<f64>> {
        let n = self.order.len();
        let mut lower = vec![vec![0.0; n]; n];
        for (k, entries) in (0..n).map(|k| (k, self.l.range(k))) {
            for at in entries {
                let index = self.l.indices.get(at) as usize;
                let row = if self.method == Method::Lu { self.steps.get(index) as usize } else { index };
                lower[row][k] = self.l.values.get(at);
            }
        }
        lower
    }

    /// Columns of QR's factors, dense: the Householder vectors and R.
    fn vectors_and_r(&self) -> [Vec<Vec<f64>>; 2] {
        let n = self.order.len();
        let dense = |matrix: &Compressed| -> Vec<Vec<f64>> {
            let column = |k| {
                let mut column = vec![0.0; n];
                matrix
                    .range(k)
                    .for_each(|at| column[matrix.indices.get(at) as usize] = matrix.values.get(at));
                column
            };
            (0..n).map(column).collect()
        };
        [dense(&self.l), dense(self.u.as_ref().expect("QR has R"))]
    }

    /// Columns of A in elimination order, dense.
    fn columns(&self) -> Vec<Vec<f64>> {
        let n = self.order.len();
        (0..n).map(|column| (0..n).map(|row| self.entry(row, column)).collect()).collect()
    }

    /// Columns of the other factor, dense: U, or the transpose of L.
    fn upper(&self) -> Vec<Vec<f64>> {
        let Some(u) = &self.u else { return self.lower() };
        let n = self.order.len();
        let mut upper = vec![vec![0.0; n]; n];
        for (k, column) in upper.iter_mut().enumerate() {
            u.range(k).for_each(|at| column[u.indices.get(at) as usize] = u.values.get(at));
        }
        upper
    }
}

const ALL: [&str; 4] = [
    "method=lu,ordering=a+at,matrix=ct20stif",
    "method=lu,ordering=ata,matrix=nd3k",
    "method=cholesky,ordering=a+at,matrix=nd3k",
    "method=cholesky,ordering=ata,matrix=ct20stif",
];

#[test]
fn product_of_factors_is_matrix() {
    for params in ALL {
        let sparse = native::<Sparse>(&format!("{params},nodes=60"));
        let (lower, upper) = (sparse.lower(), sparse.upper());
        for (i, row) in lower.iter().enumerate() {
            for (j, column) in upper.iter().enumerate() {
                let product: f64 = row.iter().zip(column).map(|(l, u)| l * u).sum();
                let error = (product - sparse.entry(i, j)).abs();
                assert!(error < 1e-9, "{params}: {product} at {i}, {j}, off by {error}");
            }
        }
    }
}

#[test]
fn results_of_lu_and_cholesky_are_equal_traced_and_native() {
    for pair in [["a+at", "ct20stif"], ["ata", "nd3k"]] {
        let results = ["lu", "cholesky"].map(|method| {
            let params = format!("method={method},ordering={},matrix={},nodes=60", pair[0], pair[1]);
            let mut program = traced::<Sparse>(&params);
            record(&mut program, true);
            let result = program.workload().result();
            assert_eq!(result, native::<Sparse>(&params).result());
            if method == "lu" { result } else { 2.0 * result }
        });
        assert!((results[0] - results[1]).abs() < 1e-9 * results[0].abs(), "{results:?}");
    }
}

#[test]
fn wide_separators_fill_more() {
    let fill =
        |ordering: &str| native::<Sparse>(&format!("ordering={ordering},nodes=1000,sample=200")).nonzeros();
    assert!(fill("ata") > fill("a+at"));
}

/// Loads and stores of x in a recording.
fn of_x(sparse: &Sparse, recorded: &Recorded) -> (usize, usize) {
    let range = sparse.x.address(0)..sparse.x.address(sparse.x.len());
    let all = recorded.streams[0].iter().filter(|access| range.contains(&access.address));
    let stores = all.clone().filter(|access| access.write).count();
    (all.count() - stores, stores)
}

#[test]
fn lu_updates_each_entry_of_a_column_that_reaches_another() {
    let mut program = traced::<Sparse>("method=lu,nodes=60");
    let recorded = record(&mut program, true);
    let sparse = program.workload();
    let n = sparse.order.len();
    let updates: usize = (0..n)
        .flat_map(|k| sparse.structure.row(k))
        .map(|column| sparse.structure.lengths[*column as usize] - 1)
        .sum();
    let nonzeros = sparse.nonzeros();
    let factors = nonzeros - n;
    assert_eq!(
        of_x(sparse, &recorded),
        (updates + factors + factors + nonzeros, { updates + sparse.a.values.len() + factors + nonzeros })
    );
}

#[test]
fn sample_is_its_part_of_the_work_and_leaves_factors_finite() {
    for method in ["lu", "cholesky", "qr"] {
        let work = |sample: usize| {
            let mut program =
                traced::<Sparse>(&format!("method={method},matrix=nd3k,nodes=120,sample={sample}"));
            let recorded = record(&mut program, true);
            let sparse = program.workload();
            assert!(sparse.l.values.values().all(f64::is_finite) && sparse.result().is_finite());
            recorded.streams[0].len() - sparse.pages()
        };
        let whole = work(1) as f64;
        for sample in [3, 5] {
            let share = work(sample) as f64 * (sample * sample) as f64 / whole;
            assert!((share - 1.0).abs() < 0.2, "{method}: {share} of what {sample} should be");
        }
    }
}

#[test]
fn several_threads_are_refused() {
    let settings = Settings::new(&Sparse::INFO, &"threads=2".parse().expect("parameters")).expect("settings");
    let refused = Sparse::new(&settings, 1, &mut Space::new(settings.page()));
    assert!(refused.err().expect("it was made").to_string().contains("threads=1"));
}

const QR: [&str; 2] =
    ["method=qr,ordering=ata,matrix=ct20stif,nodes=60", "method=qr,ordering=a+at,matrix=nd3k,nodes=60"];

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// x -= factor v.
fn subtract(x: &mut [f64], v: &[f64], factor: f64) {
    x.iter_mut().zip(v).for_each(|(x, v)| *x -= factor * v);
}

#[test]
fn reflections_of_r_are_matrix() {
    for params in QR {
        let sparse = native::<Sparse>(params);
        let [vectors, r] = sparse.vectors_and_r();
        let betas: Vec<f64> = sparse.qr.as_ref().expect("it is QR").betas.values().collect();
        for (v, beta) in vectors.iter().zip(&betas) {
            let is_orthogonal = *beta == 0.0 || (beta * dot(v, v) - 2.0).abs() < 1e-9;
            assert!(is_orthogonal, "{params}: {beta} of {}", dot(v, v));
        }
        for (mut product, column) in r.into_iter().zip(sparse.columns()) {
            for (v, beta) in vectors.iter().zip(&betas).rev() {
                let factor = beta * dot(v, &product);
                subtract(&mut product, v, factor);
            }
            let errors = product.iter().zip(&column).map(|(product, entry)| (product - entry).abs());
            assert!(errors.fold(0.0, f64::max) < 1e-9, "{params}");
        }
    }
}

/// Columns of the Householder vectors and of R, without use of zeros.
fn dense_qr(columns: Vec<Vec<f64>>) -> [Vec<Vec<f64>>; 2] {
    let (mut vectors, mut r): (Vec<Vec<f64>>, Vec<Vec<f64>>) = (Vec::new(), Vec::new());
    for (k, mut x) in columns.into_iter().enumerate() {
        for v in &vectors {
            let factor = 2.0 * dot(v, &x) / dot(v, v);
            subtract(&mut x, v, factor);
        }
        let norm = dot(&x[k..], &x[k..]).sqrt();
        let mut v = vec![0.0; x.len()];
        v[k..].copy_from_slice(&x[k..]);
        v[k] = if dot(&v[k + 1..], &v[k + 1..]) == 0.0 { 1.0 } else { x[k] - norm };
        x[k] = norm;
        x[k + 1..].fill(0.0);
        vectors.push(v);
        r.push(x);
    }
    [vectors, r]
}

#[test]
fn vectors_and_r_are_those_of_a_dense_qr_with_their_nonzeros() {
    for params in QR {
        let sparse = native::<Sparse>(params);
        let (ours, dense) = (sparse.vectors_and_r(), dense_qr(sparse.columns()));
        for (ours, dense) in ours.iter().flatten().zip(dense.iter().flatten()) {
            let differences = ours.iter().zip(dense).map(|(ours, dense)| (ours - dense).abs());
            assert!(differences.fold(0.0, f64::max) < 1e-9, "{params}");
        }
        let factors = [Some(&sparse.l), sparse.u.as_ref()].map(|factor| factor.expect("QR has both"));
        for (factor, dense) in factors.into_iter().zip(&dense) {
            let nonzeros = |column: &Vec<f64>| column.iter().filter(|value| **value != 0.0).count();
            for (k, column) in dense.iter().enumerate() {
                assert_eq!(factor.range(k).len(), nonzeros(column), "{params}, column {k}");
            }
        }
        let diagonal_is_positive = dense[1].iter().enumerate().all(|(k, column)| column[k] > 0.0);
        assert!(diagonal_is_positive, "{params}");
    }
}

#[test]
fn qr_marks_the_rows_of_its_vectors() {
    let mut program = traced::<Sparse>(QR[0]);
    let recorded = record(&mut program, true);
    let sparse = program.workload();
    let n = sparse.order.len();
    assert_eq!(sparse.result(), native::<Sparse>(QR[0]).result());
    let applied: usize = (0..n)
        .flat_map(|k| sparse.structure.row(k))
        .map(|column| sparse.l.range(*column as usize).len())
        .sum();
    let [of_r, of_v] = [sparse.nonzeros() - n, sparse.l.indices.len()];
    let loads = 2 * applied + of_r + of_v;
    assert_eq!(of_x(sparse, &recorded), (loads, applied + sparse.a.values.len() + of_r + of_v));
    assert!(sparse.x.values().all(|x| x == 0.0));
}

#[test]
fn result_of_qr_is_that_of_lu() {
    let [qr, lu] = ["qr", "lu"].map(|method| {
        native::<Sparse>(&format!("method={method},ordering=ata,matrix=nd3k,nodes=60")).result()
    });
    assert!((qr - lu).abs() < 1e-9 * lu.abs(), "{qr} {lu}");
}

#[test]
fn sampled_accesses_of_qr_are_among_those_of_all() {
    let addresses = |sample: usize| -> BTreeSet<u64> {
        let mut program = traced::<Sparse>(&format!("{},sample={sample}", QR[0]));
        record(&mut program, true).streams[0].iter().map(|access| access.address.0).collect()
    };
    assert!(addresses(3).is_subset(&addresses(1)));
}
