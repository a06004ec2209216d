/* A libcuda that has every function of NAMES (a generated header), and each answers CUDA_ERROR_INVALID_VALUE. */
#include "names.h"

static unsigned reached;

unsigned road_reached(void)
{
    return reached;
}

#define DEFINE(name)                                                                                                   \
    int name(void)                                                                                                     \
    {                                                                                                                  \
        reached++;                                                                                                     \
        return 1;                                                                                                      \
    }
NAMES(DEFINE)
