use super::*;
use crate::testing::{check, native};

/// Parameters of a small grid with odd sides, for all algorithms.
const SMALL: &str = "footprint_mib=1,x=21,y=19,threads=1";

const ALGORITHMS: [&str; 5] = [
    "algorithm=blocked,block_x=5,block_y=4",
    "algorithm=time-skewed,block_x=4,block_y=1,block_z=7",
    "algorithm=circular-queue,block_y=4",
    "algorithm=circular-queue,block_y=64",
    "algorithm=cache-oblivious",
];

/// The last step's array, by plain sweeps.
fn reference(stencil: &Stencil) -> Vec<f64> {
    let [nx, ny, nz] = stencil.shape;
    let mut now: Vec<f64> = (0..nx * ny * nz).map(|at| unit(hash(stencil.seed ^ hash(at as u64)))).collect();
    let (row, plane) = (nx, nx * ny);
    for _ in 0..stencil.steps {
        let old = now.clone();
        for z in 1..nz - 1 {
            for y in 1..ny - 1 {
                for at in (1..nx - 1).map(|x| (z * ny + y) * nx + x) {
                    let along = old[at + 1] + old[at - 1] + old[at - row] + old[at + row];
                    let sum = along + old[at - plane] + old[at + plane];
                    now[at] = sum - 6.0 * old[at] / (FACTOR * FACTOR);
                }
            }
        }
    }
    now
}

fn last(stencil: &Stencil) -> &Array<f64> {
    if stencil.queue.is_some() { &stencil.anext } else { stencil.arrays(stencil.steps)[0] }
}

#[test]
fn every_algorithm_computes_what_plain_sweeps_do() {
    for steps in [1, 2, 5, 6] {
        for algorithm in ALGORITHMS {
            let stencil = native::<Stencil>(&format!("{SMALL},steps={steps},{algorithm}"));
            let expected = reference(&stencil);
            assert!(last(&stencil).values().eq(expected), "{algorithm}, {steps} steps");
        }
    }
}

#[test]
fn blocks_of_any_size_give_the_same_result() {
    let sides = [1, 2, 3, 18, 500];
    let expected = native::<Stencil>(&format!("{SMALL},steps=3")).result();
    for (at, x) in sides.into_iter().enumerate() {
        let [y, z] = [1, 2].map(|by| sides[(at + by) % sides.len()]);
        let blocks = format!("block_x={x},block_y={y},block_z={z}");
        for algorithm in ["blocked", "time-skewed"] {
            let stencil = native::<Stencil>(&format!("{SMALL},steps=3,algorithm={algorithm},{blocks}"));
            assert_eq!(stencil.result(), expected, "{algorithm}, {blocks}");
        }
    }
}

#[test]
fn traced_and_native_runs_agree() {
    for algorithm in ALGORITHMS {
        check::<Stencil>(&format!("{SMALL},steps=3,{algorithm}"));
    }
}

/// Accesses and instructions after initialisation.
fn cost(params: &str) -> ([usize; 2], u64, TracedStencil) {
    let (program, recorded) = check::<Stencil>(params);
    let pages = recorded.mappings.iter().map(|mapping| mapping.bytes.div_ceil(4096) as usize).sum();
    let accesses = &recorded.streams[0][pages..];
    let stores = accesses.iter().filter(|access| access.write).count();
    let instructions = accesses.iter().map(|access| u64::from(access.instructions)).sum();
    ([accesses.len() - stores, stores], instructions, program)
}

type TracedStencil = crate::run::TracedProgram<Stencil>;

#[test]
fn points_read_seven_values_and_write_one() {
    let ([loads, stores], instructions, program) = cost(&format!("{SMALL},steps=2,block_x=19,block_y=17"));
    let inner: usize = program.workload().shape.iter().map(|points| points - 2).product();
    assert_eq!([loads, stores], [14 * inner, 2 * inner]);
    let rows = (2 * inner / 19) as u64;
    assert_eq!(instructions, 2 * inner as u64 * POINT_INSTRUCTIONS + rows * ROW_INSTRUCTIONS);
}

#[test]
fn narrow_columns_of_the_circular_queue_compute_rows_again() {
    let rows = |block: usize| {
        let params = format!("{SMALL},steps=6,algorithm=circular-queue,block_y={block}");
        let (.., program) = cost(&params);
        let [x, _, z] = program.workload().shape;
        program.workload().order.points() / ((x - 2) * (z - 2))
    };
    let inner = 17;
    assert_eq!(rows(inner), 6 * inner);
    // Of a column of one row, the steps compute 11, 9, 7, 5, 3 and 1, less those beyond the grid's edges.
    let beyond: usize = (0..6).map(|more| more * (more + 1)).sum();
    assert_eq!(rows(1), 36 * inner - beyond);
}

#[test]
fn circular_queue_reads_the_first_array_and_writes_the_second() {
    let (_, recorded) = check::<Stencil>(&format!("{SMALL},steps=4,algorithm=circular-queue,block_y=3"));
    let pages: usize = recorded.mappings.iter().map(|mapping| mapping.bytes.div_ceil(4096) as usize).sum();
    let of =
        |name: &str| recorded.mappings.iter().find(|mapping| mapping.name == name).expect("it is mapped");
    let (a0, anext) = (of("a0"), of("anext"));
    let within = |mapping: &memtide_core::Mapping, address: u64| {
        (mapping.start.0..mapping.start.0 + mapping.bytes).contains(&address)
    };
    for access in &recorded.streams[0][pages..] {
        assert!(!within(a0, access.address.0) || !access.write);
        assert!(!within(anext, access.address.0) || access.write);
    }
}

#[test]
fn windows_compute_their_points_and_mark_them() {
    let params = "footprint_mib=8,x=64,y=64,threads=1,windows=3,window_points=5000";
    for algorithm in ["blocked", "time-skewed", "circular-queue", "cache-oblivious"] {
        let (program, recorded) = check::<Stencil>(&format!("{params},algorithm={algorithm}"));
        use memtide_core::Mark::{Begin, End, WarmUp};
        assert_eq!(recorded.marks, [WarmUp, Begin, End, Begin, End, Begin]);
        let counted = program.workload().windows.iter().flat_map(|window| window.counted.clone());
        let points: usize = counted
            .map(|item| {
                let (tile, part) = program.workload().order.find(item);
                tile.rows_of(part).count() * tile.range(0).len()
            })
            .sum();
        assert!(points.abs_diff(15_000) <= 3 * 512, "{algorithm}: {points}");
    }
}

#[test]
fn mistakes_are_refused_with_what_is_allowed() {
    let refused = |params: &str| {
        let program = crate::program("stencil", &params.parse().expect("parameters"), 1);
        program.err().expect("it was made").to_string()
    };
    assert!(refused("threads=2").contains("threads must be 1"));
    assert!(refused("footprint_mib=1,x=256,y=128").contains("2 planes of 256 x 128 points"));
    assert!(refused("windows=100").contains("windows=0"));
    assert!(refused("algorithm=tiled").contains("cache-oblivious"));
    let tiny = "footprint_mib=1024,algorithm=time-skewed,block_x=1,block_y=1,block_z=1";
    assert!(refused(tiny).contains("increase block_x"));
}
