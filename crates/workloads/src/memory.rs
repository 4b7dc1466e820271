//! Memory access of algorithms: the same code records its accesses for the simulator or runs natively.

use std::ops::Deref;

use memtide_core::{Access, VirtAddr};

use crate::array::{Array, Element};
use crate::non_temporal;

/// The load that a value depends on: the number of that access in its thread, from 1; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin(pub(crate) u64);

/// A loaded value with its origin. `*` returns the bare value; an index with an origin makes the access that
/// uses it depend on the load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loaded<T> {
    value: T,
    origin: Origin,
}

impl<T> Loaded<T> {
    /// Applies `f` to the value; the result depends on the same load.
    #[inline(always)]
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Loaded<U> {
        Loaded { value: f(self.value), origin: self.origin }
    }
}

impl Loaded<usize> {
    /// An index, with its origin.
    #[inline(always)]
    pub fn of(index: impl Index) -> Loaded<usize> {
        Loaded { value: index.index(), origin: index.origin() }
    }
}

impl<T> From<T> for Loaded<T> {
    /// A value that depends on no load.
    #[inline(always)]
    fn from(value: T) -> Loaded<T> {
        Loaded { value, origin: Origin(0) }
    }
}

impl<T> Deref for Loaded<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.value
    }
}

/// An array index, possibly derived from a loaded value.
pub trait Index: Copy {
    /// The index.
    fn index(self) -> usize;
    /// The load that it depends on.
    fn origin(self) -> Origin;
}

impl Index for usize {
    #[inline(always)]
    fn index(self) -> usize {
        self
    }
    #[inline(always)]
    fn origin(self) -> Origin {
        Origin(0)
    }
}

impl Index for Loaded<usize> {
    #[inline(always)]
    fn index(self) -> usize {
        self.value
    }
    #[inline(always)]
    fn origin(self) -> Origin {
        self.origin
    }
}

/// A thread's memory interface.
///
/// An access of several lanes is a vector instruction: it counts as one instruction and one access.
pub trait Memory {
    /// Whether accesses are recorded instead of executed.
    const TRACED: bool;

    /// An access to `bytes` bytes, whose address depends on `producer`.
    fn access(&mut self, address: VirtAddr, bytes: u16, producer: Origin, write: bool) -> Origin;

    /// A non-temporal store to `bytes` bytes.
    fn access_past(&mut self, address: VirtAddr, bytes: u16, producer: Origin);

    /// Retires instructions without memory accesses.
    fn work(&mut self, instructions: u64);

    /// Loads an element.
    #[inline(always)]
    fn load<T: Element>(&mut self, array: &Array<T>, index: impl Index) -> Loaded<T> {
        let origin = self.access(array.address(index.index()), size_of::<T>() as u16, index.origin(), false);
        Loaded { value: array.get(index.index()), origin }
    }

    /// Stores an element.
    #[inline(always)]
    fn store<T: Element>(&mut self, array: &Array<T>, index: impl Index, value: T) {
        self.access(array.address(index.index()), size_of::<T>() as u16, index.origin(), true);
        array.set(index.index(), value);
    }

    /// Loads `N` consecutive elements with one instruction.
    #[inline(always)]
    fn load_lanes<T: Element, const N: usize>(
        &mut self,
        array: &Array<T>,
        first: impl Index,
    ) -> Loaded<[T; N]> {
        let bytes = (N * size_of::<T>()) as u16;
        let origin = self.access(array.address(first.index()), bytes, first.origin(), false);
        let cells = array.lanes::<N>(first.index());
        Loaded { value: std::array::from_fn(|lane| T::get(&cells[lane])), origin }
    }

    /// Stores `N` consecutive elements with one instruction.
    #[inline(always)]
    fn store_lanes<T: Element, const N: usize>(
        &mut self,
        array: &Array<T>,
        first: impl Index,
        values: [T; N],
    ) {
        let bytes = (N * size_of::<T>()) as u16;
        self.access(array.address(first.index()), bytes, first.origin(), true);
        let cells = array.lanes::<N>(first.index());
        for (cell, value) in cells.iter().zip(values) {
            T::set(cell, value);
        }
    }

