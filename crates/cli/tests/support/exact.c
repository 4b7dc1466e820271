/* Touches memory in the ways that programs do, and says on which node each page was then, in the order of the touches. */
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

enum { PAGE = 4096, PAGES = 512, THREADS = 3, MOST = 6 * PAGES };

/* Pages that a thread has touched, and where they were. Filled before, so that they are no part of the sequence. */
static struct seen {
    void *pages[MOST];
    char nodes[MOST + 1];
    int count;
} seen[THREADS + 1];

static void look(struct seen *s, char *page) {
    int node = -1;
    void *at = page;
    if (syscall(SYS_move_pages, 0, 1L, &at, 0, &node, 0) || node < 0)
        node = '?' - '0';
    s->nodes[s->count++] = '0' + node;
}

static void touch(struct seen *s, char *page) {
    *page = 1;
    look(s, page);
}

static char *map(int pages, int protection) {
    char *start = mmap(0, (size_t)pages * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        _exit(9);
    return start;
}

/* In an order that is not that of the addresses. */
static void touch_all(struct seen *s, char *start, int pages) {
    for (int i = 0; i < pages; i++)
        touch(s, start + (size_t)(i * 37 % pages) * PAGE);
}

static void say(const char *what, struct seen *s) {
    char line[MOST + 32];
    int length = snprintf(line, sizeof line, "%s %.*s\n", what, s->count, s->nodes);
    if (write(1, line, length) != length)
        _exit(9);
    s->count = 0;
}

/* One thread: the heap, mappings, reads, ranges that are moved, emptied, protected, and filled by a system call. */
static void one(struct seen *s) {
    char *heap = sbrk(PAGES * PAGE + PAGE);
    heap = (char *)(((size_t)heap + PAGE - 1) / PAGE * PAGE);
    touch_all(s, heap, PAGES);

    char *moved = map(PAGES, PROT_READ | PROT_WRITE);
    touch_all(s, moved, PAGES / 2);
    moved = mremap(moved, PAGES * PAGE, 2 * PAGES * PAGE, MREMAP_MAYMOVE);
    touch_all(s, moved + PAGES * PAGE, PAGES);
    madvise(moved, PAGES / 2 * PAGE, MADV_DONTNEED);
    touch_all(s, moved, PAGES / 2);

    char *later = map(PAGES, PROT_NONE);
    mprotect(later, PAGES * PAGE, PROT_READ | PROT_WRITE);
    int zero = open("/dev/zero", O_RDONLY);
    for (int i = 0; i < PAGES; i++) {
        if (read(zero, later + i * PAGE, PAGE) != PAGE)
            _exit(9);
        look(s, later + i * PAGE);
    }
    char *fixed = mmap(moved, 64 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    for (int i = 0; i < 64; i++) {
        if (((volatile char *)fixed)[i * PAGE])
            _exit(9);
        look(s, fixed + i * PAGE);
    }
}

static void *thread(void *of) {
    touch_all(of, map(PAGES, PROT_READ | PROT_WRITE), PAGES);
    return 0;
}

/* A daemon's thread that has all signals blocked. */
static void *deaf(void *of) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, 0);
    usleep(200000);
    return thread(of);
}

