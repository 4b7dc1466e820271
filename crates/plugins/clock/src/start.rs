//! Detects which program starts in an address space from its initial stack (System V ABI for x86-64, "Initial
//! Stack and Register State"): arguments, environment and an auxiliary vector, whose `AT_EXECFN` is the
//! file's name (getauxval(3)).

/// Entries of the auxiliary vector.
const AT_NULL: u64 = 0;
const AT_PAGESZ: u64 = 6;
const AT_EXECFN: u64 = 31;

/// Search limit in words.
const ARGUMENTS: u64 = 1 << 12;
const VARIABLES: u64 = 1 << 12;
const AUXILIARIES: u64 = 64;
const NAME_BYTES: u64 = 256;

/// File name of the program with this initial stack; `None` if it is not one. `word` reads memory; `None` if
/// unmapped.
pub fn program(stack: u64, word: impl Fn(u64) -> Option<u64>) -> Option<String> {
    let at = |place: u64| word(stack.checked_add(8 * place)?);
    let arguments = at(0).filter(|count| stack.is_multiple_of(16) && *count <= ARGUMENTS)?;
    let environment = 1 + arguments + 1;
    if at(environment - 1)? != 0 {
        return None;
    }
    let variables =
        (0..VARIABLES).map_while(|number| at(environment + number)).position(|entry| entry == 0)?;
    let first = environment + variables as u64 + 1;
    let entries =
        (0..AUXILIARIES).map_while(|number| Some((at(first + 2 * number)?, at(first + 2 * number + 1)?)));
    let entries: Vec<(u64, u64)> = entries.take_while(|(key, _)| *key != AT_NULL).collect();
    let value = |wanted| entries.iter().find(|(key, _)| *key == wanted).map(|(_, value)| *value);
    value(AT_PAGESZ).filter(|&bytes| bytes == 4096)?;
    let name = text(value(AT_EXECFN)?, word)?;
    Some(name.rsplit('/').next().unwrap_or_default().to_owned())
}

/// The text at an address, up to its zero.
fn text(address: u64, word: impl Fn(u64) -> Option<u64>) -> Option<String> {
    let words = (0..NAME_BYTES / 8).map_while(|number| word(address.checked_add(8 * number)?));
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    let end = bytes.iter().position(|&byte| byte == 0)?;
    Some(String::from_utf8_lossy(&bytes[..end]).replace(char::is_control, "?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: u64 = 0x7fff_ffff_e000;

    fn stack(words: &[u64]) -> impl Fn(u64) -> Option<u64> + use<> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        move |address| {
            let at = usize::try_from(address.checked_sub(STACK)?).ok()?;
            Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
        }
    }

    fn begun() -> Vec<u64> {
        let name = |part: &[u8; 8]| u64::from_le_bytes(*part);
        // argv: 2, 0; envp: 1, 0; auxv; the name at word 12.
        let auxiliary = [6, 4096, 31, STACK + 8 * 12, 0, 0];
        let mut words = vec![2, 0x1000, 0x2000, 0, 0x3000, 0];
        words.extend(auxiliary);
        words.extend([name(b"/usr/bin"), name(b"/gzip\0\0\0"), 0]);
        words
    }

    #[test]
    fn program_name_comes_from_auxiliary_vector() {
        assert_eq!(program(STACK, stack(&begun())).as_deref(), Some("gzip"));
    }

    #[test]
    fn other_stacks_give_no_name() {
        for (place, word) in [(0, 3), (0, u64::MAX), (3, 1), (7, 512), (9, 0x10), (9, u64::MAX - 3)] {
            let mut words = begun();
            words[place] = word;
            assert_eq!(program(STACK, stack(&words)), None, "{word} at {place}");
        }
        let cut = |length: usize| program(STACK, stack(&begun()[..length]));
        assert!((0..13).all(|length| cut(length).is_none()));
        assert_eq!(program(STACK + 8, stack(&begun())), None);
        assert_eq!(program(u64::MAX - 7, |_| Some(1)), None);
    }
}
