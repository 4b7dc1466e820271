//! Whether the lab and the agent are of the same build.

/// What they tell each other is as these files say.
const FORMATS: [&str; 3] = [include_str!("lib.rs"), include_str!("message.rs"), include_str!("task.rs")];

/// FNV-1a over the formats (Fowler, Noll and Vo; 64 bits).
const DIGEST: u64 = {
    let mut digest: u64 = 0xcbf2_9ce4_8422_2325;
    let mut file = 0;
    while file < FORMATS.len() {
        let bytes = FORMATS[file].as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            digest = (digest ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
            at += 1;
        }
        file += 1;
    }
    digest
};

/// The version of this build: memtide's, and a digest of what the lab and the agent tell each other.
pub fn version() -> String {
    format!("{} (format {DIGEST:016x})", env!("CARGO_PKG_VERSION"))
}
