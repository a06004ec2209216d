/* Loads argv[1] into a scope of its own and runs its `plugin`. */
#include "road.h"

int main(int count, char **argument)
{
    (void)count;
    void *handle = must(dlopen(argument[1], RTLD_NOW | RTLD_LOCAL), argument[1]);
    int (*run)(void) = (int (*)(void))must(dlsym(handle, "plugin"), "plugin");
    return run();
}
