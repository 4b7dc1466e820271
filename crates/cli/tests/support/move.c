/* Moves 64 MiB of its own, page by page, by move_pages(2) in batches of 512 and does nothing else; tells the ns that a page takes. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGES = 16384, BATCH = 512, MPOL_MF_MOVE = 2 };

static void *pages[PAGES];
static int nodes[PAGES], status[PAGES];

int main(void)
{
    char *all = mmap(0, PAGES * 4096ul, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct timespec from, to;

    if (all == MAP_FAILED || madvise(all, PAGES * 4096ul, MADV_NOHUGEPAGE))
        return 1;
    memset(all, 1, PAGES * 4096ul);
    for (int page = 0; page < PAGES; page++) {
        pages[page] = all + page * 4096ul;
        nodes[page] = 1;
    }
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int page = 0; page < PAGES; page += BATCH)
        if (syscall(SYS_move_pages, 0, (long)BATCH, pages + page, nodes + page, status + page, MPOL_MF_MOVE))
            return 1;
    clock_gettime(CLOCK_MONOTONIC, &to);
    for (int page = 0; page < PAGES; page++)
        if (status[page] != 1)
            return 1;
    printf("bare %f\n", ((to.tv_sec - from.tv_sec) * 1e9 + to.tv_nsec - from.tv_nsec) / PAGES);
    return 0;
}
