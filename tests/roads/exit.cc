// Uses the driver as late as a process can: thread_local and static destructors, atexit and the library destructor.
extern "C" {
#include "road.h"
}
#include <thread>

static cu_create create;
static CUresult (*release)(unsigned long long);
static unsigned late;

static void use()
{
    unsigned long long made = 0;
    char properties[32] = {1, 0, 0, 0, 0, 0, 0, 0, 1};
    late += !create(&made, 2 << 20, properties, 0) && !release(0x7f0000000000);
}

struct Late {
    int touched = 0;
    ~Late() { use(); }
};

static thread_local Late of_thread;
static Late of_program;

__attribute__((destructor)) static void last()
{
    use();
    if (late == 5)
        printf("late uses 5\n");
    fflush(stdout);
}

int main()
{
    void *driver = must(dlopen("libcuda.so.1", RTLD_NOW), "libcuda.so.1");
    cu_init init = (cu_init)must(dlsym(driver, "cuInit"), "cuInit");
    create = (cu_create)must(dlsym(driver, "cuMemCreate"), "cuMemCreate");
    release = (CUresult(*)(unsigned long long))must(dlsym(driver, "cuMemFree_v2"), "cuMemFree_v2");
    if (init(0))
        return 1;
    atexit(use);
    of_thread.touched = 1;
    of_program.touched = 1;
    std::thread([] { of_thread.touched = 1; }).join();
    return 0;
}
