/* A plugin whose own dependency exports a name: RTLD_DEFAULT finds it from here, and from nowhere else.
 * With DEPENDENCY: that dependency. */
#include "road.h"

#ifdef DEPENDENCY
int road_local(void)
{
    return 42;
}
#else
int road_local(void);

int plugin(void)
{
    int (*found)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "road_local");
    printf("from the plugin %d\n", found ? found() : -1);
    printf("is the linked one %d\n", found == road_local);
    return 0;
}
#endif
