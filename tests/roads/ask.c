/* Does what its arguments say, in order, and says what it got:
 *   open FILE | global FILE   loads a library; look-ups by handle go to the last one
 *   deep FILE | apart FILE    the same, with what it needs before all others, or in a namespace of its own
 *   self                      the same for the program's own handle
 *   run                       calls the last library's `run`
 *   sym NAME                  looks up by handle
 *   default NAME | next NAME  looks up by pseudo-handle
 *   resolver NAME             takes the resolver of that name, by handle
 *   ask NAME VERSION FLAGS    asks the resolver
 *   init | create | host      calls cuInit, cuMemCreate, cuLaunchHostFunc: the function last found
 *   error                     what dlerror says
 *   calls NAME                how often the stand-in's function has run
 *   close                     unloads the last library
 *   stay                      says so, and waits for the end of standard input */
#include "road.h"

static void nothing(void *data)
{
    *(int *)data += 1;
}

int main(int count, char **argument)
{
    void *handle = NULL, *found = NULL;
    cu_resolve resolve = NULL;
    cu_resolve_v2 resolve_v2 = NULL;
    for (int at = 1; at < count; at++) {
        const char *verb = argument[at];
        const char *name = at + 1 < count ? argument[at + 1] : "";
        if (!strcmp(verb, "open") || !strcmp(verb, "global")) {
            handle = must(dlopen(name, RTLD_NOW | (*verb == 'g' ? RTLD_GLOBAL : RTLD_LOCAL)), name);
            at++;
        } else if (!strcmp(verb, "deep")) {
            handle = must(dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND), name);
            at++;
        } else if (!strcmp(verb, "apart")) {
            handle = must(dlmopen(LM_ID_NEWLM, name, RTLD_NOW | RTLD_LOCAL), name);
            at++;
        } else if (!strcmp(verb, "run")) {
            printf("run %d\n", ((int (*)(void))must(dlsym(handle, "run"), "run"))());
        } else if (!strcmp(verb, "self")) {
            handle = must(dlopen(NULL, RTLD_NOW), "self");
        } else if (!strcmp(verb, "stay")) {
            printf("stays\n");
            fflush(stdout);
            while (getchar() != EOF)
                ;
        } else if (!strcmp(verb, "close")) {
            printf("close %d\n", dlclose(handle));
        } else if (!strcmp(verb, "sym")) {
            found = dlsym(handle, name);
            printf("sym %s %s\n", name, holder(found));
            at++;
        } else if (!strcmp(verb, "default") || !strcmp(verb, "next")) {
            found = dlsym(*verb == 'd' ? RTLD_DEFAULT : RTLD_NEXT, name);
            printf("%s %s %s\n", verb, name, holder(found));
            at++;
        } else if (!strcmp(verb, "resolver")) {
            void *resolver = must(dlsym(handle, name), name);
            int second = !strcmp(name, "cuGetProcAddress_v2");
            resolve = second ? NULL : (cu_resolve)resolver;
            resolve_v2 = second ? (cu_resolve_v2)resolver : NULL;
            printf("resolver %s %s\n", name, holder(resolver));
            at++;
        } else if (!strcmp(verb, "ask")) {
            int version = atoi(argument[at + 2]);
            uint64_t flags = (uint64_t)atoi(argument[at + 3]);
            unsigned status = 77;
            found = (void *)1;
            int result = resolve_v2 ? resolve_v2(name, &found, version, flags, &status)
                                    : resolve(name, &found, version, flags);
            printf("ask %s %d %d: %d %u %s\n", name, version, (int)flags, result, status,
                   result ? "-" : holder(found));
            at += 3;
        } else if (!strcmp(verb, "init")) {
            printf("init %d\n", ((cu_init)found)(0));
        } else if (!strcmp(verb, "create")) {
            unsigned long long made = 0;
            char properties[32] = {1, 0, 0, 0, 0, 0, 0, 0, 1};
            int result = ((cu_create)found)(&made, 2 << 20, properties, 0);
            printf("create %d %s\n", result, made ? "handle" : "none");
        } else if (!strcmp(verb, "host")) {
            int ran = 0;
            int result = ((CUresult(*)(void *, void (*)(void *), void *))found)(NULL, nothing, &ran);
            printf("host %d %d\n", result, ran);
        } else if (!strcmp(verb, "error")) {
            const char *error = dlerror();
            printf("error %s\n", error ? error : "none");
        } else if (!strcmp(verb, "calls")) {
            unsigned (*calls)(const char *) = (unsigned (*)(const char *))must(dlsym(handle, "road_calls"), "calls");
            printf("calls %s %u\n", name, calls(name));
            at++;
        } else {
            printf("no such verb: %s\n", verb);
            return 2;
        }
    }
    return 0;
}
