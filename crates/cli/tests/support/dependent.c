// Loads whose addresses depend on the load before, in one of several ways, over memory in which no two
// successive lines are near each other. Prints the time of a load in each of some intervals of 0.1 s, in ns.
// Usage: dependent WAY MIB INTERVALS, with MIB a power of two

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char *memory;
static uint64_t lines;
static uint64_t random_state = 1;

static uint64_t next_random(void) {
    return random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
}

// Offset of a line that depends on nothing. As the number of lines is a power of two, each comes once in as
// many calls, so that no cache has it still.
static uint64_t any_line(void) { return next_random() % lines * 64; }

// Links all lines to one ring, in random order.
static void link_lines(void) {
    uint64_t *order = malloc(lines * sizeof *order);
    for (uint64_t i = 0; i < lines; i++) order[i] = i;
    for (uint64_t i = lines - 1; i > 0; i--) {
        uint64_t other = (next_random() >> 33) % (i + 1), line = order[i];
        order[i] = order[other];
        order[other] = line;
    }
    for (uint64_t i = 0; i < lines; i++)
        *(uint64_t *)(memory + order[i] * 64) = order[(i + 1) % lines] * 64;
    free(order);
}

static uint64_t by_register(uint64_t at) { return *(volatile uint64_t *)(memory + at); }

// The address is in the last of five registers that depend on the load, in another block of code.
static uint64_t by_many_registers(uint64_t at) {
    uint64_t next;
    __asm__ volatile("mov (%1,%2), %%rax\n mov %%rax, %%rbx\n lea 1(%%rbx), %%rcx\n lea 1(%%rcx), %%rdx\n"
                     "lea -2(%%rdx), %%r15\n jmp 1f\n 1: mov $0, %%rax\n mov $0, %%rbx\n jmp 2f\n"
                     "2: mov %%r15, %0"
                     : "=r"(next) : "r"(memory), "r"(at) : "rax", "rbx", "rcx", "rdx", "r15");
    return next;
}

// The address was stored to the stack and loaded again, twice.
static uint64_t by_memory(uint64_t at) {
    volatile uint64_t next = by_register(at);
    volatile uint64_t again = next;
    return again;
}

// A line that depends on nothing, at one of two offsets, which the carry flag selects.
static uint64_t by_flags(uint64_t at) {
    uint64_t mask;
    __asm__ volatile("mov (%1,%2), %%rax\n neg %%rax\n mov $0, %%rax\n sbb %0, %0"
                     : "=r"(mask) : "r"(memory), "r"(at) : "rax", "cc");
    return any_line() + (mask & 8);
}

static uint64_t by_nothing(uint64_t at) {
    by_register(at);
    return any_line();
}

static const struct { const char *name; uint64_t (*next)(uint64_t); } ways[] = {
    {"register", by_register}, {"registers", by_many_registers}, {"memory", by_memory}, {"flags", by_flags},
    {"nothing", by_nothing},
};

static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    lines = (uint64_t)atoi(arguments[2]) << 14;
    memory = aligned_alloc(1 << 21, lines * 64);
    if (!memory) return 1;
    link_lines();
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        if (strcmp(ways[way].name, arguments[1])) continue;
        uint64_t at = 0;
        for (int interval = 0; interval < atoi(arguments[3]); interval++) {
            uint64_t loads = 0;
            double begin = now_ns(), end;
            do {
                for (int i = 0; i < 1000; i++) at = ways[way].next(at);
                loads += 1000;
            } while ((end = now_ns()) < begin + 1e8);
            printf("%.2f\n", (end - begin) / loads);
        }
        return at == 1;
    }
    return 2;
}
