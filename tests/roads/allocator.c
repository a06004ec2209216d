/* An allocator whose first call looks up the C library's own: a look-up from inside malloc, before anything is set up. */
#include "road.h"

static __thread int looking;
static char early[4096];
static size_t early_used;

static void *next(const char *name)
{
    /* What glibc's dlsym itself allocates while looking comes from here. */
    looking = 1;
    void *found = dlsym(RTLD_NEXT, name);
    looking = 0;
    if (!found)
        abort();
    return found;
}

static void *bump(size_t size)
{
    void *block = early + early_used;
    early_used += (size + 15) & ~(size_t)15;
    if (early_used > sizeof early)
        abort();
    return block;
}

static int is_early(const void *block)
{
    return (const char *)block >= early && (const char *)block < early + sizeof early;
}

void *malloc(size_t size)
{
    static void *(*function)(size_t);
    if (looking)
        return bump(size);
    if (!function)
        function = (void *(*)(size_t))next("malloc");
    return function(size);
}

void *calloc(size_t count, size_t size)
{
    static void *(*function)(size_t, size_t);
    if (looking)
        return bump(count * size);
    if (!function)
        function = (void *(*)(size_t, size_t))next("calloc");
    return function(count, size);
}

void *realloc(void *block, size_t size)
{
    static void *(*function)(void *, size_t);
    if (!function)
        function = (void *(*)(void *, size_t))next("realloc");
    return function(is_early(block) ? NULL : block, size);
}

void free(void *block)
{
    static void (*function)(void *);
    if (!block || is_early(block))
        return;
    if (!function)
        function = (void (*)(void *))next("free");
    function(block);
}
