/* A library that is linked with the driver, to be loaded into a scope of its own. */
#include "road.h"

int plugin(void)
{
    unsigned long long address = 0;
    printf("plugin %s\n", holder(cuInit));
    printf("plugin init %d\n", cuInit(0));
    printf("plugin alloc %d\n", cuMemAlloc_v2(&address, 4096));
    printf("plugin default %s\n", holder(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")));
    printf("plugin calls %u\n", road_calls("cuMemAlloc_v2"));
    return 0;
}
