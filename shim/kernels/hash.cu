// BLAKE3-256 and zero detection of many pieces of GPU memory at once.
//
// A text is what gets one digest (a chunk of the store, or less). Its bytes lie in pieces, one behind the other, each
// of them anywhere: small allocations share a chunk. The leaves of a text are 1 KiB each. A thread of
// `nvsnap_hash_leaves` hashes one leaf; the 256 leaves of a block then fold to one node in shared memory, so what
// goes through global memory is 32 bytes per 256 KiB. `nvsnap_hash_roots` folds the nodes of a text to its digest.
//
// Folding pairs neighbours level by level and carries an odd last one up. Since a block starts at a multiple of
// 256 leaves of its text, that gives the tree of the BLAKE3 specification for every length: the left side of each
// parent is the largest complete tree. Hence every piece of a text but the last is a multiple of 256 KiB.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned char u8;

// Bytes of a text in a row. `first_leaf` says where in the text they begin, a multiple of 256 leaves. `first_node` is
// where their nodes lie in the buffer of nodes: behind those of the piece before.
struct Piece {
    u64 address;
    u64 length;
    u64 first_leaf;
    u64 first_node;
    // How many leaves the text has.
    u64 leaves;
};

// What gets a digest. Its nodes lie in a row.
struct Text {
    u64 first_node;
    u64 leaves;
};

#define LEAF 1024
#define THREADS 256

#define CHUNK_START 1u
#define CHUNK_END 2u
#define PARENT 4u
#define ROOT 8u

// Numbers in the code, not an array: code loads on a card without a byte free, but memory for constants would have to be
// allocated there (measured on an H200, 580.159.04).
enum : u32 {
    IV0 = 0x6A09E667,
    IV1 = 0xBB67AE85,
    IV2 = 0x3C6EF372,
    IV3 = 0xA54FF53A,
    IV4 = 0x510E527F,
    IV5 = 0x9B05688C,
    IV6 = 0x1F83D9AB,
    IV7 = 0x5BE0CD19,
};

__device__ __forceinline__ void begin(u32 cv[8]) {
    cv[0] = IV0;
    cv[1] = IV1;
    cv[2] = IV2;
    cv[3] = IV3;
    cv[4] = IV4;
    cv[5] = IV5;
    cv[6] = IV6;
    cv[7] = IV7;
}

__device__ __forceinline__ u32 rotate(u32 value, int by) {
    return __funnelshift_r(value, value, by);
}

__device__ __forceinline__ void mix(u32 &a, u32 &b, u32 &c, u32 &d, u32 x, u32 y) {
    a = a + b + x;
    d = rotate(d ^ a, 16);
    c = c + d;
    b = rotate(b ^ c, 12);
    a = a + b + y;
    d = rotate(d ^ a, 8);
    c = c + d;
    b = rotate(b ^ c, 7);
}

// The compression function: `cv` becomes the next chaining value. The words of `block` are permuted on the way.
__device__ __forceinline__ void compress(u32 cv[8], u32 block[16], u64 counter, u32 length, u32 flags) {
    u32 s[16] = {cv[0], cv[1], cv[2], cv[3], cv[4], cv[5], cv[6], cv[7],
                 IV0,   IV1,   IV2,   IV3,   (u32)counter, (u32)(counter >> 32), length, flags};
#pragma unroll
    for (int round = 0; round < 7; round++) {
        mix(s[0], s[4], s[8], s[12], block[0], block[1]);
        mix(s[1], s[5], s[9], s[13], block[2], block[3]);
        mix(s[2], s[6], s[10], s[14], block[4], block[5]);
        mix(s[3], s[7], s[11], s[15], block[6], block[7]);
        mix(s[0], s[5], s[10], s[15], block[8], block[9]);
        mix(s[1], s[6], s[11], s[12], block[10], block[11]);
        mix(s[2], s[7], s[8], s[13], block[12], block[13]);
        mix(s[3], s[4], s[9], s[14], block[14], block[15]);
        u32 m[16] = {block[2], block[6], block[3],  block[10], block[7], block[0],  block[4],  block[13],
                     block[1], block[11], block[12], block[5],  block[9], block[14], block[15], block[8]};
#pragma unroll
        for (int i = 0; i < 16; i++)
            block[i] = m[i];
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        cv[i] = s[i] ^ s[i + 8];
}

__device__ __forceinline__ void parent(u32 out[8], const u32 *left, const u32 *right, u32 flags) {
    u32 block[16];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        block[i] = left[i];
        block[i + 8] = right[i];
    }
    begin(out);
    compress(out, block, 0, 64, PARENT | flags);
}

