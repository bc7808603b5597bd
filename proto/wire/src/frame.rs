//! Frames on a byte stream: a length (unsigned, 32 bits, little-endian), then a message.

/// The longest message, in bytes, without its length prefix.
pub const MAX_FRAME: usize = 16 * 1024;
/// Bytes of the length prefix.
pub const PREFIX: usize = 4;

/// A length that no frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// More than [`MAX_FRAME`] bytes.
    #[error("a frame of {0} bytes, the limit is {MAX_FRAME}")]
    TooLong(usize),
    /// Zero bytes: every message has at least one.
    #[error("a frame without a byte")]
    Empty,
}

fn checked_length(length: u32) -> Result<usize, FrameError> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    match length {
        0 => Err(FrameError::Empty),
        1..=MAX_FRAME => Ok(length),
        _ => Err(FrameError::TooLong(length)),
    }
}

/// Returns a message with its length prefix.
pub fn framed(payload: &[u8]) -> Result<Vec<u8>, FrameError> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    checked_length(length)?;
    let mut frame = Vec::with_capacity(PREFIX + payload.len());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(payload);
    Ok(frame)
}

/// Returns where the first frame of a buffer ends, once its length prefix has arrived.
fn end(buffer: &[u8]) -> Result<Option<usize>, FrameError> {
    let prefix = buffer.first_chunk::<PREFIX>();
    prefix.map(|prefix| Ok(PREFIX + checked_length(u32::from_le_bytes(*prefix))?)).transpose()
}

/// Returns how many bytes to read next for the first frame of a buffer: the rest of its length
/// prefix, then the rest of its message. Whoever reads no more leaves the next frame unread.
///
/// # Errors
/// [`FrameError::TooLong`] or [`FrameError::Empty`] as soon as the prefix has arrived.
pub fn missing(buffer: &[u8]) -> Result<usize, FrameError> {
    Ok(end(buffer)?.unwrap_or(PREFIX).saturating_sub(buffer.len()))
}

/// Removes the first frame from a buffer that fills as bytes arrive; returns `None` while the frame
/// is incomplete.
///
/// # Errors
/// [`FrameError::TooLong`] or [`FrameError::Empty`] as soon as the prefix has arrived.
pub fn split(buffer: &mut Vec<u8>) -> Result<Option<Vec<u8>>, FrameError> {
    let Some(end) = end(buffer)?.filter(|end| *end <= buffer.len()) else {
        return Ok(None);
    };
    let payload = buffer[PREFIX..end].to_vec();
    buffer.drain(..end);
    Ok(Some(payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_bytes_end_with_the_first_frame() {
        let frames = [framed(b"first").unwrap(), framed(b"second").unwrap()].concat();
        let mut read = Vec::new();
        loop {
            let missing = missing(&read).unwrap();
            if missing == 0 {
                break;
            }
            read.extend_from_slice(&frames[read.len()..read.len() + missing.min(3)]);
        }
        assert_eq!(read, framed(b"first").unwrap());
        assert!(missing(&[0; PREFIX]).is_err());
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
            let error = split(&mut bytes).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
        assert!(framed(&vec![1; MAX_FRAME]).is_ok());
        assert!(framed(&vec![1; MAX_FRAME + 1]).is_err());
        assert!(framed(&[]).is_err());
    }
}
