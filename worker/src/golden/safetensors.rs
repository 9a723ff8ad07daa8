//! Tensors in a file of the format `safetensors`.

use std::collections::{BTreeMap, HashMap};

use nightshift_protocol::task::DType;
use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, TensorView};

use crate::inputs::TensorData;

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

/// Element types, as the format calls them.
const KINDS: [(DType, Dtype); 5] = [
    (DType::F32, Dtype::F32),
    (DType::F64, Dtype::F64),
    (DType::I32, Dtype::I32),
    (DType::F16, Dtype::F16),
    (DType::Bf16, Dtype::BF16),
];

impl TensorFile {
    /// The bytes of the file.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, SafeTensorError> {
        let bytes = self.tensors.values().map(|stored| {
            let (kind, width) = kind(&stored.data);
            let mut bytes = vec![0; stored.data.len() * width];
            stored.data.copy_to_bytes(stored.data.dtype(), &mut bytes);
            (kind, stored.shape.iter().map(|extent| usize::try_from(*extent).unwrap_or(usize::MAX)).collect(), bytes)
        });
        let bytes: Vec<(Dtype, Vec<usize>, Vec<u8>)> = bytes.collect();
        let views = self
            .tensors
            .keys()
            .zip(&bytes)
            .map(|(name, (kind, shape, bytes))| Ok((name, TensorView::new(*kind, shape.clone(), bytes)?)));
        let views = views.collect::<Result<Vec<_>, SafeTensorError>>()?;
        let metadata: HashMap<String, String> = self.metadata.clone().into_iter().collect();
        safetensors::serialize(views, Some(metadata))
    }

    /// What the bytes hold, or what is wrong with them.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| error.to_string())?;
        let metadata = header.metadata().iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect();
        let mut tensors = BTreeMap::new();
        for (name, view) in SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?.tensors() {
            let found = KINDS.iter().find(|(_, kind)| *kind == view.dtype());
            let (dtype, _) =
                found.ok_or_else(|| format!("{name}: its element type {:?} is not known", view.dtype()))?;
            let data = TensorData::read(*dtype, view.data());
            let shape = view.shape().iter().map(|extent| u64::try_from(*extent).unwrap_or(u64::MAX)).collect();
            tensors.insert(name, Stored { shape, data });
        }
        Ok(Self { tensors, metadata })
    }
}

fn kind(data: &TensorData) -> (Dtype, usize) {
    match data {
        TensorData::F32(_) => (Dtype::F32, 4),
        TensorData::F64(_) => (Dtype::F64, 8),
        TensorData::I32(_) => (Dtype::I32, 4),
        TensorData::F16(_) => (Dtype::F16, 2),
        TensorData::Bf16(_) => (Dtype::BF16, 2),
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
                ("a".to_owned(), stored(&[2], vec![1.5_f32, -2.0].into())),
                ("b".to_owned(), stored(&[], vec![0.1_f64].into())),
                ("c/d".to_owned(), stored(&[1, 3], vec![1_i32, 2, 3].into())),
                ("e".to_owned(), stored(&[1], TensorData::Bf16(vec![0x3F80].into()))),
            ]),
            metadata: BTreeMap::from([("task".to_owned(), "t".to_owned())]),
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let bytes = file().to_bytes().unwrap();
        assert_eq!(TensorFile::read(&bytes).unwrap(), file());
        let header = usize::try_from(u64::from_le_bytes(*bytes.first_chunk().unwrap())).unwrap();
        assert_eq!(header % 8, 0);
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let bytes = file().to_bytes().unwrap();
        for damaged in [&bytes[..4], &bytes[..40], &bytes[..bytes.len() - 1], b"12345678{}"] {
            assert!(TensorFile::read(damaged).is_err());
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(text.contains("\"shape\":[2]"));
        let wrong: Vec<u8> = text.replace("\"shape\":[2]", "\"shape\":[3]").into_bytes();
        assert!(TensorFile::read(&wrong).is_err());
    }
}
