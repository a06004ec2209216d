/* Asks the library in the middle. */
#include "road.h"

const char *road_answer(void);
int road_repeat(int times);

int main(void)
{
    printf("answer %s\n", road_answer());
    printf("differs at %d\n", road_repeat(10000));
    return 0;
}
