/* Needs the library with the early constructor. */
#include "road.h"

int early_use(void);

int main(void)
{
    printf("main %d\n", early_use());
    return 0;
}
