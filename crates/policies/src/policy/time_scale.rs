//! Policies for a machine with a part of the memory, on which everything happens sooner.

use memtide_core::params::{Kind, Parameter, Params, Value, split_name};

use super::{PolicyError, migration_entry, values};

/// Unit of a parameter that is a share of a core's time.
pub(crate) const SHARE_OF_A_CORE: &str = "% of a core";

/// A migration policy's text with its times, and its limits per interval, divided by `scale`. Its share of a
/// core is multiplied by it, up to the parameter's maximum, as what it does in an interval takes as long as
/// before. Other shares, rates and counts stay. Parameters whose values are then the defaults are left out.
///
/// # Errors
/// If the policy or a parameter is unknown, or a value is not allowed, before or after the division.
pub fn at_time_scale(migration: &str, scale: u32) -> Result<String, PolicyError> {
    let (name, params) = split_name(migration);
    let info = &migration_entry(name)?.info;
    let given = values(info, params)?;
    let mut divided = Params::new();
    for parameter in info.parameters {
        let value = given.get(parameter.name);
        let value = scaled(parameter, value, scale);
        if value != parameter.default_value() {
            divided
                .set(parameter.name, value)
                .map_err(|error| PolicyError::Parameter { policy: info.name, error })?;
        }
    }
    let divided = divided.to_string();
    values(info, &divided)?;
    let colon = if divided.is_empty() { "" } else { ":" };
    Ok(format!("{}{colon}{divided}", info.name))
}

fn scaled(parameter: &Parameter, value: &Value, scale: u32) -> Value {
    match (value, parameter.kind) {
        (Value::Number(share), Kind::Number { max, .. }) if parameter.unit == SHARE_OF_A_CORE => {
            Value::Number((share * f64::from(scale)).min(max))
        }
        (Value::Integer(value), _) if is_divided(parameter) => {
            Value::Integer((value + u64::from(scale) / 2) / u64::from(scale))
        }
        (Value::Number(value), _) if is_divided(parameter) => Value::Number(value / f64::from(scale)),
        _ => value.clone(),
    }
}

/// Whether a parameter is a time that the user can notice (a cost in ns is the machine's), or a limit per
/// interval.
fn is_divided(parameter: &Parameter) -> bool {
    matches!(parameter.unit, "us" | "ms" | "s") || parameter.unit.starts_with("pages/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_limits_per_interval_are_divided_and_the_share_of_a_core_is_multiplied() {
        let text = at_time_scale("relative-heat", 10).expect("within the ranges");
        assert_eq!(
            text,
            "relative-heat:epoch_ms=50,sampling_us=1000,budget=10,half_life_ms=400,payback_ms=3000,pages=1638"
        );
        let text = at_time_scale("relative-heat:budget=30", 4).expect("the maximum of a share");
        assert!(text.contains(",budget=100,"), "{text}");
        let text = at_time_scale("relative-heat:budget=0", 4).expect("within the ranges");
        assert!(text.contains(",budget=0,"), "{text}");
        let text = at_time_scale("relative-heat:epoch_ms=1001,low=5,high=7", 2).expect("within the ranges");
        assert!(text.starts_with("relative-heat:epoch_ms=501,") && text.contains("low=5,high=7"), "{text}");
        assert_eq!(at_time_scale("hot-cold:hot=40", 1), Ok("hot-cold:hot=40".to_owned()));
        assert_eq!(at_time_scale("none", 10), Ok("none".to_owned()));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let error = at_time_scale("relative-heat", 100).expect_err("5 ms").to_string();
        assert!(error.contains("epoch_ms") && error.contains("from 10 to 600000"), "{error}");
        assert!(matches!(at_time_scale("hot", 2), Err(PolicyError::Unknown { .. })));
    }

    #[test]
    fn every_policy_is_allowed_at_a_scale_of_2() {
        for info in crate::migrations() {
            let text = at_time_scale(info.name, 2).unwrap_or_else(|error| panic!("{error}"));
            assert!(crate::parse(&format!("local+{text}")).is_ok(), "{text}");
        }
    }
}
