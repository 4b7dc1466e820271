//! Figures set by path, as in `node.dram0.capacity=512GiB`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::de::IntoDeserializer;
use toml::{Table, Value};

use super::check_dram::ROWS_MAX;
use super::unit::{alternatives, converted, unit_of};
use super::{Machine, Node};
use crate::file_error::plain_message;
use crate::suggest;

/// A figure of a machine, by its dotted path with list entries by name, and the value to give it.
///
/// The path may omit the unit at its end. The value is one of the field's type, in the path's unit; or a
/// number with a unit (`512GiB`); or a share of the machine's own figure (`50%`). Where a figure is a whole
/// number, the last two are rounded. A capacity beyond what its
/// DRAM devices hold doubles their rows until it fits, as denser chips would; their timings stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    path: String,
    value: String,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Setting, String> {
        match text.split_once('=') {
            Some((path, value)) if !path.is_empty() && !value.is_empty() => {
                Ok(Setting { path: path.to_owned(), value: value.to_owned() })
            }
            _ => Err("expected FIGURE=VALUE, such as node.dram.capacity=16GiB".to_owned()),
        }
    }
}

impl Setting {
    /// The settings that a list (`1,2,4`) or a range (`10%..100%`) of values stands for, in the order given;
    /// a range gives `points` equally spaced ones, its ends among them, rounded if the ends are whole numbers
    /// without a unit. Itself, if it has one value.
    ///
    /// # Errors
    /// If an end of a range is not a number, or their units differ.
    pub fn values(&self, points: usize) -> Result<Vec<Setting>, String> {
        let texts: Vec<String> = match self.value.split_once("..") {
            Some((first, last)) => {
                range(first, last, points).map_err(|error| format!("'{self}': {error}"))?
            }
            None => self.value.split(',').map(str::to_owned).collect(),
        };
        Ok(texts.into_iter().map(|value| Setting { path: self.path.clone(), value }).collect())
    }

    /// Whether it has a range of values.
    pub fn is_range(&self) -> bool {
        self.value.contains("..")
    }

    /// The figure's path, as given.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The value, as given.
    pub fn value(&self) -> &str {
        &self.value
    }
}

/// Equally spaced values from `first` to `last`, in their unit.
fn range(first: &str, last: &str, points: usize) -> Result<Vec<String>, String> {
    [first, last].into_iter().try_for_each(refuse_signed_share)?;
    let ends = [first, last].map(|end| {
        let (digits, unit) = split_unit(end);
        digits.trim().parse::<f64>().ok().filter(|number| number.is_finite()).map(|number| (number, unit))
    });
    match ends {
        [Some((first, unit)), Some((last, other))] if unit == other => {
            let steps = points.max(2) - 1;
            let is_whole = |number: f64| libm::trunc(number) == number;
            let counts = unit.is_empty() && is_whole(first) && is_whole(last);
            let rounds = counts && libm::fabs(last - first) >= steps as f64;
            let value = |step: usize| {
                let exact = first + (last - first) * step as f64 / steps as f64;
                if rounds { libm::round(exact) } else { exact }
            };
            // Shares of a step that is no finite decimal would have 17 digits.
            Ok((0..=steps).map(|step| format!("{}{unit}", libm::round(value(step) * 1e6) / 1e6)).collect())
        }
        _ => Err("expected two numbers with the same unit, as in 10%..100% or 4GiB..64GiB".to_owned()),
    }
}

/// Refuses `+50%`: it would be half of the machine's figure, not half more.
fn refuse_signed_share(text: &str) -> Result<(), String> {
    let Some(percent) = text.trim().strip_prefix('+').and_then(|share| share.strip_suffix('%')) else {
        return Ok(());
    };
    let more = percent.trim().parse::<f64>().ok().map(|percent| {
        format!("; write {}% for {percent}% more", libm::round((100.0 + percent) * 1e6) / 1e6)
    });
    Err(format!("invalid value '{text}': a share has no plus sign{}", more.unwrap_or_default()))
}

/// Digits, and the unit that follows them.
fn split_unit(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| c.is_alphabetic() && c != 'e' || c == '%').unwrap_or(text.len()))
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.path, self.value)
    }
}

