//! Messages over a private socket: one JSON text each, with descriptors beside it.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest message in bytes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 96 * 1024;

/// Most descriptors beside one message.
const MAX_DESCRIPTORS: usize = 2;

/// Why a message could not be sent or received.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
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
pub(crate) struct Received<T> {
    /// What it says.
    pub(crate) message: T,
    /// Descriptors that came with it.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// Process that sent it, as the receiver numbers processes, when the socket asks for credentials.
    pub(crate) sender: Option<i32>,
}

/// A connected pair of sockets that keep the borders of messages. Both close when a program is executed.
pub(crate) fn pair() -> std::io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one message. Fails when the other side is gone; never raises a signal.
pub(crate) fn send<T: Serialize>(
    socket: impl AsFd,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), WireError> {
    let text = serde_json::to_vec(message).map_err(|error| WireError::Malformed(error.to_string()))?;
    if text.len() > MAX_MESSAGE_BYTES {
        return Err(WireError::Malformed(format!("{} bytes are more than {MAX_MESSAGE_BYTES}", text.len())));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(WireError::Malformed("too many descriptors".to_owned()));
    }
    sendmsg(socket, &[IoSlice::new(&text)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one message; nothing when the other side is gone. Blocks unless a message is there.
pub(crate) fn receive<T: DeserializeOwned>(socket: impl AsFd) -> Result<Option<Received<T>>, WireError> {
    let mut text = vec![0_u8; MAX_MESSAGE_BYTES];
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
        return Err(WireError::Malformed(format!("a message of more than {MAX_MESSAGE_BYTES} bytes")));
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
    let message = serde_json::from_slice(text.get(..outcome.bytes).unwrap_or_default())
        .map_err(|error| WireError::Malformed(error.to_string()))?;
    Ok(Some(Received { message, descriptors, sender }))
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
