//! Tensors in a file of the format `safetensors`.

use std::collections::{BTreeMap, HashMap};

use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, TensorView};

use crate::element::Element;
use crate::tensor::HostTensor;

/// One tensor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stored {
    /// Extents.
    pub(crate) shape: Vec<u64>,
    /// Elements.
    pub(crate) data: HostTensor,
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct TensorFile {
    /// Tensors by name.
    pub(crate) tensors: BTreeMap<String, Stored>,
    /// Metadata.
    pub(crate) metadata: BTreeMap<String, String>,
}

/// Representations of elements, as the format calls them.
const KINDS: [(Element, Dtype); 5] = [
    (Element::F32, Dtype::F32),
    (Element::F64, Dtype::F64),
    (Element::I32, Dtype::I32),
    (Element::F16, Dtype::F16),
    (Element::Bf16, Dtype::BF16),
];

impl TensorFile {
    /// The bytes of the file.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, SafeTensorError> {
        let described: Vec<(Dtype, Vec<usize>)> = self
            .tensors
            .values()
            .map(|stored| {
                let kind = KINDS.iter().find(|(element, _)| *element == stored.data.element());
                let shape = stored.shape.iter().map(|extent| usize::try_from(*extent).unwrap_or(usize::MAX));
                (kind.map_or(Dtype::U8, |(_, kind)| *kind), shape.collect())
            })
            .collect();
        let views = self.tensors.iter().zip(&described).map(|((name, stored), (kind, shape))| {
            Ok((name, TensorView::new(*kind, shape.clone(), stored.data.bytes())?))
        });
        let views = views.collect::<Result<Vec<_>, SafeTensorError>>()?;
        let metadata: HashMap<String, String> = self.metadata.clone().into_iter().collect();
        safetensors::serialize(views, Some(metadata))
    }

    /// Parses the bytes, or returns what is wrong with them.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| error.to_string())?;
        let metadata = header.metadata().iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect();
        let mut tensors = BTreeMap::new();
        for (name, view) in SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?.tensors() {
            let found = KINDS.iter().find(|(_, kind)| *kind == view.dtype());
            let (element, _) =
                found.ok_or_else(|| format!("{name}: its element type {:?} is not known", view.dtype()))?;
            let data = HostTensor::new(*element, view.data().to_vec());
            let shape = view.shape().iter().map(|extent| u64::try_from(*extent).unwrap_or(u64::MAX)).collect();
            tensors.insert(name, Stored { shape, data });
        }
        Ok(Self { tensors, metadata })
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
                ("a".to_owned(), stored(&[2], HostTensor::from_f64(Element::F32, &[1.5, -2.0]))),
                ("b".to_owned(), stored(&[], HostTensor::from_f64(Element::F64, &[0.1]))),
                ("c/d".to_owned(), stored(&[1, 3], HostTensor::from_f64(Element::I32, &[1.0, 2.0, 3.0]))),
                ("e".to_owned(), stored(&[1], HostTensor::from_f64(Element::Bf16, &[1.0]))),
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
