/* Looks something up and says what the other interposer saw of it. */
#include "road.h"

unsigned interposer_lookups(void) __attribute__((weak));
void *interposer_last_caller(void) __attribute__((weak));

int main(void)
{
    void *driver = must(dlopen("libcuda.so.1", RTLD_NOW), "libcuda.so.1");
    printf("strlen %d\n", dlsym(RTLD_DEFAULT, "strlen") != NULL);
    printf("caller %s\n", holder(interposer_last_caller()));
    cu_init init = (cu_init)must(dlsym(driver, "cuInit"), "cuInit");
    printf("cuInit %s %d\n", holder(init), init(0));
    printf("lookups %d\n", interposer_lookups() > 1);
    return 0;
}
