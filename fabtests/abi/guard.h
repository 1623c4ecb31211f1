/* Buffers that end where their mapping ends, and become inaccessible when they are the application's again:
 * whoever reads or writes one afterwards gets a signal, and the test a message that says whose it was. */
#ifndef SQUALL_GUARD_H
#define SQUALL_GUARD_H

#include "abi.h"
#include <sys/mman.h>

#define GUARD_PAGE 4096UL
/* Address space, not memory: a buffer's place is used again after as much as that was given out. */
#define GUARD_SPACE (1UL << 30)
#define GUARD_PAGES (GUARD_SPACE / GUARD_PAGE)
#define GUARD_CANARY 0xc5

static unsigned char *guard_base;
static size_t guard_next;
/* By page: the number of its owner, for the message. */
static uint32_t guard_owner[GUARD_PAGES];
static unsigned char guard_open[GUARD_PAGES];
/* Describes an owner to stderr. */
static void (*guard_describe)(uint32_t owner);

struct guard {
	unsigned char *at;
	size_t len;
};

static void guard_trap(int number, siginfo_t *info, void *unused)
{
	unsigned char *at = info->si_addr;
	(void)unused;
	/* Nothing here is safe in a handler in general; the process is at its end. */
	if (at >= guard_base && at < guard_base + GUARD_SPACE) {
		size_t page = (size_t)(at - guard_base) / GUARD_PAGE;
		fprintf(stderr, "a buffer that was given back, or its end, was touched: byte %zu of page %zu, last of ",
			(size_t)(at - guard_base) % GUARD_PAGE, page);
		if (!guard_open[page] && page && !guard_owner[page])
			page--;
		guard_describe(guard_owner[page]);
	} else {
		fprintf(stderr, "signal %d at %p\n", number, (void *)at);
	}
	_exit(1);
}

static inline void guard_start(void (*describe)(uint32_t))
{
	struct sigaction trap = {.sa_sigaction = guard_trap, .sa_flags = SA_SIGINFO | SA_RESETHAND};
	guard_describe = describe;
	guard_base = mmap(NULL, GUARD_SPACE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(guard_base != MAP_FAILED);
	EQUAL(sigaction(SIGSEGV, &trap, NULL), 0);
	EQUAL(sigaction(SIGBUS, &trap, NULL), 0);
}

static inline size_t guard_pages(size_t len)
{
	return len ? (len + GUARD_PAGE - 1) / GUARD_PAGE : 1;
}

/* A buffer of `len` bytes in pages of its own, behind it a page that is never accessible. */
static inline struct guard guard_take(size_t len, uint32_t owner)
{
	size_t pages = guard_pages(len);
	size_t first = guard_next, seen = 0;
	for (size_t i = 0; i < pages; i++)
		if (first + pages + 1 > GUARD_PAGES || guard_open[first + i]) {
			/* One that is kept for long: behind it, or from the start. */
			first = first + pages + 1 > GUARD_PAGES ? 0 : first + i + 2;
			i = (size_t)-1;
			if (seen++ > GUARD_PAGES)
				FAIL("no room for another buffer");
		}
	guard_next = first + pages + 1;
	for (size_t i = first; i < first + pages; i++) {
		guard_open[i] = 1;
		guard_owner[i] = owner;
	}
	guard_owner[first + pages] = 0;
	unsigned char *start = guard_base + first * GUARD_PAGE;
	EQUAL(mprotect(start, pages * GUARD_PAGE, PROT_READ | PROT_WRITE), 0);
	memset(start, GUARD_CANARY, pages * GUARD_PAGE - len);
	return (struct guard){start + pages * GUARD_PAGE - len, len};
}

/* The buffer is the application's again: nobody else may look at it, and nothing before it was written. */
static inline void guard_give_back(struct guard *g)
{
	if (!g->at)
		return;
	size_t pages = guard_pages(g->len), slack = pages * GUARD_PAGE - g->len;
	unsigned char *start = g->at - slack;
	size_t first = (size_t)(start - guard_base) / GUARD_PAGE;
	for (size_t i = 0; i < slack; i++)
		if (start[i] != GUARD_CANARY)
			FAIL("%zu bytes before a buffer of %zu were written", slack - i, g->len);
	EQUAL(mprotect(start, pages * GUARD_PAGE, PROT_NONE), 0);
	madvise(start, pages * GUARD_PAGE, MADV_DONTNEED);
	for (size_t i = first; i < first + pages; i++)
		guard_open[i] = 0;
	g->at = NULL;
}

#endif