/// How the source of a figure that was set begins.
const SOURCE: &str = "--set ";

impl Machine {
    /// The settings of [`Machine::with`] that figures have, as `FIGURE=VALUE`.
    pub fn settings(&self) -> impl Iterator<Item = &str> {
        self.sources.values().filter_map(|source| source.strip_prefix(SOURCE))
    }

    /// This machine with other figures; their source becomes `--set`. The machine is checked once all are
    /// set.
    ///
    /// # Errors
    /// If there is no such figure, a value is not one of its type, unit or range, or figures contradict each
    /// other: which setting, and what is allowed.
    pub fn with(&self, settings: &[Setting]) -> Result<Machine, String> {
        let mut tree = Value::try_from(self).map_err(|error| error.to_string())?;
        let mut set_before = BTreeSet::new();
        let mut sources = self.sources.clone();
        for setting in settings {
            let path = set(&mut tree, setting).map_err(|message| format!("'{setting}': {message}"))?;
            if !set_before.insert(path.clone()) {
                return Err(format!("'{setting}': `{path}` is set twice"));
            }
            sources.insert(path, format!("{SOURCE}{setting}"));
        }
        let all = || settings.iter().map(|setting| format!("'{setting}'")).collect::<Vec<_>>().join(", ");
        let read = serde::Deserialize::deserialize(tree.into_deserializer());
        let mut machine: Machine =
            read.map_err(|error: toml::de::Error| format!("{}: {}", all(), plain_message(error.message())))?;
        machine.sources = sources;
        for node in machine.nodes.iter_mut().filter_map(grow_device) {
            let rows = format!("node.{node}.dram.rows");
            machine.sources.insert(rows, format!("computed: those that node.{node}.capacity_mib needs"));
        }
        let numbered = Value::try_from(&machine).map_err(|error| error.to_string())?;
        machine.complete().map_err(|error| {
            format!("{}: `{}` {}", all(), with_names(&numbered, &error.field), error.message)
        })
    }
}

/// A figure found by a path that may omit its unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The whole path, with the unit at its end if it has one.
    pub path: String,
    /// The path without the unit.
    pub stem: String,
    /// The unit.
    pub unit: Option<&'static str>,
    /// The value, unless it is a text or a boolean.
    pub number: Option<f64>,
}

impl Machine {
    /// The figure that a path of [`Setting`] is of.
    ///
    /// # Errors
    /// If there is none.
    pub fn figure(&self, path: &str) -> Result<Figure, String> {
        let mut tree = Value::try_from(self).map_err(|error| error.to_string())?;
        let (above, table, key) = find(&mut tree, path)?;
        let number = match &table[&key] {
            Value::Integer(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        };
        let unit = unit_of(&key);
        let stem = unit.and(key.rsplit_once('_')).map_or(key.as_str(), |(stem, _)| stem);
        Ok(Figure { path: full_path(above, &key), stem: full_path(above, stem), unit, number })
    }
}

/// Doubles the rows of a node's device until they hold its capacity; returns its name if they did not.
fn grow_device(node: &mut Node) -> Option<&str> {
    let dram = node.dram.as_mut()?;
    let before = dram.rows;
    // Not checked yet: the product may be large.
    let row_mib = f64::from(dram.row_bytes) / f64::from(1 << 20);
    let banks = [dram.channels.into(), dram.ranks.into(), dram.bank_groups.into(), dram.banks.into()];
    let per_row_mib: f64 = row_mib * banks.iter().product::<f64>();
    while dram.rows > 0
        && dram.rows < ROWS_MAX
        && f64::from(dram.rows) * per_row_mib < node.capacity_mib as f64
    {
        dram.rows *= 2;
    }
    (dram.rows != before).then_some(&node.name)
}

/// Sets a figure; returns its full path.
fn set(tree: &mut Value, setting: &Setting) -> Result<String, String> {
    let (above, table, key) = find(tree, &setting.path)?;
    let value = value(&key, &table[&key], &setting.value)?;
    table.insert(key.clone(), value);
    Ok(full_path(above, &key))
}

/// The table above a figure, with its path, and the figure's key in it.
fn find<'a, 'p>(tree: &'a mut Value, path: &'p str) -> Result<(&'p str, &'a mut Table, String), String> {
    let (above, name) = path.rsplit_once('.').unwrap_or(("", path));
    let mut at = tree;
    for part in above.split('.').filter(|part| !part.is_empty()) {
        at = below(at, part)?;
    }
    let Value::Table(table) = at else {
        return Err(format!("`{above}` is not a table of figures"));
    };
    let key = key(table, name)?;
    match (&table[&key], key.as_str()) {
        (Value::Table(_) | Value::Array(_), _) | (_, "name" | "between") => {
            Err(format!("`{key}` is not a figure; there are: {}", figures(table).join(", ")))
        }
        _ => Ok((above, table, key)),
    }
}

fn full_path(above: &str, key: &str) -> String {
    if above.is_empty() { key.to_owned() } else { format!("{above}.{key}") }
}

/// The table or list entry of this name.
fn below<'a>(at: &'a mut Value, part: &str) -> Result<&'a mut Value, String> {
    let names: Vec<String> = match &*at {
        Value::Table(table) => table
            .iter()
            .filter(|(_, value)| value.is_table() || is_list(value))
            .map(|(k, _)| k.clone())
            .collect(),
        Value::Array(list) => list.iter().enumerate().map(entry_name).collect(),
        _ => Vec::new(),
    };
    let unknown = || suggest::unknown("part", part, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let index = names.iter().position(|name| name == part).ok_or_else(unknown)?;
    match at {
        Value::Table(table) => Ok(&mut table[part]),
        at => Ok(&mut at[index]),
    }
}

