/* Touches memory as programs do and prints each page's node in order of touches: exact MODE [ARGUMENT..].
 *
 * Prints lines "NAME NODES", a digit per page. Exit status 8: wrong contents; 9: a call failed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 512, THREADS = 3, MAX_PAGES = 6 * PAGES };

/* Nodes of the pages that a thread touched. main writes this first, so that its own pages are not in it. */
static struct sequence {
    void *pages[MAX_PAGES];
    char nodes[MAX_PAGES + 1];
    int count;
} sequences[THREADS + 1];

/* Appends the node of a page; '?' if it has none. */
static void record_node(struct sequence *sequence, char *page) {
    int node = -1;
    void *at = page;
    if (syscall(SYS_move_pages, 0, 1L, &at, 0, &node, 0) || node < 0)
        node = '?' - '0';
    sequence->nodes[sequence->count++] = '0' + node;
}

static void touch(struct sequence *sequence, char *page) {
    *page = 1;
    record_node(sequence, page);
}

static char *map(int pages, int protection) {
    char *start = mmap(0, (size_t)pages * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        _exit(9);
    return start;
}

/* Not in order of addresses. */
static void touch_all(struct sequence *sequence, char *start, int pages) {
    for (int i = 0; i < pages; i++)
        touch(sequence, start + (size_t)(i * 37 % pages) * PAGE);
}

static void print_sequence(const char *name, struct sequence *sequence) {
    char line[MAX_PAGES + 32];
    int length = snprintf(line, sizeof line, "%s %.*s\n", name, sequence->count, sequence->nodes);
    if (write(1, line, length) != length)
        _exit(9);
    sequence->count = 0;
}

/* Heap, mapping, mremap, MADV_DONTNEED, mprotect, faults inside a system call, reads of a fixed mapping. */
static void touch_kinds(struct sequence *sequence) {
    char *heap = sbrk(PAGES * PAGE + PAGE);
    heap = (char *)(((size_t)heap + PAGE - 1) / PAGE * PAGE);
    touch_all(sequence, heap, PAGES);

    char *moved = map(PAGES, PROT_READ | PROT_WRITE);
    touch_all(sequence, moved, PAGES / 2);
    moved = mremap(moved, PAGES * PAGE, 2 * PAGES * PAGE, MREMAP_MAYMOVE);
    touch_all(sequence, moved + PAGES * PAGE, PAGES);
    madvise(moved, PAGES / 2 * PAGE, MADV_DONTNEED);
    touch_all(sequence, moved, PAGES / 2);

    char *protected = map(PAGES, PROT_NONE);
    mprotect(protected, PAGES * PAGE, PROT_READ | PROT_WRITE);
    int zero = open("/dev/zero", O_RDONLY);
    for (int i = 0; i < PAGES; i++) {
        if (read(zero, protected + i * PAGE, PAGE) != PAGE)
            _exit(9);
        record_node(sequence, protected + i * PAGE);
    }
    char *fixed = mmap(moved, 64 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    for (int i = 0; i < 64; i++) {
        if (((volatile char *)fixed)[i * PAGE])
            _exit(9);
        record_node(sequence, fixed + i * PAGE);
    }
}

static void *touch_thread(void *sequence) {
    touch_all(sequence, map(PAGES, PROT_READ | PROT_WRITE), PAGES);
    return 0;
}

/* A thread that blocks all signals. */
static void *blocked_thread(void *sequence) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, 0);
    usleep(200000);
    return touch_thread(sequence);
}

static void run_threads(void *(*run)(void *), int count) {
    pthread_t threads[THREADS];
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], 0, run, &sequences[i + 1]);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], 0);
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "thread%d", i + 1);
        print_sequence(name, &sequences[i + 1]);
    }
}

static void run_on(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        _exit(9);
}

static volatile sig_atomic_t handled;
static volatile int wait_for_last;

static void handle_signal(int signal) {
    (void)signal;
    handled = 1;
}

/* Touches the stack that a signal handler needs: its pages are not part of the sequence. */
__attribute__((noinline)) static void touch_stack(void) {
    volatile char stack[64 << 10];
    for (size_t i = 0; i < sizeof stack; i += PAGE)
        stack[i] = 1;
}

static void *map_thread(void *sequence) {
    run_on(0);
    touch_stack();
    for (int i = 0; i < PAGES; i++)
        touch(sequence, map(1, PROT_READ | PROT_WRITE));
    while (wait_for_last && !handled)
        sched_yield();
    return 0;
}

