//! JSON objects with a protocol version.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Key of the version.
const MEMBER: &str = "protocol";

/// Why a text cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// Another version, or a missing one.
    #[error(
        "{what} has protocol version {}, and this memtide uses {expected}: build or install all parts of \
         memtide together",
        found.map_or("none".to_owned(), |found| found.to_string())
    )]
    Version {
        /// The kind of text, such as `task`.
        what: &'static str,
        /// Its version, if any.
        found: Option<u64>,
        /// The version of this build.
        expected: u32,
    },
    /// Matching version, invalid content.
    #[error("invalid {what}: {source}")]
    Content {
        /// The kind of text.
        what: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// Serialises data as an object with a version.
pub(crate) fn encode<T: Serialize>(version: u32, data: &T) -> Vec<u8> {
    let mut object = Map::from_iter([(MEMBER.to_owned(), Value::from(version))]);
    match serde_json::to_value(data) {
        Ok(Value::Object(members)) => object.extend(members),
        other => unreachable!("what the parts of memtide say are objects of plain data, not {other:?}"),
    }
    serde_json::to_vec(&object).expect("an object of values can be written")
}

/// Parses an object with a version. The version is checked first: other versions may differ in the rest.
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
    fn version_is_first_and_data_reads_back() {
        let data = Data { bytes: u64::MAX, share: 0.1 + 0.2 };
        let text = encode(3, &data);
        assert_eq!(
            String::from_utf8_lossy(&text),
            r#"{"protocol":3,"bytes":18446744073709551615,"share":0.30000000000000004}"#
        );
        assert_eq!(decode::<Data>("data", 3, &text).expect("data"), data);
    }

    #[test]
    fn other_version_is_refused_before_other_errors() {
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
