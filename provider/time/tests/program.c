/* Calls the time functions under the preloaded time library, with a table that stands for the provider.
 * The clock of the table advances 20 ns at each reading, and its wait sets the clock to the end of the wait.
 * The argument names the test. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                        \
	do {                                                                                    \
		if (!(condition)) {                                                             \
			fprintf(stderr, "line %d: %s; errno %d\n", __LINE__, #condition, errno); \
			exit(1);                                                                \
		}                                                                               \
	} while (0)

#define US 1000ull
#define MS (1000 * US)
#define SECOND (1000 * MS)
#define YEAR (365 * 86400 * SECOND)
/* No machine is up for that long, and no calendar shows the sum. */
#define BEGIN (20 * YEAR)
#define CALENDAR (31 * YEAR)

struct clock_table {
	size_t size;
	uint64_t (*now)(void);
	int (*wait)(uint64_t, int);
	int (*owns)(int);
	int64_t calendar;
	void (*ending)(void);
	uint64_t (*create)(void);
	void (*begin)(uint64_t);
	int (*yields)(void);
	void (*set_timer)(uint64_t, uint64_t (*)(uint64_t));
	void (*socket_timeout)(uint64_t);
	void (*passed_timeout)(uint64_t);
};

static uint64_t virtual_time = BEGIN;
static int ended;
static int waits;
static int owned = -1;
/* When something arrives and makes the owned descriptor readable. */
static uint64_t arrival = UINT64_MAX;
/* Longest step of a wait. */
static uint64_t step = UINT64_MAX;
static void (*hook)(void);
/* When a timer of the program is due, and the function that ends it. */
static uint64_t due = UINT64_MAX;
static uint64_t (*expire)(uint64_t);

static uint64_t now(void)
{
	errno = EIO;
	return ended ? 0 : __atomic_add_fetch(&virtual_time, 20, __ATOMIC_SEQ_CST);
}

static int wait_until(uint64_t until, int wakes)
{
	uint64_t begin = virtual_time;
	uint64_t one = 1;

	__atomic_add_fetch(&waits, 1, __ATOMIC_SEQ_CST);
	if (hook)
		hook();
	errno = EIO;
	if (ended)
		return -1;
	if (until > begin && until - begin > step)
		until = begin + step;
	if (arrival <= until && wakes) {
		until = arrival;
		arrival = UINT64_MAX;
		CHECK(write(owned, &one, sizeof one) == sizeof one);
	}
	if (due < until)
		until = due;
	if (until > begin)
		virtual_time = until;
	if (due <= virtual_time)
		due = expire(virtual_time);
	return 0;
}

static void set_timer(uint64_t next, uint64_t (*function)(uint64_t))
{
	errno = EIO;
	due = next;
	expire = function;
}

static int owns(int fd)
{
	errno = EIO;
	return fd == owned;
}

static void end(void)
{
}

/* Threads that were created, and the last time with which one began. */
static uint64_t created;
static uint64_t begun;

static uint64_t create(void)
{
	errno = EIO;
	return BEGIN + __atomic_add_fetch(&created, 1, __ATOMIC_SEQ_CST);
}

static void begin_thread(uint64_t at)
{
	errno = EIO;
	__atomic_store_n(&begun, at, __ATOMIC_SEQ_CST);
}

/* The provider's answer to a thread that yields. */
static int must_yield;

static int yields(void)
{
	errno = EIO;
	return must_yield;
}

/* The last timeout of a socket that the program has set. It is volatile, because compilers assume that setsockopt calls no
 * function of this file. */
static volatile uint64_t timeout_of_socket;

static void note_socket_timeout(uint64_t ns)
{
	errno = EIO;
	timeout_of_socket = ns;
}

/* The last timeout that has passed in real time, and how many have. */
static volatile uint64_t passed_timeout, passed_timeouts;

static void note_passed_timeout(uint64_t ns)
{
	errno = EIO;
	passed_timeout = ns;
	passed_timeouts++;
}

static struct clock_table table = { sizeof table, now, wait_until, owns, CALENDAR, end, create, begin_thread, yields,
	set_timer, note_socket_timeout, note_passed_timeout };

static int (*registration(void))(const struct clock_table *)
{
	int (*function)(const struct clock_table *);

	*(void **)&function = dlsym(RTLD_DEFAULT, "squall_time_register");
	CHECK(function);
	return function;
}

static void enter_virtual_time(void)
{
	CHECK(registration()(&table) == 0);
}

