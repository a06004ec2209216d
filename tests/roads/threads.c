/* Eight threads look up ten thousand names each: the driver's, strangers', missing ones. */
#include "road.h"
#include <pthread.h>

static void *driver;
static pthread_barrier_t start;

static void *look(void *wrong)
{
    pthread_barrier_wait(&start);
    void *init = dlsym(driver, "cuInit"), *create = dlsym(driver, "cuMemCreate"), *length = dlsym(RTLD_DEFAULT, "strlen");
    if (!init || !create || !length)
        ++*(int *)wrong;
    for (int i = 0; i < 10000; i++) {
        *(int *)wrong += dlsym(driver, "cuInit") != init;
        *(int *)wrong += dlsym(driver, "cuMemCreate") != create;
        *(int *)wrong += dlsym(RTLD_DEFAULT, "strlen") != length;
        *(int *)wrong += dlsym(driver, i & 1 ? "cudnnCreate" : "cuNoSuchThing") != NULL;
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[8];
    int wrong[8] = {0}, sum = 0;
    driver = must(dlopen("libcuda.so.1", RTLD_NOW), "libcuda.so.1");
    pthread_barrier_init(&start, NULL, 8);
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, look, &wrong[i]);
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        sum += wrong[i];
    }
    printf("cuInit %s\nwrong %d\n", holder(dlsym(driver, "cuInit")), sum);
    return 0;
}
