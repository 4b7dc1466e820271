//! Heat maps: every miss of a private cache is in the row of its page, and moves add up.

use memtide_core::{CpuId, Mark, PageSize, Then};
use memtide_sim::{HeatMapReport, HeatRow, Job, Report, run_shared};

use crate::runs::{job, policy, try_jobs};
use crate::support::{Marked, after, alone, doing, load, map, touch, two_sockets};

type Cells = fn(&HeatRow) -> &Vec<Vec<u32>>;

fn sum(map: &HeatMapReport, cells: Cells) -> u64 {
    map.rows.iter().flat_map(|row| cells(row).iter().flatten()).map(|&count| u64::from(count)).sum()
}

/// The reports of a run alone and of one pass.
fn both(name: &str, kernel: &str, job: impl Fn() -> Job<'static>) -> [Report; 2] {
    let machine = two_sockets(kernel, 2, [64, 64], [10_000.0, 10_000.0]);
    let shared = run_shared(&machine, vec![job()], vec![policy(&machine, name)], 1, &|_, _| true);
    let shared = shared.into_iter().next().expect("a report").expect("a run");
    [try_jobs(&machine, name, vec![job()]).expect("a run"), shared]
}

#[test]
fn miss_is_in_the_row_of_its_page_whatever_the_page_size() {
    for page in [PageSize::Base, PageSize::Huge] {
        // 64 lines of two pages, and one of a third.
        let lines = || [3, 600].into_iter().flat_map(|page| (0..64).map(move |line| page * 4096 + line * 64));
        let loads = move || doing(lines().chain([1000 * 4096]).map(load));
        for report in both("local", "", || job(alone([map(0, 4 << 20, page), loads()]), &[])) {
            let [map] = &report.heat_maps[..] else { panic!("one map") };
            let rows: Vec<_> =
                map.rows.iter().map(|row| (row.address / 4096, row.accesses[0].iter().sum())).collect();
            assert_eq!(rows, [(3, 64), (600, 64), (1000, 1)], "{page:?}");
            assert_eq!(map.pages_per_row, 1);
            assert_eq!(sum(map, |row| &row.accesses), report.shared_accesses);
        }
    }
}

#[test]
fn moves_and_accesses_of_the_region_add_up_and_end_on_the_destination() {
    let in_round = |round: u64| (1..=64).map(move |page| load(page * 4096 + round % 64 * 64));
    let reads = move || doing((0..400).flat_map(in_round));
    let begin = || after([], Then::Mark(Mark::Begin));
    let far = || after([], Then::OnCpu(CpuId(2)));
    let script = move || Marked(alone([touch(1, 64), far(), begin(), reads()]));
    let scan = "numa_scan_period_ms = 0.02\nnuma_scan_mib = 64\n";
    for report in both("local+anb", scan, || Job::new("marked", Box::new(script()))) {
        let [map] = &report.heat_maps[..] else { panic!("one map") };
        assert!(report.pages.migrated > 0, "pages follow the thread");
        assert_eq!(sum(map, |row| &row.moved_pages), report.pages.migrated);
        assert_eq!(sum(map, |row| &row.accesses), report.shared_accesses);
        assert_eq!(map.columns, (report.time_ms / map.column_ms).ceil() as usize);
        for row in map.rows.iter().filter(|row| !row.moved_pages.is_empty()) {
            let last = map.columns - 1;
            assert_eq!(row.accesses[0][last], 0, "the page is on the other node: {row:?}");
        }
    }
}