static uint64_t from_timespec(struct timespec time)
{
	CHECK(time.tv_nsec >= 0 && time.tv_nsec < (long)SECOND);
	return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

static struct timespec to_timespec(uint64_t time)
{
	return (struct timespec){ .tv_sec = (time_t)(time / SECOND), .tv_nsec = (long)(time % SECOND) };
}

static uint64_t read_clock(clockid_t clock)
{
	struct timespec time;

	CHECK(clock_gettime(clock, &time) == 0);
	return from_timespec(time);
}

/* Reads a clock of the system behind the library's back. */
static uint64_t read_real(clockid_t clock)
{
	struct timespec time;

	CHECK(syscall(SYS_clock_gettime, clock, &time) == 0);
	return from_timespec(time);
}

static int is_real(clockid_t clock)
{
	uint64_t before = read_real(clock);
	uint64_t time = read_clock(clock);

	return before <= time && time <= read_real(clock);
}

/* Virtual time since the last call, in whole milliseconds, and the number of waits. */
static uint64_t last = BEGIN;
static int last_waits;

static void begin(void)
{
	last = virtual_time;
	last_waits = waits;
}

static uint64_t elapsed_ms(void)
{
	return (virtual_time - last) / MS;
}

static int waited(void)
{
	return waits - last_waits;
}

static void test_registration(void)
{
	struct clock_table other = table;

	CHECK(registration()(NULL) == -1);
	other.size -= 8;
	CHECK(registration()(&other) == -1);
	CHECK(is_real(CLOCK_MONOTONIC));
	enter_virtual_time();
	CHECK(read_clock(CLOCK_MONOTONIC) >= BEGIN);
}

static void test_clocks(void)
{
	static const clockid_t monotonic[] = { CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME };
	static const clockid_t calendar[] = { CLOCK_REALTIME, CLOCK_REALTIME_COARSE, CLOCK_TAI };
	struct timespec resolution;
	struct timespec spec;
	struct timezone zone;
	struct timeval val;
	struct {
		time_t time;
		unsigned short milliseconds;
		short zone, flag;
	} timeb;
	int (*ftime_function)(void *);
	time_t seconds;
	size_t i;

	enter_virtual_time();
	virtual_time = BEGIN + 7 * SECOND + 123456789;
	errno = ENOENT;
	for (i = 0; i < sizeof monotonic / sizeof *monotonic; i++)
		CHECK(read_clock(monotonic[i]) == virtual_time);
	for (i = 0; i < sizeof calendar / sizeof *calendar; i++)
		CHECK(read_clock(calendar[i]) == virtual_time + CALENDAR);
	CHECK(errno == ENOENT);
	CHECK(read_clock(CLOCK_PROCESS_CPUTIME_ID) < 1000 * SECOND);
	CHECK(read_clock(CLOCK_THREAD_CPUTIME_ID) < 1000 * SECOND);
	CHECK(clock_gettime(12345, &spec) == -1 && errno == EINVAL);
	CHECK(clock_getres(CLOCK_MONOTONIC, &resolution) == 0 && from_timespec(resolution) == 1);

	CHECK(gettimeofday(&val, NULL) == 0);
	CHECK((uint64_t)val.tv_sec == (virtual_time + CALENDAR) / SECOND && val.tv_usec == 123456);
	memset(&zone, 0x55, sizeof zone);
	CHECK(gettimeofday(&val, &zone) == 0 && zone.tz_dsttime == 0);
	CHECK((uint64_t)val.tv_sec == (virtual_time + CALENDAR) / SECOND && val.tv_usec == 123456);
	CHECK((uint64_t)time(&seconds) == (virtual_time + CALENDAR) / SECOND);
	CHECK(time(NULL) == seconds);
	CHECK(timespec_get(&spec, TIME_UTC) == TIME_UTC);
	CHECK(from_timespec(spec) == virtual_time + CALENDAR);
	CHECK(timespec_get(&spec, 77) == 0);
	*(void **)&ftime_function = dlsym(RTLD_DEFAULT, "ftime");
	if (ftime_function(&timeb) == 0) {
		CHECK((uint64_t)timeb.time == (virtual_time + CALENDAR) / SECOND);
		CHECK(timeb.milliseconds == 123);
	}
}

static void read_clock_in_provider(void)
{
	CHECK(is_real(CLOCK_MONOTONIC) && is_real(CLOCK_REALTIME));
	/* A real sleep, without the provider's wait. */
	CHECK(usleep(1) == 0);
	CHECK(waited() == 1);
}

static void test_sleeps(void)
{
	struct timespec span = { 2, 500000000 };
	struct timespec invalid = { 0, 1000000000 };
	struct timespec until;

	enter_virtual_time();
	begin();
	CHECK(nanosleep(&span, NULL) == 0 && elapsed_ms() == 2500 && waited() == 1);
	begin();
	CHECK(usleep(3000) == 0 && elapsed_ms() == 3);
	begin();
	CHECK(sleep(100) == 0 && elapsed_ms() == 100000);
	begin();
	CHECK(thrd_sleep(&span, NULL) == 0 && elapsed_ms() == 2500);
	begin();
	CHECK(clock_nanosleep(CLOCK_REALTIME, 0, &span, NULL) == 0 && elapsed_ms() == 2500);
	begin();
	until = to_timespec(virtual_time + 40 * MS);
	CHECK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == 0 && elapsed_ms() == 40);
	CHECK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == 0 && elapsed_ms() == 40);
	begin();
	until = to_timespec(virtual_time + CALENDAR + 40 * MS);
	CHECK(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, NULL) == 0 && elapsed_ms() == 40);
	begin();
	CHECK(nanosleep(&invalid, NULL) == -1 && errno == EINVAL);
	CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &invalid, NULL) == EINVAL);
	CHECK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &invalid, NULL) == EINVAL);
	CHECK(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &span, NULL) == EINVAL);
	CHECK(waited() == 0);

	/* The provider may return early. */
	step = 200 * US;
	begin();
	CHECK(usleep(1000) == 0 && elapsed_ms() == 1 && waited() >= 5);
	step = UINT64_MAX;
	hook = read_clock_in_provider;
	begin();
	CHECK(usleep(1000) == 0 && elapsed_ms() == 1);
}

/* A wait in real time that ended with its timeout. */
#define REAL_TIMEOUT(call, ms)                                                                  \
	do {                                                                                    \
		uint64_t before = read_real(CLOCK_MONOTONIC);                                   \
		begin();                                                                        \
		CHECK((call) == 0 && elapsed_ms() == (ms));                                     \
		CHECK(read_real(CLOCK_MONOTONIC) - before >= (ms) * MS);                        \
	} while (0)

static void drain(void)
{
	uint64_t count;

	CHECK(read(owned, &count, sizeof count) == sizeof count);
}

static int pipe_ends[2];

static void make_descriptors(void)
{
	owned = eventfd(0, EFD_NONBLOCK);
	CHECK(owned >= 0 && pipe(pipe_ends) == 0);
}

static void write_pipe(void)
{
	CHECK(write(pipe_ends[1], "", 1) == 1);
	hook = NULL;
}

extern int __poll_chk(struct pollfd *, nfds_t, int, size_t);
extern int __ppoll_chk(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);

