/* Two guests exchange a word each through shared memory, then read 4 MiB of it:
 * shared DEVICE BYTES first|second. The first word is whose turn it is, the last one the message. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef _Atomic unsigned long word;

static unsigned long receive(word *turn, unsigned long own_turn, word *message) {
    while (atomic_load(turn) != own_turn) usleep(1000);
    return atomic_load(message);
}

static void send(word *turn, unsigned long next_turn, word *message, unsigned long value) {
    atomic_store(message, value);
    atomic_store(turn, next_turn);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    size_t bytes = strtoul(argv[2], NULL, 10);
    int device = open(argv[1], O_RDWR);
    char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, device, 0);
    if (start == MAP_FAILED) {
        perror(argv[1]);
        return 1;
    }
    word *turn = (word *)start, *message = (word *)(start + bytes) - 1;
    unsigned long received, sum = 0;
    if (strcmp(argv[3], "first") == 0) {
        send(turn, 1, message, 42);
        received = receive(turn, 2, message);
    } else {
        received = receive(turn, 1, message);
        send(turn, 2, message, 43);
    }
    for (size_t at = 1 << 20; at < 5 << 20; at += 64) sum += start[at];
    printf("received %lu, sum %lu\n", received, sum);
    return 0;
}
