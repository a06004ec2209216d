//! Every message survives its way over the wire, whatever is in it.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use protocol::{
    Allocation, AllocationId, Blocker, BlockerKind, BusyStream, Cause, Contents, ContextState, Decoder,
    DeviceInfo, Drain, DriverMemory, ExportReply, ExportRequest, Extent, Failure, Frame, FrameKind,
    GateLevel, Held, HostLimits, InspectRequest, Inventory, LoadExtent, LoadRequest, Location, Moved, Native,
    Origin, PathBytes, Phase, Progress, QuiesceReply, QuiesceRequest, ReadFrom, ReleaseRequest, RemapReply,
    RemapRequest, ReopenReply, ReopenRequest, Reply, Request, SaveTo, Secret, Side, Source, StageRequest,
    StepRequest, Team, Transferred, Turn, Unclaimed, VerbKind, WaitingThread, decode_failure, decode_reply,
    encode_failure, encode_request, verbs,
};

fn id() -> impl Strategy<Value = AllocationId> {
    any::<[u8; 16]>().prop_map(AllocationId)
}

fn phase() -> impl Strategy<Value = Phase> {
    prop::sample::select(Phase::ALL.to_vec())
}

fn verb() -> impl Strategy<Value = VerbKind> {
    prop::sample::select(VerbKind::ALL.to_vec())
}

fn location() -> impl Strategy<Value = Location> {
    prop_oneof![
        any::<i32>().prop_map(Location::Device),
        Just(Location::Host),
        any::<i32>().prop_map(Location::HostNuma),
        Just(Location::HostNumaCurrent),
        any::<(u32, i32)>().prop_map(|(kind, id)| Location::Other(kind, id)),
    ]
}

fn cause() -> impl Strategy<Value = Cause> {
    prop_oneof![
        Just(Cause::WrongPhase),
        Just(Cause::NotNow),
        Just(Cause::Unknown),
        any::<u32>().prop_map(Cause::Driver),
        any::<i32>().prop_map(Cause::System),
        Just(Cause::Blocked),
        Just(Cause::Busy),
        Just(Cause::Poisoned),
        Just(Cause::BadRequest),
        Just(Cause::Version),
        Just(Cause::Refused),
    ]
}

fn failure() -> impl Strategy<Value = Failure> {
    (cause(), any::<String>(), phase()).prop_map(|(cause, message, phase)| Failure { cause, message, phase })
}

fn allocation() -> impl Strategy<Value = Allocation> {
    let origin =
        prop_oneof![Just(Origin::Created), any::<i32>().prop_map(|exporter| Origin::Imported { exporter })];
    let contents = prop::sample::select(vec![
        Contents::Live,
        Contents::Elsewhere,
        Contents::Zero,
        Contents::Host,
        Contents::Chunks,
    ]);
    let team = any::<Option<(u32, u32, u32)>>()
        .prop_map(|team| team.map(|(devices, joined, bound)| Team { devices, joined, bound }));
    (id(), location(), origin, contents, team, any::<(u64, bool, u32, u32, bool)>()).prop_map(
        |(id, location, origin, contents, multicast, (size, exported, handles, mappings, has_memory))| {
            Allocation {
                id,
                location,
                size,
                origin,
                exported,
                handles,
                mappings,
                contents,
                has_memory,
                multicast,
            }
        },
    )
}

fn drain() -> impl Strategy<Value = Drain> {
    let context = any::<(i32, bool)>().prop_map(|(device, busy)| ContextState { device, busy });
    let waiting = any::<(i32, String, Option<bool>)>().prop_map(|(tid, call, unfinished)| WaitingThread {
        tid,
        call,
        unfinished,
    });
    let stream = any::<(i32, u64)>().prop_map(|(device, handle)| BusyStream { device, handle });
    let lists = (vec(context, 0..4), vec(stream, 0..4), vec(waiting, 0..4));
    (any::<bool>(), lists, any::<(u32, u32, Option<u32>)>()).prop_map(
        |(drained, (contexts, streams, waiting), (inside, captures, error))| Drain {
            drained,
            contexts,
            streams,
            waiting,
            inside,
            captures,
            error,
        },
    )
}

fn blocker() -> impl Strategy<Value = Blocker> {
    use BlockerKind as B;
    let kind = prop::sample::select(vec![
        B::IpcOpened,
        B::IpcExported,
        B::SharedPool,
        B::Managed,
        B::Multicast,
        B::ForeignImport,
        B::RawHandle,
        B::SparseMapping,
        B::ExternalMemory,
        B::Graphics,
        B::UnknownAbi,
        B::BoundPast,
        B::SecondDriver,
        B::Fabric,
        B::Pinned,
        B::HostPool,
        B::SharedEvent,
    ]);
    (kind, any::<(u64, String)>()).prop_map(|(kind, (count, example))| Blocker { kind, count, example })
}

