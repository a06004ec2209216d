//! Frames: how a message is cut out of a stream of bytes.
//!
//! Every frame starts with a header of [`Header::LEN`] bytes, all numbers little endian:
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..4 | magic, `NVSG` |
//! | 4..6 | protocol version |
//! | 6 | verb |
//! | 7 | kind: 0 request, 1 reply, 2 failure |
//! | 8..12 | request id, chosen by the asker, repeated in the answer |
//! | 12..16 | bytes of the body that follows |
//!
//! Magic and version keep their place in every version, so that two ends of different versions can name both.
//! A header is checked whole before a byte of its body is taken, and a body over the limit is refused unread.
//! A [`Decoder`] holds at most one frame, and grows only as bytes really arrive.

use alloc::vec::Vec;

use crate::VERSION;

extern crate alloc;

/// The first bytes of every frame.
pub const MAGIC: [u8; 4] = *b"NVSG";

/// The longest body of a request.
pub const REQUEST_LIMIT: u32 = 1 << 20;

/// The longest body of a reply or a failure: room for an inventory of a million objects.
pub const REPLY_LIMIT: u32 = 64 << 20;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// Something is asked.
    Request = 0,
    /// The answer when the verb succeeded.
    Reply = 1,
    /// The answer when it did not: the body is a [`Failure`](crate::Failure).
    Failure = 2,
}

impl FrameKind {
    const fn from_wire(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Request),
            1 => Some(Self::Reply),
            2 => Some(Self::Failure),
            _ => None,
        }
    }
}

/// Which frames an end takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Takes requests.
    Server,
    /// Takes replies and failures.
    Client,
}

impl Side {
    /// The longest body this end takes.
    pub const fn limit(self) -> u32 {
        match self {
            Self::Server => REQUEST_LIMIT,
            Self::Client => REPLY_LIMIT,
        }
    }

    const fn takes(self, kind: FrameKind) -> bool {
        matches!(
            (self, kind),
            (Self::Server, FrameKind::Request) | (Self::Client, FrameKind::Reply | FrameKind::Failure)
        )
    }
}

/// A header that passed every check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The verb's number; one that nobody knows is answered, it does not break the stream.
    pub verb: u8,
    /// What the frame is.
    pub kind: FrameKind,
    /// Ties an answer to its request. 0 is an answer to nothing: the other end refuses the connection.
    pub id: u32,
    /// Bytes of the body.
    pub length: u32,
}

impl Header {
    /// Its bytes on the wire.
    pub const LEN: usize = 16;

    /// The header's bytes.
    pub fn encode(self) -> [u8; Self::LEN] {
        let [m0, m1, m2, m3] = MAGIC;
        let [v0, v1] = VERSION.to_le_bytes();
        let [i0, i1, i2, i3] = self.id.to_le_bytes();
        let [l0, l1, l2, l3] = self.length.to_le_bytes();
        [m0, m1, m2, m3, v0, v1, self.verb, self.kind as u8, i0, i1, i2, i3, l0, l1, l2, l3]
    }

    /// Checks a header that reached `side`.
    pub fn decode(bytes: [u8; Self::LEN], side: Side) -> Result<Self, FrameError> {
        let [m0, m1, m2, m3, v0, v1, verb, kind, i0, i1, i2, i3, l0, l1, l2, l3] = bytes;
        let magic = [m0, m1, m2, m3];
        if magic != MAGIC {
            return Err(FrameError::Magic(magic));
        }
        let version = u16::from_le_bytes([v0, v1]);
        if version != VERSION {
            return Err(FrameError::Version { theirs: version, ours: VERSION });
        }
        let kind = match FrameKind::from_wire(kind) {
            Some(known) if side.takes(known) => known,
            _ => return Err(FrameError::Kind(kind)),
        };
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        if length > side.limit() {
            return Err(FrameError::TooLong { length, limit: side.limit() });
        }
        Ok(Self { verb, kind, id: u32::from_le_bytes([i0, i1, i2, i3]), length })
    }
}

/// One message, whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Its header.
    pub header: Header,
    /// Its body, as long as the header says.
    pub body: Vec<u8>,
}

