/* Linked with the driver. Misses a look-up, uses the driver, and reads the error only then. */
#include "road.h"

int main(void)
{
    dlsym(RTLD_DEFAULT, "road_no_such_thing");
    void *found = NULL;
    unsigned status;
    cuInit(0);
    cuGetProcAddress_v2("cuMemCreate", &found, 12000, 0, &status);
    cuGetProcAddress_v2("cuMulticastCreate", &found, 12010, 0, &status);
    printf("error %s\n", dlerror());
    return 0;
}
