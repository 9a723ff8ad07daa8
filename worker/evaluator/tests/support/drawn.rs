//! Tests of the kernels that draw values in the memory of a device.

use std::sync::Arc;

use nightshift_evaluator::device::SharedMemory;
use nightshift_evaluator::draw::{Draw, Few, InputKind};
use nightshift_evaluator::layout::{Layout, Placed, Region, Representation};
use nightshift_evaluator::memory::{DeviceMemory, Memory as _};
use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor, DType, Distribution};

use crate::GROUND;

/// Elements of a drawn tensor: no multiple of what a kernel draws together.
const DRAWN: u64 = 40_003;

/// One tensor in the memory of the device.
struct DrawnTensor {
    memory: DeviceMemory,
    shared: SharedMemory,
    place: Placed,
    tensor: ConcreteTensor,
}

impl DrawnTensor {
    fn new(dtype: DType, distribution: &Distribution, double: bool) -> Self {
        let tensor =
            ConcreteTensor { name: "x".to_owned(), dtype, shape: vec![DRAWN], distribution: distribution.clone() };
        let inputs = vec![tensor.clone()];
        let shapes = ConcreteShapes { name: "default".to_owned(), inputs, params: Vec::new(), outputs: Vec::new() };
        let representation = Representation { double, torch: None, workspace: false, reuses_inputs: false };
        let layout = Layout::new(&shapes, representation, 1);
        let memory = DeviceMemory::new(Arc::clone(&GROUND.gpu)).unwrap();
        let shared = memory.allocate(layout.total_bytes).unwrap();
        let place = layout.call(0).inputs[0].clone();
        Self { memory, shared, place, tensor }
    }

    fn draw(&mut self, draw: Draw) -> Vec<f64> {
        self.memory.draw(&mut self.shared, &self.place, &self.tensor, draw).unwrap();
        self.memory.read(&self.shared, &self.place).unwrap().view().to_f64()
    }
}

fn drawn(dtype: DType, distribution: &Distribution, draw: Draw) -> Vec<f64> {
    DrawnTensor::new(dtype, distribution, false).draw(draw)
}

#[expect(clippy::cast_precision_loss, reason = "counts of elements are small")]
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

pub(crate) fn values_drawn_on_a_device_follow_their_distribution_and_are_independent() {
    let normal = Distribution::Normal { mean: 2.0, std: 0.5 };
    let uniform = Distribution::Uniform { low: -1.0, high: 3.0 };
    for (distribution, centre, variance) in [(normal, 2.0, 0.25), (uniform.clone(), 1.0, 16.0 / 12.0)] {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
            let values = drawn(dtype, &distribution, Draw::declared(7));
            assert_eq!(values.len(), 40_003);
            assert!((mean(&values) - centre).abs() < 0.03, "{dtype:?} {distribution:?}: {}", mean(&values));
            for distance in 1..=8 {
                let products =
                    values.iter().zip(&values[distance..]).map(|(a, b)| (a - centre) * (b - centre) / variance);
                let correlation = mean(&products.collect::<Vec<_>>());
                assert!(correlation.abs() < 0.03, "{dtype:?} {distribution:?} at {distance}: {correlation}");
            }
            let squares: Vec<f64> = values.iter().map(|value| (value - centre).powi(2)).collect();
            assert!((mean(&squares) / variance - 1.0).abs() < 0.03, "{dtype:?} {distribution:?}: {}", mean(&squares));
        }
    }
    let values = drawn(DType::F32, &uniform, Draw::declared(7));
    assert!(values.iter().all(|value| (-1.0..3.0).contains(value)));
    assert_ne!(values, drawn(DType::F32, &uniform, Draw::declared(8)));
    let labels = Distribution::Steps { low: -1.0, high: 3.0, step: 2.0 };
    for dtype in [DType::F32, DType::I32, DType::Bf16] {
        let values = drawn(dtype, &labels, Draw { kind: InputKind::ScaledUp, ..Draw::declared(7) });
        assert!(values.iter().all(|value| [-1.0, 1.0].contains(value)) && mean(&values).abs() < 0.03, "{dtype:?}");
    }
    let whole = drawn(DType::I32, &Distribution::Uniform { low: 0.0, high: 10.0 }, Draw::declared(7));
    assert!(whole.iter().all(|value| (0.0..10.0).contains(value) && value.fract() == 0.0));
    assert!((mean(&whole) - 4.5).abs() < 0.06, "{}", mean(&whole));
}

pub(crate) fn values_drawn_on_a_device_change_as_a_draw_says() {
    let uniform = Distribution::Uniform { low: 1.0, high: 2.0 };
    let of = |draw: Draw| drawn(DType::F32, &uniform, draw);
    let usual = Draw::declared(7);
    let flipped = of(Draw { kind: InputKind::SignsFlipped, ..usual });
    let negative = flipped.iter().filter(|value| **value < 0.0).count();
    assert!((19_000..21_000).contains(&negative), "{negative}");
    let scaled = of(Draw { kind: InputKind::ScaledUp, scale: 10.0, ..usual });
    assert!(scaled.iter().all(|value| (30.0..=60.0).contains(value)));
    let few = Few { seed: 9, one_in: 50, scale: 8.0 };
    let changed =
        of(usual).into_iter().zip(of(usual.with_few(few))).filter(|(one, other)| one.total_cmp(other).is_ne());
    let others: Vec<f64> = changed.map(|(_, other)| other).collect();
    assert!((700..900).contains(&others.len()), "{}", others.len());
    assert!(others.iter().all(|other| (8.0..=16.0).contains(other)));
    let coarse = of(usual.rounded(13));
    let largest = of(usual).iter().zip(&coarse).map(|(exact, coarse)| (exact - coarse).abs()).fold(0.0, f64::max);
    assert!(largest > 2e-4 && largest <= 2.0_f64.powi(-11), "{largest}");
    // The truth is given what the program is given.
    for dtype in [DType::F32, DType::Bf16] {
        let double = DrawnTensor::new(dtype, &uniform, true).draw(usual);
        assert_eq!(double, drawn(dtype, &uniform, usual), "{dtype:?}");
    }
}

pub(crate) fn values_drawn_on_a_device_are_found_again() {
    for distribution in [Distribution::default(), Distribution::Steps { low: 0.0, high: 9.0, step: 1.0 }] {
        let mut tensor = DrawnTensor::new(DType::F32, &distribution, false);
        tensor.draw(Draw::declared(7));
        let holds = |tensor: &DrawnTensor, seed| {
            let DrawnTensor { memory, shared, place, tensor } = tensor;
            memory.holds(shared, place, tensor, Draw::declared(seed)).unwrap()
        };
        assert!(holds(&tensor, 7) && !holds(&tensor, 8), "{distribution:?}");
        let Region { offset, size } = tensor.place.region;
        let last = Region { offset: offset + size - 4, size: 4 };
        tensor.memory.fill(&mut tensor.shared, last, f32::NAN.to_bits()).unwrap();
        assert!(!holds(&tensor, 7), "{distribution:?}: the last element changed");
    }
}