static void test_poll(void)
{
	struct pollfd fds[2] = { { .fd = -1 }, { .fd = -5 } };
	struct timespec span = { 0, 20000000 };
	struct timespec invalid = { -1, 0 };
	sigset_t mask;
	char byte;

	make_descriptors();
	enter_virtual_time();
	sigemptyset(&mask);

	/* Without descriptors it is a sleep. */
	begin();
	CHECK(poll(NULL, 0, 50) == 0 && elapsed_ms() == 50);
	begin();
	CHECK(poll(fds, 2, 50) == 0 && elapsed_ms() == 50);
	begin();
	CHECK(ppoll(NULL, 0, &span, &mask) == 0 && elapsed_ms() == 20);

	/* With the provider's descriptor. */
	fds[0] = (struct pollfd){ .fd = pipe_ends[0], .events = POLLIN };
	fds[1] = (struct pollfd){ .fd = owned, .events = POLLIN };
	begin();
	CHECK(poll(fds, 2, 0) == 0 && waited() == 0);
	CHECK(poll(fds, 2, 100) == 0 && elapsed_ms() == 100 && waited() >= 100);
	begin();
	arrival = virtual_time + 30 * MS + 500 * US;
	CHECK(poll(fds, 2, 100) == 1 && elapsed_ms() == 30);
	CHECK(fds[0].revents == 0 && fds[1].revents == POLLIN);
	begin();
	CHECK(poll(fds, 2, 100) == 1 && waited() == 0);
	drain();
	begin();
	arrival = virtual_time + 5 * MS;
	CHECK(poll(fds, 2, -1) == 1 && elapsed_ms() == 5);
	drain();
	begin();
	arrival = virtual_time + 5 * MS;
	CHECK(ppoll(fds, 2, NULL, &mask) == 1 && elapsed_ms() == 5);
	drain();
	begin();
	CHECK(ppoll(fds, 2, &span, NULL) == 0 && elapsed_ms() == 20);
	begin();
	CHECK(__poll_chk(fds, 2, 10, sizeof fds) == 0 && elapsed_ms() == 10);
	begin();
	CHECK(__ppoll_chk(fds, 2, &span, NULL, sizeof fds) == 0 && elapsed_ms() == 20);
	CHECK(ppoll(fds, 2, &invalid, NULL) == -1 && errno == EINVAL);

	/* Without it, the wait is real. */
	REAL_TIMEOUT(poll(fds, 1, 3), 3);
	REAL_TIMEOUT(ppoll(fds, 1, &span, NULL), 20);
	/* Ready at last, while virtual time follows. */
	hook = write_pipe;
	CHECK(poll(fds, 1, 3) == 1 && fds[0].revents == POLLIN);
	hook = NULL;
	CHECK(read(pipe_ends[0], &byte, 1) == 1);

	/* Something outside of the network is ready while the provider waits. */
	CHECK(write(pipe_ends[1], "", 1) == 1);
	begin();
	CHECK(poll(fds, 2, 100) == 1 && waited() == 0 && fds[0].revents == POLLIN);
	CHECK(poll(fds, 1, -1) == 1);
}

static void test_select(void)
{
	struct timeval timeout = { 0, 50000 };
	struct timespec span = { 0, 20000000 };
	int count = (owned > pipe_ends[0] ? owned : pipe_ends[0]) + 1;
	fd_set read_set, write_set;

	make_descriptors();
	count = 1 + (owned > pipe_ends[1] ? owned : pipe_ends[1]);
	enter_virtual_time();

	begin();
	CHECK(select(0, NULL, NULL, NULL, &timeout) == 0 && elapsed_ms() == 50);
	CHECK(timeout.tv_sec == 0 && timeout.tv_usec == 0);
	begin();
	CHECK(pselect(0, NULL, NULL, NULL, &span, NULL) == 0 && elapsed_ms() == 20);

	FD_ZERO(&read_set);
	FD_SET(owned, &read_set);
	FD_SET(pipe_ends[0], &read_set);
	timeout = (struct timeval){ 0, 100000 };
	begin();
	arrival = virtual_time + 30 * MS;
	CHECK(select(count, &read_set, NULL, NULL, &timeout) == 1 && elapsed_ms() == 30);
	CHECK(FD_ISSET(owned, &read_set) && !FD_ISSET(pipe_ends[0], &read_set));
	CHECK(timeout.tv_usec > 69000 && timeout.tv_usec <= 70000);
	drain();

	FD_SET(pipe_ends[0], &read_set);
	timeout = (struct timeval){ 0, 100000 };
	begin();
	CHECK(select(count, &read_set, NULL, NULL, &timeout) == 0 && elapsed_ms() == 100);
	CHECK(!FD_ISSET(owned, &read_set) && timeout.tv_usec == 0);
	FD_SET(owned, &read_set);
	begin();
	CHECK(pselect(count, &read_set, NULL, NULL, &span, NULL) == 0 && elapsed_ms() == 20);
	FD_SET(owned, &read_set);
	begin();
	arrival = virtual_time + 7 * MS;
	CHECK(pselect(count, &read_set, NULL, NULL, NULL, NULL) == 1 && elapsed_ms() == 7);
	CHECK(FD_ISSET(owned, &read_set));
	drain();

	/* The wait for other descriptors is real. */
	FD_ZERO(&read_set);
	FD_SET(pipe_ends[0], &read_set);
	timeout = (struct timeval){ 0, 3000 };
	REAL_TIMEOUT(select(count, &read_set, NULL, NULL, &timeout), 3);
	CHECK(timeout.tv_sec == 0 && timeout.tv_usec == 0);
	FD_SET(pipe_ends[0], &read_set);
	CHECK(write(pipe_ends[1], "", 1) == 1);
	FD_ZERO(&write_set);
	FD_SET(pipe_ends[1], &write_set);
	CHECK(select(count, &read_set, &write_set, NULL, NULL) == 2);
	CHECK(FD_ISSET(pipe_ends[0], &read_set) && FD_ISSET(pipe_ends[1], &write_set));
	timeout = (struct timeval){ -1, 0 };
	CHECK(select(0, NULL, NULL, NULL, &timeout) == -1 && errno == EINVAL);
}

static int epoll_with(int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };
	int set = epoll_create1(0);

	CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	return set;
}

static void test_epoll(void)
{
	struct timespec span = { 0, 20000000 };
	struct epoll_event event;
	struct pollfd nested;
	int early, set, again;

	make_descriptors();
	early = epoll_with(owned);
	enter_virtual_time();
	set = epoll_with(owned);
	begin();
	CHECK(epoll_wait(set, &event, 1, 0) == 0 && waited() == 0);
	CHECK(epoll_wait(set, &event, 1, 10) == 0 && elapsed_ms() == 10);
	begin();
	CHECK(epoll_wait(early, &event, 1, 10) == 0 && elapsed_ms() == 10);
	begin();
	CHECK(epoll_pwait(set, &event, 1, 10, NULL) == 0 && elapsed_ms() == 10);
	begin();
	if (epoll_pwait2(set, &event, 1, &span, NULL) == 0)
		CHECK(elapsed_ms() == 20);
	else
		CHECK(errno == ENOSYS);
	begin();
	arrival = virtual_time + 3 * MS;
	CHECK(epoll_wait(set, &event, 1, -1) == 1 && elapsed_ms() == 3 && event.data.fd == owned);
	drain();
	nested = (struct pollfd){ .fd = set, .events = POLLIN };
	begin();
	arrival = virtual_time + 3 * MS;
	CHECK(poll(&nested, 1, -1) == 1 && elapsed_ms() == 3);
	drain();

	/* Without the provider's descriptor, the wait is real. */
	CHECK(epoll_ctl(set, EPOLL_CTL_DEL, owned, NULL) == 0);
	REAL_TIMEOUT(epoll_wait(set, &event, 1, 3), 3);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, owned, &event) == 0);
	close(set);
	again = epoll_with(pipe_ends[0]);
	CHECK(again == set);
	REAL_TIMEOUT(epoll_wait(again, &event, 1, 3), 3);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_cond_t monotonic_cond;
