//! The captured output of a child: read without blocking and kept up to a limit.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes of one read.
const CHUNK_BYTES: usize = 16 * 1024;

/// One output stream of a child.
#[derive(Debug)]
pub struct Capture<R> {
    stream: Option<R>,
    kept: Vec<u8>,
    limit_bytes: usize,
    exceeded: bool,
}

impl<R: Read + AsFd> Capture<R> {
    /// Captures a stream and makes it non-blocking.
    pub fn new(stream: R, limit_bytes: usize) -> std::io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&stream)?;
        rustix::fs::fcntl_setfl(&stream, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(Self { stream: Some(stream), kept: Vec::new(), limit_bytes, exceeded: false })
    }

    /// Returns the descriptor to poll; none after the end of the stream.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(AsFd::as_fd)
    }

    /// Reads the available bytes. Beyond the limit it stops reading for good, so that a flood of output costs no memory.
    pub fn pump(&mut self) {
        let mut chunk = [0_u8; CHUNK_BYTES];
        while let Some(stream) = self.stream.as_mut() {
            match stream.read(&mut chunk) {
                Ok(0) => self.stream = None,
                Ok(count) => {
                    let room = self.limit_bytes - self.kept.len();
                    self.kept.extend_from_slice(chunk.get(..count.min(room)).unwrap_or_default());
                    if count > room {
                        self.exceeded = true;
                        self.stream = None;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.stream = None,
            }
        }
    }

    /// Returns whether the output exceeded the limit.
    pub fn exceeded(&self) -> bool {
        self.exceeded
    }

    /// Returns the captured bytes.
    pub fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// Removes and returns the captured bytes.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.kept)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn output_beyond_the_limit_is_cut_and_reported() {
        let (mut writer, reader) = UnixStream::pair().unwrap();
        let mut capture = Capture::new(reader, 10).unwrap();
        writer.write_all(b"0123456789").unwrap();
        capture.pump();
        assert!(!capture.exceeded());
        writer.write_all(b"x").unwrap();
        capture.pump();
        assert!(capture.exceeded());
        assert_eq!(capture.take(), b"0123456789");
    }

    #[test]
    fn an_empty_stream_does_not_block() {
        let (_writer, reader) = UnixStream::pair().unwrap();
        let mut capture = Capture::new(reader, 10).unwrap();
        capture.pump();
        assert_eq!(capture.kept(), b"");
    }
}
