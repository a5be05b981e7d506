// Makes environments until it gets no more, ends them, and begins again.
#include "attack.h"

enum { ENVIRONMENT_COUNT = 64, FRAMES = SLOT_OWN, ENVIRONMENT = SLOT_OWN + 1 };

int main(int argc, char **argv) {
    word end = end_ns(argc, argv), made = 0, most = 0;
    begin();
    while (now_ns() < end) {
        word count = 0;
        for (; count < ENVIRONMENT_COUNT; count++, made++)
            if (call(FRAME_ALLOCATE, FRAMES, 16, ANYWHERE, 0, 0, 0).status != OK
                || call(ENVIRONMENT_CREATE, ENVIRONMENT + count, FRAMES, 0, 0, 0, 0).status != OK)
                break;
        most = count > most ? count : most;
        call(FRAME_FREE, FRAMES, 0, 0, 0, 0, 0);
        while (count--)
            call(ENVIRONMENT_DESTROY, ENVIRONMENT + count, 0, 0, 0, 0, 0);
    }
    printf("%lu environments, %lu at a time\n", (unsigned long)made, (unsigned long)most);
    return 0;
}
