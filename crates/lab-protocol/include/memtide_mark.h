/* Marks of a region of interest, which `memtide lab run --region marks` models and measures. They have no
 * effect outside the lab. For C and C++ on x86-64. */
#ifndef MEMTIDE_MARK_H
#define MEMTIDE_MARK_H

static inline void memtide_mark(unsigned long command)
{
    __asm__ volatile("xchg %%bx, %%bx" : : "a"(command), "D"(0ul) : "memory");
}

/* Starts the model. Measurement starts at memtide_begin(). */
static inline void memtide_warm_up(void)
{
    memtide_mark(4);
}

/* Begins the region of interest. */
static inline void memtide_begin(void)
{
    memtide_mark(1);
}

/* Ends the region of interest. */
static inline void memtide_end(void)
{
    memtide_mark(2);
}

#endif
