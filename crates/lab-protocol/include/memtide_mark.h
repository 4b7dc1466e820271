/* Marks of a region of interest, which `memtide lab run --region marks` models and measures, and which
 * `memtide record` writes into its trace. They have no other effect. For C and C++ on x86-64. */
#ifndef MEMTIDE_MARK_H
#define MEMTIDE_MARK_H

/* The command is a constant in EAX: the recorder sees instructions, but no registers. */
#define MEMTIDE_MARK(command) \
    __asm__ volatile(".p2align 3\n\tmovl $" #command ", %%eax\n\txchg %%bx, %%bx" \
                     : : "D"(0ul) : "rax", "memory")

/* Starts the model. Measurement starts at memtide_begin(). */
static inline void memtide_warm_up(void)
{
    MEMTIDE_MARK(4);
}

/* Begins the region of interest. */
static inline void memtide_begin(void)
{
    MEMTIDE_MARK(1);
}

/* Ends the region of interest. */
static inline void memtide_end(void)
{
    MEMTIDE_MARK(2);
}

#endif
