//! Any stream of bytes, cut anywhere, ends in messages or in an error; what is read as a request is written the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::{Decoder, Request, Side, verbs};

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (is_server, cut, stream) = input;
    let mut decoder = Decoder::new(if is_server { Side::Server } else { Side::Client });
    for mut piece in stream.chunks(usize::from(cut).max(1)) {
        while !piece.is_empty() {
            match decoder.feed(&mut piece) {
                Ok(Some(frame)) => {
                    let _ = Request::decode(&frame);
                    let _ = protocol::decode_failure(&frame.body);
                    let _ = protocol::decode_reply::<verbs::Inspect>(&frame.body);
                }
                Ok(None) => assert!(piece.is_empty(), "bytes were left over"),
                Err(_) => return,
            }
        }
    }
});
