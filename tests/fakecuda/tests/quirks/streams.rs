//! Streams, events, kernels: asynchronous, in order, with the rules of the default stream.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use cuda_sys::*;

use crate::cuda::*;
use crate::helpers::*;
use crate::process::machine;

/// A word that work can wait for, at 0.
fn flag() -> DevicePtr {
    let flag = alloc(4).unwrap();
    write(flag, &[0]).unwrap();
    flag
}

fn raise(flag: DevicePtr) {
    cuStreamWriteValue32_v2(own_stream(), flag, 1, 0).unwrap();
}

#[test]
fn launches_return_before_their_work_is_done_and_a_stream_keeps_its_order() {
    machine().test("streams::launches_return_before_their_work_is_done_and_a_stream_keeps_its_order", |_| {
        start();
        let (flag, words, stream) = (flag(), alloc(4096).unwrap(), own_stream());
        launch(kernel("wait_flag"), stream, &[flag.0, 1]).unwrap();
        launch(kernel("fill"), stream, &[words.0, 1024, 5]).unwrap();
        launch(kernel("add"), stream, &[words.0, 1024, 2]).unwrap();
        assert_eq!(cuStreamQuery(stream), Err(CuError::NOT_READY));
        raise(flag);
        cuStreamSynchronize(stream).unwrap();
        cuStreamQuery(stream).unwrap();
        assert_eq!(read(words, 1024).unwrap(), [7; 1024]);
    });
}

#[test]
fn kernels_compute_what_their_names_say() {
    machine().test("streams::kernels_compute_what_their_names_say", |_| {
        start();
        let stream = own_stream();
        let (from, to, sum) = (alloc(4 * MIB).unwrap(), alloc(4 * MIB).unwrap(), alloc(8).unwrap());
        let count = MIB as u64;
        launch(kernel("fill"), stream, &[from.0, count, 3]).unwrap();
        launch(kernel("copy"), stream, &[to.0, from.0, count]).unwrap();
        cuMemsetD32Async(sum, 0, 2, stream).unwrap();
        launch(kernel("checksum"), stream, &[to.0, count, sum.0]).unwrap();
        launch(kernel("increment"), stream, &[sum.0]).unwrap();
        cuStreamSynchronize(stream).unwrap();
        let halves = read(sum, 2).unwrap();
        let sum = u64::from(halves[0]) | u64::from(halves[1]) << 32;
        assert_eq!(sum, 3 * (count * (count + 1) / 2) + 1);
    });
}

#[test]
fn an_all_reduce_waits_for_every_rank_and_sums_in_all_buffers() {
    machine().test("streams::an_all_reduce_waits_for_every_rank_and_sums_in_all_buffers", |_| {
        start();
        let ranks = 3_u64;
        let buffers: Vec<u64> = (0..ranks).map(|_| alloc(4000).unwrap().0).collect();
        let flags: Vec<u64> = (0..ranks).map(|_| alloc(8).unwrap().0).collect();
        let table = |pointers: &[u64]| {
            let at = alloc(8 * pointers.len()).unwrap();
            cuMemcpyHtoD_v2(at, pointers.as_ptr().cast(), 8 * pointers.len()).unwrap();
            at.0
        };
        let (buffer_table, flag_table) = (table(&buffers), table(&flags));
        for flags in &flags {
            write(DevicePtr(*flags), &[0, 0]).unwrap();
        }
        let (reduce, fill) = (kernel("allreduce"), kernel("fill"));
        let streams: Vec<Stream> = (0..ranks).map(|_| own_stream()).collect();
        for epoch in 1..=3_u64 {
            for (rank, stream) in streams.iter().enumerate() {
                let value = 10_u64.pow(u32::try_from(rank).unwrap());
                launch(fill, *stream, &[buffers[rank], 1000, value]).unwrap();
                if rank + 1 == streams.len() {
                    assert_eq!(cuStreamQuery(streams[0]), Err(CuError::NOT_READY), "one rank is missing");
                }
                let arguments = [buffer_table, flag_table, 1000, rank as u64, ranks, epoch];
                launch(reduce, *stream, &arguments).unwrap();
            }
            cuCtxSynchronize().unwrap();
            for buffer in &buffers {
                assert_eq!(read(DevicePtr(*buffer), 1000).unwrap(), [111; 1000]);
            }
        }
    });
}

