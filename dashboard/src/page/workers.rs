//! The page of workers: capabilities, leases, and quarantined devices.

use axum::response::Response;
use leptos::prelude::*;
use nightshift_protocol::api::{DeviceReading, QuarantineView, TableName, WorkerView};
use nightshift_protocol::machine::DeviceOffer;

use crate::actions;
use crate::address::Address;
use crate::format::{bytes, count, counted, milliseconds, percent, sentence, when};
use crate::meter;
use crate::page::files;
use crate::shell::{Live, Page, Section};
use crate::table;
use crate::visitor::Visitor;
use crate::who::Who;

/// `GET /workers`.
pub(crate) async fn show(visitor: Visitor) -> Response {
    let page = async {
        let workers = visitor.client.workers().await?;
        let quarantined = visitor.client.quarantined_devices().await?;
        Ok(page(&Address::parse(&visitor.address), &workers, &quarantined, &visitor.who))
    };
    visitor.answer(page.await)
}

/// The page.
fn page(address: &Address, workers: &[WorkerView], quarantined: &[QuarantineView], who: &Who) -> Page {
    let shown = address.get("show").unwrap_or_default();
    let choices = [("", "All"), ("alive", "Active"), ("silent", "Silent")].map(|(value, label)| {
        let number = workers.iter().filter(|worker| is_shown(value, worker)).count();
        (value, format!("{label} {number}"))
    });
    let rows =
        workers.iter().filter(|worker| is_shown(shown, worker)).map(|worker| row(worker, who)).collect::<Vec<_>>();
    let leases: u64 = workers.iter().map(|worker| worker.leases).sum();
    let alive = workers.iter().filter(|worker| !worker.silent).count();
    let summary = format!(
        "{alive} of {} active, {} being carried out",
        counted(to_u64(workers.len()), "worker", "workers"),
        counted(leases, "step", "steps")
    );
    let content = if workers.is_empty() {
        view! {
            <section class="empty">
                <h2>"No worker yet"</h2>
                <p>"Steps that need a machine wait. Start a worker on one: "<code>"nightshift work --server URL"</code></p>
            </section>
        }
        .into_any()
    } else {
        view! {
            <p class="quiet">{summary}</p>
            {table::chips(address, "show", "Which workers", &choices)}
            <div class="scroll" tabindex="0">
                <table class="list">
                    <thead>
                        <tr>
                            <th scope="col">"Worker"</th><th scope="col">"State"</th><th scope="col">"Last heard of"</th>
                            <th scope="col" class="number">"Slots in use"</th><th scope="col">"Devices"</th>
                            <th scope="col">"Machine"</th><th scope="col">"Version"</th><th scope="col">"Actions"</th>
                        </tr>
                    </thead>
                    <tbody>{rows}</tbody>
                </table>
            </div>
            {files::links("Workers", TableName::Workers, files::kept(address, &["show"]))}
        }
        .into_any()
    };
    Page::new("Workers", view! { <h1>"Workers"</h1>{quarantine(quarantined, who)}{content} })
        .section(Section::Workers)
        .list()
        .live(Live::Everything)
}

fn is_shown(shown: &str, worker: &WorkerView) -> bool {
    match shown {
        "alive" => !worker.silent,
        "silent" => worker.silent,
        _ => true,
    }
}

fn to_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn row(worker: &WorkerView, who: &Who) -> impl IntoView + use<> {
    let (state, class) = match (worker.silent, worker.draining, worker.leases) {
        (true, ..) => ("silent", "tag failed"),
        (false, true, _) => ("draining", "tag paused"),
        (false, false, 0) => ("idle", "tag"),
        (false, false, _) => ("working", "tag completed"),
    };
    let actions = (!worker.silent && !worker.embedded).then(|| actions::of_worker(who, worker));
    view! {
        <tr data-row="" data-key=worker.id.to_string()>
            <th scope="row">
                <span id=worker.id.to_string() tabindex="-1">{worker.name.clone()}</span>" "
                {worker.embedded.then(|| view! { <span class="tag" title="lives in the server's process">"embedded"</span> })}
            </th>
            <td><span class=class>{state}</span></td>
            <td>{when(worker.last_seen_at)}</td>
            <td class="number progress">{used(worker)}</td>
            <td>{devices(worker)}</td>
            <td>{machine(worker)}</td>
            <td>{worker.version.clone()}</td>
            <td>{actions}</td>
        </tr>
    }
}

/// Steps in its hands, of as many as it could have: those without a device, and those on devices.
fn used(worker: &WorkerView) -> impl IntoView + use<> {
    let on_devices: u64 = worker.offers.devices.iter().map(|device| u64::from(device.shared_slots.max(1))).sum();
    let slots = u64::from(worker.offers.cpu_slots) + on_devices;
    let words = format!("{} of {}", count(worker.leases), count(slots));
    view! { {words}{meter::meter(worker.leases.min(slots), 0, slots, "slots in use")} }
}

fn devices(worker: &WorkerView) -> impl IntoView + use<> {
    let reading = |number: u32| worker.readings.iter().find(|reading| reading.device == number);
    let entries = worker.offers.devices.iter();
    let entries = entries.map(|offer| device(offer, reading(offer.index), worker.silent)).collect::<Vec<_>>();
    let slots = counted(u64::from(worker.offers.cpu_slots), "slot without a device", "slots without a device");
    view! { <ul class="plain">{entries}<li class="quiet">{slots}</li></ul> }
}

