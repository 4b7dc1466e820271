//! See `memtide_fuzz::TARGETS`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| memtide_fuzz::fuzz(memtide_fuzz::text::run_file, data));