#[test]
fn events_order_streams_and_tell_when_work_is_done() {
    machine().test("streams::events_order_streams_and_tell_when_work_is_done", |_| {
        start();
        let (flag, word) = (flag(), alloc(4).unwrap());
        let (first, second) = (own_stream(), own_stream());
        let (begun, done) = (event(0), event(0));
        cuEventQuery(done).unwrap();
        cuEventRecord(begun, first).unwrap();
        launch(kernel("wait_flag"), first, &[flag.0, 1]).unwrap();
        launch(kernel("fill"), first, &[word.0, 1, 1]).unwrap();
        cuEventRecord(done, first).unwrap();
        cuStreamWaitEvent(second, done, 0).unwrap();
        launch(kernel("add"), second, &[word.0, 1, 1]).unwrap();
        assert_eq!(cuEventQuery(done), Err(CuError::NOT_READY));
        assert_eq!(cuStreamQuery(second), Err(CuError::NOT_READY));
        let mut time = 0.0;
        assert_eq!(cuEventElapsedTime(&raw mut time, begun, done), Err(CuError::NOT_READY));
        raise(flag);
        cuEventSynchronize(done).unwrap();
        cuStreamSynchronize(second).unwrap();
        assert_eq!(read(word, 1).unwrap(), [2]);
        cuEventElapsedTime(&raw mut time, begun, done).unwrap();
        assert!(time > 0.0);
    });
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_and_they_for_it() {
    machine().test("streams::the_legacy_stream_waits_for_blocking_streams_and_they_for_it", |_| {
        start();
        let (flag, word) = (flag(), alloc(4).unwrap());
        let (blocking, free) = (stream(0), own_stream());
        launch(kernel("wait_flag"), blocking, &[flag.0, 1]).unwrap();
        launch(kernel("fill"), Stream::NULL, &[word.0, 1, 1]).unwrap();
        let later = stream(0);
        launch(kernel("add"), later, &[word.0, 1, 1]).unwrap();
        launch(kernel("spin"), free, &[1]).unwrap();
        cuStreamSynchronize(free).unwrap();
        assert_eq!(cuStreamQuery(Stream::NULL), Err(CuError::NOT_READY));
        assert_eq!(cuStreamQuery(later), Err(CuError::NOT_READY));
        raise(flag);
        cuStreamSynchronize(later).unwrap();
        assert_eq!(read(word, 1).unwrap(), [2]);
    });
}

#[test]
fn each_thread_has_a_default_stream_of_its_own() {
    machine().test("streams::each_thread_has_a_default_stream_of_its_own", |_| {
        let context = start();
        let flag = flag();
        let own: Stream = Stream(std::ptr::without_provenance_mut(2));
        launch(kernel("wait_flag"), own, &[flag.0, 1]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                cuCtxSetCurrent(context).unwrap();
                cuStreamQuery_ptsz(Stream::NULL).unwrap();
                cuStreamQuery(own).unwrap();
            });
        });
        assert_eq!(cuStreamQuery_ptsz(Stream::NULL), Err(CuError::NOT_READY));
        raise(flag);
        cuStreamSynchronize_ptsz(Stream::NULL).unwrap();
    });
}

#[test]
fn a_launch_on_a_full_queue_waits_for_room() {
    machine().with("FAKECUDA_QUEUE", "4").test("streams::a_launch_on_a_full_queue_waits_for_room", |_| {
        let context = start();
        let (flag, stream, add, word) = (flag(), own_stream(), kernel("add"), alloc(4).unwrap());
        write(word, &[0]).unwrap();
        launch(kernel("wait_flag"), stream, &[flag.0, 1]).unwrap();
        for _ in 0..3 {
            launch(add, stream, &[word.0, 1, 1]).unwrap();
        }
        let launched = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                cuCtxSetCurrent(context).unwrap();
                launch(add, stream, &[word.0, 1, 1]).unwrap();
                launched.store(1, Ordering::SeqCst);
            });
            // Gives the launch the time in which it would return if it did not wait.
            launch(kernel("spin"), own_stream(), &[50_000_000]).unwrap();
            cuStreamSynchronize(own_stream()).unwrap();
            assert_eq!(launched.load(Ordering::SeqCst), 0);
            raise(flag);
        });
        cuStreamSynchronize(stream).unwrap();
        assert_eq!(read(word, 1).unwrap(), [4]);
    });
}

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: the test hands over a counter.
    unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn note(_stream: Stream, status: u32, data: *mut c_void) {
    // SAFETY: the test hands over a counter.
    unsafe { &*data.cast::<AtomicU32>() }.store(status, Ordering::SeqCst);
}

#[test]
fn host_functions_run_in_order_and_callbacks_are_told_of_errors() {
    machine().violates(&["fill"]).test(
        "streams::host_functions_run_in_order_and_callbacks_are_told_of_errors",
        |_| {
            start();
            let (flag, stream) = (flag(), own_stream());
            let (calls, status) = (AtomicU32::new(0), AtomicU32::new(99));
            launch(kernel("wait_flag"), stream, &[flag.0, 1]).unwrap();
            cuLaunchHostFunc(stream, Some(count), (&raw const calls).cast_mut().cast()).unwrap();
            assert_eq!(calls.load(Ordering::SeqCst), 0);
            raise(flag);
            cuStreamSynchronize(stream).unwrap();
            assert_eq!(calls.load(Ordering::SeqCst), 1);
            // A fault that has not come yet when the callback is asked for.
            let second = self::flag();
            launch(kernel("wait_flag"), stream, &[second.0, 1]).unwrap();
            launch(kernel("fill"), stream, &[0x1000, 1, 1]).unwrap();
            cuStreamAddCallback(stream, Some(note), (&raw const status).cast_mut().cast(), 0).unwrap();
            raise(second);
            assert_eq!(cuStreamSynchronize(stream), Err(CuError::ILLEGAL_ADDRESS));
            assert_eq!(status.load(Ordering::SeqCst), CuError::ILLEGAL_ADDRESS.raw());
        },
    );
}

