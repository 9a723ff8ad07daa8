//! Reads temperature and usage of devices for display. Heartbeats carry the readings but never wait for a driver.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nightshift_protocol::api::DeviceReading;
use nightshift_protocol::machine::Offers;
use nightshift_protocol::task::Target;

use super::slots::Slots;
use crate::gpu::DeviceHealthMonitor;

/// Interval of the readings.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Folder of the system's thermal zones.
const THERMAL_ZONES: &str = "/sys/class/thermal";
/// Types of the zones of a whole processor.
const PROCESSOR_ZONES: [&str; 3] = ["x86_pkg_temp", "cpu-thermal", "cpu_thermal"];
/// Maximum number of zones to read.
const MAX_ZONES: usize = 64;

/// The readings for the next heartbeat.
#[derive(Debug)]
pub(super) struct Readings {
    /// Numbers of the devices that are the machine itself.
    pub(super) processors: Vec<u32>,
    news: Mutex<Option<Vec<DeviceReading>>>,
}

impl Readings {
    /// Creates readings for the offered devices.
    pub(super) fn new(offers: &Offers) -> Self {
        let processors = offers.devices.iter().filter(|device| device.target == Target::Cpu);
        Self { processors: processors.map(|device| device.index).collect(), news: Mutex::default() }
    }

    /// Takes the latest readings. A lost heartbeat loses them, but newer ones follow soon.
    pub(super) fn take(&self) -> Option<Vec<DeviceReading>> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn put(&self, slots: &Slots, temperatures: &BTreeMap<u32, u32>) {
        let in_ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let readings = slots.uses(Instant::now()).into_iter().map(|(device, used, of)| DeviceReading {
            device,
            temperature_c: temperatures.get(&device).copied(),
            busy_ms: in_ms(used),
            over_ms: in_ms(of),
        });
        *self.news.lock().unwrap_or_else(PoisonError::into_inner) = Some(readings.collect());
    }
}

/// Returns the known temperatures in degrees Celsius by device number. Blocks.
pub(super) fn temperatures(monitor: Option<&DeviceHealthMonitor>, processors: &[u32]) -> BTreeMap<u32, u32> {
    let mut temperatures = monitor.map(DeviceHealthMonitor::temperatures).unwrap_or_default();
    if let Some(of_processor) = of_processor(Path::new(THERMAL_ZONES)) {
        temperatures.extend(processors.iter().map(|device| (*device, of_processor)));
    }
    temperatures
}

/// Returns the temperature of the hottest processor.
fn of_processor(zones: &Path) -> Option<u32> {
    let zones = std::fs::read_dir(zones).ok()?.take(MAX_ZONES).filter_map(Result::ok);
    let read = |path: &Path, name: &str| std::fs::read_to_string(path.join(name)).ok();
    zones
        .filter_map(|zone| {
            let kind = read(&zone.path(), "type")?;
            let millidegrees: u32 = read(&zone.path(), "temp")?.trim().parse().ok()?;
            PROCESSOR_ZONES.contains(&kind.trim()).then_some(millidegrees / 1_000)
        })
        .max()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_as_hot_as_its_hottest_zone() {
        let folder = tempfile::tempdir().unwrap();
        for (name, kind, temp) in [
            ("thermal_zone0", "acpitz", "90000\n"),
            ("thermal_zone1", "x86_pkg_temp\n", "61500\n"),
            ("thermal_zone2", "x86_pkg_temp\n", "58000\n"),
            ("thermal_zone3", "x86_pkg_temp\n", "-1\n"),
        ] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join("type"), kind).unwrap();
            std::fs::write(folder.path().join(name).join("temp"), temp).unwrap();
        }
        assert_eq!(of_processor(folder.path()), Some(61));
        assert_eq!(of_processor(&folder.path().join("nowhere")), None);
    }
}
