//! Messages about unknown names.

/// A message about an unknown name: with the most similar known one, if any, and all of them.
pub fn unknown(kind: &str, name: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .map(|other| (strsim::jaro_winkler(name, other), other))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(likeness, _)| *likeness > 0.75);
    let hint = nearest.map_or("there".to_owned(), |(_, other)| format!("did you mean '{other}'? There"));
    format!("there is no {kind} '{name}'; {hint} are: {}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_similar_name_is_suggested_and_all_are_listed() {
        let known = ["bmpm-2", "optane", "hbm"];
        let text = unknown("machine", "optaen", &known);
        assert!(text.contains("did you mean 'optane'?") && text.ends_with("bmpm-2, optane, hbm"), "{text}");
        assert_eq!(unknown("node", "zzz", &["a", "b"]), "there is no node 'zzz'; there are: a, b");
    }
}