fn device(device: &DeviceOffer, reading: Option<&DeviceReading>, is_silent: bool) -> impl IntoView + use<> {
    let capability = device.compute_capability.map(|capability| format!(", compute capability {capability}"));
    let facts = format!("{}{}", bytes(device.memory_bytes), capability.unwrap_or_default());
    let quarantine = device.quarantine.as_ref().map(|quarantine| {
        view! { " "<span class="tag failed" title=quarantine.reason.clone()>"quarantined"</span> }
    });
    // Readings of a lost worker are outdated.
    let reading = reading.filter(|_| !is_silent).map(|reading| {
        let temperature =
            reading.temperature_c.map(|degrees| view! { <span class="measured">{degrees}" °C"</span>", " });
        let used = if reading.over_ms == 0 { 0.0 } else { share(reading.busy_ms, reading.over_ms) };
        let words = format!("{} in use over the last {}", percent(Some(used)), milliseconds(reading.over_ms));
        let bar = meter::meter(reading.busy_ms, 0, reading.over_ms, "time with a step on it");
        view! { <div class="quiet progress">{temperature}{words}{bar}</div> }.into_any()
    });
    view! {
        <li>
            {format!("{} {}", device.index, device.name)}" "<span class="quiet">{facts}</span>{quarantine}
            {reading}
        </li>
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

fn machine(worker: &WorkerView) -> impl IntoView + use<> {
    let machine = &worker.offers.machine;
    let gpus = machine
        .gpus
        .iter()
        .map(|gpu| {
            let text = format!(
                "GPU {}: {}, driver {}, CUDA {}",
                gpu.index, gpu.name, gpu.driver_version, gpu.cuda_driver_version
            );
            view! { <li>{text}</li> }
        })
        .collect::<Vec<_>>();
    let compilers = [machine.cpp_toolchain.as_ref(), machine.cuda_toolchain.as_ref()];
    let compilers = compilers.into_iter().flatten().map(|compiler| view! { <li>{compiler.version.clone()}</li> });
    let compilers = compilers.collect::<Vec<_>>();
    let list = |names: Vec<String>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let tools = list(worker.offers.tools.iter().map(|tool| tool.as_str().to_owned()).collect());
    let labels = list(worker.offers.labels.iter().map(|label| label.as_str().to_owned()).collect());
    view! {
        <details>
            <summary>{machine.processor.clone()}", "{machine.cores}" cores"</summary>
            <ul class="plain">
                <li>{machine.host.clone()}", "{machine.os.clone()}", "{bytes(machine.memory_bytes)}</li>
                {compilers}
                {gpus}
                <li>"Isolation: "{machine.sandbox.summary()}</li>
                <li>"Tools: "{tools}</li>
                <li>"Labels: "{labels}</li>
            </ul>
        </details>
    }
}

fn quarantine(devices: &[QuarantineView], who: &Who) -> Option<impl IntoView + use<>> {
    let entries = devices
        .iter()
        .map(|device| {
            let released = device.released_at.map(|at| {
                let by = device.released_by.clone().unwrap_or_else(|| "an unknown user".to_owned());
                view! { <p class="quiet">"Asked to be tested again by "{by}" "{when(at)}</p> }
            });
            let release = device.released_at.is_none().then(|| actions::of_device(who, device));
            view! {
                <li data-key=device.device.clone()>
                    <strong>{device.name.clone()}" "{device.number}</strong>" of "{device.worker_name.clone()}": "
                    {sentence(device.quarantine.reason.clone())}" "<code>{device.quarantine.code.clone()}</code>" "
                    {device.quarantine.since.map(when)}
                    {released}
                    {release}
                </li>
            }
        })
        .collect::<Vec<_>>();
    (!entries.is_empty()).then(|| {
        view! {
            <section class="notice bad">
                <strong>"Devices on which nothing may run"</strong>
                <ul class="plain">{entries}</ul>
            </section>
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(reading: Option<DeviceReading>, is_silent: bool) -> String {
        let offer = DeviceOffer {
            index: 1,
            target: nightshift_protocol::task::Target::Cuda,
            name: "NVIDIA H200".to_owned(),
            uuid: None,
            compute_capability: None,
            memory_bytes: 1 << 30,
            shared_slots: 4,
            quarantine: None,
        };
        Owner::new().with(|| device(&offer, reading.as_ref(), is_silent).to_html())
    }

    fn text(html: &str) -> String {
        html.replace("<!>", "")
    }

    #[test]
    fn a_device_says_how_hot_it_is_and_how_much_of_its_time_it_is_used() {
        let reading = DeviceReading { device: 1, temperature_c: Some(61), busy_ms: 1_800_000, over_ms: 3_600_000 };
        let told = text(&html(Some(reading), false));
        assert!(told.contains("61 °C") && told.contains("50 % in use over the last 1 h 00 min"), "{told}");
        let cool = text(&html(Some(DeviceReading { temperature_c: None, over_ms: 0, busy_ms: 0, ..reading }), false));
        assert!(!cool.contains("°C") && cool.contains("0 % in use") && !cool.contains("NaN"), "{cool}");
    }

    #[test]
    fn what_a_worker_said_that_is_gone_is_no_news_of_its_devices() {
        let reading = DeviceReading { device: 1, temperature_c: Some(61), busy_ms: 1, over_ms: 2 };
        assert!(!html(Some(reading), true).contains("in use") && !html(None, false).contains("in use"));
    }
}
