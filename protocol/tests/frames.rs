//! Frames cut, damaged, too long, and of somebody else.

use proptest::prelude::*;
use protocol::{
    Allocation, AllocationId, Contents, Decoder, Frame, FrameError, FrameKind, Header, Held, Inventory,
    Location, MAGIC, Origin, REPLY_LIMIT, REQUEST_LIMIT, Reply, Request, Side, StepRequest, VERSION,
    VerbKind, verbs,
};

fn request_frame() -> Vec<u8> {
    protocol::encode_request::<verbs::Step>(7, &StepRequest { held: Held::One, wait_ms: 300 })
        .expect("a small request")
}

fn with_header(change: impl FnOnce(&mut [u8])) -> [u8; Header::LEN] {
    let mut bytes = Header { verb: 1, kind: FrameKind::Request, id: 1, length: 0 }.encode();
    change(&mut bytes);
    bytes
}

fn feed(side: Side, mut bytes: &[u8]) -> Result<Option<Frame>, FrameError> {
    Decoder::new(side).feed(&mut bytes)
}

#[test]
fn the_header_lies_on_the_wire_as_documented() {
    let bytes = Header { verb: 9, kind: FrameKind::Failure, id: 0x0102_0304, length: 0x0203 }.encode();
    assert_eq!(bytes, [b'N', b'V', b'S', b'G', 1, 0, 9, 2, 4, 3, 2, 1, 3, 2, 0, 0]);
    assert_eq!(VERSION, 1);
}

#[test]
fn a_frame_cut_at_every_byte_gives_the_same_frame() {
    let bytes = request_frame();
    for cut in 0..=bytes.len() {
        let (mut first, mut second) = bytes.split_at(cut);
        let mut decoder = Decoder::new(Side::Server);
        let early = decoder.feed(&mut first).expect("sound bytes");
        assert_eq!(early.is_some(), cut == bytes.len(), "complete only at the end, cut at {cut}");
        assert_eq!(decoder.is_amid(), cut > 0 && cut < bytes.len());
        let frame = early.or(decoder.feed(&mut second).expect("sound bytes")).expect("a whole frame");
        assert_eq!(Request::decode(&frame), Ok(Request::Step(StepRequest { held: Held::One, wait_ms: 300 })));
        assert!(first.is_empty() && second.is_empty());
    }
}

#[test]
fn a_decoder_wants_just_what_the_frame_still_lacks() {
    let bytes = request_frame();
    let mut decoder = Decoder::new(Side::Server);
    let mut rest = bytes.as_slice();
    let mut frame = None;
    while frame.is_none() {
        let wanted = decoder.wanted();
        assert!(wanted > 0 && wanted <= rest.len());
        let (mut one, later) = rest.split_at(1);
        frame = decoder.feed(&mut one).expect("sound bytes");
        rest = later;
    }
    assert!(rest.is_empty());
    assert_eq!(decoder.wanted(), Header::LEN, "ready for the next");
}

#[test]
fn frames_that_follow_each_other_come_out_one_by_one() {
    let stream = [request_frame(), request_frame(), request_frame()].concat();
    let mut rest = stream.as_slice();
    let mut decoder = Decoder::new(Side::Server);
    let mut count = 0;
    while decoder.feed(&mut rest).expect("sound bytes").is_some() {
        count += 1;
    }
    assert_eq!(count, 3);
}

#[test]
fn a_body_over_the_limit_is_refused_with_the_header_alone() {
    for (side, kind, limit) in [
        (Side::Server, FrameKind::Request, REQUEST_LIMIT),
        (Side::Client, FrameKind::Reply, REPLY_LIMIT),
        (Side::Client, FrameKind::Failure, REPLY_LIMIT),
    ] {
        let at_limit = Header { verb: 1, kind, id: 1, length: limit }.encode();
        assert_eq!(feed(side, &at_limit), Ok(None));
        for length in [limit + 1, 1 << 30, u32::MAX] {
            let header = Header { verb: 1, kind, id: 1, length }.encode();
            assert_eq!(feed(side, &header), Err(FrameError::TooLong { length, limit }));
        }
    }
}

#[test]
fn another_version_is_named_beside_our_own() {
    let header = with_header(|bytes| bytes[4..6].copy_from_slice(&7_u16.to_le_bytes()));
    let error = feed(Side::Server, &header).expect_err("another version");
    assert_eq!(error, FrameError::Version { theirs: 7, ours: VERSION });
    let text = error.to_string();
    assert!(text.contains("version 7") && text.contains(&format!("version {VERSION}")), "{text}");
}

#[test]
fn the_version_is_judged_before_anything_that_a_version_may_change() {
    let header = with_header(|bytes| {
        bytes[4] = 2;
        bytes[7] = 99;
        bytes[12..16].fill(0xff);
    });
    assert_eq!(feed(Side::Server, &header), Err(FrameError::Version { theirs: 2, ours: VERSION }));
}

#[test]
fn a_stranger_and_a_wrong_direction_are_refused() {
    let header = with_header(|bytes| bytes[..4].copy_from_slice(b"GET "));
    assert_eq!(feed(Side::Server, &header), Err(FrameError::Magic(*b"GET ")));

    for kind in 0..=u8::MAX {
        let header = with_header(|bytes| bytes[7] = kind);
        let server = feed(Side::Server, &header);
        let client = feed(Side::Client, &header);
        assert_eq!(server.is_ok(), kind == FrameKind::Request as u8);
        assert_eq!(client.is_ok(), kind == FrameKind::Reply as u8 || kind == FrameKind::Failure as u8);
    }
}