static cnd_t c11_cond;
static mtx_t c11_mutex;
static int done;

static void check_mutex_is_free(void)
{
	CHECK(pthread_mutex_trylock(&mutex) == 0);
	CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static void set_done(void)
{
	CHECK(pthread_mutex_lock(&mutex) == 0);
	done = 1;
	CHECK(pthread_mutex_unlock(&mutex) == 0);
	CHECK(pthread_cond_signal(&cond) == 0);
}

static void broadcast_c11(void)
{
	CHECK(cnd_broadcast(&c11_cond) == thrd_success);
}

static void *signal_later(void *argument)
{
	(void)argument;
	/* Past the waiter's first slice, or not: both must work. */
	CHECK(syscall(SYS_nanosleep, &(struct timespec){ 0, 5000000 }, NULL) == 0);
	set_done();
	return NULL;
}

static void test_conditions(void)
{
	pthread_condattr_t attributes;
	struct timespec until;
	pthread_t thread;
	uint64_t deadline;

	CHECK(pthread_condattr_init(&attributes) == 0);
	CHECK(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
	CHECK(pthread_cond_init(&monotonic_cond, &attributes) == 0);
	CHECK(cnd_init(&c11_cond) == thrd_success && mtx_init(&c11_mutex, mtx_timed) == thrd_success);
	enter_virtual_time();
	CHECK(pthread_mutex_lock(&mutex) == 0);

	hook = check_mutex_is_free;
	begin();
	until = to_timespec(virtual_time + CALENDAR + 5 * MS);
	CHECK(pthread_cond_timedwait(&cond, &mutex, &until) == ETIMEDOUT && elapsed_ms() == 5);
	CHECK(waited() >= 5 && pthread_mutex_trylock(&mutex) == EBUSY);
	begin();
	CHECK(pthread_cond_timedwait(&cond, &mutex, &until) == ETIMEDOUT && waited() == 0);
	until = (struct timespec){ 0, 0 };
	CHECK(pthread_cond_timedwait(&cond, &mutex, &until) == ETIMEDOUT && waited() == 0);
	CHECK(pthread_cond_timedwait(&monotonic_cond, &mutex, &until) == ETIMEDOUT && waited() == 0);
	begin();
	until = to_timespec(virtual_time + 5 * MS);
	CHECK(pthread_cond_timedwait(&monotonic_cond, &mutex, &until) == ETIMEDOUT && elapsed_ms() == 5);
	begin();
	until = to_timespec(virtual_time + 5 * MS);
	CHECK(pthread_cond_clockwait(&cond, &mutex, CLOCK_MONOTONIC, &until) == ETIMEDOUT && elapsed_ms() == 5);
	begin();
	until = to_timespec(virtual_time + CALENDAR + 5 * MS);
	CHECK(pthread_cond_clockwait(&cond, &mutex, CLOCK_REALTIME, &until) == ETIMEDOUT && elapsed_ms() == 5);
	until.tv_nsec = (long)SECOND;
	CHECK(pthread_cond_timedwait(&cond, &mutex, &until) == EINVAL);

	/* A signal between two slices is not lost. */
	hook = set_done;
	begin();
	deadline = virtual_time + 1000 * SECOND;
	until = to_timespec(deadline + CALENDAR);
	CHECK(pthread_cond_timedwait(&cond, &mutex, &until) == 0 && done && waited() == 1);

	/* Nor is one of another thread, at any time. */
	hook = NULL;
	done = 0;
	CHECK(pthread_create(&thread, NULL, signal_later, NULL) == 0);
	while (!done)
		CHECK(pthread_cond_timedwait(&cond, &mutex, &until) == 0);
	CHECK(virtual_time < deadline);
	CHECK(pthread_join(thread, NULL) == 0);

	/* A signal of another process is not counted: the wait ends without it. */
	begin();
	CHECK(pthread_cond_timedwait(&cond, &mutex, &until) == 0 && waited() == 100);
	CHECK(virtual_time < deadline);
	CHECK(pthread_mutex_unlock(&mutex) == 0);

	CHECK(mtx_lock(&c11_mutex) == thrd_success);
	begin();
	until = to_timespec(virtual_time + CALENDAR + 5 * MS);
	CHECK(cnd_timedwait(&c11_cond, &c11_mutex, &until) == thrd_timedout && elapsed_ms() == 5);
	hook = broadcast_c11;
	until = to_timespec(virtual_time + CALENDAR + 1000 * SECOND);
	CHECK(cnd_timedwait(&c11_cond, &c11_mutex, &until) == thrd_success);
	CHECK(cnd_signal(&c11_cond) == thrd_success);
}

static sem_t semaphore;

static void post(void)
{
	CHECK(sem_post(&semaphore) == 0);
}

static void *read_pipe(void *argument)
{
	char byte;

	(void)argument;
	CHECK(read(pipe_ends[0], &byte, 1) == 1);
	return NULL;
}

static void test_locks(void)
{
	pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
	struct mq_attr attributes = { .mq_maxmsg = 1, .mq_msgsize = 8 };
	struct timespec monotonic, calendar;
	pthread_t thread;
	char name[40];
	char bytes[8];
	mqd_t queue;
	mtx_t c11;

	make_descriptors();
	CHECK(sem_init(&semaphore, 0, 1) == 0 && mtx_init(&c11, mtx_timed) == thrd_success);
	enter_virtual_time();

#define UNTIL                                                                                   \
	(begin(), monotonic = to_timespec(virtual_time + 3 * MS),                                \
	 calendar = to_timespec(virtual_time + CALENDAR + 3 * MS))
	UNTIL;
	CHECK(sem_timedwait(&semaphore, &calendar) == 0 && waited() == 0);
	CHECK(sem_timedwait(&semaphore, &calendar) == -1 && errno == ETIMEDOUT && elapsed_ms() == 3);
	UNTIL;
	CHECK(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &monotonic) == -1 && errno == ETIMEDOUT);
	CHECK(elapsed_ms() == 3 && waited() >= 3);
	CHECK(sem_clockwait(&semaphore, CLOCK_TAI, &monotonic) == -1 && errno == EINVAL);
	UNTIL;
	hook = post;
	CHECK(sem_timedwait(&semaphore, &calendar) == 0 && waited() == 1);
	hook = NULL;

	CHECK(pthread_mutex_timedlock(&mutex, &calendar) == 0);
	UNTIL;
	CHECK(pthread_mutex_timedlock(&mutex, &calendar) == ETIMEDOUT && elapsed_ms() == 3);
	UNTIL;
	CHECK(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &monotonic) == ETIMEDOUT && elapsed_ms() == 3);
	CHECK(mtx_timedlock(&c11, &calendar) == thrd_success);
	UNTIL;
	CHECK(mtx_timedlock(&c11, &calendar) == thrd_timedout && elapsed_ms() == 3);

	CHECK(pthread_rwlock_timedrdlock(&lock, &calendar) == 0);
	UNTIL;
	CHECK(pthread_rwlock_timedwrlock(&lock, &calendar) == ETIMEDOUT && elapsed_ms() == 3);
	UNTIL;
	CHECK(pthread_rwlock_clockwrlock(&lock, CLOCK_MONOTONIC, &monotonic) == ETIMEDOUT && elapsed_ms() == 3);
	CHECK(pthread_rwlock_clockrdlock(&lock, CLOCK_MONOTONIC, &monotonic) == 0);

	CHECK(pthread_create(&thread, NULL, read_pipe, NULL) == 0);
	UNTIL;
	CHECK(pthread_timedjoin_np(thread, NULL, &calendar) == ETIMEDOUT && elapsed_ms() == 3);
	UNTIL;
	CHECK(pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &monotonic) == ETIMEDOUT && elapsed_ms() == 3);
	CHECK(write(pipe_ends[1], "", 1) == 1);
	calendar = to_timespec(virtual_time + CALENDAR + 1000 * SECOND);
	CHECK(pthread_timedjoin_np(thread, NULL, &calendar) == 0);

	snprintf(name, sizeof name, "/squall-time-%d", (int)getpid());
	queue = mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, &attributes);
	/* The kernel may lack message queues. */
	if (queue != (mqd_t)-1) {
		mq_unlink(name);
		UNTIL;
		CHECK(mq_timedreceive(queue, bytes, sizeof bytes, NULL, &calendar) == -1);
		CHECK(errno == ETIMEDOUT && elapsed_ms() == 3);
		UNTIL;
		CHECK(mq_timedsend(queue, "a", 1, 0, &calendar) == 0 && waited() == 0);
		CHECK(mq_timedsend(queue, "b", 1, 0, &calendar) == -1 && errno == ETIMEDOUT && elapsed_ms() == 3);
		CHECK(mq_timedreceive(queue, bytes, sizeof bytes, NULL, &calendar) == 1);
	}
}

