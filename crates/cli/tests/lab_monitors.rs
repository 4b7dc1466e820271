//! The monitors of `memtide daemon` on a real kernel.

mod support;

use std::process::{Child, Command};
use std::time::Duration;
use std::{env, fs, thread};

use memtide_core::Time;
use memtide_core::policy::RegionNeeds;
use memtide_linux::monitors::{Damon, Found, Monitor};
use memtide_linux::processes::{self, Process};
use rustix::process::Pid;
use support::{MEMTIDE, lab_is_here};

const MIB: usize = 1 << 20;

/// What a process does in the guest: a test's own part, or `idle`.
const ROLE: &str = "MEMTIDE_TEST_ROLE";

const NEEDS: RegionNeeds =
    RegionNeeds { sampling: Time::from_ms(5), aggregation: Time::from_ms(100), regions_max: 500 };

/// Runs a test of this file in a guest, where it finds its name as its role. Gives what it printed.
fn in_guest(name: &str, timing: &str) {
    let test = env::current_exe().expect("this test's file").display().to_string();
    let mut command = Command::new(MEMTIDE);
    command.args(["lab", "run", "--machine", "hinuma", "--scale", "96", "--vcpus", "1", "--timing", timing]);
    command.args(["--env", &format!("{ROLE}={name}"), "--file", &test]);
    if let Some(kernel) = env::var_os("MEMTIDE_TEST_KERNEL") {
        command.arg("--kernel").arg(kernel);
    }
    let run = command.args(["--", &test, "--exact", name, "--nocapture"]).output().expect("memtide runs");
    let (out, told) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    println!("{out}\n{told}");
    assert!(run.status.success() && out.contains("1 passed"), "{out}\n{told}");
}

fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// A process that has memory and does not use it; ends when dropped.
struct Idle(Child);

impl Idle {
    fn start(name: &str) -> Idle {
        let test = env::current_exe().expect("this test's file");
        let child = Command::new(test).args(["--exact", name]).env(ROLE, "idle").spawn();
        Idle(child.expect("a process"))
    }

    fn process(&self) -> Process {
        let pid = Pid::from_raw(self.0.id().cast_signed()).expect("a pid");
        processes::one(pid).expect("a process that lives")
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("it ends");
    }
}

fn idle() {
    let memory = vec![1u8; 48 * MIB];
    thread::sleep(Duration::from_secs(600));
    drop(memory);
}

fn sleep_s(seconds: f64) {
    thread::sleep(Duration::from_secs_f64(seconds));
}

fn let_damon_in() {
    // Where there is none of these, nothing is in the way.
    let _ = fs::write("/proc/sys/kernel/numa_balancing", "0");
    let _ = fs::write("/sys/module/damon_stat/parameters/enabled", "N");
}

/// The age that half of the pages have at least, in aggregation intervals.
fn middle_age(found: &[Found]) -> u32 {
    let mut ages: Vec<(u32, u64)> = found.iter().map(|found| (found.age, found.pages)).collect();
    ages.sort_unstable();
    let half = ages.iter().map(|(_, pages)| pages).sum::<u64>() / 2;
    let mut before = 0;
    let middle = ages.iter().find(|(_, pages)| {
        before += pages;
        before > half
    });
    middle.expect("regions").0
}

#[test]
fn damon_keeps_the_ages_of_processes_that_stay() {
    let name = "damon_keeps_the_ages_of_processes_that_stay";
    match role().as_deref() {
        Some("idle") => return idle(),
        None if lab_is_here() => return in_guest(name, "off"),
        None => return,
        Some(_) => {}
    }
    let_damon_in();
    let [first, second, third] = [(); 3].map(|()| Idle::start(name));
    sleep_s(1.0);
    let [a, b, c] = [&first, &second, &third].map(Idle::process);
    let mut damon = Damon::new(&NEEDS).expect("DAMON");
    let mut look = |processes: &[&Process], after_s: f64| {
        let processes: Vec<Process> = processes.iter().map(|&process| process.clone()).collect();
        damon.watch(&processes).expect("they are watched");
        sleep_s(after_s);
        let found = damon.read().expect("regions");
        let pages: Vec<u64> = found.iter().map(|found| found.iter().map(|found| found.pages).sum()).collect();
        assert!(pages.iter().all(|&pages| pages >= (48 * MIB / 4096) as u64), "{pages:?}");
        let ages: Vec<u32> = found.iter().map(|found| middle_age(found)).collect();
        println!("ages {ages:?}");
        ages
    };
    let ages = look(&[&a, &b], 5.0);
    assert!(ages.iter().all(|age| (25..60).contains(age)), "{ages:?}");
    let ages = look(&[&b, &c], 2.0);
    assert!(ages[0] > 55 && ages[1] < 25, "the second one stays, the third one is new: {ages:?}");
    drop(first);
    let ages = look(&[&b], 2.0);
    assert!(ages[0] > 75, "{ages:?}");
    let fourth = Idle::start(name);
    sleep_s(1.0);
    let ages = look(&[&b, &c, &fourth.process()], 2.0);
    assert!(ages[0] > 105 && ages[1] < 25 && ages[2] < 25, "{ages:?}");
    drop(second);
    let ages = look(&[&c, &fourth.process()], 2.0);
    assert!(ages.iter().all(|age| (25..60).contains(age)), "{ages:?}");
}