    /// Stores `N` consecutive elements past the caches: with one instruction when traced, one for each two
    /// when native.
    /// A thread's stores must be followed by its [`Memory::fence`] before another thread reads them.
    #[inline(always)]
    fn store_lanes_past<const N: usize>(&mut self, array: &Array<f64>, first: impl Index, values: [f64; N]) {
        self.access_past(array.address(first.index()), (N * size_of::<f64>()) as u16, first.origin());
        let cells = array.lanes::<N>(first.index());
        match Self::TRACED {
            true => cells.iter().zip(values).for_each(|(cell, value)| f64::set(cell, value)),
            false => non_temporal::store(cells, values),
        }
    }

    /// Ends a thread's non-temporal stores.
    #[inline(always)]
    fn fence(&mut self) {
        if !Self::TRACED {
            non_temporal::fence();
        }
    }

    /// Sets an element to `value` if that is less: a load and a store, between which no other thread's come.
    /// Whichever thread is first, all leave the least value.
    #[inline(always)]
    fn lower(&mut self, array: &Array<u32>, index: impl Index, value: u32) {
        self.access(array.address(index.index()), 4, index.origin(), false);
        self.access(array.address(index.index()), 4, index.origin(), true);
        array.lower(index.index(), value);
    }

    /// Loads a word that is known to be zero, for the access alone. Traced, the data are not read.
    #[inline(always)]
    fn probe(&mut self, zeros: &Array<u64>, index: impl Index) -> Loaded<usize> {
        let origin = self.access(zeros.address(index.index()), 8, index.origin(), false);
        let value = if Self::TRACED { 0 } else { std::hint::black_box(zeros.get(index.index())) as usize };
        Loaded { value, origin }
    }

    /// Stores a zero over a zero, for the access alone. Traced, the data are not written.
    #[inline(always)]
    fn clear(&mut self, zeros: &Array<u64>, index: impl Index) {
        self.access(zeros.address(index.index()), 8, index.origin(), true);
        if !Self::TRACED {
            zeros.set(index.index(), 0);
        }
    }
}

/// The host's own memory: no overhead over plain loads and stores.
pub struct Native;

impl Memory for Native {
    const TRACED: bool = false;

    #[inline(always)]
    fn access(&mut self, _: VirtAddr, _: u16, _: Origin, _: bool) -> Origin {
        Origin(0)
    }

    #[inline(always)]
    fn access_past(&mut self, _: VirtAddr, _: u16, _: Origin) {}

    #[inline(always)]
    fn work(&mut self, _: u64) {}
}

/// Records a thread's accesses.
#[derive(Default)]
pub struct Traced {
    pub(crate) accesses: Vec<Access>,
    /// Accesses of the thread before the current batch.
    pub(crate) earlier: u64,
    /// Instructions since the last access.
    pub(crate) pending: u64,
}

impl Memory for Traced {
    const TRACED: bool = true;

    #[inline(always)]
    fn access(&mut self, address: VirtAddr, bytes: u16, producer: Origin, write: bool) -> Origin {
        self.record(address, bytes, producer, write, false)
    }

    #[inline(always)]
    fn access_past(&mut self, address: VirtAddr, bytes: u16, producer: Origin) {
        self.record(address, bytes, producer, true, true);
    }

    #[inline(always)]
    fn work(&mut self, instructions: u64) {
        self.pending += instructions;
    }
}

impl Traced {
    #[inline(always)]
    fn record(
        &mut self,
        address: VirtAddr,
        size: u16,
        producer: Origin,
        write: bool,
        non_temporal: bool,
    ) -> Origin {
        let number = self.earlier + self.accesses.len() as u64 + 1;
        let producer = match producer.0 {
            0 => 0,
            load => u32::try_from(number - load).unwrap_or(0),
        };
        let instructions = u32::try_from(self.pending + 1).unwrap_or(u32::MAX);
        self.pending = self.pending + 1 - u64::from(instructions);
        self.accesses.push(Access { address, instructions, producer, size, write, non_temporal });
        Origin(number)
    }
}
