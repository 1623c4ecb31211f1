//! Settings as results store them: by the keys of a plan (`transport.cc`), each with its value as
//! text.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Settings of a run, by key, with their values as text.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Settings(BTreeMap<String, String>);

impl Settings {
    /// Sets the value of a key, and replaces the previous one.
    pub fn set(&mut self, key: impl Into<String>, value: impl Display) {
        self.0.insert(key.into(), value.to_string());
    }

    /// Sets all keys of a table, with `under` and a dot in front. Keys that the table leaves out
    /// are not set.
    pub fn set_table(&mut self, under: &str, table: &impl Serialize) {
        // Tables consist of numbers, texts and lists of them, all of which JSON can hold.
        let value = serde_json::to_value(table).unwrap_or_default();
        self.set_value(under, &value);
    }

    fn set_value(&mut self, key: &str, value: &Value) {
        match value {
            Value::Null => {}
            Value::Object(keys) => {
                keys.iter()
                    .for_each(|(name, value)| self.set_value(&format!("{key}.{name}"), value));
            }
            Value::Array(items) if items.iter().any(Value::is_object) => {
                let items = items.iter().enumerate();
                items.for_each(|(index, value)| self.set_value(&format!("{key}.{index}"), value));
            }
            Value::String(text) => self.set(key, text),
            other => self.set(key, other),
        }
    }

    /// Adds all settings of `others`, which replace those of the same keys.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Returns the keys with their values, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Row {
        what: &'static str,
        at_us: Option<f64>,
    }

    #[test]
    fn a_table_is_stated_key_by_key_without_what_it_leaves_out() {
        let mut settings = Settings::default();
        let rows = [Row { what: "slow", at_us: Some(1.5) }, Row { what: "rate", at_us: None }];
        settings.set_table("failure", &rows);
        settings.set_table("network", &BTreeMap::from([("ecn", [0.2, 0.8])]));
        settings.set("seed", 1);
        settings.set("seed", 7);
        let all: Vec<_> = settings.iter().collect();
        let expected = [
            ("failure.0.at_us", "1.5"),
            ("failure.0.what", "slow"),
            ("failure.1.what", "rate"),
            ("network.ecn", "[0.2,0.8]"),
            ("seed", "7"),
        ];
        assert_eq!(all, expected);
    }
}
