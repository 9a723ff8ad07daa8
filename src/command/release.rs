//! `nightshift release`: a quarantined GPU is tested, and used again if it passes.

use nightshift_client::Client;
use nightshift_protocol::api::QuarantineView;
use nightshift_protocol::error::ExitCode;

use crate::args::Release;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::Result;
use crate::output::printable;
use crate::resolve;

pub(super) async fn run(context: &Context, args: Release) -> Result<ExitCode> {
    Session::with(context, Purpose::Ask, async |session| {
        let device = meant(&session.client, &args.device).await?;
        let released = session.client.release_device(&device.device).await?;
        let output = context.output;
        if output.is_json() {
            output.json(&released)?;
        } else {
            output.text(&printable(&format!(
                "{}  {} of {}: its worker tests it with its next heartbeat; `nightshift list workers` shows what came out",
                released.device, released.name, released.worker_name
            )))?;
        }
        Ok(ExitCode::Ok)
    })
    .await
}

/// The quarantined device whose name begins so.
async fn meant(client: &Client, text: &str) -> Result<QuarantineView> {
    let devices = client.quarantined_devices().await?;
    let begins = |device: &QuarantineView| {
        let bare = device.device.split_once('-').map_or("", |(_, digits)| digits);
        !text.is_empty() && (device.device.starts_with(text) || bare.starts_with(text))
    };
    let found = devices.into_iter().filter(begins).collect();
    let shown_by = "nightshift list workers";
    resolve::only(text, found, |device| device.device.clone(), "device.not_found", "quarantined device", shown_by)
}
