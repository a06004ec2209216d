/* Two libraries that export one function; the first, as OpenMP's tool interface does, looks for the next one.
 * With FIRST: the one in the middle. */
#include "road.h"

#ifdef FIRST
const char *road_answer(void)
{
    const char *(*next)(void) = (const char *(*)(void))dlsym(RTLD_NEXT, "road_answer");
    return next ? next() : "nobody after me";
}

int road_repeat(int times)
{
    void *first = dlsym(RTLD_NEXT, "road_answer");
    for (int i = 0; i < times; i++)
        if (dlsym(RTLD_NEXT, "road_answer") != first)
            return i + 1;
    return 0;
}
#else
const char *road_answer(void)
{
    return "the last";
}
#endif
