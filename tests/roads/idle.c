/* Says what a process has that it would not have without the library: descriptors, threads, variables. */
#include "road.h"
#include <dirent.h>
#include <unistd.h>

static int entries(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

int main(void)
{
    printf("descriptors %d\nthreads %d\n", entries("/proc/self/fd"), entries("/proc/self/task"));
    FILE *sockets = fopen("/proc/net/unix", "r");
    char line[512], own[64];
    int found = 0;
    snprintf(own, sizeof own, "@nvsnap-gpushare.%d", (int)getpid());
    while (sockets && fgets(line, sizeof line, sockets))
        found |= strstr(line, own) != NULL;
    printf("socket %d\n", found);
    return 0;
}
