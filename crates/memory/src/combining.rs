//! Write-combining buffers: non-temporal stores on their way past the caches.
//!
//! A non-temporal store opens a buffer for its line, or adds to the open one. A buffer whose 64 bytes are all
//! written is sent; so is the oldest one if a store needs a buffer and all are open, and every one when the
//! thread enters the operating system, which serialises. Each is one posted write of a line, whole or not:
//! DRAM writes with a burst of a line at least.
//!
//! ```text
//! stores of a line  ----> open buffer: bytes written so far
//!                              |  full, displaced, load of the line, trap
//!                              v
//!                         a miss register of the core, until the node has accepted the line
//! ```
//!
//! Intel SDM volume 1, 10.4.6.2 (the cached copy is evicted) and volume 3, 11.3.1 (when buffers are written
//! out). A core has as many as miss registers: Intel's fill buffers serve as both (Intel, "Copying
//! Accelerated Video Decode Frame Buffers"). An open buffer takes no register yet.

use memtide_core::LINE_BYTES;

/// A line's open buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBuffer<T> {
    /// The line.
    pub line: u64,
    /// Bit `n`: byte `n` is written.
    bytes: u64,
    /// What its last store depends on.
    pub last: T,
}

/// The open buffers of a core, oldest first.
#[derive(Clone, Debug)]
pub struct WriteCombining<T> {
    open: Vec<WriteBuffer<T>>,
    capacity: usize,
}

/// What a store does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Combined<T> {
    /// Whether it is the first of its line: caches drop theirs.
    pub opens: bool,
    /// A buffer to send.
    pub sent: Option<WriteBuffer<T>>,
}

impl<T: Copy> WriteCombining<T> {
    /// This many buffers, at least one.
    pub fn new(buffers: u16) -> WriteCombining<T> {
        let capacity = usize::from(buffers.max(1));
        WriteCombining { open: Vec::with_capacity(capacity), capacity }
    }

    /// Whether none is open.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Handles a store of `bytes` bytes, at least one, from `offset` on within a line.
    pub fn store(&mut self, line: u64, offset: u64, bytes: u64, last: T) -> Combined<T> {
        let written = (u64::MAX >> (LINE_BYTES - bytes)) << offset;
        if let Some(at) = self.open.iter().rposition(|buffer| buffer.line == line) {
            let buffer = &mut self.open[at];
            buffer.bytes |= written;
            buffer.last = last;
            let sent = (buffer.bytes == u64::MAX).then(|| self.open.remove(at));
            return Combined { opens: false, sent };
        }
        let buffer = WriteBuffer { line, bytes: written, last };
        if written == u64::MAX {
            return Combined { opens: true, sent: Some(buffer) };
        }
        let sent = (self.open.len() == self.capacity).then(|| self.open.remove(0));
        self.open.push(buffer);
        Combined { opens: true, sent }
    }

    /// Takes a line's buffer, if open.
    pub fn take(&mut self, line: u64) -> Option<WriteBuffer<T>> {
        let at = self.open.iter().position(|buffer| buffer.line == line)?;
        Some(self.open.remove(at))
    }

    /// Takes the oldest buffer.
    pub fn take_oldest(&mut self) -> Option<WriteBuffer<T>> {
        (!self.open.is_empty()).then(|| self.open.remove(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(buffers: &mut WriteCombining<()>, line: u64, offset: u64, bytes: u64) -> Option<u64> {
        let combined = buffers.store(line, offset, bytes, ());
        combined.sent.map(|buffer| buffer.line)
    }

    #[test]
    fn line_is_sent_once_all_its_bytes_are_written_in_any_order() {
        let mut buffers = WriteCombining::new(2);
        for offset in [0, 32, 48] {
            assert_eq!(sent(&mut buffers, 7, offset, 16), None);
        }
        assert_eq!(sent(&mut buffers, 7, 32, 16), None, "bytes written twice count once");
        assert_eq!(sent(&mut buffers, 7, 16, 16), Some(7));
        assert_eq!(sent(&mut buffers, 8, 0, 64), Some(8));
        assert!(buffers.is_empty());
    }

    #[test]
    fn oldest_buffer_makes_room_for_another_line() {
        let mut buffers = WriteCombining::new(2);
        assert_eq!([1, 2, 1].map(|line| sent(&mut buffers, line, 0, 8)), [None; 3]);
        assert_eq!(sent(&mut buffers, 3, 0, 8), Some(1));
        assert_eq!(buffers.take(3).map(|buffer| buffer.line), Some(3));
        assert_eq!(buffers.take(3).map(|buffer| buffer.line), None);
        assert_eq!(buffers.take_oldest().map(|buffer| buffer.line), Some(2));
        assert!(buffers.take_oldest().is_none());
    }
}
