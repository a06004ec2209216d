/* A library that allocates by the driver's function it was LINKED with, or by one it has looked up and keeps. */
#include "road.h"

#ifndef LINKED
static CUresult (*allocate)(unsigned long long *, size_t);
#endif

int run(void)
{
    unsigned long long address = 0;
#ifdef LINKED
    CUresult (*allocate)(unsigned long long *, size_t) = cuMemAlloc_v2;
#else
    void *driver = must(dlopen("libcuda.so.1", RTLD_NOW), "libcuda.so.1");
    allocate = (CUresult(*)(unsigned long long *, size_t))must(dlsym(driver, "cuMemAlloc_v2"), "cuMemAlloc_v2");
#endif
    printf("allocates by %s\n", holder((void *)allocate));
    return allocate(&address, 4096);
}
