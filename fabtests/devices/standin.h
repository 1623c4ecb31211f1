/* What the stand-ins for drivers' libraries share: memory that the CPU must not touch, and that only their own copies do.
 *
 * An allocation is two mappings of the same pages: the one that is given out has no access at all, so that whoever follows
 * a pointer into it dies, and the other is the library's own. As with a real driver, addresses are checked against what
 * is allocated.
 *
 * The environment says what is to go wrong (STANDIN_CUDA, STANDIN_ROCR, STANDIN_ZE): `broken`, it does not initialise;
 * `empty`, it has no device. */
#ifndef STANDIN_H
#define STANDIN_H

#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 1024

struct allocation {
	char *given, *own;
	size_t len;
	int device;
	void *context;
};

static struct allocation allocations[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* How many copies are to fail from now on, after how many that do not; and how many there were. */
static int failing, sparing;
static unsigned long copies;

static int says(const char *variable, const char *word)
{
	const char *value = getenv(variable);
	return value && strcmp(value, word) == 0;
}

/* Under the lock. */
static struct allocation *find(const void *at, size_t len)
{
	for (int i = 0; i < MOST; i++) {
		struct allocation *a = &allocations[i];
		size_t offset = (size_t)((const char *)at - a->given);
		if (a->given && (const char *)at >= a->given && offset < a->len && len <= a->len - offset)
			return a;
	}
	return NULL;
}

static void *allocate(size_t len, int device, void *context)
{
	void *given = NULL;
	int fd = memfd_create("standin", 0);
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MOST && !given && fd >= 0 && ftruncate(fd, (off_t)len) == 0; i++) {
		struct allocation *a = &allocations[i];
		if (a->given)
			continue;
		a->own = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		given = mmap(NULL, len, PROT_NONE, MAP_SHARED, fd, 0);
		if (a->own == MAP_FAILED || given == MAP_FAILED)
			abort();
		a->given = given;
		a->len = len;
		a->device = device;
		a->context = context;
	}
	pthread_mutex_unlock(&lock);
	close(fd);
	return given;
}

static int release(void *at)
{
	int found = 0;
	pthread_mutex_lock(&lock);
	struct allocation *a = find(at, 0);
	if (a && a->given == at) {
		munmap(a->given, a->len);
		munmap(a->own, a->len);
		memset(a, 0, sizeof(*a));
		found = 1;
	}
	pthread_mutex_unlock(&lock);
	return found;
}

/* Where the library itself finds bytes, or NULL. Under the lock. */
static char *inside(const void *at, size_t len)
{
	struct allocation *a = find(at, len);
	return a ? a->own + ((const char *)at - a->given) : NULL;
}

/* Whether this copy is one that fails. */
static int fails(void)
{
	copies++;
	if (sparing > 0) {
		sparing--;
		return 0;
	}
	if (failing > 0) {
		failing--;
		return 1;
	}
	return 0;
}

/* For the tests. */
void standin_fail(int after, int count);
void standin_fail(int after, int count)
{
	pthread_mutex_lock(&lock);
	sparing = after;
	failing = count;
	pthread_mutex_unlock(&lock);
}

unsigned long standin_copies(void);
unsigned long standin_copies(void)
{
	return __atomic_load_n(&copies, __ATOMIC_RELAXED);
}

#endif