/// A path with names of list entries instead of their numbers.
fn with_names(tree: &Value, path: &str) -> String {
    let name = |part: &str| {
        let (list, number) = part.strip_suffix(']')?.split_once('[')?;
        let number = number.parse::<usize>().ok()?;
        Some(format!("{list}.{}", entry_name((number, tree.get(list)?.get(number)?))))
    };
    let parts: Vec<String> =
        path.split('.').map(|part| name(part).unwrap_or_else(|| part.to_owned())).collect();
    parts.join(".")
}

fn is_list(value: &Value) -> bool {
    value.as_array().is_some_and(|list| list.iter().any(Value::is_table))
}

/// The name of a list entry: a link's is composed of its ends, an unnamed entry's is its number.
pub(super) fn entry_name((number, entry): (usize, &Value)) -> String {
    let ends = || entry.get("between")?.as_array()?.iter().map(Value::as_str).collect::<Option<Vec<_>>>();
    let name = entry.get("name").and_then(Value::as_str).map(str::to_owned);
    name.or_else(|| Some(ends()?.join("-"))).unwrap_or_else(|| number.to_string())
}

/// The table's key of this name, with or without the unit at its end.
fn key(table: &Table, name: &str) -> Result<String, String> {
    if table.contains_key(name) {
        return Ok(name.to_owned());
    }
    let without_unit = |key: &str| unit_of(key).and(key.rsplit_once('_')).map(|(stem, _)| stem.to_owned());
    let known = figures(table);
    let found = known.iter().find(|key| without_unit(key).as_deref() == Some(name));
    found.map(|key| (*key).to_owned()).ok_or_else(|| suggest::unknown("figure", name, &known))
}

fn figures(table: &Table) -> Vec<&str> {
    let is_figure = |(key, value): &(&String, &Value)| {
        !value.is_table() && !value.is_array() && !matches!(key.as_str(), "name" | "summary" | "initiator")
    };
    table.iter().filter(is_figure).map(|(key, _)| key.as_str()).collect()
}

