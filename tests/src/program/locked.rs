//! Memory of the program that the driver locks: private or shared, whole or from an odd byte on.

use std::ffi::c_void;

use cuda_sys::DevicePtr;
use rustix::fs::{Mode, OFlags, ftruncate, open};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::objects::Range;
use super::words::Words;
use super::{Answer, Session};
use crate::driver;

pub(super) fn obey(session: &Session, verb: &str, words: &mut Words<'_>) -> Option<Answer> {
    Some(match verb {
        "pages" => pages(session, words),
        "pages-apart" => pages_apart(session, words),
        "unpages" => unpages(session, words),
        "register" => register(session, words),
        "unregister" => unregister(session, words),
        "device-pointer" => device_pointer(session, words),
        "host-flags" => host_flags(session, words),
        _ => return None,
    })
}

/// `pages X SIZE [PATH]`: memory of the program, or of a file that others map as well.
fn pages(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, size) = (words.word()?, words.size()?);
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let place = match words.next() {
        None => {
            // SAFETY: a new mapping at an address of the kernel's choice.
            unsafe { mmap_anonymous(std::ptr::null_mut(), size, protection, MapFlags::PRIVATE) }?
        }
        Some(path) => {
            let file = open(path, OFlags::RDWR | OFlags::CREATE, Mode::RUSR | Mode::WUSR)?;
            ftruncate(&file, u64::try_from(size).unwrap_or(0))?;
            // SAFETY: as above.
            unsafe { mmap(std::ptr::null_mut(), size, protection, MapFlags::SHARED, &file, 0) }?
        }
    };
    keep(session, name, place, size);
    Ok(String::new())
}

/// `pages-apart X SIZE`: memory where the kernel puts nothing by itself, so that the place stays empty afterwards.
fn pages_apart(session: &Session, words: &mut Words<'_>) -> Answer {
    const APART: usize = 0x1000_0000_0000;
    let (name, size) = (words.word()?, words.size()?);
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: a new mapping, where there is none.
    let place = unsafe { mmap_anonymous(std::ptr::without_provenance_mut(APART), size, protection, flags) }?;
    keep(session, name, place, size);
    Ok(String::new())
}

fn keep(session: &Session, name: &str, place: *mut c_void, size: usize) {
    let address = DevicePtr(u64::try_from(place.expose_provenance()).unwrap_or(0));
    session.objects.ranges.put(name, Range { address, size });
}

/// `unpages X`: gives the memory of `pages` back.
fn unpages(session: &Session, words: &mut Words<'_>) -> Answer {
    let range = session.objects.ranges.get(words.word()?)?;
    // SAFETY: what the line asks for; the lines do not use the memory afterwards.
    unsafe { munmap(pointer(range.address), range.size) }?;
    Ok(String::new())
}

/// `register X OFFSET SIZE FLAGS`
fn register(session: &Session, words: &mut Words<'_>) -> Answer {
    let at = session.objects.ranges.get(words.word()?)?.at(words.number()?);
    let (size, flags) = (words.size()?, words.parse()?);
    // SAFETY: what the line asks for.
    unsafe { driver::cuMemHostRegister_v2(pointer(at), size, flags) }?;
    Ok(String::new())
}

/// `unregister X OFFSET`
fn unregister(session: &Session, words: &mut Words<'_>) -> Answer {
    let at = session.objects.ranges.get(words.word()?)?.at(words.number()?);
    // SAFETY: what the line asks for.
    unsafe { driver::cuMemHostUnregister(pointer(at)) }?;
    Ok(String::new())
}

/// `device-pointer D X OFFSET SIZE`: the range `D` as a device sees it, and how far that is from what it was when last asked.
fn device_pointer(session: &Session, words: &mut Words<'_>) -> Answer {
    let name = words.word()?;
    let at = session.objects.ranges.get(words.word()?)?.at(words.number()?);
    let size = words.size()?;
    let mut address = DevicePtr(0);
    // SAFETY: a place for the address.
    unsafe { driver::cuMemHostGetDevicePointer_v2(&raw mut address, pointer(at), 0) }?;
    let before = session.objects.ranges.find(name).map_or(address, |range| range.address);
    session.objects.ranges.put(name, Range { address, size });
    Ok(address.0.wrapping_sub(before.0).to_string())
}

/// `host-flags X OFFSET`
fn host_flags(session: &Session, words: &mut Words<'_>) -> Answer {
    let at = session.objects.ranges.get(words.word()?)?.at(words.number()?);
    let mut flags = 0;
    // SAFETY: a place for the flags.
    unsafe { driver::cuMemHostGetFlags(&raw mut flags, pointer(at)) }?;
    Ok(flags.to_string())
}

fn pointer(address: DevicePtr) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(usize::try_from(address.0).unwrap_or(0))
}
