/* A C library that knows none of the versions: every look-up by version fails. */
#include <stddef.h>

void *dlvsym(void *handle, const char *name, const char *version)
{
    (void)handle, (void)name, (void)version;
    return NULL;
}
