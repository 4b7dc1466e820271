/* faults NAME MIB WHAT: a program whose pages others move. It checks all that it has written again and again, makes /NAME once it has begun,
   does what it is to do on SIGUSR1, and on SIGTERM tells whether every byte was right. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, PARTS = 16, CHILDREN = 3, SHARED = 7, PINNED = 16, MPOL_PREFERRED = 1 };

static volatile sig_atomic_t asked, over;
static uint64_t *memory, salt;
static size_t pages;
static const char *name;

static void on(int signal) { *(signal == SIGTERM ? &over : &asked) = 1; }

static void wrong(const char *what, size_t at) {
    printf("%s: WRONG %s at word %zu\n", name, what, at);
    fflush(stdout);
    _exit(1);
}

static void rest(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

static uint64_t *mapped(void *where, size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (where ? MAP_FIXED : 0);
    uint64_t *area = mmap(where, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (area == MAP_FAILED) wrong("mmap", 0);
    return area;
}

/* What a word holds in a round. */
static uint64_t word(size_t at, uint64_t round) { return (at + 1) * 0x9e3779b97f4a7c15 ^ round ^ salt; }

static void fill(size_t from, size_t to, uint64_t round) {
    for (size_t at = from; at < to; at++) memory[at] = word(at, round);
}

/* Looks whether words hold what they held in one round, and writes what they hold in another one. */
static void turn(size_t from, size_t to, uint64_t before, uint64_t now) {
    for (size_t at = from; at < to; at++) {
        if (memory[at] != word(at, before)) wrong("content", at);
        memory[at] = word(at, now);
    }
}

/* An mprotect of many pages has the CPU forget what it knows of accessed bits, which an emulated one keeps otherwise. */
static void flush(void) {
    static _Thread_local char scratch[64 * PAGE] __attribute__((aligned(PAGE)));
    memset(scratch, 1, sizeof scratch);
    mprotect(scratch, sizeof scratch, PROT_READ);
    mprotect(scratch, sizeof scratch, PROT_READ | PROT_WRITE);
}

/* Uses all of its memory until it is asked to do something, or for good. */
static void use(volatile sig_atomic_t *end) {
    uint64_t round = 0;
    for (; !*end && !over; round++) {
        turn(0, pages * WORDS, round, round + 1);
        flush();
        rest(20);
    }
    turn(0, pages * WORDS, round, 0);
}

/* Two threads write a half each, and both count in the same words: an addition that is lost shows. */
enum { COUNTS = 64 };
static _Atomic uint64_t *counts;
static uint64_t rounds[2];

static void *writer(void *which) {
    size_t half = (size_t)which, from = half * pages / 2 * WORDS, to = (half + 1) * pages / 2 * WORDS;
    while (!over) {
        turn(from, to, rounds[half], rounds[half] + 1);
        for (int count = 0; count < COUNTS; count++) atomic_fetch_add(counts + count * WORDS, 1);
        rounds[half]++;
        flush();
    }
    turn(from, to, rounds[half], 0);
    return NULL;
}

static void write_all(void) {
    pthread_t other;
    counts = (_Atomic uint64_t *)mapped(NULL, COUNTS * PAGE);
    if (pthread_create(&other, NULL, writer, (void *)1)) wrong("thread", 0);
    writer((void *)0);
    pthread_join(other, NULL);
    for (int count = 0; count < COUNTS; count++)
        if (counts[count * WORDS] != rounds[0] + rounds[1]) wrong("count", count);
    printf("%s: rounds %lu\n", name, (unsigned long)(rounds[0] + rounds[1]));
}

/* Children write every second page that they share with their parent, and see the others as they were. */
static void forks(void) {
    use(&asked);
    pid_t children[CHILDREN];
    for (int child = 0; child < CHILDREN; child++) {
        if ((children[child] = fork()) != 0) continue;
        for (size_t page = 0; page < pages; page += 2) fill(page * WORDS, (page + 1) * WORDS, child + 1);
        while (!over) {
            for (size_t page = 0; page < pages; page++) {
                uint64_t round = page % 2 ? 0 : child + 1;
                turn(page * WORDS, page * WORDS + (page % 2 ? 1 : WORDS), round, round);
            }
            rest(20);
        }
        _exit(0);
    }
    use(&over);
    for (int child = 0; child < CHILDREN; child++) {
        int status;
        kill(children[child], SIGTERM);
        if (waitpid(children[child], &status, 0) < 0 || status) wrong("child", child);
    }
}

