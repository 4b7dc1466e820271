//! JSON objects that carry the version of their protocol.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Member of each object that holds the version.
const MEMBER: &str = "protocol";

/// Why a text of another part of memtide cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// Another version, or none.
    #[error(
        "{what} has protocol version {}, and this memtide uses {expected}: build or install all parts of memtide together",
        found.map_or("none".to_owned(), |found| found.to_string())
    )]
    Version {
        /// What was read, such as `task`.
        what: &'static str,
        /// Its version, if it has one.
        found: Option<u64>,
        /// The version of this build.
        expected: u32,
    },
    /// The right version, if any, but not its content.
    #[error("invalid {what}: {source}")]
    Content {
        /// What was read.
        what: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// Writes plain data as an object of a version.
pub(crate) fn encode<T: Serialize>(version: u32, data: &T) -> Vec<u8> {
    let mut object = Map::from_iter([(MEMBER.to_owned(), Value::from(version))]);
    match serde_json::to_value(data) {
        Ok(Value::Object(members)) => object.extend(members),
        other => unreachable!("what the parts of memtide say are objects of plain data, not {other:?}"),
    }
    serde_json::to_vec(&object).expect("an object of values can be written")
}

/// Reads an object of a version. The version is checked before the rest, which another version may have otherwise.
pub(crate) fn decode<T: DeserializeOwned>(
    what: &'static str,
    version: u32,
    text: &[u8],
) -> Result<T, ProtocolError> {
    let content = |source| ProtocolError::Content { what, source };
    let mut object: Map<String, Value> = serde_json::from_slice(text).map_err(content)?;
    let found = object.shift_remove(MEMBER).and_then(|found| found.as_u64());
    if found != Some(version.into()) {
        return Err(ProtocolError::Version { what, found, expected: version });
    }
    serde_json::from_value(Value::Object(object)).map_err(content)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Data {
        bytes: u64,
        share: f64,
    }

    #[test]
    fn the_version_comes_first_and_data_is_read_back_exactly() {
        let data = Data { bytes: u64::MAX, share: 0.1 + 0.2 };
        let text = encode(3, &data);
        assert_eq!(
            String::from_utf8_lossy(&text),
            r#"{"protocol":3,"bytes":18446744073709551615,"share":0.30000000000000004}"#
        );
        assert_eq!(decode::<Data>("data", 3, &text).expect("data"), data);
    }

    #[test]
    fn another_version_is_refused_whatever_else_is_wrong() {
        for (text, says) in [
            (r#"{"protocol":4,"other":1}"#, "data has protocol version 4, and this memtide uses 3"),
            (r#"{"bytes":1,"share":0.5}"#, "data has protocol version none"),
            (r#"{"protocol":3,"bytes":1}"#, "invalid data: missing field `share`"),
            (r#"{"protocol":3,"bytes":1,"share":1,"more":1}"#, "invalid data: unknown field `more`"),
            ("[1]", "invalid data: invalid type"),
            ("{", "invalid data: EOF"),
        ] {
            let error = decode::<Data>("data", 3, text.as_bytes()).expect_err(text).to_string();
            assert!(error.starts_with(says), "{error}");
        }
    }
}
