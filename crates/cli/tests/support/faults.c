/* Target of migrations: faults NAME MIB MODE [PROCESSES].
 *
 * Verifies its memory continuously. Creates /tmp/NAME when ready; SIGUSR1 triggers the mode's event, if any;
 * SIGTERM ends it with "NAME: PASS". An error ends it at once with "NAME: FAIL: WHAT" and exit status 1. */
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

/* WORDS: 64-bit words per page. PARTS: parts that `unmap` maps again in turn. SHARED_STRIDE, PINNED_STRIDE:
 * every n-th page is shared with a child, pinned by a pipe. */
enum { PAGE = 4096, WORDS = PAGE / 8, PARTS = 16, CHILDREN = 3, SHARED_STRIDE = 7, PINNED_STRIDE = 16 };
enum { MPOL_PREFERRED = 1 };

static volatile sig_atomic_t triggered, stopped;
static uint64_t *memory, salt;
static size_t pages;
static const char *name;

static void on_signal(int signal) { *(signal == SIGTERM ? &stopped : &triggered) = 1; }

static void fail(const char *what, size_t word) {
    printf("%s: FAIL: %s at word %zu\n", name, what, word);
    fflush(stdout);
    _exit(1);
}

static void sleep_ms(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

static uint64_t *map_memory(void *address, size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (address ? MAP_FIXED : 0);
    uint64_t *mapping = mmap(address, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (mapping == MAP_FAILED) fail("mmap", 0);
    return mapping;
}

/* Value of a word in a round. */
static uint64_t value(size_t word, uint64_t round) { return (word + 1) * 0x9e3779b97f4a7c15 ^ round ^ salt; }

static void fill(size_t from, size_t to, uint64_t round) {
    for (size_t word = from; word < to; word++) memory[word] = value(word, round);
}

static void verify(size_t from, size_t to, uint64_t round) {
    for (size_t word = from; word < to; word++)
        if (memory[word] != value(word, round)) fail("content", word);
}

/* Verifies the words of one round and writes those of another, word by word. */
static void verify_and_write(size_t from, size_t to, uint64_t round, uint64_t next_round) {
    for (size_t word = from; word < to; word++) {
        if (memory[word] != value(word, round)) fail("content", word);
        memory[word] = value(word, next_round);
    }
}

/* Flushes the emulated CPU's TLB, which otherwise never evicts translations, so that accessed bits are set
 * again: an mprotect of many pages flushes all of it. */
static void flush_tlb(void) {
    static _Thread_local char scratch[64 * PAGE] __attribute__((aligned(PAGE)));
    memset(scratch, 1, sizeof scratch);
    mprotect(scratch, sizeof scratch, PROT_READ);
    mprotect(scratch, sizeof scratch, PROT_READ | PROT_WRITE);
}

/* Verifies and writes all memory until the flag or `stopped` is set. */
static void update_until(volatile sig_atomic_t *flag) {
    uint64_t round = 0;
    for (; !*flag && !stopped; round++) {
        verify_and_write(0, pages * WORDS, round, round + 1);
        flush_tlb();
        sleep_ms(20);
    }
    verify_and_write(0, pages * WORDS, round, 0);
}

/* Two threads write one half of memory each and increment the same counters: the sum shows a lost update. */
enum { COUNTERS = 64 };
static _Atomic uint64_t *counters;
static uint64_t rounds[2];

static void *writer_thread(void *index) {
    size_t half = (size_t)index, from = half * pages / 2 * WORDS, to = (half + 1) * pages / 2 * WORDS;
    while (!stopped) {
        verify_and_write(from, to, rounds[half], rounds[half] + 1);
        for (int counter = 0; counter < COUNTERS; counter++) atomic_fetch_add(counters + counter * WORDS, 1);
        rounds[half]++;
        flush_tlb();
    }
    verify_and_write(from, to, rounds[half], 0);
    return NULL;
}

static void run_threads(void) {
    pthread_t second;
    counters = (_Atomic uint64_t *)map_memory(NULL, COUNTERS * PAGE);
    if (pthread_create(&second, NULL, writer_thread, (void *)1)) fail("pthread_create", 0);
    writer_thread((void *)0);
    pthread_join(second, NULL);
    for (int counter = 0; counter < COUNTERS; counter++)
        if (counters[counter * WORDS] != rounds[0] + rounds[1]) fail("counter", counter);
    printf("%s: rounds %lu\n", name, (unsigned long)(rounds[0] + rounds[1]));
}

static void end_children(const pid_t *children, long count) {
    for (long child = 0; child < count; child++) {
        int status;
        kill(children[child], SIGTERM);
        if (waitpid(children[child], &status, 0) < 0 || status) fail("child", child);
    }
}

/* Event: fork. Each child writes every second page that it shares with its parent and verifies all pages. */
static void run_fork(void) {
    update_until(&triggered);
    pid_t children[CHILDREN];
    for (int child = 0; child < CHILDREN; child++) {
        if ((children[child] = fork()) != 0) continue;
        for (size_t page = 0; page < pages; page += 2) fill(page * WORDS, (page + 1) * WORDS, child + 1);
        while (!stopped) {
            for (size_t page = 0; page < pages; page++) {
                uint64_t round = page % 2 ? 0 : child + 1;
                verify_and_write(page * WORDS, page * WORDS + (page % 2 ? 1 : WORDS), round, round);
            }
            sleep_ms(20);
        }
        _exit(0);
    }
    update_until(&stopped);
    end_children(children, CHILDREN);
}

/* Unmaps and maps its parts in turn. */
static void run_unmap(void) {
    size_t bytes = pages * PAGE / PARTS, words = bytes / 8;
    for (uint64_t round = 0; !stopped; round++) {
        size_t from = round % PARTS * words;
        verify_and_write(from, from + words, 0, 0);
        if (munmap(memory + from, bytes)) fail("munmap", from);
        sleep_ms(2);
        map_memory(memory + from, bytes);
        for (size_t word = from; word < from + words; word++)
            if (memory[word]) fail("new mapping not zero", word);
        fill(from, from + words, 0);
    }
}

/* Some pages stay shared with a child, and a pipe pins some of the others: neither can migrate. */
static void run_pin(void) {
    int pipe_ends[2];
    size_t pinned = 0, shared = 0;
    pid_t child = fork();
    if (child == 0) for (;;) pause();
    for (size_t page = 0; page < pages; page++)
        if (page % SHARED_STRIDE) fill(page * WORDS, (page + 1) * WORDS, 0);
        else shared++;
    if (child < 0 || pipe(pipe_ends)) fail("pipe", 0);
    if (fcntl(pipe_ends[1], F_SETPIPE_SZ, (pages / PINNED_STRIDE + 1) * PAGE) < 0) fail("F_SETPIPE_SZ", 0);
    for (size_t page = 3; page < pages; page += PINNED_STRIDE) {
        struct iovec iovec = {memory + page * WORDS, PAGE};
        if (page % SHARED_STRIDE == 0) continue;
        if (vmsplice(pipe_ends[1], &iovec, 1, 0) != PAGE) fail("vmsplice", page);
        pinned++;
    }
    printf("%s: shared %zu pinned %zu\n", name, shared, pinned);
    fflush(stdout);
    while (!stopped) {
        verify(0, pages * WORDS, 0);
        sleep_ms(20);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* Many processes of the same size. */
static void run_processes(long count) {
    pid_t *children = calloc(count, sizeof *children);
    for (long child = 0; child < count; child++) {
        if ((children[child] = fork()) != 0) continue;
        salt = child + 1;
        fill(0, pages * WORDS, 0);
        while (!stopped) {
            sleep_ms(10000);
            verify_and_write(0, pages * WORDS, 0, 0);
        }
        _exit(0);
    }
    while (!stopped) pause();
    end_children(children, count);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    const char *mode = argv[3];
    name = argv[1];
    pages = strtoul(argv[2], NULL, 10) * 256;
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    memory = map_memory(NULL, pages * PAGE);
    if (madvise(memory, pages * PAGE, MADV_NOHUGEPAGE)) fail("madvise", 0);
    if (strcmp(mode, "node1") == 0) {
        unsigned long mask = 2;
        if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, &mask, 64)) fail("set_mempolicy", 0);
    }
    fill(0, pages * WORDS, 0);
    if (strcmp(mode, "mlock") == 0 && mlockall(MCL_CURRENT | MCL_FUTURE)) fail("mlockall", 0);
    char *ready;
    if (asprintf(&ready, "/tmp/%s", name) < 0) fail("asprintf", 0);
    if (close(open(ready, O_CREAT | O_WRONLY, 0666))) fail("open", 0);
    if (strcmp(mode, "node1") == 0) while (!stopped) sleep_ms(100000);
    else if (strcmp(mode, "threads") == 0) run_threads();
    else if (strcmp(mode, "fork") == 0) run_fork();
    else if (strcmp(mode, "unmap") == 0) run_unmap();
    else if (strcmp(mode, "pin") == 0) run_pin();
    else if (strcmp(mode, "processes") == 0) run_processes(strtol(argv[4], NULL, 10));
    else if (strcmp(mode, "exec") == 0) {
        update_until(&triggered);
        if (!stopped) execl("/proc/self/exe", "faults", "after_exec", argv[2], "update", NULL);
    } else update_until(&stopped); /* update, mlock */
    if (strcmp(mode, "processes")) verify(0, pages * WORDS, 0);
    printf("%s: PASS\n", name);
    return 0;
}
