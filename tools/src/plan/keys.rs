//! Reads the tables of a plan. A table with a kind (`kind = "incast"`) is read as an enum: its
//! variant has the keys of the kind, with serde's defaults, and every other key is refused. Errors
//! carry their key, by which [`Plan::blame`](super::Plan::blame) finds the line.

use std::fmt::Display;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer,
    MapAccess, VariantAccess, Visitor,
};
use serde::{Serialize, forward_to_deserialize_any};
use squall_netsim::settings::Settings;
use toml::{Table, Value};

use super::SceneError;
use super::scene::fault;

/// A table from which parts are taken until no key is left. Structs whose keys all have defaults
/// are taken first, and a kind with its keys last.
pub(super) struct Keys {
    /// Name of the table, such as `workload` or `failure[0]`.
    path: String,
    left: Table,
    /// Kind of the table, such as `incast`, once it is known.
    kind: Option<String>,
    /// Kinds that the table may have, as far as they were tried.
    kinds: Vec<&'static str>,
    /// Keys that the table may have, as far as parts of it were taken.
    known: Vec<&'static str>,
}

impl Keys {
    pub(super) fn new(path: impl Into<String>, table: Table) -> Self {
        let (kinds, known) = (Vec::new(), Vec::new());
        Self { path: path.into(), left: table, kind: None, kinds, known }
    }

    /// Reads a whole table without kinds.
    ///
    /// # Errors
    /// The key that is invalid, and what is allowed.
    pub(super) fn read<T: DeserializeOwned>(path: &str, table: Table) -> Result<T, SceneError> {
        let mut keys = Self::new(path, table);
        let read = keys.take()?;
        keys.finish()?;
        Ok(read)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.left.contains_key(key)
    }

    /// Returns whether a key has this word as its value.
    pub(super) fn has_value(&self, key: &str, word: &str) -> bool {
        self.left.get(key).and_then(Value::as_str) == Some(word)
    }

    /// Adds kinds that errors list.
    pub(super) fn add_kinds(&mut self, kinds: &[&'static str]) {
        self.kinds.extend(kinds);
    }

    pub(super) fn set(&mut self, key: &str, value: &str) {
        self.left.insert(key.to_owned(), value.into());
    }

    /// Takes the keys of a struct out of the table, and reads it.
    pub(super) fn take<T: DeserializeOwned>(&mut self) -> Result<T, SceneError> {
        let read = T::deserialize(Part { keys: self, tag: "" });
        read.map_err(|error| self.name(error))
    }

    /// Takes the kind that `tag` names out of the table, with its keys. Returns `None` if `T` has
    /// no such kind.
    pub(super) fn try_kind<T: DeserializeOwned>(
        &mut self,
        tag: &'static str,
    ) -> Result<Option<T>, SceneError> {
        match T::deserialize(Part { keys: self, tag }) {
            Ok(kind) => Ok(Some(kind)),
            Err(_) if self.kind.is_none() => Ok(None),
            Err(error) => Err(self.name(error)),
        }
    }

    /// Takes the kind that `tag` names out of the table, with its keys. An error also lists the
    /// kinds that earlier calls tried.
    pub(super) fn take_kind<T: DeserializeOwned>(
        &mut self,
        tag: &'static str,
    ) -> Result<T, SceneError> {
        if let Some(kind) = self.try_kind(tag)? {
            return Ok(kind);
        }
        let given = match self.left.get(tag) {
            None => "missing".to_owned(),
            Some(given) => format!("`{}`", super::point::label(given)),
        };
        fault(self.key(tag), format!("{given}, expected {}", self.kinds.join(", ")))
    }

    /// Refuses the table if it has any key left, which is an unknown one.
    pub(super) fn finish(&self) -> Result<(), SceneError> {
        self.left.keys().next().map_or(Ok(()), |key| Err(self.unknown(key)))
    }

    fn key(&self, key: &str) -> String {
        if key.is_empty() { self.path.clone() } else { format!("{}.{key}", self.path) }
    }

    fn unknown(&self, key: &str) -> SceneError {
        let known = self.known.join(", ");
        let what = match &self.kind {
            Some(kind) => format!("`{kind}` has no key `{key}`; it has {known}"),
            None => format!("there is no key `{key}`; there are {known}"),
        };
        SceneError { key: self.key(key), what }
    }

    fn name(&self, error: KeyError) -> SceneError {
        // A missing key is often a misspelt one, so name the key that is left.
        match (error, self.left.keys().next()) {
            (KeyError::Missing(_), Some(key)) => self.unknown(key),
            (KeyError::Missing(key), None) => {
                let needed = self.kind.as_ref().map(|kind| format!(", and needed by `{kind}`"));
                let what = format!("missing{}", needed.unwrap_or_default());
                SceneError { key: self.key(key), what }
            }
            (KeyError::Value { key, what }, _) => SceneError { key: self.key(&key), what },
        }
    }

    /// Passes the values of `fields` to a visitor and removes them from the table.
    fn visit<'de, V: Visitor<'de>>(
        &mut self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        self.known.extend(fields);
        let given = fields.iter().filter_map(|field| Some((*field, self.left.remove(*field)?)));
        let given: Vec<_> = given.collect();
        let mut entries = Entries { left: given.into_iter(), key: "", value: None };
        visitor.visit_map(&mut entries).map_err(|error| error.at(entries.key))
    }
}

/// Adds a kind to the settings as plans write it: its name under `tag`, beside its keys.
pub(super) fn state(settings: &mut Settings, path: &str, tag: &str, kind: &impl Serialize) {
    // serde writes an enum as the variant's name, alone or with the keys.
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(name)) => settings.set(format!("{path}.{tag}"), name),
        Ok(serde_json::Value::Object(variants)) => {
            for (name, keys) in &variants {
                settings.set(format!("{path}.{tag}"), name);
                settings.set_table(path, keys);
            }
        }
        _ => {}
    }
}

