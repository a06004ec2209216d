/* Trampolines of names that begin like the driver's: each finds its target by a handle, as cuDNN and libcurl's wrappers
 * do. With TARGET: the library they lead to. */
#include "road.h"

#define NAMES(X) X(cudnnCreate) X(cublasCreate_v2) X(cufftPlan1d) X(curl_easy_init) X(cuMemCreateOfMine) X(cuda)

#ifdef TARGET
#define DEFINE(name)                                                                                                   \
    const char *name(void)                                                                                             \
    {                                                                                                                  \
        return #name;                                                                                                  \
    }
NAMES(DEFINE)
/* A driver's name in a library that is no driver. */
const char *cuMemCreate(void)
{
    return "cuMemCreate of a stranger";
}
#else
static void *target;

#define DEFINE(name)                                                                                                   \
    const char *name(void)                                                                                             \
    {                                                                                                                  \
        const char *(*found)(void) = (const char *(*)(void))must(dlsym(target, #name), #name);                         \
        return (void *)found == (void *)name ? "itself" : found();                                                     \
    }
NAMES(DEFINE)

int main(int count, char **argument)
{
    (void)count;
    target = must(dlopen(argument[1], RTLD_NOW | RTLD_LOCAL), argument[1]);
#define SAY(name) printf("%s %s\n", #name, name());
    NAMES(SAY)
    const char *(*stranger)(void) = (const char *(*)(void))must(dlsym(target, "cuMemCreate"), "cuMemCreate");
    printf("cuMemCreate %s\n", stranger());
    return 0;
}
#endif
