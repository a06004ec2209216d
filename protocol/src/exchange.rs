//! One question and its answer, seen from the asker, without a socket.
//!
//! ```text
//!   Exchange::new --> unsent() / sent(n) until empty --> feed(bytes) until it gives an answer
//! ```
//!
//! The owner moves the bytes: blocking, with `poll`, for one process or for many. Writing may end early (the
//! server refuses a connection before it reads): whoever gets `EPIPE` goes on to read, the reason is there.

use alloc::vec::Vec;
use core::marker::PhantomData;

use crate::frame::{Decoder, Frame, FrameError, FrameKind, Side};
use crate::message::{BodyError, EncodeError, decode_failure, decode_reply, encode_request};
use crate::verb::{Failure, Verb};

extern crate alloc;

/// The id of an answer that refuses the connection and not one request.
pub const UNASKED: u32 = 0;

/// What came back: the verb's reply, or the server's reason why not.
pub type Answer<V> = Result<<V as Verb>::Reply, Failure>;

/// Why an answer could not be understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The stream is broken.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The body is broken.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// An answer to something that was not asked.
    #[error("an answer to request {id} (verb {verb}) came where one to request {asked} was due")]
    Unasked {
        /// The request it answers.
        id: u32,
        /// The verb it answers.
        verb: u8,
        /// The request that was made.
        asked: u32,
    },
    /// More bytes than the answer has.
    #[error("{0} bytes follow the answer")]
    Trailing(usize),
}

/// One question on its way. Made anew for each, also on a connection that stays.
#[derive(Debug)]
pub struct Exchange<V: Verb> {
    id: u32,
    request: Vec<u8>,
    sent: usize,
    decoder: Decoder,
    verb: PhantomData<fn() -> V>,
}

impl<V: Verb> Exchange<V> {
    /// Asks `request`. The `id` is the asker's choice, anything but [`UNASKED`], and new for each question on
    /// one connection.
    pub fn new(id: u32, request: &V::Request) -> Result<Self, EncodeError> {
        let request = encode_request::<V>(id, request)?;
        Ok(Self { id, request, sent: 0, decoder: Decoder::new(Side::Client), verb: PhantomData })
    }

    /// The bytes that are still to be written.
    pub fn unsent(&self) -> &[u8] {
        self.request.get(self.sent..).unwrap_or_default()
    }

    /// Notes that `count` of them were written.
    pub fn sent(&mut self, count: usize) {
        self.sent = self.sent.saturating_add(count).min(self.request.len());
    }

    /// How many bytes to read at most; see [`Decoder::wanted`].
    pub fn wanted(&self) -> usize {
        self.decoder.wanted()
    }

    /// Takes bytes that were read; gives the answer once it is complete.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<Option<Answer<V>>, ExchangeError> {
        let Some(frame) = self.decoder.feed(&mut bytes)? else { return Ok(None) };
        if !bytes.is_empty() {
            return Err(ExchangeError::Trailing(bytes.len()));
        }
        self.answer(&frame).map(Some)
    }

    fn answer(&self, frame: &Frame) -> Result<Answer<V>, ExchangeError> {
        let header = frame.header;
        let refused = header.kind == FrameKind::Failure && header.id == UNASKED;
        let ours = header.id == self.id && header.verb == V::KIND as u8;
        if !ours && !refused {
            return Err(ExchangeError::Unasked { id: header.id, verb: header.verb, asked: self.id });
        }
        Ok(match header.kind {
            FrameKind::Failure => Err(decode_failure(&frame.body)?),
            FrameKind::Reply | FrameKind::Request => Ok(decode_reply::<V>(&frame.body)?),
        })
    }
}