#[test]
fn stream_memory_operations_write_and_wait() {
    machine().test("streams::stream_memory_operations_write_and_wait", |_| {
        start();
        let (word, stream) = (alloc(8).unwrap(), own_stream());
        write(word, &[0, 0]).unwrap();
        cuStreamWaitValue32_v2(stream, word, 5, 0).unwrap();
        cuStreamWriteValue64_v2(stream, word, 1 << 40, 0).unwrap();
        assert_eq!(cuStreamQuery(stream), Err(CuError::NOT_READY));
        cuStreamWriteValue32_v2(own_stream(), word, 6, 0).unwrap();
        cuStreamSynchronize(stream).unwrap();
        assert_eq!(read(word, 2).unwrap(), [0, 1 << 8]);
        cuStreamWaitValue64_v2(stream, word, 1 << 40, 1).unwrap();
        cuStreamSynchronize(stream).unwrap();
    });
}

#[test]
fn a_destroyed_stream_finishes_its_work() {
    machine().violates(&["is not a stream"]).test("streams::a_destroyed_stream_finishes_its_work", |_| {
        start();
        let (flag, word, stream) = (flag(), alloc(4).unwrap(), own_stream());
        write(word, &[0]).unwrap();
        launch(kernel("wait_flag"), stream, &[flag.0, 1]).unwrap();
        launch(kernel("add"), stream, &[word.0, 1, 1]).unwrap();
        cuStreamDestroy_v2(stream).unwrap();
        assert_eq!(cuStreamQuery(stream), Err(CuError::INVALID_HANDLE));
        raise(flag);
        cuCtxSynchronize().unwrap();
        assert_eq!(read(word, 1).unwrap(), [1]);
    });
}

#[test]
fn a_free_waits_for_work_of_its_device() {
    machine().test("streams::a_free_waits_for_work_of_its_device", |_| {
        start();
        let (words, stream) = (alloc(4 * MIB).unwrap(), own_stream());
        launch(kernel("spin"), stream, &[30_000_000]).unwrap();
        launch(kernel("fill"), stream, &[words.0, MIB as u64, 1]).unwrap();
        cuMemFree_v2(words).unwrap();
        cuStreamQuery(stream).unwrap();
        assert_eq!(used(), 0);
    });
}

#[test]
fn stream_ordered_memory_is_freed_when_the_stream_gets_there() {
    machine().test("streams::stream_ordered_memory_is_freed_when_the_stream_gets_there", |_| {
        start();
        let (flag, stream) = (flag(), own_stream());
        let before = used();
        let mut at = DevicePtr(0);
        cuMemAllocAsync(&raw mut at, 3 * MIB, stream).unwrap();
        launch(kernel("wait_flag"), stream, &[flag.0, 1]).unwrap();
        launch(kernel("fill"), stream, &[at.0, 100, 1]).unwrap();
        cuMemFreeAsync(at, stream).unwrap();
        assert_eq!(used() - before, 4 * MIB);
        raise(flag);
        cuStreamSynchronize(stream).unwrap();
        assert_eq!(used(), before);
    });
}

#[test]
fn interprocess_events_connect_their_processes() {
    machine().test("streams::interprocess_events_connect_their_processes", |me| {
        const BOTH: u32 = 6;
        if me.role() == "opener" {
            start();
            let (words, _) = me.parent().receive_with();
            let mut handle = IpcEventHandle { reserved: [0; IPC_HANDLE_SIZE] };
            for (bytes, word) in handle.reserved.chunks_exact_mut(8).zip(&words) {
                bytes.copy_from_slice(&word.to_ne_bytes());
            }
            let mut event = Event::NULL;
            cuIpcOpenEventHandle(&raw mut event, handle).unwrap();
            assert_eq!(cuEventQuery(event), Err(CuError::NOT_READY));
            cuStreamWaitEvent(own_stream(), event, 0).unwrap();
            me.parent().send(&[]);
            cuCtxSynchronize().unwrap();
            return cuEventQuery(event).unwrap();
        }
        start();
        let other = me.start("opener");
        let (flag, stream, event) = (flag(), own_stream(), event(BOTH));
        launch(kernel("wait_flag"), stream, &[flag.0, 1]).unwrap();
        cuEventRecord(event, stream).unwrap();
        let mut handle = IpcEventHandle { reserved: [0; IPC_HANDLE_SIZE] };
        cuIpcGetEventHandle(&raw mut handle, event).unwrap();
        let words: Vec<u64> = handle
            .reserved
            .chunks_exact(8)
            .map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap()))
            .collect();
        other.link.send(&words);
        other.link.receive();
        raise(flag);
        other.finish();
    });
}
