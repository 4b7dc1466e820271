/* Marks for memtide's lab: what lies between them is modelled and measured with `memtide lab run --region marks`. Anywhere else
 * they do nothing. For C and C++ on x86-64. */
#ifndef MEMTIDE_MARK_H
#define MEMTIDE_MARK_H

static inline void memtide_mark(unsigned long command)
{
    __asm__ volatile("xchg %%bx, %%bx" : : "a"(command), "D"(0ul) : "memory");
}

/* The machine is modelled from here on, but nothing is measured before memtide_begin(). */
static inline void memtide_warm_up(void)
{
    memtide_mark(4);
}

/* The region of interest begins. */
static inline void memtide_begin(void)
{
    memtide_mark(1);
}

/* It ends. */
static inline void memtide_end(void)
{
    memtide_mark(2);
}

#endif