/* Sends a thread signals while it maps memory; as in Go, the next one once the last is handled. SIGURG must
 * not be lost; memtide uses SIGWINCH itself, so a program's own may be. */
static void run_signals(int signal) {
    pthread_t thread;
    run_on(0);
    wait_for_last = signal == SIGURG;
    sigaction(signal, &(struct sigaction){.sa_handler = handle_signal, .sa_flags = SA_RESTART}, 0);
    handled = 1;
    pthread_create(&thread, 0, map_thread, &sequences[1]);
    run_on(1);
    alarm(60);
    while (*(volatile int *)&sequences[1].count < PAGES)
        if (handled) {
            handled = 0;
            pthread_kill(thread, signal);
        }
    pthread_join(thread, 0);
    print_sequence(signal == SIGURG ? "SIGURG" : "SIGWINCH", &sequences[1]);
}

static void run_child(const char *name) {
    pid_t pid = fork();
    if (pid == 0) {
        touch_thread(&sequences[1]);
        print_sequence(name, &sequences[1]);
        _exit(0);
    }
    waitpid(pid, 0, 0);
}

extern char **environ;

/* Another process by posix_spawn, which uses vfork: its memory is not copied. */
static void spawn(char *program, char *mode) {
    char *arguments[] = {program, mode, 0};
    pid_t pid;
    if (posix_spawn(&pid, "/proc/self/exe", 0, 0, arguments, environ))
        _exit(9);
    waitpid(pid, 0, 0);
}

/* execve by a thread that is not the first. */
static void *exec_thread(void *program) {
    execl("/proc/self/exe", program, "single", (char *)0);
    _exit(9);
}

/* Maps, writes, verifies and unmaps pages. */
static void *map_unmap_thread(void *stop) {
    for (int i = 0; !*(volatile int *)stop; i++) {
        int *memory = (int *)map(4, PROT_READ | PROT_WRITE);
        for (int page = 0; page < 4; page++)
            memory[page * PAGE / 4] = i + page;
        for (int page = 0; page < 4; page++)
            if (memory[page * PAGE / 4] != i + page)
                _exit(8);
        munmap(memory, 4 * PAGE);
    }
    return 0;
}

/* Kills its parent, memtide, while threads map and touch memory; then touches more and creates a file. */
static void kill_parent(int delay_us, const char *file) {
    static int stop;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], 0, map_unmap_thread, &stop);
    usleep(delay_us);
    kill(getppid(), SIGKILL);
    usleep(100000);
    stop = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], 0);
    touch_all(&sequences[0], map(PAGES, PROT_READ | PROT_WRITE), PAGES);
    int created = open(file, O_CREAT | O_WRONLY, 0600);
    if (created < 0)
        _exit(9);
}

int main(int argc, char **argv) {
    memset(sequences, 1, sizeof sequences);
    for (int i = 0; i <= THREADS; i++)
        sequences[i].count = 0;
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "single")) {
        touch_kinds(&sequences[0]);
        print_sequence(mode, &sequences[0]);
    } else if (!strcmp(mode, "spawned")) {
        touch_thread(&sequences[0]);
        print_sequence(mode, &sequences[0]);
    } else if (!strcmp(mode, "cpus")) {
        for (int cpu = 1; cpu >= 0; cpu--) {
            run_on(cpu);
            touch_thread(&sequences[0]);
        }
        print_sequence(mode, &sequences[0]);
    } else if (!strcmp(mode, "threads")) {
        run_threads(touch_thread, THREADS);
    } else if (!strcmp(mode, "blocked-signals")) {
        run_threads(blocked_thread, 1);
    } else if (!strcmp(mode, "signals")) {
        run_signals(SIGURG);
        sequences[1].count = 0;
        run_signals(SIGWINCH);
    } else if (!strcmp(mode, "processes")) {
        run_child("child1");
        run_child("child2");
        spawn(argv[0], "spawned");
        pthread_t thread;
        pthread_create(&thread, 0, exec_thread, argv[0]);
        pthread_join(thread, 0);
    } else if (!strcmp(mode, "kill-parent") && argc > 3) {
        kill_parent(atoi(argv[2]), argv[3]);
    } else {
        return 2;
    }
    return 0;
}
