//! Unit tests of the window.

use super::*;

fn window(misses: u16) -> Window {
    Window::new(&core(misses))
}

/// An instruction takes 1000 ps.
fn core(misses: u16) -> machine::Core {
    machine::Core {
        clock_mhz: 1000.0,
        instructions_per_cycle: 1.0,
        reorder_buffer: 10,
        store_queue: 8,
        outstanding_misses: misses,
        write_streaming_lines: 0,
    }
}

const START: End = End::at(Time::ZERO);

#[test]
fn dependent_miss_begins_when_its_producer_ends() {
    let mut w = window(4);
    let first = w.miss(1, Time(5), Time::ZERO, START);
    w.remember(first);
    let second = w.miss(2, Time(6), Time::ZERO, w.producer(1));
    assert_eq!(w.take_miss(), Some((Time(5), 0)));
    assert_eq!(w.next_miss(), Time::NEVER);
    w.resolve(0, Time(100));
    assert_eq!(w.take_miss(), Some((Time(100), 1)));
    assert_eq!(w.known(second), None);
    w.resolve(1, Time(200));
    assert_eq!(w.known(second), Some(Time(200)));
}

#[test]
fn misses_wait_for_first_free_register() {
    let mut w = window(2);
    for line in 0..3 {
        w.miss(line, Time(line), Time::ZERO, START);
    }
    assert_eq!((w.take_miss(), w.take_miss(), w.take_miss()), (Some((Time(0), 0)), Some((Time(1), 1)), None));
    w.resolve(1, Time(70));
    assert_eq!(w.take_miss(), Some((Time(70), 2)));
    w.miss(9, Time(3), Time::ZERO, START);
    assert_eq!(w.take_miss(), None);
}

#[test]
fn full_slots_block_until_oldest_access_ends() {
    let mut w = window(SLOTS as u16);
    for line in 0..SLOTS as u64 {
        assert_eq!(w.place(Time(3)), Some(Time(3)));
        w.miss(line, Time(line), Time::ZERO, START);
    }
    assert_eq!(w.place(Time(3)), None);
    w.resolve(0, Time(70));
    assert_eq!(w.place(Time(3)), Some(Time(70)));
    w.resolve(5, Time(60));
    assert_eq!(w.place(Time(65)), Some(Time(65)), "an access that ends out of order makes room");
}

#[test]
fn stores_leave_their_queue_in_order() {
    let mut w = window(4);
    let [first, second] = [1, 2].map(|line| w.miss(line, Time(0), Time::ZERO, START));
    w.must_leave(1, first);
    w.must_leave(2, second);
    w.resolve(1, Time(40));
    assert_eq!(w.dispatch_store(8, Time(50), |_| Time::ZERO), Some(Time(50)));
    assert_eq!(w.dispatch_store(9, Time(50), |_| Time::ZERO), None, "the first has not ended");
    w.resolve(0, Time(90));
    assert_eq!(w.dispatch_store(9, Time(50), |_| Time::ZERO), Some(Time(90)));
    assert_eq!(w.dispatch_store(10, Time(95), |_| Time::ZERO), Some(Time(95)));
}

#[test]
fn reorder_buffer_limits_run_ahead() {
    let mut w = window(4);
    let mut clock = Clock::new(&core(4));
    let end = w.miss(1, Time(0), Time::ZERO, START);
    w.must_retire(1, end);
    clock.run(10);
    assert_eq!(w.dispatch(10, &clock), Some(Time(10_000)));
    clock.run(1);
    assert_eq!(w.dispatch(11, &clock), None);
    w.resolve(0, Time(50_000));
    assert_eq!(w.dispatch(11, &clock), Some(Time(50_000)));
}

#[test]
fn instructions_beyond_reorder_buffer_follow_wait() {
    let mut w = window(4);
    let mut clock = Clock::new(&core(4));
    let end = w.miss(1, Time(0), Time::ZERO, START);
    w.must_retire(1, end);
    w.resolve(0, Time(50_000));
    clock.run(31);
    assert_eq!(w.dispatch(31, &clock), Some(Time(70_000)), "20 instructions after the one that waits");
    clock.wait_until(Time(70_000));
    let end = w.miss(2, Time(70_000), Time::ZERO, START);
    w.must_retire(31, end);
    w.resolve(1, Time(85_000));
    clock.run(60);
    assert_eq!(w.dispatch(91, &clock), Some(Time(135_000)), "50 after that");
}

#[test]
fn wait_is_kept_while_another_is_unknown() {
    let mut w = window(4);
    let mut clock = Clock::new(&core(4));
    for (instruction, line) in [(1, 1), (2, 2)] {
        let end = w.miss(line, Time(0), Time::ZERO, START);
        w.must_retire(instruction, end);
    }
    clock.run(12);
    w.resolve(0, Time(90_000));
    assert_eq!(w.dispatch(12, &clock), None, "the second has not ended");
    w.resolve(1, Time(50_000));
    assert_eq!(w.dispatch(12, &clock), Some(Time(91_000)), "the first holds up instruction 11");
}

#[test]
fn hit_on_line_in_flight_waits_for_it() {
    let mut w = window(4);
    w.miss(1, Time(0), Time::ZERO, START);
    let hit = w.hit(1, Time(2), Time(4), START);
    assert_eq!(w.known(hit), None);
    w.resolve(0, Time(50));
    assert_eq!(w.known(hit), Some(Time(50)));
    assert_eq!(w.hit(1, Time(2), Time(4), START), End::at(Time(50)));
    assert_eq!(w.hit(1, Time(60), Time(4), START), End::at(Time(64)));
}

#[test]
fn chained_hits_behind_miss_end_in_sequence() {
    let mut w = window(4);
    let miss = w.miss(1, Time(0), Time::ZERO, START);
    w.remember(miss);
    for _ in 0..3 {
        let end = w.hit(7, Time(1), Time(4), w.producer(1));
        w.remember(end);
    }
    let dependent = w.miss(9, Time(2), Time(5), w.producer(1));
    w.resolve(0, Time(50));
    assert_eq!(w.known(w.producer(1)), Some(Time(62)));
    assert_eq!((w.take_miss(), w.take_miss()), (Some((Time(0), 0)), Some((Time(67), 1))));
    w.resolve(1, Time(90));
    assert_eq!(w.known(dependent), Some(Time(90)));
}

#[test]
fn hits_take_no_slots() {
    let mut w = window(4);
    let miss = w.miss(1, Time(0), Time::ZERO, START);
    let late = w.hit(7, Time(70), Time(4), miss);
    for _ in 0..2 * SLOTS {
        assert_eq!(w.place(Time(80)), Some(Time(80)));
        w.hit(7, Time(80), Time(4), miss);
    }
    w.resolve(0, Time(50));
    assert_eq!(w.known(late), Some(Time(74)), "it was dispatched after its address was there");
}