/// The value of a figure that is `before`, as `text` has it.
fn value(key: &str, before: &Value, text: &str) -> Result<Value, String> {
    match before {
        Value::Integer(before) => {
            let (number, is_converted) = number(key, *before as f64, text)?;
            let whole = if is_converted { libm::round(number) } else { number };
            if libm::trunc(whole) != whole || whole.abs() > 9e15 {
                return Err(format!("{number}{} is not a whole number", in_unit(key)));
            }
            Ok(Value::Integer(whole as i64))
        }
        Value::Float(before) => Ok(Value::Float(number(key, *before, text)?.0)),
        Value::Boolean(_) => match text {
            "true" => Ok(Value::Boolean(true)),
            "false" => Ok(Value::Boolean(false)),
            _ => Err("expected true or false".to_owned()),
        },
        _ => Ok(Value::String(text.to_owned())),
    }
}

/// A number in the figure's unit, and whether it was converted, so that it may be rounded.
fn number(key: &str, before: f64, text: &str) -> Result<(f64, bool), String> {
    let own = unit_of(key);
    refuse_signed_share(text)?;
    let (digits, unit) = split_unit(text);
    let number = digits.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    let in_own = match (number, unit) {
        (Some(number), "") => Some((number, false)),
        (Some(percent), "%") if own != Some("%") => Some((before * percent / 100.0, true)),
        (Some(number), unit) => {
            own.and_then(|own| converted(number, unit, own)).map(|number| (number, own != Some(unit)))
        }
        (None, _) => None,
    };
    in_own.ok_or_else(|| {
        let units = own.map(alternatives).unwrap_or_default();
        let with_unit =
            if units.is_empty() { String::new() } else { format!(" or one in {},", units.join(", ")) };
        format!(
            "expected a number{},{with_unit} or a share of the machine's figure, such as 50%",
            in_unit(key)
        )
    })
}

