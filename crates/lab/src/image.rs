//! A Linux kernel image for x86 (boot protocol: `Documentation/arch/x86/boot.rst`): its version and the
//! kernel in it.
//!
//! Every guest instruction is emulated: a guest that decompresses its own kernel boots two seconds later.
//! QEMU starts the decompressed kernel at its Xen PVH entry.

use std::io::Read;

use object::Endianness;
use object::elf::{FileHeader64, PT_NOTE};
use object::read::elf::{FileHeader, ProgramHeader};
use zstd::stream::read::Decoder;

const SECTOR: usize = 512;

/// Header magic and end.
const MAGIC: (&[u8], usize) = (b"HdrS", 0x206);

/// Header offsets: number of setup sectors; offset of the version text from the second sector; offset of the
/// compressed kernel from the end of the setup.
const SETUP_SECTORS: usize = 0x1f1;
const VERSION: usize = 0x20e;
const PAYLOAD: usize = 0x248;
const PAYLOAD_BYTES: usize = 0x24c;

/// Number of setup sectors if the header has 0.
const SETUP_SECTORS_OLD: usize = 4;

const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Upper bound of a kernel's size, in bytes.
const KERNEL_MAX: u64 = 1 << 30;

/// `XEN_ELFNOTE_PHYS32_ENTRY` of Linux's `xen/interface/elfnote.h`.
const PVH_NOTE: (&[u8], u32) = (b"Xen", 18);

/// Bytes of a file that identify an image.
pub const HEADER_BYTES: u64 = MAGIC.1 as u64;

/// Whether a file with this beginning is an image.
pub fn is_image(start: &[u8]) -> bool {
    start.get(..MAGIC.1).is_some_and(|header| header.ends_with(MAGIC.0))
}

/// Major and minor version from the text in the header, such as `6.12.117+deb12-cloud-amd64 (..)`.
pub fn release(image: &[u8]) -> Option<(u32, u32)> {
    let place = image.get(VERSION..VERSION + 2)?;
    let text = image.get(SECTOR + usize::from(u16::from_le_bytes([place[0], place[1]]))..)?;
    let mut numbers =
        text.split(|byte| !byte.is_ascii_digit()).map(|digits| str::from_utf8(digits).ok()?.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// The decompressed kernel, if it is compressed with zstd and has a PVH entry.
pub fn kernel(image: &[u8]) -> Option<Vec<u8>> {
    let setup = match usize::from(*image.get(SETUP_SECTORS)?) {
        0 => SETUP_SECTORS_OLD,
        sectors => sectors,
    };
    let word = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
    let start = (1 + setup) * SECTOR + word(PAYLOAD)?;
    let packed = image.get(start..start.checked_add(word(PAYLOAD_BYTES)?)?)?;
    if !packed.starts_with(ZSTD) {
        return None;
    }
    let mut kernel = Vec::new();
    let unpacked = Decoder::with_buffer(packed).ok()?.single_frame();
    unpacked.take(KERNEL_MAX).read_to_end(&mut kernel).ok()?;
    has_pvh_entry(&kernel).unwrap_or(false).then_some(kernel)
}

fn has_pvh_entry(kernel: &[u8]) -> object::Result<bool> {
    let header = FileHeader64::<Endianness>::parse(kernel)?;
    let endian = header.endian()?;
    for segment in
        header.program_headers(endian, kernel)?.iter().filter(|segment| segment.p_type(endian) == PT_NOTE)
    {
        let Some(mut notes) = segment.notes(endian, kernel)? else { continue };
        while let Some(note) = notes.next()? {
            if (note.name(), note.n_type(endian)) == PVH_NOTE {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_version_is_read_from_header() {
        let mut image = vec![0; 0x400];
        image[VERSION..VERSION + 2].copy_from_slice(&[0x80, 1]);
        image[0x380..0x380 + 22].copy_from_slice(b"6.12.117+deb12 (user@)");
        assert_eq!(release(&image), Some((6, 12)));
        assert_eq!(release(&image[..0x300]), None);
        image[0x380] = b'?';
        assert_eq!(release(&image), None);
        assert_eq!(release(&[]), None);
    }

    /// An image with one setup sector and this compressed payload.
    fn image(packed: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 2 * SECTOR + 16];
        image[SETUP_SECTORS] = 1;
        image[PAYLOAD] = 16;
        image[PAYLOAD_BYTES..PAYLOAD_BYTES + 4].copy_from_slice(&(packed.len() as u32 + 4).to_le_bytes());
        image.extend(packed);
        // Linux appends the uncompressed length.
        image.extend([1, 2, 3, 4]);
        image
    }

    /// An ELF file of a header, one segment and one note.
    fn elf(name: &[u8; 4], kind: u32) -> Vec<u8> {
        let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
        elf.resize(64, 0);
        (elf[32], elf[54], elf[56]) = (64, 56, 1);
        elf.extend(PT_NOTE.to_le_bytes());
        elf.resize(120, 0);
        (elf[64 + 8], elf[64 + 32], elf[64 + 40], elf[64 + 48]) = (120, 24, 24, 4);
        let words: [u32; 3] = [4, 8, kind];
        words.iter().for_each(|word| elf.extend(word.to_le_bytes()));
        elf.extend(name);
        elf.extend([0; 8]);
        elf
    }

    #[test]
    fn only_pvh_kernels_are_decompressed() {
        let packed = |kernel: &[u8]| zstd::bulk::compress(kernel, 3).expect("it is packed");
        let good = elf(b"Xen\0", 18);
        assert_eq!(kernel(&image(&packed(&good))), Some(good.clone()));
        for other in [elf(b"Xen\0", 17), elf(b"GNU\0", 18), b"no executable".to_vec(), good[..100].to_vec()] {
            assert_eq!(kernel(&image(&packed(&other))), None);
        }
        assert_eq!(kernel(&image(&good)), None, "it is not packed by zstd");
        let whole = image(&packed(&good));
        (0..whole.len()).for_each(|bytes| drop(kernel(&whole[..bytes])));
        assert_eq!(kernel(&whole[..whole.len() - 8]), None);
    }
}
