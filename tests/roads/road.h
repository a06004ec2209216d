/* What the small programs share: the driver's functions they call, and saying in whose hands an address is. */
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef CUresult (*cu_init)(unsigned);
typedef CUresult (*cu_create)(unsigned long long *, size_t, const void *, unsigned long long);
typedef CUresult (*cu_resolve)(const char *, void **, int, uint64_t);
typedef CUresult (*cu_resolve_v2)(const char *, void **, int, uint64_t, unsigned *);

CUresult cuInit(unsigned flags);
CUresult cuStreamSynchronize(void *stream);
CUresult cuMemAlloc_v2(unsigned long long *address, size_t size);
CUresult cuMemFree_v2(unsigned long long address);
CUresult cuLaunchHostFunc(void *stream, void (*function)(void *), void *data);
CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, unsigned *status);

/* Not a driver's: how often the stand-in's function of that name has run. */
unsigned road_calls(const char *name);

/* Whose `address` is: "libcuda.so.1:cuInit", "libnvsnap_gpushare.so:cuInit", "none". */
static inline const char *holder(const void *address)
{
    static char text[512];
    Dl_info info;
    if (!address)
        return "none";
    if (!dladdr(address, &info) || !info.dli_fname)
        return "unknown";
    const char *slash = strrchr(info.dli_fname, '/');
    snprintf(text, sizeof text, "%s:%s", slash ? slash + 1 : info.dli_fname, info.dli_sname ? info.dli_sname : "?");
    return text;
}

static inline void *must(void *value, const char *what)
{
    if (!value) {
        printf("missing: %s: %s\n", what, dlerror());
        exit(3);
    }
    return value;
}