/* Gives parts of its memory back and maps them anew, all the time. */
static void unmaps(void) {
    size_t bytes = pages * PAGE / PARTS, words = bytes / 8;
    for (uint64_t round = 0; !over; round++) {
        size_t from = round % PARTS * words;
        turn(from, from + words, 0, 0);
        if (munmap(memory + from, bytes)) wrong("munmap", from);
        rest(2);
        mapped(memory + from, bytes);
        for (size_t at = from; at < from + words; at++)
            if (memory[at]) wrong("new memory", at);
        fill(from, from + words, 0);
    }
}

/* Some pages stay shared with a child, and a pipe holds some of the others, so that they cannot move. */
static void pins(void) {
    int ends[2];
    size_t pinned = 0, shared = 0;
    pid_t child = fork();
    if (child == 0) for (;;) pause();
    for (size_t page = 0; page < pages; page++)
        if (page % SHARED) fill(page * WORDS, (page + 1) * WORDS, 0);
        else shared++;
    if (child < 0 || pipe(ends) || fcntl(ends[1], F_SETPIPE_SZ, (pages / PINNED + 1) * PAGE) < 0) wrong("pipe", 0);
    for (size_t page = 3; page < pages; page += PINNED) {
        struct iovec piece = {memory + page * WORDS, PAGE};
        if (page % SHARED == 0) continue;
        if (vmsplice(ends[1], &piece, 1, 0) != PAGE) wrong("vmsplice", page);
        pinned++;
    }
    printf("%s: shared %zu pinned %zu\n", name, shared, pinned);
    fflush(stdout);
    while (!over) {
        for (size_t at = 0; at < pages * WORDS; at++)
            if (memory[at] != word(at, 0)) wrong("content", at);
        rest(20);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* Many processes of the same size. */
static void crowd(long many) {
    pid_t *children = calloc(many, sizeof *children);
    for (long child = 0; child < many; child++) {
        if ((children[child] = fork()) != 0) continue;
        salt = child + 1;
        fill(0, pages * WORDS, 0);
        while (!over) {
            rest(10000);
            turn(0, pages * WORDS, 0, 0);
        }
        _exit(0);
    }
    while (!over) pause();
    for (long child = 0; child < many; child++) {
        int status;
        kill(children[child], SIGTERM);
        if (waitpid(children[child], &status, 0) < 0 || status) wrong("child", child);
    }
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    const char *what = arguments[3];
    name = arguments[1];
    pages = strtoul(arguments[2], NULL, 10) * 256;
    struct sigaction action = {.sa_handler = on};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    memory = mapped(NULL, pages * PAGE);
    if (madvise(memory, pages * PAGE, MADV_NOHUGEPAGE)) wrong("madvise", 0);
    if (strcmp(what, "node1") == 0) {
        unsigned long mask = 2;
        if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, &mask, 64)) wrong("policy", 0);
    }
    fill(0, pages * WORDS, 0);
    if (strcmp(what, "locks") == 0 && mlockall(MCL_CURRENT | MCL_FUTURE)) wrong("mlockall", 0);
    char *file;
    if (asprintf(&file, "/tmp/%s", name) < 0 || close(open(file, O_CREAT | O_WRONLY, 0666))) wrong("file", 0);
    if (strcmp(what, "node1") == 0) while (!over) rest(100000);
    else if (strcmp(what, "writes") == 0) write_all();
    else if (strcmp(what, "forks") == 0) forks();
    else if (strcmp(what, "unmaps") == 0) unmaps();
    else if (strcmp(what, "pins") == 0) pins();
    else if (strcmp(what, "crowd") == 0) crowd(strtol(arguments[4], NULL, 10));
    else if (strcmp(what, "execs") == 0) {
        use(&asked);
        if (!over) execl("/proc/self/exe", "faults", "anew", arguments[2], "holds", NULL);
    } else use(&over);
    for (size_t at = 0; at < pages * WORDS && strcmp(what, "crowd"); at++)
        if (memory[at] != word(at, 0)) wrong("content", at);
    printf("%s: right\n", name);
    return 0;
}
