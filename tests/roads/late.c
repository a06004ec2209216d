/* Opens the library itself, long after the C library was loaded, and calls its dlsym. */
#include "road.h"

int main(int count, char **argument)
{
    (void)count;
    void *shim = must(dlopen(argument[1], RTLD_NOW | RTLD_LOCAL), argument[1]);
    void *(*look)(void *, const char *) = (void *(*)(void *, const char *))must(dlsym(shim, "dlsym"), "dlsym");
    printf("strlen %d\n", look(RTLD_DEFAULT, "strlen") != NULL);
    printf("missing %d\n", look(RTLD_DEFAULT, "road_no_such_thing") == NULL);
    return 0;
}