fn inventory() -> impl Strategy<Value = Inventory> {
    let native = prop_oneof![
        Just(None),
        Just(Some(Native::NoVirtualMemory)),
        Just(Some(Native::NoDescriptors)),
        any::<u64>().prop_map(|bytes| Some(Native::Granularity(bytes))),
    ];
    let device = (any::<(i32, [u8; 16])>(), native).prop_map(|((ordinal, uuid), native)| DeviceInfo {
        ordinal,
        uuid,
        native,
    });
    let memory = any::<(u64, u64, u64)>().prop_map(|(malloc_bytes, async_bytes, host_bytes)| DriverMemory {
        malloc_bytes,
        async_bytes,
        host_bytes,
    });
    let progress = option::of((verb(), any::<(u64, u64)>()).prop_map(|(verb, (bytes, total))| Progress {
        verb,
        bytes,
        total,
    }));
    let lists = (vec(device, 0..9), vec(allocation(), 0..9), vec(blocker(), 0..4));
    let plain = any::<(String, i32, bool, i32, u32)>();
    (plain, phase(), lists, drain(), memory, (progress, vec(any::<i32>(), 0..4))).prop_map(
        |(plain, phase, (devices, allocations, blockers), drain, driver_memory, (progress, threads))| {
            Inventory {
                shim_version: plain.0,
                pid: plain.1,
                phase,
                poisoned: plain.2,
                driver_version: plain.3,
                devices,
                contexts: plain.4,
                drain,
                allocations,
                unclaimed: vec![Unclaimed {
                    id: AllocationId([7; 16]),
                    size: plain.4.into(),
                    exporter: plain.1,
                    descriptor: 3,
                    kept: plain.2,
                }],
                driver_memory,
                shared_events: plain.4.into(),
                blockers,
                progress,
                threads,
                kept_bytes: plain.4.into(),
                last_save: Moved { objects: 1, moved: plain.4.into(), zero: 3, deduplicated: 4 },
            }
        },
    )
}

fn path() -> impl Strategy<Value = PathBytes> {
    vec(any::<u8>(), 0..9).prop_map(PathBytes)
}

fn save_to() -> impl Strategy<Value = SaveTo> {
    prop_oneof![
        Just(SaveTo::Memory),
        Just(SaveTo::KeptMemory),
        (path(), path(), any::<bool>()).prop_map(|(store, ckpt_dir, verify_existing)| SaveTo::Store {
            store,
            ckpt_dir,
            verify_existing
        }),
    ]
}

fn read_from() -> impl Strategy<Value = ReadFrom> {
    (prop::option::of(path()), prop::option::of(path())).prop_map(|(store, cache)| ReadFrom { store, cache })
}

fn request() -> impl Strategy<Value = Request> {
    let level = prop::sample::select(vec![GateLevel::Launch, GateLevel::Memory]);
    let held = prop::sample::select(vec![Held::One, Held::Thread(7), Held::Memory]);
    let source = (id(), any::<i32>()).prop_map(|(allocation, pid)| Source { allocation, pid });
    prop_oneof![
        any::<bool>().prop_map(|allocations| Request::Inspect(InspectRequest { allocations })),
        (level, any::<u32>(), any::<bool>()).prop_map(|(level, wait_ms, name_streams)| {
            Request::Quiesce(QuiesceRequest { level, wait_ms, name_streams })
        }),
        (held, any::<u32>()).prop_map(|(held, wait_ms)| Request::Step(StepRequest { held, wait_ms })),
        (any::<bool>(), vec(id(), 0..9), any::<Option<u64>>(), save_to()).prop_map(
            |(save, heir_of, arena_bytes, to)| {
                let extent = if save { Extent::Save } else { Extent::Drop };
                Request::Release(ReleaseRequest { extent, heir_of, limits: HostLimits { arena_bytes }, to })
            }
        ),
        (read_from(), any::<Option<u64>>()).prop_map(|(from, arena_bytes)| {
            Request::Stage(StageRequest { from, limits: HostLimits { arena_bytes } })
        }),
        (any::<bool>(), read_from(), any::<Option<u64>>()).prop_map(|(make, from, arena_bytes)| {
            let extent = if make { LoadExtent::Make } else { LoadExtent::Fill };
            Request::Load(LoadRequest { extent, from, limits: HostLimits { arena_bytes } })
        }),
        (vec(source, 0..9), any::<u32>(), prop::sample::select(vec![Turn::Join, Turn::Bind, Turn::Map]))
            .prop_map(|(sources, wait_ms, turn)| Request::Remap(RemapRequest { sources, wait_ms, turn })),
        Just(Request::Reopen(ReopenRequest {})),
        (id(), any::<[u8; 16]>()).prop_map(|(allocation, secret)| {
            Request::Export(ExportRequest { allocation, secret: Secret(secret) })
        }),
    ]
}

