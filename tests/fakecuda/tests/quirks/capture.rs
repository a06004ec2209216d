//! Stream capture and graphs.

use std::ffi::c_uint;

use cuda_sys::*;

use crate::cuda::*;
use crate::helpers::*;
use crate::process::machine;

const GLOBAL: c_uint = 0;
const THREAD_LOCAL: c_uint = 1;
const RELAXED: c_uint = 2;

fn end(stream: Stream) -> CuResult<Graph> {
    let mut graph = Graph::NULL;
    cuStreamEndCapture(stream, &raw mut graph).map(|()| graph)
}

fn status(stream: Stream) -> c_uint {
    let mut status = c_uint::MAX;
    cuStreamIsCapturing(stream, &raw mut status).unwrap();
    status
}

fn instantiate(graph: Graph) -> GraphExec {
    let mut exec = GraphExec::NULL;
    cuGraphInstantiateWithFlags(&raw mut exec, graph, 0).unwrap();
    exec
}

#[test]
fn what_is_captured_runs_when_the_graph_is_launched() {
    machine().test("capture::what_is_captured_runs_when_the_graph_is_launched", |_| {
        start();
        let (word, stream, other) = (alloc(4).unwrap(), own_stream(), own_stream());
        let (fork, join) = (event(2), event(2));
        write(word, &[0]).unwrap();
        cuStreamBeginCapture_v2(stream, GLOBAL).unwrap();
        assert_eq!(status(stream), 1);
        launch(kernel("add"), stream, &[word.0, 1, 1]).unwrap();
        // Work of another stream joins through events.
        cuEventRecord(fork, stream).unwrap();
        cuStreamWaitEvent(other, fork, 0).unwrap();
        assert_eq!(status(other), 1);
        launch(kernel("add"), other, &[word.0, 1, 10]).unwrap();
        cuEventRecord(join, other).unwrap();
        cuStreamWaitEvent(stream, join, 0).unwrap();
        let graph = end(stream).unwrap();
        assert_eq!([status(stream), status(other)], [0, 0]);
        assert_eq!(read(word, 1).unwrap(), [0], "nothing has run");
        let mut count = 0;
        cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut count).unwrap();
        assert_eq!(count, 2);
        let exec = instantiate(graph);
        cuGraphDestroy(graph).unwrap();
        for _ in 0..3 {
            cuGraphLaunch(exec, stream).unwrap();
        }
        cuStreamSynchronize(stream).unwrap();
        assert_eq!(read(word, 1).unwrap(), [33]);
        cuGraphExecDestroy(exec).unwrap();
    });
}

#[test]
fn a_branch_that_does_not_join_back_fails_the_capture() {
    machine().test("capture::a_branch_that_does_not_join_back_fails_the_capture", |_| {
        start();
        let (word, stream, other, fork) = (alloc(4).unwrap(), own_stream(), own_stream(), event(2));
        cuStreamBeginCapture_v2(stream, GLOBAL).unwrap();
        launch(kernel("add"), stream, &[word.0, 1, 1]).unwrap();
        cuEventRecord(fork, stream).unwrap();
        cuStreamWaitEvent(other, fork, 0).unwrap();
        launch(kernel("add"), other, &[word.0, 1, 1]).unwrap();
        assert_eq!(end(other), Err(CuError::STREAM_CAPTURE_UNMATCHED));
        assert_eq!(end(stream), Err(CuError::STREAM_CAPTURE_INVALIDATED));
        cuStreamBeginCapture_v2(stream, GLOBAL).unwrap();
        launch(kernel("add"), stream, &[word.0, 1, 1]).unwrap();
        cuEventRecord(fork, stream).unwrap();
        cuStreamWaitEvent(other, fork, 0).unwrap();
        launch(kernel("add"), other, &[word.0, 1, 1]).unwrap();
        assert_eq!(end(stream), Err(CuError::STREAM_CAPTURE_UNJOINED));
        assert_eq!(status(other), 0);
    });
}

