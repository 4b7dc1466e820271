use super::*;
use crate::testing::{Recorded, native, record, traced};

impl Sparse {
    /// Nonzeros of L.
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
    for method in ["lu", "cholesky"] {
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
