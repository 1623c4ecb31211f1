//! The points of a sweep: the base scene with some keys set.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::Scene;

/// A point of a sweep: one combination of values of the swept parameters.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// Value of each axis at this point, by the name of the axis.
    pub labels: BTreeMap<String, String>,
    /// The scene to simulate at this point.
    pub scene: Scene,
}

/// A swept parameter: the name of each value, and the keys that the value sets.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Axis {
    /// Name of the axis in labels: the last word of the key, or the name of the variants.
    pub(super) name: String,
    /// Key of the axis as written under `[sweep]`.
    pub(super) key: String,
    pub(super) values: Vec<(String, Vec<(String, Value)>)>,
}

/// Reads an axis from a value under `[sweep]`, or returns what is wrong with it.
pub(super) fn axis(key: &str, value: &Value) -> Result<Axis, String> {
    let values = match value {
        Value::Array(values) => values
            .iter()
            .map(|value| (label(value), vec![(key.to_owned(), value.clone())]))
            .collect(),
        Value::Table(variants) => variants
            .iter()
            .map(|(name, sets)| match sets {
                Value::Table(sets) => {
                    let sets = sets.iter().map(|(key, value)| (key.clone(), value.clone()));
                    Ok((name.clone(), sets.collect()))
                }
                other => Err(format!(
                    "variant `{name}` is a {}, expected a table of keys and values: {{ \
                     \"transport.cc\" = \"nscc\" }}",
                    other.type_str()
                )),
            })
            .collect::<Result<Vec<_>, _>>()?,
        other => {
            return Err(format!(
                "a {}, expected an array of values or a table of variants",
                other.type_str()
            ));
        }
    };
    if values.is_empty() {
        return Err("the axis has no value, expected one at least".to_owned());
    }
    let name = key.rsplit('.').next().unwrap_or(key).to_owned();
    Ok(Axis { name, key: key.to_owned(), values })
}

/// Returns a value of an axis as a word, for labels and conditions.
pub(super) fn label(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The labels of a point, and the tables of its scene.
pub(super) type Combination = (BTreeMap<String, String>, Table);

/// Returns every combination of the values of `axes`; the last axis varies fastest. An error
/// carries the key of its axis.
pub(super) fn combinations(
    base: Table,
    axes: &[Axis],
) -> Result<Vec<Combination>, (String, String)> {
    let mut points = vec![(BTreeMap::new(), base)];
    for axis in axes {
        let mut more = Vec::with_capacity(points.len() * axis.values.len());
        for (labels, table) in &points {
            for (label, sets) in &axis.values {
                let mut labels = labels.clone();
                labels.insert(axis.name.clone(), label.clone());
                let mut table = table.clone();
                for (key, value) in sets {
                    set(&mut table, key, value).map_err(|what| (axis.key.clone(), what))?;
                }
                more.push((labels, table));
            }
        }
        points = more;
    }
    Ok(points)
}

/// Sets a key such as `transport.cc` or `failure.0.at_us` in a table.
pub(super) fn set(table: &mut Table, key: &str, value: &Value) -> Result<(), String> {
    let mut words = key.split('.');
    let first = words.next().unwrap_or(key);
    let rest: Vec<&str> = words.collect();
    if rest.is_empty() {
        table.insert(first.to_owned(), value.clone());
        return Ok(());
    }
    let mut at = table.entry(first).or_insert_with(|| Value::Table(Table::new()));
    for (index, word) in rest.iter().enumerate() {
        let last = index + 1 == rest.len();
        at = match at {
            Value::Table(table) if last => {
                table.insert((*word).to_owned(), value.clone());
                return Ok(());
            }
            Value::Table(table) => table.entry(*word).or_insert_with(|| Value::Table(Table::new())),
            Value::Array(items) => {
                let count = items.len();
                let item = word.parse().ok().and_then(|index: usize| items.get_mut(index));
                item.ok_or_else(|| {
                    format!("`{key}`: no entry `{word}`; the {count} entries are numbered from 0")
                })?
            }
            other => {
                let kind = other.type_str();
                return Err(format!("`{key}`: `{word}` is below a {kind}, not a table"));
            }
        };
    }
    *at = value.clone();
    Ok(())
}
