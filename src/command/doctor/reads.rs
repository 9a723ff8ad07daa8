//! Who may read campaigns on this machine without a token.

use super::Check;
use crate::compose::{OpenReads, is_shared_machine};
use crate::context::Context;

const NAME: &str = "reads without token";

pub(super) fn check(context: &Context) -> Check {
    match OpenReads::here(context) {
        OpenReads::Off => Check::ok(NAME, "off, as server.open_reads says"),
        OpenReads::OffAsShared => Check::ok(
            NAME,
            "off: other people use this machine; pages ask for the token in server.json, server.open_reads = true ends that",
        ),
        OpenReads::OnAsAlone => Check::ok(NAME, "on for loopback addresses: no other people were seen on this machine"),
        OpenReads::On if is_shared_machine() => Check::warning(
            NAME,
            "on, as server.open_reads says, and other people use this machine: all of them can read every campaign",
            "remove server.open_reads, or set it to false; pages then ask for the token in server.json",
        ),
        OpenReads::On => Check::ok(NAME, "on for loopback addresses, as server.open_reads says"),
    }
}
