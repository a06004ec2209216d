/* Calls every function named in NAMES (a generated header) and says what does not come out as the driver has it.
 *   every zero SHIM     all arguments zero
 *   every one SHIM      one argument zero at a time, the others pointing to zeroed memory
 *   every lacking SHIM  the driver has none of them: a look-up misses, and a call answers so */
#include "road.h"
#include "names.h"

typedef int (*any)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                   uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

enum { ARGUMENTS = 16 };
static char memory[4096];

static int call(any function, uint64_t value, int except)
{
    uint64_t a[ARGUMENTS];
    for (int at = 0; at < ARGUMENTS; at++)
        a[at] = at == except ? 0 : value;
    return function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15]);
}

int main(int count, char **argument)
{
    (void)count;
    int wrong = 0, calls = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *shim = must(dlopen(argument[2], RTLD_NOW), argument[2]);
    for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
        any ours = (any)must(dlsym(shim, names[at]), names[at]);
        any found = driver ? (any)dlsym(driver, names[at]) : NULL;
        int expected = driver ? 36 : 34, tries = 1;
        if (strcmp(argument[1], "lacking")) {
            expected = 1;
            wrong += found != ours;
            tries = strcmp(argument[1], "one") ? 1 : ARGUMENTS;
        } else {
            wrong += found != NULL;
        }
        for (int except = 0; except < tries; except++, calls++) {
            int result = call(ours, tries > 1 ? (uint64_t)memory : 0, except);
            if (result != expected) {
                printf("%s: %d with argument %d zero\n", names[at], result, tries > 1 ? except : -1);
                wrong++;
            }
        }
    }
    for (size_t at = 0; at < sizeof memory; at++)
        wrong += memory[at] != 0;
    printf("wrong %d\n", wrong);
    unsigned (*reached)(void) = driver ? (unsigned (*)(void))dlsym(driver, "road_reached") : NULL;
    printf("reached %u\n", reached ? reached() : 0);
    return calls == 0;
}