fn in_unit(key: &str) -> String {
    unit_of(key).map_or_else(String::new, |unit| format!(" {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::bundled;

    fn with(settings: &[&str]) -> Result<Machine, String> {
        let settings: Result<Vec<Setting>, String> = settings.iter().map(|text| text.parse()).collect();
        bundled::machine("ddr5-cxl").unwrap().unwrap().with(&settings?)
    }

    #[test]
    fn figures_are_set_by_path_in_any_unit() {
        let before = bundled::machine("ddr5-cxl").unwrap().unwrap();
        let machine = with(&[
            "node.dram0.capacity=512GiB",
            "node.dram1.capacity_mib=25%",
            "link.socket0-cxl.bandwidth=7.5GB/s",
            "core.reorder_buffer=100",
            "cache.L2.capacity=1MiB",
        ])
        .unwrap();
        assert_eq!(machine.nodes[0].capacity_mib, 512 << 10);
        let rows = |machine: &Machine| machine.nodes[0].dram.as_ref().unwrap().rows;
        assert_eq!(rows(&machine), 4 * rows(&before), "chips of four times the density");
        assert_eq!(machine.nodes[1].capacity_mib, before.nodes[1].capacity_mib / 4);
        let link = machine.links.iter().find(|link| link.between == ["socket0", "cxl"]).unwrap();
        assert_eq!(link.bandwidth_mbps, 7500.0);
        assert_eq!(machine.core.reorder_buffer, 100);
        assert_eq!(machine.caches[1].capacity_kib, 1024);
        assert_eq!(machine.source_of("node.dram0.capacity_mib"), "--set node.dram0.capacity=512GiB");
        assert_eq!(machine.source_of("core.clock_mhz"), before.source_of("core.clock_mhz"));
        let figure = machine.figure("node.dram0.capacity").unwrap();
        assert_eq!((figure.path.as_str(), figure.unit), ("node.dram0.capacity_mib", Some("MiB")));
        assert_eq!((figure.stem.as_str(), figure.number), ("node.dram0.capacity", Some(524_288.0)));
        assert_eq!(machine.figure("core.reorder_buffer").unwrap().stem, "core.reorder_buffer");
    }

    #[test]
    fn lists_and_ranges_stand_for_several_settings() {
        let values = |text: &str| {
            let settings = text.parse::<Setting>().unwrap().values(4);
            settings.map(|settings| settings.iter().map(|s| s.value().to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(values("a.b=1").unwrap(), ["1"]);
        assert_eq!(values("a.b=1GiB,3,50%").unwrap(), ["1GiB", "3", "50%"]);
        assert_eq!(values("a.b=10%..100%").unwrap(), ["10%", "40%", "70%", "100%"]);
        assert_eq!(values("a.b=16..64").unwrap(), ["16", "32", "48", "64"]);
        assert_eq!(values("a.b=16..65").unwrap(), ["16", "32", "49", "65"], "counts");
        assert_eq!(values("a.b=2..1").unwrap(), ["2", "1.666667", "1.333333", "1"]);
        assert!(values("a.b=+10%..+50%").unwrap_err().contains("write 110% for 10% more"));
        for wrong in ["a.b=1..", "a.b=1GiB..2", "a.b=x..y", "a.b=1..inf"] {
            assert!(values(wrong).unwrap_err().contains("same unit"), "{wrong}");
        }
    }

    #[test]
    fn machine_set_to_its_own_figures_is_unchanged() {
        for name in bundled::names() {
            let before = bundled::machine(name).unwrap().unwrap();
            let node = &before.nodes[0].name;
            let setting = format!("node.{node}.capacity=100%").parse().unwrap();
            let mut after = before.with(&[setting]).unwrap();
            after.sources = before.sources.clone();
            assert_eq!(after.to_toml(), before.to_toml(), "{name}");
        }
    }

    #[test]
    fn unnamed_entries_are_found_by_number() {
        let machine = Machine::parse("hinuma", include_str!("../../../../machines/hinuma.toml")).unwrap();
        let set = |text: &str| machine.clone().with(&[text.parse().unwrap()]);
        let changed = set("node.nvm.fixed.loaded.2.latency=195").unwrap();
        let source = changed.source_of("node.nvm.fixed.loaded.2.latency_ns");
        assert_eq!(source, "--set node.nvm.fixed.loaded.2.latency=195");
        let unknown = set("node.nvm.fixed.loaded.7.latency=195").unwrap_err();
        assert!(unknown.contains("there are: 0, 1, 2"), "{unknown}");
    }

    #[test]
    fn figure_is_set_once() {
        let error = with(&["cache.L2.capacity=1MiB", "cache.L2.capacity_kib=2048"]).unwrap_err();
        assert!(error.contains("`cache.L2.capacity_kib` is set twice"), "{error}");
    }

    #[test]
    fn errors_name_setting_and_what_is_allowed() {
        for (setting, part) in [
            ("node.dram0", "expected FIGURE=VALUE"),
            ("=3", "expected FIGURE=VALUE"),
            ("node.dram0.capcity=1GiB", "did you mean 'capacity_mib'"),
            ("nodes.dram0.capacity=1GiB", "did you mean 'node'"),
            ("node.dram7.capacity=1GiB", "dram0, dram1, cxl"),
            ("node.dram0.capacity=1GB", "MiB, GiB"),
            ("node.dram0.capacity=+50%", "write 150% for 50% more"),
            ("node.dram0.capacity=+x%", "no plus sign"),
            ("node.dram0.capacity=much", "expected a number MiB"),
            ("node.dram0.capacity=nan", "expected a number MiB"),
            ("node.dram0.capacity=0.5", "not a whole number"),
            ("node.dram0.capacity=-1", "expected an integer of at least 0"),
            ("core.store_queue=99999", "an integer from 0 to 65535"),
            ("node.dram0.capacity=1e300", "not a whole number"),
            ("node.dram0.name=x", "not a figure"),
            ("node.dram0.dram=x", "not a figure"),
            ("node=x", "not a figure"),
            ("core.clock.mhz=1", "there is no part 'clock'"),
            ("core.reorder_buffer=0", "core.reorder_buffer"),
            ("cache.L2.capacity=3B", "`cache.L2.capacity_kib`"),
            ("core.reorder_buffer=1ns", "expected a number, or a share"),
            ("link.socket0-cxl.bandwidth=0", "`link.socket0-cxl.bandwidth_mbps`"),
            ("node.dram0.capacity=2000TiB", "`node.dram0.capacity_mib`"),
        ] {
            let error = with(&[setting]).unwrap_err();
            assert!(error.contains(part), "{setting}: {error}");
        }
    }
}
