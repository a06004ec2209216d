/* Linked with the driver, as an older program: no look-up by name anywhere. */
#include "road.h"

static void nothing(void *data)
{
    *(int *)data += 1;
}

int main(void)
{
    unsigned long long address = 0;
    int ran = 0;
    printf("address %s\n", holder(cuInit));
    printf("before init %d\n", cuStreamSynchronize(NULL));
    printf("init %d\n", cuInit(0));
    printf("alloc %d\n", cuMemAlloc_v2(&address, 4096));
    printf("free %d\n", cuMemFree_v2(address));
    printf("host %d %d\n", cuLaunchHostFunc(NULL, nothing, &ran), ran);
    void *found = NULL;
    unsigned status = 77;
    int result = cuGetProcAddress_v2("cuMemAlloc", &found, 13000, 0, &status);
    printf("resolver %d %u %s\n", result, status, holder(found));
    printf("calls %u %u %u %u\n", road_calls("cuInit"), road_calls("cuMemAlloc_v2"), road_calls("cuMemFree_v2"),
           road_calls("cuLaunchHostFunc"));
    return 0;
}
