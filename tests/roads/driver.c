/* A libcuda of a few functions, to see who is called by which road. It counts calls, and its resolver answers as the
 * real one: by name, version and flags, always with the address of an exported function.
 *
 * WITHOUT_RESOLVER_V2, WITHOUT_MULTICAST: an older driver. WITH_CREATE_V3: a newer one than anybody knows. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))
#define FUNCTIONS(X)                                                                                                   \
    X(cuInit) X(cuDriverGetVersion) X(cuMemCreate) X(cuMemAlloc) X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuLaunchKernel)  \
    X(cuLaunchKernel_ptsz) X(cuLaunchHostFunc) X(cuStreamSynchronize) X(cuStreamSynchronize_ptsz)                      \
    X(cuIpcOpenMemHandle_v2) X(cuMulticastCreate) X(cuMemCreate_v3) X(cuNobodyKnows) X(cuStreamIsCapturing)

enum {
#define X(name) AT_##name,
    FUNCTIONS(X)
#undef X
    FUNCTION_COUNT
};

static const char *const names[] = {
#define X(name) #name,
    FUNCTIONS(X)
#undef X
};
static unsigned calls[FUNCTION_COUNT];
static int initialised;

static int called(int at)
{
    __atomic_add_fetch(&calls[at], 1, __ATOMIC_RELAXED);
    return at == AT_cuInit || at == AT_cuDriverGetVersion || initialised ? 0 : 3;
}

EXPORT unsigned road_calls(const char *name)
{
    for (int at = 0; at < FUNCTION_COUNT; at++)
        if (!strcmp(names[at], name))
            return calls[at];
    abort();
}

EXPORT int cuInit(unsigned flags)
{
    initialised = 1;
    return called(AT_cuInit) ? 3 : flags ? 1 : 0;
}

EXPORT int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return called(AT_cuDriverGetVersion);
}

EXPORT int cuMemAlloc_v2(unsigned long long *address, size_t size)
{
    int result = called(AT_cuMemAlloc_v2);
    if (result || !size || !address)
        return result ? result : 1;
    *address = 0x7f0000000000;
    return 0;
}

/* The oldest form: addresses and sizes of 32 bits. */
EXPORT int cuMemAlloc(unsigned *address, unsigned size)
{
    int result = called(AT_cuMemAlloc);
    if (!result && address && size)
        *address = 0x1000;
    return result ? result : address && size ? 0 : 1;
}

EXPORT int cuMemFree_v2(unsigned long long address)
{
    int result = called(AT_cuMemFree_v2);
    return result ? result : address ? 0 : 1;
}

EXPORT int cuMemCreate(unsigned long long *handle, size_t size, const void *properties, unsigned long long flags)
{
    int result = called(AT_cuMemCreate);
    if (result || !handle || !size || !properties)
        return result ? result : 1;
    *handle = 0x5654961cad30;
    return 0;
}

EXPORT int cuLaunchHostFunc(void *stream, void (*function)(void *), void *data)
{
    int result = called(AT_cuLaunchHostFunc);
    if (!result && function)
        function(data);
    return result ? result : function ? 0 : 1;
}

#define PLAIN(name)                                                                                                    \
    EXPORT int name(void)                                                                                              \
    {                                                                                                                  \
        return called(AT_##name);                                                                                      \
    }
PLAIN(cuLaunchKernel)
PLAIN(cuLaunchKernel_ptsz)
PLAIN(cuStreamSynchronize)
PLAIN(cuStreamSynchronize_ptsz)
PLAIN(cuIpcOpenMemHandle_v2)
PLAIN(cuStreamIsCapturing)
PLAIN(cuNobodyKnows)
#ifndef WITHOUT_MULTICAST
PLAIN(cuMulticastCreate)
#endif
#ifdef WITH_CREATE_V3
PLAIN(cuMemCreate_v3)
#endif

EXPORT int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags);
#ifndef WITHOUT_RESOLVER_V2
EXPORT int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, unsigned *status);
#endif

/* From `since` on, `name` stands for `function`; for `per_thread` with that flag, if there is one. */
static const struct {
    const char *name;
    int since;
    void *function, *per_thread;
} table[] = {
    {"cuInit", 2000, cuInit},
    {"cuDriverGetVersion", 2020, cuDriverGetVersion},
    {"cuMemAlloc", 3020, cuMemAlloc_v2},
    {"cuMemAlloc", 2000, cuMemAlloc},
    {"cuMemFree", 3020, cuMemFree_v2},
#ifdef WITH_CREATE_V3
    {"cuMemCreate", 14000, cuMemCreate_v3},
#endif
    {"cuMemCreate", 10020, cuMemCreate},
    {"cuLaunchKernel", 4000, cuLaunchKernel, cuLaunchKernel_ptsz},
    {"cuLaunchHostFunc", 10000, cuLaunchHostFunc},
    {"cuStreamSynchronize", 2000, cuStreamSynchronize, cuStreamSynchronize_ptsz},
    {"cuIpcOpenMemHandle", 11000, cuIpcOpenMemHandle_v2},
#ifndef WITHOUT_MULTICAST
    {"cuMulticastCreate", 12010, cuMulticastCreate},
#endif
    {"cuNobodyKnows", 12000, cuNobodyKnows},
#ifndef WITHOUT_RESOLVER_V2
    {"cuGetProcAddress", 12000, cuGetProcAddress_v2},
#endif
    {"cuGetProcAddress", 11030, cuGetProcAddress},
};

static int find(const char *name, void **function, int version, uint64_t flags, unsigned *status)
{
    if (!name || !function)
        return 1;
    *function = NULL;
    unsigned why = 1;
    for (size_t at = 0; at < sizeof table / sizeof *table; at++) {
        if (strcmp(table[at].name, name))
            continue;
        why = 2;
        if (version < table[at].since)
            continue;
        *function = flags & 2 && table[at].per_thread ? table[at].per_thread : table[at].function;
        why = 0;
        break;
    }
    if (status)
        *status = why;
    return status || !why ? 0 : 500;
}

int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
    return find(name, function, version, flags, NULL);
}

#ifndef WITHOUT_RESOLVER_V2
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, unsigned *status)
{
    unsigned ignored;
    return find(name, function, version, flags, status ? status : &ignored);
}
#endif