// Hashes the leaf at `bytes`, which is the leaf number `counter` of its text. Returns whether a byte was not zero.
__device__ bool hash_leaf(u32 cv[8], const u8 *bytes, u32 length, u64 counter, bool alone) {
    u32 any = 0;
    begin(cv);
    // An empty text has one leaf with one empty block.
    u32 blocks = length == 0 ? 1 : (length + 63) / 64;
    bool aligned = ((u64)bytes & 15) == 0;
    for (u32 b = 0; b < blocks; b++) {
        u32 here = length - b * 64 < 64 ? length - b * 64 : 64;
        u32 block[16];
        if (here == 64 && aligned) {
            const uint4 *from = (const uint4 *)(bytes + b * 64);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint4 four = from[i];
                block[4 * i] = four.x;
                block[4 * i + 1] = four.y;
                block[4 * i + 2] = four.z;
                block[4 * i + 3] = four.w;
            }
        } else {
#pragma unroll
            for (int i = 0; i < 16; i++) {
                u32 word = 0;
#pragma unroll
                for (int k = 0; k < 4; k++)
                    if (4 * i + k < here)
                        word |= (u32)bytes[b * 64 + 4 * i + k] << (8 * k);
                block[i] = word;
            }
        }
#pragma unroll
        for (int i = 0; i < 16; i++)
            any |= block[i];
        u32 flags = (b == 0 ? CHUNK_START : 0) | (b + 1 == blocks ? CHUNK_END | (alone ? ROOT : 0) : 0);
        compress(cv, block, counter, here, flags);
    }
    return any != 0;
}

// Folds `count` nodes in `nodes` to the first of them, with all threads of the block. `whole`: they are the whole
// text, so the last parent is the root.
__device__ void fold(u32 (*nodes)[8], u32 count, bool whole) {
    while (count > 1) {
        u32 pairs = count / 2;
        u32 folded[8];
        bool mine = threadIdx.x < pairs;
        if (mine)
            parent(folded, nodes[2 * threadIdx.x], nodes[2 * threadIdx.x + 1], whole && count == 2 ? ROOT : 0);
        u32 carried[8];
        bool odd = (count & 1) && threadIdx.x == pairs;
        if (odd)
            for (int i = 0; i < 8; i++)
                carried[i] = nodes[count - 1][i];
        __syncthreads();
        if (mine)
            for (int i = 0; i < 8; i++)
                nodes[threadIdx.x][i] = folded[i];
        if (odd)
            for (int i = 0; i < 8; i++)
                nodes[pairs][i] = carried[i];
        __syncthreads();
        count = pairs + (count & 1);
    }
}

// Grid: x = blocks of 256 leaves of the longest piece, y = pieces. `nonzero[piece]` must be zero before.
extern "C" __global__ void __launch_bounds__(THREADS) nvsnap_hash_leaves(const Piece *pieces, u32 *nodes, u32 *nonzero) {
    __shared__ u32 cvs[THREADS][8];
    Piece piece = pieces[blockIdx.y];
    u64 leaves = piece.length == 0 ? 1 : (piece.length + LEAF - 1) / LEAF;
    u64 first = (u64)blockIdx.x * THREADS;
    if (first >= leaves)
        return;
    u32 count = leaves - first < THREADS ? (u32)(leaves - first) : THREADS;
    bool any = false;
    if (threadIdx.x < count) {
        u64 leaf = first + threadIdx.x;
        u64 rest = piece.length - leaf * LEAF;
        const u8 *bytes = (const u8 *)piece.address + leaf * LEAF;
        u32 cv[8];
        any = hash_leaf(cv, bytes, rest < LEAF ? (u32)rest : LEAF, piece.first_leaf + leaf, piece.leaves == 1);
        for (int i = 0; i < 8; i++)
            cvs[threadIdx.x][i] = cv[i];
    }
    if (__syncthreads_or(any) && threadIdx.x == 0)
        atomicOr(&nonzero[blockIdx.y], 1u);
    fold(cvs, count, piece.leaves <= THREADS);
    if (threadIdx.x < 8)
        nodes[(piece.first_node + blockIdx.x) * 8 + threadIdx.x] = cvs[0][threadIdx.x];
}

// Grid: x = texts. A text may have as many as 256 x 256 leaves, 64 MiB: the size of a chunk.
extern "C" __global__ void __launch_bounds__(THREADS) nvsnap_hash_roots(const Text *texts, const u32 *nodes, u32 *digests) {
    __shared__ u32 cvs[THREADS][8];
    Text text = texts[blockIdx.x];
    u32 count = (u32)((text.leaves + THREADS - 1) / THREADS);
    if (threadIdx.x < count)
        for (int i = 0; i < 8; i++)
            cvs[threadIdx.x][i] = nodes[(text.first_node + threadIdx.x) * 8 + i];
    __syncthreads();
    fold(cvs, count, count > 1);
    if (threadIdx.x < 8)
        digests[(u64)blockIdx.x * 8 + threadIdx.x] = cvs[0][threadIdx.x];
}