static long wait_for_futex(int *word, int flags, uint64_t until)
{
	struct timespec time = to_timespec(until);

	return syscall(SYS_futex, word, FUTEX_WAIT_BITSET | flags, 0, &time, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void *wake_futex(void *word)
{
	CHECK(syscall(SYS_nanosleep, &(struct timespec){ 0, 2000000 }, NULL) == 0);
	__atomic_store_n((int *)word, 1, __ATOMIC_SEQ_CST);
	CHECK(syscall(SYS_futex, word, FUTEX_WAKE, 1) >= 0);
	return NULL;
}

static void test_futex(void)
{
	struct timespec span = { 0, 2000000 };
	pthread_t thread;
	uint64_t before;
	int word = 0;

	enter_virtual_time();
	begin();
	before = read_real(CLOCK_MONOTONIC);
	CHECK(wait_for_futex(&word, 0, virtual_time + 2 * MS) == -1 && errno == ETIMEDOUT);
	/* Reading the virtual clock took a little of the time. */
	CHECK(passed_timeouts == 1 && passed_timeout > MS && passed_timeout <= 2 * MS);
	CHECK(wait_for_futex(&word, FUTEX_CLOCK_REALTIME, virtual_time + CALENDAR + 2 * MS) == -1 && errno == ETIMEDOUT);
	CHECK(syscall(SYS_futex, &word, FUTEX_WAIT, 0, &span) == -1 && errno == ETIMEDOUT);
	CHECK(passed_timeouts == 3 && passed_timeout == 2 * MS);
	CHECK(syscall(SYS_nanosleep, &span, NULL) == 0);
	CHECK(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &span, NULL) == 0 && passed_timeouts == 5);
	CHECK(syscall(SYS_futex, &word, FUTEX_WAIT, 1, &span) == -1 && errno == EAGAIN && passed_timeouts == 5);
	/* Each reading of the virtual clock took a little of the time. */
	CHECK(read_real(CLOCK_MONOTONIC) - before >= 9 * MS);
	CHECK(pthread_create(&thread, NULL, wake_futex, &word) == 0);
	while (__atomic_load_n(&word, __ATOMIC_SEQ_CST) == 0)
		CHECK(wait_for_futex(&word, 0, virtual_time + 1000 * SECOND) == 0 || errno == EAGAIN);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(waited() == 0 && elapsed_ms() == 0);
}

/* Times that setting and reading a timer take. */
#define SOON (10 * US)

static uint64_t left_of(struct timespec left)
{
	return left.tv_sec * SECOND + left.tv_nsec;
}

static void test_timer_descriptors(void)
{
	struct itimerspec setting = { .it_value = { 100, 0 } };
	struct itimerspec left;
	struct epoll_event event = { .events = EPOLLIN };
	uint64_t expirations;
	int early = timerfd_create(CLOCK_MONOTONIC, 0);
	int set = epoll_create1(0);

	enter_virtual_time();
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);
	struct pollfd readable = { fd, POLLIN, 0 };
	CHECK(early >= 0 && fd >= 0 && set >= 0);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	/* A read waits for the end, in virtual time. */
	uint64_t begin = virtual_time;
	CHECK(timerfd_settime(early, 0, &setting, NULL) == 0 && timerfd_gettime(early, &left) == 0);
	CHECK(left_of(left.it_value) <= 100 * SECOND && left_of(left.it_value) > 100 * SECOND - SOON);
	CHECK(read(early, &expirations, sizeof expirations) == sizeof expirations && expirations == 1);
	CHECK(virtual_time - begin >= 100 * SECOND && virtual_time - begin < 100 * SECOND + SOON);
	CHECK(timerfd_gettime(early, &left) == 0 && left_of(left.it_value) == 0);
	/* An absolute time, and ends that repeat. */
	begin = virtual_time;
	setting.it_value = to_timespec(begin + 50 * SECOND);
	setting.it_interval.tv_sec = 7;
	CHECK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &setting, NULL) == 0);
	CHECK(poll(&readable, 1, 49000) == 0 && poll(&readable, 1, -1) == 1);
	CHECK(virtual_time - begin >= 50 * SECOND && virtual_time - begin < 50 * SECOND + SOON);
	CHECK(read(fd, &expirations, sizeof expirations) == sizeof expirations && expirations == 1);
	CHECK(epoll_wait(set, &event, 1, -1) == 1);
	CHECK(virtual_time - begin >= 57 * SECOND && virtual_time - begin < 57 * SECOND + SOON);
	CHECK(read(fd, &expirations, sizeof expirations) == sizeof expirations && expirations == 1);
	/* Disarmed, with the old setting. */
	setting = (struct itimerspec){ .it_value = { 0, 0 } };
	CHECK(timerfd_settime(fd, 0, &setting, &left) == 0 && left.it_interval.tv_sec == 7);
	CHECK(left_of(left.it_value) <= 7 * SECOND && left_of(left.it_value) > 7 * SECOND - SOON);
	CHECK(due == UINT64_MAX);
	/* A time that has passed ends the timer at once. */
	setting.it_value = to_timespec(virtual_time - SECOND);
	CHECK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &setting, NULL) == 0 && poll(&readable, 1, 0) == 1);
	/* The kernel judges what is no timer, and invalid settings. */
	CHECK(timerfd_settime(set, 0, &setting, NULL) == -1 && errno == EINVAL);
	setting.it_value.tv_nsec = -1;
	CHECK(timerfd_settime(fd, 0, &setting, NULL) == -1 && errno == EINVAL);
	/* A descriptor that is no timer any more. */
	setting.it_value = (struct timespec){ 3, 0 };
	CHECK(timerfd_settime(fd, 0, &setting, NULL) == 0 && close(fd) == 0 && usleep(4000000) == 0);
	CHECK(close(early) == 0 && close(set) == 0);
}

