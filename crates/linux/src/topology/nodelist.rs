//! Lists of nodes and CPUs as numactl(8) takes them.

/// The numbers that a list names: `all`, `0-2,5`, `!` before a list for all others, `+` before it to count among those there
/// are.
///
/// # Errors
/// What is wrong with the list, for the user.
pub fn numbers(list: &str, there: &[u16]) -> Result<Vec<u16>, String> {
    if list == "all" {
        return Ok(there.to_vec());
    }
    if let Some(others) = list.strip_prefix('!') {
        let others = numbers(others, there)?;
        return some(there.iter().copied().filter(|number| !others.contains(number)).collect(), list);
    }
    let (relative, plain) = list.strip_prefix('+').map_or((false, list), |plain| (true, plain));
    let mut found = Vec::new();
    for part in plain.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u16>().ok();
        let (Some(first), Some(last)) = (number(first), number(last)) else {
            return Err(format!("'{list}' is no list; write 0-2,5 or all, !0 or +0-1"));
        };
        for number in first..=last {
            let number = if relative { there.get(usize::from(number)).copied() } else { Some(number) };
            found.push(number.filter(|number| there.contains(number)).ok_or_else(|| missing(list, there))?);
        }
    }
    found.sort_unstable();
    found.dedup();
    some(found, list)
}

fn some(found: Vec<u16>, list: &str) -> Result<Vec<u16>, String> {
    if found.is_empty() { Err(format!("'{list}' names nothing")) } else { Ok(found) }
}

fn missing(list: &str, there: &[u16]) -> String {
    let there: Vec<String> = there.iter().map(u16::to_string).collect();
    format!("'{list}' names what is not here; there are {}", there.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_those_of_numactl() {
        let there = [0, 2, 3, 7];
        for (list, found) in [
            ("all", &there[..]),
            ("0,2-3", &[0, 2, 3]),
            ("!0", &[2, 3, 7]),
            ("+1-2", &[2, 3]),
            ("!+0", &[2, 3, 7]),
            ("7,7", &[7]),
        ] {
            assert_eq!(numbers(list, &there).as_deref(), Ok(found), "{list}");
        }
        for list in ["", "1", "+4", "!all", "x", "0-", "3-2", "0-99999", "!!0x"] {
            assert!(numbers(list, &there).is_err(), "{list}");
        }
    }
}
