/* A library whose constructor runs before the preloaded one's: it looks the driver up and uses it. */
#include "road.h"

__attribute__((constructor)) static void early(void)
{
    void *driver = must(dlopen("libcuda.so.1", RTLD_NOW), "libcuda.so.1");
    cu_init init = (cu_init)must(dlsym(driver, "cuInit"), "cuInit");
    printf("early cuInit %s %d\n", holder(init), init(0));
    unsigned long long address = 0;
    CUresult (*alloc)(unsigned long long *, size_t) = (CUresult(*)(unsigned long long *, size_t))dlsym(driver, "cuMemAlloc_v2");
    printf("early alloc %d\n", alloc(&address, 4096));
    fflush(stdout);
}

int early_use(void)
{
    return 1;
}