static volatile sig_atomic_t signalled;
static uint64_t signalled_at;

static void note_signal(int unused)
{
	(void)unused;
	signalled++;
	signalled_at = virtual_time;
}

static void test_timer_signals(void)
{
	struct sigaction action = { .sa_handler = note_signal };
	struct itimerval interval = { { 0, 0 }, { 0, 200000 } };
	struct itimerspec setting = { .it_value = { 20, 0 } };
	struct itimerspec left;
	struct timespec rest;
	sigset_t set;
	timer_t timer;

	CHECK(sigaction(SIGALRM, &action, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
	/* Set before virtual time, and taken over. */
	CHECK(alarm(1000) == 0);
	enter_virtual_time();
	uint64_t begin = virtual_time;
	CHECK(nanosleep(&(struct timespec){ 1500, 0 }, &rest) == -1 && errno == EINTR && signalled == 1);
	CHECK(virtual_time - begin > 999 * SECOND && virtual_time - begin < 1001 * SECOND);
	CHECK(rest.tv_sec >= 499 && rest.tv_sec <= 501);
	/* alarm, and the rest that it returns. */
	begin = virtual_time;
	CHECK(alarm(600) == 0 && usleep(1000000) == 0 && alarm(60) == 599 && pause() == -1 && errno == EINTR);
	CHECK(signalled == 2 && signalled_at - begin >= 61 * SECOND && signalled_at - begin < 61 * SECOND + SOON);
	/* A computation without a call: as much CPU time passes. */
	CHECK(setitimer(ITIMER_REAL, &interval, NULL) == 0);
	while (signalled < 3)
		;
	/* A timer with a signal of its own, which is awaited. */
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGUSR1) == 0);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	begin = virtual_time;
	CHECK(timer_settime(timer, 0, &setting, NULL) == 0 && timer_gettime(timer, &left) == 0);
	CHECK(left_of(left.it_value) <= 20 * SECOND && left_of(left.it_value) > 20 * SECOND - SOON);
	CHECK(sigtimedwait(&set, NULL, &(struct timespec){ 5, 0 }) == -1 && errno == EAGAIN);
	CHECK(virtual_time - begin >= 5 * SECOND && virtual_time - begin < 6 * SECOND);
	CHECK(sigwaitinfo(&set, NULL) == SIGUSR1);
	CHECK(virtual_time - begin >= 20 * SECOND && virtual_time - begin < 20 * SECOND + SOON);
	CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
	/* The process sleeps for something else meanwhile. */
	int ends[2];
	CHECK(pipe(ends) == 0);
	struct pollfd readable = { ends[0], POLLIN, 0 };
	interval.it_value.tv_usec = 20000;
	CHECK(setitimer(ITIMER_REAL, &interval, NULL) == 0 && poll(&readable, 1, -1) == -1 && errno == EINTR);
	CHECK(timer_settime(timer, 0, &setting, NULL) == 0 && timer_delete(timer) == 0 && due == UINT64_MAX);
	/* What is left when virtual time ends is left in real time. */
	interval.it_value.tv_usec = 50000;
	CHECK(setitimer(ITIMER_REAL, &interval, NULL) == 0);
	ended = 1;
	(void)read_clock(CLOCK_MONOTONIC);
	int before = signalled;
	while (signalled == before)
		(void)usleep(1000);
	CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void end_virtual_time(void)
{
	ended = 1;
}

/* A filter of system calls lets sched_yield fail, so that a call which reaches the kernel shows. */
static void test_yields(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_yield, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof code / sizeof *code, code };

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0);
	CHECK(sched_yield() == -1 && errno == EPERM);
	enter_virtual_time();
	CHECK(sched_yield() == 0);
	thrd_yield();
	must_yield = 1;
	CHECK(sched_yield() == -1 && errno == EPERM);
	must_yield = 0;
	CHECK(sched_yield() == 0);
}

/* Virtual time ends during a wait: the rest of it is real. */
static void test_end(void)
{
	struct timespec until;
	struct pollfd fd;
	uint64_t before;

	make_descriptors();
#define ENTER                                                                                   \
	(ended = 0, hook = end_virtual_time, enter_virtual_time(), before = read_real(CLOCK_MONOTONIC))
#define ENDED(ms) (is_real(CLOCK_MONOTONIC) && read_real(CLOCK_MONOTONIC) - before >= (ms) * MS)
	ENTER;
	CHECK(usleep(2000) == 0 && ENDED(2));
	ENTER;
	fd = (struct pollfd){ .fd = owned, .events = POLLIN };
	CHECK(poll(&fd, 1, 2) == 0 && ENDED(2));
	ENTER;
	CHECK(poll(NULL, 0, 2) == 0 && ENDED(2));
	ENTER;
	CHECK(pthread_mutex_lock(&mutex) == 0);
	until = to_timespec(virtual_time + CALENDAR + 3 * MS);
	CHECK(pthread_cond_timedwait(&cond, &mutex, &until) == ETIMEDOUT && ENDED(3));
	ENTER;
	ended = 1;
	CHECK(is_real(CLOCK_REALTIME));
	/* The end is final, until the provider registers again. */
	ended = 0;
	CHECK(is_real(CLOCK_REALTIME));
	enter_virtual_time();
	CHECK(read_clock(CLOCK_MONOTONIC) >= BEGIN);
}

