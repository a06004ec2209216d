//! Messages: a request, a reply or a failure, to and from the bytes of a frame.
//!
//! Bodies are `postcard`. A body has to be used up to its last byte; what is left over, or missing, makes it a
//! [`BodyError`], never a guess.

use alloc::vec::Vec;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::frame::{Frame, FrameKind, Header, REPLY_LIMIT, REQUEST_LIMIT};
use crate::phase::VerbKind;
use crate::verb::{Failure, Verb};

extern crate alloc;

/// Why a message was not encoded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncodeError {
    /// The body is over the limit of its direction.
    #[error("the message takes {length} bytes, over the limit of {limit}")]
    TooLong {
        /// Bytes of the body.
        length: usize,
        /// What the other end takes.
        limit: u32,
    },
    /// The body format refused it.
    #[error("the message cannot be written")]
    Format(#[source] postcard::Error),
}

/// Why a body makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BodyError {
    /// Nobody knows this verb.
    #[error("there is no verb number {0}")]
    Verb(u8),
    /// The bytes are not that message.
    #[error("the message for {verb} cannot be read")]
    Format {
        /// Whose message.
        verb: &'static str,
        /// What the format says.
        #[source]
        source: postcard::Error,
    },
    /// Bytes are left over.
    #[error("the message for {verb} has {extra} bytes too many")]
    Extra {
        /// Whose message.
        verb: &'static str,
        /// How many.
        extra: usize,
    },
}

/// The frame of a request.
pub fn encode_request<V: Verb>(id: u32, request: &V::Request) -> Result<Vec<u8>, EncodeError> {
    encode(V::KIND as u8, FrameKind::Request, id, request, REQUEST_LIMIT)
}

/// The frame of a reply.
pub fn encode_reply<V: Verb>(id: u32, reply: &V::Reply) -> Result<Vec<u8>, EncodeError> {
    encode(V::KIND as u8, FrameKind::Reply, id, reply, REPLY_LIMIT)
}

/// The frame of a failure. `verb` is the number that was asked, which may be nobody's.
pub fn encode_failure(verb: u8, id: u32, failure: &Failure) -> Result<Vec<u8>, EncodeError> {
    encode(verb, FrameKind::Failure, id, failure, REPLY_LIMIT)
}

fn encode<T: Serialize>(
    verb: u8,
    kind: FrameKind,
    id: u32,
    body: &T,
    limit: u32,
) -> Result<Vec<u8>, EncodeError> {
    let room_for_header = alloc::vec![0_u8; Header::LEN];
    let mut bytes = postcard::to_extend(body, room_for_header).map_err(EncodeError::Format)?;
    let length = bytes.len() - Header::LEN;
    let too_long = EncodeError::TooLong { length, limit };
    let length = u32::try_from(length).ok().filter(|length| *length <= limit).ok_or(too_long)?;
    let header = Header { verb, kind, id, length }.encode();
    bytes.iter_mut().zip(header).for_each(|(place, byte)| *place = byte);
    Ok(bytes)
}

/// Reads the body of a request for `V`.
pub fn decode_request<V: Verb>(body: &[u8]) -> Result<V::Request, BodyError> {
    decode(V::KIND.name(), body)
}

/// Reads the body of a reply to `V`.
pub fn decode_reply<V: Verb>(body: &[u8]) -> Result<V::Reply, BodyError> {
    decode(V::KIND.name(), body)
}

/// Reads the body of a failure.
pub fn decode_failure(body: &[u8]) -> Result<Failure, BodyError> {
    decode("a failure", body)
}

fn decode<T: DeserializeOwned>(verb: &'static str, body: &[u8]) -> Result<T, BodyError> {
    let (value, rest) =
        postcard::take_from_bytes(body).map_err(|source| BodyError::Format { verb, source })?;
    if rest.is_empty() { Ok(value) } else { Err(BodyError::Extra { verb, extra: rest.len() }) }
}

/// The verb a frame names.
pub fn verb_of(frame: &Frame) -> Result<VerbKind, BodyError> {
    VerbKind::from_wire(frame.header.verb).ok_or(BodyError::Verb(frame.header.verb))
}
