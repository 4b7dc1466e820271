/* Two processes share memory: the first writes its first half, the other one the second half and a few pages of
 * the first. Prints both process ids and the first page, and reads all pages at the end of input. The other one
 * then reads the last quarter again and again.
 * With an argument they share it since a fork: the first writes all of it before, the other one the second half
 * after it, and then reads the first quarter again and again. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 16384, BOTH = 64 };

static volatile unsigned long *word(char *memory, int page) {
    return (volatile unsigned long *)(memory + (size_t)page * PAGE);
}

/* Makes the emulated CPU forget translations, so that accesses mark pages as accessed again. */
static void flush_tlb(void) {
    char *other = mmap(NULL, BOTH * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (other == MAP_FAILED) exit(1);
    for (int page = 0; page < BOTH; page++) *word(other, page) = 1;
    munmap(other, BOTH * PAGE);
}

static void second(char *memory, int is_forked) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int page = 0; page < (is_forked ? 0 : BOTH); page++) *word(memory, page) += 1;
    for (int page = PAGES / 2; page < PAGES; page++) *word(memory, page) = is_forked ? 0 : page;
    printf("%d %lu\n", getpid(), (unsigned long)memory / PAGE);
    fflush(stdout);
    int first = is_forked ? 0 : PAGES - PAGES / 4;
    for (;;) {
        for (int page = first; page < first + PAGES / 4; page++) (void)*word(memory, page);
        flush_tlb();
        usleep(5000);
    }
}

int main(int count, char **arguments) {
    (void)arguments;
    int is_forked = count > 1, written = is_forked ? PAGES : PAGES / 2;
    int flags = MAP_ANONYMOUS | (is_forked ? MAP_PRIVATE : MAP_SHARED);
    size_t bytes = (size_t)PAGES * PAGE;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED || madvise(memory, bytes, MADV_NOHUGEPAGE)) return 1;
    for (int page = 0; page < written; page++) *word(memory, page) = page;
    printf("\nat %d ", getpid());
    fflush(stdout);
    pid_t other = fork();
    if (other == 0) second(memory, is_forked);
    while (getchar() != EOF) {}
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    for (int page = 0; page < PAGES; page++) {
        if (*word(memory, page) != (unsigned long)(page + (!is_forked && page < BOTH))) return 1;
    }
    return 0;
}
