//! Tensors in the evaluator's own memory on the host.

use std::ops::Range;
use std::sync::Arc;

use crate::element::Element;

/// Elements that are looked at together: they stay in the first cache.
pub(crate) const BLOCK: usize = 1024;

/// Elements of one task of the thread pool.
pub(crate) const PART: usize = 1 << 18;

/// Elements in memory, wherever they lie.
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    /// Their representation.
    pub element: Element,
    /// Their bytes, little-endian.
    pub bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// Number of elements.
    #[must_use]
    pub fn elements(self) -> usize {
        self.bytes.len() / self.element.size_bytes()
    }

    /// Returns the bytes of some elements.
    pub(crate) fn part(self, part: Range<usize>) -> &'a [u8] {
        let width = self.element.size_bytes();
        self.bytes.get(part.start * width..part.end * width).unwrap_or_default()
    }

    /// Returns one element as a 64-bit float.
    pub(crate) fn value(self, index: usize) -> f64 {
        let mut value = [0.0];
        self.element.widen(self.part(index..index + 1), &mut value);
        value[0]
    }

    /// Returns all elements as 64-bit floats.
    #[must_use]
    pub fn to_f64(self) -> Vec<f64> {
        let mut values = vec![0.0; self.elements()];
        self.element.widen(self.bytes, &mut values);
        values
    }
}

/// A tensor that never changes; a copy shares its memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostTensor {
    element: Element,
    bytes: Arc<Vec<u8>>,
}

impl HostTensor {
    /// Takes elements by their bytes.
    #[must_use]
    pub fn new(element: Element, bytes: Vec<u8>) -> Self {
        Self { element, bytes: Arc::new(bytes) }
    }

    /// Writes values in a representation.
    #[must_use]
    pub fn from_f64(element: Element, values: &[f64]) -> Self {
        let mut bytes = vec![0; values.len() * element.size_bytes()];
        element.narrow(values, &mut bytes);
        Self::new(element, bytes)
    }

    /// Returns its elements.
    #[must_use]
    pub fn view(&self) -> TensorView<'_> {
        TensorView { element: self.element, bytes: &self.bytes }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Writes the values in another representation.
    pub(crate) fn write_as(&self, element: Element, bytes: &mut [u8]) {
        if element == self.element {
            let length = bytes.len().min(self.bytes.len());
            bytes[..length].copy_from_slice(&self.bytes[..length]);
            return;
        }
        let mut values = [0.0; BLOCK];
        let (from, to) = (self.element.size_bytes() * BLOCK, element.size_bytes() * BLOCK);
        for (given, place) in self.bytes.chunks(from).zip(bytes.chunks_mut(to)) {
            let values = &mut values[..given.len() / self.element.size_bytes()];
            self.element.widen(given, values);
            element.narrow(values, place);
        }
    }

    /// Returns whether memory holds these values in another representation, bit by bit.
    pub(crate) fn equals_as(&self, view: TensorView<'_>) -> bool {
        if view.element == self.element {
            return view.bytes == self.bytes.as_slice();
        }
        if view.elements() != self.view().elements() {
            return false;
        }
        let mut expected = vec![0; view.bytes.len()];
        self.write_as(view.element, &mut expected);
        expected == view.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_is_written_in_another_representation_and_found_there() {
        let values: Vec<f64> = (0..3000).map(|i| f64::from(i) * 0.25).collect();
        let tensor = HostTensor::from_f64(Element::F32, &values);
        for element in [Element::F32, Element::F64] {
            let mut bytes = vec![0; values.len() * element.size_bytes()];
            tensor.write_as(element, &mut bytes);
            assert!(tensor.equals_as(TensorView { element, bytes: &bytes }));
            bytes[2999 * element.size_bytes() + element.size_bytes() - 1] ^= 1;
            assert!(!tensor.equals_as(TensorView { element, bytes: &bytes }));
        }
        assert!((tensor.view().value(2) - 0.5).abs() < f64::EPSILON);
        assert!(!tensor.equals_as(TensorView { element: Element::F64, bytes: &[] }));
    }
}
