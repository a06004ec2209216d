"""Ranges, mappings, rights, and how a mapped address looks."""

import ctypes

from api import (
    DEVICE,
    G,
    HOST,
    HOST_NUMA,
    NONE,
    READ,
    READ_WRITE,
    cu,
    grant,
    granted,
    must,
    new,
    out,
    reserve,
    room,
    start,
)
from probe import fact, mapped


def maps():
    start()
    two = 2 * G
    handle = new(two)
    address = room(8 * G)
    fact("map_with_offset", cu("cuMemMap", address, G, G, handle, 0))
    fact("map_offset_unaligned", cu("cuMemMap", address + G, G, 4096, handle, 0))
    fact("map_size_unaligned", cu("cuMemMap", address + G, 4096, 0, handle, 0))
    fact("map_size_zero", cu("cuMemMap", address + G, 0, 0, handle, 0))
    fact("map_beyond_allocation", cu("cuMemMap", address + G, two, G, handle, 0))
    fact("map_address_unaligned", cu("cuMemMap", address + G + 4096, G, 0, handle, 0))
    fact("map_flags_1", cu("cuMemMap", address + G, G, 0, handle, 1))
    fact("map_over_mapped", cu("cuMemMap", address, G, 0, handle, 0))
    fact("map_across_mapped", cu("cuMemMap", address, two, 0, handle, 0))
    fact("map_same_handle_again_elsewhere", cu("cuMemMap", address + G, G, 0, handle, 0))
    fact("unmap_two_adjacent_mappings_at_once", cu("cuMemUnmap", address, two))
    fact("unmap_again", cu("cuMemUnmap", address, two))
    must(cu("cuMemMap", address, two, 0, handle, 0), "map")
    fact("unmap_first_half", cu("cuMemUnmap", address, G))
    fact("unmap_second_half", cu("cuMemUnmap", address + G, G))
    fact("unmap_whole", cu("cuMemUnmap", address, two))
    cu("cuMemMap", address, two, 0, handle, 0)
    fact("unmap_beyond_mapping_into_reserved", cu("cuMemUnmap", address, 3 * G))
    fact("unmap_zero", cu("cuMemUnmap", address, 0))
    cu("cuMemUnmap", address, two)
    # Access over more than one mapping, and over parts.
    other = new(two)
    must(cu("cuMemMap", address, two, 0, handle, 0), "map")
    must(cu("cuMemMap", address + two, two, 0, other, 0), "map")
    fact(
        "getaccess_never_granted",
        granted(address),
        "host",
        granted(address, HOST),
        "device 9",
        granted(address, DEVICE, 9),
        "type 99",
        granted(address, 99),
    )
    fact("setaccess_over_two_mappings", grant(address, 2 * two), granted(address), granted(address + two))
    fact(
        "setaccess_half_of_a_mapping_none", grant(address, G, (DEVICE, 0, NONE)), granted(address), granted(address + G)
    )
    fact("setaccess_half_read", grant(address, G, (DEVICE, 0, READ)), granted(address), granted(address + G))
    fact(
        "setaccess_middle_over_two",
        grant(address + G, two, (DEVICE, 0, READ)),
        granted(address),
        granted(address + G),
        granted(address + two),
        granted(address + 3 * G),
    )
    for name, descriptors in (
        ("device_9", [(DEVICE, 9, READ_WRITE)]),
        ("host", [(HOST, 0, READ_WRITE)]),
        ("numa_0", [(HOST_NUMA, 0, READ_WRITE)]),
        ("flags_2", [(DEVICE, 0, 2)]),
        ("good_then_bad", [(DEVICE, 0, READ), (DEVICE, 9, READ_WRITE)]),
        ("bad_then_good", [(DEVICE, 9, READ_WRITE), (DEVICE, 0, READ)]),
        ("same_device_twice", [(DEVICE, 0, READ), (DEVICE, 0, READ_WRITE)]),
    ):
        must(grant(address, two), "cuMemSetAccess")
        fact(f"setaccess_whole_{name}", grant(address, two, *descriptors), granted(address))
    must(grant(address, two), "cuMemSetAccess")
    fact("map_whole_over_mapped", cu("cuMemMap", address, two, 0, other, 0))
    fact("map_whole_same_over_mapped", cu("cuMemMap", address, two, 0, handle, 0))
    fact("map_whole_unaligned_address", cu("cuMemMap", address + 4 * G + 4096, two, 0, handle, 0))
    fact("map_whole_offset_4096", cu("cuMemMap", address + 4 * G, two, 4096, handle, 0))
    fact("setaccess_unaligned", grant(address + 4096, G), grant(address, 4096))
    fact("setaccess_beyond_mapping", grant(address, 5 * G))
    fact("setaccess_reserved_only", grant(address + 6 * G, G))
    fact("setaccess_zero_size", grant(address, 0))
    fact("setaccess_flags_2", grant(address, G, (DEVICE, 0, 2)), "flags 7", grant(address, G, (DEVICE, 0, 7)))
    fact("setaccess_device_9", grant(address, G, (DEVICE, 9, READ_WRITE)))
    fact(
        "setaccess_device_memory_to_host",
        grant(address, G, (HOST, 0, READ_WRITE)),
        "numa 0",
        grant(address, G, (HOST_NUMA, 0, READ_WRITE)),
    )
    fact(
        "setaccess_good_and_bad_in_one_call",
        grant(address, G, (DEVICE, 0, READ), (DEVICE, 9, READ_WRITE)),
        granted(address),
    )
    fact(
        "getaccess_reserved_only",
        granted(address + 6 * G),
        "unreserved",
        granted(0x200000000000),
        "middle",
        granted(address + 5),
    )
    fact(
        "setaccess_same_device_twice_in_one_call",
        grant(address, G, (DEVICE, 0, READ), (DEVICE, 0, READ_WRITE)),
        granted(address),
    )
    fact(
        "access_gone_after_unmap_and_map",
        cu("cuMemUnmap", address, two),
        cu("cuMemMap", address, two, 0, handle, 0),
        granted(address),
    )
    fact("addressfree_while_mapped", cu("cuMemAddressFree", address, 8 * G))
    still = granted(address)
    fact(
        "addressfree_while_mapped.then",
        "getaccess",
        still,
        "unmap",
        cu("cuMemUnmap", address, two),
        cu("cuMemUnmap", address + two, two),
    )
    fact(
        "addressfree_part",
        cu("cuMemAddressFree", address, G),
        "from the middle",
        cu("cuMemAddressFree", address + G, G),
    )
    fact("addressfree_whole", cu("cuMemAddressFree", address, 8 * G))
    fact(
        "reserve_zero",
        reserve(0)[0],
        "unaligned size",
        reserve(4096)[0],
        "alignment 3",
        reserve(G, 3)[0],
        "alignment 4096",
        reserve(G, 4096)[0],
        "alignment 1 GiB",
        hex(reserve(G, 1 << 30)[1]),
    )
    code, a = reserve(G)
    code, b = reserve(G, 0, a)
    fact("reserve_at_taken", code, "same", a == b)
    must(cu("cuMemAddressFree", a, G), "free")
    code, b = reserve(G, 0, a)
    fact("reserve_at_freed", code, "same", a == b)
    code, c = reserve(G, 0, 0x7F0000000123)
    fact("reserve_at_unaligned_hint", code)
    code, c = reserve(G, 0, 0x3000_0000_0000)
    fact("reserve_at_free_hint", code, "as asked", c == 0x3000_0000_0000, hex(c))
    fact("reserve_1_tib", reserve(1 << 40)[0], "64 tib", reserve(1 << 46)[0])
    with open("/proc/self/maps") as lines:
        hits = [
            line.split()[:2] + line.split()[5:]
            for line in lines
            if int(line.split("-")[0], 16) <= a < int(line.split("-")[1].split()[0], 16)
        ]
    fact("reserved_in_proc_maps", hits)
    # Where a mapped address shows.
    h, m = mapped()
    for name, number, kind in [
        ("context", 1, ctypes.c_uint64),
        ("memory_type", 2, ctypes.c_uint32),
        ("buffer_id", 7, ctypes.c_uint64),
        ("is_managed", 8, ctypes.c_uint32),
        ("device_ordinal", 9, ctypes.c_int),
        ("legacy_ipc", 10, ctypes.c_uint32),
        ("range_start", 11, ctypes.c_uint64),
        ("range_size", 12, ctypes.c_uint64),
        ("mapped", 13, ctypes.c_uint32),
        ("handle_types", 14, ctypes.c_uint64),
        ("rdma", 15, ctypes.c_uint32),
        ("access_flags", 16, ctypes.c_uint32),
        ("mempool", 17, ctypes.c_uint64),
        ("mapping_size", 18, ctypes.c_uint64),
        ("mapping_base", 19, ctypes.c_uint64),
        ("memory_block_id", 20, ctypes.c_uint64),
    ]:
        value, ref = out(kind)
        code = cu("cuPointerGetAttribute", ref, number, m + 64)
        relative = value.value - m if name in ("range_start", "mapping_base") else value.value
        fact(f"pointer_attribute.{name}", code, relative)
    value, ref = out()
    fact("pointer_attribute_reserved_only", [cu("cuPointerGetAttribute", ref, n, a) for n in (1, 2, 9, 11, 13)])
    base, size = out(), out()
    fact("address_range", cu("cuMemGetAddressRange_v2", base[1], size[1], m + 64), base[0].value - m, size[0].value)
    ids = []
    for _ in range(2):
        value, ref = out()
        cu("cuPointerGetAttribute", ref, 7, m)
        ids.append(value.value)
        cu("cuMemUnmap", m, G)
        cu("cuMemMap", m, G, 0, h, 0)
        grant(m, G)
    fact("buffer_id_after_remap", "same", ids[0] == ids[1])
