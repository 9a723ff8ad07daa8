//! Tensors in a file, as `safetensors` lays them out: the length of a header, the header as JSON, and the bytes.

use std::collections::BTreeMap;

use nightshift_protocol::task::DType;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::inputs::TensorData;

/// Bytes of the length in front.
const LENGTH_BYTES: usize = 8;

/// Key of what is said beside the tensors.
const METADATA: &str = "__metadata__";

/// One tensor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stored {
    /// Extents.
    pub(crate) shape: Vec<u64>,
    /// Elements.
    pub(crate) data: TensorData,
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct TensorFile {
    /// Tensors by name.
    pub(crate) tensors: BTreeMap<String, Stored>,
    /// What is said beside them.
    pub(crate) metadata: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (usize, usize),
}

/// Names of element types, as the format has them.
const NAMES: [(DType, &str); 5] =
    [(DType::F32, "F32"), (DType::F64, "F64"), (DType::I32, "I32"), (DType::F16, "F16"), (DType::Bf16, "BF16")];

impl TensorFile {
    /// The bytes of the file.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut header = Map::from_iter([(METADATA.to_owned(), json!(self.metadata))]);
        let mut bytes = Vec::new();
        for (name, stored) in &self.tensors {
            let (dtype, width) = kind(&stored.data);
            let start = bytes.len();
            bytes.resize(start + stored.data.len() * width, 0);
            stored.data.copy_to_bytes(bytes.get_mut(start..).unwrap_or_default());
            let name_of = NAMES.iter().find(|(known, _)| *known == dtype).map_or("", |(_, name)| name);
            header.insert(
                name.clone(),
                json!({"dtype": name_of, "shape": stored.shape, "data_offsets": [start, bytes.len()]}),
            );
        }
        let mut header = Value::Object(header).to_string().into_bytes();
        // The bytes behind it are aligned.
        header.resize(header.len().next_multiple_of(LENGTH_BYTES), b' ');
        let length = u64::try_from(header.len()).unwrap_or(0).to_le_bytes();
        [&length[..], &header, &bytes].concat()
    }

    /// What the bytes hold, or what is wrong with them.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>().ok_or("it is too short")?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| "its header has no end")?;
        let (header, data) = rest.split_at_checked(length).ok_or("its header has no end")?;
        let header: Map<String, Value> = serde_json::from_slice(header).map_err(|error| error.to_string())?;
        let mut file = Self::default();
        for (name, value) in header {
            if name == METADATA {
                file.metadata = serde_json::from_value(value).map_err(|error| error.to_string())?;
                continue;
            }
            let Entry { dtype, shape, data_offsets: (start, end) } =
                serde_json::from_value(value).map_err(|error| format!("{name}: {error}"))?;
            let dtype = NAMES.iter().find(|(_, known)| *known == dtype).map(|(dtype, _)| *dtype);
            let dtype = dtype.ok_or_else(|| format!("{name}: its element type is not known"))?;
            let part = data.get(start..end).ok_or_else(|| format!("{name}: it lies outside of the file"))?;
            let elements = shape.iter().try_fold(1_u64, |product, extent| product.checked_mul(*extent));
            let size = elements.and_then(|elements| elements.checked_mul(dtype.size_bytes()));
            if size != u64::try_from(part.len()).ok() {
                return Err(format!("{name}: its bytes do not fit its shape"));
            }
            let data = TensorData::zeros(dtype, 0).read_alike(part);
            file.tensors.insert(name, Stored { shape, data });
        }
        Ok(file)
    }
}

fn kind(data: &TensorData) -> (DType, usize) {
    match data {
        TensorData::F32(_) => (DType::F32, 4),
        TensorData::F64(_) => (DType::F64, 8),
        TensorData::I32(_) => (DType::I32, 4),
        TensorData::F16(_) => (DType::F16, 2),
        TensorData::Bf16(_) => (DType::Bf16, 2),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    fn file() -> TensorFile {
        let stored = |shape: &[u64], data| Stored { shape: shape.to_vec(), data };
        TensorFile {
            tensors: BTreeMap::from([
                ("a".to_owned(), stored(&[2], TensorData::F32(vec![1.5, -2.0]))),
                ("b".to_owned(), stored(&[], TensorData::F64(vec![0.1]))),
                ("c/d".to_owned(), stored(&[1, 3], TensorData::I32(vec![1, 2, 3]))),
                ("e".to_owned(), stored(&[1], TensorData::Bf16(vec![0x3F80]))),
            ]),
            metadata: BTreeMap::from([("task".to_owned(), "t".to_owned())]),
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let bytes = file().to_bytes();
        assert_eq!(TensorFile::read(&bytes).unwrap(), file());
        let header = usize::try_from(u64::from_le_bytes(*bytes.first_chunk().unwrap())).unwrap();
        assert_eq!(header % 8, 0);
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let bytes = file().to_bytes();
        for damaged in [&bytes[..4], &bytes[..40], &bytes[..bytes.len() - 1], b"12345678{}"] {
            assert!(TensorFile::read(damaged).is_err());
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(text.contains("\"shape\":[2]"));
        let wrong: Vec<u8> = text.replace("\"shape\":[2]", "\"shape\":[3]").into_bytes();
        assert!(TensorFile::read(&wrong).is_err());
    }
}
