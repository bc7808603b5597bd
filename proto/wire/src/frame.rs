//! Frames on a byte stream: a length (unsigned, 32 bits, little-endian), then a message.
//!
//! The helper uses the blocking functions; [`split`] is for a caller that fills a buffer itself.

use std::fmt;
use std::io::{self, Read, Write};

/// The longest message, in bytes, without its length prefix.
pub const MAX_FRAME: usize = 16 * 1024;
/// Bytes of the length prefix.
pub const PREFIX: usize = 4;

/// A stream that does not carry valid frames.
#[derive(Debug)]
pub enum FrameError {
    /// The prefix announces more than [`MAX_FRAME`] bytes.
    TooLong(usize),
    /// The prefix announces zero bytes: every message has at least one.
    Empty,
    /// The stream ended inside a frame.
    Truncated,
    /// Reading or writing failed.
    Io(io::Error),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(given) => {
                write!(f, "a frame of {given} bytes, the limit is {MAX_FRAME}")
            }
            Self::Empty => f.write_str("a frame without a byte"),
            Self::Truncated => f.write_str("the stream ended inside a frame"),
            Self::Io(_) => f.write_str("the stream could not be read or written"),
        }
    }
}

impl std::error::Error for FrameError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof { Self::Truncated } else { Self::Io(error) }
    }
}

fn checked_length(prefix: [u8; PREFIX]) -> Result<usize, FrameError> {
    let length = usize::try_from(u32::from_le_bytes(prefix)).unwrap_or(usize::MAX);
    match length {
        0 => Err(FrameError::Empty),
        1..=MAX_FRAME => Ok(length),
        _ => Err(FrameError::TooLong(length)),
    }
}

/// Reads one frame. Returns `None` when the peer closed the stream between two frames.
///
/// # Errors
/// [`FrameError`]; the stream cannot be used afterwards. A read timeout inside a frame is also an
/// error: the length that was read is lost.
pub fn read_frame(stream: &mut impl Read) -> Result<Option<Vec<u8>>, FrameError> {
    let mut prefix = [0; PREFIX];
    let mut have = 0;
    while have < PREFIX {
        match stream.read(&mut prefix[have..]) {
            Ok(0) if have == 0 => return Ok(None),
            Ok(0) => return Err(FrameError::Truncated),
            Ok(count) => have += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut payload = vec![0; checked_length(prefix)?];
    stream.read_exact(&mut payload)?;
    Ok(Some(payload))
}

/// Returns a message with its length prefix.
///
/// # Errors
/// [`FrameError::TooLong`], [`FrameError::Empty`].
pub fn framed(payload: &[u8]) -> Result<Vec<u8>, FrameError> {
    if payload.is_empty() {
        return Err(FrameError::Empty);
    }
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    if payload.len() > MAX_FRAME {
        return Err(FrameError::TooLong(payload.len()));
    }
    let mut frame = Vec::with_capacity(PREFIX + payload.len());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(payload);
    Ok(frame)
}

/// Writes one frame, in a single call where the stream permits, and flushes.
///
/// # Errors
/// [`FrameError`].
pub fn write_frame(stream: &mut impl Write, payload: &[u8]) -> Result<(), FrameError> {
    stream.write_all(&framed(payload)?)?;
    stream.flush()?;
    Ok(())
}

/// Removes the first frame from a buffer that fills as bytes arrive; returns `None` while the frame
/// is incomplete.
///
/// # Errors
/// [`FrameError::TooLong`] or [`FrameError::Empty`] as soon as the prefix has arrived.
pub fn split(buffer: &mut Vec<u8>) -> Result<Option<Vec<u8>>, FrameError> {
    let Some(prefix) = buffer.first_chunk::<PREFIX>() else {
        return Ok(None);
    };
    let end = PREFIX + checked_length(*prefix)?;
    if buffer.len() < end {
        return Ok(None);
    }
    let payload = buffer[PREFIX..end].to_vec();
    buffer.drain(..end);
    Ok(Some(payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_in_order() {
        let mut stream = Vec::new();
        write_frame(&mut stream, b"one").unwrap();
        write_frame(&mut stream, b"three").unwrap();
        let mut reader = stream.as_slice();
        assert_eq!(read_frame(&mut reader).unwrap().unwrap(), b"one");
        assert_eq!(read_frame(&mut reader).unwrap().unwrap(), b"three");
        assert!(read_frame(&mut reader).unwrap().is_none());
    }

    #[test]
    fn buffer_yields_only_complete_frames() {
        let frame = framed(b"payload").unwrap();
        let mut buffer = Vec::new();
        for byte in &frame[..frame.len() - 1] {
            buffer.push(*byte);
            assert!(split(&mut buffer).unwrap().is_none());
        }
        buffer.push(frame[frame.len() - 1]);
        buffer.push(9);
        assert_eq!(split(&mut buffer).unwrap().unwrap(), b"payload");
        assert_eq!(buffer, [9]);
    }

    /// The length prefix is checked before the body is read.
    #[test]
    fn frame_length_out_of_range_is_error() {
        for (prefix, expected) in [(0_u32, "without"), (16_385, "limit"), (u32::MAX, "limit")] {
            let mut bytes = prefix.to_le_bytes().to_vec();
            let error = read_frame(&mut bytes.as_slice()).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            assert!(split(&mut bytes).is_err());
        }
        assert!(framed(&vec![1; MAX_FRAME]).is_ok());
        assert!(framed(&vec![1; MAX_FRAME + 1]).is_err());
        assert!(framed(&[]).is_err());
    }

    #[test]
    fn stream_ending_inside_frame_is_truncated_error() {
        let frame = framed(b"payload").unwrap();
        for cut in 1..frame.len() {
            let error = read_frame(&mut &frame[..cut]).unwrap_err();
            assert!(matches!(error, FrameError::Truncated), "cut at {cut}: {error}");
        }
    }
}
