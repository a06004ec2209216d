/* forking WAY PARENT: makes a child by WAY and has it use the driver; PARENT says whether the parent did so before
 * ("cuda") or not ("bare"). A child that only runs another program is "vfork", "spawn" or "system".
 * forking storm: forks under threads that are inside the driver all the time. */
#include "road.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
pid_t _Fork(void);

/* Looked up before any child is made: after a bare system call the loader's own lock may be held for ever. */
static cu_init init;
static cu_create create;

static int use_driver(void)
{
    unsigned long long made = 0;
    char properties[32] = {1, 0, 0, 0, 0, 0, 0, 0, 1};
    int first = init(0), second = init(0);
    return first * 100 + second * 10 + create(&made, 2 << 20, properties, 0);
}

static pid_t make(const char *way)
{
    if (!strcmp(way, "fork"))
        return fork();
    if (!strcmp(way, "_Fork"))
        return _Fork();
    if (!strcmp(way, "rawfork"))
#ifdef SYS_fork
        return (pid_t)syscall(SYS_fork);
#else
        return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
#endif
    if (!strcmp(way, "clone"))
        return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    exit(2);
}

static int ended(pid_t child)
{
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int run_program(const char *way)
{
    char *arguments[] = {"true", NULL};
    if (!strcmp(way, "system"))
        return system("true");
    pid_t child;
    if (!strcmp(way, "spawn")) {
        if (posix_spawnp(&child, "true", NULL, NULL, arguments, environ))
            return -1;
        return ended(child);
    }
    child = vfork();
    if (!child) {
        execvp("true", arguments);
        _exit(127);
    }
    return ended(child);
}

static volatile int stop;

static void *hammer(void *unused)
{
    while (!stop)
        use_driver();
    return unused;
}

static int storm(void)
{
    static const char *const ways[] = {"fork", "_Fork", "rawfork", "clone"};
    pthread_t threads[4];
    int failed = 0;
    for (int at = 0; at < 4; at++)
        pthread_create(&threads[at], NULL, hammer, NULL);
    for (int round = 0; round < 200; round++) {
        pid_t child = make(ways[round % 4]);
        if (!child)
            _exit(use_driver() ? 1 : 0);
        failed += ended(child) != 0;
    }
    stop = 1;
    for (int at = 0; at < 4; at++)
        pthread_join(threads[at], NULL);
    printf("failed %d\n", failed);
    return 0;
}

int main(int count, char **argument)
{
    void *driver = must(dlopen("libcuda.so.1", RTLD_NOW), "libcuda.so.1");
    init = (cu_init)must(dlsym(driver, "cuInit"), "cuInit");
    create = (cu_create)must(dlsym(driver, "cuMemCreate"), "cuMemCreate");
    if (!strcmp(argument[1], "storm"))
        return storm();
    int program = !strcmp(argument[1], "vfork") || !strcmp(argument[1], "spawn") || !strcmp(argument[1], "system");
    if (count > 2 && !strcmp(argument[2], "cuda"))
        printf("parent %d %d\n", (int)getpid(), use_driver());
    fflush(stdout);
    if (program) {
        printf("program %d\n", run_program(argument[1]));
    } else {
        errno = 77;
        pid_t child = make(argument[1]);
        if (!child) {
            int result = use_driver(), kept = errno == 77;
            printf("child %d %d errno %s\n", (int)getpid(), result, kept ? "kept" : "changed");
            fflush(stdout);
            _exit(0);
        }
        printf("ended %d\n", ended(child));
    }
    printf("parent again %d %d\n", (int)getpid(), use_driver());
    return 0;
}