static void test_fork(void)
{
	int status;
	pid_t child;

	enter_virtual_time();
	begin();
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(is_real(CLOCK_MONOTONIC) && is_real(CLOCK_REALTIME));
		CHECK(usleep(1000) == 0 && waited() == 0);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(read_clock(CLOCK_MONOTONIC) >= BEGIN);
}

#ifdef __x86_64__
static uint64_t read_counter(void)
{
	return __builtin_ia32_rdtsc();
}

static void *count_with_blocked_signals(void *argument)
{
	unsigned processor;

	(void)argument;
	CHECK(__builtin_ia32_rdtscp(&processor) > 0);
	return NULL;
}

static sigjmp_buf fault;

static void leave_fault(int signal)
{
	siglongjmp(fault, signal);
}

/* Reads clock and counter at one moment: the tightest of several pairs. */
static void read_both(uint64_t *clock, uint64_t *ticks)
{
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < 16; i++) {
		uint64_t before = read_counter(), at = read_real(CLOCK_MONOTONIC), span = read_counter() - before;

		if (span < least) {
			least = span;
			*clock = at;
			*ticks = before + span / 2;
		}
	}
}

static volatile uint64_t counted;

static void count(int unused)
{
	(void)unused;
	counted = read_counter();
}

static void test_counter(void)
{
	struct sigaction own = { .sa_handler = leave_fault, .sa_flags = SA_NODEFER }, old;
	struct sigaction blocking = { .sa_handler = count };
	uint64_t clock, later, ticks, ticks_later, elapsed;
	double frequency;
	sigset_t all, none;
	pthread_t thread;
	unsigned processor;
	pid_t child;
	int status;

	read_both(&clock, &ticks);
	usleep(50000);
	read_both(&later, &ticks_later);
	frequency = (double)(ticks_later - ticks) / (double)(later - clock);
	CHECK(sigaction(SIGSEGV, &own, NULL) == 0);
	sigfillset(&blocking.sa_mask);
	CHECK(sigaction(SIGUSR1, &blocking, NULL) == 0);
	CHECK(setenv("SQUALL_TIME_TSC", "trap", 1) == 0);
	enter_virtual_time();

	ticks = read_counter();
	CHECK(usleep(1000000) == 0 && waits == 1);
	elapsed = (uint64_t)((double)(read_counter() - ticks) / frequency);
	CHECK(elapsed > 980 * MS && elapsed < 1020 * MS);
	ticks = __builtin_ia32_rdtscp(&processor);
	CHECK(usleep(1000000) == 0);
	elapsed = (uint64_t)((double)(__builtin_ia32_rdtscp(&processor) - ticks) / frequency);
	CHECK(elapsed > 980 * MS && elapsed < 1020 * MS);

	/* The kernel would end a thread that blocks the signal of the trap. */
	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_SETMASK, &all, &none) == 0);
	CHECK(pthread_create(&thread, NULL, count_with_blocked_signals, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(sigprocmask(SIG_SETMASK, &none, NULL) == 0);

	/* So would a handler that blocks it, whenever it was installed. */
	CHECK(sigaction(SIGUSR2, &blocking, NULL) == 0);
	CHECK(raise(SIGUSR1) == 0 && counted > 0);
	counted = 0;
	CHECK(raise(SIGUSR2) == 0 && counted > 0);

	/* Programs that it executes begin with reads of the counter. */
	CHECK(system("true") == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(read_counter() > 0);
		execlp("true", "true", NULL);
		_exit(1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);

	/* Other faults are the program's. */
	CHECK(sigaction(SIGSEGV, NULL, &old) == 0 && old.sa_handler == leave_fault);
	if (sigsetjmp(fault, 1) == 0) {
		*(volatile int *)8 = 1;
		CHECK(!"a write to nowhere went well");
	}
	CHECK(signal(SIGSEGV, SIG_DFL) == leave_fault);
	CHECK(read_counter() > ticks);
}

/* Executes this program in each way, from a thread in which reads of the counter trap. */
static void test_execution(const char *how)
{
	static char *words[] = { "program", "executed", "2", "3", "4", "5", "6", "7", "8", NULL };
	char *few[] = { "LD_PRELOAD=", "SQUALL_TIME_TSC=trap", NULL };
	const char *self = "/proc/self/exe";
	char preload[4096];

	snprintf(preload, sizeof preload, "LD_PRELOAD=%s", getenv("LD_PRELOAD"));
	few[0] = preload;
	CHECK(setenv("SQUALL_TIME_TSC", "trap", 1) == 0);
	enter_virtual_time();
	CHECK(read_counter() > 0);
	if (strcmp(how, "execl") == 0)
		execl(self, "program", "executed", "2", "3", "4", "5", "6", "7", "8", NULL);
	else if (strcmp(how, "execlp") == 0)
		execlp(self, "program", "executed", "2", "3", "4", "5", "6", "7", "8", NULL);
	else if (strcmp(how, "execle") == 0)
		execle(self, "program", "executed", "2", "3", "4", "5", "6", "7", "8", NULL, few);
	else if (strcmp(how, "few-words") == 0)
		execle(self, "program", "executed", NULL, few);
	else if (strcmp(how, "execv") == 0)
		execv(self, words);
	else if (strcmp(how, "execvp") == 0)
		execvp(self, words);
	else if (strcmp(how, "fexecve") == 0)
		fexecve(open(self, O_RDONLY | O_CLOEXEC), words, environ);
	CHECK(!"the program was executed");
}

/* Runs in the program that test_execution has executed: it has all words, the library, and the trap in virtual time. */
static int continue_executed(int argc, char **argv)
{
	int mode;

	CHECK(argc == 2 || argc == 9);
	for (int i = 2; i < argc; i++)
		CHECK(atoi(argv[i]) == i);
	enter_virtual_time();
	CHECK(prctl(PR_GET_TSC, &mode) == 0 && mode == PR_TSC_SIGSEGV);
	CHECK(read_counter() > 0);
	return 0;
}
#else
static void test_counter(void)
{
}

static void test_execution(const char *how)
{
	(void)how;
}

static int continue_executed(int argc, char **argv)
{
	return argc < 0 && argv;
}
#endif

static void *sleep_for_ever(void *argument)
{
	(void)argument;
	poll(NULL, 0, -1);
	return NULL;
}

static void *sleep_for_long(void *argument)
{
	(void)argument;
	sleep(1000000);
	return NULL;
}

static void *return_argument(void *argument)
{
	CHECK(begun > BEGIN);
	return argument;
}

static void *exit_with_argument(void *argument)
{
	pthread_exit(argument);
}

/* A thread begins at the time of its creator, however it ends. */
static void test_threads(void)
{
	void *(*starts[])(void *) = { return_argument, exit_with_argument };
	pthread_attr_t attributes;
	pthread_t thread;
	void *result;
	uint64_t i;

	CHECK(pthread_create(&thread, NULL, exit_with_argument, &created) == 0);
	CHECK(pthread_join(thread, &result) == 0 && result == &created && created == 0 && begun == 0);
	enter_virtual_time();
	for (i = 0; i < 2; i++) {
		errno = 0;
		CHECK(pthread_create(&thread, NULL, starts[i], &created) == 0 && errno == 0);
		CHECK(pthread_join(thread, &result) == 0 && result == &created);
		CHECK(created == i + 1 && begun == BEGIN + i + 1);
	}
	/* One that is cancelled unwinds through the library. */
	CHECK(pthread_create(&thread, NULL, sleep_for_ever, NULL) == 0);
	CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
	/* No thread begins that was not created: no address space has this stack. */
	CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, (size_t)1 << 62) == 0);
	begun = 0;
	CHECK(pthread_create(&thread, &attributes, return_argument, NULL) != 0 && begun == 0);
}

