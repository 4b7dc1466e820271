//! Units at the ends of figures' names, and values in other units of the same kind.

/// The unit that a figure's name ends with, as in `capacity_mib`: "MiB". Cycles are of a node's or a core's
/// clock, as the figure is.
pub fn unit_of(name: &str) -> Option<&'static str> {
    let suffix = name.rsplit_once('_').map(|(_, suffix)| suffix)?;
    SUFFIXES.iter().find(|(known, _)| *known == suffix).map(|&(_, unit)| unit)
}

/// `value` in `unit`, converted to `to`; `None` if one of them is unknown, or they are of different kinds.
pub(super) fn converted(value: f64, unit: &str, to: &str) -> Option<f64> {
    if unit == to {
        return Some(value);
    }
    let find = |unit: &str| UNITS.iter().find(|(_, known, _)| *known == unit);
    let ((kind, _, from), (to_kind, _, to)) = (find(unit)?, find(to)?);
    (kind == to_kind).then(|| value * from / to)
}

/// The units that a figure in `unit` can be given in.
pub(super) fn alternatives(unit: &'static str) -> Vec<&'static str> {
    let kind = UNITS.iter().find(|(_, known, _)| *known == unit).map(|(kind, ..)| *kind);
    match kind {
        Some(kind) => UNITS.iter().filter(|(other, ..)| *other == kind).map(|(_, unit, _)| *unit).collect(),
        None => vec![unit],
    }
}

const SUFFIXES: [(&str, &str); 13] = [
    ("ns", "ns"),
    ("ps", "ps"),
    ("ms", "ms"),
    ("mbps", "MB/s"),
    ("mib", "MiB"),
    ("kib", "KiB"),
    ("bytes", "B"),
    ("mhz", "MHz"),
    ("nj", "nJ"),
    ("mw", "mW"),
    ("bp", "1/10000"),
    ("percent", "%"),
    ("cycles", "cycles"),
];

/// Kind, unit, and its size in the kind's smallest unit.
const UNITS: [(Kind, &str, f64); 17] = [
    (Kind::Time, "ps", 1.0),
    (Kind::Time, "ns", 1e3),
    (Kind::Time, "us", 1e6),
    (Kind::Time, "ms", 1e9),
    (Kind::Time, "s", 1e12),
    (Kind::Size, "B", 1.0),
    (Kind::Size, "KiB", 1024.0),
    (Kind::Size, "MiB", 1024.0 * 1024.0),
    (Kind::Size, "GiB", 1024.0 * 1024.0 * 1024.0),
    (Kind::Size, "TiB", 1024.0 * 1024.0 * 1024.0 * 1024.0),
    (Kind::Rate, "MB/s", 1.0),
    (Kind::Rate, "GB/s", 1e3),
    (Kind::Frequency, "MHz", 1.0),
    (Kind::Frequency, "GHz", 1e3),
    (Kind::Energy, "pJ", 1.0),
    (Kind::Energy, "nJ", 1e3),
    (Kind::Power, "mW", 1.0),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Time,
    Size,
    Rate,
    Frequency,
    Energy,
    Power,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_ends_of_names() {
        assert_eq!(unit_of("capacity_mib"), Some("MiB"));
        assert_eq!(unit_of("latency_cycles"), Some("cycles"));
        assert_eq!(unit_of("channels"), None);
        assert_eq!(unit_of("ns"), None);
    }

    #[test]
    fn only_units_of_one_kind_convert() {
        assert_eq!(converted(1.5, "GiB", "MiB"), Some(1536.0));
        assert_eq!(converted(120.0, "ns", "ps"), Some(120_000.0));
        assert_eq!(converted(3.0, "cycles", "cycles"), Some(3.0));
        assert_eq!(converted(1.0, "GiB", "MB/s"), None);
        assert_eq!(converted(1.0, "GB", "MiB"), None);
    }
}
