//! Instructions with a special meaning for the lab.

/// Meaning of an instruction to the plugin, apart from its memory accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// `xchg bx, bx`: a mark; its command is in RAX, its argument in RDI.
    Mark,
    /// `hlt`.
    Halt,
    /// `pause`: a spin loop.
    Pause,
    /// `mov cr3, REGISTER`: another address space.
    AddressSpace(u8),
    /// `iretq`: possibly the start of a program.
    Return,
    /// `mov cr0/cr4`, `invlpg`, `invpcid`: translations may change.
    Translations,
}

impl Special {
    /// Decodes an instruction's bytes.
    pub fn of(code: &[u8]) -> Option<Special> {
        match code {
            [0x66, 0x87, 0xdb] => return Some(Special::Mark),
            [0xf4] => return Some(Special::Halt),
            [0xf3, 0x90] => return Some(Special::Pause),
            [0x48, 0xcf] => return Some(Special::Return),
            _ => {}
        }
        let mut rest = code;
        while let [0x66 | 0xf2 | 0xf3 | 0x2e | 0x3e, after @ ..] = rest {
            rest = after;
        }
        let mut extended = false;
        if let [rex @ 0x40..=0x4f, after @ ..] = rest {
            extended = rex & 1 == 1;
            rest = after;
        }
        match rest {
            [0x0f, 0x22, operands, ..] => match operands >> 3 & 7 {
                3 => Some(Special::AddressSpace(operands & 7 | u8::from(extended) << 3)),
                0 | 4 => Some(Special::Translations),
                _ => None,
            },
            [0x0f, 0x01, operands, ..] if operands >> 3 & 7 == 7 && operands >> 6 != 3 => {
                Some(Special::Translations)
            }
            [0x0f, 0x38, 0x82, ..] => Some(Special::Translations),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_decode_from_bytes() {
        let of = Special::of;
        assert_eq!(of(&[0x66, 0x87, 0xdb]), Some(Special::Mark));
        assert_eq!(of(&[0x87, 0xdb]), None, "xchg ebx, ebx is no mark");
        assert_eq!(of(&[0xf4]), Some(Special::Halt));
        assert_eq!(of(&[0xf3, 0x90]), Some(Special::Pause));
        assert_eq!(of(&[0x90]), None, "nop");
        assert_eq!(of(&[0x48, 0xcf]), Some(Special::Return));
        assert_eq!(of(&[0x0f, 0x22, 0xd8]), Some(Special::AddressSpace(0)));
        assert_eq!(of(&[0x41, 0x0f, 0x22, 0xdc]), Some(Special::AddressSpace(12)));
        assert_eq!(of(&[0x0f, 0x22, 0xe0]), Some(Special::Translations), "mov cr4, rax");
        assert_eq!(of(&[0x0f, 0x01, 0x38]), Some(Special::Translations), "invlpg [rax]");
        assert_eq!(of(&[0x0f, 0x01, 0xf8]), None, "swapgs");
        assert_eq!(of(&[0x66, 0x0f, 0x38, 0x82, 0x00]), Some(Special::Translations), "invpcid");
        assert_eq!(of(&[0x48, 0x8b, 0x00]), None);
    }
}
