//! A table as a Parquet file. Each column of the table is an optional, typed column of the file.
//! The metadata key `provenance` holds the provenance.
//!
//! Counts are `INT64` (logical type unsigned, 64 bit), measured values `DOUBLE`, and text
//! `BYTE_ARRAY` (String). The file has one row group, dictionaries, and no compression.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};

use super::Table;
use super::table::{Cells, Column};

/// Metadata key of the file under which the provenance is stored as JSON.
pub(super) const PROVENANCE: &str = "provenance";

impl Table {
    /// Writes the table as a Parquet file.
    ///
    /// # Errors
    /// Returns an error if writing failed.
    pub fn parquet(&self, to: &mut dyn Write) -> io::Result<()> {
        // The file is encoded in memory first, because the encoder needs a target that can be sent
        // to another thread.
        let file = self.encoded().map_err(io::Error::other)?;
        to.write_all(&file)
    }

    /// Returns an error if this build cannot write Parquet files.
    ///
    /// # Errors
    /// None in this build.
    pub const fn check_parquet() -> io::Result<()> {
        Ok(())
    }

    fn encoded(&self) -> Result<Vec<u8>, ParquetError> {
        let columns: Vec<Column> = self.columns.iter().cloned().map(Column::typed).collect();
        let fields = columns.iter().map(Column::field).collect::<Result<_, _>>()?;
        let schema = Type::group_type_builder("squall").with_fields(fields).build()?;
        let made = self.provenance.as_ref().map(serde_json::to_string).transpose();
        let made = made.map_err(|error| ParquetError::External(error.into()))?;
        let properties = WriterProperties::builder()
            .set_created_by(concat!("squall ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(
                made.map(|made| vec![KeyValue::new(PROVENANCE.to_owned(), made)]),
            )
            .build();
        let mut file =
            SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
        let mut group = file.next_row_group()?;
        for column in &columns {
            // There are as many columns as fields in the schema.
            let Some(mut writer) = group.next_column()? else { break };
            column.write(&mut writer)?;
            writer.close()?;
        }
        group.close()?;
        file.into_inner()
    }
}

impl Column {
    fn typed(self) -> Self {
        Self { cells: self.cells.typed(), ..self }
    }

    fn field(&self) -> Result<TypePtr, ParquetError> {
        let (physical, logical) = match self.cells {
            Cells::Whole(_) => (Physical::INT64, Some(LogicalType::integer(64, false))),
            Cells::Real(_) => (Physical::DOUBLE, None),
            Cells::Word(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let field = Type::primitive_type_builder(&self.name, physical);
        let field = field.with_logical_type(logical).with_repetition(Repetition::OPTIONAL);
        field.build().map(Arc::new)
    }

    fn write(&self, to: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        match &self.cells {
            // The bits are those of an unsigned number, as the logical type says.
            Cells::Whole(cells) => fill::<Int64Type, _>(to, cells, |cell| cell.cast_signed()),
            Cells::Real(cells) => fill::<DoubleType, _>(to, cells, |cell| *cell),
            Cells::Word(cells) => {
                fill::<ByteArrayType, _>(to, cells, |cell| ByteArray::from(cell.as_str()))
            }
        }
    }
}

/// Writes the cells of a column that are not empty, and the definition levels, which mark the empty
/// ones.
fn fill<T: DataType, C>(
    to: &mut SerializedColumnWriter<'_>,
    cells: &[Option<C>],
    value: fn(&C) -> T::T,
) -> Result<(), ParquetError> {
    let there: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    let values: Vec<T::T> = cells.iter().flatten().map(value).collect();
    to.typed::<T>().write_batch(&values, Some(&there), None)?;
    Ok(())
}
