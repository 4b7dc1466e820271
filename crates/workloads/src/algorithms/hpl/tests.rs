use memtide_core::Access;

use super::panel::Op;
use super::*;
use crate::testing::{check, native, traced};

impl Hpl {
    /// An element of the factored matrix.
    fn at(&self, row: usize, column: usize) -> f64 {
        let process = column / self.nb % self.processes.len();
        let local = local_columns(column, process, self.processes.len(), self.nb);
        self.processes[process].part.get(local * self.ld + row)
    }

    /// U and y, by columns: what of the factors the interchanges of later steps leave in place.
    fn upper(&self) -> Vec<f64> {
        let columns =
            (0..=self.n).flat_map(|column| (0..self.n.min(column + 1)).map(move |row| (row, column)));
        columns.map(|(row, column)| self.at(row, column)).collect()
    }
}

/// U and y by plain elimination.
fn eliminated(hpl: &Hpl) -> Vec<f64> {
    let n = hpl.n;
    let mut a: Vec<Vec<f64>> =
        (0..n).map(|row| (0..=n).map(|column| hpl.element(row, column)).collect()).collect();
    for k in 0..n {
        let pivot = (k..n).max_by(|x, y| a[*x][k].abs().total_cmp(&a[*y][k].abs())).expect("a row");
        a.swap(k, pivot);
        let (above, below) = a.split_at_mut(k + 1);
        for row in below {
            let factor = row[k] / above[k][k];
            (k..=n).for_each(|column| row[column] -= factor * above[k][column]);
        }
    }
    (0..=n).flat_map(|column| (0..n.min(column + 1)).map(|row| a[row][column]).collect::<Vec<_>>()).collect()
}

/// HPL's scaled residual of the solution of U x = y.
fn residual(hpl: &Hpl) -> f64 {
    let n = hpl.n;
    let mut x: Vec<f64> = (0..n).map(|row| hpl.at(row, n)).collect();
    for k in (0..n).rev() {
        x[k] /= hpl.at(k, k);
        let value = x[k];
        (0..k).for_each(|row| x[row] -= hpl.at(row, k) * value);
    }
    let norm =
        |values: &mut dyn Iterator<Item = f64>| values.fold(0.0_f64, |most, value| most.max(value.abs()));
    let row = |row: usize| (0..n).map(move |column| hpl.element(row, column));
    let errors = (0..n).map(|i| row(i).zip(&x).map(|(a, x)| a * x).sum::<f64>() - hpl.element(i, n));
    let error = norm(&mut errors.collect::<Vec<_>>().into_iter());
    let a = norm(&mut (0..n).map(|i| row(i).map(f64::abs).sum()));
    let b = norm(&mut (0..n).map(|i| hpl.element(i, n)));
    error / (f64::EPSILON / 2.0 * (a * norm(&mut x.iter().copied()) + b) * n as f64)
}

#[test]
fn residual_passes_hpls_threshold() {
    for params in ["footprint_mib=1,nb=8,threads=2", "footprint_mib=4,nb=16,threads=3"] {
        let (program, _) = check::<Hpl>(params);
        let residual = residual(program.workload());
        assert!(residual < 16.0, "{params}: {residual}");
    }
}

#[test]
fn factors_are_those_of_plain_elimination() {
    let hpl = native::<Hpl>("footprint_mib=1,nb=40,threads=3");
    for (at, (ours, expected)) in hpl.upper().into_iter().zip(eliminated(&hpl)).enumerate() {
        assert!((ours - expected).abs() < 1e-8 * expected.abs().max(1.0), "{at}: {ours} for {expected}");
    }
}

#[test]
fn factors_are_equal_with_one_two_and_four_processes() {
    let factors = |threads: usize| native::<Hpl>(&format!("footprint_mib=1,nb=16,threads={threads}")).upper();
    let one = factors(1);
    assert!(one.iter().all(|value| value.is_finite()));
    assert!(factors(2) == one && factors(4) == one);
}

#[test]
fn sample_is_its_part_of_the_accesses_and_leaves_elements_finite() {
    let region = |sample: usize| {
        let (program, recorded) = check::<Hpl>(&format!("footprint_mib=2,nb=16,threads=2,sample={sample}"));
        let hpl = program.workload();
        assert!((0..=hpl.n).all(|column| (0..hpl.n).all(|row| hpl.at(row, column).is_finite())));
        recorded.instructions() - hpl.n as u64 * (hpl.n + 1) as u64 * RANDOM_INSTRUCTIONS
    };
    let whole = region(1) as f64;
    for sample in [3, 5] {
        let share = region(sample) as f64 * sample as f64 / whole;
        assert!((share - 1.0).abs() < 0.15, "{share} of what {sample} samples should be");
    }
}

#[test]
fn updates_load_and_store_each_trailing_element_once_a_step() {
    let (program, recorded) = check::<Hpl>("footprint_mib=1,nb=16,threads=1");
    let hpl = program.workload();
    let row = hpl.n - 1;
    let address = hpl.processes[0].part.address((hpl.n) * hpl.ld + row / LINE * LINE);
    let vectors = recorded.streams[0].iter().filter(|access| access.address == address && access.size == 64);
    let (stores, loads): (Vec<&Access>, Vec<&Access>) = vectors.partition(|access| access.write);
    let updates = hpl.n.div_ceil(hpl.nb) - 1;
    let (solves, initialisations) = (1, 1);
    assert_eq!((loads.len(), stores.len()), (updates + solves, updates + solves + initialisations));
}

#[test]
fn mistakes_are_refused_with_what_to_change() {
    let refused = |params: &str| {
        let settings = Settings::new(&Hpl::INFO, &params.parse().expect("parameters")).expect("settings");
        let mut space = Space::new(settings.page());
        Hpl::new(&settings, 1, &mut space).err().expect("it was made").to_string()
    };
    assert!(refused("nb=100").contains("multiple of 8"));
    assert!(refused("footprint_mib=1,nb=128,threads=8").contains("reduce nb or threads"));
}

#[test]
fn columns_are_dealt_once() {
    for (n, nb, processes) in [(1, 8, 3), (400, 16, 4), (401, 8, 7), (63, 64, 1), (129, 64, 2)] {
        let all: usize = (0..processes).map(|process| local_columns(n, process, processes, nb)).sum();
        assert_eq!(all, n);
    }
}

#[test]
fn panel_has_one_pivot_per_column() {
    for nb in (8..264).step_by(24) {
        let program = traced::<Hpl>(&format!("footprint_mib=1,nb={nb},threads=1"));
        let hpl = program.workload();
        for k in 0..hpl.n.div_ceil(hpl.nb) {
            let columns = hpl.panel_ops(k).into_iter().filter_map(|op| match op {
                Op::Pivot { column, .. } => Some(column),
                _ => None,
            });
            assert!(columns.eq(0..hpl.width(k)));
        }
    }
}
