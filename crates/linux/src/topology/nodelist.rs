//! Node and CPU lists in numactl(8) syntax.

/// Maximum length of a list in characters; the kernel's own lists fit in a page, too.
const LENGTH_MAX: usize = 4096;

/// The numbers in a list: `all`, `0-2,5`, `!` before a list for its complement, `+` before it for positions
/// among the existing numbers.
///
/// # Errors
/// What is wrong with the list, as a message for the user.
pub fn numbers(list: &str, there: &[u16]) -> Result<Vec<u16>, String> {
    if list.len() > LENGTH_MAX {
        return Err(format!("a list of {} characters; at most {LENGTH_MAX} are allowed", list.len()));
    }
    let plain = list.trim_start_matches('!');
    let mut found = without_negation(plain, there)?;
    for negations in 1..=list.len() - plain.len() {
        let negated = &list[list.len() - plain.len() - negations..];
        found = some(there.iter().copied().filter(|number| !found.contains(number)).collect(), negated)?;
    }
    Ok(found)
}

fn without_negation(list: &str, there: &[u16]) -> Result<Vec<u16>, String> {
    if list == "all" {
        return Ok(there.to_vec());
    }
    let (relative, plain) = list.strip_prefix('+').map_or((false, list), |plain| (true, plain));
    let mut found = Vec::new();
    for part in plain.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u16>().ok();
        let (Some(first), Some(last)) = (number(first), number(last)) else {
            return Err(format!("'{list}' is not a list; write 0-2,5 or all, !0 or +0-1"));
        };
        for number in first..=last {
            let wanted = if relative { there.get(usize::from(number)).copied() } else { Some(number) };
            let wanted = wanted.filter(|wanted| there.contains(wanted));
            found.push(wanted.ok_or_else(|| missing(list, number, there))?);
        }
    }
    found.sort_unstable();
    found.dedup();
    some(found, list)
}

fn some(found: Vec<u16>, list: &str) -> Result<Vec<u16>, String> {
    if found.is_empty() { Err(format!("'{list}' names nothing")) } else { Ok(found) }
}

fn missing(list: &str, number: u16, there: &[u16]) -> String {
    if list.starts_with('+') {
        let last = there.len().saturating_sub(1);
        return format!("'{list}' counts to +{number}; there are +0 to +{last}");
    }
    let there: Vec<String> = there.iter().map(u16::to_string).collect();
    format!("'{list}' names {number}, which does not exist; known: {}", there.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_follow_numactl_syntax() {
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
        let refused = |list| numbers(list, &there).unwrap_err();
        assert_eq!(refused("0,2-5"), "'0,2-5' names 4, which does not exist; known: 0, 2, 3, 7");
        assert_eq!(refused("+0-4"), "'+0-4' counts to +4; there are +0 to +3");
        for list in ["", "1", "+4", "!all", "x", "0-", "3-2", "0-99999", "!!0x"] {
            assert!(numbers(list, &there).is_err(), "{list}");
        }
    }
    #[test]
    fn long_lists_are_refused_and_negations_do_not_recurse() {
        let there = [0, 2, 3, 7];
        let negated = |negations: usize| numbers(&("!".repeat(negations) + "0"), &there);
        assert_eq!(negated(LENGTH_MAX - 1), Ok(vec![2, 3, 7]));
        assert_eq!(negated(LENGTH_MAX - 2), Ok(vec![0]));
        let why = "a list of 120001 characters; at most 4096 are allowed".to_owned();
        assert_eq!(negated(120_000), Err(why));
        assert_eq!(numbers("!!all", &there), Err("'!all' names nothing".to_owned()));
    }
}
