//! Units: time, sizes and addresses as distinct types, so that they cannot be confused.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};

use serde::{Deserialize, Serialize};

/// Bytes per cache line, on every modelled machine.
pub const LINE_BYTES: u64 = 64;

/// Bytes per base page.
pub const PAGE_BYTES: u64 = 4096;

/// Bytes per huge page.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// A point in simulated time or a duration, in picoseconds (up to 213 days).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// The start of a run; also an empty duration.
    pub const ZERO: Time = Time(0);
    /// Later than any event.
    pub const NEVER: Time = Time(u64::MAX);

    /// `ns` nanoseconds, rounded to the nearest picosecond; negative and NaN become zero.
    pub fn from_ns(ns: f64) -> Time {
        Time(libm::round(ns * 1e3) as u64)
    }

    /// `us` microseconds.
    pub const fn from_us(us: u64) -> Time {
        Time(us * 1_000_000)
    }

    /// `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Time {
        Time(ms * 1_000_000_000)
    }

    /// In nanoseconds.
    pub fn as_ns(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// In seconds.
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e12
    }

    /// The time since `earlier`, or zero if that is later.
    pub fn since(self, earlier: Time) -> Time {
        Time(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Time {
    type Output = Time;
    fn add(self, other: Time) -> Time {
        Time(self.0 + other.0)
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Time) {
        self.0 += other.0;
    }
}

impl Sub for Time {
    type Output = Time;
    fn sub(self, other: Time) -> Time {
        Time(self.0 - other.0)
    }
}

impl SubAssign for Time {
    fn sub_assign(&mut self, other: Time) {
        self.0 -= other.0;
    }
}

impl Mul<u64> for Time {
    type Output = Time;
    fn mul(self, times: u64) -> Time {
        Time(self.0 * times)
    }
}

impl Sum for Time {
    fn sum<I: Iterator<Item = Time>>(times: I) -> Time {
        times.fold(Time::ZERO, Add::add)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ps if ps < 1_000_000 => write!(f, "{:.1} ns", ps as f64 / 1e3),
            ps if ps < 1_000_000_000 => write!(f, "{:.2} us", ps as f64 / 1e6),
            ps if ps < 1_000_000_000_000 => write!(f, "{:.2} ms", ps as f64 / 1e9),
            ps => write!(f, "{:.3} s", ps as f64 / 1e12),
        }
    }
}

/// Data rate in megabytes (10^6 bytes) per second, the unit of Linux's sysfs and HMAT attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bandwidth(pub f64);

impl Bandwidth {
    /// The rate of `bytes` in `time`; zero if the time is zero.
    pub fn of(bytes: u64, time: Time) -> Bandwidth {
        Bandwidth(if time == Time::ZERO { 0.0 } else { bytes as f64 * 1e6 / time.0 as f64 })
    }

    /// In megabytes (10^6 bytes) per second.
    pub fn as_mbps(self) -> f64 {
        self.0
    }

    /// Duration of `bytes` at this rate, to the nearest picosecond.
    pub fn time_for(self, bytes: u64) -> Time {
        Time(libm::round(bytes as f64 * 1e6 / self.0) as u64)
    }
}

/// A virtual address of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VirtAddr(pub u64);

impl VirtAddr {
    /// The base page (4 KiB) of this address.
    pub const fn page(self) -> Vpn {
        Vpn(self.0 / PAGE_BYTES)
    }
}

/// The number of a virtual base page (4 KiB).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Vpn(pub u64);

impl Vpn {
    /// First address of the page.
    pub const fn start(self) -> VirtAddr {
        VirtAddr(self.0 * PAGE_BYTES)
    }
}

/// The size of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PageSize {
    /// 4 KiB.
    #[default]
    #[serde(rename = "4KiB")]
    Base,
    /// 2 MiB.
    #[serde(rename = "2MiB")]
    Huge,
}

impl PageSize {
    /// In bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            PageSize::Base => PAGE_BYTES,
            PageSize::Huge => HUGE_PAGE_BYTES,
        }
    }

    /// In base pages: 1 or 512.
    pub const fn base_pages(self) -> u64 {
        self.bytes() / PAGE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_and_time_are_inverse() {
        let rate = Bandwidth(19_200.0);
        let time = rate.time_for(64);
        assert_eq!(time, Time(3333));
        assert!((Bandwidth::of(64, time).as_mbps() - 19_200.0).abs() < 3.0);
        assert_eq!(Bandwidth::of(64, Time::ZERO), Bandwidth(0.0));
    }

    #[test]
    fn time_is_shown_in_the_largest_unit_that_fits() {
        assert_eq!(Time::from_ns(45.3).to_string(), "45.3 ns");
        assert_eq!(Time::from_us(2500).to_string(), "2.50 ms");
        assert_eq!(Time::from_ms(2500).to_string(), "2.500 s");
    }
}
