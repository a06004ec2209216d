/* Calls the stub as a program calls dlsym, with a resolver and a next dlsym that note what they were given. */
#include <stdint.h>
#include <stdio.h>
#include <unwind.h>

struct lookup {
    void *answer, *next;
};

void *road_dlsym(void *handle, const char *name);
int main(void);

static void *seen_handle, *seen_return;
static const char *seen_name;
static int walked;

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *data)
{
    (void)data;
    walked |= _Unwind_GetRegionStart(context) == (uintptr_t)main;
    return _URC_NO_REASON;
}

static void *next(void *handle, const char *name)
{
    seen_handle = handle;
    seen_name = name;
    seen_return = __builtin_return_address(0);
    return (void *)3;
}

struct lookup road_resolve(void *handle, const char *name)
{
    _Unwind_Backtrace(visit, NULL);
    (void)name;
    /* What a callee may overwrite. */
    asm volatile("" ::: "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x16", "x17");
    struct lookup answered = {(void *)2, NULL}, passed = {NULL, next};
    return handle ? answered : passed;
}

__attribute__((noinline)) static void *call(void *(*function)(void *, const char *), void *handle, const char *name)
{
    void *result = function(handle, name);
    asm volatile("" : "+r"(result));
    return result;
}

int main(void)
{
    printf("answered %d\n", call(road_dlsym, (void *)1, "x") == (void *)2);
    void *result = call(road_dlsym, NULL, "y");
    int kept = seen_handle == NULL && *seen_name == 'y';
    uintptr_t into = (uintptr_t)seen_return - (uintptr_t)call;
    printf("passed on %d %d %d\n", result == (void *)3, kept, into < 256);
    printf("walked %d\n", walked);
    return 0;
}
