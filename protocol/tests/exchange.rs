//! One question, one answer, and everything that is no answer to it.

use protocol::{
    Cause, Exchange, ExchangeError, Failure, FrameError, Phase, ReopenReply, ReopenRequest, Reply, Request,
    Side, UNASKED, VERSION, VerbKind, encode_failure, verbs,
};

fn ask() -> Exchange<verbs::Reopen> {
    Exchange::new(41, &ReopenRequest {}).expect("a small request")
}

fn refusal() -> Failure {
    Failure { cause: Cause::Busy, message: "release is being carried out".into(), phase: Phase::Quiesced }
}

#[test]
fn a_question_goes_out_in_pieces_and_its_answer_comes_in_pieces() {
    let mut exchange = ask();
    let mut wire = Vec::new();
    while let Some(byte) = exchange.unsent().first().copied() {
        wire.push(byte);
        exchange.sent(1);
    }
    let frame =
        protocol::Decoder::new(Side::Server).feed(&mut wire.as_slice()).expect("sound").expect("whole");
    assert_eq!(Request::decode(&frame), Ok(Request::Reopen(ReopenRequest {})));

    let reply = ReopenReply { waiting: 3 };
    let bytes = Reply::Reopen(reply).encode(frame.header.id).expect("small");
    let (last, early) = bytes.split_last().expect("not empty");
    for byte in early {
        assert_eq!(exchange.feed(&[*byte]), Ok(None));
    }
    assert_eq!(exchange.wanted(), 1);
    assert_eq!(exchange.feed(&[*last]), Ok(Some(Ok(reply))));
}

#[test]
fn a_failure_is_an_answer() {
    let bytes = encode_failure(VerbKind::Reopen as u8, 41, &refusal()).expect("small");
    assert_eq!(ask().feed(&bytes), Ok(Some(Err(refusal()))));
}

#[test]
fn a_refused_connection_answers_whatever_was_asked() {
    let bytes = encode_failure(0, UNASKED, &refusal()).expect("small");
    assert_eq!(ask().feed(&bytes), Ok(Some(Err(refusal()))));
}

#[test]
fn an_answer_to_something_else_is_an_error() {
    let late = Reply::Reopen(ReopenReply::default()).encode(40).expect("small");
    assert_eq!(
        ask().feed(&late),
        Err(ExchangeError::Unasked { id: 40, verb: VerbKind::Reopen as u8, asked: 41 })
    );
    let other_verb = Reply::Stage(()).encode(41).expect("small");
    assert!(matches!(ask().feed(&other_verb), Err(ExchangeError::Unasked { .. })));
    let reply_to_nothing = Reply::Reopen(ReopenReply::default()).encode(UNASKED).expect("small");
    assert!(matches!(ask().feed(&reply_to_nothing), Err(ExchangeError::Unasked { .. })));
}

#[test]
fn bytes_behind_the_answer_are_an_error() {
    let mut bytes = Reply::Reopen(ReopenReply::default()).encode(41).expect("small");
    bytes.push(0);
    assert_eq!(ask().feed(&bytes), Err(ExchangeError::Trailing(1)));
}

#[test]
fn a_server_of_another_version_is_named_with_ours() {
    let mut bytes = Reply::Reopen(ReopenReply::default()).encode(41).expect("small");
    bytes[4] = 9;
    let error = ask().feed(&bytes).expect_err("another version");
    assert_eq!(error, ExchangeError::Frame(FrameError::Version { theirs: 9, ours: VERSION }));
    assert!(error.to_string().contains("version 9"), "{error}");
}
