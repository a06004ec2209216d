//! Any driver function with any arguments, by any road: for what no verb of its own exists.

use std::ffi::c_void;

use super::words::{Words, number};
use super::{Answer, Session};
use crate::driver::{Road, address};

/// Arguments a function can have here: six in registers and eight on the stack. Surplus ones are not looked at.
type Function =
    unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> u32;

const ARGUMENTS: usize = 14;

pub(super) fn obey(session: &Session, verb: &str, words: &mut Words<'_>) -> Option<Answer> {
    Some(match verb {
        "raw" => raw(session, words),
        "there" => there(words),
        _ => return None,
    })
}

/// `there ROAD NAME`: whether the road leads to the function.
fn there(words: &mut Words<'_>) -> Answer {
    let (road, name): (Road, _) = (words.word()?.parse()?, words.word()?);
    Ok((!address(road, name).is_null()).to_string())
}

/// `raw ROAD NAME ARGUMENT...`: the driver's number and what it wrote into each `out`. An argument is a number, `out` (room
/// for 256 zero bytes), `handle:H`, `stream:S`, `event:E`, or `X` or `X+OFFSET` for an address. What is not given is zero.
fn raw(session: &Session, words: &mut Words<'_>) -> Answer {
    let (road, name): (Road, _) = (words.word()?.parse()?, words.word()?);
    let found = address(road, name);
    if found.is_null() {
        return Ok("absent".to_owned());
    }
    let mut room = [[0_u64; 32]; ARGUMENTS];
    let mut values = [0_u64; ARGUMENTS];
    let mut outs = Vec::new();
    for (value, room) in values.iter_mut().zip(&mut room) {
        let Some(word) = words.next() else { break };
        *value = match word.split_once(':') {
            Some(("handle", name)) => session.objects.handles.get(name)?.0,
            Some(("stream", name)) => pointer(session.objects.streams.get(name)?.0),
            Some(("event", name)) => pointer(session.objects.events.get(name)?.0),
            _ if word == "out" => {
                let at = pointer(room.as_mut_ptr().cast());
                outs.push(room);
                at
            }
            _ if word.starts_with(|first: char| first.is_ascii_digit()) => number(word)?,
            _ => {
                let (name, offset) = word.split_once('+').unwrap_or((word, "0"));
                session.objects.ranges.get(name)?.at(number(offset)?).0
            }
        };
    }
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = values;
    // SAFETY: every driver function takes whole numbers and pointers, which this calling convention passes alike.
    let call: Function = unsafe { std::mem::transmute(found) };
    // SAFETY: the line vouches for the arguments.
    let code = unsafe { call(a, b, c, d, e, f, g, h, i, j, k, l, m, n) };
    let written: String = outs
        .iter()
        .map(|room| format!(" {}", if room.iter().any(|word| *word != 0) { "written" } else { "untouched" }))
        .collect();
    Ok(format!("{code}{written}"))
}

fn pointer(pointer: *mut c_void) -> u64 {
    u64::try_from(pointer.expose_provenance()).unwrap_or(0)
}
