/*
 * A wall clock that steps, for one process: an hour ahead, an hour behind, and so on twice a second. To be preloaded.
 *
 * Not the system's clock, which belongs to everybody on the machine and which a container may not set; and not a time
 * namespace, which has offsets for the monotonic clocks alone, chosen before its first process starts. Programs that ask
 * for the wall clock by libc see the steps; kernel timeouts that were given as a wall-clock time do not, so that a wait
 * for one is an hour too long or over at once, as it may be with a clock that is really set.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define STEP 3600
#define EVERY_NS 500000000LL

static int asked(clockid_t clock, struct timespec *ts)
{
	return (int)syscall(SYS_clock_gettime, clock, ts);
}

/* Seconds to add now. */
static long offset(void)
{
	struct timespec ts;
	asked(CLOCK_MONOTONIC, &ts);
	long long half = (ts.tv_sec * 1000000000LL + ts.tv_nsec) / EVERY_NS;
	return half % 2 ? STEP : -STEP;
}

int clock_gettime(clockid_t clock, struct timespec *ts)
{
	int rc = asked(clock, ts);
	if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		ts->tv_sec += offset();
	return rc;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec ts;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &ts);
	if (tv) {
		tv->tv_sec = ts.tv_sec;
		tv->tv_usec = ts.tv_nsec / 1000;
	}
	return 0;
}

time_t time(time_t *at)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	if (at)
		*at = ts.tv_sec;
	return ts.tv_sec;
}