#[test]
fn a_broken_stream_stays_broken() {
    let mut decoder = Decoder::new(Side::Server);
    let error = decoder.feed(&mut [0_u8; 16].as_slice()).expect_err("no magic");
    assert_eq!(decoder.wanted(), 0);
    assert_eq!(decoder.feed(&mut request_frame().as_slice()), Err(error));
}

#[test]
fn an_inventory_of_ten_thousand_objects_passes_whole() {
    let allocations: Vec<Allocation> = (0..10_000_u64)
        .map(|number| {
            let mut id = [0xff; 16];
            id[..8].copy_from_slice(&number.to_le_bytes());
            Allocation {
                id: AllocationId(id),
                location: Location::Other(u32::MAX, i32::MIN),
                size: u64::MAX,
                origin: Origin::Imported { exporter: i32::MAX },
                exported: true,
                handles: u32::MAX,
                mappings: u32::MAX,
                contents: Contents::Chunks,
                has_memory: true,
                multicast: Some(protocol::Team { devices: u32::MAX, joined: u32::MAX, bound: u32::MAX }),
            }
        })
        .collect();
    let inventory = Inventory { allocations, ..Inventory::default() };
    let bytes = Reply::Inspect(inventory.clone()).encode(3).expect("under the limit");

    let frame = feed(Side::Client, &bytes).expect("sound").expect("whole");
    assert_eq!(frame.header.verb, VerbKind::Inspect as u8);
    assert_eq!(protocol::decode_reply::<verbs::Inspect>(&frame.body), Ok(inventory));
}

#[test]
fn a_message_over_the_limit_is_not_written() {
    let heir_of = vec![AllocationId([1; 16]); REQUEST_LIMIT as usize / 16 + 1];
    let limits = protocol::HostLimits::default();
    let request = protocol::ReleaseRequest {
        extent: protocol::Extent::Drop,
        heir_of,
        limits,
        to: protocol::SaveTo::Memory,
    };
    let error = protocol::encode_request::<verbs::Release>(1, &request).expect_err("too long");
    assert!(matches!(error, protocol::EncodeError::TooLong { limit: REQUEST_LIMIT, .. }), "{error}");
}

#[test]
fn a_body_with_bytes_missing_or_left_over_is_no_message() {
    let whole = request_frame().split_off(Header::LEN);
    for cut in 0..whole.len() {
        assert!(protocol::decode_request::<verbs::Step>(&whole[..cut]).is_err());
    }
    let extra = [whole.as_slice(), &[0]].concat();
    assert_eq!(
        protocol::decode_request::<verbs::Step>(&extra),
        Err(protocol::BodyError::Extra { verb: "step", extra: 1 })
    );
}

#[test]
fn an_unknown_verb_is_a_readable_frame_that_names_no_request() {
    let bytes = Header { verb: 77, kind: FrameKind::Request, id: 5, length: 0 }.encode();
    let frame = feed(Side::Server, &bytes).expect("sound").expect("whole");
    assert_eq!(Request::decode(&frame), Err(protocol::BodyError::Verb(77)));
}

#[test]
fn a_length_in_the_body_that_the_body_does_not_hold_costs_no_memory() {
    // A vector that claims 2^63 elements: the varint of its length, and nothing behind it.
    let body = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    assert!(protocol::decode_request::<verbs::Release>(&body).is_err());
}

/// Feeds a stream in pieces of the given sizes and counts the frames that come out before it breaks.
fn drive(side: Side, mut stream: &[u8], sizes: &[usize]) -> usize {
    let mut decoder = Decoder::new(side);
    let mut frames = 0;
    for size in sizes.iter().copied().cycle() {
        let (mut piece, later) = stream.split_at(size.min(stream.len()));
        stream = later;
        while !piece.is_empty() {
            match decoder.feed(&mut piece) {
                Ok(Some(frame)) => {
                    frames += 1;
                    assert_eq!(frame.body.len(), frame.header.length as usize);
                    // Whatever it is, reading it ends in a message or in an error.
                    let _ = Request::decode(&frame);
                    let _ = protocol::decode_failure(&frame.body);
                    let _ = protocol::decode_reply::<verbs::Inspect>(&frame.body);
                }
                Ok(None) => assert!(piece.is_empty()),
                Err(_) => return frames,
            }
        }
        if stream.is_empty() {
            return frames;
        }
    }
    frames
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(
        stream in prop::collection::vec(any::<u8>(), 0..400),
        sizes in prop::collection::vec(1_usize..40, 1..8),
    ) {
        drive(Side::Server, &stream, &sizes);
        drive(Side::Client, &stream, &sizes);
    }

    #[test]
    fn random_bodies_in_sound_headers_never_panic(
        verb in 0_u8..12,
        kind in 0_u8..3,
        body in prop::collection::vec(any::<u8>(), 0..300),
        sizes in prop::collection::vec(1_usize..40, 1..8),
    ) {
        let side = if kind == 0 { Side::Server } else { Side::Client };
        let mut stream = MAGIC.to_vec();
        stream.extend(VERSION.to_le_bytes());
        stream.extend([verb, kind, 1, 0, 0, 0]);
        stream.extend(u32::try_from(body.len()).expect("short").to_le_bytes());
        stream.extend(&body);
        prop_assert_eq!(drive(side, &stream, &sizes), 1);
    }

    #[test]
    fn one_flipped_bit_never_panics(position in 0_usize..16 + 2, bit in 0_u32..8) {
        let mut stream = request_frame();
        let place = position % stream.len();
        stream[place] ^= 1 << bit;
        drive(Side::Server, &stream, &[3, 5]);
    }
}
