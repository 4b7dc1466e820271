//! Arrays in a program's address space, shared by its threads.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use bytemuck::Zeroable;
use memtide_core::{Mapping, PageSize, VirtAddr};

use crate::error::WorkloadError;

/// Address of a program's first array.
const FIRST_ADDRESS: u64 = 0x10_0000_0000;

/// Element types of an [`Array`]. Cells are relaxed atomics, which compile to plain moves: threads share
/// arrays without locks, and without `unsafe`.
pub trait Element: Copy + Default + PartialEq + Send + Sync + 'static {
    /// How a value is stored.
    type Cell: Zeroable + Send + Sync;
    /// The value in a cell.
    fn get(cell: &Self::Cell) -> Self;
    /// Replaces the value in a cell.
    fn set(cell: &Self::Cell, value: Self);
}

macro_rules! element {
    ($type:ty, $cell:ty, $to_bits:expr, $from_bits:expr) => {
        impl Element for $type {
            type Cell = $cell;
            #[inline(always)]
            fn get(cell: &$cell) -> $type {
                $from_bits(cell.load(Relaxed))
            }
            #[inline(always)]
            fn set(cell: &$cell, value: $type) {
                cell.store($to_bits(value), Relaxed)
            }
        }
    };
}

element!(u8, AtomicU8, std::convert::identity, std::convert::identity);
element!(u32, AtomicU32, std::convert::identity, std::convert::identity);
element!(u64, AtomicU64, std::convert::identity, std::convert::identity);
element!(f32, AtomicU32, f32::to_bits, f32::from_bits);
element!(f64, AtomicU64, f64::to_bits, f64::from_bits);

/// A named array of a program: data on the host, at an address of the program's address space. Initially
/// zero, without using host memory until written.
pub struct Array<T: Element> {
    cells: Box<[T::Cell]>,
    start: u64,
}

impl<T: Element> Array<T> {
    /// Bytes per element.
    pub const ELEMENT_BYTES: u64 = size_of::<T>() as u64;

    /// Number of elements.
    #[expect(clippy::len_without_is_empty, reason = "an array is never empty")]
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Address of an element.
    #[inline(always)]
    pub fn address(&self, index: usize) -> VirtAddr {
        VirtAddr(self.start + index as u64 * Self::ELEMENT_BYTES)
    }

    /// An element's value, without a recorded access.
    #[inline(always)]
    pub fn get(&self, index: usize) -> T {
        T::get(&self.cells[index])
    }

    /// Sets an element, without a recorded access.
    #[inline(always)]
    pub fn set(&self, index: usize, value: T) {
        T::set(&self.cells[index], value)
    }

    #[inline(always)]
    pub(crate) fn lanes<const N: usize>(&self, first: usize) -> &[T::Cell; N] {
        self.cells[first..first + N].try_into().expect("a slice of N elements has N")
    }

    /// All values, without recorded accesses.
    pub fn values(&self) -> impl ExactSizeIterator<Item = T> + '_ {
        self.cells.iter().map(T::get)
    }
}

impl Array<u32> {
    /// Sets an element to `value` if that is less, in one step for all threads.
    #[inline(always)]
    pub(crate) fn lower(&self, index: usize, value: u32) {
        if self.get(index) > value {
            self.cells[index].fetch_min(value, Relaxed);
        }
    }
}

/// Lays out a program's arrays in its address space, one after the other, each page-aligned and followed by
/// an unmapped page.
pub struct Space {
    page: PageSize,
    next: u64,
    mappings: Vec<Mapping>,
}

impl Space {
    /// An empty address space whose arrays have pages of this size.
    pub fn new(page: PageSize) -> Space {
        Space { page, next: FIRST_ADDRESS, mappings: Vec::new() }
    }

    /// Adds an array of `len` zeros, at least one.
    ///
    /// # Errors
    /// If the host has too little memory.
    pub fn array<T: Element>(&mut self, name: &str, len: usize) -> Result<Array<T>, WorkloadError> {
        let len = len.max(1);
        let bytes = len as u64 * Array::<T>::ELEMENT_BYTES;
        let cells = bytemuck::try_zeroed_slice_box(len).map_err(|()| WorkloadError::OutOfMemory {
            array: name.to_owned(),
            mib: bytes.div_ceil(1 << 20),
        })?;
        let start = self.next;
        self.next = (start + bytes).next_multiple_of(self.page.bytes()) + self.page.bytes();
        self.mappings.push(Mapping { start: VirtAddr(start), bytes, page: self.page, name: name.to_owned() });
        Ok(Array { cells, start })
    }

    /// The mappings of the arrays, in order.
    pub fn into_mappings(self) -> Vec<Mapping> {
        self.mappings
    }
}