/// Why a stream of bytes holds no more frames. The connection cannot be used after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// It does not start as a frame does.
    #[error("the other end does not speak the control protocol (its message starts with {0:02x?})")]
    Magic([u8; 4]),
    /// Another version of the protocol.
    #[error(
        "the other end speaks version {theirs} of the control protocol, this end version {ours}: \
         the library in the process and the command have to come from one release"
    )]
    Version {
        /// What the other end speaks.
        theirs: u16,
        /// What this end speaks.
        ours: u16,
    },
    /// A kind that this end does not take.
    #[error("a message of kind {0} has no place in this direction")]
    Kind(u8),
    /// A body over the limit.
    #[error("a message of {length} bytes is over the limit of {limit}")]
    TooLong {
        /// What the header asks for.
        length: u32,
        /// What is taken.
        limit: u32,
    },
    /// No memory for the bytes that arrived.
    #[error("no memory for a message of {0} bytes")]
    Memory(u32),
}

/// Cuts frames out of bytes as they arrive, in pieces of any size.
#[derive(Debug)]
pub struct Decoder {
    side: Side,
    state: Result<Progress, FrameError>,
}

#[derive(Debug)]
enum Progress {
    Header { bytes: [u8; Header::LEN], have: usize },
    Body { header: Header, body: Vec<u8> },
}

impl Progress {
    const START: Self = Self::Header { bytes: [0; Header::LEN], have: 0 };
}

impl Decoder {
    /// A decoder for the frames that reach `side`.
    pub const fn new(side: Side) -> Self {
        Self { side, state: Ok(Progress::START) }
    }

    /// Whether a frame has begun and is not complete.
    pub fn is_amid(&self) -> bool {
        !matches!(self.state, Ok(Progress::Header { have: 0, .. }))
    }

    /// How many bytes are missing, as far as is known: of the header, else of the body. Whoever reads no more
    /// than that never holds a byte of the next frame. At least 1 while the stream is sound.
    pub fn wanted(&self) -> usize {
        match &self.state {
            Ok(Progress::Header { have, .. }) => Header::LEN - have,
            Ok(Progress::Body { header, body }) => length_of(*header) - body.len(),
            Err(_) => 0,
        }
    }

    /// Takes bytes from the front of `input` until a frame is complete or none are left.
    ///
    /// After an error every further call gives the same error.
    pub fn feed(&mut self, input: &mut &[u8]) -> Result<Option<Frame>, FrameError> {
        let taken = self.advance(input);
        if let Err(error) = taken {
            self.state = Err(error);
        }
        taken.map(|complete| complete.then(|| self.take_frame())).map(Option::flatten)
    }

    /// Whether a frame is complete.
    fn advance(&mut self, input: &mut &[u8]) -> Result<bool, FrameError> {
        let progress = match &mut self.state {
            Ok(progress) => progress,
            Err(error) => return Err(*error),
        };
        if let Progress::Header { bytes, have } = progress {
            let (_, room) = bytes.split_at_mut(*have);
            *have += move_bytes(input, room);
            if *have < Header::LEN {
                return Ok(false);
            }
            let header = Header::decode(*bytes, self.side)?;
            *progress = Progress::Body { header, body: Vec::new() };
        }
        let Progress::Body { header, body } = progress else { return Ok(false) };
        let missing = length_of(*header) - body.len();
        let (now, later) = input.split_at(missing.min(input.len()));
        body.try_reserve(now.len()).map_err(|_| FrameError::Memory(header.length))?;
        body.extend_from_slice(now);
        *input = later;
        Ok(body.len() == length_of(*header))
    }

    fn take_frame(&mut self) -> Option<Frame> {
        match core::mem::replace(&mut self.state, Ok(Progress::START)) {
            Ok(Progress::Body { header, body }) => Some(Frame { header, body }),
            Ok(Progress::Header { .. }) | Err(_) => None,
        }
    }
}

/// Moves bytes from the front of `input` into `room`, as many as fit.
fn move_bytes(input: &mut &[u8], room: &mut [u8]) -> usize {
    let count = room.len().min(input.len());
    let (now, later) = input.split_at(count);
    let (filled, _) = room.split_at_mut(count);
    filled.copy_from_slice(now);
    *input = later;
    count
}

/// A header's length is at most [`REPLY_LIMIT`], which a `usize` holds on every machine with such a driver.
const fn length_of(header: Header) -> usize {
    header.length as usize
}
