//! One of the two processes. It owns one half of the shared buffer and some memory of its own.
//!
//! A round adds one to every word of its half, of its own memory, and checks every word of both by a checksum. Rounds go on
//! until a line arrives: `report` answers without stopping, `hold` stops after the round under way, `verify N` checks both halves
//! (N: the rounds of the other process), `go` goes on, and the end of the input ends the process.

use std::io::{BufRead, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use anyhow::{Context as _, Result, bail, ensure};
use cuda_sys::{
    AccessDesc, AccessFlags, AllocationProp, AllocationType, Context, Device, DevicePtr, HandleType,
    LocationType, MemHandle, MemLocation, Stream,
};

use crate::driver::{self, Kernels};

/// Sizes that both processes have to know.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Bytes of the shared buffer; each process owns half of it.
    pub shared: usize,
    /// Bytes that each process has to itself.
    pub private: usize,
}

const DEVICE: MemLocation = MemLocation { kind: LocationType::DEVICE, id: 0 };

/// What one process holds and has done.
struct Worker {
    kernels: Kernels,
    layout: Layout,
    shared: DevicePtr,
    private: DevicePtr,
    result: DevicePtr,
    /// 0 or 1: which half is its own.
    half: usize,
    rounds: u64,
}

/// Runs one of the two: number 0 makes the shared buffer and hands it to number 1 through the socket `socket`.
pub fn work(half: usize, socket: i32, layout: Layout) -> Result<()> {
    let mut worker = Worker::start(half, socket, layout)?;
    say(&format!("ready {}", std::process::id()))?;
    let lines = lines();
    loop {
        match lines.try_recv() {
            Ok(line) => {
                if !worker.obey(&line, &lines)? {
                    return Ok(());
                }
            }
            Err(TryRecvError::Empty) => worker.round()?,
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
    }
}

fn say(line: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}

/// The input, read beside the rounds.
fn lines() -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

impl Worker {
    fn start(half: usize, socket: i32, layout: Layout) -> Result<Self> {
        // SAFETY: no demands.
        unsafe { driver::cuInit(0) }.context("cuInit")?;
        let mut context = Context::NULL;
        // SAFETY: a place for the context.
        unsafe { driver::cuDevicePrimaryCtxRetain(&raw mut context, Device(0)) }?;
        // SAFETY: a context just given.
        unsafe { driver::cuCtxSetCurrent(context) }?;
        let kernels = Kernels::load().context("loading the kernels")?;
        // SAFETY: the parent opened this descriptor for this process.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let handle = if half == 0 {
            let handle = create(layout.shared)?;
            crate::program::send_fd(&socket, &export(handle)?)?;
            handle
        } else {
            import(&crate::program::receive_fd(&socket)?)?
        };
        let shared = mapped(handle, layout.shared)?;
        let private = mapped(create(layout.private)?, layout.private)?;
        let mut result = DevicePtr(0);
        // SAFETY: a place for the address.
        unsafe { driver::cuMemAlloc_v2(&raw mut result, 8) }?;
        let worker = Self { kernels, layout, shared, private, result, half, rounds: 0 };
        worker.launch("fill", worker.own_half(), layout.shared / 2, 0)?;
        worker.launch("fill", private, layout.private, 0)?;
        Ok(worker)
    }

    fn half_at(&self, half: usize) -> DevicePtr {
        DevicePtr(self.shared.0 + u64::try_from(half * (self.layout.shared / 2)).unwrap_or(0))
    }

    fn own_half(&self) -> DevicePtr {
        self.half_at(self.half)
    }

    /// Answers a line; `false` ends the process.
    fn obey(&mut self, line: &str, lines: &Receiver<String>) -> Result<bool> {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("report", _) => say(&format!("rounds {}", self.rounds))?,
            ("hold", _) => {
                say(&format!("rounds {}", self.rounds))?;
                while let Ok(line) = lines.recv() {
                    if line == "go" {
                        say("goes on")?;
                        return Ok(true);
                    }
                    self.obey(&line, lines)?;
                }
                return Ok(false);
            }
            ("verify", other) => {
                self.check(self.own_half(), self.layout.shared / 2, self.rounds)?;
                self.check(self.half_at(1 - self.half), self.layout.shared / 2, other.parse()?)?;
                self.check(self.private, self.layout.private, self.rounds)?;
                say(&format!("verified {}", self.layout.shared + self.layout.private))?;
            }
            _ => bail!("no line reads `{line}`"),
        }
        Ok(true)
    }

    fn round(&mut self) -> Result<()> {
        self.launch("add", self.own_half(), self.layout.shared / 2, 1)?;
        self.launch("add", self.private, self.layout.private, 1)?;
        self.rounds += 1;
        self.check(self.own_half(), self.layout.shared / 2, self.rounds)?;
        self.check(self.private, self.layout.private, self.rounds)
    }

    fn launch(&self, kernel: &str, at: DevicePtr, bytes: usize, value: u64) -> Result<()> {
        let words = u64::try_from(bytes / 4)?;
        Ok(self.kernels.launch(Stream::NULL, kernel, &mut [at.0, words, value])?)
    }

    /// Every word there is `value`: its checksum says so.
    fn check(&self, at: DevicePtr, bytes: usize, value: u64) -> Result<()> {
        let mut found = 0_u64;
        // SAFETY: eight bytes on both sides; the call waits.
        unsafe { driver::cuMemcpyHtoD_v2(self.result, (&raw const found).cast(), 8) }?;
        let words = u64::try_from(bytes / 4)?;
        self.kernels.launch(Stream::NULL, "checksum", &mut [at.0, words, self.result.0])?;
        // SAFETY: as above; work on the same stream is done first.
        unsafe { driver::cuMemcpyDtoH_v2((&raw mut found).cast(), self.result, 8) }?;
        let expected = value.wrapping_mul(sum_to(words));
        ensure!(found == expected, "round {}: {bytes} bytes sum to {found:x}, not {expected:x}", self.rounds);
        Ok(())
    }
}