#[test]
fn a_prohibited_call_fails_and_invalidates_the_capture() {
    machine().test("capture::a_prohibited_call_fails_and_invalidates_the_capture", |_| {
        let context = start();
        let (stream, done, word) = (own_stream(), event(0), alloc(4).unwrap());
        let unsupported = Err(CuError::STREAM_CAPTURE_UNSUPPORTED);
        let calls: [&dyn Fn() -> CuResult; 5] = [
            &|| alloc(4).map(|_| ()),
            &|| cuStreamSynchronize(stream),
            &|| cuStreamQuery(stream),
            &cuCtxSynchronize,
            &|| cuEventQuery(done),
        ];
        for call in calls {
            cuStreamBeginCapture_v2(stream, GLOBAL).unwrap();
            assert_eq!(call(), unsupported);
            assert_eq!(status(stream), 2, "invalidated");
            let late = launch(kernel("empty"), stream, &[]);
            assert_eq!(late, Err(CuError::STREAM_CAPTURE_INVALIDATED));
            assert_eq!(end(stream), Err(CuError::STREAM_CAPTURE_INVALIDATED));
            assert_eq!(status(stream), 0);
        }
        // From another thread: only a global capture minds.
        for (mode, result) in [(GLOBAL, unsupported), (THREAD_LOCAL, Ok(())), (RELAXED, Ok(()))] {
            cuStreamBeginCapture_v2(stream, mode).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    cuCtxSetCurrent(context).unwrap();
                    assert_eq!(alloc(4).map(|_| ()), result, "mode {mode}");
                });
            });
            assert_eq!(end(stream).is_ok(), result.is_ok());
        }
        // The wait for a whole context breaks any capture, from any thread; copies and memory management break none.
        for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
            cuStreamBeginCapture_v2(stream, mode).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    cuCtxSetCurrent(context).unwrap();
                    assert_eq!(cuCtxSynchronize(), unsupported, "mode {mode}");
                });
            });
            assert_eq!(end(stream), Err(CuError::STREAM_CAPTURE_INVALIDATED));
            cuStreamBeginCapture_v2(stream, mode).unwrap();
            write(word, &[1]).unwrap();
            read(word, 1).unwrap();
            used();
            load();
            let handle = create(GRANULE, device(0)).unwrap();
            let at = map(handle, GRANULE, 0);
            unmap(at, GRANULE);
            cuMemRelease(handle).unwrap();
            end(stream).unwrap();
        }
        // A thread can take it upon itself.
        cuStreamBeginCapture_v2(stream, GLOBAL).unwrap();
        let mut mode = RELAXED;
        cuThreadExchangeStreamCaptureMode(&raw mut mode).unwrap();
        assert_eq!(mode, GLOBAL);
        alloc(4).unwrap();
        end(stream).unwrap();
    });
}

#[test]
fn the_legacy_stream_cannot_be_used_beside_a_capture() {
    machine().test("capture::the_legacy_stream_cannot_be_used_beside_a_capture", |_| {
        start();
        let (blocking, free) = (stream(0), own_stream());
        assert_eq!(cuStreamBeginCapture_v2(Stream::NULL, GLOBAL), Err(CuError::STREAM_CAPTURE_UNSUPPORTED));
        cuStreamBeginCapture_v2(blocking, GLOBAL).unwrap();
        let mut status = 0;
        assert_eq!(cuStreamIsCapturing(Stream::NULL, &raw mut status), Err(CuError::STREAM_CAPTURE_IMPLICIT));
        assert_eq!(launch(kernel("empty"), Stream::NULL, &[]), Err(CuError::STREAM_CAPTURE_IMPLICIT));
        assert_eq!(end(blocking), Err(CuError::STREAM_CAPTURE_INVALIDATED));
        cuStreamBeginCapture_v2(free, GLOBAL).unwrap();
        launch(kernel("empty"), Stream::NULL, &[]).unwrap();
        end(free).unwrap();
    });
}

#[test]
fn a_captured_event_cannot_be_asked() {
    machine().test("capture::a_captured_event_cannot_be_asked", |_| {
        start();
        let (stream, event) = (own_stream(), event(2));
        cuStreamBeginCapture_v2(stream, RELAXED).unwrap();
        cuEventRecord(event, stream).unwrap();
        assert_eq!(cuEventQuery(event), Err(CuError::CAPTURED_EVENT));
        end(stream).unwrap();
        cuEventRecord(event, stream).unwrap();
        cuEventSynchronize(event).unwrap();
    });
}

#[test]
fn only_the_thread_that_began_a_capture_can_end_it() {
    machine().test("capture::only_the_thread_that_began_a_capture_can_end_it", |_| {
        let context = start();
        let stream = own_stream();
        cuStreamBeginCapture_v2(stream, THREAD_LOCAL).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                cuCtxSetCurrent(context).unwrap();
                // From any thread a launch into the capturing stream is captured.
                launch(kernel("empty"), stream, &[]).unwrap();
                assert_eq!(end(stream), Err(CuError::STREAM_CAPTURE_WRONG_THREAD));
            });
        });
        let graph = end(stream).unwrap();
        let mut count = 0;
        cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut count).unwrap();
        assert_eq!(count, 1);
    });
}
