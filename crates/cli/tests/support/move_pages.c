/* Moves 64 MiB of its own memory to node 1 by move_pages(2), in batches of 512 pages; prints ns per page. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGES = 16384, PAGE = 4096, BATCH = 512, MPOL_MF_MOVE = 2 };

static void *pages[PAGES];
static int nodes[PAGES], status[PAGES];

int main(void)
{
    size_t bytes = (size_t)PAGES * PAGE;
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct timespec start, end;

    if (memory == MAP_FAILED || madvise(memory, bytes, MADV_NOHUGEPAGE))
        return 1;
    memset(memory, 1, bytes);
    for (size_t page = 0; page < PAGES; page++) {
        pages[page] = memory + page * PAGE;
        nodes[page] = 1;
    }
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int page = 0; page < PAGES; page += BATCH)
        if (syscall(SYS_move_pages, 0, (long)BATCH, pages + page, nodes + page, status + page, MPOL_MF_MOVE))
            return 1;
    clock_gettime(CLOCK_MONOTONIC, &end);
    for (int page = 0; page < PAGES; page++)
        if (status[page] != 1)
            return 1;
    printf("move_pages %f\n", ((end.tv_sec - start.tv_sec) * 1e9 + end.tv_nsec - start.tv_nsec) / PAGES);
    return 0;
}