static void threads(void *(*run)(void *), int many) {
    pthread_t made[THREADS];
    for (int i = 0; i < many; i++)
        pthread_create(&made[i], 0, run, &seen[i + 1]);
    for (int i = 0; i < many; i++)
        pthread_join(made[i], 0);
    for (int i = 0; i < many; i++) {
        char name[32];
        snprintf(name, sizeof name, "thread%d", i + 1);
        say(name, &seen[i + 1]);
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
static volatile int must_arrive;

static void handle(int signal) {
    (void)signal;
    handled = 1;
}

/* The stack that a signal handler will need, so that its pages are no part of the sequence. */
__attribute__((noinline)) static void touch_stack(void) {
    volatile char stack[64 << 10];
    for (size_t i = 0; i < sizeof stack; i += PAGE)
        stack[i] = 1;
}

static void *mapper(void *of) {
    run_on(0);
    touch_stack();
    for (int i = 0; i < PAGES; i++)
        touch(of, map(1, PROT_READ | PROT_WRITE));
    while (must_arrive && !handled)
        sched_yield();
    return 0;
}

/* A thread that is sent a signal again and again while it maps memory; as in Go, never before it has handled the last one. */
static void signalled(int signal) {
    pthread_t made;
    run_on(0);
    must_arrive = signal == SIGURG;
    sigaction(signal, &(struct sigaction){.sa_handler = handle, .sa_flags = SA_RESTART}, 0);
    handled = 1;
    pthread_create(&made, 0, mapper, &seen[1]);
    run_on(1);
    alarm(60);
    while (*(volatile int *)&seen[1].count < PAGES)
        if (handled) {
            handled = 0;
            pthread_kill(made, signal);
        }
    pthread_join(made, 0);
    say(signal == SIGURG ? "SIGURG" : "SIGWINCH", &seen[1]);
}

static void child(const char *name) {
    pid_t pid = fork();
    if (pid == 0) {
        thread(&seen[1]);
        say(name, &seen[1]);
        _exit(0);
    }
    waitpid(pid, 0, 0);
}

extern char **environ;

/* Another program, without copying this one's memory first. */
static void spawn(char *name, char *what) {
    char *words[] = {name, what, 0};
    pid_t pid;
    if (posix_spawn(&pid, "/proc/self/exe", 0, 0, words, environ))
        _exit(9);
    waitpid(pid, 0, 0);
}

/* Becomes another program, as a thread that is not the first. */
static void *become(void *name) {
    execl("/proc/self/exe", name, "one", (char *)0);
    _exit(9);
}

static void *churn(void *stop) {
    for (int i = 0; !*(volatile int *)stop; i++) {
        int *some = (int *)map(4, PROT_READ | PROT_WRITE);
        for (int page = 0; page < 4; page++)
            some[page * PAGE / 4] = i + page;
        for (int page = 0; page < 4; page++)
            if (some[page * PAGE / 4] != i + page)
                _exit(8);
        munmap(some, 4 * PAGE);
    }
    return 0;
}

/* Kills whoever watches, while threads map and touch memory, goes on, and leaves a file. */
static void orphan(int after_us, const char *file) {
    static int stop;
    pthread_t made[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&made[i], 0, churn, &stop);
    usleep(after_us);
    kill(getppid(), SIGKILL);
    usleep(100000);
    stop = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(made[i], 0);
    static int none = 1;
    churn(&none);
    touch_all(&seen[0], map(PAGES, PROT_READ | PROT_WRITE), PAGES);
    int done = open(file, O_CREAT | O_WRONLY, 0600);
    if (done < 0)
        _exit(9);
}

int main(int count, char **words) {
    memset(seen, 1, sizeof seen);
    for (int i = 0; i <= THREADS; i++)
        seen[i].count = 0;
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "one")) {
        one(&seen[0]);
        say("one", &seen[0]);
    } else if (!strcmp(what, "spawned")) {
        thread(&seen[0]);
        say(what, &seen[0]);
    } else if (!strcmp(what, "cpu")) {
        for (int cpu = 1; cpu >= 0; cpu--) {
            run_on(cpu);
            thread(&seen[0]);
        }
        say("cpu", &seen[0]);
    } else if (!strcmp(what, "threads")) {
        threads(thread, THREADS);
    } else if (!strcmp(what, "deaf")) {
        threads(deaf, 1);
    } else if (!strcmp(what, "signalled")) {
        signalled(SIGURG);
        seen[1].count = 0;
        signalled(SIGWINCH);
    } else if (!strcmp(what, "family")) {
        child("child1");
        child("child2");
        spawn(words[0], "spawned");
        pthread_t made;
        pthread_create(&made, 0, become, words[0]);
        pthread_join(made, 0);
    } else if (!strcmp(what, "orphan") && count > 3) {
        orphan(atoi(words[2]), words[3]);
    } else {
        return 2;
    }
    return 0;
}
