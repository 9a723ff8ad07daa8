//! Messages over a private socket: one JSON text per message, with file descriptors.
//!
//! Packet sockets limit the size of a message. The parent sends a longer one in an anonymous file, whose descriptor comes
//! last.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Largest message in a packet of the socket, in bytes.
const MAX_SHORT_BYTES: usize = 64 * 1024;

/// Largest message in bytes.
const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// Maximum number of descriptors with one message, including that of its anonymous file.
const MAX_DESCRIPTORS: usize = 3;

/// The packet of a long message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct InFile {
    /// Size of the message in bytes.
    bytes_in_file: usize,
}

/// Why a message could not be sent or received.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The operating system refused.
    #[error("the private socket failed: {0}")]
    Os(#[from] std::io::Error),
    /// The bytes are no message of this protocol.
    #[error("not a message of the protocol: {0}")]
    Malformed(String),
}

impl From<rustix::io::Errno> for WireError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Os(errno.into())
    }
}

/// A received message.
#[derive(Debug)]
pub struct Received<T> {
    /// The message.
    pub message: T,
    /// Descriptors that came with the message.
    pub descriptors: Vec<OwnedFd>,
    /// Process id of the sender in the receiver's namespace, where the socket passes credentials.
    pub sender: Option<i32>,
}

/// Creates a connected pair of packet sockets. Both close when a program is executed.
pub fn pair() -> std::io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one message. Fails when the peer has closed its end; never raises a signal.
pub fn send<T: Serialize>(socket: impl AsFd, message: &T, descriptors: &[BorrowedFd<'_>]) -> Result<(), WireError> {
    let text = json(message)?;
    if text.len() > MAX_MESSAGE_BYTES {
        return Err(WireError::Malformed(format!("{} bytes are more than {MAX_MESSAGE_BYTES}", text.len())));
    }
    if text.len() <= MAX_SHORT_BYTES {
        return send_text(socket, &text, descriptors);
    }
    let mut file = File::from(memfd_create("nightshift-message", MemfdFlags::CLOEXEC)?);
    file.write_all(&text)?;
    file.rewind()?;
    let all: Vec<BorrowedFd<'_>> = descriptors.iter().copied().chain([file.as_fd()]).collect();
    send_text(socket, &json(&InFile { bytes_in_file: text.len() })?, &all)
}

fn json<T: Serialize>(message: &T) -> Result<Vec<u8>, WireError> {
    serde_json::to_vec(message).map_err(|error| WireError::Malformed(error.to_string()))
}

fn send_text(socket: impl AsFd, text: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), WireError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(WireError::Malformed("too many descriptors".to_owned()));
    }
    sendmsg(socket, &[IoSlice::new(text)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one message of at most one packet; none when the peer has closed its end. Blocks until a message arrives.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> Result<Option<Received<T>>, WireError> {
    let Some((text, descriptors, sender)) = receive_text(socket)? else { return Ok(None) };
    Ok(Some(Received { message: parsed(&text)?, descriptors, sender }))
}

/// Receives one message of any length. For trusted senders only: the file of an untrusted one might never end.
pub fn receive_from_parent<T: DeserializeOwned>(socket: impl AsFd) -> Result<Option<Received<T>>, WireError> {
    let Some((text, mut descriptors, sender)) = receive_text(socket)? else { return Ok(None) };
    let message = match serde_json::from_slice(&text) {
        Ok(InFile { bytes_in_file }) => parsed(&read_file(descriptors.pop(), bytes_in_file)?)?,
        Err(_) => parsed(&text)?,
    };
    Ok(Some(Received { message, descriptors, sender }))
}

fn parsed<T: DeserializeOwned>(text: &[u8]) -> Result<T, WireError> {
    serde_json::from_slice(text).map_err(|error| WireError::Malformed(error.to_string()))
}

/// Reads the text of a long message.
fn read_file(descriptor: Option<OwnedFd>, bytes: usize) -> Result<Vec<u8>, WireError> {
    let file = descriptor.ok_or_else(|| WireError::Malformed("the file of a long message is missing".to_owned()))?;
    if bytes > MAX_MESSAGE_BYTES {
        return Err(WireError::Malformed(format!("a message of more than {MAX_MESSAGE_BYTES} bytes")));
    }
    let mut text = vec![0_u8; bytes];
    File::from(file).read_exact(&mut text)?;
    Ok(text)
}

/// Text, descriptors and sender of a packet.
type Raw = (Vec<u8>, Vec<OwnedFd>, Option<i32>);

fn receive_text(socket: impl AsFd) -> Result<Option<Raw>, WireError> {
    let mut text = vec![0_u8; MAX_SHORT_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS), ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let outcome = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            // A peer that died with unread messages resets the connection. That is an end of the connection, too.
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            other => break other?,
        }
    };
    if outcome.bytes == 0 {
        return Ok(None);
    }
    if outcome.flags.contains(ReturnFlags::TRUNC) {
        return Err(WireError::Malformed(format!("a message of more than {MAX_SHORT_BYTES} bytes")));
    }
    let mut descriptors = Vec::new();
    let mut sender = None;
    for part in ancillary.drain() {
        match part {
            RecvAncillaryMessage::ScmRights(rights) => descriptors.extend(rights),
            RecvAncillaryMessage::ScmCredentials(credentials) => sender = Some(credentials.pid.as_raw_nonzero().get()),
            _ => {}
        }
    }
    text.truncate(outcome.bytes);
    Ok(Some((text, descriptors, sender)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_complete_with_its_descriptor() {
        let (left, right) = pair().unwrap();
        let (extra, _other) = pair().unwrap();
        send(&left, &("hello", 7), &[extra.as_fd()]).unwrap();
        let received = receive::<(String, u32)>(&right).unwrap().unwrap();
        assert_eq!(received.message, ("hello".to_owned(), 7));
        assert_eq!(received.descriptors.len(), 1);
    }

    #[test]
    fn a_long_message_arrives_complete_without_the_descriptor_of_its_file() {
        let (left, right) = pair().unwrap();
        let (extra, _other) = pair().unwrap();
        for length in [MAX_SHORT_BYTES - 2, MAX_SHORT_BYTES - 1, 1 << 20] {
            send(&left, &"x".repeat(length), &[extra.as_fd()]).unwrap();
            let received = receive_from_parent::<String>(&right).unwrap().unwrap();
            assert_eq!((received.message.len(), received.descriptors.len()), (length, 1));
        }
        assert!(matches!(send(&left, &"x".repeat(MAX_MESSAGE_BYTES), &[]), Err(WireError::Malformed(_))));
        rustix::io::write(&left, b"{\"bytes_in_file\":9}").unwrap();
        assert!(receive_from_parent::<String>(&right).unwrap_err().to_string().contains("missing"));
        // The receiver of an untrusted message reads no file.
        send(&left, &"x".repeat(1 << 20), &[]).unwrap();
        assert!(matches!(receive::<String>(&right), Err(WireError::Malformed(_))));
    }

    #[test]
    fn a_closed_peer_sends_no_message() {
        let (left, right) = pair().unwrap();
        drop(left);
        assert!(receive::<u32>(&right).unwrap().is_none());
    }

    #[test]
    fn malformed_bytes_are_refused() {
        let (left, right) = pair().unwrap();
        rustix::io::write(&left, b"{not json").unwrap();
        assert!(matches!(receive::<u32>(&right), Err(WireError::Malformed(_))));
    }
}
