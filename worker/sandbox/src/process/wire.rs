//! Messages over a private socket: one JSON text each, with descriptors beside it. Sockets that keep the borders of messages have
//! room for short ones; a long one, which only the parent sends, lies in a file without a name, whose descriptor comes last.

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

/// Largest message on the socket itself, in bytes.
const MAX_SHORT_BYTES: usize = 64 * 1024;

/// Largest message in bytes.
const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// Most descriptors beside one message, with that of its file.
const MAX_DESCRIPTORS: usize = 3;

/// What a socket carries of a long message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct InFile {
    /// Its size.
    bytes_in_file: usize,
}

/// Why a message could not be sent or received.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The operating system refused.
    #[error("the private socket failed: {0}")]
    Os(#[from] std::io::Error),
    /// It is not a message of this protocol.
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
    /// What it says.
    pub message: T,
    /// Descriptors that came with it.
    pub descriptors: Vec<OwnedFd>,
    /// Process that sent it, as the receiver numbers processes, when the socket asks for credentials.
    pub sender: Option<i32>,
}

/// A connected pair of sockets that keep the borders of messages. Both close when a program is executed.
pub fn pair() -> std::io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one message. Fails when the other side is gone; never raises a signal.
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

/// Receives one short message; nothing when the other side is gone. Blocks unless a message is there.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> Result<Option<Received<T>>, WireError> {
    let Some((text, descriptors, sender)) = receive_text(socket)? else { return Ok(None) };
    Ok(Some(Received { message: parsed(&text)?, descriptors, sender }))
}

/// The same of a message of any length. For those who believe the sender: the file of another one might never end.
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

/// The text of a long message.
fn read_file(descriptor: Option<OwnedFd>, bytes: usize) -> Result<Vec<u8>, WireError> {
    let file = descriptor.ok_or_else(|| WireError::Malformed("the file of a long message is missing".to_owned()))?;
    if bytes > MAX_MESSAGE_BYTES {
        return Err(WireError::Malformed(format!("a message of more than {MAX_MESSAGE_BYTES} bytes")));
    }
    let mut text = vec![0_u8; bytes];
    File::from(file).read_exact(&mut text)?;
    Ok(text)
}

/// Text, descriptors and sender of a message.
type Raw = (Vec<u8>, Vec<OwnedFd>, Option<i32>);

fn receive_text(socket: impl AsFd) -> Result<Option<Raw>, WireError> {
    let mut text = vec![0_u8; MAX_SHORT_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS), ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let outcome = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            // A peer that died with unread messages resets the connection: that is its end, too.
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
    fn a_message_arrives_whole_with_its_descriptor() {
        let (left, right) = pair().unwrap();
        let (extra, _other) = pair().unwrap();
        send(&left, &("hello", 7), &[extra.as_fd()]).unwrap();
        let received = receive::<(String, u32)>(&right).unwrap().unwrap();
        assert_eq!(received.message, ("hello".to_owned(), 7));
        assert_eq!(received.descriptors.len(), 1);
    }

    #[test]
    fn a_long_message_arrives_whole_and_its_file_is_none_of_its_descriptors() {
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
        // Nobody has to read what an unknown program hands over.
        send(&left, &"x".repeat(1 << 20), &[]).unwrap();
        assert!(matches!(receive::<String>(&right), Err(WireError::Malformed(_))));
    }

    #[test]
    fn the_end_of_the_other_side_is_not_a_message() {
        let (left, right) = pair().unwrap();
        drop(left);
        assert!(receive::<u32>(&right).unwrap().is_none());
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        let (left, right) = pair().unwrap();
        rustix::io::write(&left, b"{not json").unwrap();
        assert!(matches!(receive::<u32>(&right), Err(WireError::Malformed(_))));
    }
}
