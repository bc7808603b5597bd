//! Reads of a disk at aligned offsets, which bypass the page cache where the descriptor is one for
//! direct reads.
use rustix::fd::AsFd;
use rustix::io::Errno;

/// Alignment of direct reads, in bytes; the largest logical block of any disk.
pub(super) const ALIGNMENT: usize = 4096;

/// Reads from offset `at` until `into` is full or nothing follows; returns the number of bytes.
pub(super) fn read_at(disk: impl AsFd, at: u64, into: &mut [u8]) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < into.len() {
        match rustix::io::pread(&disk, &mut into[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(filled)
}

/// Fills `into` from offset `at`. A short read is an error, because bytes that were not read prove
/// nothing.
pub(super) fn read_exact_at(disk: impl AsFd, at: u64, into: &mut [u8]) -> Result<(), Errno> {
    if read_at(disk, at, into)? == into.len() { Ok(()) } else { Err(Errno::IO) }
}

/// Returns the position of the first byte that is not zero.
pub(super) fn first_nonzero(bytes: &[u8]) -> Option<usize> {
    const NOTHING: [u8; 4096] = [0; 4096];
    // Comparing slices runs at the speed of memory; comparing single bytes does not.
    let chunk = bytes.chunks(NOTHING.len()).position(|chunk| chunk != &NOTHING[..chunk.len()])?;
    let start = chunk * NOTHING.len();
    let within = bytes[start..].iter().position(|byte| *byte != 0)?;
    Some(start + within)
}

/// A buffer that is aligned for direct reads.
pub(super) struct AlignedBuffer {
    all: Vec<u8>,
    start: usize,
}

impl AlignedBuffer {
    pub(super) fn new(length: usize) -> Self {
        let all = vec![0; length + ALIGNMENT];
        let start = all.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { all, start }
    }

    pub(super) fn aligned(&mut self) -> &mut [u8] {
        let end = self.all.len() - ALIGNMENT + self.start;
        &mut self.all[self.start..end]
    }
}

/// Reads a disk at aligned offsets.
pub(super) struct Reader<'m, D> {
    pub(super) disk: D,
    pub(super) piece: &'m mut [u8],
}

impl<D: AsFd> Reader<'_, D> {
    /// Reads `length` bytes into the beginning of `area`.
    pub(super) fn read_into<'a>(
        &self,
        area: &'a mut [u8],
        at: u64,
        length: u64,
    ) -> Result<&'a [u8], Errno> {
        let length = usize::try_from(length).map_err(|_| Errno::INVAL)?;
        let area = area.get_mut(..length).ok_or(Errno::INVAL)?;
        read_exact_at(&self.disk, at, area)?;
        Ok(area)
    }

    pub(super) fn read(&mut self, at: u64, length: u64) -> Result<&[u8], Errno> {
        let piece = std::mem::take(&mut self.piece);
        let read = self.read_into(piece, at, length.min(piece.len() as u64)).map(<[u8]>::len);
        self.piece = piece;
        Ok(&self.piece[..read?])
    }

    /// Reads the first bytes of the disk up to `end`, and copies the part that `first` holds
    /// already.
    pub(super) fn read_behind(&mut self, first: &[u8], end: u64) -> Result<&[u8], Errno> {
        let piece = std::mem::take(&mut self.piece);
        let (there, rest) = piece.split_at_mut(first.len());
        there.copy_from_slice(first);
        let read =
            self.read_into(rest, first.len() as u64, end - first.len() as u64).map(<[u8]>::len);
        self.piece = piece;
        Ok(&self.piece[..first.len() + read?])
    }

    /// Passes `length` bytes from `at` to `look`, piece by piece with the offset, until `look`
    /// returns something.
    pub(super) fn find<T>(
        &mut self,
        at: u64,
        length: u64,
        look: impl Fn(u64, &[u8]) -> Option<T>,
    ) -> Result<Option<T>, Errno> {
        let mut done = 0;
        while done < length {
            let piece = self.read(at + done, length - done)?;
            let found = look(at + done, piece);
            if found.is_some() {
                return Ok(found);
            }
            done += piece.len() as u64;
        }
        Ok(None)
    }
}