fn transferred() -> impl Strategy<Value = Transferred> {
    any::<(u64, u64, u64, u64, u64)>().prop_map(|(objects, moved, zero, deduplicated, mappings)| {
        Transferred { bytes: Moved { objects, moved, zero, deduplicated }, mappings }
    })
}

fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        inventory().prop_map(Reply::Inspect),
        drain().prop_map(|drain| Reply::Quiesce(QuiesceReply { drain })),
        drain().prop_map(|drain| Reply::Step(QuiesceReply { drain })),
        transferred().prop_map(Reply::Release),
        Just(Reply::Stage(())),
        transferred().prop_map(Reply::Load),
        any::<(u64, u64)>().prop_map(|(imports, mappings)| Reply::Remap(RemapReply { imports, mappings })),
        any::<u32>().prop_map(|waiting| Reply::Reopen(ReopenReply { waiting })),
        any::<u64>().prop_map(|size| Reply::Export(ExportReply { size })),
    ]
}

fn encode(id: u32, request: &Request) -> Vec<u8> {
    match request {
        Request::Inspect(body) => encode_request::<verbs::Inspect>(id, body),
        Request::Quiesce(body) => encode_request::<verbs::Quiesce>(id, body),
        Request::Step(body) => encode_request::<verbs::Step>(id, body),
        Request::Release(body) => encode_request::<verbs::Release>(id, body),
        Request::Stage(body) => encode_request::<verbs::Stage>(id, body),
        Request::Load(body) => encode_request::<verbs::Load>(id, body),
        Request::Remap(body) => encode_request::<verbs::Remap>(id, body),
        Request::Reopen(body) => encode_request::<verbs::Reopen>(id, body),
        Request::Export(body) => encode_request::<verbs::Export>(id, body),
    }
    .expect("under the limit")
}

fn read_reply(frame: &Frame) -> Reply {
    let body = &frame.body;
    match VerbKind::from_wire(frame.header.verb).expect("a verb") {
        VerbKind::Inspect => Reply::Inspect(decode_reply::<verbs::Inspect>(body).expect("sound")),
        VerbKind::Quiesce => Reply::Quiesce(decode_reply::<verbs::Quiesce>(body).expect("sound")),
        VerbKind::Step => Reply::Step(decode_reply::<verbs::Step>(body).expect("sound")),
        VerbKind::Release => Reply::Release(decode_reply::<verbs::Release>(body).expect("sound")),
        VerbKind::Stage => {
            let () = decode_reply::<verbs::Stage>(body).expect("sound");
            Reply::Stage(())
        }
        VerbKind::Load => Reply::Load(decode_reply::<verbs::Load>(body).expect("sound")),
        VerbKind::Remap => Reply::Remap(decode_reply::<verbs::Remap>(body).expect("sound")),
        VerbKind::Reopen => Reply::Reopen(decode_reply::<verbs::Reopen>(body).expect("sound")),
        VerbKind::Export => Reply::Export(decode_reply::<verbs::Export>(body).expect("sound")),
    }
}

fn unframe(side: Side, bytes: &[u8]) -> Frame {
    let mut rest = bytes;
    let frame = Decoder::new(side).feed(&mut rest).expect("sound").expect("whole");
    assert!(rest.is_empty());
    frame
}

proptest! {
    #[test]
    fn requests(id in any::<u32>(), request in request()) {
        let frame = unframe(Side::Server, &encode(id, &request));
        prop_assert_eq!(frame.header.id, id);
        prop_assert_eq!(frame.header.verb, request.verb() as u8);
        prop_assert_eq!(Request::decode(&frame), Ok(request));
    }

    #[test]
    fn replies(id in any::<u32>(), reply in reply()) {
        let frame = unframe(Side::Client, &reply.encode(id).expect("under the limit"));
        prop_assert_eq!(frame.header.id, id);
        prop_assert_eq!(frame.header.kind, FrameKind::Reply);
        prop_assert_eq!(frame.header.verb, reply.verb() as u8);
        prop_assert_eq!(read_reply(&frame), reply);
    }

    #[test]
    fn failures(verb in any::<u8>(), id in any::<u32>(), failure in failure()) {
        let frame = unframe(Side::Client, &encode_failure(verb, id, &failure).expect("under the limit"));
        prop_assert_eq!(frame.header.id, id);
        prop_assert_eq!(frame.header.verb, verb);
        prop_assert_eq!(frame.header.kind, FrameKind::Failure);
        prop_assert_eq!(decode_failure(&frame.body), Ok(failure));
    }
}