/// A mistake in the keys of a table.
#[derive(Debug, thiserror::Error)]
enum KeyError {
    /// A key without a default is missing.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// The value of a key is invalid.
    #[error("{key}: {what}")]
    Value { key: String, what: String },
}

impl KeyError {
    /// Names the key that was read when the error occurred, unless the error has one.
    fn at(self, key: &str) -> Self {
        match self {
            Self::Value { key: known, what } if known.is_empty() => {
                Self::Value { key: key.to_owned(), what }
            }
            named => named,
        }
    }
}

impl Error for KeyError {
    fn custom<T: Display>(what: T) -> Self {
        Self::Value { key: String::new(), what: what.to_string() }
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }
}

/// A part of a table as a serde deserializer: a struct, or an enum whose variant is the value of
/// the key `tag`.
struct Part<'a> {
    keys: &'a mut Keys,
    tag: &'static str,
}

impl<'de> Deserializer<'de> for Part<'_> {
    type Error = KeyError;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        self.keys.visit(fields, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        let Self { keys, tag } = self;
        keys.kinds.splice(0..0, variants.iter().copied());
        let given = keys.left.get(tag).and_then(Value::as_str);
        let Some(kind) = variants.iter().find(|kind| given == Some(**kind)) else {
            return Err(KeyError::custom("of another kind"));
        };
        keys.left.remove(tag);
        keys.kind = Some((*kind).to_owned());
        visitor.visit_enum(Variant { keys, kind })
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, KeyError> {
        Err(KeyError::custom("a table is read as a struct or an enum"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map identifier ignored_any
    }
}

/// Deserializes the kind of a table, then its keys.
struct Variant<'a> {
    keys: &'a mut Keys,
    kind: &'static str,
}

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = KeyError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), KeyError> {
        let kind: StrDeserializer<'_, KeyError> = self.kind.into_deserializer();
        Ok((seed.deserialize(kind)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = KeyError;

    fn unit_variant(self) -> Result<(), KeyError> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, KeyError> {
        seed.deserialize(Part { keys: self.keys, tag: "" })
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        _len: usize,
        _visitor: V,
    ) -> Result<V::Value, KeyError> {
        Err(KeyError::custom("the keys of a kind have names"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        self.keys.visit(fields, visitor)
    }
}

/// The keys of a table with their values, which a visitor takes one after another.
struct Entries {
    left: std::vec::IntoIter<(&'static str, Value)>,
    /// The key that was read last, which errors name.
    key: &'static str,
    value: Option<Value>,
}

impl<'de> MapAccess<'de> for Entries {
    type Error = KeyError;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, KeyError> {
        let Some((key, value)) = self.left.next() else { return Ok(None) };
        (self.key, self.value) = (key, Some(value));
        let key: StrDeserializer<'_, KeyError> = key.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, KeyError> {
        let value = self.value.take().unwrap_or_else(|| Value::Table(Table::new()));
        seed.deserialize(value).map_err(|error: toml::de::Error| KeyError::custom(error.message()))
    }
}
