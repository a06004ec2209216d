// The named kernels that the programs under test launch. The stand-in driver runs the same names on the CPU, so one
// program runs on both. Every loop strides over the whole grid: any launch geometry gives the same result.

typedef unsigned int u32;
typedef unsigned long long u64;

static __device__ u64 first_index()
{
    return (u64)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ u64 grid_stride()
{
    return (u64)gridDim.x * blockDim.x;
}

static __device__ u64 now_ns()
{
    u64 ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

// p[i] = v
extern "C" __global__ void fill(u32 *p, u64 n, u32 v)
{
    for (u64 i = first_index(); i < n; i += grid_stride())
        p[i] = v;
}

// p[i] += v
extern "C" __global__ void add(u32 *p, u64 n, u32 v)
{
    for (u64 i = first_index(); i < n; i += grid_stride())
        p[i] += v;
}

// p[i] = a number that depends on i and seed and looks like chance: no two pages are alike.
extern "C" __global__ void noise(u32 *p, u64 n, u32 seed)
{
    for (u64 i = first_index(); i < n; i += grid_stride()) {
        u32 x = (u32)i * 0x9E3779B1u + (u32)(i >> 32) * 0x85EBCA77u + seed;
        x = (x ^ x >> 16) * 0x7FEB352Du;
        x = (x ^ x >> 15) * 0x846CA68Bu;
        p[i] = x ^ x >> 16;
    }
}

// dst[i] = src[i]
extern "C" __global__ void copy(u32 *dst, const u32 *src, u64 n)
{
    for (u64 i = first_index(); i < n; i += grid_stride())
        dst[i] = src[i];
}

// *out += sum of p[i] * (i + 1), modulo 2^64. The position is in it, so that swapped words do not go unnoticed.
extern "C" __global__ void checksum(const u32 *p, u64 n, u64 *out)
{
    u64 sum = 0;
    for (u64 i = first_index(); i < n; i += grid_stride())
        sum += (u64)p[i] * (i + 1);
    for (int lanes = 16; lanes > 0; lanes /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, lanes);
    if (threadIdx.x % 32 == 0)
        atomicAdd(out, sum);
}

// Completes once *flag has reached value. The flag may be written by a copy, a peer or another kernel.
extern "C" __global__ void wait_flag(volatile u32 *flag, u32 value)
{
    if (first_index() != 0)
        return;
    while (*flag < value) {
    }
    __threadfence_system();
}

// Runs for this long.
extern "C" __global__ void spin(u64 ns)
{
    u64 end = now_ns() + ns;
    while (now_ns() < end) {
    }
}

// *counter += 1, once per launch whatever the geometry. A lost or doubled launch shows in the count.
extern "C" __global__ void increment(u64 *counter)
{
    if (first_index() == 0)
        *counter += 1;
}

// One-launch all-reduce: every rank launches it with the same arguments but its own rank; it completes once all have.
// bufs[r] and flags[r] are rank r's buffer of n words and its two flags, mapped by every rank. After it every buffer holds
// the sum. epoch counts the launches of this group from 1. One block only: ranks may share a GPU, and a
// grid that does not fit beside a waiting one would never start.
extern "C" __global__ void allreduce(u32 *const *bufs, u32 *const *flags, u64 n, u32 rank, u32 ranks, u32 epoch)
{
    volatile u32 *mine = flags[rank];

    // Everybody's input is there.
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) {
        mine[0] = epoch;
        for (u32 r = 0; r < ranks; r++)
            while (((volatile u32 *)flags[r])[0] < epoch) {
            }
        __threadfence_system();
    }
    __syncthreads();

    // Rank r owns the r-th slice, sums it, and writes it to all.
    u64 slice = (n + ranks - 1) / ranks;
    u64 end = slice * (rank + 1) < n ? slice * (rank + 1) : n;
    for (u64 i = slice * rank + threadIdx.x; i < end; i += blockDim.x) {
        u32 sum = 0;
        for (u32 r = 0; r < ranks; r++)
            sum += ((volatile u32 *)bufs[r])[i];
        for (u32 r = 0; r < ranks; r++)
            ((volatile u32 *)bufs[r])[i] = sum;
    }

    // Everybody's slice is written: only then may a buffer be read or changed.
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) {
        mine[1] = epoch;
        for (u32 r = 0; r < ranks; r++)
            while (((volatile u32 *)flags[r])[1] < epoch) {
            }
        __threadfence_system();
    }
}