/* Timeouts of sockets pass in real time, and the provider learns of them. */
static void test_sockets(void)
{
	struct timeval timeout = { .tv_sec = 1, .tv_usec = 5 };
	int on = 1, pair[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == 0);
	CHECK(timeout_of_socket == 0);
	enter_virtual_time();
	CHECK(setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
	CHECK(setsockopt(-1, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == -1 && errno == EBADF);
	CHECK(setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &timeout, 2) == -1 && errno == EINVAL);
	CHECK(timeout_of_socket == 0);
	CHECK(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == 0);
	CHECK(timeout_of_socket == SECOND + 5000);
	timeout.tv_sec = 2;
	CHECK(setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) == 0);
	CHECK(timeout_of_socket == 2 * SECOND + 5000);
	timeout_of_socket = 0;
	timeout = (struct timeval){ 0 };
	CHECK(setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) == 0);
	CHECK(timeout_of_socket == 0);
}

/* Without a table, all functions are the real ones. */
static void test_real(void)
{
	static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME, CLOCK_REALTIME,
					    CLOCK_TAI, CLOCK_PROCESS_CPUTIME_ID };
	struct timespec span = { 0, 1000000 };
	struct timeval timeout = { 0, 1000 };
	struct epoll_event event;
	struct timespec until;
	struct pollfd fd;
	struct timeval val;
	uint64_t before;
	pthread_t thread;
	void *result;
	size_t i;
	int set;

	make_descriptors();
	for (i = 0; i < sizeof clocks / sizeof *clocks; i++)
		CHECK(is_real(clocks[i]));
	before = read_real(CLOCK_REALTIME);
	CHECK(gettimeofday(&val, NULL) == 0);
	CHECK((uint64_t)val.tv_sec >= before / SECOND && (uint64_t)val.tv_sec <= before / SECOND + 1000);
	CHECK((uint64_t)time(NULL) + 1 >= before / SECOND);
	CHECK(timespec_get(&until, TIME_UTC) == TIME_UTC && from_timespec(until) >= before);

	before = read_real(CLOCK_MONOTONIC);
	CHECK(nanosleep(&span, NULL) == 0 && usleep(1000) == 0);
	CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &span, NULL) == 0);
	CHECK(poll(NULL, 0, 1) == 0 && select(0, NULL, NULL, NULL, &timeout) == 0);
	set = epoll_with(owned);
	CHECK(epoll_wait(set, &event, 1, 1) == 0);
	fd = (struct pollfd){ .fd = owned, .events = POLLIN };
	CHECK(ppoll(&fd, 1, &span, NULL) == 0);
	CHECK(pselect(0, NULL, NULL, NULL, &span, NULL) == 0);
	until = to_timespec(read_real(CLOCK_REALTIME) + 2 * MS);
	CHECK(pthread_mutex_lock(&mutex) == 0);
	CHECK(pthread_cond_timedwait(&cond, &mutex, &until) == ETIMEDOUT);
	CHECK(pthread_mutex_timedlock(&mutex, &until) == ETIMEDOUT);
	CHECK(sem_init(&semaphore, 0, 0) == 0);
	CHECK(sem_timedwait(&semaphore, &until) == -1 && errno == ETIMEDOUT);
	CHECK(read_real(CLOCK_MONOTONIC) - before >= 10 * MS);
	CHECK(waits == 0);

	/* A thread that is cancelled unwinds through the library. */
	CHECK(pthread_create(&thread, NULL, sleep_for_ever, NULL) == 0);
	CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
	CHECK(result == PTHREAD_CANCELED);
	CHECK(pthread_create(&thread, NULL, sleep_for_long, NULL) == 0);
	usleep(2000);
	CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
	CHECK(result == PTHREAD_CANCELED);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {
		{ "registration", test_registration }, { "clocks", test_clocks },
		{ "sleeps", test_sleeps },	       { "poll", test_poll },
		{ "select", test_select },	       { "epoll", test_epoll },
		{ "conditions", test_conditions },     { "locks", test_locks },
		{ "futex", test_futex },		       { "end", test_end },
		{ "fork", test_fork },		       { "real", test_real },
		{ "yields", test_yields },	       { "threads", test_threads },
		{ "timer-descriptors", test_timer_descriptors },
		{ "sockets", test_sockets },
		{ "timer-signals", test_timer_signals },	       { "counter", test_counter },
	};
	size_t i;

	for (i = 0; i < sizeof tests / sizeof *tests; i++) {
		if (argc == 2 && strcmp(argv[1], tests[i].name) == 0) {
			tests[i].run();
			return 0;
		}
	}
	if (argc > 1 && strcmp(argv[1], "executed") == 0)
		return continue_executed(argc, argv);
	if (argc == 3 && strcmp(argv[1], "execution") == 0)
		test_execution(argv[2]);
	fprintf(stderr, "no test of this name\n");
	return 2;
}
