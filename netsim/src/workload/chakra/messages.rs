//! Messages of Chakra execution traces, schema 0.0.4 (`et_def.proto` of MLCommons Chakra). A file
//! has each behind its length: first the metadata, then the nodes.
//!
//! Fields that have no effect here are not declared: the decoder skips them.

use std::io::{self, Read, Write};

use prost::Message;

/// Version of the schema.
pub(super) const VERSION: &str = "0.0.4";
/// Maximum length of a message. A node has some hundred bytes, and its inputs some more.
const MOST_BYTES: usize = 64 << 20;

/// Metadata of a trace.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GlobalMetadata {
    #[prost(string, tag = "1")]
    pub(super) version: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) attr: Vec<Attribute>,
}

/// A node of a trace.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(int32, tag = "3")]
    pub(super) kind: i32,
    #[prost(uint64, repeated, tag = "4")]
    pub(super) ctrl_deps: Vec<u64>,
    #[prost(uint64, repeated, tag = "5")]
    pub(super) data_deps: Vec<u64>,
    #[prost(uint64, tag = "7")]
    pub(super) duration_micros: u64,
    #[prost(message, optional, tag = "8")]
    pub(super) inputs: Option<Inputs>,
    #[prost(message, repeated, tag = "10")]
    pub(super) attr: Vec<Attribute>,
}

/// Inputs of a node. PyTorch's node of process groups describes them there.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Inputs {
    #[prost(string, tag = "1")]
    pub(super) values: String,
}

/// A named value of a node or of the metadata.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Attribute {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(oneof = "Value", tags = "3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 28, 29")]
    pub(super) value: Option<Value>,
}

/// A value of an attribute. Lists other than of booleans have no effect here.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Value {
    #[prost(double, tag = "3")]
    Double(f64),
    #[prost(float, tag = "5")]
    Float(f32),
    #[prost(int32, tag = "7")]
    Int32(i32),
    #[prost(int64, tag = "9")]
    Int64(i64),
    #[prost(uint32, tag = "11")]
    Uint32(u32),
    #[prost(uint64, tag = "13")]
    Uint64(u64),
    #[prost(sint32, tag = "15")]
    Sint32(i32),
    #[prost(sint64, tag = "17")]
    Sint64(i64),
    #[prost(fixed32, tag = "19")]
    Fixed32(u32),
    #[prost(fixed64, tag = "21")]
    Fixed64(u64),
    #[prost(sfixed32, tag = "23")]
    Sfixed32(i32),
    #[prost(sfixed64, tag = "25")]
    Sfixed64(i64),
    #[prost(bool, tag = "27")]
    Bool(bool),
    #[prost(message, tag = "28")]
    BoolList(BoolList),
    #[prost(string, tag = "29")]
    String(String),
}

/// A list of booleans.
#[derive(Clone, PartialEq, Message)]
pub(super) struct BoolList {
    #[prost(bool, repeated, tag = "1")]
    pub(super) values: Vec<bool>,
}

impl Attribute {
    pub(super) fn new(name: &str, value: Value) -> Self {
        Self { name: name.to_owned(), value: Some(value) }
    }

    /// Returns the value as a whole number; `None` if it is no number or negative.
    pub(super) fn number(&self) -> Option<u64> {
        match *self.value.as_ref()? {
            Value::Int32(n) | Value::Sint32(n) | Value::Sfixed32(n) => n.try_into().ok(),
            Value::Int64(n) | Value::Sint64(n) | Value::Sfixed64(n) => n.try_into().ok(),
            Value::Uint32(n) | Value::Fixed32(n) => Some(n.into()),
            Value::Uint64(n) | Value::Fixed64(n) => Some(n),
            _ => None,
        }
    }
}

/// Reader of the messages of a file.
pub(super) struct Messages<R> {
    from: R,
    buffer: Vec<u8>,
}

impl<R: Read> Messages<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, buffer: Vec::new() }
    }

    /// Returns the next message, or `None` at the end of the file.
    ///
    /// # Errors
    /// Returns what is wrong with the file: it cannot be read, ends within a message, or has
    /// something else than this message.
    pub(super) fn next<M: Message + Default>(&mut self) -> Result<Option<M>, String> {
        let Some(length) = self.length()? else { return Ok(None) };
        self.buffer.clear();
        let read = (&mut self.from).take(length as u64).read_to_end(&mut self.buffer);
        if read.map_err(|error| error.to_string())? < length {
            return Err("the file ends within it: it was cut off; write the file again".to_owned());
        }
        M::decode(self.buffer.as_slice()).map(Some).map_err(|error| {
            format!(
                "it is no message of Chakra's schema {VERSION} ({error}); expected a Chakra trace"
            )
        })
    }

    /// Reads the length of a message, a number in groups of seven bits.
    fn length(&mut self) -> Result<Option<usize>, String> {
        let mut length = 0usize;
        for shift in (0..35).step_by(7) {
            let mut byte = [0];
            if self.from.read(&mut byte).map_err(|error| error.to_string())? == 0 {
                return match shift {
                    0 => Ok(None),
                    _ => {
                        Err("the file ends within its length: it was cut off; write the file again"
                            .to_owned())
                    }
                };
            }
            length |= usize::from(byte[0] & 0x7f) << shift;
            if byte[0] & 0x80 == 0 {
                if length > MOST_BYTES {
                    break;
                }
                return Ok(Some(length));
            }
        }
        Err(format!("its length is more than {MOST_BYTES} bytes; expected a Chakra trace"))
    }
}

/// Writes a message behind its length.
pub(super) fn write(to: &mut dyn Write, message: &impl Message) -> io::Result<()> {
    to.write_all(&message.encode_length_delimited_to_vec())
}
