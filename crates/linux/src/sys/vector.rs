//! Loops compiled for the processor's vectors.

/// Runs work in a function compiled for AVX2 if the processor has it: loops that are inlined into `work` then
/// use vectors of 32 bytes.
#[inline]
pub fn vectorised<T>(work: impl FnOnce() -> T) -> T {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { with_avx2(work) };
    }
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2<T>(work: impl FnOnce() -> T) -> T {
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_is_that_of_the_work() {
        let words: Vec<u64> = (0..1000).collect();
        assert_eq!(vectorised(|| words.iter().sum::<u64>()), 999 * 500);
    }
}
