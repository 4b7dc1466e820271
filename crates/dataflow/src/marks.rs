//! Marks: an instruction whose command is in a register, known without executing it.

use iced_x86::{
    Code, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess, Register, UsedRegister,
};

/// The bytes of `xchg bx, bx`, a mark.
const MARK: [u8; 3] = [0x66, 0x87, 0xdb];

/// Positions of marks in a block, from 0, each with the command that instructions before it in the block load
/// into RAX as a constant. Marks with another command are left out.
pub fn marks<'a>(code: impl Iterator<Item = (u64, &'a [u8])>) -> Vec<(usize, u64)> {
    let mut factory = InstructionInfoFactory::new();
    let mut rax = None;
    let mut found = Vec::new();
    for (position, (pc, bytes)) in code.enumerate() {
        if bytes == MARK {
            found.extend(rax.map(|command| (position, command)));
            continue;
        }
        let instruction = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE).decode();
        let writes = |used: &&UsedRegister| {
            used.register().full_register() == Register::RAX
                && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None)
        };
        if factory.info(&instruction).used_registers().iter().find(writes).is_some() {
            rax = constant(&instruction);
        }
    }
    found
}

/// The constant that an instruction loads into all of RAX, if it does only that.
fn constant(instruction: &Instruction) -> Option<u64> {
    match instruction.code() {
        Code::Mov_r32_imm32 | Code::Mov_rm32_imm32 => Some(u64::from(instruction.immediate32())),
        Code::Mov_r64_imm64 => Some(instruction.immediate64()),
        Code::Mov_rm64_imm32 => Some(instruction.immediate32to64() as u64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &[&[u8]]) -> Vec<(usize, u64)> {
        marks(code.iter().enumerate().map(|(at, bytes)| (0x1000 + 16 * at as u64, *bytes)))
    }

    #[test]
    fn command_is_the_constant_that_rax_last_got() {
        let mov_eax_1: &[u8] = &[0xb8, 1, 0, 0, 0];
        let mov_rax_4: &[u8] = &[0x48, 0xc7, 0xc0, 4, 0, 0, 0];
        let xor_edi: &[u8] = &[0x31, 0xff];
        let test_eax: &[u8] = &[0x85, 0xc0];
        assert_eq!(found(&[mov_eax_1, &MARK]), [(1, 1)]);
        assert_eq!(found(&[mov_eax_1, xor_edi, test_eax, &MARK]), [(3, 1)]);
        assert_eq!(found(&[mov_rax_4, &MARK, mov_eax_1, &MARK]), [(1, 4), (3, 1)]);
        for other in [
            &[0x89, 0xf8][..],         // mov eax, edi
            &[0xb0, 2],                // mov al, 2
            &[0x48, 0x8b, 0x07],       // mov rax, [rdi]
            &[0x83, 0xc0, 0x01],       // add eax, 1
            &[0x0f, 0xa2],             // cpuid
            &[0x48, 0x0f, 0x44, 0xc7], // cmove rax, rdi
        ] {
            assert_eq!(found(&[mov_eax_1, other, &MARK]), [], "{other:x?}");
        }
        assert_eq!(found(&[&MARK]), [], "its command is from before the block");
        assert_eq!(found(&[mov_eax_1, &[0x87, 0xdb]]), [], "xchg ebx, ebx is no mark");
    }
}
