//! Arrays: memory that is reached by a handle and by copies alone.

use cuda_sys::{Array, ArrayDescriptor, ArrayFormat};

use super::memory::{from_hex, to_hex};
use super::words::Words;
use super::{Answer, Session};
use crate::driver;

pub(super) fn obey(session: &Session, verb: &str, words: &mut Words<'_>) -> Option<Answer> {
    Some(match verb {
        "array" => array(session, words),
        "array-write" => array_write(session, words),
        "array-read" => array_read(session, words),
        "destroy-array" => destroy_array(session, words),
        _ => return None,
    })
}

/// `array A WIDTH HEIGHT`: of bytes; a height of 0 makes one of one dimension.
fn array(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, width, height) = (words.word()?, words.size()?, words.size()?);
    let wanted = ArrayDescriptor { width, height, format: ArrayFormat::UNSIGNED_INT8, num_channels: 1 };
    let mut made = Array::NULL;
    // SAFETY: a place for the array, and a description.
    unsafe { driver::cuArrayCreate_v2(&raw mut made, (&raw const wanted).cast()) }?;
    session.objects.arrays.put(name, made);
    let mut found = ArrayDescriptor::default();
    // SAFETY: a place for the description, and an array of this program.
    unsafe { driver::cuArrayGetDescriptor_v2((&raw mut found).cast(), made) }?;
    if found == wanted { Ok(String::new()) } else { Err(format!("it is {found:?}").into()) }
}

/// `array-write A HEX`, from its first byte.
fn array_write(session: &Session, words: &mut Words<'_>) -> Answer {
    let (array, bytes) = (session.objects.arrays.get(words.word()?)?, from_hex(words.word()?)?);
    // SAFETY: bytes of this program; what does not fit is the driver's to refuse.
    unsafe { driver::cuMemcpyHtoA_v2(array, 0, bytes.as_ptr().cast(), bytes.len()) }?;
    Ok(String::new())
}

/// `array-read A COUNT`, from its first byte.
fn array_read(session: &Session, words: &mut Words<'_>) -> Answer {
    let (array, count) = (session.objects.arrays.get(words.word()?)?, words.size()?);
    let mut bytes = vec![0; count];
    // SAFETY: a place of this size; what the array does not have is the driver's to refuse.
    unsafe { driver::cuMemcpyAtoH_v2(bytes.as_mut_ptr().cast(), array, 0, count) }?;
    Ok(to_hex(&bytes))
}

/// `destroy-array A`
fn destroy_array(session: &Session, words: &mut Words<'_>) -> Answer {
    let array = session.objects.arrays.get(words.word()?)?;
    // SAFETY: what the line asks for; the line does not use it afterwards.
    unsafe { driver::cuArrayDestroy(array) }?;
    Ok(String::new())
}