/// 1 + 2 + ... + n, modulo 2^64.
fn sum_to(n: u64) -> u64 {
    if n.is_multiple_of(2) { (n / 2).wrapping_mul(n + 1) } else { n.wrapping_mul(n.div_ceil(2)) }
}

fn create(size: usize) -> Result<MemHandle> {
    let prop = AllocationProp {
        kind: AllocationType::PINNED,
        requested_handle_types: HandleType::POSIX_FD,
        location: DEVICE,
        ..AllocationProp::default()
    };
    let mut handle = MemHandle::NONE;
    // SAFETY: a place for the handle, and properties that live through the call.
    unsafe { driver::cuMemCreate(&raw mut handle, size, &raw const prop, 0) }.context("cuMemCreate")?;
    Ok(handle)
}

fn mapped(handle: MemHandle, size: usize) -> Result<DevicePtr> {
    let mut at = DevicePtr(0);
    // SAFETY: a place for the address.
    unsafe { driver::cuMemAddressReserve(&raw mut at, size, 0, DevicePtr(0), 0) }
        .context("cuMemAddressReserve")?;
    // SAFETY: a range just reserved.
    unsafe { driver::cuMemMap(at, size, 0, handle, 0) }.context("cuMemMap")?;
    let grant = AccessDesc { location: DEVICE, flags: AccessFlags::READ_WRITE };
    // SAFETY: one descriptor that lives through the call.
    unsafe { driver::cuMemSetAccess(at, size, &raw const grant, 1) }.context("cuMemSetAccess")?;
    Ok(at)
}

fn export(handle: MemHandle) -> Result<OwnedFd> {
    let mut fd: i32 = -1;
    let out = (&raw mut fd).cast();
    // SAFETY: for this handle type the driver writes a descriptor.
    unsafe { driver::cuMemExportToShareableHandle(out, handle, HandleType::POSIX_FD, 0) }?;
    // SAFETY: the driver has just opened it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn import(fd: &OwnedFd) -> Result<MemHandle> {
    let mut handle = MemHandle::NONE;
    let fd = std::ptr::without_provenance_mut(usize::try_from(fd.as_raw_fd())?);
    // SAFETY: a place for the handle; the driver takes a descriptor as a pointer of that value.
    unsafe { driver::cuMemImportFromShareableHandle(&raw mut handle, fd, HandleType::POSIX_FD) }?;
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use super::sum_to;

    #[test]
    fn the_weights_of_a_checksum_add_up() {
        for n in 0..100 {
            assert_eq!(sum_to(n), (1..=n).sum::<u64>());
        }
    }
}
