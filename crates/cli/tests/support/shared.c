/* shared DEVICE BYTES first|second: two guests say a word each through memory that both have, and read some of it. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef _Atomic unsigned long word;

static unsigned long await(word *turn, unsigned long which, word *said) {
    while (atomic_load(turn) != which) usleep(1000);
    return atomic_load(said);
}

static void say(word *turn, unsigned long next, word *said, unsigned long what) {
    atomic_store(said, what);
    atomic_store(turn, next);
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    size_t bytes = strtoul(arguments[2], NULL, 10);
    int device = open(arguments[1], O_RDWR);
    char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, device, 0);
    if (start == MAP_FAILED) {
        perror(arguments[1]);
        return 1;
    }
    word *turn = (word *)start, *said = (word *)(start + bytes) - 1;
    unsigned long heard, sum = 0;
    if (strcmp(arguments[3], "first") == 0) {
        say(turn, 1, said, 42);
        heard = await(turn, 2, said);
    } else {
        heard = await(turn, 1, said);
        say(turn, 2, said, 43);
    }
    for (size_t at = 1 << 20; at < 5 << 20; at += 64) sum += start[at];
    printf("heard %lu, sum %lu\n", heard, sum);
    return 0;
}
