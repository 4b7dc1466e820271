//! Write streaming: stores that overwrite whole lines, which need not be fetched.

use memtide_core::{LINE_BYTES, VirtAddr};

/// Tracks a core's stores: once they have overwritten enough consecutive lines, byte by byte, further lines
/// are allocated without a read (Arm's "read allocate mode", x86's full-line writes).
#[derive(Clone, Debug)]
pub struct WriteStream {
    /// Minimum consecutive overwritten lines; 0 never streams.
    threshold: u16,
    next: u64,
    /// Lines overwritten so far, and whether the current one has been from its first byte on.
    lines: u16,
    whole: bool,
}

impl WriteStream {
    /// Streams after `threshold` lines; never if that is 0.
    pub const fn new(threshold: u16) -> WriteStream {
        WriteStream { threshold, next: 0, lines: 0, whole: false }
    }

    /// Whether stores ever stream.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.threshold > 0
    }

    /// Handles a store within one line; returns whether the line it begins need not be fetched.
    #[inline]
    pub fn see(&mut self, address: VirtAddr, bytes: u64) -> bool {
        if self.threshold == 0 {
            return false;
        }
        let begins = address.0.is_multiple_of(LINE_BYTES);
        if address.0 != self.next {
            self.lines = 0;
            self.whole = begins;
        } else if begins {
            self.lines = self.lines.saturating_add(self.whole.into());
            self.whole = true;
        }
        self.next = address.0 + bytes;
        begins && self.lines >= self.threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_streaming_needs_consecutive_whole_lines() {
        let mut stream = WriteStream::new(2);
        let mut streamed: Vec<u64> = (0..64).map(|i| 8 * i).filter(|&a| stream.see(VirtAddr(a), 8)).collect();
        assert_eq!(streamed, [128, 192, 256, 320, 384, 448]);
        streamed = (66..96).map(|i| 8 * i).filter(|&a| stream.see(VirtAddr(a), 8)).collect();
        assert_eq!(streamed, [704]);
        let mut never = WriteStream::new(0);
        assert!((0..640).all(|i| !never.see(VirtAddr(8 * i), 8)));
    }
}
