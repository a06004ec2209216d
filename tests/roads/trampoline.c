/* A library that exports the driver's names and loads the driver itself when first called: what programs link that
 * must start on machines without a driver. */
#include "road.h"

static void *look(const char *name)
{
    static void *driver;
    if (!driver)
        driver = must(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "libcuda.so.1");
    return must(dlsym(driver, name), name);
}

CUresult cuInit(unsigned flags)
{
    return ((CUresult(*)(unsigned))look("cuInit"))(flags);
}

CUresult cuStreamSynchronize(void *stream)
{
    return ((CUresult(*)(void *))look("cuStreamSynchronize"))(stream);
}

CUresult cuMemAlloc_v2(unsigned long long *address, size_t size)
{
    return ((CUresult(*)(unsigned long long *, size_t))look("cuMemAlloc_v2"))(address, size);
}

CUresult cuMemFree_v2(unsigned long long address)
{
    return ((CUresult(*)(unsigned long long))look("cuMemFree_v2"))(address);
}

CUresult cuLaunchHostFunc(void *stream, void (*function)(void *), void *data)
{
    return ((CUresult(*)(void *, void (*)(void *), void *))look("cuLaunchHostFunc"))(stream, function, data);
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, unsigned *status)
{
    return ((cu_resolve_v2)look("cuGetProcAddress_v2"))(name, function, version, flags, status);
}

unsigned road_calls(const char *name)
{
    return ((unsigned (*)(const char *))look("road_calls"))(name);
}
